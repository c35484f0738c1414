//! Which transport each pair of ranks uses, built line by line while a job starts.
//!
//! [`TransportMap::read`] takes the bytes of any number of sources in any order and gives what is new.
//! Everything else is a question about what has been seen so far: [`TransportMap::verdict`], [`TransportMap::pairs`],
//! [`TransportMap::ranks`]. Rank numbers in NCCL's connection lines count from 0 in each communicator; the map keeps
//! them so, and says a global rank only where the logs prove it.

mod anomalies;
mod communicator;
mod event;
mod identify;
mod link;
mod observe;
mod process;
mod resolve;
mod restarts;
mod signatures;
mod usage;
mod verdict;
mod view;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use anomalies::{Anomalies, Doubts};
pub use communicator::Identity;
pub use event::{Event, Who};
pub use link::{Channels, Devices};
pub use process::Phase;
pub use resolve::World;
pub use signatures::{Found, Signatures, Trace, printable};
pub use verdict::{FabricSeen, GdrSeen, Port, Verdict};
pub use view::{CommView, PairView, PluginSeen, RankView, Totals};
pub use window::{Summary, TransportUse};

use super::event::{Connected, NcclEvent};
use super::parser::{Entry, Parser};
use super::prefix::Level;
use super::signature::{self, Signature};
use super::throughput::Throughput;
use crate::SourceId;
use crate::failure::Failures;
use communicator::Communicator;
use link::LinkKey;
use process::Process;
use restarts::Restarts;
use usage::Usage;

/// Most connections kept. Beyond them they are counted, not kept; a ring and trees over 16,384 ranks need a tenth.
const LINKS: usize = 2_000_000;
/// Most processes and communicators kept.
const PROCESSES: usize = 200_000;
const COMMUNICATORS: usize = 400_000;
/// Processes found again without a look at the index.
const RECENT: usize = 4096;
/// Most hosts kept. A log that names `NCCL_HOSTID` anew on every line would otherwise grow the map without end.
const HOSTS: usize = 65_536;
/// Bytes kept of a name or value that a log prints.
const TEXT: usize = 256;
/// Most names of transports and networks kept.
const NAMES: usize = 1024;

/// One source of log bytes.
#[derive(Clone, Debug)]
struct Source {
    id: Arc<SourceId>,
    parser: Parser,
    last_process: u32,
    throughput: Throughput,
}

/// The map.
#[derive(Clone, Debug, Default)]
pub struct TransportMap {
    sources: Vec<Source>,
    source_index: HashMap<Arc<SourceId>, u32>,
    processes: Vec<Process>,
    process_index: HashMap<(u32, u64, Box<str>), u32>,
    /// The first processes of each source and process id, to find hosts with torn text before their name.
    pids: HashMap<(u32, u64), Vec<u32>>,
    /// The process that was last found for some sources and pids: found again without a look at the index.
    recent: Vec<u32>,
    comms: Vec<Communicator>,
    comm_index: HashMap<Identity, u32>,
    names: Vec<Box<str>>,
    name_index: HashMap<Box<str>, u16>,
    /// Hosts, each with the `NCCL_HOSTID` that tells two nodes of one name apart.
    hosts: HashMap<(Box<str>, Box<str>), u32>,
    uses: Usage,
    /// The same for connections without NCCL's prefix. They count where there are no others.
    unsigned: Usage,
    restarts: Restarts,
    /// The most nodes that any communicator told of.
    most_nodes: Option<u32>,
    /// Ranks of communicators, over all processes.
    members: usize,
    signatures: Signatures,
    failures: Failures,
    versions: BTreeMap<Box<str>, BTreeSet<u32>>,
    plugins: Vec<PluginSeen>,
    listed: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    env: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// The network that was last initialised.
    initialised: Option<Box<str>>,
    ring_gdr: BTreeSet<bool>,
    nvls_planned: bool,
    nvls_used: bool,
    links: usize,
    links_dropped: u64,
    /// Lines of hosts, processes and communicators that found no room.
    others_dropped: u64,
    nccl_lines: u64,
    unparsed: u64,
    info_seen: bool,
    torn: u64,
    generation: u64,
}

impl TransportMap {
    /// Makes an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Grows with every change, so that a screen knows whether to draw again.
    pub fn generation(&self) -> u64 {
        self.generation + self.failures.generation()
    }

