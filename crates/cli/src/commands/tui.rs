//! `tui`: the terminal UI.

use clap::Args;
use weftrun::{Error, Result};

use crate::context::Context;

/// Arguments of `tui`.
#[derive(Args, Debug, Default)]
pub struct TuiArgs {}

/// Opens the terminal UI.
pub fn run(_context: &Context, _args: TuiArgs) -> Result<u8> {
    Err(Error::unsupported("cli", "tui"))
}
