//! Reads the facts that each node prints before a benchmark, and the counters of its network interfaces after it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Finding;

/// Prefixes of the lines that a node prints before and after the benchmark.
const BEFORE: &str = "weftrun-probe ";
const AFTER: &str = "weftrun-after ";
/// Largest number of nodes and of interfaces kept; `MAX_LINE` is the largest line in bytes.
const MAX_NODES: usize = 16_384;
const MAX_LINE: usize = 64 << 10;
/// Largest difference of two nodes' clocks, seconds. The clocks are read after the benchmark, which ends at about the
/// same time on all nodes but may begin minutes apart.
const CLOCK: u64 = 30;
/// Facts that differ between nodes without a reason for concern.
const OWN: [&str; 3] = ["host", "clock", "interfaces"];
/// Counters of words of four bytes (InfiniBand's `PortXmitData`).
const WORDS: [&str; 2] = ["port_xmit_data", "port_rcv_data"];

/// The nodes of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probes {
    before: BTreeMap<String, Value>,
    after: BTreeMap<String, Value>,
}

/// The counters of one interface during the benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Node.
    pub host: String,
    /// Interface and port: `rdmap79s0:1`.
    pub interface: String,
    /// Link and rate: `InfiniBand 400 Gb/sec (4X NDR)`.
    pub kind: String,
    /// Whether its port is active.
    pub active: bool,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Counters of errors that grew, and by how much.
    pub errors: Vec<(String, u64)>,
}

impl Probes {
    /// Reads the lines of a log.
    pub fn read(&mut self, log: &[u8]) {
        for line in log.split(|byte| *byte == b'\n').filter(|line| line.len() <= MAX_LINE) {
            for (word, nodes) in [(BEFORE, &mut self.before), (AFTER, &mut self.after)] {
                let Some(at) = memchr::memmem::find(line, word.as_bytes()) else { continue };
                let Ok(value) = serde_json::from_slice::<Value>(&line[at + word.len()..]) else { continue };
                let Some(host) = value["host"].as_str().map(str::to_owned) else { continue };
                if nodes.len() < MAX_NODES || nodes.contains_key(&host) {
                    // If a node printed several reports after the benchmark, the last one is used.
                    nodes.insert(host, value);
                }
            }
        }
    }

