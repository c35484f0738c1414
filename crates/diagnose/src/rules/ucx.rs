//! Which transport and device UCX uses between nodes: for NIXL the way of the KV cache.

use std::collections::BTreeSet;

use weftrun_nccl::Signature;
use weftrun_nccl::ucx::{Lane, emulated_lanes, lanes_between_nodes};

use super::{MEDIUM, NOTE, Rule, rule};
use crate::rule_input::RuleInput;

pub(super) const RULES: &[Rule] = &[
    rule("R77", "UCX-LANES", NOTE,
        "UCX carries data between nodes, with NIXL a KV cache",
        "nothing, if these are the adapters of the fabric, and as many as a GPU should use (UCX_NET_DEVICES, UCX_MAX_RMA_RAILS)",
        "https://openucx.readthedocs.io/en/master/faq.html")
        .signatures(&[Signature::UcxLanes])
        .when(has_fast_lanes)
        .detail(fast_lanes),
    rule("R78", "UCX-SLOW-PATH", MEDIUM,
        "UCX carries data between nodes over TCP: a KV cache that NIXL moves so has a fraction of the fabric's speed, and nothing fails",
        "look for the fabric's adapter in `ucx_info -d` inside the container (rc_mlx5, dc_mlx5, rc_verbs, srd): without it the device, its libraries or UCX's module for it is missing; then compare UCX_TLS and UCX_NET_DEVICES. UCX_TLS=^tcp makes the job fail instead",
        "https://github.com/openucx/ucx/issues/10950")
        .signatures(&[Signature::UcxLanes, Signature::UcxEmulated])
        .when(is_slow)
        .cites(slow_lines)
        .detail(slow_lanes),
];

fn lines<'s>(seen: &'s RuleInput<'_>, of: Signature) -> impl Iterator<Item = &'s weftrun_nccl::Trace> {
    seen.map.signatures().get(of).into_iter().flat_map(|found| &found.traces)
}

/// Returns whether a connection has nothing but TCP. One with another lane uses TCP to find its peer.
fn is_tcp(lanes: &[Lane<'_>]) -> bool {
    !lanes.is_empty() && lanes.iter().all(|lane| lane.transport == "tcp")
}

fn is_slow_line(trace: &weftrun_nccl::Trace) -> bool {
    is_tcp(&lanes_between_nodes(&trace.text)) || is_tcp(&emulated_lanes(&trace.text))
}

fn both<'s>(seen: &'s RuleInput<'_>) -> impl Iterator<Item = &'s weftrun_nccl::Trace> {
    lines(seen, Signature::UcxLanes).chain(lines(seen, Signature::UcxEmulated))
}

fn is_slow(seen: &RuleInput<'_>) -> bool {
    both(seen).any(is_slow_line)
}

fn slow_lines<'s>(seen: &'s RuleInput<'_>) -> Vec<&'s weftrun_nccl::Trace> {
    both(seen).filter(|trace| is_slow_line(trace)).collect()
}

fn slow_lanes(seen: &RuleInput<'_>) -> Option<String> {
    let slow = slow_lines(seen);
    let said = slow.iter().flat_map(|trace| {
        let emulated = emulated_lanes(&trace.text);
        let how = if emulated.is_empty() { "" } else { "software emulation over " };
        let lanes = if emulated.is_empty() { lanes_between_nodes(&trace.text) } else { emulated };
        lanes.into_iter().map(move |lane| format!("{how}{} on {}", lane.transport, lane.device))
    });
    named(said.collect())
}

fn has_fast_lanes(seen: &RuleInput<'_>) -> bool {
    fast_lanes(seen).is_some()
}

fn fast_lanes(seen: &RuleInput<'_>) -> Option<String> {
    let lanes = lines(seen, Signature::UcxLanes).flat_map(|trace| lanes_between_nodes(&trace.text));
    let fast = lanes.filter(|lane| lane.transport != "tcp");
    named(fast.map(|lane| format!("{} on {}", lane.transport, lane.device)).collect())
}

fn named(lanes: BTreeSet<String>) -> Option<String> {
    const MOST: usize = 8;
    let more = if lanes.len() > MOST { ", …" } else { "" };
    let first: Vec<String> = lanes.into_iter().take(MOST).collect();
    (!first.is_empty()).then(|| format!(": {}{more}", first.join(", ")))
}
