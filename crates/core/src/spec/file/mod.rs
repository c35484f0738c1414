//! Builds a [`JobSpec`] from a job file, defaults and flags, and reports all mistakes at once.
//!
//! `keys` defines every key once; `check` compares a file with it, `read` takes the valid values,
//! [`write`] writes a job, and [`JobSpec::validate_with`] checks the whole. Flags and the configuration's
//! defaults go the same way.

mod check;
mod field;
mod flags;
pub(crate) mod keys;
mod other_tools;
mod patch;
mod places;
mod read;
pub mod reference;
pub(crate) mod shape;
mod template;
mod text;
mod toml;
mod value;
mod write;

pub use flags::{JobFlag, Overrides, job_flags};
pub use other_tools::tool_of;
pub use patch::patched;
pub use shape::{Group, Word};
pub use template::template;
pub use text::{Format, MAX_BYTES, MAX_SCRIPT};
pub use write::to_toml;

pub(crate) use check::{Check, join, shown};
pub(crate) use value::Source;

use crate::catalogue::Catalogue;
use crate::finding::Finding;
use crate::request::Origin;
use crate::span::{self, SpanTree, Value};
use crate::spec::{Code, CodeContent, JobSpec, Launch, RoleKind};
use crate::{Error, ErrorKind, Result};

use places::Places;
use read::Read;

/// A parsed job, and the files that are still to be read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobFile {
    /// The job.
    pub spec: JobSpec,
    /// Warnings and remarks; no errors.
    pub findings: Vec<Finding>,
    /// Path, as written in the file, of the script whose text is to be read: [`JobFile::set_script`].
    pub script: Option<String>,
}

impl JobFile {
    /// Reads a job file alone, without defaults and flags.
    ///
    /// ```
    /// use weftrun_core::spec::JobFile;
    /// let file = JobFile::parse("job.toml", b"name = \"demo\"\nnodes = 2\ncommand = \"hostname\"\n")?;
    /// assert_eq!(file.spec.nodes(), 2);
    /// # Ok::<(), weftrun_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each mistake, each with its line and column.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        let mut draft = PartialJob::new();
        draft.file(file, bytes);
        draft.finish(&Catalogue::builtin())
    }

    /// Returns the path, as written in the file, of a TrainJob's runtime that is to be read:
    /// [`JobFile::set_runtime`].
    pub fn runtime(&self) -> Option<String> {
        self.spec.backend.get("kubeflow")?.get("runtime-file")?.as_str().map(str::to_owned)
    }

    /// Sets the text of the file named by [`JobFile::runtime`]; the job then refers to the runtime in it,
    /// unless it names another.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] where no training runtime is in it.
    pub fn set_runtime(&mut self, file: &str, text: &str) -> Result<()> {
        let runtimes = crate::spec::runtimes_in(text);
        let (Some(first), Some(own)) = (
            runtimes.first(),
            self.spec.backend.get_mut("kubeflow").and_then(serde_json::Value::as_object_mut),
        ) else {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                "there is no ClusterTrainingRuntime and no TrainingRuntime in the file",
            )
            .with("file", file)
            .hint("kubectl get clustertrainingruntime NAME -o yaml"));
        };
        for (key, value) in [("runtime", &first["metadata"]["name"]), ("runtime-kind", &first["kind"])] {
            own.entry(key).or_insert_with(|| value.clone());
        }
        own.insert("runtimes".to_owned(), serde_json::Value::Array(runtimes));
        own.shift_remove("runtime-file");
        Ok(())
    }

    /// Returns the folder, as written in the file, whose files are to be read: [`JobFile::set_code`].
    pub fn code_dir(&self) -> Option<String> {
        let (dir, content) = self.spec.code_folder()?;
        content.is_none().then(|| dir.to_owned())
    }

    /// Sets the files of the folder named by [`JobFile::code_dir`].
    pub fn set_code(&mut self, read: CodeContent) {
        if let Some(Code::Folder { content, .. }) = &mut self.spec.code {
            *content = Some(read);
        }
    }

    /// Sets the text of the script named in [`JobFile::script`].
    pub fn set_script(&mut self, content: String) {
        if let Some(Code::Script { text, .. }) = &mut self.spec.code {
            *text = content;
            self.script = None;
        }
    }
}

/// A job under construction: defaults, then the file, then flags; later ones win.
#[derive(Clone, Debug, Default)]
pub struct PartialJob {
    spec: JobSpec,
    findings: Vec<Finding>,
    places: Places,
    script: Option<String>,
    file: Option<String>,
    /// Paths of the keys that misspelt ones probably meant.
    meant: Vec<String>,
    /// The configuration's instance type, for workers that name none.
    instance_type: Option<(String, Origin)>,
    /// Whether the file could not be parsed, so that checking the whole would only add noise.
    broken: bool,
}

