//! The graph of nodes as Mermaid: the transports inside each node, and those between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use weftrun::core::log::clean_text;
use weftrun::core::nccl::TransportMap;

use crate::log_print;
use crate::map_view::placed;

/// Draws the graph. Pairs without proved global ranks are omitted and counted in a comment.
pub fn graph(map: &TransportMap) -> String {
    let map = map.snapshot();
    let ranks = map.ranks();
    let mut inside: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let mut between: BTreeMap<(u32, u32, String), u32> = BTreeMap::new();
    let mut unproved = 0;
    for (pair, nodes, inside_node) in placed(&ranks, &map.pairs(), false) {
        let Some((from, to)) = nodes else {
            unproved += 1;
            continue;
        };
        let name = label(&pair.transport, pair.gdr == Some(true));
        if inside_node {
            inside.entry(from).or_default().insert(name);
        } else {
            *between.entry((from.min(to), from.max(to), name)).or_default() += pair.channels.count();
        }
    }
    let mut hosts: BTreeMap<u32, (String, Vec<u32>)> = BTreeMap::new();
    for rank in &ranks {
        let node = hosts.entry(rank.node).or_insert_with(|| (label(&rank.host, false), Vec::new()));
        node.1.extend(rank.rank);
    }
    let mut text = String::from("graph LR\n");
    if unproved > 0 {
        let _ = writeln!(text, "  %% {unproved} pairs with unknown global ranks are left out");
    }
    for (node, (host, ranks)) in &hosts {
        let used: Vec<&str> = inside.get(node).into_iter().flatten().map(String::as_str).collect();
        let used = if used.is_empty() { String::new() } else { format!("<br/>{}", used.join(", ")) };
        let _ = writeln!(text, "  n{node}[\"node {node} ({host})<br/>ranks {}{used}\"]", ranges(ranks));
    }
    for ((from, to, name), channels) in &between {
        let _ = writeln!(text, "  n{from} ---|\"{name} ×{channels}\"| n{to}");
    }
    text
}

/// Escapes text so that it cannot end Mermaid's quotes or begin a tag.
fn label(text: &str, gdr: bool) -> String {
    let plain: String = clean_text(text)
        .chars()
        .map(|c| if matches!(c, '"' | '<' | '>' | '|' | '#' | ';' | '`') { '_' } else { c })
        .collect();
    if gdr { format!("{plain} GDR") } else { plain }
}

/// Formats `0-3, 8`.
fn ranges(ranks: &[u32]) -> String {
    let sorted: BTreeSet<u32> = ranks.iter().copied().collect();
    let all: Vec<(u32, u32)> = sorted.into_iter().map(|rank| (rank, rank)).collect();
    if all.is_empty() { "?".to_owned() } else { log_print::ranges(&all, usize::MAX) }
}
