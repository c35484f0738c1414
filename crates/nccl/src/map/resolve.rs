//! Which communicator a connection belongs to, and which rank of the job a rank of a communicator is.
//!
//! Neither is printed. Both follow from what is: a process's own ranks, the devices in the brackets, how many channels
//! and local ranks a communicator has, when it began and ended, and which lines one thread printed together. Where
//! that leaves more than one answer, the answer is none.

use std::collections::HashSet;

use super::TransportMap;
use super::communicator::Communicator;
use super::link::{Link, NO_DEVICE};
use super::process::{Local, Process};
use crate::channel::Kind;

/// The communicator that spans the job, and the processes that are alive.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Index of the communicator.
    pub(super) comm: Option<u32>,
    /// Processes replaced by later ones (a restart).
    pub(super) past: HashSet<u32>,
}

impl World {
    /// Whether a process was not replaced by a later one.
    pub(super) fn is_alive(&self, process: u32) -> bool {
        self.past.is_empty() || !self.past.contains(&process)
    }
}

/// Communicators that a connection can belong to, beyond which nothing is concluded: to compare what they agree on costs as
/// much as their number squared, for each connection.
const MOST_CANDIDATES: usize = 64;

/// What is known of where a connection belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub comm: Option<u32>,
    pub global_from: Option<u32>,
    pub global_to: Option<u32>,
}

