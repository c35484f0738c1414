//! The resources of a cluster: parsed here from the output of Slurm's commands, and in `rest` from
//! slurmrestd's answers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use weftrun_convert::slurm_duration;

use super::error::clean;
use super::records::time;

/// Separates the outputs of two commands.
pub const SECTION: char = '\u{1d}';
/// Separates two columns of sinfo.
pub const COLUMN: char = '\u{1f}';

/// What a cluster reports about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    pub partitions: Vec<Partition>,
    pub nodes: Vec<Node>,
    /// Slurm's configuration by key.
    pub config: BTreeMap<String, String>,
    /// MPI plugins of srun.
    pub mpi: Vec<String>,
    pub pyxis: bool,
    /// QOS the user may use.
    pub qos: Vec<String>,
    /// Home directory of the user on the cluster.
    pub home: Option<String>,
    /// The folder in which `submit` is called, if it also exists on the cluster.
    pub folder: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    pub name: String,
    pub default: bool,
    pub up: bool,
    /// Largest number of nodes of a job, where limited.
    pub max_nodes: Option<u32>,
    pub total_nodes: Option<u32>,
    pub max_time: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub partitions: Vec<String>,
    pub cpus: u64,
    /// In MiB.
    pub memory: u64,
    pub gres: Vec<Gres>,
    pub features: Vec<String>,
    /// Why it takes no jobs: `drained (Xid 79)`.
    pub out: Option<String>,
    /// Since when, where somebody gave a reason.
    pub out_since: Option<Timestamp>,
}

/// Returns the state of a node that takes no jobs, with the administrator's reason: `drained (Xid 79)`.
pub fn out_of_service(state: &str, reason: &str) -> Option<String> {
    let state = state.to_ascii_lowercase();
    let is_out = ["down", "drain", "fail", "unknown", "error", "not_responding"];
    let is_out = state.split([',', '+', ' ']).any(|word| is_out.iter().any(|out| word.starts_with(out)));
    if !is_out && !state.ends_with('*') {
        return None;
    }
    let reason = if matches!(reason, "" | "none") { String::new() } else { format!(" ({})", clean(reason)) };
    Some(format!("{state}{reason}"))
}

/// A generic resource of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gres {
    /// `gpu`.
    pub name: String,
    /// `h100`.
    pub model: Option<String>,
    pub count: u64,
}

impl Gres {
    /// Parses `gpu:h100:8(S:0-1),nvme:2`.
    pub fn list(text: &str) -> Vec<Self> {
        let one = |item: &str| {
            let item = item.split('(').next()?;
            let (name, model, count) = match item.split(':').collect::<Vec<_>>()[..] {
                [name, model, count] => (name, Some(model.to_owned()), count),
                [name, count] => (name, None, count),
                [name] if !name.is_empty() => (name, None, "1"),
                _ => return None,
            };
            Some(Self { name: name.to_owned(), model, count: count.parse().ok()? })
        };
        text.split(',').filter_map(one).collect()
    }
}

impl Cluster {
    /// Parses the output of the commands of [`super::discover::ask`].
    pub fn read(text: &str) -> Self {
        let mut sections = text.split(SECTION);
        let mut next = || sections.next().unwrap_or_default();
        Self {
            partitions: next().lines().filter_map(Partition::read).collect(),
            nodes: Node::read(next()),
            config: config(next()),
            mpi: mpi_plugins(next()),
            pyxis: next().trim().parse::<u32>().is_ok_and(|found| found > 0),
            qos: qos(next()),
            home: line(next()),
            folder: line(next()),
        }
    }
}

fn line(text: &str) -> Option<String> {
    Some(text.trim_matches('\n').to_owned()).filter(|text| !text.is_empty())
}

impl Partition {
    /// Parses a line of `scontrol show partition -o`.
    fn read(line: &str) -> Option<Self> {
        let words: BTreeMap<&str, &str> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        let number = |key: &str| words.get(key).and_then(|number| number.parse().ok());
        Some(Self {
            name: (*words.get("PartitionName")?).to_owned(),
            default: words.get("Default") == Some(&"YES"),
            up: words.get("State") == Some(&"UP"),
            max_nodes: number("MaxNodes"),
            total_nodes: number("TotalNodes"),
            max_time: words.get("MaxTime").and_then(|limit| slurm_duration(limit)),
        })
    }
}

impl Node {
    /// Parses `sinfo -N`: one line for each node and partition.
    fn read(text: &str) -> Vec<Self> {
        let mut nodes: BTreeMap<&str, Self> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split(COLUMN).collect();
            let [partition, cpus, memory, gres, features, name, ref rest @ ..] = fields[..] else { continue };
            let (since, state, reason) = match rest {
                [since, state, reason @ ..] => (*since, *state, reason.join(" ")),
                _ => ("", "", String::new()),
            };
            let out = out_of_service(state, &reason);
            let number = |text: &str| text.trim_end_matches('+').parse().unwrap_or(0);
            let node = nodes.entry(name).or_insert_with(|| Self {
                name: name.to_owned(),
                partitions: Vec::new(),
                cpus: number(cpus),
                memory: number(memory),
                gres: Gres::list(gres),
                features: words(features),
                out_since: time(since).filter(|_| out.is_some()),
                out,
            });
            let partition = partition.trim_end_matches('*').to_owned();
            if !node.partitions.contains(&partition) {
                node.partitions.push(partition);
            }
        }
        nodes.into_values().collect()
    }
}

/// Splits a list of features; `(null)` is an empty one.
pub fn words(list: &str) -> Vec<String> {
    list.split(',').filter(|word| !matches!(*word, "" | "(null)")).map(str::to_owned).collect()
}

fn config(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// Parses `srun --mpi=list`: one name per line, or all names on one line behind a colon.
fn mpi_plugins(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    sorted(words.filter(|word| word.starts_with("pmix") || *word == "pmi2"))
}

fn qos(text: &str) -> Vec<String> {
    let lists = text.lines().filter_map(|line| line.split_once('|'));
    sorted(lists.flat_map(|(_, qos)| qos.split(',')).filter(|name| !name.is_empty()))
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: std::collections::BTreeSet<&str> = names.collect();
    names.into_iter().map(str::to_owned).collect()
}
