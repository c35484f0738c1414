//! Flags, which are processed like a file: each is one value at one path, checked against the same table.

use std::borrow::Cow;

use super::PartialJob;
use super::check::Check;
use super::keys::{self, is_shorthand};
use super::read::Read;
use super::shape::{Flag, Group, Key, Shape, Word};
use super::value::Source;
use crate::request::{FabricRequest, Origin};
use crate::span::{Entry, SpanTree, Style, Value};
use crate::spec::volume::FORM as VOLUME_FORM;
use crate::spec::{RoleKind, Volume, VolumeSource};
use crate::{Error, ErrorKind, Finding, Result};

/// A flag of the command line with the key that it sets.
#[derive(Clone, Copy, Debug)]
pub struct JobFlag {
    key: &'static Key,
    flag: &'static Flag,
    /// The table that contains the key, if it is not at the top of the file.
    table: Option<&'static str>,
}

/// Returns all flags that set a key of a job file, in the order of the keys.
pub fn job_flags() -> impl Iterator<Item = JobFlag> {
    let of = |key: &'static Key, table| key.flags.iter().map(move |flag| JobFlag { key, flag, table });
    keys::JOB.keys.iter().flat_map(move |key| {
        let inner = key.shape.table().map_or(&[][..], |table| table.keys);
        of(key, None).chain(inner.iter().flat_map(move |inner| of(inner, Some(key.name))))
    })
}

impl JobFlag {
    /// Returns the flag as it is typed: `--nodes`; `--` for the command at the end of the line.
    pub fn name(self) -> &'static str {
        self.flag.name
    }

    /// Returns the letter of the short form.
    pub fn short(self) -> Option<char> {
        self.flag.short
    }

    /// Returns the name of the value in help; empty for a switch.
    pub fn value_name(self) -> &'static str {
        self.flag.value
    }

    /// Returns the help text.
    pub fn help(self) -> &'static str {
        self.flag.help.unwrap_or(self.key.doc)
    }

    /// Returns the heading under which help lists the flag.
    pub fn group(self) -> Group {
        self.flag.group
    }

    /// Returns the words it accepts; none where any text is accepted.
    pub fn words(self) -> Option<&'static [Word]> {
        match self.key.shape {
            Shape::Word(words) => Some(words),
            _ => None,
        }
    }

    /// Returns whether the flag may be repeated in a verb with several documents.
    pub fn is_repeated(self) -> bool {
        self.flag.repeated || self.is_list()
    }

    /// Returns whether a job uses every value of a repeated flag.
    pub fn is_list(self) -> bool {
        matches!(self.key.shape, Shape::Texts | Shape::Map(_) | Shape::Named(_) | Shape::Rules(_))
    }
}

/// The flags given for a job.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    given: Vec<(Cow<'static, str>, String)>,
}

impl Overrides {
    /// Adds a flag with its value. A repeated flag adds to the list it sets, or else the last one wins. A flag that
    /// does not exist is reported when the flags are applied ([`PartialJob::flags`]).
    ///
    /// ```
    /// use weftrun_core::spec::Overrides;
    /// let flags = Overrides::default().with("--nodes", "4").with("--env", "A=1").with("--env", "B=2");
    /// assert_eq!(flags.get("--nodes"), Some("4"));
    /// ```
    #[must_use]
    pub fn with(mut self, flag: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.set(flag, value);
        self
    }

    /// Adds the command, which follows `--` on the command line.
    #[must_use]
    pub fn command<S: Into<String>>(mut self, argv: impl IntoIterator<Item = S>) -> Self {
        argv.into_iter().for_each(|word| self.set("--", word));
        self
    }

    /// Adds a flag as [`Overrides::with`] does.
    pub fn set(&mut self, flag: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.given.push((flag.into(), value.into()));
    }

    /// Returns the last value of a flag.
    pub fn get(&self, flag: &str) -> Option<&str> {
        self.given.iter().rev().find(|(name, _)| name == flag).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a flag, in order.
    pub fn all<'a>(&'a self, flag: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.given.iter().filter(move |(name, _)| name == flag).map(|(_, value)| value.as_str())
    }

