//! Determines the communicator of a connection, and the job's rank of a communicator's rank.
//!
//! Neither is printed. Both follow from other facts: a process's own ranks, the devices in the brackets,
//! how many channels and local ranks a communicator has, when it began and ended, and which lines one
//! thread printed together. Where these leave more than one answer, there is none.

use std::collections::HashSet;

use typed_index_collections::TiVec;

use super::communicator::Communicator;
use super::ids::{BurstId, CommId, GlobalRank, LocalId, ProcessId};
use super::link::{Link, NO_DEVICE};
use super::observed::Observed;
use super::process::{Local, Process};
use super::snapshot::Snapshot;
use crate::channel::Kind;

/// Number of possible communicators of a connection beyond which nothing is concluded: comparing them costs
/// the square of their number, for each connection.
const MOST_CANDIDATES: usize = 64;

/// The communicator of a connection and its ranks in the job, as far as they are proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResolvedPair {
    pub comm: Option<CommId>,
    pub global_from: Option<GlobalRank>,
    pub global_to: Option<GlobalRank>,
}

impl Observed {
    /// Returns the communicators (entries of the process) that a connection can belong to.
    fn candidates<'a>(&'a self, process: &'a Process, link: &'a Link) -> impl Iterator<Item = LocalId> + 'a {
        process
            .locals
            .iter_enumerated()
            .filter(|(_, local)| self.fits(process, local, link))
            .map(|(at, _)| at)
    }

    /// Returns whether no communicator of a process can hold a connection, by rank numbers alone.
    pub(super) fn fits_nothing(&self, process: &Process, link: &Link) -> bool {
        let most = link.key.from.max(link.key.to);
        !process.locals.iter().any(|local| local.rank == link.own_rank() && most < local.nranks)
    }

    fn fits(&self, process: &Process, local: &Local, link: &Link) -> bool {
        let (own, peer, own_device, peer_device) = if link.own_rank() == link.key.from {
            (link.key.from, link.key.to, link.key.from_device, link.key.to_device)
        } else {
            (link.key.to, link.key.from, link.key.to_device, link.key.from_device)
        };
        let begun = local.started.is_none_or(|start| link.last_line > start);
        let not_ended = local.gone.is_none_or(|end| link.first_line < end);
        if local.rank != own || peer >= local.nranks || !begun || !not_ended || !local.fits_device(own_device)
        {
            return false;
        }
        // A communicator with one rank per node has no peer to share memory with.
        let same_host = self.shares_memory(local, link);
        if same_host && local.local_ranks == Some(1) && peer != own {
            return false;
        }
        if let (Some((coll, _)), Some(highest)) = (local.channels, link.channels.highest_collective())
            && highest >= coll
        {
            return false;
        }
        self.member(local.comm, peer).is_none_or(|(at, entry)| {
            let other = &self.processes[at];
            // Groups of one size on several nodes look alike where NCCL prints no id: a peer elsewhere is of another group.
            if same_host && other.host_number != process.host_number {
                return false;
            }
            peer_device == NO_DEVICE
                || other.pid.is_none()
                || process.pid.is_none()
                || other.locals[entry].fits_device(peer_device)
        })
    }

    /// Returns whether a connection of a communicator stays inside a node; multi-node NVLink may reach further.
    fn shares_memory(&self, local: &Local, link: &Link) -> bool {
        let inside = matches!(link.kind, Kind::P2p | Kind::Shm);
        inside && !local.mnnvl && self.name_of(link.key.transport) != "P2P/MNNVL"
    }

    /// Returns whether a member of a communicator is known to be on another node than a process.
    fn is_elsewhere(&self, process: &Process, comm: CommId, rank: u32) -> bool {
        let member = self.member(comm, rank);
        member.is_some_and(|(at, _)| self.processes[at].host_number != process.host_number)
    }

    pub(super) fn member(&self, comm: CommId, rank: u32) -> Option<(ProcessId, LocalId)> {
        self.comms.get(comm)?.members.get(&rank).copied()
    }

    /// Settles a burst if its connections leave one communicator.
    pub(super) fn try_settle(&mut self, at: ProcessId, burst: BurstId) {
        let process = &self.processes[at];
        let Some(waiting) = process.bursts.get(burst) else { return };
        if waiting.links.is_empty() {
            return;
        }
        if let Some(local) = waiting.local.or_else(|| self.of_burst(process, burst)) {
            self.processes[at].settle(burst, local);
        }
    }

    /// Returns the one communicator that all connections of a burst fit, if there is exactly one.
    fn of_burst(&self, process: &Process, burst: BurstId) -> Option<LocalId> {
        let burst = &process.bursts[burst];
        if !burst.collective {
            return None;
        }
        if burst.links.is_empty() {
            return None;
        }
        // Communicator by communicator: of many that fit, two are enough for an answer.
        let holds_all =
            |local: &Local| burst.links.iter().all(|link| self.fits(process, local, &process.links[*link]));
        let mut common = process.locals.iter_enumerated().filter(|(_, local)| holds_all(local));
        match (common.next(), common.next()) {
            (Some((only, _)), None) => Some(only),
            _ => None,
        }
    }

    /// Returns whether each process was told a rank of its own. Where `mpirun` starts one launcher on each node, the number
    /// that it writes before their lines is that of the launcher, and all processes of a node have it.
    pub(super) fn told_ranks_differ(&self, past: &HashSet<ProcessId>) -> bool {
        let mut ranks = HashSet::new();
        let joined = |at: ProcessId, process: &Process| {
            process.pid.is_some() && !process.locals.is_empty() && !past.contains(&at)
        };
        let mut told = self.processes.iter_enumerated().filter(|(at, process)| joined(*at, process));
        told.all(|(_, process)| process.told_rank.is_none_or(|rank| ranks.insert(rank)))
    }

    /// Returns the communicator whose ranks are the ranks of the job: it has no parent, is the largest, and
    /// nothing contradicts it.
    pub(super) fn world(&self, past: &HashSet<ProcessId>, told: bool) -> Option<CommId> {
        let alive = |process: ProcessId| past.is_empty() || !past.contains(&process);
        let came_up = |(process, local): &(ProcessId, LocalId)| {
            alive(*process) && self.processes[*process].locals[*local].complete
        };
        // Once any communicator is complete, incomplete ones are ignored: they may never be.
        let any_up = self.comms.iter().any(|comm| comm.is_root() && comm.members.values().any(came_up));
        let counts = |comm: &Communicator| {
            comm.is_root()
                && comm.members.values().any(|member| if any_up { came_up(member) } else { alive(member.0) })
        };
        let roots = || self.comms.iter_enumerated().filter(|(_, comm)| counts(comm));
        let largest = roots().map(|(_, comm)| comm.nranks).max()?;
        let mut candidates = roots().filter(|(_, comm)| comm.nranks == largest);
        let (at, first) = candidates.next()?;
        // A second communicator of all ranks numbers them alike; two groups of one size do not, and then
        // neither is the job.
        let in_first =
            |process: ProcessId| self.processes[process].locals.iter().any(|local| local.comm == at);
        let alike = candidates.all(|(_, other)| {
            other.members.iter().all(|(rank, (process, _))| {
                !alive(*process)
                    || (first.members.get(rank).is_none_or(|(known, _)| known == process)
                        && in_first(*process))
            })
        });
        if !alike || first.contested > 0 {
            return None;
        }
        let counted = |local: &Local| counts(&self.comms[local.comm]) && (local.complete || !any_up);
        let (mut inside, mut outside) = (0u32, 0u32);
        for (process_at, process) in self.processes.iter_enumerated() {
            let told_rank = process.told_rank.filter(|_| told);
            if told_rank.is_some_and(|told| told.0 >= largest) {
                return None;
            }
            if process.pid.is_none() && process.locals.is_empty() {
                continue;
            }
            let is_member = |entry: LocalId, local: &Local| {
                first.displaced == 0 || first.members.get(&local.rank) == Some(&(process_at, entry))
            };
            let mut own = process
                .locals
                .iter_enumerated()
                .filter(|(entry, local)| local.comm == at && is_member(*entry, local));
            if let Some((_, local)) = own.next() {
                let alone = own.next().is_none();
                if alone && told_rank.is_some_and(|told| told.0 != local.rank) {
                    return None;
                }
                inside += u32::from(alive(process_at));
            } else if alive(process_at) && process.pid.is_some() {
                if process.locals.iter().any(counted) {
                    return None;
                }
                outside += u32::from(process.locals.iter().any(|local| local.complete || !any_up));
            }
        }
        (inside.saturating_add(outside) <= largest).then_some(at)
    }
}