    /// Returns the names of the nodes.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.before.keys().map(String::as_str)
    }

    /// Returns the traffic of the interfaces during the benchmark, if both reports of their node contain them.
    pub fn traffic(&self) -> Vec<Traffic> {
        let mut all = Vec::new();
        for (host, after) in &self.after {
            let Some(before) = self.before.get(host) else { continue };
            let earlier = interfaces(before);
            for (name, now) in interfaces(after) {
                let Some(then) = earlier.get(name) else { continue };
                let grown = |counter: &str| {
                    let of = |interface: &Value| interface["counters"][counter].as_u64();
                    of(now)?.checked_sub(of(then)?)
                };
                let bytes = |names: [&str; 2]| {
                    let scale = |name: &str| if WORDS.contains(&name) { 4 } else { 1 };
                    names.iter().find_map(|name| Some(grown(name)?.saturating_mul(scale(name)))).unwrap_or(0)
                };
                let counters = now["counters"].as_object();
                let errors = counters.into_iter().flatten().filter_map(|(counter, _)| {
                    let is_error = ["err", "discard", "retrans", "timeout", "drop"].iter();
                    let is_error = is_error.clone().any(|word| counter.contains(word));
                    Some((counter.clone(), grown(counter)?)).filter(|(_, grown)| is_error && *grown > 0)
                });
                all.push(Traffic {
                    host: host.clone(),
                    interface: name.to_owned(),
                    kind: ["link", "rate"].map(|key| then[key].as_str().unwrap_or_default()).join(" "),
                    active: then["state"].as_str().is_none_or(|state| state.contains("ACTIVE")),
                    // EFA counts bytes in hw_counters (`tx_bytes`), others words in counters.
                    sent: bytes(["tx_bytes", "port_xmit_data"]),
                    received: bytes(["rx_bytes", "port_rcv_data"]),
                    errors: errors.collect(),
                });
            }
        }
        all
    }

    /// Returns findings on facts that differ between the nodes and on the counters of their interfaces.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.differences();
        findings.extend(self.clocks());
        let traffic = self.traffic();
        for one in &traffic {
            for (counter, grown) in &one.errors {
                let message = format!("{}: {} grew by {grown} on {}", one.host, counter, one.interface);
                findings.push(
                    Finding::warning("VERIFY-NIC-ERRORS", message)
                        .fix("check the cable, the switch port and the flow control of this interface"),
                );
            }
        }
        for (host, idle) in idle(&traffic) {
            let message = format!(
                "{host}: {} carried less than 1 % of the traffic of the busiest interface",
                idle.join(", ")
            );
            findings.push(
                Finding::warning("VERIFY-NIC-IDLE", message).fix(
                    "give the job all interfaces of the node, and name them all where NCCL_IB_HCA is set",
                ),
            );
        }
        findings
    }

    fn differences(&self) -> Vec<Finding> {
        let mut names: Vec<&String> =
            self.before.values().filter_map(Value::as_object).flat_map(|node| node.keys()).collect();
        names.sort();
        names.dedup();
        let mut findings = Vec::new();
        let flat =
            |host: &str, name: &str| self.before.get(host).map_or(Value::Null, |node| node[name].clone());
        for name in names.into_iter().filter(|name| !OWN.contains(&name.as_str())) {
            findings.extend(self.differing(name, |host| flat(host, name).to_string()));
        }
        let shape = |host: &str| {
            let node = self.before.get(host).map(interfaces).unwrap_or_default();
            let shown = node.values().map(|one| {
                let text = |key: &str| one[key].as_str().unwrap_or("?").to_owned();
                format!("{} {} {}", text("link"), text("rate"), text("state"))
            });
            let mut shown: Vec<String> = shown.collect();
            shown.sort();
            format!("{} ({})", shown.len(), shown.join(", "))
        };
        findings.extend(self.differing("interfaces", shape));
        findings
    }

    /// Reports a fact whose value differs between nodes, with the nodes that differ from the majority.
    fn differing(&self, name: &str, value: impl Fn(&str) -> String) -> Option<Finding> {
        let mut by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for host in self.before.keys() {
            by_value.entry(value(host)).or_default().push(host);
        }
        if by_value.len() < 2 {
            return None;
        }
        let mut values: Vec<(String, Vec<&str>)> = by_value.into_iter().collect();
        values.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
        let shown = |(value, hosts): &(String, Vec<&str>)| {
            let names = hosts.iter().take(4).copied().collect::<Vec<_>>().join(", ");
            let more = hosts.len().saturating_sub(4);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{value} on {names}{more}")
        };
        let shown: Vec<String> = values.iter().take(4).map(shown).collect();
        let message = format!("the nodes differ in {}: {}", name.replace('_', " "), shown.join("; "));
        Some(
            Finding::warning("VERIFY-NODES-DIFFER", message)
                .fix("make the nodes alike, or leave the odd one out"),
        )
    }

    fn clocks(&self) -> Option<Finding> {
        let clocks = || self.after.iter().filter_map(|(host, node)| Some((node["clock"].as_u64()?, host)));
        let (first, last) = (clocks().min()?, clocks().max()?);
        let apart = last.0 - first.0;
        (apart > CLOCK).then(|| {
            let message = format!("the clocks of {} and {} are {apart} s apart", first.1, last.1);
            Finding::warning("VERIFY-CLOCK", message)
                .fix("let both nodes set their clocks from one NTP server")
        })
    }
}

fn interfaces(node: &Value) -> BTreeMap<&str, &Value> {
    let all = node["interfaces"].as_array().into_iter().flatten();
    all.filter_map(|interface| Some((interface["device"].as_str()?, interface))).collect()
}

