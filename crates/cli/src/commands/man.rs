//! `man`: the manual pages.

use std::path::PathBuf;

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write a page for each verb to this folder
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Prints the manual page, or writes all of them.
pub fn run(context: &Context, args: &ManArgs) -> Result<u8> {
    let io = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot write the manual: {error}")).with_source(error)
    };
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).map_err(io)?;
        clap_mangen::generate_to(crate::command(), dir).map_err(io)?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(crate::command()).render(&mut page).map_err(io)?;
        context.out.document(&page)?;
    }
    Ok(exit_codes::OK)
}
