//! `targets`: the configured targets.

use weftrun::Result;
use weftrun::core::backend::FoundTarget;
use weftrun::core::exit_codes;
use weftrun::core::log::clean_text;
use weftrun::report::{FoundTargetShape, TargetShape, TargetsReport};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

/// Lists the configured targets, and each backend's default target.
pub fn run(context: &Context) -> Result<u8> {
    let client = context.client()?;
    let mut targets: Vec<_> = client.config().targets.values().cloned().collect();
    for name in context.registry().names() {
        if !targets.iter().any(|target| target.name == name) {
            targets.push(client.target(name)?);
        }
    }
    let default = context.target(&client).map(|target| target.name).unwrap_or_default();
    let found = client.config().find_targets(context.registry());
    if context.out.format == Format::Table {
        let bold = style::BOLD;
        for target in targets {
            let mark = if target.name == default { "*" } else { " " };
            let profile = target.profile.as_deref().unwrap_or("-");
            context.out.line(format!(
                "{mark} {bold}{:<16}{bold:#} {:<10} profile {profile}",
                target.name, target.backend
            ))?;
        }
        say_found(context, &found)?;
    } else {
        let shape = |target| TargetShape::new(target, target.name == default);
        let found =
            found.iter().map(|(backend, found)| FoundTargetShape::new(&found.name, backend, &found.sign));
        context.out.value(&TargetsReport::new(targets.iter().map(shape).collect(), found.collect()))?;
    }
    Ok(exit_codes::OK)
}

/// Prints what targets could be made of.
pub fn say_found(context: &Context, found: &[(&str, FoundTarget)]) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    context.out.line("\nfound here; `weftrun config add NAME` makes a target of it:")?;
    let dim = style::DIM;
    for (backend, found) in found {
        context.out.line(format!(
            "  {:<16} {backend:<10} {dim}{}{dim:#}",
            found.name,
            clean_text(&found.sign)
        ))?;
    }
    Ok(())
}
