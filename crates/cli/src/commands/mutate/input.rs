//! The inputs of `mutate` and `lint`, and the settings they are processed with.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value as Json;
use weftrun::convert;
use weftrun::convert::{MutateOptions, Mutated, Splitter, Start};
use weftrun::core::backend::ClusterFacts;
use weftrun::core::catalogue::Catalogue;
use weftrun::core::fabric::{FabricRequest, Profile, Profiles};
use weftrun::core::span::yaml_documents;
use weftrun::files::NamedFile;
use weftrun::{Error, ErrorKind, Finding, Result};

use super::InputArgs;
use crate::context::Context;
use crate::key_flags::FabricFlags;

/// Bytes read at once.
const CHUNK: usize = 256 * 1024;
/// Largest document: far above any manifest, and a bound on memory.
const MAX_DOCUMENT: usize = 64 << 20;

/// Largest number of runtimes remembered from a stream.
const MAX_RUNTIMES: usize = 1000;

/// A file, or stdin.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
}

impl Source {
    /// Returns the named files; stdin if there are none.
    pub fn all(args: &InputArgs) -> Result<Vec<Self>> {
        let mut sources: Vec<Self> =
            args.filename.iter().chain(&args.files).map(|path| Self { path: path.clone() }).collect();
        if sources.is_empty() {
            sources.push(Self { path: PathBuf::from("-") });
        }
        if sources.iter().filter(|source| source.is_stdin()).count() > 1 {
            return Err(Error::new(ErrorKind::Usage, "stdin can be read only once"));
        }
        Ok(sources)
    }

    /// Checks that all of the files can be written in place.
    pub fn files(sources: &[Self]) -> Result<Vec<NamedFile>> {
        sources.iter().map(|source| NamedFile::check(&source.path)).collect()
    }