    /// What the lines say about failures.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The sources, by the numbers that [`Report::source`](crate::failure::Report) has.
    pub fn source_ids(&self) -> impl Iterator<Item = &SourceId> {
        self.sources.iter().map(|source| &*source.id)
    }

    /// Whether a source is an earlier attempt of another one.
    pub fn is_earlier_attempt(&self, source: &SourceId) -> bool {
        self.restarts.is_earlier(source)
    }

    /// The signatures found so far.
    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    fn source(&mut self, id: &Arc<SourceId>) -> u32 {
        if let Some(at) = self.source_index.get(id) {
            return *at;
        }
        let at = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        self.sources.push(Source {
            id: Arc::clone(id),
            parser: Parser::new(),
            last_process: u32::MAX,
            throughput: Throughput::default(),
        });
        self.source_index.insert(Arc::clone(id), at);
        self.restarts.source(id);
        at
    }

    fn feed_into(&mut self, source: u32, bytes: &[u8], events: &mut Vec<Event>) {
        let mut parser = std::mem::take(&mut self.sources[source as usize].parser);
        parser.feed(bytes, |entry| self.apply(source, &entry, events));
        self.sources[source as usize].parser = parser;
        self.generation += u64::from(!events.is_empty());
    }

    fn finish_into(&mut self, source: u32, events: &mut Vec<Event>) {
        let mut parser = std::mem::take(&mut self.sources[source as usize].parser);
        parser.finish(|entry| self.apply(source, &entry, events));
        self.sources[source as usize].parser = parser;
        self.generation += u64::from(!events.is_empty());
    }

