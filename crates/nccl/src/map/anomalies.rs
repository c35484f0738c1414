//! Contradictions: logs hold what programs printed, which may be anything.

use std::collections::BTreeSet;

use typed_index_collections::TiVec;

use super::ids::{ProcessId, SourceIndex};
use super::link::Link;
use super::observed::Observed;
use super::process::Process;
use super::signatures::Trace;
use super::snapshot::Snapshot;

/// Connections, communicators and processes that do not fit the rest of the log, each with a few lines that show it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Anomalies {
    /// Connections whose rank numbers fit no communicator of their process.
    pub beyond: Doubts,
    /// Connections without NCCL's prefix, in a log whose other connections have it.
    pub unsigned: Doubts,
    /// Connections of processes that joined no communicator, in a source whose other processes did.
    pub outsiders: Doubts,
    /// Groups of processes that no communicator joins.
    pub groups: usize,
}

/// A count, and the first few places.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Doubts {
    /// The number of them.
    pub count: u64,
    /// The first places.
    pub traces: Vec<Trace>,
}

impl Doubts {
    fn add(&mut self, seen: &Observed, at: ProcessId, process: &Process, link: &Link) {
        const KEPT: usize = 4;
        self.count += 1;
        if self.traces.len() < KEPT {
            let text = format!(
                "connection {} -> {} via {}",
                link.key.from,
                link.key.to,
                super::printable(seen.name_of(link.key.transport).as_bytes(), 96)
            );
            self.traces.push(Trace {
                told: None,
                host: None,
                source: process.source,
                process: Some(at),
                line: link.first_line,
                text,
            });
        }
    }
}

impl Snapshot<'_> {
    /// Finds contradictions. Only processes that were doubtful when they connected are checked in detail.
    pub fn anomalies(&self) -> Anomalies {
        let mut anomalies = Anomalies::default();
        let signed = !self.seen.usage.is_empty();
        let mut members: TiVec<SourceIndex, u32> = vec![0u32; self.seen.sources.len()].into();
        for (_, process) in self.alive().filter(|(_, process)| !process.locals.is_empty()) {
            members[process.source] += 1;
        }
        for (at, process) in self.alive().filter(|(_, process)| process.doubtful) {
            let doubts = if process.pid.is_none() {
                Some(&mut anomalies.unsigned).filter(|_| signed)
            } else if process.locals.is_empty() {
                Some(&mut anomalies.outsiders).filter(|_| members[process.source] > 1)
            } else {
                Some(&mut anomalies.beyond)
            };
            let Some(doubts) = doubts else { continue };
            for link in process.links.iter().filter(|link| link.live) {
                if process.locals.is_empty() || self.seen.fits_nothing(process, link) {
                    doubts.add(self.seen, at, process, link);
                }
            }
        }
        anomalies.groups = self.groups();
        anomalies
    }

    /// Returns how many of the largest groups of processes have no member in common, where no communicator
    /// spans the job.
    fn groups(&self) -> usize {
        const MOST: usize = 4096;
        if self.world.is_some() {
            return 0;
        }
        let mut seen: BTreeSet<ProcessId> = BTreeSet::new();
        let mut groups = 0;
        for comm in self.seen.comms.iter().filter(|comm| comm.is_root() && comm.nranks > 1).take(MOST) {
            let alive: Vec<ProcessId> =
                comm.members.values().map(|(process, _)| *process).filter(|at| self.is_alive(*at)).collect();
            groups += usize::from(!alive.is_empty() && alive.iter().all(|at| !seen.contains(at)));
            seen.extend(alive);
        }
        groups
    }
}
