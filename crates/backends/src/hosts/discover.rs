//! What the hosts have: GPUs, network devices with their state and GIDs, and which of them are busy.

use std::collections::{BTreeMap, BTreeSet};

use weftrun_core::backend::{ClusterFacts, NodeGroup, Scope};
use weftrun_core::fabric::DeviceKind;
use weftrun_core::text::listed;
use weftrun_core::{Finding, Result};

use super::client::{Client, Silent};
use super::engine::{self, ENGINES};
use super::look::{Looks, NoAnswer};
use super::status::Job;
use super::watch::no_hosts;
use crate::remote::error::clean;

/// The script that prints the facts of a host.
const PROBE: &str = include_str!("probe.sh");

/// Largest number of hosts that one line names.
const MOST_NAMED: usize = 8;

/// What hosts say, by key and text, and who says it.
type Said<'h> = BTreeMap<(&'h str, &'h str), Vec<&'h str>>;

/// The facts of one host.
#[derive(Clone, Debug, Default, PartialEq)]
struct Host {
    cpus: u32,
    memory_kib: u64,
    /// GPUs of NVIDIA; none where the host has those of AMD, which are not counted.
    gpus: Option<u32>,
    gpu_product: Option<String>,
    programs: Vec<String>,
    ports: Vec<Port>,
    /// Findings of the checklist: code and text.
    notes: Vec<(String, String)>,
    /// Container engines that do not work, and what they say.
    engines: Vec<(String, String)>,
}

/// One port of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Port {
    class: String,
    device: String,
    driver: String,
    node_type: String,
    link_layer: String,
    state: String,
    rate: String,
    numa: String,
    ats: String,
    gid: String,
}

/// Returns the facts of all hosts.
pub async fn discover(client: &Client, scope: &Scope) -> Result<ClusterFacts> {
    if client.names().next().is_none() {
        return Err(no_hosts(client));
    }
    let engines = if scope.thorough { engine::programs(&ENGINES) } else { String::new() };
    let program = format!("{PROBE}\n{engines}weftrun_survey ''\nweftrun_look\n");
    let programs = client.names().map(|host| (host.to_owned(), program.clone())).collect();
    let answers = client.each(programs, if scope.thorough { Silent::Ask } else { Silent::Skip }).await;
    let mut facts = ClusterFacts::default();
    facts.online = true;
    facts.efa_webhook = Some(false);
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    let mut looks = BTreeMap::new();
    let mut errors = Vec::new();
    for (host, answer) in answers {
        match answer {
            Ok(answer) => {
                let text = answer.text();
                looks.insert(host.clone(), Ok(super::look::HostLook::read(&text)));
                hosts.insert(host.clone(), Host::read(&text));
            }
            Err(error) => {
                let why = NoAnswer::from(&error);
                facts.notes.push(why.finding(format!("{host} does not answer: {why}")));
                looks.insert(host.clone(), Err(why));
                errors.push(error);
            }
        }
    }
    if let (true, Some(error)) = (hosts.is_empty(), errors.into_iter().next()) {
        return Err(error);
    }
    let jobs = Job::gather(&looks);
    for (host, look) in looks.iter().filter_map(|(host, look)| Some((host, look.as_ref().ok()?))) {
        if let Some(job) = Job::on(look, &jobs).filter(|job| job.is_active()) {
            let text = format!("{host} runs `{}` ({})", job.place.name, job.handle(&client.target));
            facts.notes.push(Finding::info("HOSTS-BUSY", text));
        }
    }
    for name in same_machines(&looks, &mut facts.notes) {
        hosts.remove(&name);
    }
    group(&hosts, &mut facts);
    if scope.thorough {
        for (host, seen) in &hosts {
            facts.extra.insert(host.clone(), seen.line().into());
        }
        checklist(&hosts, &mut facts.notes);
        differences(&hosts, &mut facts.notes);
    }
    Ok(facts)
}

/// Reports names of one machine, and returns all but the first of each.
fn same_machines(looks: &Looks, notes: &mut Vec<Finding>) -> Vec<String> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (host, look) in looks.iter().filter_map(|(host, look)| Some((host, look.as_ref().ok()?))) {
        if !look.machine.is_empty() {
            names.entry(&look.machine).or_default().push(host);
        }
    }
    let mut more = Vec::new();
    for names in names.values().filter(|names| names.len() > 1) {
        let text = format!("{} are one machine: a job runs on it once", names.join(" and "));
        notes.push(
            Finding::warning("HOSTS-SAME", text).fix("leave one of the names in `hosts` of the target"),
        );
        more.extend(names.iter().skip(1).map(|name| (*name).to_owned()));
    }
    more
}

