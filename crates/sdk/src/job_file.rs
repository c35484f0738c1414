//! Job files, read from disk.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use weftrun_core::spec::file::{MAX_BYTES, MAX_SCRIPT};
use weftrun_core::spec::{Draft, JobFile, Overrides};
use weftrun_core::{Error, ErrorKind, Result};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSource {
    /// The name in messages.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The folder a script's path starts from.
    folder: PathBuf,
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
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { name: path.display().to_string(), bytes, folder })
    }

    /// Takes bytes that are there already.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into(), folder: PathBuf::new() }
    }
}

impl Client {
    /// Puts a job together: the configuration's defaults, then a file, then flags; and reads the script it brings
    /// along.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] with a finding for each mistake; [`ErrorKind::NotFound`] for the script.
    pub fn job_file(&self, source: Option<&JobSource>, overrides: &Overrides) -> Result<JobFile> {
        let mut draft = Draft::new();
        let config = &self.config().resolved;
        let profile = overrides.profile.clone().or_else(|| config.default_profile());
        draft.defaults(config.job_defaults(profile.as_deref()));
        if let Some(source) = source {
            draft.file(&source.name, &source.bytes);
        }
        draft.flags(overrides);
        let mut file = draft.finish(self.catalogue())?;
        if let Some(runtime) = file.runtime() {
            let folder = match (source, &overrides.runtime) {
                (Some(source), None) => source.folder.as_path(),
                _ => Path::new(""),
            };
            let bytes = read(&folder.join(&runtime), "runtime", MAX_BYTES)?;
            file.set_runtime(&runtime, &String::from_utf8_lossy(&bytes))?;
        }
        if let Some(script) = file.script.clone() {
            // A path on the command line starts from where the user is, one in a file from where the file is.
            let folder = match (source, &overrides.script) {
                (Some(source), None) => source.folder.as_path(),
                _ => Path::new(""),
            };
            let bytes = read(&folder.join(&script), "script", MAX_SCRIPT)?;
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
        Ok(file)
    }
}

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
        _ => ErrorKind::Io,
    };
    let made = Error::new(kind, format!("cannot read the {what} {}: {error}", path.display())).source(error);
    match kind {
        ErrorKind::NotFound if what == "job file" => made.hint("`weftrun init` writes one to start from"),
        ErrorKind::NotFound => made.hint("the path starts from the job file's folder"),
        _ => made,
    }
}
