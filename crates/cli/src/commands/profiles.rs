//! `profiles`: the known sites, and the values of each with their sources.

use clap::Args;
use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun::core::fabric::Profile;
use weftrun::core::log::clean_text;
use weftrun::report::{ProfileShape, ProfilesReport};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

const EXAMPLES: &str = "\
Examples:
  weftrun profiles                 every profile, and whether it ran on the real cloud
  weftrun profiles oci             its values, and where each is written down";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProfilesArgs {
    /// Profile to show in full
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Lists the profiles, or the values of one.
pub fn run(context: &Context, args: &ProfilesArgs) -> Result<u8> {
    let profiles = context.config()?.profiles();
    let names: Vec<&str> = match &args.name {
        Some(name) => vec![name],
        None => profiles.names().collect(),
    };
    let found: Vec<Profile> = names.into_iter().map(|name| profiles.get(name)).collect::<Result<_>>()?;
    let shapes: Vec<ProfileShape<'_>> = found.iter().map(ProfileShape::new).collect();
    if context.out.format != Format::Table {
        context.out.value(&ProfilesReport::new(shapes))?;
        return Ok(exit_codes::OK);
    }
    let (bold, dim) = (style::BOLD, style::DIM);
    for shape in shapes {
        let untried = if shape.untried { "; never ran on the real cloud" } else { "" };
        let summary = clean_text(shape.summary);
        context.out.line(format!("{bold}{:<16}{bold:#} {summary}{dim}{untried}{dim:#}", shape.name))?;
        for value in shape.values.iter().filter(|_| args.name.is_some()) {
            let shown = clean_text(&value.value);
            let source = value.source.map_or_else(String::new, |source| format!("  {}", clean_text(source)));
            context.out.line(format!("  {} = {shown}{dim}{source}{dim:#}", clean_text(&value.key)))?;
        }
    }
    Ok(exit_codes::OK)
}
