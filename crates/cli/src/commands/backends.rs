//! `backends`: what is linked in.

use clap::Args;
use serde_json::json;
use weftrun::Result;
use weftrun::core::{exit_codes, report};

use crate::args::Format;
use crate::context::Context;
use crate::output::style;

/// Arguments of `backends`.
#[derive(Args, Debug)]
pub struct BackendsArgs {}

/// Lists the backends that are linked in.
pub fn run(context: &Context, _args: &BackendsArgs) -> Result<u8> {
    let entries = context.registry().entries();
    if context.out.format == Format::Table {
        let bold = style::BOLD;
        for entry in entries {
            context.out.line(format!("{bold}{:<12}{bold:#} {}", entry.name, entry.summary))?;
        }
    } else {
        let backends: Vec<_> = entries
            .iter()
            .map(|entry| json!({"name": entry.name, "summary": entry.summary, "crate": entry.krate}))
            .collect();
        context.out.value(&json!({"schema": report::SCHEMA, "backends": backends}))?;
    }
    Ok(exit_codes::OK)
}
