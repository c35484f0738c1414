//! `supervise`: the parent of a local job's processes. Hidden, since only the local backend starts it.

use std::path::PathBuf;

use clap::Args;
use weftrun::Result;
use weftrun::core::exit_codes;

#[derive(Args, Debug)]
pub struct SuperviseArgs {
    /// The job's folder
    pub folder: PathBuf,
}

/// Runs a local job to its end.
#[cfg(feature = "local")]
pub fn run(args: &SuperviseArgs) -> Result<u8> {
    weftrun::supervise(&args.folder)?;
    Ok(exit_codes::OK)
}

/// Reports that this binary was built without the local backend.
#[cfg(not(feature = "local"))]
pub fn run(_args: &SuperviseArgs) -> Result<u8> {
    let _ = exit_codes::OK;
    Err(weftrun::Error::unsupported("local", "built in"))
}
