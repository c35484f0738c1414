//! The part of a map that fits on a screen, computed without the rest: the cost of drawing sixty times a
//! second must not grow with the job.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::ids::{HostId, ProcessId};
use super::link::Devices;
use super::process::Phase;
use super::snapshot::Snapshot;
use super::verdict::Verdict;
use super::view::{PairKey, PairView, RankView};
use crate::channel::Kind;
use crate::network::Network;

/// The map in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The verdict.
    pub verdict: Verdict,
    /// Live processes.
    pub processes: usize,
    /// Hosts of live processes; different `NCCL_HOSTID` count as different hosts.
    pub hosts: usize,
    /// The number of processes in each phase.
    pub phases: BTreeMap<Phase, usize>,
    /// Every transport in use, by name.
    pub transports: Vec<TransportUse>,
}

/// How one transport is used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportUse {
    /// `P2P/CUMEM`, `NET/Socket`, …
    pub name: Box<str>,
    /// Kind.
    pub kind: Kind,
    /// The network, for network transports.
    pub network: Option<Network>,
    /// Connections, each counted at every end that printed it.
    pub connections: u64,
    /// Network devices.
    pub devices: Devices,
    /// GPUDirect RDMA on all or on none of them; none if only some have it, or it is no network.
    pub gdr: Option<bool>,
}

impl Snapshot<'_> {
    /// Returns the map in a few numbers; reads each process once, and no connections.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary { verdict: self.verdict(), ..Summary::default() };
        let mut hosts: HashSet<HostId> = HashSet::new();
        for (at, process) in self.shown() {
            summary.processes += 1;
            let phase = self
                .latest(at)
                .map_or_else(|| self.phase(process, self.sole_rank(at)), |latest| latest.phase);
            *summary.phases.entry(phase).or_default() += 1;
            hosts.insert(process.host_number);
        }
        summary.hosts = hosts.len();
        summary.transports = self.transports();
        summary
    }

    /// Returns every transport in use between live processes, by name.
    pub fn transports(&self) -> Vec<TransportUse> {
        let known = self.networks_known();
        let mut transports: Vec<TransportUse> = self
            .usage()
            .iter()
            .map(|(name, kind, used)| TransportUse {
                name: self.seen.name_of(name).into(),
                kind,
                network: matches!(kind, Kind::Net | Kind::Collnet)
                    .then(|| known.network(self.seen.name_of(name), used.devices)),
                connections: used.connections,
                devices: used.devices,
                gdr: match (used.with_gdr, used.without_gdr) {
                    (true, false) => Some(true),
                    (false, true) => Some(false),
                    _ => None,
                },
            })
            .collect();
        transports.sort_by(|a, b| a.name.cmp(&b.name));
        transports
    }

    /// Returns the pairs that have some of these ranks of the job as an end.
    pub fn pairs_of_ranks(&self, ranks: Range<u32>) -> Vec<PairView> {
        let mut pairs: BTreeMap<PairKey, PairView> = BTreeMap::new();
        for at in self.processes_of(ranks) {
            self.pairs_of(at, &self.seen.processes[at], &mut pairs);
        }
        self.with_networks(pairs)
    }

    /// Returns some ranks of the job. Their nodes are numbered by host among themselves.
    pub fn some_ranks(&self, ranks: Range<u32>) -> Vec<RankView> {
        let mut views = Vec::new();
        for at in self.processes_of(ranks.clone()) {
            let process = &self.seen.processes[at];
            let held = self.held(at).filter(|(_, rank)| ranks.contains(&rank.0));
            views.extend(held.map(|(local, rank)| self.rank(process, Some(rank), Some(local))));
        }
        super::view::with_nodes(views).0
    }

    /// Returns the processes that hold some ranks of the job, each once, by rank.
    fn processes_of(&self, ranks: Range<u32>) -> Vec<ProcessId> {
        let mut found: Vec<ProcessId> = match self.world.and_then(|comm| self.seen.comms.get(comm)) {
            Some(comm) => {
                ranks.filter_map(|rank| comm.members.get(&rank)).map(|(process, _)| *process).collect()
            }
            None => self
                .seen
                .processes
                .iter_enumerated()
                .filter(|(at, _)| self.held(*at).any(|(_, rank)| ranks.contains(&rank.0)))
                .map(|(at, _)| at)
                .collect(),
        };
        found.retain(|at| self.is_alive(*at));
        let mut seen = HashSet::new();
        found.retain(|at| seen.insert(*at));
        found
    }
}
