//! Job files, read from disk.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use weftrun_core::spec::file::{MAX_BYTES, MAX_SCRIPT};
use weftrun_core::spec::{CodeContent, JobFile, Overrides, PartialJob};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::Client;

/// The bytes of a job file, and its name in messages. Reading stops one byte after the size limit, so that no
/// file is too large to be read.
///
/// ```no_run
/// use weftrun::{Client, JobSource};
/// let client = Client::builder().build()?;
/// let file = client.job_file(Some(&JobSource::read("job.toml")?), &Default::default())?;
/// println!("{} on {} nodes", file.spec.name, file.spec.nodes());
/// # Ok::<(), weftrun::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JobSource {
    /// The name in messages.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The folder that a script's path is relative to.
    folder: PathBuf,
}

impl std::fmt::Debug for JobSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, bytes, folder } = self;
        let mut shown = f.debug_struct("JobSource");
        shown.field("name", name).field("bytes", &bytes.len()).field("folder", folder).finish()
    }
}

impl JobSource {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], or [`ErrorKind::Io`] with the system's error.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path == Path::new("-") {
            let bytes =
                bounded(std::io::stdin().lock(), MAX_BYTES).map_err(|e| failed(path, "job file", e))?;
            return Ok(Self { name: "stdin".to_owned(), bytes, folder: PathBuf::new() });
        }
        let bytes = read(path, "job file", MAX_BYTES)?;
        // A pipe (`/dev/stdin`, process substitution) has no folder of its own: paths are relative to the
        // current one, as for `-`.
        let piped = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let folder = path.parent().filter(|_| !piped).map(Path::to_owned).unwrap_or_default();
        Ok(Self { name: path.display().to_string(), bytes, folder })
    }

    /// Creates it from existing bytes.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into(), folder: PathBuf::new() }
    }
}

/// A file that a job file names and that is outside the job file's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outside {
    /// Its use in the job: `script`, `runtime` or `folder`.
    pub what: &'static str,
    /// The path in the job file.
    pub named: String,
    /// The file, with links resolved.
    pub path: PathBuf,
}

impl Outside {
    /// Returns the error that refuses it.
    pub fn refusal(&self) -> Error {
        let message = format!("the {} `{}` is outside the job file's folder", self.what, self.named);
        Error::new(ErrorKind::InvalidSpec, message)
            .with("file", self.path.display())
            .hint("copy it beside the job file, or allow it with `--allow-outside`")
    }

    /// Returns the finding that reports that it is read.
    pub fn finding(&self) -> Finding {
        let message = format!(
            "the {} `{}` is outside the job file's folder: {} is read and sent",
            self.what,
            self.named,
            self.path.display()
        );
        Finding::warning("SPEC-OUTSIDE", message).at(self.named.clone())
    }
}

impl JobSource {
    /// Reads a file that the job file names, relative to the job file's folder. One that is outside of it, by
    /// its path or through a link, is read only if `allow` returns `Ok`: a job file from another user could
    /// name any of the user's files.
    ///
    /// # Errors
    /// The error of `allow`; [`ErrorKind::NotFound`] and [`ErrorKind::Io`] for the file, which must be a
    /// regular one.
    pub fn read_beside(
        &self,
        named: &str,
        what: &'static str,
        most: usize,
        allow: impl FnOnce(&Outside) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let file = self.beside(named, what, allow)?;
        let open = weftrun_backends::files::open(&file);
        open.and_then(|file| bounded(file, most))
            .map_err(|error| failed(&self.folder.join(named), what, error))
    }

    /// Reads the folder that a job file names as `code.dir` like [`JobSource::read_beside`]. Returns also what was left out.
    ///
    /// # Errors
    /// The error of `allow`, and those of [`code_folder`](crate::code_folder).
    pub fn read_code_beside(
        &self,
        named: &str,
        allow: impl FnOnce(&Outside) -> Result<()>,
    ) -> Result<(CodeContent, Vec<Finding>)> {
        crate::code_folder::read(&self.beside(named, "folder", allow)?)
    }

    /// Returns a path that the job file names, with links resolved.
    fn beside(
        &self,
        named: &str,
        what: &'static str,
        allow: impl FnOnce(&Outside) -> Result<()>,
    ) -> Result<PathBuf> {
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let whole = |path: &Path| std::fs::canonicalize(path).map_err(|error| failed(path, what, error));
        let file = whole(&folder.join(named))?;
        if !file.starts_with(whole(folder)?) {
            allow(&Outside { what, named: named.to_owned(), path: file.clone() })?;
        }
        Ok(file)
    }
}