    pub fn is_stdin(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// Returns whether it is a job file in TOML, which is a single document.
    pub fn is_job_file(&self) -> bool {
        self.path.extension().is_some_and(|end| end == "toml")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its name, as findings show it.
    pub fn name(&self) -> String {
        if self.is_stdin() { "<stdin>".to_owned() } else { self.path.display().to_string() }
    }

    fn open(&self) -> Result<Box<dyn Read>> {
        if self.is_stdin() {
            return Ok(Box::new(std::io::stdin().lock()));
        }
        let file = File::open(&self.path).map_err(|error| unreadable(&self.path, &error))?;
        Ok(Box::new(file))
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
    Error::new(kind, format!("cannot read the file: {error}")).with("file", path.display())
}

/// Reads a source document by document. A script or job file is one document, regardless of its contents. Returns a finding
/// if no document holds anything.
pub fn each_document(
    source: &Source,
    mut visit: impl FnMut(&str, Start<'_>) -> Result<()>,
) -> Result<Option<Finding>> {
    let name = source.name();
    let mut reader = source.open()?;
    let mut splitter = Splitter::default();
    let mut chunk = vec![0; CHUNK];
    let (mut offset, mut line, mut pending) = (0, 0, 0);
    let mut script: Option<Vec<u8>> = None;
    let (mut first, mut nothing) = (true, convert::nothing_in("", Start::of(&name)));
    loop {
        let read = reader.read(&mut chunk).map_err(|error| unreadable(&source.path, &error))?;
        let bytes = &chunk[..read];
        if std::mem::take(&mut first) && (source.is_job_file() || bytes.starts_with(b"#!")) {
            script = Some(Vec::new());
        }
        if let Some(script) = &mut script {
            script.extend_from_slice(bytes);
            too_large(script.len(), &name)?;
            if read == 0 {
                return visit(text(script, &name, 0)?, Start::of(&name)).map(|()| None);
            }
            continue;
        }
        if read == 0 {
            splitter.finish();
        } else {
            splitter.push(bytes);
        }
        pending += read;
        while let Some(document) = splitter.next_document() {
            pending -= document.len();
            let start = Start { file: &name, offset, line };
            let document_text = text(&document, &name, line)?;
            visit(document_text, start)?;
            nothing = nothing.and_then(|_| convert::nothing_in(document_text, Start::of(&name)));
            offset += document.len();
            line += memchr::memchr_iter(b'\n', &document).count();
        }
        too_large(pending, &name)?;
        if read == 0 {
            return Ok(nothing);
        }
    }
}

fn too_large(bytes: usize, name: &str) -> Result<()> {
    if bytes <= MAX_DOCUMENT {
        return Ok(());
    }
    let message = format!("a document is larger than {} MiB", MAX_DOCUMENT >> 20);
    Err(Error::new(ErrorKind::InvalidSpec, message).with("file", name))
}

fn text<'d>(document: &'d [u8], name: &str, line: usize) -> Result<&'d str> {
    std::str::from_utf8(document).map_err(|error| {
        let line = line + 1 + memchr::memchr_iter(b'\n', &document[..error.valid_up_to()]).count();
        Error::new(ErrorKind::InvalidSpec, "the text is not UTF-8").with("file", format!("{name}:{line}"))
    })
}

/// The settings that manifests are processed with.
#[derive(Debug)]
pub struct Given {
    options: FabricRequest,
    catalogue: Catalogue,
    facts: ClusterFacts,
    runtimes: Vec<Json>,
    trainer: Option<convert::TrainerVersion>,
    reformat: bool,
    profiles: Profiles,
    /// The requested profile, if any.
    profile: Option<Profile>,
    /// The profiles to detect from, if none was requested.
    sites: Vec<Profile>,
}

impl Given {
    /// Combines flags, runtimes and the user's own profiles and instance types. Without `--profile`, the
    /// profile of the target of `-b` applies, then the configuration's default.
    pub fn read(context: &Context, flags: &FabricFlags, reformat: bool) -> Result<Self> {
        let flags = &flags.given;
        let config = context.config()?;
        context.warn_of_config();
        let profiles = config.profiles();
        let target = context.global.backend.as_ref().map(|name| config.target(name));
        let of_setting = target.as_ref().and_then(|target| {
            target.settings.get("trainer-version").and_then(Json::as_str).map(str::to_owned)
        });
        let named = context
            .global
            .profile
            .clone()
            .or_else(|| target.and_then(|target| target.profile))
            .or_else(|| config.resolved.default_profile());
        let profile = named.as_deref().map(|name| profiles.get(name).map(Profile::named)).transpose()?;
        let sites = if profile.is_some() { Vec::new() } else { profiles.of_sites()? };
        Ok(Self {
            options: flags.fabric_request()?,
            catalogue: config.resolved.catalogue()?,
            facts: ClusterFacts::default(),
            runtimes: runtimes(flags.all("--runtime").map(Path::new))?,
            trainer: flags
                .get("--trainer-version")
                .or(of_setting.as_deref())
                .and_then(convert::TrainerVersion::parse),
            reformat,
            profiles,
            profile,
            sites,
        })
    }

    pub fn with_profile(&mut self, name: &str) -> Result<()> {
        self.profile = Some(self.profiles.get(name)?.named());
        Ok(())
    }

    pub fn with_trainer(&mut self, version: convert::TrainerVersion) {
        self.trainer = Some(version);
    }

    pub fn with_options(&mut self, options: FabricRequest) {
        self.options = options;
    }

    /// Stores the training runtimes of a text, for the jobs that name them.
    pub fn learn(&mut self, text: &str) {
        if self.runtimes.len() < MAX_RUNTIMES {
            self.runtimes.extend(convert::runtimes_in(text));
        }
    }

    pub fn mutate<'t>(&mut self, text: &'t str, start: Start<'_>) -> Result<Mutated<'t>> {
        let script = convert::is_sbatch(text);
        self.learn(text);
        let settings = self.settings();
        if script {
            Ok(convert::mutate_sbatch(text, start, &settings))
        } else {
            convert::mutate(text, start, &settings)
        }
    }

    /// Checks a document or a script.
    pub fn lint(&self, text: &str, start: Start<'_>) -> Vec<Finding> {
        convert::lint_document(text, start, &self.settings())
    }

    fn settings(&self) -> MutateOptions<'_> {
        static NONE: LazyLock<Profile> = LazyLock::new(Profile::default);
        MutateOptions {
            profile: self.profile.as_ref().unwrap_or(&NONE),
            by_evidence: self.profile.is_none().then_some(self.sites.as_slice()),
            options: &self.options,
            catalogue: &self.catalogue,
            facts: &self.facts,
            trainer: self.trainer,
            runtimes: &self.runtimes,
            reformat: self.reformat,
        }
    }
}

/// Largest file of training runtimes that is read.
const MAX_RUNTIME_FILE: u64 = 64 << 20;

fn runtimes<'f>(files: impl Iterator<Item = &'f Path>) -> Result<Vec<Json>> {
    let mut found = Vec::new();
    for file in files {
        let text = weftrun::files::read_named_text(file, MAX_RUNTIME_FILE)
            .map_err(|error| unreadable(file, &error))?;
        yaml_documents(&text).map_err(|error| {
            let (line, column) = weftrun::core::span::position(&text, error.span.start);
            Error::new(ErrorKind::InvalidSpec, format!("the runtime cannot be read: {error}"))
                .with("file", format!("{}:{line}:{column}", file.display()))
        })?;
        let runtimes = convert::runtimes_in(&text);
        if runtimes.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                "there is no ClusterTrainingRuntime and no TrainingRuntime in the file",
            )
            .with("file", file.display())
            .hint("kubectl get clustertrainingruntime NAME -o yaml"));
        }
        found.extend(runtimes);
    }
    Ok(found)
}
