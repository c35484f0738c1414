//! Turns messages into processes and their connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use typed_index_collections::TiVec;

use super::communicator::Identity;
use super::event::Event;
use super::ids::{CommId, GlobalRank, HostId, NameId, ProcessId, SourceIndex};
use super::link::LinkKey;
use super::observed::Source;
use super::process::{Phase, Process};
use super::{TransportMap, cut};
use crate::SourceId;
use crate::bandwidth::is_measurement;
use crate::channel::ChannelLine;
use crate::event::{Connected, NcclEvent};
use crate::launcher;
use crate::lines::{Cutter, Line, Needed, each_piece, is_step};
use crate::network::Network;
use crate::parser::{Entry, Rate, entries, plain};
use crate::record::Level;
use crate::signature::Signature;
use crate::throughput::Throughput;

/// Most connections kept. Further ones are only counted; a ring and trees over 16,384 ranks need a tenth.
const LINKS: usize = 2_000_000;
/// Most processes kept.
const PROCESSES: usize = 200_000;
/// Slots of a cache in which a process is found without the index.
const RECENT: usize = 4096;
/// Most hosts kept. Otherwise a log with another `NCCL_HOSTID` on every line would grow the map without
/// limit.
const HOSTS: usize = 65_536;
/// Most ranks of a source of which it is known that they wrote something.
const HEARD: usize = 65_536;
/// Most ranks of a source whose training steps are kept.
const STEPPING: usize = 1024;
/// Lines with steps that are read behind the last one that showed another rank to train: each rank prints one before the others
/// print their next.
const STEP_LINES: u16 = 1024;
/// Devices of a node have smaller numbers; a thread without one may print any.
const DEVICES: i32 = 256;
/// Most names of transports and networks kept.
const NAMES: usize = 1024;

/// The state of one source while it is read.
#[derive(Clone, Debug, Default)]
struct SourceReader {
    cutter: Cutter,
    last_process: Option<ProcessId>,
    /// Lines with steps that are still read, until another rank or process appears.
    step_lines: u16,
}

/// Finds the entry that a line is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub source: HashMap<Arc<SourceId>, SourceIndex>,
    readers: TiVec<SourceIndex, SourceReader>,
    process: HashMap<(SourceIndex, u64, Box<str>), ProcessId>,
    /// The first processes of each source and process id, to find hosts with torn text before their name.
    pids: HashMap<(SourceIndex, u64), Vec<ProcessId>>,
    /// Cache of the process that was last found for some sources and pids.
    recent: Vec<Option<ProcessId>>,
    pub comm: HashMap<Identity, CommId>,
    name: HashMap<Box<str>, NameId>,
    /// Hosts, each with the `NCCL_HOSTID` that distinguishes two nodes with the same name.
    hosts: HashMap<(Box<str>, Box<str>), HostId>,
    /// Ranks of communicators, over all processes.
    pub members: usize,
    links: usize,
}

impl TransportMap {
    fn source(&mut self, id: &Arc<SourceId>) -> SourceIndex {
        if let Some(at) = self.index.source.get(id) {
            return *at;
        }
        let source = Source {
            id: Arc::clone(id),
            throughput: Throughput::default(),
            heard: BTreeSet::new(),
            steps: BTreeMap::new(),
            lines: 0,
            bytes: 0,
        };
        let at = self.seen.sources.push_and_get_key(source);
        self.index.readers.push(SourceReader { step_lines: STEP_LINES, ..SourceReader::default() });
        self.index.source.insert(Arc::clone(id), at);
        self.seen.restarts.source(id);
        at
    }

    /// Takes a source's cutter out, so that its lines can be applied to the map.
    pub(super) fn begin(&mut self, source: &Arc<SourceId>) -> (SourceIndex, Cutter) {
        let at = self.source(source);
        self.seen.failures.begin(at, source.rank);
        let mut cutter = std::mem::take(&mut self.index.readers[at].cutter);
        cutter.needed.steps = self.needs_steps(at);
        (at, cutter)
    }

    /// Puts a source's cutter back.
    pub(super) fn finish(&mut self, at: SourceIndex, cutter: Cutter, events: &[Event]) {
        let source = &mut self.seen.sources[at];
        (source.lines, source.bytes) = (cutter.lines(), cutter.bytes());
        self.seen.failures.finish(at, source.lines);
        self.index.readers[at].cutter = cutter;
        self.generation += u64::from(!events.is_empty());
    }

    /// Returns whether a source is still searched for training steps; those with a rate are seen anyway.
    fn needs_steps(&self, source: SourceIndex) -> bool {
        self.index.readers[source].step_lines > 0 && !self.seen.sources[source].throughput.steps()
    }

