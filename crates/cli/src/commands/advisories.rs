//! `advisories`: versions of the fabric's libraries with known defects.

use clap::Args;
use weftrun::Result;
use weftrun::core::advisories::{self, Advisory};
use weftrun::core::exit_codes;
use weftrun::report::AdvisoriesReport;

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun advisories                                     all that are known
  weftrun advisories nccl=2.27.7 aws-ofi-nccl=1.18.0     those about these versions";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AdvisoriesArgs {
    /// Library with its version: nccl, aws-ofi-nccl or libfabric
    #[arg(value_name = "NAME=VERSION", value_parser = pair)]
    pub found: Vec<(String, String)>,
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name @ ("nccl" | "aws-ofi-nccl" | "libfabric"), version)) => {
            Ok((name.to_owned(), version.to_owned()))
        }
        _ => Err("write nccl=VERSION, aws-ofi-nccl=VERSION or libfabric=VERSION".to_owned()),
    }
}

/// Lists the advisories, or those about the given versions.
pub fn run(context: &Context, args: &AdvisoriesArgs) -> Result<u8> {
    let found: Vec<(&str, &str)> = args.found.iter().map(|(name, version)| (&**name, &**version)).collect();
    let shown: Vec<Advisory> =
        advisories::all().filter(|advisory| found.is_empty() || advisory.concerns(&found)).collect();
    if context.out.format != Format::Table {
        context.out.value(&AdvisoriesReport::new(&shown))?;
        return Ok(exit_codes::OK);
    }
    let (bold, dim) = (style::BOLD, style::DIM);
    for advisory in &shown {
        let Advisory { id, component, first, last, effect, fix, source, read, .. } = advisory;
        let versions = if first == last { (*first).to_owned() } else { format!("{first} to {last}") };
        let with = advisory.with.map_or_else(String::new, |(other, first, last)| {
            format!(
                " with {other} {first}{}",
                last.map_or_else(|| " or later".to_owned(), |last| format!(" to {last}"))
            )
        });
        context.out.line(format!("{bold}{id}{bold:#}  {component} {versions}{with}: {effect}"))?;
        context.out.line(format!("  {fix}"))?;
        context.out.line(format!("  {dim}{source} (read {read}){dim:#}"))?;
    }
    if shown.is_empty() {
        context.out.say("no advisory is known about these versions");
    }
    Ok(exit_codes::OK)
}