/// Groups hosts that are alike, in the order of their names.
fn group(hosts: &BTreeMap<String, Host>, facts: &mut ClusterFacts) {
    let mut serves: Option<BTreeSet<String>> = None;
    for host in hosts.values() {
        let mut group = NodeGroup::default();
        group.count = 1;
        group.gpu_product.clone_from(&host.gpu_product);
        if host.cpus > 0 {
            group.allocatable.insert("cpu".to_owned(), host.cpus.to_string());
        }
        if host.memory_kib > 0 {
            group.allocatable.insert("memory".to_owned(), format!("{}Ki", host.memory_kib));
        }
        if let Some(gpus) = host.gpus {
            group.allocatable.insert("nvidia.com/gpu".to_owned(), gpus.to_string());
        }
        group.devices = host.ports.iter().filter(|port| port.is_up()).map(Port::kind).collect();
        let alike = facts.nodes.iter_mut().find(|known| {
            (&known.gpu_product, &known.allocatable, &known.devices)
                == (&group.gpu_product, &group.allocatable, &group.devices)
        });
        match alike {
            Some(known) => known.count += 1,
            None => facts.nodes.push(group),
        }
        let here: BTreeSet<String> = host.programs.iter().cloned().collect();
        serves = Some(serves.map_or(here.clone(), |all| all.intersection(&here).cloned().collect()));
    }
    facts.serves = serves.unwrap_or_default().into_iter().collect();
}

/// Reports engines that do not work and findings of the checklist; what is the same on several hosts is reported once.
fn checklist(hosts: &BTreeMap<String, Host>, notes: &mut Vec<Finding>) {
    let (mut engines, mut others) = (Said::new(), Said::new());
    for (name, host) in hosts {
        for (said, all) in [(&host.engines, &mut engines), (&host.notes, &mut others)] {
            for (key, text) in said {
                all.entry((key, text)).or_default().push(name);
            }
        }
    }
    notes.extend(engines.into_iter().map(|((engine, said), names)| {
        let (text, fix) = engine::text(&listed(names, MOST_NAMED), engine, said);
        Finding::warning(engine::CODE, text).fix(fix)
    }));
    notes.extend(others.into_iter().map(|((code, text), names)| {
        Finding::warning(code, format!("{}: {text}", listed(names, MOST_NAMED)))
    }));
}

/// Reports what differs between hosts whose jobs need them alike.
fn differences(hosts: &BTreeMap<String, Host>, notes: &mut Vec<Finding>) {
    let mut devices: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, host) in hosts {
        let key: Vec<String> = host
            .ports
            .iter()
            .filter(|port| port.is_up())
            .map(|port| format!("{} {}", port.device, port.gid))
            .collect();
        devices.entry(key.join(", ")).or_default().push(name);
    }
    if devices.len() > 1 {
        let parts: Vec<String> = devices
            .iter()
            .map(|(key, names)| format!("{}: {}", names.join(" "), if key.is_empty() { "none" } else { key }))
            .collect();
        notes.push(
            Finding::warning("HOSTS-DIFFER", format!("the RDMA devices that are up, or their RoCE v2 GIDs, differ: {}", parts.join("; ")))
                .fix("set `NCCL_IB_HCA` to devices that all hosts have, and leave the GID index to NCCL (2.21 or later) or to `gid = \"compute\"`"),
        );
    }
}

