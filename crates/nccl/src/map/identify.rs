//! Lines about communicators: which one a process refers to, and which of its connections belong to it.

use super::TransportMap;
use super::communicator::{Communicator, Identity};
use super::event::Event;
use super::ids::{CommId, LocalId, ProcessId};
use super::process::{Local, Phase};
use crate::comm::{CommLine, Step};
use crate::parser::Entry;

/// Most communicators kept.
const COMMUNICATORS: usize = 400_000;
/// Communicators kept for one process; a process that makes more reuses the oldest that has ended.
const LOCALS: usize = 1024;
/// Ranks of communicators kept over all processes: 32 communicators for each of 16,384 ranks are half of it.
const MEMBERS: usize = 1_000_000;

impl TransportMap {
    pub(super) fn communicator(
        &mut self,
        at: ProcessId,
        entry: &Entry<'_>,
        line: &CommLine,
        events: &mut Vec<Event>,
    ) {
        let Some(local) = self.local(at, entry, line, events) else { return };
        let tid = entry.writer.map_or(0, |writer| writer.tid);
        let process = &mut self.seen.processes[at];
        process.mentions(tid, local);
        let known = &mut process.locals[local];
        known.cuda_device = line.cuda_device.or(known.cuda_device);
        known.nvml_device = line.nvml_device.or(known.nvml_device);
        known.bus_id = line.bus_id.or(known.bus_id);
        known.nnodes = line.nnodes.or(known.nnodes);
        known.local_ranks = line.local_ranks.or(known.local_ranks);
        known.mnnvl |= line.mnnvl;
        let nnodes = known.nnodes;
        let comm = known.comm;
        let told_bus = known.bus_id.is_some() && process.slot.is_none_or(|slot| slot >> 63 == 1);
        self.seen.most_nodes = self.seen.most_nodes.max(nnodes);
        if told_bus {
            self.seen.hold(at);
        }
        let known = &mut self.seen.processes[at].locals[local];
        match line.step {
            Step::Start => {
                known.started = known.started.or(Some(entry.line));
                self.seen.processes[at].close(tid);
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
        if let Some(comm) = self.seen.comms.get_mut(comm) {
            comm.nnodes = comm.nnodes.or(nnodes);
        }
    }

    /// Assigns the connections that a thread printed while it made a communicator (before 2.22 they come
    /// before `Init COMPLETE`; before 2.18.3 there is no START). Each burst is checked once.
    fn completed(&mut self, at: ProcessId, tid: u64, local: LocalId) {
        let process = &mut self.seen.processes[at];
        let closed = process.close(tid);
        let made = process.locals[local].clone();
        for burst in process.bursts.keys() {
            let Some(waiting) = process.bursts.get_mut(burst) else { break };
            if waiting.tid != tid || waiting.local.is_some() || waiting.judged || waiting.links.is_empty() {
                continue;
            }
            if made.started.is_some_and(|start| waiting.first_line <= start) {
                continue;
            }
            waiting.judged = true;
            let fits = process.bursts[burst].links.iter().all(|link| {
                let link = &process.links[*link];
                link.own_rank() == made.rank && link.key.from.max(link.key.to) < made.nranks
            });
            if fits {
                process.settle(burst, local);
            }
        }
        for burst in closed {
            self.seen.try_settle(at, burst);
        }
        self.tidy(at);
    }

    /// Returns the process's own entry for a communicator; makes one if needed.
    fn local(
        &mut self,
        at: ProcessId,
        entry: &Entry<'_>,
        line: &CommLine,
        events: &mut Vec<Event>,
    ) -> Option<LocalId> {
        let process = &self.seen.processes[at];
        if let Some(known) = process.local(line.pointer) {
            let local = &process.locals[known];
            let identified = self.seen.comms.get(local.comm).map(|comm| comm.identity);
            let other_id =
                matches!((line.comm_id, identified), (Some(id), Some(Identity::Id(known))) if id != known);
            let anonymous_twin = process.pid.is_none() && local.rank != line.rank;
            // An address is reused once its communicator has ended, also where its end was not seen.
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

    fn join(
        &mut self,
        at: ProcessId,
        entry: &Entry<'_>,
        line: &CommLine,
        events: &mut Vec<Event>,
    ) -> Option<LocalId> {
        if self.seen.processes[at].locals.len() >= LOCALS || self.index.members >= MEMBERS {
            self.seen.others_dropped += 1;
            return None;
        }
        self.index.members += 1;
        let local = LocalId::from(self.seen.processes[at].locals.len());
        let (comm, assumed) = self.comm_of(at, line)?;
        self.seen.processes[at].locals.push(Local {
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
            who: self.seen.who(at),
            rank: line.rank,
            nranks: line.nranks,
            nnodes: line.nnodes,
        });
        Some(local)
    }

    /// Makes a process's rank a member. A rank that is up is not replaced by one that has only begun: after
    /// a restart the address of the first attempt may still be in the store, and then the second attempt makes no
    /// progress.
    fn enter(&mut self, comm: CommId, rank: u32, process: ProcessId, local: LocalId) {
        let is_up =
            |(process, local): (ProcessId, LocalId)| self.seen.processes[process].locals[local].complete;
        let known = self.seen.comms[comm].members.get(&rank).copied();
        let other = known.filter(|(known, _)| *known != process);
        self.seen.comms[comm].displaced += u32::from(other.is_some());
        if let Some(other) = other
            && is_up(other)
            && !is_up((process, local))
        {
            return;
        }
        let contested = other.is_some_and(is_up);
        let comm = &mut self.seen.comms[comm];
        comm.members.insert(rank, (process, local));
        comm.contested += u32::from(contested);
    }

    /// Sets the id of a communicator that was first known only by its address.
    fn identify_again(&mut self, at: ProcessId, local: LocalId, line: &CommLine) {
        let Some(comm) = self.identity(at, line).and_then(|identity| self.comm(identity, line.nranks)) else {
            return;
        };
        let known = &mut self.seen.processes[at].locals[local];
        let old = std::mem::replace(&mut known.comm, comm);
        known.assumed = false;
        if let Some(old) = self.seen.comms.get_mut(old)
            && old.members.get(&line.rank) == Some(&(at, local))
        {
            old.members.remove(&line.rank);
        }
        self.enter(comm, line.rank, at, local);
    }

    /// Returns the communicator of a line, and whether that is assumed.
    fn comm_of(&mut self, at: ProcessId, line: &CommLine) -> Option<(CommId, bool)> {
        if let Some(identity) = self.identity(at, line) {
            return Some((self.comm(identity, line.nranks)?, false));
        }
        // It has no id: it belongs to the first of its size in which its rank is free and which the process
        // has not joined.
        let mut ordinal = 0;
        loop {
            let identity = Identity::Unnamed { nranks: line.nranks, ordinal };
            let comm = self.comm(identity, line.nranks)?;
            let members = &self.seen.comms[comm].members;
            if !members.contains_key(&line.rank) {
                return Some((comm, true));
            }
            ordinal += 1;
            if ordinal > 256 {
                return None;
            }
        }
    }

    fn identity(&self, at: ProcessId, line: &CommLine) -> Option<Identity> {
        if let Some(id) = line.comm_id {
            return Some(Identity::Id(id));
        }
        let pointer = line.parent?;
        let count = line.split_count.unwrap_or(0);
        let color = line.color.unwrap_or(0);
        let process = &self.seen.processes[at];
        let parent = process.locals.iter().rfind(|local| local.pointer == pointer && !local.assumed);
        Some(match parent {
            Some(parent) => Identity::Split { parent: parent.comm, count, color },
            None => Identity::Orphan { count, color, nranks: line.nranks },
        })
    }

    fn comm(&mut self, identity: Identity, nranks: u32) -> Option<CommId> {
        if let Some(at) = self.index.comm.get(&identity) {
            return Some(*at);
        }
        if self.seen.comms.len() >= COMMUNICATORS {
            self.seen.others_dropped += 1;
            return None;
        }
        let at = self.seen.comms.push_and_get_key(Communicator::new(identity, nranks));
        self.index.comm.insert(identity, at);
        Some(at)
    }
}