    /// Keeps who printed a training step without a rate.
    fn take_step(&mut self, source: SourceIndex, line: &Line<'_>) {
        if !is_step(line.bytes) {
            return;
        }
        let known = &mut self.seen.sources[source];
        let rank = launcher::rank_of_line(line.bytes).or(known.id.rank);
        let is_new = !known.steps.contains_key(&rank);
        if !is_new || known.steps.len() < STEPPING {
            known.steps.insert(rank, line.number);
        }
        self.generation += u64::from(is_new);
        let left = &mut self.index.readers[source].step_lines;
        *left = match (is_new, known.id.rank) {
            (_, Some(_)) => 0,
            (true, None) => STEP_LINES,
            (false, None) => left.saturating_sub(1),
        };
    }

    /// Applies a line; returns what is needed of the lines behind.
    #[inline]
    pub(super) fn take(&mut self, source: SourceIndex, line: &Line<'_>, events: &mut Vec<Event>) -> Needed {
        if line.step && self.needs_steps(source) {
            self.take_step(source, line);
        }
        let next = self.take_content(source, line, events);
        Needed { next, steps: self.needs_steps(source) }
    }

    /// Applies a line; returns whether the next one is needed, whatever its content.
    #[inline]
    fn take_content(&mut self, source: SourceIndex, line: &Line<'_>, events: &mut Vec<Event>) -> bool {
        if line.of_map && is_measurement(line.bytes) {
            let (bandwidth, source) = &mut *self.seen.bandwidth;
            bandwidth.line(source, line.bytes);
            self.generation += 1;
            return false;
        }
        let rate = Rate::of(line);
        if let Some(Rate { line, text, at, launcher_rank }) = rate {
            self.seen.sources[source].throughput.observe_at(launcher_rank, line, text, at);
        }
        if line.failure.is_none() {
            if rate.is_some() || !line.of_map {
                return false;
            }
            if let Some(entry) = plain(line) {
                self.apply(source, &entry, events);
                return false;
            }
        }
        self.pieces(source, line, line.of_map && rate.is_none(), events)
    }

    fn pieces(
        &mut self,
        source: SourceIndex,
        line: &Line<'_>,
        of_map: bool,
        events: &mut Vec<Event>,
    ) -> bool {
        let mut every = false;
        each_piece(line, |piece| {
            if of_map {
                entries(piece, |entry| self.apply(source, &entry, events));
            }
            if let Some(above) = piece.failure {
                every = self.seen.failures.take(source, piece, above);
            }
        });
        every
    }

    /// Applies one message.
    fn apply(&mut self, source: SourceIndex, entry: &Entry<'_>, events: &mut Vec<Event>) {
        self.seen.nccl_lines += u64::from(entry.level.is_some());
        self.seen.info_seen |= entry.level == Some(Level::Info);
        let process = self.process(source, entry);
        if let Some(rank) = entry.launcher_rank.filter(|_| entry.level.is_none()) {
            let heard = &mut self.seen.sources[source].heard;
            if heard.len() < HEARD {
                heard.insert(rank);
            }
        }
        if let Some(at) = process {
            let process = &mut self.seen.processes[at];
            process.last_line = entry.line;
            process.told_rank = process.told_rank.or(entry.launcher_rank.map(GlobalRank));
            if let Some(device) = entry.device.filter(|device| (0..DEVICES).contains(device)) {
                let known = process.thread_device.get_or_insert(device);
                process.several_devices |= *known != device;
            }
            if process.device.is_none()
                && let Some(writer) = entry.writer
                && writer.tid == writer.pid
                && entry.device.is_some()
            {
                // Proxy threads print device 0; the main thread is the one whose id is the process's.
                process.device = entry.device;
                self.seen.hold(at);
            }
        }
        if entry.level == Some(Level::Diagnostics) {
            self.seen.diagnosed.take(source, process, entry);
            self.generation += 1;
            return;
        }
        match entry.event {
            NcclEvent::Connection(line) => {
                if let Some(process) = process {
                    self.connect(process, entry, &line, events);
                }
                return;
            }
            NcclEvent::Plan => return,
            NcclEvent::Torn => {
                self.seen.torn += 1;
                return;
            }
            NcclEvent::Comm(line) => {
                if let Some(process) = process {
                    self.communicator(process, entry, &line, events);
                }
            }
            NcclEvent::Impossible => {
                self.seen.signatures.add(Signature::ImpossibleRank, source, process, entry);
            }
            NcclEvent::Other => {
                if self.other(source, process, entry) {
                    return;
                }
            }
            _ => self.fact(process, entry, events),
        }
        self.find_signatures(source, process, entry, events);
    }

