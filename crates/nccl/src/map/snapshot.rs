//! A map at one moment; it answers all questions about a map.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::diagnosed::OwnDiagnostic;
use super::ids::{CommId, HostId, ProcessId, SourceIndex};
use super::observed::Observed;
use super::process::{Phase, Process};
use super::restarts::Retries;
use super::stepping::Stepping;
use super::usage::Usage;
use super::verdict::{device_names, interfaces};
use super::{PluginSeen, SignatureHits, Signatures, Trace};
use crate::SourceId;
use crate::bandwidth::{Bandwidth, Speeds, short_host};
use crate::diagnostics::Check;
use crate::failure::Failures;
use crate::signature::Signature;
use crate::throughput::Series;

/// The state of a [`TransportMap`](super::TransportMap) at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    pub(super) seen: &'a Observed,
    /// The communicator that spans the job, where one does.
    pub(super) world: Option<CommId>,
    /// Whether what a launcher or a backend reported of ranks can be true: no two processes were given one.
    pub(super) told: bool,
    /// Processes replaced by later ones (a restart).
    pub(super) past: HashSet<ProcessId>,
    pub(super) retries: Retries,
    /// Usage of the connections of live processes after a restart, counted on first use.
    pub(super) live_usage: OnceCell<Usage>,
    /// The first line of the last process of each device, found on first use.
    latest_of_device: OnceCell<HashMap<Device<'a>, u64>>,
    /// The node of each host, numbered on first use.
    pub(super) node_numbers: OnceCell<HashMap<HostId, u32>>,
    /// Who trains, found on first use.
    pub(super) stepping: OnceCell<Stepping>,
}

/// A device of a host, as the main threads of a source's processes print it.
type Device<'a> = (SourceIndex, &'a str, i32);

