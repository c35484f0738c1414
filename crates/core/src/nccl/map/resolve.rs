//! Which communicator a connection belongs to, and which rank of the job a rank of a communicator is.
//!
//! Neither is printed. Both follow from what is: a process's own ranks, the devices in the brackets, how many channels
//! and local ranks a communicator has, when it began and ended, and which lines one thread printed together. Where
//! that leaves more than one answer, the answer is none.

use std::collections::{HashMap, HashSet};

use super::TransportMap;
use super::communicator::Communicator;
use super::link::{Link, NO_DEVICE};
use super::process::{Local, Process};
use crate::nccl::channel::Kind;

/// The communicator that spans the job, and the processes that are alive.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Index of the communicator.
    pub(super) comm: Option<u32>,
    /// Processes replaced by later ones (a restart).
    pub(super) past: HashSet<u32>,
    /// Process and its communicator entry → global rank, where one process holds several ranks.
    pub(super) ranks: HashMap<u32, Vec<(u32, u32)>>,
}

impl World {
    /// The global rank of a process, if it has exactly one.
    pub(super) fn rank(&self, process: u32) -> Option<u32> {
        match self.ranks.get(&process).map(Vec::as_slice) {
            Some([(_, rank)]) => Some(*rank),
            _ => None,
        }
    }
}

/// What is known of where a connection belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub comm: Option<u32>,
    pub global_from: Option<u32>,
    pub global_to: Option<u32>,
}

