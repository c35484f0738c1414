//! The state of one process according to its log: its communicators, its connections, its progress.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use typed_index_collections::TiVec;

use super::ids::{BurstId, CommId, GlobalRank, HostId, LinkId, LocalId, NameId, SourceIndex};
use super::link::{Link, LinkKey};
use crate::channel::{ChannelLine, Side};

/// Number of bursts of one process beyond which the unassigned ones share one.
const BURSTS: usize = 512;
/// Most bursts of one process. Each connection line searches them.
const MOST_BURSTS: usize = 1024;

word_enum! {
    /// The progress of a rank.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Phase {
        /// It has printed something.
        #[default]
        Bootstrap = "bootstrap",
        /// A communicator is being made.
        Init = "init",
        /// A communicator is ready; since 2.22 connections come later, with the first collective.
        Ready = "ready",
        /// Rings are connected.
        Rings = "rings",
        /// Trees are connected.
        Trees = "trees",
        /// Training steps were seen.
        Stepping = "stepping",
        /// NCCL failed.
        Failed = "failed",
    }
}

/// A communicator in one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Local {
    pub pointer: u64,
    /// Index among the map's communicators.
    pub comm: CommId,
    pub rank: u32,
    pub nranks: u32,
    pub cuda_device: Option<u32>,
    pub nvml_device: Option<u32>,
    pub bus_id: Option<u64>,
    pub nnodes: Option<u32>,
    pub local_ranks: Option<u32>,
    pub mnnvl: bool,
    /// Channels for collectives and for send/recv.
    pub channels: Option<(u32, u32)>,
    /// Line of its START, where one was seen.
    pub started: Option<u64>,
    pub complete: bool,
    /// Line of its end.
    pub gone: Option<u64>,
    /// Whether its identity is only assumed, since no id was seen.
    pub assumed: bool,
}

impl Local {
    /// Returns whether a bracket of a channel line can mean this rank's device. Brackets are read as
    /// hexadecimal: bus id before 2.18.3, device number since.
    pub fn fits_device(&self, bracket: u64) -> bool {
        let known = [self.bus_id, self.nvml_device.map(read_as_hex), self.cuda_device.map(read_as_hex)];
        bracket == super::link::NO_DEVICE
            || known.iter().all(Option::is_none)
            || known.contains(&Some(bracket))
    }
}

/// Returns the value of a decimal number whose digits are read as hexadecimal.
fn read_as_hex(number: u32) -> u64 {
    let (mut rest, mut value, mut shift) = (number, 0u64, 0);
    loop {
        value |= u64::from(rest % 10) << shift;
        rest /= 10;
        shift += 4;
        if rest == 0 {
            return value;
        }
    }
}

/// Connection lines that one call printed: those of collectives belong to one communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Burst {
    pub tid: u64,
    /// Whether they are connections of collectives (index 0).
    pub collective: bool,
    /// Index among the process's communicators, once proved.
    pub local: Option<LocalId>,
    pub open: bool,
    /// Whether it was compared with a communicator that its thread completed.
    pub judged: bool,
    pub first_line: u64,
    pub links: Vec<LinkId>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub source: SourceIndex,
    pub host: Box<str>,
    /// None where the prefix was stripped.
    pub pid: Option<u64>,
    /// Device in the brackets of its main thread.
    pub device: Option<i32>,
    /// The first device in the brackets of its lines, of whatever thread.
    pub thread_device: Option<i32>,
    /// Whether the brackets of its lines have several devices.
    pub several_devices: bool,
    /// The GPU it holds: a bus id, or a device number with the highest bit set.
    pub slot: Option<u64>,
    /// The number of its host (and `NCCL_HOSTID`) in the map.
    pub host_number: HostId,
    /// Global rank from a launcher or a backend.
    pub told_rank: Option<GlobalRank>,
    pub announced: Vec<NameId>,
    /// The line of the last network that it chose.
    pub announced_line: u64,
    pub phase: Phase,
    /// The phase before it failed.
    pub before_failure: Phase,
    /// The last line in which a call of NCCL passed an error on after the failure.
    pub gave_up_line: u64,
    pub first_line: u64,
    pub last_line: u64,
    pub locals: TiVec<LocalId, Local>,
    pub bursts: TiVec<BurstId, Burst>,
    pub links: TiVec<LinkId, Link>,
    free: Vec<LinkId>,
    /// Index of the links, built when they are many.
    index: Option<HashMap<LinkKey, LinkId>>,
    last_link: Option<LinkId>,
    /// Whether a connection fitted none of the known communicators when it was printed. They may have
    /// become known since.
    pub doubtful: bool,
    /// Transports of connections that turned out to be known already, until the map has processed them.
    pub merged: Vec<NameId>,
    /// The communicator that each thread mentioned last: channel counts belong to it.
    pub recent: Vec<(u64, LocalId)>,
}

