//! `completions`: a script for a shell.

use clap::Args;
use weftrun::Result;
use weftrun::core::exit_codes;

use crate::context::Context;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
pub fn run(context: &Context, args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "weftrun", &mut script);
    context.out.document(&String::from_utf8_lossy(&script))?;
    Ok(exit_codes::OK)
}