impl Client {
    /// Builds a job from the configuration's defaults, then a file, then flags; and reads its script. A
    /// script outside the job file's folder is refused: [`Client::job_file_with`] can allow it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each error; [`ErrorKind::NotFound`] for the script.
    pub fn job_file(&self, source: Option<&JobSource>, overrides: &Overrides) -> Result<JobFile> {
        self.job_file_with(source, overrides, &|outside| Err(outside.refusal()))
    }

    /// Like [`Client::job_file`], but calls `allow` before a file outside the job file's folder is read. Each
    /// allowed file is a finding of the job.
    ///
    /// # Errors
    /// As [`Client::job_file`], and the error of `allow`.
    pub fn job_file_with(
        &self,
        source: Option<&JobSource>,
        overrides: &Overrides,
        allow: &dyn Fn(&Outside) -> Result<()>,
    ) -> Result<JobFile> {
        let mut draft = PartialJob::new();
        let config = &self.config().resolved;
        let profile = overrides.get("--profile").map(str::to_owned).or_else(|| config.default_profile());
        draft.defaults(config.job_defaults(profile.as_deref()));
        if let Some(source) = source {
            draft.file(&source.name, &source.bytes);
        }
        draft.flags(overrides);
        let mut file = draft.finish(self.catalogue())?;
        let mut allowed = Vec::new();
        if let Some(dir) = file.code_dir() {
            let (content, left_out) = match (source, overrides.get("--code")) {
                (Some(source), None) => source.read_code_beside(&dir, |outside| {
                    allow(outside)?;
                    allowed.push(outside.finding());
                    Ok(())
                })?,
                _ => crate::code_folder::read(Path::new(&dir))?,
            };
            file.set_code(content);
            file.findings.extend(left_out);
        }
        // A path on the command line was typed by the user and is relative to the working directory; one in a
        // file is relative to that file, and must not refer to a file elsewhere without permission.
        let mut text_of =
            |named: &str, what: &'static str, most: usize, flag: Option<&str>| match (source, flag) {
                (Some(source), None) => source.read_beside(named, what, most, |outside| {
                    allow(outside)?;
                    allowed.push(outside.finding());
                    Ok(())
                }),
                _ => read(Path::new(named), what, most),
            };
        if let Some(runtime) = file.runtime() {
            let bytes = text_of(&runtime, "runtime", MAX_BYTES, overrides.get("--runtime"))?;
            file.set_runtime(&runtime, &String::from_utf8_lossy(&bytes))?;
        }
        if let Some(script) = file.script.clone() {
            let bytes = text_of(&script, "script", MAX_SCRIPT, overrides.get("--script"))?;
            let text = String::from_utf8(bytes).map_err(|_| {
                Error::new(ErrorKind::InvalidSpec, format!("the script {script} is not UTF-8 text"))
                    .hint("a job carries text; put programs into the image or on a volume")
            })?;
            file.set_script(text);
            let findings = file.spec.validate_with(self.catalogue());
            if findings.iter().any(weftrun_core::Finding::is_error) {
                return Err(Error::from_findings(ErrorKind::InvalidSpec, "the job has a mistake", findings));
            }
        }
        file.findings.extend(allowed);
        Ok(file)
    }
}

/// Reads a file that the user named, which may be a pipe. Of a file that is too large, one byte more than
/// allowed is returned, which becomes a finding with its position.
fn read(path: &Path, what: &str, most: usize) -> Result<Vec<u8>> {
    File::open(path).and_then(|file| bounded(file, most)).map_err(|error| failed(path, what, error))
}

fn bounded(from: impl Read, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(path: &Path, what: &str, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        // A device or a FIFO instead of a file.
        std::io::ErrorKind::InvalidInput => ErrorKind::InvalidSpec,
        _ => ErrorKind::Io,
    };
    let made =
        Error::new(kind, format!("cannot read the {what} {}: {error}", path.display())).with_source(error);
    match kind {
        ErrorKind::NotFound if what == "job file" => made.hint("`weftrun init` writes one to start from"),
        ErrorKind::NotFound => made.hint("the path starts from the job file's folder"),
        _ => made,
    }
}
