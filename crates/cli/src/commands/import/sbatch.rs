//! `import sbatch FILE`: an sbatch script.

use std::path::PathBuf;

use clap::Args;
use weftrun::convert::{Imported, import_sbatch};
use weftrun::{Error, ErrorKind, JobSource, Result};

#[derive(Args, Clone, Debug)]
pub struct SbatchArgs {
    /// The script; `-` reads stdin
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Keep the script as it is: it runs once, on the first node (`launch = "once"`)
    #[arg(long)]
    pub whole: bool,
}

pub fn read(args: &SbatchArgs) -> Result<Imported> {
    let source = JobSource::read(&args.file).map_err(|error| {
        let message = error.message().replace("job file", "script");
        Error::new(error.kind(), message)
    })?;
    let text = String::from_utf8(source.bytes)
        .map_err(|_| Error::new(ErrorKind::InvalidSpec, format!("{} is not UTF-8 text", source.name)))?;
    let (spec, findings) = import_sbatch(&text, args.whole).map_err(super::refusal)?;
    Ok(Imported::new(spec, findings))
}