impl TransportMap {
    /// The communicators (entries of the process) that a connection can belong to.
    fn candidates<'a>(&'a self, process: &'a Process, link: &'a Link) -> impl Iterator<Item = u32> + 'a {
        (0u32..).zip(&process.locals).filter(|(_, local)| self.fits(process, local, link)).map(|(at, _)| at)
    }

    /// Whether no communicator of a process can hold a connection, by rank numbers alone.
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
        // A communicator with one rank a node has nobody to share memory with; multi-node NVLink may reach further.
        let same_host =
            matches!(link.kind, Kind::P2p | Kind::Shm) && self.name_of(link.key.transport) != "P2P/MNNVL";
        if same_host && !local.mnnvl && local.local_ranks == Some(1) && peer != own {
            return false;
        }
        if let (Some((coll, _)), Some(highest)) = (local.channels, link.channels.highest_collective())
            && highest >= coll
        {
            return false;
        }
        peer_device == NO_DEVICE
            || self.member(local.comm, peer).is_none_or(|(at, entry)| {
                let other = &self.processes[at as usize];
                other.pid.is_none()
                    || process.pid.is_none()
                    || other.locals[entry as usize].fits_device(peer_device)
            })
    }

    fn member(&self, comm: u32, rank: u32) -> Option<(u32, u32)> {
        self.comms.get(comm as usize)?.members.get(&rank).copied()
    }

    /// Settles a burst if its connections leave one communicator.
    pub(super) fn try_settle(&mut self, at: u32, burst: u32) {
        let process = &self.processes[at as usize];
        let Some(waiting) = process.bursts.get(burst as usize) else { return };
        if waiting.links.is_empty() {
            return;
        }
        if let Some(local) = waiting.local.or_else(|| self.of_burst(process, burst)) {
            self.processes[at as usize].settle(burst, local);
        }
    }

    /// The one communicator that all connections of a burst fit, if it is one.
    fn of_burst(&self, process: &Process, burst: u32) -> Option<u32> {
        let burst = &process.bursts[burst as usize];
        if !burst.collective {
            return None;
        }
        let mut common: Option<Vec<u32>> = None;
        for link in &burst.links {
            let link = &process.links[*link as usize];
            common = Some(match common {
                None => self.candidates(process, link).collect(),
                Some(mut common) => {
                    common.retain(|at| self.fits(process, &process.locals[*at as usize], link));
                    common
                }
            });
            if common.as_ref().is_some_and(Vec::is_empty) {
                return None;
            }
        }
        match common.as_deref() {
            Some([only]) => Some(*only),
            _ => None,
        }
    }

    /// Where a connection belongs, by all that is known now. `of_burst` gives each burst's answer.
    pub(super) fn place(&self, at: u32, link: &Link, burst: Option<u32>, world: &World) -> Place {
        let process = &self.processes[at as usize];
        let candidates = match burst {
            Some(local) => vec![local],
            None => self.candidates(process, link).take(MOST_CANDIDATES + 1).collect(),
        };
        if candidates.len() > MOST_CANDIDATES {
            return Place::default();
        }
        let mut places = candidates.iter().map(|local| {
            let local = &process.locals[*local as usize];
            let comm =
                (!local.assumed || self.comms[local.comm as usize].contested == 0).then_some(local.comm);
            Place {
                comm,
                global_from: self.global(local.comm, link.key.from, world),
                global_to: self.global(local.comm, link.key.to, world),
            }
        });
        let Some(first) = places.next() else {
            return Place::default();
        };
        // Several communicators fit: whatever they agree on is proved.
        places.fold(first, |known, other| Place {
            comm: known.comm.filter(|comm| other.comm == Some(*comm)),
            global_from: known.global_from.filter(|rank| other.global_from == Some(*rank)),
            global_to: known.global_to.filter(|rank| other.global_to == Some(*rank)),
        })
    }

    /// The answer of each burst of a process.
    pub(super) fn burst_places(&self, process: &Process) -> Vec<Option<u32>> {
        (0u32..)
            .zip(&process.bursts)
            .map(|(at, burst)| burst.local.or_else(|| self.of_burst(process, at)))
            .collect()
    }

    /// The rank of the job that a rank of a communicator is.
    fn global(&self, comm: u32, rank: u32, world: &World) -> Option<u32> {
        if world.comm == Some(comm) {
            return Some(rank);
        }
        let (process, local) = self.member(comm, rank)?;
        if !world.is_alive(process) {
            return None;
        }
        let mut held = self.held(process, world);
        match (held.next(), held.next()) {
            (Some((_, only)), None) => Some(only),
            (None, _) => None,
            // One process with several GPUs: the entry of the same device.
            _ => {
                let entries = &self.processes[process as usize].locals;
                let wanted = entries.get(local as usize)?;
                let same =
                    |entry: u32| wanted.bus_id.is_some() && entries[entry as usize].bus_id == wanted.bus_id;
                self.held(process, world).find(|(entry, _)| same(*entry)).map(|(_, rank)| rank)
            }
        }
    }

    /// The ranks of the job that a process holds, each with the process's entry for the communicator that proves it.
    pub(super) fn held(&self, at: u32, world: &World) -> impl Iterator<Item = (u32, u32)> {
        let process = &self.processes[at as usize];
        let comm = world.comm.and_then(|comm| self.comms.get(comm as usize).map(|known| (comm, known)));
        let proved = comm.into_iter().flat_map(move |(index, comm)| {
            (0u32..)
                .zip(&process.locals)
                .filter(move |(_, local)| local.comm == index)
                .filter(move |(entry, local)| comm.members.get(&local.rank) == Some(&(at, *entry)))
                .map(|(entry, local)| (entry, local.rank))
        });
        let mut proved = proved.peekable();
        let told = if proved.peek().is_none() { self.told(process, world, at) } else { None };
        proved.chain(told.map(|rank| (0, rank)))
    }

    /// The rank that a launcher or a backend told of a process, where nothing speaks against it.
    fn told(&self, process: &Process, world: &World, at: u32) -> Option<u32> {
        let rank = process.told_rank?;
        let agree =
            world.comm.is_some() || process.locals.iter().all(|local| local.rank == process.locals[0].rank);
        (agree && process.pid.is_some() && world.is_alive(at)).then_some(rank)
    }

    /// The one rank of the job that a process holds.
    pub(super) fn sole_rank(&self, process: u32, world: &World) -> Option<u32> {
        let mut held = self.held(process, world);
        match (held.next(), held.next()) {
            (Some((_, rank)), None) => Some(rank),
            _ => None,
        }
    }

    /// Finds the world and who is alive.
    pub fn world(&self) -> World {
        let past = self.past();
        World { comm: self.world_comm(&past), past }
    }

    /// The communicator whose ranks are the ranks of the job: made on its own, the largest, and nothing speaks against.
    fn world_comm(&self, past: &HashSet<u32>) -> Option<u32> {
        let alive = |process: u32| past.is_empty() || !past.contains(&process);
        let came_up = |(process, local): &(u32, u32)| {
            alive(*process) && self.processes[*process as usize].locals[*local as usize].complete
        };
        // Once any communicator is complete, those that are not say nothing: they may never be.
        let any_up = self.comms.iter().any(|comm| comm.is_root() && comm.members.values().any(came_up));
        let counts = |comm: &Communicator| {
            comm.is_root()
                && comm.members.values().any(|member| if any_up { came_up(member) } else { alive(member.0) })
        };
        let roots = || (0u32..).zip(&self.comms).filter(|(_, comm)| counts(comm));
        let largest = roots().map(|(_, comm)| comm.nranks).max()?;
        let mut candidates = roots().filter(|(_, comm)| comm.nranks == largest);
        let (at, first) = candidates.next()?;
        // A second communicator of all ranks numbers them alike; two groups of one size do not, and then neither is the job.
        let in_first =
            |process: u32| self.processes[process as usize].locals.iter().any(|local| local.comm == at);
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
        let counted = |local: &Local| counts(&self.comms[local.comm as usize]) && (local.complete || !any_up);
        let (mut inside, mut outside) = (0u32, 0u32);
        for (process_at, process) in (0u32..).zip(&self.processes) {
            if process.told_rank.is_some_and(|told| told >= largest) {
                return None;
            }
            if process.pid.is_none() && process.locals.is_empty() {
                continue;
            }
            let is_member = |entry: u32, local: &Local| {
                first.displaced == 0 || first.members.get(&local.rank) == Some(&(process_at, entry))
            };
            let mut own = (0u32..)
                .zip(&process.locals)
                .filter(|(entry, local)| local.comm == at && is_member(*entry, local));
            if let Some((_, local)) = own.next() {
                let alone = own.next().is_none();
                if alone && process.told_rank.is_some_and(|told| told != local.rank) {
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

    pub(super) fn name_of(&self, name: u16) -> &str {
        self.names.get(name as usize).map_or("", |name| name)
    }
}
