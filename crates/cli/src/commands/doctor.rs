//! `doctor`: which endpoints are reachable, with which rights, and what would prevent a job.

use clap::Args;
use serde_json::Value;
use weftrun::core::backend::{ClusterFacts, Scope};
use weftrun::core::catalogue::Catalogue;
use weftrun::core::exit_codes;
use weftrun::core::fabric::{NodeGroup, PRIVATE_ACCESS};
use weftrun::core::log::clean_text;
use weftrun::report::DoctorReport;
use weftrun::{Error, ErrorKind, Finding, Result};

use crate::context::Context;
use crate::global::Format;
use crate::output::style;

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Check that the endpoints are reached without the public internet (AWS PrivateLink, Transit Gateway), and name the step
    /// of docs/guides/private-access.md that is missing
    #[arg(long)]
    pub private_access: bool,
}

/// Says what is reachable; pasteable.
pub fn run(context: &Context, args: &DoctorArgs) -> Result<u8> {
    let client = context.client()?;
    let target = context.target(&client)?;
    let mut scope = Scope::default();
    scope.thorough = true;
    scope.fresh = true;
    scope.private_access = args.private_access;
    let mut facts = context.block_on(async { client.connect(&target).await?.discover(&scope).await })?;
    facts.notes.extend(client.warn_of_suspects(&target));
    if args.private_access && !facts.extra.contains_key(PRIVATE_ACCESS) {
        let message =
            format!("backend `{}` has no endpoint whose private access could be checked", target.backend);
        return Err(Error::new(ErrorKind::Unsupported, message).hint(
            "it is for targets of `runai` and `kubeflow`: their control planes have names and addresses",
        ));
    }
    if context.out.format == Format::Table {
        context.out.text(&text(&target.name, &target.backend, &facts, client.catalogue()))?;
        context.out.findings(&facts.notes);
    } else {
        context.out.value(&DoctorReport::new(
            env!("CARGO_PKG_VERSION"),
            &target.name,
            &target.backend,
            &facts,
        ))?;
    }
    let failed = facts.notes.iter().any(Finding::is_error);
    Ok(if failed { exit_codes::REFUSED } else { exit_codes::OK })
}

fn text(target: &str, backend: &str, facts: &ClusterFacts, catalogue: &Catalogue) -> String {
    let bold = style::BOLD;
    let mut text = format!("{bold}weftrun {}{bold:#}\n", env!("CARGO_PKG_VERSION"));
    let mut row = |key: &str, value: String| text.push_str(&format!("  {key:<12} {}\n", clean_text(&value)));
    row("target", format!("{target} ({backend})"));
    if let Some(version) = &facts.version {
        row("version", version.clone());
    }
    for group in &facts.nodes {
        let gives: Vec<String> =
            group.allocatable.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect();
        row("nodes", format!("{}: {}", counted_nodes(group), gives.join(" ")));
    }
    for queue in &facts.queues {
        let state = if queue.up { "up" } else { "down" };
        let star = if queue.default { "*" } else { "" };
        row("queue", format!("{}{star} {state}{}", queue.name, nodes_of(&queue.name, facts, catalogue)));
    }
    if !facts.serves.is_empty() {
        row("available", facts.serves.join(", "));
    }
    if let Some(level) = &facts.pod_security {
        row("pod security", level.clone());
    }
    for (key, value) in &facts.extra {
        let value = brief(value);
        if !value.is_empty() {
            row(key, value);
        }
    }
    text
}

/// Returns the number and the kind of nodes: `4 x p5.48xlarge`.
fn counted_nodes(group: &NodeGroup) -> String {
    let name = group.instance_type.as_deref().or(group.gpu_product.as_deref()).unwrap_or("nodes");
    format!("{} x {name}", group.count)
}

/// Returns the nodes of a queue: `: 4 x p5.48xlarge (8 GPUs, efa)`.
fn nodes_of(queue: &str, facts: &ClusterFacts, catalogue: &Catalogue) -> String {
    let mut shown = Vec::new();
    for group in facts.nodes.iter().filter(|group| group.queues.iter().any(|name| name == queue)) {
        let known = group.instance_type.as_deref().and_then(|name| catalogue.get(name));
        let gpus = group.allocatable.get("nvidia.com/gpu").map(|gpus| format!("{gpus} GPUs"));
        let fabric = match known.map(|known| known.fabric.as_str()) {
            Some("none") | None => None,
            Some(fabric) => Some(fabric.to_owned()),
        };
        let devices = group.devices.iter().map(|kind| kind.as_str().to_owned());
        let has: Vec<String> = gpus.into_iter().chain(fabric).chain(devices).collect();
        let has = if has.is_empty() { String::new() } else { format!(" ({})", has.join(", ")) };
        shown.push(format!("{}{has}", counted_nodes(group)));
    }
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join("; ")) }
}

/// Formats a value on one line: for a list of objects, their names.
fn brief(value: &Value) -> String {
    let name = |object: &Value| object.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    let names: Option<Vec<String>> = value.as_array().and_then(|list| list.iter().map(name).collect());
    match (names, value.as_str()) {
        (Some(names), _) => names.join(", "),
        (None, Some(text)) => text.to_owned(),
        (None, None) => value.to_string(),
    }
}
