//! `doctor`: what is reachable, with which rights, and what would stop a job.

use clap::Args;
use serde_json::json;
use weftrun::core::backend::{ClusterFacts, Scope};
use weftrun::core::log::clean_text;
use weftrun::core::{exit_codes, report};
use weftrun::{Finding, Result};

use crate::args::Format;
use crate::context::Context;
use crate::output::style;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {}

/// Says what is reachable; pasteable.
pub fn run(context: &Context, _args: &DoctorArgs) -> Result<u8> {
    let client = context.client()?;
    let target = context.target(&client)?;
    let mut scope = Scope::default();
    scope.thorough = true;
    let facts = context.block_on(async { client.connect(&target).await?.discover(&scope).await })?;
    if context.out.format == Format::Table {
        context.out.data(&text(&target.name, &target.backend, &facts))?;
        context.out.findings(&facts.notes);
    } else {
        context.out.value(&json!({
            "schema": report::SCHEMA, "weftrun": env!("CARGO_PKG_VERSION"), "target": target.name,
            "backend": target.backend, "facts": facts,
        }))?;
    }
    let failed = facts.notes.iter().any(Finding::is_error);
    Ok(if failed { exit_codes::REFUSED } else { exit_codes::OK })
}

fn text(target: &str, backend: &str, facts: &ClusterFacts) -> String {
    let bold = style::BOLD;
    let mut text = format!("{bold}weftrun {}{bold:#}\n", env!("CARGO_PKG_VERSION"));
    let mut row = |key: &str, value: String| text.push_str(&format!("  {key:<12} {}\n", clean_text(&value)));
    row("target", format!("{target} ({backend})"));
    row("version", facts.version.clone().unwrap_or_else(|| "unknown".to_owned()));
    for group in &facts.nodes {
        let name = group.instance_type.as_deref().or(group.gpu_product.as_deref()).unwrap_or("nodes");
        let gives: Vec<String> =
            group.allocatable.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect();
        row("nodes", format!("{} x {name}: {}", group.count, gives.join(" ")));
    }
    for queue in &facts.queues {
        let state = if queue.up { "up" } else { "down" };
        row("queue", format!("{}{} {state}", queue.name, if queue.default { "*" } else { "" }));
    }
    if !facts.serves.is_empty() {
        row("serves", facts.serves.join(", "));
    }
    if let Some(level) = &facts.pod_security {
        row("pod security", level.clone());
    }
    for (key, value) in &facts.extra {
        row(key, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    text
}