impl Process {
    pub fn new(source: SourceIndex, host: &str, pid: Option<u64>, line: u64) -> Self {
        Self { source, host: host.into(), pid, first_line: line, last_line: line, ..Self::default() }
    }

    /// Raises the phase. It never falls, except that a process which comes further than before a failure has survived it.
    pub fn reach(&mut self, phase: Phase) -> bool {
        // An error that was passed on ended the call, whatever the threads of other GPUs print; unless it was that of a
        // plugin, after which NCCL chose another network.
        let ended = self.gave_up_line > self.announced_line;
        let survived =
            self.phase == Phase::Failed && phase > self.before_failure && phase != Phase::Failed && !ended;
        let higher = phase > self.phase || survived;
        if higher {
            self.before_failure = self.reached();
            self.phase = phase;
        }
        higher
    }

    /// Returns the furthest phase it reached, not counting a failure.
    pub fn reached(&self) -> Phase {
        if self.phase == Phase::Failed { self.before_failure } else { self.phase }
    }

    /// Returns whether it has only text without NCCL's prefix, which identifies no process.
    pub fn is_nobody(&self) -> bool {
        self.pid.is_none() && self.locals.is_empty() && self.announced.is_empty()
    }

    /// Returns whether no communicator can hold a connection, by rank numbers alone.
    pub fn fits_none(&self, line: &ChannelLine<'_>) -> bool {
        let own = if line.side == Some(Side::Receive) { line.to } else { line.from };
        let most = line.from.max(line.to);
        !self.locals.iter().any(|local| local.rank == own && most < local.nranks)
    }

    /// Returns whether any of its communicators is complete, or it is connected.
    pub fn came_up(&self) -> bool {
        self.locals.iter().any(|local| local.complete) || !self.links.is_empty()
    }

    /// Returns the communicator of a pointer, the latest first.
    pub fn local(&self, pointer: u64) -> Option<LocalId> {
        let at = self.locals.iter().rposition(|local| local.pointer == pointer && local.gone.is_none())?;
        Some(at.into())
    }

    /// Records the communicator that a thread mentioned.
    pub fn mentions(&mut self, tid: u64, local: LocalId) {
        const MOST: usize = 64;
        if let Some(entry) = self.recent.iter_mut().find(|entry| entry.0 == tid) {
            entry.1 = local;
        } else {
            if self.recent.len() == MOST {
                self.recent.remove(0);
            }
            self.recent.push((tid, local));
        }
    }

    /// Returns the burst that a connection line of a thread belongs to; opens one if there is none. At the
    /// limit an unassigned one takes the line, and then proves nothing as a whole; none if all are
    /// assigned.
    pub fn burst(&mut self, tid: u64, collective: bool, line: u64) -> Option<BurstId> {
        let fits = |burst: &Burst| burst.open && burst.tid == tid && burst.collective == collective;
        let at = self.bursts.iter().rposition(fits).map(BurstId::from);
        at.or_else(|| {
            let fresh = Burst { tid, collective, open: true, first_line: line, ..Burst::default() };
            let empty = self.bursts.iter().position(|burst| !burst.open && burst.links.is_empty());
            if let Some(empty) = empty.map(BurstId::from) {
                self.bursts[empty] = fresh;
                return Some(empty);
            }
            let waiting = self.bursts.iter().rposition(|burst| burst.local.is_none());
            if let Some(waiting) = waiting.map(BurstId::from).filter(|_| self.bursts.len() >= BURSTS) {
                self.bursts[waiting].collective = false;
                return Some(waiting);
            }
            if self.bursts.len() >= MOST_BURSTS {
                return None;
            }
            Some(self.bursts.push_and_get_key(fresh))
        })
    }

