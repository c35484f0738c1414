//! What does not fit: logs hold what programs printed, and programs print what they like.

use std::collections::BTreeSet;

use super::link::Link;
use super::process::Process;
use super::resolve::World;
use super::{Trace, TransportMap};

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

/// How many, and the first few.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Doubts {
    /// How many.
    pub count: u64,
    /// Where.
    pub traces: Vec<Trace>,
}

impl Doubts {
    fn add(&mut self, map: &TransportMap, at: u32, process: &Process, link: &Link) {
        const KEPT: usize = 4;
        self.count += 1;
        if self.traces.len() < KEPT {
            let text = format!(
                "connection {} -> {} via {}",
                link.key.from,
                link.key.to,
                super::printable(map.name_of(link.key.transport).as_bytes(), 96)
            );
            self.traces.push(Trace {
                source: process.source,
                process: Some(at),
                line: link.first_line,
                text,
            });
        }
    }
}

impl TransportMap {
    /// Looks for what does not fit. Only processes that were doubtful when they connected are looked at closely.
    pub fn anomalies(&self, world: &World) -> Anomalies {
        let mut anomalies = Anomalies::default();
        let signed = !self.uses.is_empty();
        let mut members = vec![0u32; self.sources.len()];
        for (at, process) in (0u32..).zip(&self.processes) {
            if world.is_alive(at) && !process.locals.is_empty() {
                members[process.source as usize] += 1;
            }
        }
        for (at, process) in (0u32..).zip(&self.processes) {
            if !process.doubtful || !world.is_alive(at) {
                continue;
            }
            let doubts = if process.pid.is_none() {
                Some(&mut anomalies.unsigned).filter(|_| signed)
            } else if process.locals.is_empty() {
                Some(&mut anomalies.outsiders).filter(|_| members[process.source as usize] > 1)
            } else {
                Some(&mut anomalies.beyond)
            };
            let Some(doubts) = doubts else { continue };
            for link in process.links.iter().filter(|link| link.live) {
                if process.locals.is_empty() || self.fits_nothing(process, link) {
                    doubts.add(self, at, process, link);
                }
            }
        }
        anomalies.groups = self.groups(world);
        anomalies
    }

    /// How many of the largest groups of processes have nobody in common, where no communicator spans the job.
    fn groups(&self, world: &World) -> usize {
        const MOST: usize = 4096;
        if world.comm.is_some() {
            return 0;
        }
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        let mut groups = 0;
        for comm in self.comms.iter().filter(|comm| comm.is_root() && comm.nranks > 1).take(MOST) {
            let alive: Vec<u32> =
                comm.members.values().map(|(process, _)| *process).filter(|at| world.is_alive(*at)).collect();
            groups += usize::from(!alive.is_empty() && alive.iter().all(|at| !seen.contains(at)));
            seen.extend(alive);
        }
        groups
    }
}
