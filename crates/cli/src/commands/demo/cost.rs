//! The cost of a transport, in figures measured on one machine.

use weftrun::core::nccl::{FabricSeen, Network, TransportMap};

/// All-reduce bus bandwidth of 64 MiB, GB/s: the same four H200 GPUs, PyTorch 2.11, NCCL 2.28.9, the transport forced
/// by NCCL's own variables. Measured 2026-11-21 with the runs in `crates/replay/data/captures`.
const MEASURED: [(&str, f64, f64); 4] = [
    ("NVLink (P2P)", 147.0, 251.0),
    ("shared memory (SHM)", 26.0, 26.0),
    ("TCP sockets (NET/Socket)", 4.0, 6.0),
    ("libfabric over TCP (NET/Libfabric)", 3.0, 6.0),
];

/// Returns the table, and the bandwidth measured in this run.
pub(super) fn text(map: &TransportMap) -> String {
    let fabric = map.snapshot().verdict().fabric;
    let mut text =
        "\nWhat a transport costs: all-reduce bus bandwidth of 64 MiB on four H200 GPUs\n".to_owned();
    let longest = MEASURED.iter().map(|(_, _, high)| *high).fold(0.0, f64::max);
    for (at, (name, low, high)) in MEASURED.into_iter().enumerate() {
        let range = if low < high { format!("{low:.0}-{high:.0}") } else { format!("{high:.0}") };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a bar of at most 32 characters"
        )]
        let bar = "#".repeat((high / longest * 32.0).ceil() as usize);
        let here = if uses(fabric) == Some(at) { "  <- this job, between nodes" } else { "" };
        text.push_str(&format!("  {name:<36}{range:>8} GB/s  {bar}{here}\n"));
    }
    for (source, series) in map.snapshot().throughput() {
        let (value, unit) = (series.last().value, series.unit);
        text.push_str(&format!("  this run, by {source}: {} {value:.1} {unit}\n", series.metric));
    }
    if uses(fabric).is_some() {
        let ratio = MEASURED[0].1 / MEASURED[2].2;
        text.push_str(&format!(
            "Over TCP the GPUs wait for the network: at least {ratio:.0} times less than between GPUs of one node. On a \
             cluster with EFA, RoCE or\nInfiniBand `weftrun plan` says what the job lacks, and `weftrun submit` adds it.\n"
        ));
    }
    text.truncate(text.trim_end().len());
    text
}

fn uses(fabric: FabricSeen) -> Option<usize> {
    match fabric {
        FabricSeen::Network(Network::Socket) => Some(2),
        FabricSeen::Network(Network::LibfabricTcp) => Some(3),
        _ => None,
    }
}
