//! `explain`: the page of a code or of a rule.

use clap::Args;
use weftrun::core::exit_codes;
use weftrun::core::text::suggestion;
use weftrun::diagnose::explain;
use weftrun::report::{CodesReport, ExplainReport};
use weftrun::{Error, ErrorKind, Result};

use crate::context::Context;
use crate::global::Format;

#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Code (W-LDPATH-SHADOW), rule (efa.devices) or reason of a skip (partial-node); all are listed if none is given
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

pub fn run(context: &Context, args: &ExplainArgs) -> Result<u8> {
    let Some(name) = args.code.as_deref().filter(|name| *name != "rules") else {
        let names: Vec<&str> = explain::names().collect();
        let named = args.code.is_some();
        let shown: Vec<&str> = names.into_iter().filter(|name| !named || name.contains('.')).collect();
        if context.out.format == Format::Table {
            context.out.text(&(shown.join("\n") + "\n"))?;
        } else {
            context.out.value(&CodesReport::new(shown))?;
        }
        return Ok(exit_codes::OK);
    };
    let Some(page) = explain::page(name) else {
        let near = suggestion(name, explain::names());
        return Err(Error::new(ErrorKind::NotFound, format!("there is no code `{name}`"))
            .hint(near.as_deref().unwrap_or("`weftrun explain` lists them all")));
    };
    if context.out.format == Format::Table {
        context.out.line(page.text())?;
    } else {
        context.out.value(&ExplainReport::new(name, page.text()))?;
    }
    Ok(exit_codes::OK)
}
