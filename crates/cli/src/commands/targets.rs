//! `targets`: the configured places.

use clap::Args;
use serde_json::json;
use weftrun::Result;
use weftrun::core::{exit_codes, report};

use crate::args::Format;
use crate::context::Context;
use crate::output::style;

/// Arguments of `targets`.
#[derive(Args, Debug)]
pub struct TargetsArgs {}

/// Lists the configured targets, and each backend's default target.
pub fn run(context: &Context, _args: &TargetsArgs) -> Result<u8> {
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
        let list: Vec<_> = targets
            .iter()
            .map(|target| {
                json!({"name": target.name, "backend": target.backend, "profile": target.profile,
                       "namespace": target.namespace, "project": target.project, "default": target.name == default})
            })
            .collect();
        context.out.value(&json!({"schema": report::SCHEMA, "targets": list}))?;
    }
    Ok(exit_codes::OK)
}