impl PartialJob {
    /// Starts an empty job.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the job file.
    pub fn file(&mut self, file: &str, bytes: &[u8]) {
        self.file = Some(file.to_owned());
        let text = match text::decode(file, bytes) {
            Ok(text) => text,
            Err(finding) => {
                self.broken = true;
                return self.findings.push(*finding);
            }
        };
        let source = Source { file, text };
        let (root, syntax) = parse(source);
        self.broken |= !syntax.is_empty();
        let root = root.filter(|root| !root.is_null());
        if let Some(finding) = other_tools::finding(file, text, root.as_ref(), !syntax.is_empty()) {
            self.broken = true;
            return self.findings.push(finding);
        }
        if let Some(root) = &root {
            self.broken |= !matches!(root.value, Value::Map(_));
            let found = self.tree(root, source, Origin::Job);
            // After a syntax error, other findings of that line are meaningless.
            let lines: Vec<usize> =
                syntax.iter().filter_map(|f| f.span.as_ref()).map(|span| span.line).collect();
            let apart = |f: &Finding| f.span.as_ref().is_none_or(|span| !lines.contains(&span.line));
            self.findings.extend(found.into_iter().filter(apart));
            self.places.add(root, source);
        } else if syntax.is_empty() {
            self.broken = true;
            let empty = Finding::error("SPEC-EMPTY", format!("{file} is empty"));
            self.findings.push(empty.fix("`weftrun init` writes a job file to start from"));
        }
        self.findings.extend(syntax);
    }

    /// Adds the configuration's defaults for all jobs
    /// ([`ResolvedConfig::job_defaults`](crate::config::ResolvedConfig::job_defaults)).
    pub fn defaults(&mut self, defaults: Vec<(Vec<String>, serde_json::Value, Origin)>) {
        flags::defaults(self, defaults);
    }

    /// Adds flags. A mistake in one is reported under its name.
    pub fn flags(&mut self, overrides: &Overrides) {
        flags::apply(self, overrides);
    }

    fn tree(&mut self, tree: &SpanTree<'_>, source: Source<'_>, origin: Origin) -> Vec<Finding> {
        let mut check = Check::new(source, "a job file");
        check.table(tree, &keys::JOB, "");
        Read { source, origin, job: &mut self.spec, script: &mut self.script }.job(tree);
        let (findings, meant) = check.into_parts();
        self.meant.extend(meant);
        findings
    }

    /// Ends the draft: checks the whole and returns the job.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each mistake.
    pub fn finish(mut self, catalogue: &Catalogue) -> Result<JobFile> {
        self.complete();
        if !self.broken {
            let mut found = self.spec.validate_with(catalogue);
            found.extend(self.both_forms());
            let cut = first_of_many(&mut found);
            for mut finding in found.into_iter().chain(cut) {
                self.places.locate(&mut finding);
                // An invalid value was not taken; that it is missing now is no second mistake.
                let misspelt = finding.subject.as_ref().is_some_and(|path| self.meant.contains(path));
                if !misspelt && !self.findings.iter().any(|known| covers(known, &finding)) {
                    self.name_origin(&mut finding);
                    self.findings.push(finding);
                }
            }
        }
        self.findings.sort_by_key(|f| f.span.as_ref().map_or(usize::MAX, |span| span.start));
        if !self.findings.iter().any(Finding::is_error) {
            return Ok(JobFile { spec: self.spec, findings: self.findings, script: self.script });
        }
        let errors: Vec<&Finding> = self.findings.iter().filter(|f| f.is_error()).collect();
        // Flags, variables and the configuration, not the job file.
        let elsewhere =
            |subject: &&str| ["--", "WEFTRUN_", "[job]"].iter().any(|start| subject.starts_with(start));
        let elsewhere: Vec<&str> =
            errors.iter().filter_map(|finding| finding.subject.as_deref()).filter(elsewhere).collect();
        let what = self.file.as_deref().unwrap_or("the job");
        let message = match (errors.len(), elsewhere.as_slice()) {
            (1, [one]) => format!("the value of {one} is wrong"),
            (count, all) if all.len() == count && all.iter().all(|one| one.starts_with("--")) => {
                format!("the values of {count} flags are wrong")
            }
            (count, all) if all.len() == count => format!("{count} values are wrong: {}", all.join(", ")),
            (1, _) => format!("{what} has a mistake"),
            (count, _) => format!("{what} has {count} mistakes"),
        };
        Err(Error::from_findings(ErrorKind::InvalidSpec, message, self.findings))
    }

