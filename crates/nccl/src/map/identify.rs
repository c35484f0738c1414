//! Lines about communicators: which one a process means, and which of its connections belong to it.

use super::communicator::{Communicator, Identity};
use super::event::Event;
use super::process::{Local, Phase};
use super::{COMMUNICATORS, TransportMap};
use crate::comm::{CommLine, Step};
use crate::parser::Entry;

/// Communicators kept for one process; a process that makes more reuses the oldest that is gone.
const LOCALS: usize = 1024;
/// Ranks of communicators kept over all processes: 32 communicators for each of 16,384 ranks are half of it.
const MEMBERS: usize = 1_000_000;

impl TransportMap {
    pub(super) fn communicator(
        &mut self,
        at: u32,
        entry: &Entry<'_>,
        line: &CommLine,
        events: &mut Vec<Event>,
    ) {
        let Some(local) = self.local(at, entry, line, events) else { return };
        let tid = entry.writer.map_or(0, |writer| writer.tid);
        let process = &mut self.processes[at as usize];
        process.speaks_of(tid, local);
        let known = &mut process.locals[local as usize];
        known.cuda_device = line.cuda_device.or(known.cuda_device);
        known.nvml_device = line.nvml_device.or(known.nvml_device);
        known.bus_id = line.bus_id.or(known.bus_id);
        known.nnodes = line.nnodes.or(known.nnodes);
        known.local_ranks = line.local_ranks.or(known.local_ranks);
        known.mnnvl |= line.mnnvl;
        let nnodes = known.nnodes;
        let comm = known.comm;
        let told_bus = known.bus_id.is_some() && process.slot.is_none_or(|slot| slot >> 63 == 1);
        self.most_nodes = self.most_nodes.max(nnodes);
        if told_bus {
            self.hold(at);
        }
        let known = &mut self.processes[at as usize].locals[local as usize];
        match line.step {
            Step::Start => {
                known.started = known.started.or(Some(entry.line));
                self.processes[at as usize].close(tid);
                self.raise(at, Phase::Init, events);
            }
            Step::Topology => {
                self.raise(at, Phase::Init, events);
            }
            Step::Complete => {
                known.complete = true;
                let rank = known.rank;
                self.enter(comm, rank, at, local);
                self.completed(at, tid, local);
                self.raise(at, Phase::Ready, events);
            }
            Step::Gone => known.gone = known.gone.or(Some(entry.line)),
        }
        if let Some(comm) = self.comms.get_mut(comm as usize) {
            comm.nnodes = comm.nnodes.or(nnodes);
        }
    }

    /// Connections that a thread printed while it made a communicator belong to it (before 2.22 they come before
    /// `Init COMPLETE`; before 2.18.3 there is no START). Each burst is looked at once.
    fn completed(&mut self, at: u32, tid: u64, local: u32) {
        let process = &mut self.processes[at as usize];
        let closed = process.close(tid);
        let made = process.locals[local as usize].clone();
        for burst in 0..process.bursts.len() {
            let Some(waiting) = process.bursts.get_mut(burst) else { break };
            if waiting.tid != tid || waiting.local.is_some() || waiting.judged || waiting.links.is_empty() {
                continue;
            }
            if made.started.is_some_and(|start| waiting.first_line <= start) {
                continue;
            }
            waiting.judged = true;
            let fits = process.bursts[burst].links.iter().all(|link| {
                let link = &process.links[*link as usize];
                link.own_rank() == made.rank && link.key.from.max(link.key.to) < made.nranks
            });
            if fits {
                process.settle(u32::try_from(burst).unwrap_or(u32::MAX), local);
            }
        }
        for burst in closed {
            self.try_settle(at, burst);
        }
        self.tidy(at);
    }

    /// The process's own entry for a communicator; makes one.
    fn local(&mut self, at: u32, entry: &Entry<'_>, line: &CommLine, events: &mut Vec<Event>) -> Option<u32> {
        let process = &self.processes[at as usize];
        if let Some(known) = process.local(line.pointer) {
            let local = &process.locals[known as usize];
            let identified = self.comms.get(local.comm as usize).map(|comm| comm.identity);
            let other_id =
                matches!((line.comm_id, identified), (Some(id), Some(Identity::Id(known))) if id != known);
            let anonymous_twin = process.pid.is_none() && local.rank != line.rank;
            // An address is used again once its communicator is gone, also where its end was not seen.
            let begun_again =
                line.step == Step::Start && local.complete && line.comm_id.is_none() && line.parent.is_none();
            if !other_id
                && !anonymous_twin
                && !begun_again
                && local.nranks == line.nranks
                && local.rank == line.rank
            {
                if local.assumed && (line.comm_id.is_some() || line.parent.is_some()) {
                    self.identify_again(at, known, line);
                }
                return Some(known);
            }
        }
        if line.step == Step::Gone && line.comm_id.is_none() && line.parent.is_none() {
            return None;
        }
        self.join(at, entry, line, events)
    }