    /// Returns the fabric request of the flags, for documents that are not job files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each value that cannot be read.
    pub fn fabric_request(&self) -> Result<FabricRequest> {
        let mut draft = PartialJob::new();
        draft.flags(self);
        if draft.findings.iter().any(Finding::is_error) {
            let message = "a flag has a value that cannot be read";
            return Err(Error::from_findings(ErrorKind::InvalidSpec, message, draft.findings));
        }
        let mut request = draft.spec.fabric;
        if let Some(worker) = draft.spec.roles.pop() {
            (request.instance_type, request.memory) = (worker.instance_type, worker.memory);
        }
        Ok(request)
    }
}

/// Shows only the names of the flags: a value may be a secret.
impl std::fmt::Debug for Overrides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Overrides ")?;
        f.debug_list().entries(self.given.iter().map(|(flag, _)| flag)).finish()
    }
}

/// Adds the configuration's defaults to a draft: paths of a job file, with values that were checked before.
/// The instance type is applied once the roles are known.
pub(super) fn defaults(draft: &mut PartialJob, defaults: Vec<(Vec<String>, serde_json::Value, Origin)>) {
    for (path, value, origin) in defaults {
        match (path.as_slice(), value.as_str()) {
            ([key], Some(name)) if key == "instance_type" => {
                draft.instance_type = Some((name.to_owned(), origin));
            }
            _ => {
                let name = match &origin {
                    Origin::Env(variable) => variable.clone(),
                    _ => format!("[job] {}", path.join(".")),
                };
                set(draft, &name, &path, from_json(&value), origin);
            }
        }
    }
}

fn from_json(value: &serde_json::Value) -> Value<'static> {
    use serde_json::Value as Json;
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Int(integer),
            (None, float) => Value::Float(float.unwrap_or(f64::NAN)),
        },
        Json::String(text) => string(text),
        Json::Array(items) => Value::Seq(items.iter().map(|item| node(from_json(item))).collect()),
        Json::Object(map) => {
            Value::Map(map.iter().map(|(key, value)| entry(key.clone(), from_json(value))).collect())
        }
    }
}

/// One flag: its name, the path of what it sets, and the value.
struct Given {
    name: &'static str,
    path: Vec<String>,
    value: Value<'static>,
}

/// Adds flags to a draft.
pub(super) fn apply(draft: &mut PartialJob, overrides: &Overrides) {
    let mut flags = Flags::default();
    flags.collect(overrides);
    draft.findings.extend(flags.findings);
    for flag in flags.given {
        match aim(draft, &flag) {
            Ok(paths) => paths.into_iter().for_each(|path| {
                set(draft, flag.name, &path, flag.value.clone(), Origin::Flag(flag.name.to_owned()));
            }),
            Err(finding) => draft.findings.push(*finding),
        }
    }
}

/// Returns the paths that a flag sets: a role's key applies to the workers, if the roles have names.
fn aim(draft: &PartialJob, flag: &Given) -> std::result::Result<Vec<Vec<String>>, Box<Finding>> {
    let key = flag.path.first().map_or("", String::as_str);
    let workers: Vec<&str> =
        draft.spec.roles.iter().filter(|r| r.kind == RoleKind::Worker).map(|r| r.name.as_str()).collect();
    if !is_shorthand(key) || workers.is_empty() || workers == ["worker"] && !draft.places.has("roles") {
        return Ok(vec![flag.path.clone()]);
    }
    // Properties of nodes can be the same for all roles; their number, and the command, cannot.
    let one_each = matches!(key, "nodes" | "gpus_per_node" | "ranks_per_node" | "command");
    if one_each && workers.len() > 1 {
        let message = format!("it is not clear which role is meant: the file has {}", workers.join(", "));
        return Err(Box::new(
            Finding::error("SPEC-ROLE-KEY", message).at(flag.name).fix("set it in the file"),
        ));
    }
    let path =
        |role: &&str| ["roles".to_owned(), (*role).to_owned()].into_iter().chain(flag.path.clone()).collect();
    Ok(workers.iter().map(path).collect())
}

