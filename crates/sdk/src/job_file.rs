//! Job files, read from disk.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use weftrun_core::spec::file::{MAX_BYTES, MAX_SCRIPT};
use weftrun_core::spec::{Draft, JobFile, Overrides};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::Client;

/// The bytes of a job file, with the name it is called by. At most one byte more than a job file can have is read, so
/// that no file is too large for it.
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
    /// The folder a script's path starts from.
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
    /// [`ErrorKind::NotFound`], or [`ErrorKind::Io`] with what the system said.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path == Path::new("-") {
            let bytes =
                bounded(std::io::stdin().lock(), MAX_BYTES).map_err(|e| failed(path, "job file", e))?;
            return Ok(Self { name: "stdin".to_owned(), bytes, folder: PathBuf::new() });
        }
        let bytes = read(path, "job file", MAX_BYTES)?;
        // A pipe (`/dev/stdin`, process substitution) has no folder of its own: paths start from the current one, as for `-`.
        let piped = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let folder = path.parent().filter(|_| !piped).map(Path::to_owned).unwrap_or_default();
        Ok(Self { name: path.display().to_string(), bytes, folder })
    }

    /// Takes bytes that are there already.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into(), folder: PathBuf::new() }
    }
}

/// A file that a job file names and that lies outside the job file's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outside {
    /// What it is to the job: `script` or `runtime`.
    pub what: &'static str,
    /// The path in the job file.
    pub named: String,
    /// The file it leads to, links followed.
    pub path: PathBuf,
}

impl Outside {
    /// Refuses it.
    pub fn refusal(&self) -> Error {
        let message = format!("the {} `{}` lies outside the job file's folder", self.what, self.named);
        Error::new(ErrorKind::InvalidSpec, message)
            .with("file", self.path.display())
            .hint("copy it beside the job file, or allow it with `--allow-outside`")
    }

    /// Reports that it is read.
    pub fn finding(&self) -> Finding {
        let message = format!(
            "the {} `{}` lies outside the job file's folder: {} is read and sent",
            self.what,
            self.named,
            self.path.display()
        );
        Finding::warning("SPEC-OUTSIDE", message).at(self.named.clone())
    }
}

impl JobSource {
    /// Reads a file that the job file names, from the job file's folder. One that lies outside of it, by its path or through
    /// a link, is read only if `allow` says so: a job file of somebody else could name any file of the user's.
    ///
    /// # Errors
    /// What `allow` returns; [`ErrorKind::NotFound`] and [`ErrorKind::Io`] for the file, which must be a regular one.
    pub fn read_beside(
        &self,
        named: &str,
        what: &'static str,
        most: usize,
        allow: impl FnOnce(&Outside) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let path = self.folder.join(named);
        let whole = |path: &Path| std::fs::canonicalize(path).map_err(|error| failed(path, what, error));
        let file = whole(&path)?;
        if !file.starts_with(whole(folder)?) {
            allow(&Outside { what, named: named.to_owned(), path: file.clone() })?;
        }
        let open = weftrun_backends::files::open(&file);
        open.and_then(|file| bounded(file, most)).map_err(|error| failed(&path, what, error))
    }
}

impl Client {
    /// Puts a job together: the configuration's defaults, then a file, then flags; and reads the script it brings along. A
    /// script outside the job file's folder is refused: [`Client::job_file_with`] can allow it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each mistake; [`ErrorKind::NotFound`] for the script.
    pub fn job_file(&self, source: Option<&JobSource>, overrides: &Overrides) -> Result<JobFile> {
        self.job_file_with(source, overrides, &|outside| Err(outside.refusal()))
    }

    /// As [`Client::job_file`], where `allow` is asked before a file outside the job file's folder is read. What it allowed is
    /// a finding of the job.
    ///
    /// # Errors
    /// As [`Client::job_file`], and what `allow` returns.
    pub fn job_file_with(
        &self,
        source: Option<&JobSource>,
        overrides: &Overrides,
        allow: &dyn Fn(&Outside) -> Result<()>,
    ) -> Result<JobFile> {
        let mut draft = Draft::new();
        let config = &self.config().resolved;
        let profile = overrides.get("--profile").map(str::to_owned).or_else(|| config.default_profile());
        draft.defaults(config.job_defaults(profile.as_deref()));
        if let Some(source) = source {
            draft.file(&source.name, &source.bytes);
        }
        draft.flags(overrides);
        let mut file = draft.finish(self.catalogue())?;
        let mut allowed = Vec::new();
        // A path on the command line was typed by the user and starts from where they are; one in a file starts from where
        // the file is, and must not lead away from there unasked.
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

/// Reads what the user named: a pipe, too. Of a file that is too large one byte more than allowed is given, which is said as a
/// finding with its place.
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
        // A device or a FIFO where a file should be.
        std::io::ErrorKind::InvalidInput => ErrorKind::InvalidSpec,
        _ => ErrorKind::Io,
    };
    let made = Error::new(kind, format!("cannot read the {what} {}: {error}", path.display())).source(error);
    match kind {
        ErrorKind::NotFound if what == "job file" => made.hint("`weftrun init` writes one to start from"),
        ErrorKind::NotFound => made.hint("the path starts from the job file's folder"),
        _ => made,
    }
}
