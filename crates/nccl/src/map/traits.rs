//! What should be the same in all processes of a job: versions, drivers, interfaces, variables.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::{ProcessId, SourceIndex};
use super::signatures::{Trace, printable};
use super::snapshot::Snapshot;

/// Most traits, values of one trait, and processes of one value that are kept.
const NAMES: usize = 300;
const VALUES: usize = 64;
const PROCESSES: usize = 20_000;

/// Variables of NCCL that name one process, or one file of it.
const OF_ONE: &[&str] =
    &["HOSTID", "DEBUG_FILE", "COMM_ID", "TOPO_DUMP_FILE", "GRAPH_DUMP_FILE", "RAS_ADDR", "LOCAL_REGISTER"];

/// The trait of the version of NCCL.
pub const NCCL_VERSION: &str = "NCCL";

/// The values of each trait, with the processes that have them.
#[derive(Clone, Debug, Default)]
pub(super) struct Traits {
    found: BTreeMap<Box<str>, BTreeMap<Box<str>, Value>>,
}

/// The processes that have one value, and the first line that says so.
#[derive(Clone, Debug)]
struct Value {
    processes: BTreeSet<ProcessId>,
    first: Trace,
}

/// A line that tells a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    pub source: SourceIndex,
    pub process: ProcessId,
    pub line: u64,
    pub text: &'a [u8],
}

impl Told<'_> {
    fn trace(self) -> Trace {
        let Self { source, process, line, text } = self;
        Trace { source, process: Some(process), told: None, host: None, line, text: printable(text, 400) }
    }
}

impl Traits {
    pub fn add(&mut self, name: &str, value: &str, told: Option<Told<'_>>) {
        let Some(told) = told else { return };
        if self.found.len() >= NAMES && !self.found.contains_key(name) || value.len() > 256 {
            return;
        }
        let values = self.found.entry(name.into()).or_default();
        if values.len() >= VALUES && !values.contains_key(value) {
            return;
        }
        let fresh = || Value { processes: BTreeSet::new(), first: told.trace() };
        let known = values.entry(value.into()).or_insert_with(fresh);
        if known.processes.len() < PROCESSES {
            known.processes.insert(told.process);
        }
    }

    /// Adds a variable, named without `NCCL_`.
    pub fn variable(&mut self, name: &str, value: &str, told: Option<Told<'_>>) {
        if !OF_ONE.contains(&name) {
            self.add(&format!("NCCL_{name}"), value, told);
        }
    }
}

/// The processes that have one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders<'a> {
    /// The first line that tells the value.
    pub first: &'a Trace,
    /// The value.
    pub value: &'a str,
    /// Number of processes.
    pub processes: usize,
    /// Their ranks, where known.
    pub ranks: BTreeSet<u32>,
    /// Their hosts.
    pub hosts: BTreeSet<&'a str>,
}

/// A trait that differs between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference<'a> {
    /// What differs: `NCCL_IB_HCA`, `CUDA driver`.
    pub name: &'a str,
    /// The value that most have.
    pub usual: Holders<'a>,
    /// The others.
    pub odd: Vec<Holders<'a>>,
}

impl<'a> Snapshot<'a> {
    /// Returns the traits that differ between live processes; not those of which each process has its own value.
    pub fn differences(&self) -> Vec<Difference<'a>> {
        self.seen.traits.found.iter().filter_map(|(name, values)| self.difference(name, values)).collect()
    }

    fn difference(&self, name: &'a str, values: &'a BTreeMap<Box<str>, Value>) -> Option<Difference<'a>> {
        if values.len() < 2 {
            return None;
        }
        // A process that printed two values changed its mind; it is no example of either.
        let mut uses: BTreeMap<ProcessId, u32> = BTreeMap::new();
        for process in values.values().flat_map(|value| &value.processes) {
            *uses.entry(*process).or_default() += 1;
        }
        let one = |process: &ProcessId| self.is_alive(*process) && uses.get(process) == Some(&1);
        let mut groups: Vec<Holders<'a>> = Vec::new();
        for (value, Value { processes, first }) in values {
            let (ranks, hosts) = (BTreeSet::new(), BTreeSet::new());
            let mut holders = Holders { first, value, processes: 0, ranks, hosts };
            for process in processes.iter().copied().filter(one) {
                holders.processes += 1;
                holders.ranks.extend(self.sole_rank(process).map(u32::from));
                let host = self.seen.processes.get(process).map(|process| &*process.host);
                holders.hosts.extend(host.filter(|host| !host.is_empty()));
            }
            groups.extend((holders.processes > 0).then_some(holders));
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.processes));
        let each_its_own = groups.len() > 2 && groups.iter().all(|group| group.processes == 1);
        let mut groups = groups.into_iter();
        let (usual, odd) = (groups.next()?, groups.collect::<Vec<_>>());
        (!odd.is_empty() && !each_its_own).then_some(Difference { name, usual, odd })
    }
}