    /// Names the flag, variable or configuration that set a value which is not from the file.
    fn name_origin(&self, finding: &mut Finding) {
        let Some(path) = &finding.subject else { return };
        match self.spec.origins.get(path) {
            Origin::Flag(name) | Origin::Env(name) => finding.subject = Some(name),
            Origin::System | Origin::UserConfig | Origin::ProjectConfig => {
                finding.subject = Some(format!("[job] {path}"));
            }
            _ => return,
        }
        finding.span = None;
    }

    /// Fills in derived values: the instance type of all workers, and the script that torchrun starts.
    fn complete(&mut self) {
        if let Some((name, origin)) = self.instance_type.take() {
            let workers = self.spec.roles.iter_mut().filter(|role| role.kind == RoleKind::Worker);
            for role in workers.filter(|role| role.instance_type.is_none()) {
                role.instance_type = Some(name.clone());
                self.spec.origins.set(join(&join("roles", &role.name), "instance_type"), origin.clone());
            }
        }
        if self.spec.launch != Launch::Torchrun {
            return;
        }
        let Some(Code::Script { name, .. }) = &self.spec.code else { return };
        let workers =
            self.spec.roles.iter_mut().filter(|r| r.kind == RoleKind::Worker && r.command.is_empty());
        for role in workers {
            role.command = vec![name.clone()];
        }
    }

    /// Reports keys of a role both at the top and under `[roles]`: which one is meant is unclear.
    fn both_forms(&self) -> Vec<Finding> {
        if !self.places.has("roles") {
            return Vec::new();
        }
        let top =
            keys::ROLE.keys.iter().filter(|key| keys::is_shorthand(key.name) && self.places.has(key.name));
        top.map(|key| {
            let message = format!(
                "`{}` is set at the top although the file has `[roles]`; set it in each role",
                key.name
            );
            Finding::error("SPEC-ROLE-KEY", message)
                .at(key.name)
                .fix(format!("move it into a role: `[roles.worker]` `{} = …`", key.name))
        })
        .collect()
    }
}

/// Cuts a list of findings too long to read, errors first, and reports how many were left out. Each finding
/// is placed in the file, which would take minutes for a file with ten thousand mistakes.
fn first_of_many(found: &mut Vec<Finding>) -> Option<Finding> {
    const MOST: usize = 200;
    if found.len() <= MOST {
        return None;
    }
    found.sort_by_key(|finding| !finding.is_error());
    let left_out = found.split_off(MOST);
    let count = left_out.len();
    let errors = left_out.iter().filter(|finding| finding.is_error()).count();
    let mut last = left_out.into_iter().next()?;
    last.message = format!("{count} more findings are not shown, {errors} of them errors");
    last.fix = None;
    last.subject = None;
    Some(last)
}

fn covers(known: &Finding, new: &Finding) -> bool {
    let (Some(known_at), Some(new_at)) = (&known.subject, &new.subject) else { return false };
    known.is_error()
        && (known_at == new_at || new_at.strip_prefix(known_at.as_str()).is_some_and(|r| r.starts_with('.')))
}

fn parse(source: Source<'_>) -> (Option<SpanTree<'_>>, Vec<Finding>) {
    let bad = |error: &span::SyntaxError| {
        // The parsers' own messages for it are about the parser.
        let deep = error.message.contains("recursion") || error.message.contains("recurse");
        let message =
            if deep { "this is nested too deep for a job file".to_owned() } else { error.message.clone() };
        let mut finding = Finding::error("SPEC-SYNTAX", message);
        finding.span = source.place(&error.span);
        finding
    };
    match Format::of(source.file, source.text) {
        Format::Toml => {
            let (document, errors) = span::toml(source.text);
            let mut errors: Vec<_> = errors.iter().take(100).collect();
            // Of two errors at one place, the second follows from the first.
            errors.dedup_by_key(|error| error.span.start);
            let most = errors.into_iter().map(bad).collect();
            (Some(document.root), most)
        }
        Format::Yaml => match span::yaml(source.text) {
            Ok(document) => {
                let twice = document.duplicates.iter().take(100).map(|twice| {
                    let message = format!("`{}` is set twice", twice.key);
                    let mut finding = Finding::error("SPEC-DUPLICATE-KEY", message).fix("remove one of them");
                    finding.span = source.place(&twice.span);
                    finding
                });
                let twice = twice.collect();
                (Some(document.root), twice)
            }
            Err(error) => (None, vec![bad(&error)]),
        },
    }
}