impl Snapshot<'_> {
    /// Returns the place of a connection, by all that is known now. `of_burst` gives each burst's answer.
    pub(super) fn place(&self, at: ProcessId, link: &Link, burst: Option<LocalId>) -> ResolvedPair {
        let process = &self.seen.processes[at];
        let candidates = match burst {
            Some(local) => vec![local],
            None => self.seen.candidates(process, link).take(MOST_CANDIDATES + 1).collect(),
        };
        if candidates.len() > MOST_CANDIDATES {
            return ResolvedPair::default();
        }
        let mut places = candidates.iter().map(|local| {
            let local = &process.locals[*local];
            let comm = (!local.assumed || self.seen.comms[local.comm].contested == 0).then_some(local.comm);
            // A member on another node shows that ranks of several groups were taken for those of one.
            let mixed = self.seen.shares_memory(local, link)
                && [link.key.from, link.key.to]
                    .iter()
                    .any(|rank| self.seen.is_elsewhere(process, local.comm, *rank));
            let global = |rank: u32| match mixed {
                false => self.global(local.comm, rank),
                true => self.sole_rank(at).filter(|_| rank == link.own_rank()),
            };
            ResolvedPair {
                comm: comm.filter(|_| !mixed),
                global_from: global(link.key.from),
                global_to: global(link.key.to),
            }
        });
        let Some(first) = places.next() else {
            return ResolvedPair::default();
        };
        // Several communicators fit: only what they agree on is proved.
        places.fold(first, |known, other| ResolvedPair {
            comm: known.comm.filter(|comm| other.comm == Some(*comm)),
            global_from: known.global_from.filter(|rank| other.global_from == Some(*rank)),
            global_to: known.global_to.filter(|rank| other.global_to == Some(*rank)),
        })
    }

    /// Returns the answer for each burst of a process.
    pub(super) fn burst_places(&self, process: &Process) -> TiVec<BurstId, Option<LocalId>> {
        process
            .bursts
            .iter_enumerated()
            .map(|(at, burst)| burst.local.or_else(|| self.seen.of_burst(process, at)))
            .collect()
    }

    /// Returns the job's rank of a communicator's rank.
    pub(super) fn global(&self, comm: CommId, rank: u32) -> Option<GlobalRank> {
        if self.world == Some(comm) {
            return Some(GlobalRank(rank));
        }
        let (process, local) = self.seen.member(comm, rank)?;
        if !self.is_alive(process) {
            return None;
        }
        let mut held = self.held(process);
        match (held.next(), held.next()) {
            (Some((_, only)), None) => Some(only),
            (None, _) => None,
            // One process with several GPUs: the entry of the same device.
            _ => {
                let entries = &self.seen.processes[process].locals;
                let wanted = entries.get(local)?;
                let same = |entry: LocalId| wanted.bus_id.is_some() && entries[entry].bus_id == wanted.bus_id;
                self.held(process).find(|(entry, _)| same(*entry)).map(|(_, rank)| rank)
            }
        }
    }

    /// Returns the ranks of the job that a process holds, each with the process's entry for the
    /// communicator that proves it.
    pub(super) fn held(&self, at: ProcessId) -> impl Iterator<Item = (LocalId, GlobalRank)> {
        let process = &self.seen.processes[at];
        let comm = self.world.and_then(|comm| self.seen.comms.get(comm).map(|known| (comm, known)));
        let proved = comm.into_iter().flat_map(move |(index, comm)| {
            process
                .locals
                .iter_enumerated()
                .filter(move |(_, local)| local.comm == index)
                .filter(move |(entry, local)| comm.members.get(&local.rank) == Some(&(at, *entry)))
                .map(|(entry, local)| (entry, GlobalRank(local.rank)))
        });
        let mut proved = proved.peekable();
        let told = if proved.peek().is_none() { self.told(process, at) } else { None };
        proved.chain(told.map(|rank| (LocalId::from(0), rank)))
    }

    /// Returns the rank of a process from a launcher or a backend, where nothing contradicts it.
    fn told(&self, process: &Process, at: ProcessId) -> Option<GlobalRank> {
        let rank = process.told_rank.filter(|_| self.told)?;
        let agree = self.world.is_some()
            || process.locals.iter().all(|local| local.rank == process.locals[LocalId::from(0)].rank);
        (agree && process.pid.is_some() && self.is_alive(at)).then_some(rank)
    }

    /// Returns the rank of a process that holds exactly one.
    pub(super) fn sole_rank(&self, process: ProcessId) -> Option<GlobalRank> {
        let mut held = self.held(process);
        match (held.next(), held.next()) {
            (Some((_, rank)), None) => Some(rank),
            _ => None,
        }
    }
}