/// Returns the active interfaces of each node with less than a hundredth of the traffic of the busiest interface with
/// the same link and rate. Ports for storage or management have another link or rate.
fn idle(traffic: &[Traffic]) -> BTreeMap<&str, Vec<&str>> {
    let busiest = traffic.iter().max_by_key(|one| one.sent);
    let (busiest, kind) = busiest.map_or((0, ""), |one| (one.sent, one.kind.as_str()));
    let mut idle: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    if busiest < 1 << 30 {
        return idle;
    }
    for one in traffic.iter().filter(|one| one.active && one.kind == kind && one.sent < busiest / 100) {
        idle.entry(&one.host).or_default().push(&one.interface);
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, driver: &str, clock: u64) -> String {
        format!(
            "weftrun-probe {{\"host\":\"{host}\",\"clock\":{clock},\"driver\":\"{driver}\",\"interfaces\":[\
             {{\"device\":\"mlx5_0:1\",\"state\":\"4: ACTIVE\",\"rate\":\"400 Gb/sec\",\"link\":\"InfiniBand\",\"counters\":{{\"port_xmit_data\":1000,\"symbol_error\":0}}}},\
             {{\"device\":\"mlx5_1:1\",\"state\":\"4: ACTIVE\",\"rate\":\"400 Gb/sec\",\"link\":\"InfiniBand\",\"counters\":{{\"port_xmit_data\":1000}}}}]}}\n"
        )
    }

    fn codes(probes: &Probes) -> Vec<String> {
        probes.findings().iter().map(|finding| finding.code.to_string()).collect()
    }

    #[test]
    fn equal_nodes_have_no_findings_and_an_odd_one_is_named() {
        let mut probes = Probes::default();
        probes.read([node("a", "580", 100), node("b", "580", 101)].concat().as_bytes());
        assert_eq!(codes(&probes), [] as [&str; 0]);
        probes.read(format!("[1,2]<stdout>: {}", node("c", "570", 190)).as_bytes());
        assert_eq!(probes.hosts().collect::<Vec<_>>(), ["a", "b", "c"]);
        let findings = probes.findings();
        assert_eq!(codes(&probes), ["VERIFY-NODES-DIFFER"]);
        assert!(
            findings[0].message.contains("driver") && findings[0].message.ends_with("\"570\" on c"),
            "{findings:?}"
        );
        // Different start times are no finding; different end times are one.
        for (host, clock) in [("a", 1000), ("b", 1010), ("c", 1090)] {
            probes.read(format!("weftrun-after {{\"host\":\"{host}\",\"clock\":{clock}}}").as_bytes());
        }
        let findings = probes.findings();
        assert_eq!(findings[1].code, "VERIFY-CLOCK");
        assert!(findings[1].message.contains("90 s"), "{findings:?}");
    }

    #[test]
    fn an_idle_interface_and_growing_errors_are_found() {
        let mut probes = Probes::default();
        probes.read(node("a", "580", 100).as_bytes());
        probes.read(
            b"weftrun-after {\"host\":\"a\",\"interfaces\":[\
              {\"device\":\"mlx5_0:1\",\"counters\":{\"port_xmit_data\":1000000000,\"symbol_error\":7}},\
              {\"device\":\"mlx5_1:1\",\"counters\":{\"port_xmit_data\":1000}}]}\n",
        );
        let traffic = probes.traffic();
        assert_eq!((traffic[0].sent, traffic[1].sent), (3_999_996_000, 0));
        assert_eq!(traffic[0].errors, [("symbol_error".to_owned(), 7)]);
        assert_eq!(codes(&probes), ["VERIFY-NIC-ERRORS", "VERIFY-NIC-IDLE"]);
    }

    #[test]
    fn lines_that_no_node_wrote_are_passed_over() {
        let mut probes = Probes::default();
        for line in [
            "weftrun-probe {",
            "weftrun-probe []",
            "weftrun-probe {\"host\":7}",
            "weftrun-after {\"host\":\"x\"}",
        ] {
            probes.read(line.as_bytes());
        }
        let deep = format!("weftrun-probe {}", "[".repeat(60_000));
        probes.read(deep.as_bytes());
        assert_eq!((probes.hosts().count(), codes(&probes).len()), (0, 0));
    }
}
