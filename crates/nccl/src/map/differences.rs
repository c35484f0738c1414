//! Which processes of a job differ from the others, and in what.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::ProcessId;
use super::signatures::Trace;
use super::snapshot::Snapshot;
use super::traits::Value;

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