fn set(draft: &mut PartialJob, name: &str, path: &[String], value: Value<'static>, origin: Origin) {
    let tree = node(path.iter().rev().fold(value, |inner, key| Value::Map(vec![entry(key.clone(), inner)])));
    let mut check = Check::new(Source::NONE, "a job");
    check.table(&tree, &keys::JOB, "");
    let (findings, _) = check.into_parts();
    let good = findings.is_empty();
    draft.findings.extend(findings.into_iter().map(|mut finding| {
        let path = finding.subject.take().unwrap_or_default();
        let path = format!("`{path}`");
        let said =
            finding.message.strip_prefix(&path).map(|rest| rest.trim_start_matches([':', ' ']).to_owned());
        finding.message = said.unwrap_or_else(|| finding.message.replace(&path, name));
        finding.at(name)
    }));
    if good {
        Read { source: Source::NONE, origin, job: &mut draft.spec, script: &mut draft.script }.job(&tree);
    }
}

fn node(value: Value<'static>) -> SpanTree<'static> {
    SpanTree::new(value, 0..0, Style::Plain)
}

fn entry(key: impl Into<Cow<'static, str>>, value: Value<'static>) -> Entry<'static> {
    Entry { key: key.into(), key_span: 0..0, value: node(value) }
}

#[derive(Default)]
struct Flags {
    given: Vec<Given>,
    findings: Vec<Finding>,
}

impl Flags {
    fn collect(&mut self, overrides: &Overrides) {
        for flag in job_flags() {
            let values: Vec<&str> = overrides.all(flag.name()).collect();
            if !values.is_empty() && flag.table != Some(keys::CODE.name) {
                self.flag(flag, &values);
            }
        }
        self.code(overrides);
        let unknown =
            overrides.given.iter().filter(|(given, _)| !job_flags().any(|flag| flag.name() == given));
        for (given, _) in unknown {
            let message = format!("there is no flag `{given}`");
            self.findings.push(Finding::error("SPEC-FLAG", message).at(given.clone()));
        }
    }

    fn flag(&mut self, flag: JobFlag, values: &[&str]) {
        let name = flag.name();
        let path: Vec<&str> = flag.table.into_iter().chain([flag.key.name]).collect();
        let last = values.last().copied().unwrap_or_default();
        match flag.key.shape {
            Shape::Command => self.push(name, &path, list(values)),
            // No network and no node has a comma in its name.
            Shape::Texts => {
                let texts: Vec<&str> = values.iter().flat_map(|value| value.split(',')).collect();
                self.push(name, &path, list(&texts));
            }
            Shape::Bool => self.push(name, &path, Value::Bool(last == "true")),
            // A value that is no number is passed on as text, for the check to refuse.
            Shape::Count { .. } => {
                self.push(name, &path, last.parse().map_or_else(|_| string(last), Value::Int));
            }
            Shape::Map(Shape::Values) => self.lists(name, &path, values),
            Shape::Map(_) => {
                for (key, value) in self.pairs(name, values) {
                    self.push(name, &[path.as_slice(), &[key]].concat(), string(value));
                }
            }
            Shape::Rules(_) => {
                for id in values {
                    let word = flag.flag.word.unwrap_or("auto");
                    self.push(name, &[path.as_slice(), &[id]].concat(), string(word));
                }
            }
            Shape::Named(_) => values.iter().for_each(|text| self.volume(name, &path, text)),
            // `--restart 3` is short for `{ max = 3 }`.
            Shape::OneOf(shapes) => match last.parse() {
                Ok(max) => self.push(name, &[path.as_slice(), &["max"]].concat(), Value::Int(max)),
                Err(_) => {
                    let words: Vec<&Word> = shapes.iter().filter_map(Shape::words).flatten().collect();
                    if words.iter().any(|word| word.is(last)) {
                        self.push(name, &path, string(last));
                    } else {
                        let known = words.iter().map(|word| format!("`{}`", word.word));
                        let known = known.collect::<Vec<_>>().join(", ");
                        let or = if known.is_empty() { "" } else { " or " };
                        self.wrong(name, format!("must be {known}{or}a number, not `{last}`"), "");
                    }
                }
            },
            _ => self.push(name, &path, string(last)),
        }
    }