    /// Returns the process of a message. Text without NCCL's prefix belongs to none, unless it is a
    /// connection.
    fn process(&mut self, source: SourceIndex, entry: &Entry<'_>) -> Option<ProcessId> {
        let (host, pid) = match entry.writer {
            Some(writer) => (writer.host, Some(writer.pid)),
            None if entry.level.is_some() || matches!(entry.event, NcclEvent::Connection(_)) => {
                (entry.launcher_node.unwrap_or_default(), None)
            }
            None => return None,
        };
        let last = self.index.readers[source].last_process;
        if let Some(at) = last
            && let Some(process) = self.seen.processes.get(at)
            && process.pid == pid
            && *process.host == *host
        {
            return last;
        }
        let place =
            (usize::try_from(pid.unwrap_or(u64::MAX)).unwrap_or(usize::MAX) ^ usize::from(source)) % RECENT;
        if let Some(at) = self.index.recent.get(place).copied().flatten()
            && let Some(process) = self.seen.processes.get(at)
            && process.source == source
            && process.pid == pid
            && *process.host == *host
        {
            self.index.readers[source].last_process = Some(at);
            return Some(at);
        }
        let key = (source, pid.unwrap_or(u64::MAX), Box::<str>::from(host));
        let at = match self.index.process.get(&key).copied() {
            Some(at) => at,
            None if self.seen.processes.len() >= PROCESSES => {
                self.seen.others_dropped += 1;
                return None;
            }
            None => {
                let at = match self.torn_twin(source, host, pid) {
                    Some(at) => at,
                    None => {
                        self.new_process(source, host, entry.launcher_node.unwrap_or(""), pid, entry.line)
                    }
                };
                self.index.process.insert(key, at);
                at
            }
        };
        self.index.readers[source].last_process = Some(at);
        self.index.recent.resize(RECENT, None);
        self.index.recent[place] = Some(at);
        Some(at)
    }

    /// Adds a process that was not seen before.
    fn new_process(
        &mut self,
        source: SourceIndex,
        host: &str,
        node: &str,
        pid: Option<u64>,
        line: u64,
    ) -> ProcessId {
        let mut process = Process::new(source, host, pid, line);
        process.told_rank = self.seen.sources[source].id.rank.map(GlobalRank);
        process.host_number = self.host(host, node);
        let at = self.seen.processes.push_and_get_key(process);
        // It may be another attempt, of which no step is known.
        self.index.readers[source].step_lines = STEP_LINES;
        if let Some(pid) = pid {
            let same = self.index.pids.entry((source, pid)).or_default();
            // One source rarely has several hosts with one process id; more than a few are ignored.
            if same.len() < 8 {
                same.push(at);
            }
        }
        at
    }

    /// Returns the process of a host name that another rank's text was joined to: `samples/svm:617:689`. Of
    /// two such names of one process id in one source, the shorter one is the host's.
    fn torn_twin(&mut self, source: SourceIndex, host: &str, pid: Option<u64>) -> Option<ProcessId> {
        let pid = pid.filter(|pid| *pid != 0)?;
        let glued = |long: &str, short: &str| {
            !short.is_empty()
                && long.strip_suffix(short).is_some_and(|glue| {
                    // A rank of a tree (`->-1-`) may stand before it too; no host's name begins with a hyphen.
                    glue.ends_with(char::is_alphanumeric) || glue.starts_with('-')
                })
                && short.starts_with(char::is_alphanumeric)
        };
        let twins = self.index.pids.get(&(source, pid))?;
        let at = twins.iter().copied().find(|at| {
            self.seen.processes.get(*at).is_some_and(|known| {
                glued(host, &known.host) || (known.locals.is_empty() && glued(&known.host, host))
            })
        })?;
        let shorter = self.seen.processes.get(at).is_some_and(|known| known.host.len() > host.len());
        if shorter {
            let number = self.host(host, "");
            let process = self.seen.processes.get_mut(at)?;
            process.host = host.into();
            process.host_number = number;
        }
        Some(at)
    }

    /// Returns the number of a host. At the limit, further hosts share one number and are counted.
    pub(super) fn host(&mut self, name: &str, id: &str) -> HostId {
        let next = HostId::from(self.index.hosts.len());
        let key = (Box::from(cut(name)), Box::from(cut(id)));
        if let Some(known) = self.index.hosts.get(&key) {
            return *known;
        }
        if self.index.hosts.len() >= HOSTS {
            self.seen.others_dropped += 1;
        } else {
            self.index.hosts.insert(key, next);
        }
        next
    }

