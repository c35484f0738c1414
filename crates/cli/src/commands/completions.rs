//! `completions`: a script for a shell.

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
pub fn run(context: &Context, args: &CompletionsArgs) -> Result<u8> {
    let script = crate::complete::script(&crate::global::word(&args.shell))
        .map_err(|error| Error::new(ErrorKind::Unexpected, format!("cannot write the script: {error}")))?;
    context.out.document(&script)?;
    Ok(exit_codes::OK)
}