    /// Takes one message.
    fn apply(&mut self, source: u32, entry: &Entry<'_>, events: &mut Vec<Event>) {
        self.nccl_lines += u64::from(entry.level.is_some());
        self.info_seen |= entry.level == Some(Level::Info);
        let process = self.process(source, entry);
        if let Some(at) = process {
            let process = &mut self.processes[at as usize];
            process.last_line = entry.line;
            process.told_rank = process.told_rank.or(entry.launcher_rank);
            if process.device.is_none()
                && let Some(writer) = entry.writer
                && writer.tid == writer.pid
                && entry.device.is_some()
            {
                // Proxy threads print device 0; the main thread is the one whose id is the process's.
                process.device = entry.device;
                self.hold(at);
            }
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
                self.torn += 1;
                return;
            }
            NcclEvent::Comm(line) => {
                if let Some(process) = process {
                    self.communicator(process, entry, &line, events);
                }
            }
            NcclEvent::Impossible => {
                let rank = entry.launcher_rank;
                self.signatures.add(Signature::ImpossibleRank, source, process, entry.line, rank, entry.text);
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

    /// The process a message belongs to. Text without NCCL's prefix belongs to none, unless it is a connection.
    fn process(&mut self, source: u32, entry: &Entry<'_>) -> Option<u32> {
        let (host, pid) = match entry.writer {
            Some(writer) => (writer.host, Some(writer.pid)),
            None if entry.level.is_some() || matches!(entry.event, NcclEvent::Connection(_)) => ("", None),
            None => return None,
        };
        let last = self.sources[source as usize].last_process;
        if let Some(process) = self.processes.get(last as usize)
            && process.pid == pid
            && *process.host == *host
        {
            return Some(last);
        }
        let place = (pid.unwrap_or(u64::MAX) ^ u64::from(source)) as usize % RECENT;
        if let Some(at) = self.recent.get(place).copied()
            && let Some(process) = self.processes.get(at as usize)
            && process.source == source
            && process.pid == pid
            && *process.host == *host
        {
            self.sources[source as usize].last_process = at;
            return Some(at);
        }
        let key = (source, pid.unwrap_or(u64::MAX), Box::<str>::from(host));
        let at = match self.process_index.get(&key).copied() {
            Some(at) => at,
            None if self.processes.len() >= PROCESSES => {
                self.others_dropped += 1;
                return None;
            }
            None if let Some(at) = self.torn_twin(source, host, pid) => {
                self.process_index.insert(key, at);
                at
            }
            None => {
                let at = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
                let mut process = Process::new(source, host, pid, entry.line);
                process.told_rank = self.sources[source as usize].id.rank;
                process.host_number = self.host(host, "");
                self.processes.push(process);
                self.process_index.insert(key, at);
                if let Some(pid) = pid {
                    let same = self.pids.entry((source, pid)).or_default();
                    // One source rarely has several hosts with one process id; more than a few are looked at no further.
                    if same.len() < 8 {
                        same.push(at);
                    }
                }
                at
            }
        };
        self.sources[source as usize].last_process = at;
        self.recent.resize(RECENT, u32::MAX);
        self.recent[place] = at;
        Some(at)
    }

    /// The process that a host with the end of another rank's text glued to its front means: `samples/svm:617:689`. Of
    /// two such names of one process id in one source, the shorter one is the host's.
    fn torn_twin(&mut self, source: u32, host: &str, pid: Option<u64>) -> Option<u32> {
        let pid = pid.filter(|pid| *pid != 0)?;
        let glued = |long: &str, short: &str| {
            !short.is_empty()
                && long
                    .strip_suffix(short)
                    .and_then(|glue| glue.chars().next_back())
                    .is_some_and(char::is_alphanumeric)
                && short.starts_with(char::is_alphanumeric)
        };
        let twins = self.pids.get(&(source, pid))?;
        let at = twins.iter().copied().find(|at| {
            self.processes.get(*at as usize).is_some_and(|known| {
                glued(host, &known.host) || (known.locals.is_empty() && glued(&known.host, host))
            })
        })?;
        let shorter = self.processes.get(at as usize).is_some_and(|known| known.host.len() > host.len());
        if shorter {
            let number = self.host(host, "");
            let process = self.processes.get_mut(at as usize)?;
            process.host = host.into();
            process.host_number = number;
        }
        Some(at)
    }

    /// The number of a host. Where there are too many, the others share one number and are counted.
    fn host(&mut self, name: &str, id: &str) -> u32 {
        let next = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let key = (Box::from(short(name)), Box::from(short(id)));
        match self.hosts.get(&key) {
            Some(known) => *known,
            None if self.hosts.len() >= HOSTS => {
                self.others_dropped += 1;
                next
            }
            None => {
                self.hosts.insert(key, next);
                next
            }
        }
    }

    fn connect(
        &mut self,
        at: u32,
        entry: &Entry<'_>,
        line: &super::channel::ChannelLine<'_>,
        events: &mut Vec<Event>,
    ) {
        let Some(transport) = self.name(line.transport.name) else {
            self.links_dropped += 1;
            return;
        };
        let tid = entry.writer.map_or(0, |writer| writer.tid);
        let full = self.links >= LINKS;
        let process = &mut self.processes[at as usize];
        let Some(burst) = process.burst(tid, line.index == 0, entry.line) else {
            self.links_dropped += 1;
            return;
        };
        let key = LinkKey::new(burst, transport, line);
        if full && !process.knows(&key) {
            self.links_dropped += 1;
            return;
        }
        let fresh = process.connect(key, line, entry.line);
        if fresh && !process.doubtful {
            process.doubtful = process.fits_none(line);
        }
        let uses = if process.pid.is_some() { &mut self.uses } else { &mut self.unsigned };
        uses.line(transport, line, fresh);
        if let Some(pointer) = line.comm
            && process.bursts[burst as usize].local.is_none()
        {
            process.bursts[burst as usize].local = process.local(pointer);
        }
        if fresh {
            self.links += 1;
            self.trace_link(at, entry, line);
            events.push(Event::Link {
                who: self.who(at),
                from: line.from,
                to: line.to,
                transport: line.transport.name.into(),
                gdr: line.transport.gdr,
            });
        }
    }

    /// Keeps the first lines that prove a kind of connection.
    fn trace_link(&mut self, at: u32, entry: &Entry<'_>, line: &super::channel::ChannelLine<'_>) {
        let source = self.processes[at as usize].source;
        let mut add =
            |id| self.signatures.add(id, source, Some(at), entry.line, entry.launcher_rank, entry.text);
        let Some(network) = line.transport.network() else {
            if line.transport.name == "P2P/MNNVL" {
                add(Signature::MnnvlConnection);
            }
            return;
        };
        if network == "Socket" {
            add(Signature::SocketConnection);
        } else if network.contains("Libfabric") {
            add(if line.transport.gdr {
                Signature::OfiConnection
            } else {
                Signature::OfiConnectionWithoutGdr
            });
        } else if network.starts_with("IB") || network.contains("RDMA") || network.starts_with("SPCX") {
            add(if line.transport.gdr { Signature::IbConnection } else { Signature::IbConnectionWithoutGdr });
        }
    }

    /// A message that changes what is known of the job.
    fn fact(&mut self, process: Option<u32>, entry: &Entry<'_>, events: &mut Vec<Event>) {
        match entry.event {
            NcclEvent::Announced(network) => {
                let name = self.name(network);
                if let (Some(process), Some(name)) = (process, name) {
                    let announced = &mut self.processes[process as usize].announced;
                    if announced.last() != Some(&name) {
                        announced.retain(|other| *other != name);
                        announced.push(name);
                        events.push(Event::Announced { who: self.who(process), network: network.into() });
                    }
                }
            }
            NcclEvent::Version(version) => {
                let seen = self.versions.len();
                if seen < 64 || self.versions.contains_key(short(version)) {
                    let processes = self.versions.entry(short(version).into()).or_default();
                    if processes.len() < 4096 {
                        processes.extend(process);
                    }
                }
                if self.versions.len() > seen {
                    events.push(Event::Version { version: version.into() });
                }
            }
            NcclEvent::Connected(phase) => {
                if let Some(process) = process {
                    self.connected(process, entry, phase, events);
                }
            }
            NcclEvent::Provider { name, nics } => {
                let name = short(name);
                let plugin = self.ofi();
                plugin.provider = Some(name.into());
                plugin.nics = nics.or(plugin.nics);
                let known = plugin.providers.contains(name);
                if !known && plugin.providers.len() < 16 {
                    plugin.providers.insert(name.into());
                    events.push(Event::Provider { name: name.into(), nics });
                }
            }
            NcclEvent::OfiVersion(version) => {
                let plugin = self.ofi();
                plugin.version = Some(short(version).into());
            }
            NcclEvent::Plugin(name)
                if !name.contains("Libfabric")
                    && self.plugins.len() < 32
                    && !self.plugins.iter().any(|p| *p.name == *name) =>
            {
                self.plugins.push(PluginSeen::new(short(name)));
            }
            NcclEvent::Listed { network, devices } => {
                let lists = self.listed.entry(network.into()).or_default();
                if lists.len() < 64 {
                    lists.insert(cut(devices, LIST).into());
                }
            }
            NcclEvent::Env { name, value } => self.environment(process, name, value),
            NcclEvent::Channels { coll, nvls, p2p } => {
                self.nvls_planned |= nvls.is_some_and(|count| count > 0);
                if let Some(process) = process {
                    let tid = entry.writer.map_or(0, |writer| writer.tid);
                    let process = &mut self.processes[process as usize];
                    if let Some((_, local)) = process.recent.iter().find(|recent| recent.0 == tid)
                        && let Some(local) = process.locals.get_mut(*local as usize)
                        && !local.complete
                    {
                        local.channels = Some((coll, p2p.unwrap_or(u32::MAX)));
                    }
                }
            }
            NcclEvent::Initialised(network) => self.initialised = Some(short(network).into()),
            _ => {}
        }
    }

    fn ofi(&mut self) -> &mut PluginSeen {
        const NAME: &str = "aws-ofi-nccl";
        let at = self.plugins.iter().position(|plugin| *plugin.name == *NAME).unwrap_or_else(|| {
            self.plugins.push(PluginSeen::new(NAME));
            self.plugins.len() - 1
        });
        &mut self.plugins[at]
    }

    fn environment(&mut self, process: Option<u32>, name: &str, value: &str) {
        if name == "HOSTID"
            && let Some(process) = process
        {
            let host = std::mem::take(&mut self.processes[process as usize].host);
            let number = self.host(&host, value);
            let process = &mut self.processes[process as usize];
            (process.host, process.host_number) = (host, number);
        }
        if name.len() <= TEXT && (self.env.len() < 256 || self.env.contains_key(name)) {
            let values = self.env.entry(name.into()).or_default();
            if values.len() < 16 && value.len() <= 256 {
                values.insert(value.into());
            }
        }
    }

    fn connected(&mut self, at: u32, entry: &Entry<'_>, what: Connected, events: &mut Vec<Event>) {
        let tid = entry.writer.map_or(0, |writer| writer.tid);
        let closed = self.processes[at as usize].close(tid);
        for burst in closed {
            self.try_settle(at, burst);
        }
        self.tidy(at);
        let phase = match what {
            Connected::Rings { gdr, .. } => {
                self.ring_gdr.extend(gdr);
                Phase::Rings
            }
            Connected::NvlsTree => {
                self.nvls_used = true;
                Phase::Trees
            }
            Connected::Trees | Connected::CollNet => Phase::Trees,
        };
        self.raise(at, phase, events);
    }

    /// Keeps a process small, and takes note of connections that turned out to be known.
    fn tidy(&mut self, at: u32) {
        let process = &mut self.processes[at as usize];
        process.bound_bursts();
        let uses = if process.pid.is_some() { &mut self.uses } else { &mut self.unsigned };
        for name in process.merged.drain(..) {
            self.links = self.links.saturating_sub(1);
            uses.merged(name);
        }
    }

    fn raise(&mut self, at: u32, phase: Phase, events: &mut Vec<Event>) {
        if self.processes[at as usize].reach(phase) {
            events.push(Event::Phase { who: self.who(at), phase });
        }
    }

    /// A message with no form of its own: a value of speed (then nothing else is in it), or nothing that is understood.
    fn other(&mut self, source: u32, process: Option<u32>, entry: &Entry<'_>) -> bool {
        if entry.level.is_none() {
            let throughput = &mut self.sources[source as usize].throughput;
            return throughput.observe(entry.launcher_rank, entry.line, entry.text);
        }
        self.unparsed += u64::from(process.is_some() && entry.text.is_empty());
        false
    }

    fn find_signatures(
        &mut self,
        source: u32,
        process: Option<u32>,
        entry: &Entry<'_>,
        events: &mut Vec<Event>,
    ) {
        let mut failed = false;
        let rank = entry.launcher_rank.or_else(|| watchdog_rank(entry.text));
        let signatures = &mut self.signatures;
        signature::find(entry.level, entry.location, entry.text, |id| {
            failed |= entry.level == Some(Level::Warn) && id.fails_rank();
            signatures.add(id, source, process, entry.line, rank, entry.text);
        });
        if entry.level == Some(Level::Warn) && !entry.text.is_empty() {
            let fresh = self.signatures.count(Signature::Warning) < 64;
            self.signatures.add(Signature::Warning, source, process, entry.line, rank, entry.text);
            if fresh {
                let who = process.map(|process| self.who(process));
                events.push(Event::Warning { who, text: printable(entry.text, 300) });
            }
        }
        if failed && let Some(process) = process {
            self.raise(process, Phase::Failed, events);
        }
    }

    /// A name's number; none if there are too many names.
    fn name(&mut self, name: &str) -> Option<u16> {
        // A job uses a handful of transports: comparing with those first costs less than a hash.
        const FIRST: usize = 6;
        if let Some(at) = self.names.iter().take(FIRST).position(|known| **known == *name) {
            return u16::try_from(at).ok();
        }
        if let Some(at) = self.name_index.get(name) {
            return Some(*at);
        }
        if self.names.len() >= NAMES {
            return None;
        }
        let at = u16::try_from(self.names.len()).ok()?;
        self.names.push(name.into());
        self.name_index.insert(name.into(), at);
        Some(at)
    }

    fn who(&self, at: u32) -> Who {
        let process = &self.processes[at as usize];
        let rank = process
            .locals
            .first()
            .filter(|_| process.pid.is_some())
            .map(|local| local.rank)
            .or(process.told_rank);
        Who {
            rank,
            host: process.host.clone(),
            pid: process.pid,
            source: Arc::clone(&self.sources[process.source as usize].id),
        }
    }
}

/// Bytes kept of a list of devices; the longest real ones name some forty.
const LIST: usize = 8192;

/// A text of a log, cut at what is kept of one.
fn short(text: &str) -> &str {
    cut(text, TEXT)
}

fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// `[Rank 3] Watchdog …`, `[PG ID 0 PG GUID 0(default_pg) Rank 0]`.
fn watchdog_rank(text: &[u8]) -> Option<u32> {
    if !super::text::contains(text, "atchdog") {
        return None;
    }
    super::text::behind(text, "Rank ").and_then(|rest| super::text::Cursor::new(rest).number())
}
