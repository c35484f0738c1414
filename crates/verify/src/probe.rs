//! Reads the facts that each node prints before a benchmark, and the counters of its network interfaces after it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use weftrun_nccl::{LINE_CAP, pieces};

use super::bus;
use super::device::Device;
use super::gpu::{self, GpuState};
use weftrun_core::Finding;
use weftrun_core::request::Fabric;
use weftrun_core::text::listed;

/// Prefixes of the lines that a node prints before and after the benchmark.
const WORD: &str = "weftrun-";
const BEFORE: &str = "probe ";
const AFTER: &str = "after ";
/// Largest number of nodes kept.
const MAX_NODES: usize = 16_384;
/// Largest number of facts and of interfaces of a node, and largest fact in bytes; a node of ours reports 30 facts.
const MAX_FACTS: usize = 64;
const MAX_INTERFACES: usize = 256;
const MAX_FACT: usize = 256;
/// Largest number of findings of one kind.
const MAX_FINDINGS: usize = 64;
/// Largest difference of two nodes' clocks, seconds. The clocks are read after the benchmark, which ends at about the
/// same time on all nodes but may begin minutes apart.
const CLOCK: u64 = 30;
/// Largest offset of a node's clock from its time server, seconds.
const OFFSET: f64 = 1.0;
/// Facts that differ between nodes without a reason for concern, or that have findings of their own.
const OWN: [&str; 7] = ["host", "clock", "interfaces", "clock_offset", GPUS, PROCESSES, bus::XIDS];
/// The state of each GPU, and the programs that use them.
const GPUS: &str = "gpu_states";
const PROCESSES: &str = "gpu_processes";
/// The fact made of all interfaces of a node.
const DEVICES: &str = "network_devices";
/// Counters of words of four bytes (InfiniBand's `PortXmitData`).
const WORDS: [&str; 2] = ["port_xmit_data", "port_rcv_data"];

/// Words in the names of counters of errors: of InfiniBand and RoCE, and of EFA (`impaired_remote_conn_events`).
const ERRORS: [&str; 8] =
    ["err", "discard", "retrans", "timeout", "drop", "impaired", "unresponsive", "link_downed"];

/// The nodes of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probes {
    before: BTreeMap<String, Value>,
    after: BTreeMap<String, Value>,
}

/// One fact and its values on the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// Its name in the report of a node: `driver`.
    pub name: String,
    /// The values, the most frequent one first, with the nodes that have it. Nodes that do not report the fact have
    /// an empty value.
    pub values: Vec<(String, Vec<String>)>,
}

