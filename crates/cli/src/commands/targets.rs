//! `targets`: the configured targets.

use weftrun::Result;
use weftrun::core::exit_codes;
use weftrun::report::{TargetShape, TargetsReport};

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
    } else {
        let shape = |target| TargetShape::new(target, target.name == default);
        context.out.value(&TargetsReport::new(targets.iter().map(shape).collect()))?;
    }
    Ok(exit_codes::OK)
}
