//! Partitions and nodes in the words that `scontrol` and `sinfo` would print: one reader for both ways to a cluster.

use serde_json::Value;

use super::json::{list, number, some_number, text};
use crate::slurm::discover::SECTION;

/// The answers to [`crate::slurm::discover::ask`]'s questions, those that slurmrestd has no answer to empty.
pub fn sections(partitions: &Value, nodes: &Value) -> String {
    let queues: Vec<String> = list(partitions, "partitions").iter().map(partition).collect();
    let nodes_of: Vec<String> = list(nodes, "nodes").iter().flat_map(node).collect();
    let meta = nodes.get("meta").unwrap_or(&Value::Null);
    let release = ["/slurm/release", "/Slurm/release"].iter().find_map(|path| meta.pointer(path)?.as_str());
    let config = format!("SLURM_VERSION = {}\n", release.unwrap_or_default());
    let answers = [queues.join("\n"), nodes_of.join("\n"), config];
    answers.iter().flat_map(|text| [text.replace(SECTION, ""), SECTION.to_string()]).collect()
}

fn partition(partition: &Value) -> String {
    let at = |path: &str| partition.pointer(path).and_then(number).filter(|number| *number > 0);
    let default = text(partition, "flags").split(',').any(|flag| flag.eq_ignore_ascii_case("default"));
    let state = match partition.get("state") {
        Some(Value::String(word)) => word.clone(),
        // data parsers
        _ => text(partition.get("partition").unwrap_or(&Value::Null), "state"),
    };
    let up = state.split(',').any(|word| word == "UP");
    let mut line = format!("PartitionName={}", text(partition, "name").replace(char::is_whitespace, ""));
    line.push_str(if default { " Default=YES" } else { " Default=NO" });
    line.push_str(if up { " State=UP" } else { " State=DOWN" });
    if let Some(most) = at("/maximum_nodes_per_job").or_else(|| at("/maximums/nodes")) {
        line.push_str(&format!(" MaxNodes={most}"));
    }
    if let Some(total) = at("/total_nodes").or_else(|| at("/nodes/total")) {
        line.push_str(&format!(" TotalNodes={total}"));
    }
    if let Some(minutes) = at("/max_time_limit").or_else(|| at("/maximums/time")) {
        line.push_str(&format!(" MaxTime={minutes}"));
    }
    line
}

/// One line for each partition of the node.
fn node(node: &Value) -> Vec<String> {
    let clean = |text: String| text.replace(char::is_control, "");
    let count = |key: &str| some_number(node, key).unwrap_or(0).to_string();
    let partitions = text(node, "partitions");
    let line = |partition: &str| {
        [
            partition.to_owned(),
            text(node, "state").to_lowercase(),
            count("cpus"),
            count("real_memory"),
            clean(text(node, "gres")),
            clean(text(node, "features")),
            clean(text(node, "name")),
        ]
        .join("\u{1f}")
    };
    partitions.split(',').filter(|name| !name.is_empty()).map(|name| line(&clean(name.to_owned()))).collect()
}