impl Fact {
    /// Returns its name in words.
    pub fn words(&self) -> String {
        self.name.replace('_', " ")
    }
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
        pieces(log).for_each(|line| self.read_line(line));
    }

    pub(super) fn read_line(&mut self, line: &[u8]) {
        let Some(at) = memchr::memmem::find(line, WORD.as_bytes()).filter(|_| line.len() <= LINE_CAP) else {
            return;
        };
        let line = &line[at + WORD.len()..];
        for (word, nodes) in [(BEFORE, &mut self.before), (AFTER, &mut self.after)] {
            let Some(json) = line.strip_prefix(word.as_bytes()) else { continue };
            let Ok(Value::Object(node)) = serde_json::from_slice::<Value>(json) else { continue };
            let value = Value::Object(bounded(node));
            let Some(host) = value["host"].as_str().map(str::to_owned) else { continue };
            if nodes.len() < MAX_NODES || nodes.contains_key(&host) {
                // If a node printed several reports after the benchmark, the last one is used.
                nodes.insert(host, value);
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
                    let is_error = ERRORS.iter().any(|word| counter.contains(word));
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
        findings.extend(self.offsets().take(MAX_FINDINGS));
        findings.extend(self.of_gpus().take(MAX_FINDINGS));
        let traffic = self.traffic();
        let errors = traffic.iter().flat_map(|one| one.errors.iter().map(move |error| (one, error)));
        for (one, (counter, grown)) in errors.take(MAX_FINDINGS) {
            let message = format!("{}: {} grew by {grown} on {}", one.host, counter, one.interface);
            findings.push(
                Finding::warning("VERIFY-NIC-ERRORS", message)
                    .fix("check the cable, the switch port and the flow control of this interface"),
            );
        }
        for (host, idle) in idle(&traffic).into_iter().take(MAX_FINDINGS) {
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
        let differ = self.facts().into_iter().filter(|fact| fact.values.len() > 1);
        let finding = |fact: Fact| {
            let shown = fact.values.iter().take(4).map(|(value, hosts)| {
                let value = if value.is_empty() { "not reported" } else { value };
                format!("{value} on {}", listed(hosts, 4))
            });
            let shown: Vec<String> = shown.collect();
            let message = format!("the nodes differ in {}: {}", fact.words(), shown.join("; "));
            Finding::warning("VERIFY-NODES-DIFFER", message)
                .fix("make the nodes alike, or leave the odd one out")
        };
        differ.map(finding).collect()
    }

    /// Returns the facts of all nodes that should be the same on each.
    pub fn facts(&self) -> Vec<Fact> {
        let mut names: Vec<&String> =
            self.before.values().filter_map(Value::as_object).flat_map(|node| node.keys()).collect();
        names.sort();
        names.dedup();
        let names = names.into_iter().map(String::as_str).filter(|name| !OWN.contains(name)).take(MAX_FACTS);
        let mut facts: Vec<Fact> = names.map(|name| self.fact(name, |node| value_of(node, name))).collect();
        let devices = self.fact(DEVICES, shape);
        if devices.values.iter().any(|(value, _)| !value.is_empty()) {
            facts.push(devices);
        }
        facts
    }

    /// Returns the value of a fact that all nodes report alike.
    pub(super) fn same(&self, name: &str) -> Option<String> {
        let mut values = self.before.values().map(|node| value_of(node, name));
        let first = values.next().filter(|first| !first.is_empty())?;
        values.all(|other| other == first).then_some(first)
    }

    fn fact(&self, name: &str, value: impl Fn(&Value) -> String) -> Fact {
        let mut by_value: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (host, node) in &self.before {
            by_value.entry(value(node)).or_default().push(host.clone());
        }
        let mut values: Vec<(String, Vec<String>)> = by_value.into_iter().collect();
        values.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
        Fact { name: name.to_owned(), values }
    }

    /// Returns the report of a node: its facts by name.
    pub fn node(&self, host: &str) -> BTreeMap<String, Value> {
        let node = self.before.get(host).and_then(Value::as_object);
        let kept = node
            .into_iter()
            .flatten()
            .filter(|(name, _)| !["host", "interfaces", GPUS].contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns the network devices of a node.
    pub fn devices(&self, host: &str) -> Vec<Device> {
        let node = self.before.get(host);
        node.map(interfaces)
            .unwrap_or_default()
            .values()
            .filter_map(|interface| Device::read(interface))
            .collect()
    }

    /// Returns the fabrics that the active devices of the nodes are evidence of, each with the nodes that have such a
    /// device.
    pub fn fabrics(&self) -> Vec<(Fabric, Vec<String>)> {
        let mut all: Vec<(Fabric, Vec<String>)> = Vec::new();
        for host in self.before.keys() {
            let active = self.devices(host).into_iter().filter(Device::is_active);
            for fabric in active.filter_map(|device| device.fabric) {
                match all.iter_mut().find(|(known, _)| *known == fabric) {
                    Some((_, hosts)) if hosts.last() == Some(host) => {}
                    Some((_, hosts)) => hosts.push(host.clone()),
                    None => all.push((fabric, vec![host.clone()])),
                }
            }
        }
        all
    }

    /// Returns what other programs had of the GPUs before the benchmark, a sentence for each node that has such.
    pub fn gpus_in_use(&self) -> Vec<String> {
        let of = |(host, node): (&String, &Value)| {
            gpu::in_use(host, &gpus(node), node[PROCESSES].as_str().unwrap_or_default())
        };
        self.before.iter().filter_map(of).take(MAX_FINDINGS).collect()
    }

    fn of_gpus(&self) -> impl Iterator<Item = Finding> {
        let in_use = self.gpus_in_use().into_iter().map(|message| {
            Finding::warning("VERIFY-GPU-IN-USE", message)
                .fix("end the other program, or measure on nodes that nothing else uses")
        });
        let idle = self.before.iter().filter_map(|(host, node)| {
            let message =
                gpu::idle_programs(host, &gpus(node), node[PROCESSES].as_str().unwrap_or_default())?;
            Some(
                Finding::info("VERIFY-GPU-IN-USE", message)
                    .fix("nothing, if they stay idle while it is measured"),
            )
        });
        let links_down = self.before.iter().filter_map(|(host, node)| {
            let down = node["nvlinks_inactive"].as_u64().filter(|down| *down > 0)?;
            let message = format!("{host}: {down} NVLinks are not active");
            Some(
                Finding::warning("VERIFY-NVLINK-DOWN", message)
                    .fix("look for Xid 74 and at `nvidia-smi nvlink --status`; leave the node out until it is repaired"),
            )
        });
        let slow = self.before.iter().flat_map(|(host, node)| gpu::findings(host, &gpus(node)));
        let of_bus =
            self.before.iter().flat_map(|(host, node)| bus::findings(host, |name| value_of(node, name)));
        in_use.chain(idle).chain(links_down).chain(slow).chain(of_bus)
    }

    fn offsets(&self) -> impl Iterator<Item = Finding> {
        self.before.iter().filter_map(|(host, node)| {
            let shown = node["clock_offset"].as_str()?;
            let seconds: f64 = shown.split_ascii_whitespace().next()?.parse().ok()?;
            (seconds.abs() > OFFSET).then(|| {
                let message = format!("the clock of {host} is {shown}");
                Finding::warning("VERIFY-CLOCK", message)
                    .fix("let the node set its clock from its NTP server")
            })
        })
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

/// Returns the parts of a report that are kept: a log may contain any number of others.
fn bounded(node: Map<String, Value>) -> Map<String, Value> {
    let mut facts = 0;
    let kept = node.into_iter().filter_map(|(name, value)| match value {
        Value::Array(mut all) if ["interfaces", GPUS].contains(&name.as_str()) => {
            all.truncate(MAX_INTERFACES);
            Some((name, Value::Array(all)))
        }
        Value::Array(_) | Value::Object(_) => None,
        value => {
            let size = name.len() + value.as_str().map_or(0, str::len);
            let kept = size <= MAX_FACT && (facts < MAX_FACTS || OWN.contains(&name.as_str()));
            facts += usize::from(kept);
            kept.then_some((name, value))
        }
    });
    kept.collect()
}

fn value_of(node: &Value, name: &str) -> String {
    match &node[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn gpus(node: &Value) -> Vec<GpuState> {
    let all = node[GPUS].as_array().into_iter().flatten();
    all.filter_map(|gpu| GpuState::read(gpu.as_str()?)).collect()
}

fn interfaces(node: &Value) -> BTreeMap<&str, &Value> {
    let all = node["interfaces"].as_array().into_iter().flatten();
    all.filter_map(|interface| Some((interface["device"].as_str()?, interface))).collect()
}

/// Returns the network devices of a node, equal ones together: `8 × InfiniBand, 400 Gb/sec (4X NDR), 4: ACTIVE`.
fn shape(node: &Value) -> String {
    let mut shapes: BTreeMap<String, usize> = BTreeMap::new();
    for device in interfaces(node).values().filter_map(|interface| Device::read(interface)) {
        *shapes.entry(device.shape()).or_default() += 1;
    }
    let shown = shapes.into_iter().map(|(shape, count)| format!("{count} × {shape}"));
    shown.collect::<Vec<_>>().join("; ")
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
        probes.findings().iter().map(|finding| finding.code.clone()).collect()
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
            findings[0].message.contains("driver") && findings[0].message.ends_with("570 on c"),
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
    fn efa_has_counters_of_its_own() {
        let mut probes = Probes::default();
        for (word, sent, events) in [("probe", 1000_u64, 1), ("after", 5000, 4)] {
            probes.read(
                format!(
                    "weftrun-{word} {{\"host\":\"a\",\"interfaces\":[{{\"device\":\"rdmap79s0:1\",\"counters\":{{\"tx_bytes\":{sent},\
                     \"rx_bytes\":7,\"rdma_write_bytes\":{sent},\"rx_drops\":0,\"impaired_remote_conn_events\":{events},\
                     \"unresponsive_remote_events\":{events}}}}}]}}\n"
                )
                .as_bytes(),
            );
        }
        let traffic = probes.traffic();
        assert_eq!((traffic[0].sent, traffic[0].received), (4000, 0));
        let errors: Vec<(&str, u64)> =
            traffic[0].errors.iter().map(|(name, grown)| (&**name, *grown)).collect();
        assert_eq!(errors, [("impaired_remote_conn_events", 3), ("unresponsive_remote_events", 3)]);
    }

    #[test]
    fn facts_are_grouped_by_value_and_devices_by_fabric() {
        let mut probes = Probes::default();
        probes
            .read([node("a", "580", 100), node("b", "580", 101), node("c", "570", 102)].concat().as_bytes());
        let facts = probes.facts();
        let driver = facts.iter().find(|fact| fact.name == "driver").unwrap();
        assert_eq!(
            driver.values,
            [
                ("580".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
                ("570".to_owned(), vec!["c".to_owned()])
            ]
        );
        let devices = facts.iter().find(|fact| fact.name == DEVICES).unwrap();
        assert_eq!(devices.values[0].0, "2 × InfiniBand, 400 Gb/sec, 4: ACTIVE");
        assert_eq!(probes.fabrics(), [(Fabric::InfiniBand, ["a", "b", "c"].map(str::to_owned).to_vec())]);
        probes.read(b"weftrun-probe {\"host\":\"d\",\"clock_offset\":\"2.5 seconds slow of NTP time\"}");
        assert!(codes(&probes).contains(&"VERIFY-CLOCK".to_owned()));
    }

    #[test]
    fn forged_reports_have_few_facts() {
        let mut probes = Probes::default();
        for host in 0..40 {
            let facts: String = (0..4000).map(|fact| format!(",\"k{host}x{fact}\":{fact}")).collect();
            let long = "v".repeat(MAX_FACT + 1);
            let own = format!("\"host\":\"h{host}\",\"a\":\"{long}\",\"driver\":\"580\",\"b\":[1]");
            probes.read(format!("weftrun-probe {{{own}{facts}}}\n").as_bytes());
        }
        assert_eq!(probes.hosts().count(), 40);
        assert!(probes.node("h0").len() <= MAX_FACTS);
        let facts = probes.facts();
        assert_eq!((facts.len(), facts[0].name.as_str()), (MAX_FACTS, "driver"));
        assert!(probes.findings().len() <= MAX_FINDINGS);
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
