//! Parses partitions and nodes of slurmrestd's answers.

use std::time::Duration;

use serde_json::Value;

use super::json::{list, number, some_number, text, time};
use crate::slurm::cluster::{self, Cluster, Gres, Node, Partition};

/// Parses the cluster; slurmrestd reports neither plugins nor QOS.
pub fn read(partitions: &Value, nodes: &Value) -> Cluster {
    let release =
        ["/slurm/release", "/Slurm/release"].iter().find_map(|path| nodes["meta"].pointer(path)?.as_str());
    Cluster {
        partitions: list(&partitions["partitions"]).iter().map(partition).collect(),
        nodes: list(&nodes["nodes"]).iter().map(node).filter(|node| !node.partitions.is_empty()).collect(),
        config: [("SLURM_VERSION".to_owned(), release.unwrap_or_default().to_owned())].into(),
        ..Cluster::default()
    }
}

fn partition(partition: &Value) -> Partition {
    let at = |path: &str| partition.pointer(path).and_then(number).filter(|number| *number > 0);
    let count = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    // Data parsers have it one level deeper.
    let state =
        partition["state"].as_str().map_or_else(|| text(&partition["partition"]["state"]), str::to_owned);
    let minutes = at("/max_time_limit").or_else(|| at("/maximums/time"));
    Partition {
        name: text(&partition["name"]),
        default: text(&partition["flags"]).split(',').any(|flag| flag.eq_ignore_ascii_case("default")),
        up: state.split(',').any(|word| word == "UP"),
        max_nodes: count(at("/maximum_nodes_per_job").or_else(|| at("/maximums/nodes"))),
        total_nodes: count(at("/total_nodes").or_else(|| at("/nodes/total"))),
        max_time: minutes.and_then(|minutes| Some(Duration::from_secs(minutes.checked_mul(60)?))),
    }
}

fn node(node: &Value) -> Node {
    let out = cluster::out_of_service(&text(&node["state"]), &text(&node["reason"]));
    Node {
        name: text(&node["name"]),
        partitions: cluster::words(&text(&node["partitions"])),
        cpus: some_number(&node["cpus"]).unwrap_or(0),
        memory: some_number(&node["real_memory"]).unwrap_or(0),
        gres: Gres::list(&text(&node["gres"])),
        features: cluster::words(&text(&node["features"])),
        out_since: time(&node["reason_changed_at"]).filter(|_| out.is_some()),
        out,
    }
}
