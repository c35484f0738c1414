//! Compares what the screens state with the truth.

use std::collections::BTreeSet;

use weftrun::core::job::JobPhase;
use weftrun::diagnose::cause::CAUSE_CODE;

use super::truth::Truth;
use crate::model::open::Open;
use crate::model::transport_view::{Cell, Path, Step, TransportView};

/// Returns the statements of the model that contradict the truth.
pub(super) fn contradictions(open: &Open, truth: &Truth) -> Vec<String> {
    let view = &open.transport_view;
    let mut all = Vec::new();
    ranks_and_nodes(open, truth, &mut all);
    state(open, truth, &mut all);
    fabric(open, truth, &mut all);
    let cause = view.findings.iter().find(|finding| finding.code == CAUSE_CODE).map(|cause| &*cause.message);
    let named = cause.unwrap_or_default();
    all.extend(
        truth.cause.iter().filter(|text| !named.contains(&***text)).map(|text| format!("no {text}: {named}")),
    );
    if truth.fails == Some(false) {
        all.extend(cause.map(|cause| format!("it did not fail: {cause}")));
    }
    // Nobody's line is at fault where the network or its interface is not there.
    all.extend(
        cause.filter(|cause| cause.contains("nccl-error") && cause.contains(".py:")).map(str::to_owned),
    );
    all
}

fn expect<T: PartialEq + std::fmt::Debug>(all: &mut Vec<String>, what: &str, seen: &T, truth: &T) {
    if seen != truth {
        all.push(format!("{what}: {seen:?}, not {truth:?}"));
    }
}

fn ranks_and_nodes(open: &Open, truth: &Truth, all: &mut Vec<String>) {
    let view = &open.transport_view;
    // Without a line that names a rank, none is known.
    let nothing = view.ranks.is_empty() && view.communicators.is_empty();
    if !nothing {
        expect(all, "ranks", &view.ranks.len(), &truth.world);
    }
    let (ready, nodes) = open.detail.as_ref().map(|detail| detail.summary.ready).unwrap_or_default();
    expect(all, "ready after the end", &ready, &0);
    if nodes != 0 {
        expect(all, "nodes", &(nodes as usize), &truth.nodes);
    }
    if view.maps.iter().any(|map| !map.node_links.is_empty()) {
        expect(all, "nodes of the map", &view.nodes.len(), &truth.nodes);
    }
    for rank in view.ranks.iter().filter(|rank| rank.host.ends_with(".log")) {
        all.push(format!("rank {:?} on a host {}", rank.rank, rank.host));
    }
}

fn state(open: &Open, truth: &Truth, all: &mut Vec<String>) {
    let view = &open.transport_view;
    if let Some(fails) = truth.fails {
        expect(all, "failed job", &(open.end() == Some(JobPhase::Failed)), &fails);
    }
    let failed: BTreeSet<u32> =
        view.ranks.iter().filter(|rank| rank.failed).filter_map(|rank| rank.rank).collect();
    if truth.all_failed || !failed.is_subset(&truth.failed) {
        expect(all, "failed ranks", &failed, &truth.failed);
    }
    for rank in view.ranks.iter().filter(|rank| !rank.failed) {
        expect(all, "phase after the end", &open.phase_word(rank), &"ended");
    }
    let stepping = view.counts[Step::Stepping.place().unwrap()];
    if let Some(trains) = truth.trains {
        expect(all, "stepping", &(stepping as usize), &if trains { truth.world } else { 0 });
    }
    if !view.throughput.is_empty() && !view.is_bus_bandwidth {
        expect(all, "stepping beside throughput", &(stepping as usize), &truth.world);
    }
    if stepping > 0 && stepping as usize != view.ranks.len() {
        all.push(format!("stepping {stepping} of {}", view.ranks.len()));
    }
}

fn kind(path: Path) -> &'static str {
    match path {
        Path::P2p => "p2p",
        Path::Shm => "shm",
        Path::Offload | Path::Network(_) => "net",
    }
}

fn fabric(open: &Open, truth: &Truth, all: &mut Vec<String>) {
    let view: &TransportView = &open.transport_view;
    if let Some(fabric) = &truth.fabric {
        expect(all, "fabric", &view.verdict, fabric);
    }
    let Some(map) = view.maps.first() else { return };
    let mut networks = 0;
    for ((from, to), link) in &map.rank_links {
        let known = truth
            .pairs
            .as_ref()
            .is_none_or(|pairs| pairs.contains(&(*from, *to, kind(link.path).to_owned())));
        if !known {
            all.push(format!("link {from} -> {to} by {:?}", link.path));
        }
        let node =
            |rank: u32| view.ranks.iter().find(|known| known.rank == Some(rank)).and_then(|rank| rank.node);
        let inside = node(*from).is_some() && node(*from) == node(*to);
        let wrong = link.is_wrong(view.judge, inside);
        networks += usize::from(link.path.network().is_some());
        if wrong && view.ok != Some(false) {
            all.push(format!("link {from} -> {to} is wrong, the verdict is not"));
        }
        let bad =
            view.ok == Some(false) && link.path.network().is_some() && (!inside || view.nodes.len() == 1);
        if bad && !wrong {
            all.push(format!("link {from} -> {to} is right, the verdict is not"));
        }
    }
    for (from, to, kind) in truth.pairs.iter().flatten() {
        if matches!(map.cell(true, Some(*from), Some(*to)), Cell::NoChannel) {
            all.push(format!("no channel {from} -> {to}, which is {kind}"));
        }
    }
    for rank in view.ranks.iter().filter(|rank| rank.is_silent()) {
        if rank.rank.is_some_and(|rank| map.is_settled(true, rank)) {
            all.push(format!("rank {:?} wrote nothing, and its connections are known", rank.rank));
        }
    }
    // Each group keeps the nodes of its ranks.
    for (comm, map) in view.communicators.iter().zip(view.maps.iter().skip(1)) {
        let nodes: BTreeSet<Option<u32>> = view
            .ranks
            .iter()
            .filter(|rank| rank.rank.is_some_and(|rank| comm.members.contains(&rank)))
            .map(|rank| rank.node)
            .collect();
        expect(all, &format!("nodes of {}", comm.id), &map.rows(false).len(), &nodes.len());
        if map.rows(true).is_empty() {
            all.push(format!("{} shows no rank", comm.id));
        }
    }
    if networks == 0 && view.verdict == "socket" {
        all.push("no link by the verdict's network".to_owned());
    }
}