impl Host {
    fn read(text: &str) -> Self {
        let mut host = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let value = clean(value);
            match key {
                "cpus" => host.cpus = value.parse().unwrap_or(0),
                "memory" => host.memory_kib = value.parse().unwrap_or(0),
                "gpus" => host.gpus = value.parse().ok(),
                "gpu" => host.gpu_product = Some(value).filter(|name| !name.is_empty()),
                "program" => host.programs.push(value),
                "nic" if host.ports.len() < 256 => host.ports.extend(Port::read(&value)),
                "engine" if host.engines.len() < ENGINES.len() => {
                    host.engines
                        .extend(value.split_once(' ').map(|(name, text)| (name.to_owned(), text.to_owned())));
                }
                "note" if host.notes.len() < 64 => {
                    host.notes
                        .extend(value.split_once(' ').map(|(code, text)| (code.to_owned(), text.to_owned())));
                }
                _ => {}
            }
        }
        host
    }

    /// Returns its network devices as one line for people.
    fn line(&self) -> String {
        let gpus = match (self.gpus.unwrap_or(0), &self.gpu_product) {
            (0, _) => "no GPU".to_owned(),
            (n, Some(product)) => format!("{n} {product}"),
            (n, None) => format!("{n} GPUs"),
        };
        let ports: Vec<String> = self.ports.iter().map(Port::line).collect();
        let ports = if ports.is_empty() { "no RDMA device".to_owned() } else { ports.join("; ") };
        format!("{} CPUs, {gpus}, {ports}", self.cpus)
    }
}

impl Port {
    /// Reads `CLASS|DEVICE:PORT|DRIVER|NODE TYPE|LINK LAYER|STATE|RATE|NUMA|ATS|GID`.
    fn read(line: &str) -> Option<Self> {
        let parts: Vec<String> = line.split('|').take(10).map(|part| part.trim().to_owned()).collect();
        let [class, device, driver, node_type, link_layer, state, rate, numa, ats, gid] =
            parts.try_into().ok()?;
        Some(Self { class, device, driver, node_type, link_layer, state, rate, numa, ats, gid })
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::of(&self.class, &self.device, &self.driver, &self.link_layer, &self.node_type)
    }

    fn is_up(&self) -> bool {
        self.state.is_empty() || self.state.contains("ACTIVE")
    }

    fn line(&self) -> String {
        let mut line = format!("{} {}", self.device, self.kind().as_str());
        for (name, value) in [
            ("", &self.state),
            ("", &self.rate),
            ("NUMA node ", &self.numa),
            ("ATS ", &self.ats),
            ("RoCE v2 GID index ", &self.gid),
        ] {
            if !value.is_empty() {
                line.push_str(&format!(", {name}{value}"));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "cpus 64\nmemory 1000\ngpus 8\ngpu NVIDIA A100\nprogram docker\nprogram mpirun\n\
        nic infiniband|mlx5_0:1|mlx5_core|1: CA|Ethernet|4: ACTIVE|100 Gb/sec (4X EDR)|0|enabled|3\n\
        nic infiniband|mlx5_1:1|mlx5_core|1: CA|Ethernet|1: DOWN|40 Gb/sec|1||\n\
        note HOSTS-ACS the switch redirects\nnic half|a\n";

    #[test]
    fn hosts_that_are_alike_are_one_group() {
        let mut hosts = BTreeMap::new();
        hosts.insert("a".to_owned(), Host::read(A));
        hosts.insert("b".to_owned(), Host::read(A));
        hosts.insert("c".to_owned(), Host::read("cpus 4\ngpus 0\nprogram mpirun\n"));
        let mut facts = ClusterFacts::default();
        group(&hosts, &mut facts);
        assert_eq!(facts.nodes.iter().map(|group| group.count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(facts.nodes[0].devices.iter().copied().collect::<Vec<_>>(), [DeviceKind::Roce]);
        assert_eq!(facts.serves, ["mpirun"]);
        let mut notes = Vec::new();
        differences(&hosts, &mut notes);
        assert!(
            notes[0].message.contains("a b: mlx5_0:1 3; c: none")
                || notes[0].message.contains("c: none; a b: mlx5_0:1 3"),
            "{}",
            notes[0].message
        );
        notes.clear();
        hosts.insert("d".to_owned(), Host::read("engine docker no daemon\n"));
        hosts.insert("e".to_owned(), Host::read("engine docker no daemon\n"));
        checklist(&hosts, &mut notes);
        let said: Vec<&str> = notes.iter().map(|note| note.message.as_str()).collect();
        assert_eq!(said, ["`docker` does not work on d, e: no daemon", "a, b: the switch redirects"]);
        let line = hosts["a"].line();
        assert!(
            line.contains("8 NVIDIA A100")
                && line.contains("mlx5_0:1 RoCE, 4: ACTIVE")
                && line.contains("RoCE v2 GID index 3"),
            "{line}"
        );
    }
}
