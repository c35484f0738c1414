//! `import runai LINE`: a command line of the official `runai`.

use std::io::Read;

use clap::Args;
use weftrun::convert::{Imported, import_runai};
use weftrun::{Error, ErrorKind, Result};

#[derive(Args, Clone, Debug)]
pub struct RunaiArgs {
    /// The command line in quotes; `-` reads stdin
    #[arg(value_name = "LINE", default_value = "-", allow_hyphen_values = true)]
    pub line: String,
}

pub fn read(args: &RunaiArgs) -> Result<Imported> {
    let mut line = args.line.clone();
    if line == "-" {
        line.clear();
        std::io::stdin().take(1 << 20).read_to_string(&mut line).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot read standard input: {error}")).with_source(error)
        })?;
    }
    import_runai(&line).map_err(super::refusal)
}