    /// Closes the bursts of a thread; returns those that were open.
    pub fn close(&mut self, tid: u64) -> Vec<BurstId> {
        let mut closed = Vec::new();
        for (at, burst) in self.bursts.iter_mut_enumerated() {
            if burst.open && burst.tid == tid {
                burst.open = false;
                closed.push(at);
            }
        }
        closed
    }

    /// Limits the number of unassigned bursts by merging the oldest two.
    pub fn bound_bursts(&mut self) {
        const MOST: usize = 64;
        if self.bursts.len() <= MOST {
            return;
        }
        let mut waiting = self.bursts.keys().filter(|at| {
            let burst = &self.bursts[*at];
            burst.local.is_none() && !burst.links.is_empty()
        });
        let (Some(home), Some(next)) = (waiting.next(), waiting.next()) else { return };
        self.bursts[home].collective = false;
        self.bursts[home].open = false;
        self.bursts[next].open = false;
        self.move_links(next, home);
    }

    /// Adds a connection line; returns whether the connection is new in this burst.
    pub fn connect(&mut self, key: LinkKey, line: &ChannelLine<'_>, number: u64) -> bool {
        if let Some(at) = self.find(&key) {
            self.links[at].add(line, number);
            self.last_link = Some(at);
            return false;
        }
        let link = Link::new(key, line, number);
        let at = self.place(link);
        self.last_link = Some(at);
        if let Some(burst) = self.bursts.get_mut(key.burst) {
            burst.links.push(at);
        }
        true
    }

    fn place(&mut self, link: Link) -> LinkId {
        const INDEX_FROM: usize = 24;
        let key = link.key;
        let at = if let Some(at) = self.free.pop() {
            self.links[at] = link;
            at
        } else {
            self.links.push_and_get_key(link)
        };
        if let Some(index) = &mut self.index {
            index.insert(key, at);
        } else if self.links.len() > INDEX_FROM {
            let live = self.links.iter_enumerated().filter(|(_, link)| link.live);
            self.index = Some(live.map(|(at, link)| (link.key, at)).collect());
        }
        at
    }

    /// Returns whether a connection is known.
    pub fn knows(&self, key: &LinkKey) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: &LinkKey) -> Option<LinkId> {
        if let Some(last) = self.last_link
            && self.links.get(last).is_some_and(|link| link.live && link.key == *key)
        {
            return Some(last);
        }
        if let Some(index) = &self.index {
            return index.get(key).copied();
        }
        let at = self.links.iter().rposition(|link| link.live && link.key == *key)?;
        Some(at.into())
    }

    /// Moves a burst's links to its communicator's first burst, so that reconnecting does not grow the map.
    pub fn settle(&mut self, burst: BurstId, local: LocalId) {
        self.bursts[burst].local = Some(local);
        let collective = self.bursts[burst].collective;
        let home = self
            .bursts
            .iter()
            .position(|other| other.local == Some(local) && !other.open && other.collective == collective);
        let Some(home) = home.map(BurstId::from).filter(|home| *home != burst) else {
            return;
        };
        self.move_links(burst, home);
    }

    /// Moves every link of one burst to another.
    pub fn move_links(&mut self, burst: BurstId, home: BurstId) {
        for at in std::mem::take(&mut self.bursts[burst].links) {
            let old = self.links[at].key;
            let key = LinkKey { burst: home, ..old };
            if let Some(index) = &mut self.index {
                index.remove(&old);
            }
            if let Some(known) = self.find(&key) {
                let merged = self.links[at].clone();
                self.links[known].merge(&merged);
                self.links[at].live = false;
                self.merged.push(old.transport);
                self.free.push(at);
            } else {
                self.links[at].key = key;
                if let Some(index) = &mut self.index {
                    index.insert(key, at);
                }
                self.bursts[home].links.push(at);
            }
        }
        // Empty bursts at the end of the list are dropped; the others keep their numbers.
        while self
            .bursts
            .last()
            .is_some_and(|last| !last.open && last.links.is_empty() && self.bursts.len() > 1)
        {
            self.bursts.pop();
        }
    }
}