impl<'a> Snapshot<'a> {
    /// Returns what weftrun's library measured of NCCL's collectives.
    pub fn bandwidth(&self) -> &'a Bandwidth {
        &self.seen.bandwidth.0
    }

    /// Returns how fast each collective is and which rank reaches it last, with the ranks of the job as far as NCCL's lines
    /// prove them; none if nothing was measured.
    pub fn speeds(&self) -> Option<Speeds> {
        let bandwidth = self.bandwidth();
        if bandwidth.is_empty() {
            return None;
        }
        let ranks = self.ranks();
        // Pods that share a host's network name it alike, and each numbers its processes from 1.
        let mut proved: HashMap<_, Option<u32>> = HashMap::new();
        for (key, rank) in
            ranks.iter().filter_map(|view| Some(((short_host(&view.host), view.pid?), view.rank?)))
        {
            proved
                .entry(key)
                .and_modify(|known| *known = known.filter(|known| *known == rank))
                .or_insert(Some(rank));
        }
        let proved = proved.into_iter().filter_map(|(key, rank)| Some((key, rank?))).collect();
        Some(bandwidth.speeds_of(&proved))
    }

    pub(super) fn new(seen: &'a Observed) -> Self {
        let past = seen.past();
        let told = seen.told_ranks_differ(&past);
        let world = seen.world(&past, told);
        let retries = seen.retries(&past);
        Self {
            world,
            told,
            past,
            retries,
            seen,
            live_usage: OnceCell::new(),
            latest_of_device: OnceCell::new(),
            stepping: OnceCell::new(),
            node_numbers: OnceCell::new(),
        }
    }

    /// Returns whether a process was not replaced by a later one.
    pub(super) fn is_alive(&self, process: ProcessId) -> bool {
        self.past.is_empty() || !self.past.contains(&process)
    }

    /// Returns the processes that were not replaced by later ones.
    pub(super) fn alive(&self) -> impl Iterator<Item = (ProcessId, &'a Process)> {
        self.seen.processes.iter_enumerated().filter(|(at, _)| self.is_alive(*at))
    }

    /// Returns the processes that are shown: one for each rank, whatever attempts it made.
    pub(super) fn shown(&self) -> impl Iterator<Item = (ProcessId, &'a Process)> {
        self.alive().filter(|(at, process)| !process.is_nobody() && !self.retries.hidden.contains(at))
    }

    /// Returns the process of the latest attempt in the place of another.
    pub(super) fn latest(&self, at: ProcessId) -> Option<&'a Process> {
        self.seen.processes.get(*self.retries.latest.get(&at)?)
    }

    /// Returns the failures found in the lines.
    pub fn failures(&self) -> &'a Failures {
        &self.seen.failures
    }

    /// Returns what NCCL's own diagnostics found or could not check, of attempts that were not replaced by later ones.
    pub fn own_diagnostics(&self) -> impl Iterator<Item = &'a OwnDiagnostic> {
        let found = self.seen.diagnosed.found.iter();
        found.filter(|known| known.trace.process.is_none_or(|process| self.is_alive(process)))
    }

    /// Returns what they checked and found to be well everywhere.
    pub fn own_diagnostics_passed(&self) -> impl Iterator<Item = Check> {
        let found: BTreeSet<Check> = self.own_diagnostics().map(|known| known.said.check).collect();
        self.seen.diagnosed.passed.iter().copied().filter(move |check| !found.contains(check))
    }

    /// Returns how many results there were beyond those that are kept.
    pub fn own_diagnostics_dropped(&self) -> u64 {
        self.seen.diagnosed.dropped
    }

    /// Returns the line by which NCCL says that it made no diagnosis.
    pub fn own_diagnostics_skipped(&self) -> Option<&'a Trace> {
        self.seen.diagnosed.skipped.as_ref()
    }

    /// Returns the global ranks that a result names, as far as the logs prove them.
    pub fn ranks_of_diagnostic(&self, found: &OwnDiagnostic) -> BTreeMap<u32, Option<u32>> {
        let global = |rank: u32| self.rank_of_member(found.said.comm?, rank);
        found.said.ranks.iter().map(|rank| (*rank, global(*rank))).collect()
    }

    /// Returns the signatures found so far.
    pub fn signatures(&self) -> &'a Signatures {
        &self.seen.signatures
    }

    /// Returns the sources, by the numbers that [`Report::source`](crate::failure::Report) has.
    pub fn sources(&self) -> impl Iterator<Item = (SourceIndex, &'a SourceId)> {
        self.seen.sources.iter_enumerated().map(|(at, source)| (at, &*source.id))
    }

    /// Returns the ranks that a launcher names before lines of a source, whatever the lines say.
    pub fn heard(&self, source: SourceIndex) -> impl Iterator<Item = u32> + use<'a> {
        self.seen.sources.get(source).into_iter().flat_map(|source| source.heard.iter().copied())
    }

    /// Returns how many live processes have a rank that is not known.
    pub fn nameless(&self) -> usize {
        self.shown().filter(|(at, process)| process.pid.is_some() && self.sole_rank(*at).is_none()).count()
    }

    /// Returns whether a source is an earlier attempt of another one.
    pub fn is_earlier_attempt(&self, source: &SourceId) -> bool {
        self.seen.restarts.is_earlier(source)
    }

    /// Returns the number of lines read.
    pub fn lines(&self) -> u64 {
        self.seen.sources.iter().map(|source| source.lines).sum()
    }

    /// Returns how many ranks of one communicator two processes claim.
    pub fn contested(&self) -> u32 {
        let contested = self.seen.comms.iter().filter(|comm| comm.contested > 0);
        let alive =
            contested.filter(|comm| comm.members.values().any(|(process, _)| self.is_alive(*process)));
        alive.map(|comm| comm.contested).sum()
    }

    /// Returns the connection lines cut in the middle, the connections beyond the limit, and the lines of hosts,
    /// processes and communicators beyond theirs.
    pub fn torn_and_dropped(&self) -> (u64, u64, u64) {
        (self.seen.torn, self.seen.links_dropped, self.seen.others_dropped)
    }

    /// Returns the versions of NCCL seen, in order.
    pub fn versions(&self) -> impl Iterator<Item = &'a str> {
        self.seen.versions.keys().map(|version| &**version)
    }

    /// Returns the versions that live processes printed.
    pub fn live_versions(&self) -> impl Iterator<Item = &str> {
        let alive = self
            .seen
            .versions
            .iter()
            .filter(|(_, processes)| processes.iter().any(|process| self.is_alive(*process)));
        alive.map(|(version, _)| &**version)
    }

    /// Returns the plugins seen.
    pub fn plugins(&self) -> &'a [PluginSeen] {
        &self.seen.plugins
    }

    /// Returns the port of localhost on which a rank reported that its RAS service listens.
    pub fn ras_port(&self) -> Option<u16> {
        self.seen.ras_port
    }

    /// Returns the values that NCCL read from the environment for one variable, named without `NCCL_`.
    pub fn env(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.seen.env.get(name).into_iter().flatten().map(|value| &**value)
    }

    /// Returns the throughput of every source that printed any.
    pub fn throughput(&self) -> impl Iterator<Item = (&'a str, &'a Series)> {
        self.seen
            .sources
            .iter()
            .flat_map(|source| source.throughput.series().map(|series| (&*source.id.name, series)))
    }

    /// Returns how many training steps a source is known to have printed behind a line; those of one rank, if the source
    /// tells its ranks apart.
    pub fn steps_after(&self, source: SourceIndex, line: u64, rank: Option<u32>) -> u64 {
        let Some(source) = self.seen.sources.get(source) else { return 0 };
        let own = |series: &&Series| series.rank.is_none() || series.rank == rank || rank.is_none();
        source.throughput.step_series().filter(own).map(|series| series.count_after(line)).max().unwrap_or(0)
    }

    /// Returns the ranks of the job that train: those that print steps, and the other members of their communicators.
    pub fn stepping_ranks(&self) -> &BTreeSet<u32> {
        &self.stepping().ranks
    }

    /// Returns the name of the source a trace is from.
    pub fn source_name(&self, trace: &Trace) -> &'a str {
        self.seen.sources.get(trace.source).map_or("", |source| &source.id.name)
    }

    /// Returns the source of a trace.
    pub fn source_of(&self, trace: &Trace) -> SourceIndex {
        trace.source
    }

    /// Returns the rank of the job that printed a line, where proved.
    pub fn rank_of(&self, trace: &Trace) -> Option<u32> {
        let proved = trace.process.and_then(|process| self.sole_rank(process));
        proved.map(u32::from).or(trace.told)
    }

    /// Returns the host that printed a line, as its own prefix names it.
    pub fn host_of<'t>(&'t self, trace: &'t Trace) -> Option<&'t str> {
        let process = trace.process.and_then(|at| self.seen.processes.get(at));
        process.map(|process| &*process.host).filter(|host| !host.is_empty()).or(trace.host.as_deref())
    }

    /// Returns the GPU of the process that printed a line, where it has one.
    pub fn gpu_of(&self, trace: &Trace) -> Option<u32> {
        self.seen.processes.get(trace.process?).and_then(gpu)
    }

    /// Returns whether the process of a line belongs to an earlier attempt, chose its network after the line, or made
    /// connections after it without a warning that ends it: then what the line reports did not end it.
    pub fn went_on(&self, trace: &Trace) -> bool {
        let Some(at) = trace.process else { return false };
        // A network is chosen after the plugins that could not be used.
        let later = |process: &Process| {
            process.announced_line > trace.line
                || process.phase != Phase::Failed
                    && process.bursts.iter().any(|burst| burst.first_line > trace.line)
        };
        !self.is_alive(at) || self.is_replaced(at) || self.seen.processes.get(at).is_some_and(later)
    }

    /// Returns whether a later process of the same source uses the device of one that printed nothing more, and a launcher
    /// saw a worker fail between them: the next attempt, also where the first one ended before NCCL named its GPU.
    fn is_replaced(&self, at: ProcessId) -> bool {
        let device = |process: &'a Process| Some((process.source, &*process.host, process.device?));
        let latest = self.latest_of_device.get_or_init(|| {
            let mut latest = HashMap::new();
            for process in &self.seen.processes {
                if let Some(device) = device(process) {
                    let first = latest.entry(device).or_insert(process.first_line);
                    *first = process.first_line.max(*first);
                }
            }
            latest
        });
        let Some(process) = self.seen.processes.get(at) else { return false };
        let next = device(process).and_then(|device| latest.get(&device).copied());
        let failed = self.failures().ranks(process.source).map(|ranks| ranks.failed_workers.as_slice());
        let between = |next: u64| {
            let first = failed.unwrap_or_default().partition_point(|line| *line <= process.last_line);
            failed.unwrap_or_default().get(first).is_some_and(|line| *line < next)
        };
        next.is_some_and(between)
    }

    /// Returns whether all lines of a signature are of attempts before the last one.
    pub fn is_past(&self, found: &SignatureHits) -> bool {
        !found.processes.iter().any(|process| self.is_alive(*process) && !self.is_replaced(*process))
            && found.nameless.is_none_or(|(source, line)| self.is_of_earlier_attempt(source, line))
    }

    fn is_of_earlier_attempt(&self, source: SourceIndex, line: u64) -> bool {
        let earlier = self.seen.sources.get(source).is_some_and(|source| self.is_earlier_attempt(&source.id));
        let ranks = self.failures().ranks(source);
        earlier || ranks.is_some_and(|ranks| ranks.attempt(line) < ranks.restarts.len())
    }

    /// Returns whether some process printed one signature and never the other.
    pub fn without(&self, signature: Signature, other: Signature) -> bool {
        let Some(found) = self.signatures().get(signature) else { return false };
        let others = self.signatures().get(other).map(|found| &found.processes);
        let alive = found.processes.iter().filter(|process| self.is_alive(**process));
        alive.clone().any(|process| others.is_none_or(|others| !others.contains(process)))
            || found.processes.is_empty() && others.is_none()
    }

    /// Returns the names of the verbs devices that each host listed, where all its processes listed the same.
    pub fn nics_of_hosts(&self) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let mut found: BTreeMap<&str, Option<BTreeSet<&str>>> = BTreeMap::new();
        for (list, processes) in self.seen.listed.get("IB").into_iter().flatten() {
            let names: BTreeSet<&str> = device_names(list).collect();
            for process in processes.iter().filter(|process| self.is_alive(**process)) {
                let Some(process) = self.seen.processes.get(*process) else { continue };
                let known = found.entry(&process.host).or_insert_with(|| Some(names.clone()));
                if known.as_ref().is_some_and(|known| *known != names) {
                    *known = None;
                }
            }
        }
        found.into_iter().filter_map(|(host, names)| Some((host, names?))).collect()
    }

    /// Returns the interfaces with their addresses that NCCL listed: `bond0`, `10.1.1.1`.
    pub fn interfaces(&self) -> BTreeSet<(&'a str, &'a str)> {
        let lists = self.seen.listed.values().flat_map(|lists| lists.keys()).chain(&self.seen.out_of_band);
        lists.flat_map(|list| interfaces(list)).collect()
    }

    /// Returns whether any INFO line was seen: without one, silence proves nothing.
    pub fn has_info(&self) -> bool {
        self.seen.info_seen
    }

    /// Returns whether NVLink SHARP was connected.
    pub fn nvls_used(&self) -> bool {
        self.seen.nvls_used
    }

    /// Returns the global ranks that printed a signature, where proved.
    pub fn ranks_of(&self, found: &SignatureHits) -> BTreeSet<u32> {
        let alive = found.processes.iter().filter(|process| self.is_alive(**process));
        let proved = alive.filter_map(|process| self.sole_rank(*process)).map(u32::from);
        proved.chain(found.told_ranks.iter().copied()).collect()
    }
}

/// Returns the GPU of a process, where it has one.
fn gpu(process: &Process) -> Option<u32> {
    let mut used = process.locals.iter().filter_map(|local| local.cuda_device).collect::<BTreeSet<_>>();
    let own = process.device.filter(|_| !process.several_devices).map(i64::from);
    // The threads of NCCL's proxy may print 0 for every device.
    let threads = process.thread_device.filter(|device| *device > 0).map(i64::from);
    match (used.pop_first(), used.is_empty()) {
        (Some(device), true) => Some(device),
        (Some(_), false) => None,
        (None, _) if process.several_devices => None,
        (None, _) => u32::try_from(own.or(threads)?).ok(),
    }
}
