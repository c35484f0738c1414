//! The transport map as text: the transport of each pair.

use std::collections::BTreeMap;

use weftrun::core::fabric::Fabric;
use weftrun::core::log::clean_text;
use weftrun::core::nccl::{FabricSeen, Kind, Network, PairView, RankView, TransportMap};
use weftrun::core::text::counted;
use weftrun::diagnose::{Diagnosis, Judge, NO_INFO};

use crate::output::style;

/// Largest number of ranks drawn individually; more are drawn by node.
const RANKS: u32 = 16;
/// Largest number of nodes drawn.
const NODES: u32 = 24;
/// Largest number of processes that are all read for a drawing; of a larger job only the first ranks are.
const WHOLE: usize = 512;
/// The number of those ranks: as many nodes of eight as are drawn.
const WINDOW: u32 = NODES * 8;

/// Draws the map; nothing while it is empty. Connections that the judge finds wrong are marked with `!`.
pub fn draw(map: &TransportMap, judge: Judge) -> String {
    let map = map.snapshot();
    let summary = map.summary();
    if summary.transports.is_empty() {
        return String::new();
    }
    let (ranks, pairs) = if summary.processes <= WHOLE {
        (map.ranks(), map.pairs())
    } else {
        (map.some_ranks(0..WINDOW), map.pairs_of_ranks(0..WINDOW))
    };
    let highest = pairs.iter().flat_map(|pair| [pair.global_from, pair.global_to]).flatten().max();
    let by_rank = highest.is_none_or(|highest| highest < RANKS);
    let mut cells: BTreeMap<(u32, u32), Cell> = BTreeMap::new();
    let mut unplaced = 0;
    for (pair, ends, inside) in placed(&ranks, &pairs, by_rank) {
        // A pair may have one end outside of what is shown.
        if summary.processes > WHOLE
            && [pair.global_from, pair.global_to].into_iter().flatten().any(|rank| rank >= WINDOW)
        {
            continue;
        }
        let Some(ends) = ends else {
            unplaced += 1;
            continue;
        };
        let cell = cells.entry(ends).or_insert(Cell { word: word(pair), tcp: false, wrong: false });
        if let Some(network) = pair.network {
            cell.word = word(pair);
            cell.tcp |= network.is_tcp();
            cell.wrong |= judge.is_wrong(network, inside);
        }
    }
    let mut text = matrix(&cells, if by_rank { 'r' } else { 'n' });
    if unplaced > 0 {
        text.push_str(&format!("  {} with unknown global ranks\n", counted(unplaced, "pair")));
    }
    if summary.processes <= WHOLE {
        text.push_str(&legend(&pairs));
        return text;
    }
    text.push_str(&format!("  the first of {} nodes, {} processes\n", summary.hosts, summary.processes));
    for used in &summary.transports {
        text.push_str(&format!("  {} on {} connections\n", clean_text(&used.name), used.connections));
    }
    text
}

