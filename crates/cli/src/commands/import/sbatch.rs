//! `import sbatch FILE`: a Slurm script.

use clap::Args;
use weftrun::core::manifest;
use weftrun::core::spec::Imported;
use weftrun::{Error, ErrorKind, Result};

use crate::commands::mutate::{InputArgs, Source, each_document};

/// Arguments of `import sbatch`.
#[derive(Args, Clone, Debug, Default)]
pub struct SbatchArgs {
    /// What is read
    #[command(flatten)]
    pub input: InputArgs,
}

/// Reads the one script, from a file or stdin.
pub fn read(args: &SbatchArgs) -> Result<Imported> {
    let mut scripts: Vec<Imported> = Vec::new();
    for source in Source::all(&args.input)? {
        each_document(&source, |text, _start| {
            let (spec, findings) = manifest::import_sbatch(text).map_err(|finding| {
                Error::from_findings(ErrorKind::InvalidSpec, finding.message.clone(), vec![finding])
                    .with("file", source.name())
            })?;
            scripts.push(Imported::new(spec, findings));
            Ok(())
        })?;
    }
    match (scripts.pop(), scripts.is_empty()) {
        (Some(script), true) => Ok(script),
        (Some(_), false) => Err(Error::new(ErrorKind::Usage, "one script makes one job file")
            .hint("call `weftrun import sbatch` once for each")),
        (None, _) => Err(Error::new(ErrorKind::InvalidSpec, "there is no sbatch script in it")),
    }
}
