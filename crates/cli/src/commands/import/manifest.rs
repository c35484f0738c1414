//! `import FILE`: a Kubeflow object, or an sbatch script.

use clap::Args;
use weftrun::convert;
use weftrun::convert::Imported;
use weftrun::{Error, ErrorKind, Result};

use crate::commands::mutate::{InputArgs, Source, each_document};

#[derive(Args, Clone, Debug, Default)]
pub struct ManifestArgs {
    /// What is read
    #[command(flatten)]
    pub input: InputArgs,
    /// Job to convert, if the file holds several
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Reads the one job of the files, or of stdin.
pub fn read(args: &ManifestArgs) -> Result<Imported> {
    let mut jobs: Vec<Imported> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for source in Source::all(&args.input)? {
        let nothing = each_document(&source, |text, start| {
            let found = if convert::is_sbatch(text) {
                convert::import_sbatch(text, false).map(|(spec, lost)| vec![Imported::new(spec, lost)])
            } else {
                convert::import(text, start)
            };
            jobs.extend(found.map_err(super::refusal)?);
            if jobs.is_empty() {
                kinds.extend(convert::kinds(text));
            }
            Ok(())
        })?;
        if let Some(finding) = nothing {
            return Err(super::refusal(finding));
        }
    }
    let names: Vec<String> = jobs.iter().map(|job| job.spec.name.clone()).collect();
    jobs.retain(|job| args.name.as_ref().is_none_or(|name| *name == job.spec.name));
    match (jobs.pop(), jobs.is_empty()) {
        (Some(job), true) => Ok(job),
        (Some(_), false) => Err(Error::new(ErrorKind::InvalidSpec, "there are several jobs in it")
            .with("jobs", names.join(", "))
            .hint("choose one with --name")),
        (None, _) if names.is_empty() => Err(convert::no_job(&kinds).unwrap_or_else(|| {
            let message = "the input is neither the manifest of a job nor an sbatch script";
            let hint = "for a command such as `mpirun … python3 train.py`, write a job file: `weftrun init`";
            Error::new(ErrorKind::InvalidSpec, message).hint(hint)
        })),
        (None, _) => {
            Err(Error::new(ErrorKind::InvalidSpec, "the input holds no such job")
                .with("jobs", names.join(", ")))
        }
    }
}