    fn join(&mut self, at: u32, entry: &Entry<'_>, line: &CommLine, events: &mut Vec<Event>) -> Option<u32> {
        if self.processes[at as usize].locals.len() >= LOCALS || self.members >= MEMBERS {
            self.others_dropped += 1;
            return None;
        }
        self.members += 1;
        let local = u32::try_from(self.processes[at as usize].locals.len()).ok()?;
        let (comm, assumed) = self.comm_of(at, line)?;
        self.processes[at as usize].locals.push(Local {
            pointer: line.pointer,
            comm,
            rank: line.rank,
            nranks: line.nranks,
            assumed,
            started: (line.step == Step::Start).then_some(entry.line),
            ..Local::default()
        });
        self.enter(comm, line.rank, at, local);
        events.push(Event::Joined {
            who: self.who(at),
            rank: line.rank,
            nranks: line.nranks,
            nnodes: line.nnodes,
        });
        Some(local)
    }

    /// Makes a process's rank a member. A rank that came up is not replaced by one that has only begun: after a restart
    /// the address of the first life may still be in the store, and the second life never gets further.
    fn enter(&mut self, comm: u32, rank: u32, process: u32, local: u32) {
        let is_up =
            |(process, local): (u32, u32)| self.processes[process as usize].locals[local as usize].complete;
        let known = self.comms[comm as usize].members.get(&rank).copied();
        let other = known.filter(|(known, _)| *known != process);
        self.comms[comm as usize].displaced += u32::from(other.is_some());
        if let Some(other) = other
            && is_up(other)
            && !is_up((process, local))
        {
            return;
        }
        let contested = other.is_some_and(is_up);
        let comm = &mut self.comms[comm as usize];
        comm.members.insert(rank, (process, local));
        comm.contested += u32::from(contested);
    }

    /// A communicator first known by its address alone now tells its id.
    fn identify_again(&mut self, at: u32, local: u32, line: &CommLine) {
        let Some(comm) = self.identity(at, line).and_then(|identity| self.comm(identity, line.nranks)) else {
            return;
        };
        let known = &mut self.processes[at as usize].locals[local as usize];
        let old = std::mem::replace(&mut known.comm, comm);
        known.assumed = false;
        if let Some(old) = self.comms.get_mut(old as usize)
            && old.members.get(&line.rank) == Some(&(at, local))
        {
            old.members.remove(&line.rank);
        }
        self.enter(comm, line.rank, at, local);
    }

    /// The communicator of a line, and whether that is assumed.
    fn comm_of(&mut self, at: u32, line: &CommLine) -> Option<(u32, bool)> {
        if let Some(identity) = self.identity(at, line) {
            return Some((self.comm(identity, line.nranks)?, false));
        }
        // Nothing names it: it goes with the first of its size in which its rank is free and the process is not yet.
        let mut ordinal = 0;
        loop {
            let identity = Identity::Unnamed { nranks: line.nranks, ordinal };
            let comm = self.comm(identity, line.nranks)?;
            let members = &self.comms[comm as usize].members;
            if !members.contains_key(&line.rank) {
                return Some((comm, true));
            }
            ordinal += 1;
            if ordinal > 256 {
                return None;
            }
        }
    }

    fn identity(&self, at: u32, line: &CommLine) -> Option<Identity> {
        if let Some(id) = line.comm_id {
            return Some(Identity::Id(id));
        }
        let pointer = line.parent?;
        let count = line.split_count.unwrap_or(0);
        let color = line.color.unwrap_or(0);
        let process = &self.processes[at as usize];
        let parent = process.locals.iter().rfind(|local| local.pointer == pointer && !local.assumed);
        Some(match parent {
            Some(parent) => Identity::Split { parent: parent.comm, count, color },
            None => Identity::Orphan { count, color, nranks: line.nranks },
        })
    }

    fn comm(&mut self, identity: Identity, nranks: u32) -> Option<u32> {
        if let Some(at) = self.comm_index.get(&identity) {
            return Some(*at);
        }
        if self.comms.len() >= COMMUNICATORS {
            self.others_dropped += 1;
            return None;
        }
        let at = u32::try_from(self.comms.len()).ok()?;
        self.comms.push(Communicator::new(identity, nranks));
        self.comm_index.insert(identity, at);
        Some(at)
    }
}
