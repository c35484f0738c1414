//! NCCL Inspector's Prometheus text: a rate for each GPU, collective and range of sizes, without ranks or numbers of operations.

use std::collections::BTreeMap;

use super::Rate;

/// Most rates that are kept.
const MOST: usize = 65_536;

type Key = (String, String, String, String, String);

/// Rates by node, GPU, communicator, collective and size.
#[derive(Clone, Debug, Default)]
pub struct Rates(BTreeMap<Key, (Option<f64>, Option<f64>)>);

impl Rates {
    /// Reads a line, and returns whether it is one of Inspector's.
    pub fn read(&mut self, line: &[u8]) -> bool {
        let Some((name, labels, value)) = parts(line) else { return false };
        let is_time = match name {
            "nccl_bus_bandwidth_gbs" | "nccl_p2p_bus_bandwidth_gbs" => false,
            "nccl_collective_exec_time_microseconds" | "nccl_p2p_exec_time_microseconds" => true,
            _ => return name.starts_with("nccl_"),
        };
        let label = |name: &str| label(labels, name).unwrap_or_default().chars().take(200).collect();
        let collective = match label("collective") {
            collective if String::is_empty(&collective) => label("p2p_operation"),
            collective => collective,
        };
        let key = (label("node"), label("gpu"), label("comm_name"), collective, label("message_size"));
        if self.0.len() < MOST || self.0.contains_key(&key) {
            let (rate, time) = self.0.entry(key).or_default();
            *(if is_time { time } else { rate }) = Some(value);
        }
        true
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rates(&self) -> Vec<Rate> {
        let rate =
            |((node, gpu, communicator, collective, size), (busbw_gbps, time_us)): (&Key, &(_, _))| Rate {
                node: node.clone(),
                gpu: gpu.clone(),
                communicator: communicator.clone(),
                collective: collective.clone(),
                size: size.clone(),
                busbw_gbps: *busbw_gbps,
                time_us: *time_us,
            };
        self.0.iter().map(rate).collect()
    }
}

/// Splits a sample into its name, its labels and its value.
fn parts(line: &[u8]) -> Option<(&str, &str, f64)> {
    if !line.starts_with(b"nccl_") {
        return None;
    }
    let (name, rest) = std::str::from_utf8(line).ok()?.split_once('{')?;
    let (labels, value) = rest.rsplit_once('}')?;
    let value = value.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value)).filter(|_| f64::is_finite(value))
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let starts = labels.match_indices(name).map(|(at, _)| at);
    let mut values = starts.filter_map(|at| {
        let begins = at == 0 || matches!(labels.as_bytes()[at - 1], b',' | b' ');
        let value = labels[at + name.len()..].strip_prefix("=\"").filter(|_| begins)?;
        value.split_once('"').map(|(value, _)| value)
    });
    values.next()
}