    /// Adds the values of each name; those of a name that is given twice are one list.
    fn lists(&mut self, name: &'static str, path: &[&str], values: &[&str]) {
        let mut lists: Vec<(&str, Vec<&str>)> = Vec::new();
        for (key, text) in self.pairs(name, values) {
            if text.split(',').any(str::is_empty) {
                let message = format!("`{key}` has an empty value");
                self.wrong(name, message, "write NAME=VALUE,VALUE; a job file can have empty values");
                continue;
            }
            match lists.iter_mut().find(|(known, _)| *known == key) {
                Some((_, list)) => list.extend(text.split(',')),
                None => lists.push((key, text.split(',').collect())),
            }
        }
        for (key, values) in lists {
            self.push(name, &[path, &[key]].concat(), list(&values));
        }
    }

    /// Adds `code`, whose parts are one value: a script on the command line replaces a repository or a folder in
    /// the file.
    fn code(&mut self, overrides: &Overrides) {
        let mut parts = Vec::new();
        let mut name = "";
        for flag in job_flags().filter(|flag| flag.table == Some(keys::CODE.name)) {
            if let Some(text) = overrides.get(flag.name()) {
                name = if parts.is_empty() { flag.name() } else { name };
                parts.push((flag.key.name, string(text)));
            }
        }
        let has = |key: &str| parts.iter().any(|(part, _)| *part == key);
        if has("ref") && !has("git") {
            self.wrong(name, "only a repository has one: set --git too".to_owned(), "");
        } else if ["script", "git", "dir"].into_iter().filter(|kind| has(kind)).count() > 1 {
            self.wrong(name, "a job has one of a script, a repository and a folder".to_owned(), "");
        } else if !parts.is_empty() {
            self.push(name, &[keys::CODE.name], table(parts));
        }
    }

    fn volume(&mut self, flag: &'static str, path: &[&str], text: &str) {
        let Ok(volume) = text.parse::<Volume>() else {
            return self.wrong(flag, format!("`{text}` cannot be read"), VOLUME_FORM);
        };
        let source = match &volume.source {
            VolumeSource::Claim(claim) => ("claim", string(claim)),
            VolumeSource::HostPath(path) => ("host_path", string(path)),
            VolumeSource::Memory { size: None } => ("memory", Value::Bool(true)),
            VolumeSource::Memory { size: Some(size) } => ("memory", string(size)),
        };
        let mut parts = vec![("mount", string(&volume.mount)), source];
        if volume.read_only {
            parts.push(("read_only", Value::Bool(true)));
        }
        self.push(flag, &[path, &[&volume.name]].concat(), table(parts));
    }

    fn pairs<'t>(&mut self, flag: &'static str, texts: &[&'t str]) -> Vec<(&'t str, &'t str)> {
        let mut pairs = Vec::new();
        for text in texts {
            match text.split_once('=').filter(|(name, _)| !name.is_empty()) {
                Some(pair) => pairs.push(pair),
                // The text may hold a secret, so it is not repeated.
                None => self.wrong(flag, "NAME=VALUE is needed".to_owned(), ""),
            }
        }
        pairs
    }

    fn push(&mut self, name: &'static str, path: &[&str], value: Value<'static>) {
        self.given.push(Given { name, path: path.iter().map(|key| (*key).to_owned()).collect(), value });
    }

    fn wrong(&mut self, flag: &'static str, message: String, fix: &str) {
        let finding = Finding::error("SPEC-FLAG", message).at(flag);
        self.findings.push(if fix.is_empty() { finding } else { finding.fix(fix) });
    }
}

fn string(text: &str) -> Value<'static> {
    Value::Str(Cow::Owned(text.to_owned()))
}

fn list(texts: &[&str]) -> Value<'static> {
    Value::Seq(texts.iter().map(|text| node(string(text))).collect())
}

fn table(entries: Vec<(&'static str, Value<'static>)>) -> Value<'static> {
    Value::Map(entries.into_iter().map(|(key, value)| entry(key, value)).collect())
}