    fn connect(&mut self, at: ProcessId, entry: &Entry<'_>, line: &ChannelLine<'_>, events: &mut Vec<Event>) {
        let Some(transport) = self.name(line.transport.name) else {
            self.seen.links_dropped += 1;
            return;
        };
        let tid = entry.writer.map_or(0, |writer| writer.tid);
        let full = self.index.links >= LINKS;
        let process = &mut self.seen.processes[at];
        let Some(burst) = process.burst(tid, line.index == 0, entry.line) else {
            self.seen.links_dropped += 1;
            return;
        };
        let key = LinkKey::new(burst, transport, line);
        if full && !process.knows(&key) {
            self.seen.links_dropped += 1;
            return;
        }
        let fresh = process.connect(key, line, entry.line);
        if fresh && !process.doubtful {
            process.doubtful = process.fits_none(line);
        }
        let uses = if process.pid.is_some() { &mut self.seen.usage } else { &mut self.seen.unsigned };
        uses.line(transport, line, fresh);
        if let Some(pointer) = line.comm
            && process.bursts[burst].local.is_none()
        {
            process.bursts[burst].local = process.local(pointer);
        }
        if fresh {
            self.index.links += 1;
            self.trace_link(at, entry, line);
            events.push(Event::Link {
                who: self.seen.who(at),
                from: line.from,
                to: line.to,
                transport: line.transport.name.into(),
                gdr: line.transport.gdr,
            });
        }
    }

    /// Keeps the first lines that prove a kind of connection.
    fn trace_link(&mut self, at: ProcessId, entry: &Entry<'_>, line: &ChannelLine<'_>) {
        let source = self.seen.processes[at].source;
        let mut add = |id| self.seen.signatures.add(id, source, Some(at), entry);
        let Some(name) = line.transport.network() else {
            if line.transport.name == "P2P/MNNVL" {
                add(Signature::MnnvlConnection);
            }
            return;
        };
        match (Network::of_name(name), line.transport.gdr) {
            (Network::Socket, _) if Network::is_built_in(name) => add(Signature::SocketConnection),
            (Network::LibfabricOther, true) => add(Signature::OfiConnection),
            (Network::LibfabricOther, false) => add(Signature::OfiConnectionWithoutGdr),
            (Network::Verbs, true) => add(Signature::IbConnection),
            (Network::Verbs, false) => add(Signature::IbConnectionWithoutGdr),
            _ => {}
        }
    }

    pub(super) fn connected(
        &mut self,
        at: ProcessId,
        entry: &Entry<'_>,
        what: Connected,
        events: &mut Vec<Event>,
    ) {
        let tid = entry.writer.map_or(0, |writer| writer.tid);
        let closed = self.seen.processes[at].close(tid);
        for burst in closed {
            self.seen.try_settle(at, burst);
        }
        self.tidy(at);
        let phase = match what {
            Connected::Rings { gdr, .. } => {
                self.seen.ring_gdr.extend(gdr);
                Phase::Rings
            }
            Connected::NvlsTree => {
                self.seen.nvls_used = true;
                Phase::Trees
            }
            Connected::Trees | Connected::CollNet => Phase::Trees,
        };
        self.raise(at, phase, events);
    }

    /// Keeps a process small, and records connections that turned out to be known.
    pub(super) fn tidy(&mut self, at: ProcessId) {
        let process = &mut self.seen.processes[at];
        process.bound_bursts();
        let uses = if process.pid.is_some() { &mut self.seen.usage } else { &mut self.seen.unsigned };
        for name in process.merged.drain(..) {
            self.index.links = self.index.links.saturating_sub(1);
            uses.merged(name);
        }
    }

    pub(super) fn raise(&mut self, at: ProcessId, phase: Phase, events: &mut Vec<Event>) {
        if self.seen.processes[at].reach(phase) {
            events.push(Event::Phase { who: self.seen.who(at), phase });
        }
    }

    /// Returns a name's number; none if there are too many names.
    pub(super) fn name(&mut self, name: &str) -> Option<NameId> {
        // A job uses only a few transports: comparing with those first costs less than a hash.
        const FIRST: usize = 6;
        if let Some(at) = self.seen.names.iter().take(FIRST).position(|known| **known == *name) {
            return Some(NameId::from(at));
        }
        if let Some(at) = self.index.name.get(name) {
            return Some(*at);
        }
        if self.seen.names.len() >= NAMES {
            return None;
        }
        let at = self.seen.names.push_and_get_key(name.into());
        self.index.name.insert(name.into(), at);
        Some(at)
    }
}
