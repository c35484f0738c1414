//! `nodes`: what the jobs of a target say of its nodes.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use weftrun::core::backend::{NodeState, Scope, TargetConfig};
use weftrun::core::exit_codes;
use weftrun::core::job::age;
use weftrun::core::log::clean_text;
use weftrun::core::text::counted;
use weftrun::diagnose::nodes::{NodeEvent, NodeReport};
use weftrun::report::NodesReport;
use weftrun::{Client, Error, ErrorKind, Finding, Result};

use crate::context::Context;
use crate::global::Format;
use crate::output::time_text;

const EXAMPLES: &str = "\
Examples:
  weftrun nodes -b prod                 the nodes of a target, suspects first
  weftrun nodes -b prod gpu-17          what counts against one
  weftrun submit --avoid suspects job.toml -b prod
  weftrun history --forget --node gpu-17 -b prod    after a repair";

/// How long the cluster is asked for its own word.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NodesArgs {
    /// Node whose events are listed; all nodes in one table if absent
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// Only nodes that are suspected or watched
    #[arg(long)]
    pub bad: bool,
    /// Use the history alone; the cluster is not asked which nodes it keeps jobs from
    #[arg(long)]
    pub offline: bool,
}

/// Prints the nodes of a target, or the events of one.
pub fn run(context: &Context, args: &NodesArgs) -> Result<u8> {
    let client = context.client()?;
    let target = context.target(&client)?;
    let (mut nodes, mut findings) = (Vec::new(), Vec::new());
    match client.job_history(&target) {
        Some(history) => nodes = history.nodes()?,
        None => findings.push(Finding::info(
            "HISTORY-OFF",
            "no history of this target is kept: it is this machine, or `[history] enabled` is false",
        )),
    }
    if !args.offline {
        findings.extend(context.block_on(async { Ok(ask(&client, &target, &mut nodes).await) })?);
    }
    if args.bad {
        nodes.retain(|node| !node.evidence.is_empty() || !node.cluster.is_empty());
    }
    if let Some(name) = &args.node {
        nodes.retain(|node| node.node == *name);
        if nodes.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the history of `{}` has no such node", target.name),
            )
            .with("node", name)
            .hint("`weftrun nodes` lists those that it has"));
        }
    }
    if context.out.format != Format::Table {
        context.out.value(&NodesReport::new(&target.name, &nodes, &findings))?;
        return Ok(exit_codes::OK);
    }
    match (&args.node, nodes.as_slice()) {
        (Some(_), [node]) => context.out.text(&events(node))?,
        (_, []) if args.bad => context.out.say(format!("nothing counts against a node of `{}`", target.name)),
        (_, []) => context.out.say("no job that ended on a known node was seen yet"),
        _ => context.out.text(&table(&nodes))?,
    }
    context.out.findings(&findings);
    Ok(exit_codes::OK)
}

/// Adds what the cluster itself says of nodes. Returns a note where it did not answer.
async fn ask(client: &Client, target: &TargetConfig, nodes: &mut Vec<NodeReport>) -> Option<Finding> {
    let mut scope = Scope::default();
    // What the cluster says now, and not some minutes ago.
    scope.fresh = true;
    let asking = async { client.connect(target).await?.discover(&scope).await };
    let facts = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(facts)) => facts,
        Ok(Err(error)) => return Some(unasked(&error.to_string())),
        Err(_) => return Some(unasked(&format!("no answer within {} s", PATIENCE.as_secs()))),
    };
    // Some clusters do not let users read them.
    let is_told = !facts.nodes.is_empty() || !facts.node_states.is_empty();
    for (name, states) in facts.node_states {
        let at = nodes.iter().position(|node| node.node == name).unwrap_or_else(|| {
            nodes.push(NodeReport::new(&*name));
            nodes.len() - 1
        });
        if let Some(node) = nodes.get_mut(at) {
            node.cluster = states;
        }
    }
    (!is_told).then(|| unasked("it lists no nodes to you"))
}

fn unasked(why: &str) -> Finding {
    Finding::info("NODES-UNASKED", format!("it is not known which nodes the cluster keeps jobs from: {why}"))
}

fn table(nodes: &[NodeReport]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["NODE", "RUNS", "FAILED", "SLOW", "LAST SEEN", "JUDGEMENT", "EVIDENCE", "CLUSTER"]);
    let now = weftrun::clock::now();
    for node in nodes {
        let seen = node.last_seen.map_or_else(|| "-".to_owned(), |at| format!("{} ago", age(now, at)));
        let text = |text: &str| if text.is_empty() { "-".to_owned() } else { clean_text(text).into_owned() };
        table.add_row([
            text(&node.node),
            node.runs.to_string(),
            node.failures.to_string(),
            node.slow.to_string(),
            seen,
            node.judgement.as_str().to_owned(),
            text(&node.evidence),
            text(&node.cluster.iter().map(|state| state_line(state, now)).collect::<Vec<_>>().join(", ")),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

/// Returns what the cluster says against a node, with its age: `drained (Xid 79) for 3h`.
fn state_line(state: &NodeState, now: Timestamp) -> String {
    let since = state.since.map_or_else(String::new, |since| format!(" for {}", age(now, since)));
    format!("{}{since}", state.what)
}

fn events(node: &NodeReport) -> String {
    let runs = counted(node.runs as usize, "run");
    let mut text = format!("{}: {} in {runs}", clean_text(&node.node), node.judgement.as_str());
    if !node.evidence.is_empty() {
        text.push_str(&format!(": {}", clean_text(&node.evidence)));
    }
    text.push('\n');
    for state in &node.cluster {
        let line = state_line(state, weftrun::clock::now());
        text.push_str(&format!("  the cluster says: {}\n", clean_text(&line)));
    }
    for event in &node.events {
        text.push_str(&format!("  {}\n", event_line(event)));
    }
    if node.events.is_empty() {
        text.push_str("  nothing counts against it\n");
    }
    text
}

fn event_line(event: &NodeEvent) -> String {
    let code = event.code.as_deref().unwrap_or("slow");
    let fault = event.fault.map_or_else(String::new, |fault| format!(" ({})", fault.as_str()));
    let old = if event.counts { "" } else { " (too long ago to count)" };
    let line = format!("{} {code}{fault}: {} in {}{old}", time_text(event.at), event.what, event.job);
    clean_text(&line).into_owned()
}