/// Returns every pair with the two ranks, or nodes, that it connects, where the logs prove them, and whether both ranks
/// are known to be on one node.
pub fn placed<'a>(
    ranks: &[RankView],
    pairs: &'a [PairView],
    by_rank: bool,
) -> impl Iterator<Item = (&'a PairView, Option<(u32, u32)>, bool)> + use<'a> {
    let node_of: BTreeMap<u32, u32> = ranks.iter().filter_map(|rank| Some((rank.rank?, rank.node))).collect();
    pairs.iter().map(move |pair| {
        let node = |rank: Option<u32>| node_of.get(&rank?).copied();
        let nodes = node(pair.global_from).zip(node(pair.global_to));
        let ends = if by_rank { pair.global_from.zip(pair.global_to) } else { nodes };
        (pair, ends, nodes.is_some_and(|(from, to)| from == to))
    })
}

/// What is drawn of the connections between two ends.
struct Cell {
    word: &'static str,
    tcp: bool,
    wrong: bool,
}

fn matrix(cells: &BTreeMap<(u32, u32), Cell>, letter: char) -> String {
    // Connections of which no end has a known rank have no place in it; the legend counts them.
    if cells.is_empty() {
        return String::new();
    }
    let (dim, bold) = (style::DIM, style::BOLD);
    let shown = cells.keys().flat_map(|(from, to)| [*from, *to]).max().map_or(0, |max| (max + 1).min(NODES));
    let mut text = format!("  {dim}from\\to{dim:#}");
    for to in 0..shown {
        text.push_str(&format!(" {bold}{:<5}{bold:#}", format!("{letter}{to}")));
    }
    text.push('\n');
    for from in 0..shown {
        text.push_str(&format!("  {bold}{:>7}{bold:#}", format!("{letter}{from}")));
        for to in 0..shown {
            match cells.get(&(from, to)) {
                Some(Cell { word, tcp, wrong }) => {
                    let style = match (wrong, tcp) {
                        (true, _) => style::ERROR,
                        (false, true) => style::WARNING,
                        _ => style::GOOD,
                    };
                    let word = format!("{word}{}", if *wrong { "!" } else { "" });
                    text.push_str(&format!(" {style}{word:<5}{style:#}"));
                }
                None => text.push_str(&format!(" {dim}{:<5}{dim:#}", "·")),
            }
        }
        text.push('\n');
    }
    if cells.values().any(|cell| cell.wrong) {
        text.push_str(&format!("  {dim}! wrong: not what was planned, or a finding is about it{dim:#}\n"));
    }
    text
}

/// Returns five letters for a transport.
fn word(pair: &PairView) -> &'static str {
    match (pair.kind, pair.network) {
        (Kind::P2p, _) => "P2P",
        (Kind::Shm, _) => "SHM",
        (Kind::Nvls, _) => "NVLS",
        (Kind::Own, _) => "SELF",
        (Kind::Collnet, _) => "COLL",
        (_, Some(network)) => network.word(),
        _ => "?",
    }
}

/// Lists the transports, with full names and counts.
fn legend(pairs: &[PairView]) -> String {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for pair in pairs {
        let count = counts.entry(&pair.transport).or_default();
        count.0 += 1;
        count.1 += usize::from(pair.gdr == Some(true));
    }
    let mut text = String::new();
    for (transport, (count, gdr)) in counts {
        let with = if gdr > 0 { format!(", {gdr} with GPUDirect RDMA") } else { String::new() };
        text.push_str(&format!("  {} on {}{with}\n", clean_text(transport), counted(count, "pair")));
    }
    text
}

/// Formats the verdict: planned and proved fabric.
pub fn verdict(diagnosis: &Diagnosis) -> String {
    let (seen, planned) = (diagnosis.verdict, diagnosis.planned.unwrap_or(Fabric::Auto));
    let planned_word = planned.as_str();
    let said = match diagnosis.is_met() {
        Some(true) => format!("{0}as planned{0:#}", style::GOOD),
        Some(false) => format!("{0}planned was {planned_word}{0:#}", style::ERROR),
        None if seen.fabric == FabricSeen::Unknown => {
            let silent = diagnosis.findings.iter().any(|finding| finding.code == NO_INFO);
            let why = match (diagnosis.read_lines, silent) {
                (false, _) => "no line of a log was read",
                (true, true) => "NCCL_DEBUG=INFO shows it",
                (true, false) => "the log has no connection between ranks",
            };
            format!("{0}nothing proves a transport{0:#} ({why})", style::WARNING)
        }
        None if planned == Fabric::Efa && seen.fabric == FabricSeen::Network(Network::LibfabricOther) => {
            format!("{0}its provider was not printed, so efa is not proved{0:#}", style::WARNING)
        }
        None if diagnosis.planned.is_none() => "no inter-node fabric was requested".to_owned(),
        None => format!("no inter-node fabric was requested (planned: {planned_word})"),
    };
    format!("transport: {0}{1}{0:#}, {said}", style::BOLD, seen.fabric.label())
}