impl TransportMap {
    /// The communicators (entries of the process) that a connection can belong to.
    fn candidates(&self, process: &Process, link: &Link) -> Vec<u32> {
        (0u32..)
            .zip(&process.locals)
            .filter(|(_, local)| self.fits(process, local, link))
            .map(|(at, _)| at)
            .collect()
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
            let fitting = self.candidates(process, &process.links[*link as usize]);
            common = Some(match common {
                None => fitting,
                Some(common) => common.into_iter().filter(|at| fitting.contains(at)).collect(),
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
            None => self.candidates(process, link),
        };
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
        if world.past.contains(&process) {
            return None;
        }
        match world.ranks.get(&process).map(Vec::as_slice) {
            Some([(_, rank)]) => Some(*rank),
            // One process with several GPUs: the entry of the same device.
            Some(several) => {
                let entries = &self.processes[process as usize].locals;
                let wanted = entries.get(local as usize)?;
                several
                    .iter()
                    .find(|(entry, _)| {
                        let other = &entries[*entry as usize];
                        wanted.bus_id.is_some() && other.bus_id == wanted.bus_id
                    })
                    .map(|(_, rank)| *rank)
            }
            None => None,
        }
    }

    /// Finds the world and who is alive.
    pub fn world(&self) -> World {
        let mut world = World { past: self.past(), ..World::default() };
        world.comm = self.world_comm(&world.past);
        if let Some(comm) = world.comm {
            for (rank, (process, local)) in &self.comms[comm as usize].members {
                world.ranks.entry(*process).or_default().push((*local, *rank));
            }
            for ranks in world.ranks.values_mut() {
                ranks.sort_unstable();
            }
        }
        for (at, process) in (0u32..).zip(&self.processes) {
            if let Some(rank) = process.told_rank
                && process
                    .locals
                    .iter()
                    .all(|local| local.rank == process.locals[0].rank || world.comm.is_some())
                && !world.ranks.contains_key(&at)
                && !world.past.contains(&at)
                && process.pid.is_some()
            {
                world.ranks.insert(at, vec![(0, rank)]);
            }
        }
        world
    }

    /// The communicator whose ranks are the ranks of the job: made on its own, the largest, and nothing speaks against.
    fn world_comm(&self, past: &HashSet<u32>) -> Option<u32> {
        let alive = |process: &u32| !past.contains(process);
        let came_up = |(process, local): &(u32, u32)| {
            alive(process) && self.processes[*process as usize].locals[*local as usize].complete
        };
        // Once any communicator is complete, those that are not say nothing: they may never be.
        let any_up = self.comms.iter().any(|comm| comm.is_root() && comm.members.values().any(came_up));
        let counts = |comm: &Communicator| {
            comm.is_root()
                && comm.members.values().any(|member| if any_up { came_up(member) } else { alive(&member.0) })
        };
        let roots = || (0u32..).zip(&self.comms).filter(|(_, comm)| counts(comm));
        let largest = roots().map(|(_, comm)| comm.nranks).max()?;
        let mut candidates = roots().filter(|(_, comm)| comm.nranks == largest);
        let (at, first) = candidates.next()?;
        for (_, other) in candidates {
            // A second communicator of all ranks numbers them alike; two groups of one size do not, and then neither is the job.
            let same = other.members.iter().all(|(rank, (process, _))| {
                past.contains(process)
                    || first.members.get(rank).is_none_or(|(known, _)| known == process)
                        && first.members.values().any(|(known, _)| known == process)
            });
            if !same {
                return None;
            }
        }
        let members: HashSet<u32> = first.members.values().map(|(process, _)| *process).collect();
        let mut outside = 0;
        for (process_at, process) in (0u32..).zip(&self.processes) {
            if past.contains(&process_at) || process.pid.is_none() || members.contains(&process_at) {
                continue;
            }
            let own = |local: &Local| counts(&self.comms[local.comm as usize]) && (local.complete || !any_up);
            if process.locals.iter().any(own) {
                return None;
            }
            outside += u32::from(process.locals.iter().any(|local| local.complete || !any_up));
        }
        let seen = u32::try_from(members.iter().filter(|at| alive(at)).count()).unwrap_or(u32::MAX);
        let told_otherwise = first.members.iter().any(|(rank, (process, _))| {
            let process = &self.processes[*process as usize];
            let alone = process.locals.iter().filter(|local| local.comm == at).count() == 1;
            alone && process.told_rank.is_some_and(|told| told != *rank)
        });
        let told_beyond =
            self.processes.iter().any(|process| process.told_rank.is_some_and(|told| told >= largest));
        let proved = seen.saturating_add(outside) <= largest
            && !told_otherwise
            && !told_beyond
            && first.contested == 0;
        proved.then_some(at)
    }

    /// Processes replaced by later ones: the same GPU of the same host in the same source, all lines earlier; or an
    /// earlier attempt of the same source.
    fn past(&self) -> HashSet<u32> {
        let mut past = HashSet::new();
        let mut slots: HashMap<(u32, &str, u64), Vec<u32>> = HashMap::new();
        let mut attempts: HashMap<(&str, &str, &str, u32), u32> = HashMap::new();
        for source in &self.sources {
            let latest = attempts
                .entry((&source.id.name, &source.id.container, &source.id.role, source.id.replica))
                .or_default();
            *latest = (*latest).max(source.id.attempt);
        }
        for (at, process) in (0u32..).zip(&self.processes) {
            let source = &self.sources[process.source as usize].id;
            let key = (&*source.name, &*source.container, &*source.role, source.replica);
            if attempts.get(&key).is_some_and(|latest| source.attempt < *latest) {
                past.insert(at);
                continue;
            }
            let bus = process.locals.iter().find_map(|local| local.bus_id);
            let slot = bus.or(process
                .device
                .and_then(|device| u64::try_from(device).ok())
                .map(|device| device | 1 << 63));
            if let (Some(slot), Some(_)) = (slot, process.pid) {
                slots.entry((process.source, &process.host, slot)).or_default().push(at);
            }
        }
        for mut occupants in slots.into_values() {
            occupants.sort_by_key(|at| self.processes[*at as usize].first_line);
            let Some(last) = occupants.iter().rfind(|at| self.processes[**at as usize].came_up()) else {
                continue;
            };
            let later = &self.processes[*last as usize];
            past.extend(occupants.iter().copied().filter(|at| {
                let earlier = &self.processes[*at as usize];
                let together = earlier
                    .locals
                    .iter()
                    .any(|local| later.locals.iter().any(|other| other.comm == local.comm));
                earlier.last_line < later.first_line && !together
            }));
        }
        self.with_company(past)
    }

    /// A restart ends a whole communicator: who was in one with a replaced process and came into no new one is past too.
    fn with_company(&self, mut past: HashSet<u32>) -> HashSet<u32> {
        if past.is_empty() {
            return past;
        }
        let ended: HashSet<u32> = (0u32..)
            .zip(&self.comms)
            .filter(|(_, comm)| {
                comm.is_root() && comm.members.values().any(|(process, _)| past.contains(process))
            })
            .map(|(at, _)| at)
            .collect();
        for (at, process) in (0u32..).zip(&self.processes) {
            let mut roots =
                process.locals.iter().filter(|local| self.comms[local.comm as usize].is_root()).peekable();
            if roots.peek().is_some() && roots.all(|local| ended.contains(&local.comm)) {
                past.insert(at);
            }
        }
        past
    }

    pub(super) fn name_of(&self, name: u16) -> &str {
        self.names.get(name as usize).map_or("", |name| name)
    }
}
