//! The facts of all sources with the global ranks of their writers.

use std::collections::{BTreeMap, BTreeSet};

use weftrun_nccl::failure::{Exception, Fact, Order, Report, SourceRanks, Writer};
use weftrun_nccl::{Snapshot, SourceIndex, launcher};

use super::answer::{named, not_read};
use super::class::CauseClass;
use super::exceptions::{is_nccl, judge, root};
use super::grade::Grade;
use crate::rule_input::RuleInput;
use crate::rules::rule_of_error;
use weftrun_core::finding::Evidence;

/// The sources of the latest attempts.
type Sources<'a> = BTreeMap<SourceIndex, &'a SourceRanks>;

/// Training steps behind an exception that show that the program continues: other ranks may print one or two before they
/// wait for the one that failed.
const SURVIVED: u64 = 3;

/// Most lines behind one that says, in words of healthy programs too, that something failed, where it may be why the program ended.
const LAST_WORDS: u64 = 100;

/// One report with the global rank of its writer.
pub(super) struct KnownReport<'a> {
    pub report: &'a Report,
    pub rank: Option<u32>,
}

/// The facts and their writers, of the last attempt of each source.
#[derive(Default)]
pub(super) struct Scene<'a> {
    pub reports: Vec<KnownReport<'a>>,
    /// Ranks that wrote anything.
    pub seen: BTreeSet<u32>,
    /// Ranks of the job, by the largest communicator or number seen.
    pub world: u32,
    /// Whether a communicator says how many ranks there are: else there may be more than the highest one seen.
    pub stated: bool,
    /// Whether some source was cut off in a line.
    pub cut: BTreeSet<SourceIndex>,
    /// The source in which a rank was seen.
    pub source_of: BTreeMap<u32, SourceIndex>,
    /// Whether all existing logs were read.
    pub complete: bool,
    /// Whether a node's ranks were inferred from those of the others.
    pub inferred: bool,
    /// Whether the job still runs.
    pub running: bool,
    /// Whether some process has a rank that is not known, so that an unseen rank may have written something.
    pub nameless: bool,
    /// Ranks whose process is known.
    pub placed: BTreeSet<u32>,
    /// The lines at which the attempts of a source begin, and the attempt that is read.
    attempts: BTreeMap<SourceIndex, (Vec<u64>, usize)>,
    names: BTreeMap<SourceIndex, String>,
    lines: BTreeMap<SourceIndex, u64>,
    pub node_of: BTreeMap<u32, String>,
    pub finished: BTreeSet<u32>,
    /// Ranks that were the first to fail for their own launcher, after one of another launcher.
    pub later: BTreeSet<u32>,
    pub restarts: usize,
}

/// Most seconds by which the clocks of hosts differ.
pub(super) const CLOCKS: u64 = 5;

impl Scene<'_> {
    /// Returns the ranks of the job without any output.
    pub fn unseen(&self) -> Vec<u32> {
        (0..self.world).filter(|rank| !self.seen.contains(rank)).take(65_536).collect()
    }

    /// Says that nothing is known of the ranks without any output; `of` is the number of all ranks, or is empty.
    pub fn not_read(&self, of: &str) -> String {
        let unseen = self.unseen();
        if self.nameless {
            let ranks = named(&unseen);
            return format!(
                "no line names {ranks}{of}: their logs were not read, or do not say whose they are"
            );
        }
        not_read(&unseen, of)
    }

    pub fn evidence(&self, report: &Report) -> Evidence {
        Evidence {
            source: self.names.get(&report.source).cloned().unwrap_or_default(),
            line: report.line,
            text: report.text.clone(),
        }
    }
}

impl<'a> Scene<'a> {
    /// Returns the facts and their writers. `attempt` is the attempt to read, if it is not the last.
    pub fn new(map: &Snapshot<'a>, attempt: Option<usize>) -> Self {
        let failures = map.failures();
        let latest = map.sources().filter(|(_, id)| !map.is_earlier_attempt(id));
        let sources: Sources<'a> = latest.filter_map(|(at, _)| Some((at, failures.ranks(at)?))).collect();
        let mut scene = Scene {
            stated: sources.values().any(|source| source.world.is_some()),
            names: map.sources().map(|(at, id)| (at, id.name.clone())).collect(),
            nameless: map.nameless() > 0,
            restarts: sources.values().map(|source| source.restarts.len()).max().unwrap_or(0),
            ..Scene::default()
        };
        for (at, source) in &sources {
            scene.world = scene.world.max(source.world.unwrap_or(0));
            scene.placed.extend(source.by_pid.values());
            let ranks = source.seen.iter().chain(source.by_pid.values()).chain(source.by_local.values());
            for rank in ranks.copied().chain(map.heard(*at)) {
                scene.seen.insert(rank);
                scene.source_of.entry(rank).or_insert(*at);
            }
            if source.cut {
                scene.cut.insert(*at);
            }
            scene.lines.insert(*at, source.lines);
            let latest = source.restarts.len();
            let wanted = attempt.map_or(latest, |attempt| attempt.min(latest));
            scene.attempts.insert(*at, (source.restarts.clone(), wanted));
        }
        let bases = inferred_bases(&mut scene, &sources);
        let tasks = !sources
            .values()
            .any(|source| source.agent || source.tasks_hold_ranks || !source.by_local.is_empty());
        let labels: BTreeSet<u32> =
            sources.values().flat_map(|source| source.tasks.iter().copied()).collect();
        let is_tagged = sources.values().any(|source| source.tagged);
        // `91: ` before all lines is no rank of 92: ctest numbers its tests so.
        let is_lone = scene.world == 0 && labels.len() == 1 && !labels.contains(&0) && !is_tagged;
        let tasks = tasks && !is_lone;
        // Numbers before lines that report nothing may be those of a list (`1: lo: <LOOPBACK,UP>`).
        if tasks && (is_tagged || failures.reports().iter().any(|report| report.writer.task.is_some())) {
            scene.seen.extend(labels);
        }
        // A rank that waited did not raise what nobody signed.
        let waited: BTreeSet<SourceIndex> = failures
            .reports()
            .iter()
            .filter(|report| matches!(report.fact, Fact::TimedOut { .. }))
            .map(|report| report.source)
            .collect();
        for report in failures.reports() {
            let Some(source) = sources.get(&report.source) else { continue };
            if !scene.is_current(report.source, report.line) {
                continue;
            }
            let task = || report.writer.task.filter(|_| tasks);
            let base = || bases.get(&report.source)?.checked_add(report.writer.local?);
            let rank = source.rank(&report.writer).or_else(base).or_else(task);
            // Ray's own process tells of a lost worker.
            let unsigned =
                matches!(report.fact, Fact::Error { .. } | Fact::Mention(_) | Fact::WorkerLost { .. })
                    || waited.contains(&report.source);
            let alone = || alone(source, &report.writer).filter(|_| !unsigned);
            let rank = rank.or_else(alone);
            if let Some(rank) = rank {
                scene.seen.insert(rank);
                scene.source_of.entry(rank).or_insert(report.source);
                if report.fact == Fact::Finished {
                    scene.finished.insert(rank);
                }
            }
            // Horovod tells of a rank that is slow, too.
            let came = matches!(report.fact, Fact::Absent { .. })
                && map.steps_after(report.source, report.line, rank) >= SURVIVED;
            // What many lines or training steps follow ended nothing.
            let survived = matches!(report.fact, Fact::Mention(_))
                && (scene.lines_after(report) >= LAST_WORDS
                    || map.steps_after(report.source, report.line, rank) > 0);
            if !came && !survived {
                scene.reports.push(KnownReport { report, rank });
            }
        }
        scene.world = scene.world.max(scene.seen.last().map_or(0, |last| last.saturating_add(1)));
        name_nodes(&mut scene, &sources, tasks);
        name_by_launcher(&mut scene);
        scene.later = later(&scene);
        scene
    }
}

impl Scene<'_> {
    /// Returns the one rank that reports nothing, where the logs of all are there and all others report a failure.
    pub fn silent(&self) -> Option<u32> {
        let told: BTreeSet<u32> = self
            .reports
            .iter()
            .filter(|known| {
                !matches!(
                    known.report.fact,
                    Fact::Progress { .. } | Fact::Error { fatal: false, .. } | Fact::Mention(_)
                )
            })
            .filter_map(|known| known.rank)
            .collect();
        let mut silent = self.seen.difference(&told);
        let only = silent.next().copied().filter(|_| silent.next().is_none())?;
        (self.world > 2 && self.stated && self.unseen().is_empty()).then_some(only)
    }

    /// Returns whether an exception without its traceback ended its program: by its kind, as PyTorch prints those that
    /// nothing caught, or since it is among the last lines of a job that has ended. Others may have been handled.
    pub fn ends(&self, report: &Report, exception: &Exception) -> bool {
        report.text.contains("[rank")
            || judge(exception).1 != CauseClass::Exception
            || is_nccl(exception)
            || self.is_near_end(report)
    }

    /// Returns whether a line is among the last of a job that has ended.
    pub fn is_near_end(&self, report: &Report) -> bool {
        const LAST: u64 = 40;
        !self.running && self.lines_after(report) < LAST
    }

    fn lines_after(&self, report: &Report) -> u64 {
        let lines = self.lines.get(&report.source).copied().unwrap_or(u64::MAX);
        lines.saturating_sub(report.line)
    }

    /// Returns whether a process ended with an exit code of its own.
    pub fn has_exited(&self) -> bool {
        let failed = |known: &KnownReport<'_>| matches!(known.report.fact, Fact::Exit { code, .. } if !matches!(code, 0 | -15 | 143));
        self.reports.iter().any(failed)
    }

    /// Returns whether a line is of the attempt that is read.
    pub fn is_current(&self, source: SourceIndex, line: u64) -> bool {
        self.attempts
            .get(&source)
            .is_some_and(|(restarts, wanted)| restarts.partition_point(|start| *start <= line) == *wanted)
    }

    /// Returns whether a rank printed training steps after a line.
    pub fn goes_on(&self, seen: &RuleInput<'_>, source: SourceIndex, line: u64, rank: Option<u32>) -> bool {
        seen.map.steps_after(source, line, rank) >= SURVIVED
    }

    /// Returns whether a rank printed a training step after a line.
    pub fn went_on(&self, seen: &RuleInput<'_>, source: SourceIndex, line: u64, rank: Option<u32>) -> bool {
        seen.map.steps_after(source, line, rank) > 0
    }

    /// Removes the exceptions after which the same log has training steps, in a job that still runs. In one that has
    /// ended, steps behind an exception prove nothing: Python writes buffered output when it exits.
    pub fn forget_survived(&mut self, map: &Snapshot<'_>) {
        self.reports.retain(|KnownReport { report, rank }| {
            !matches!(
                report.fact,
                Fact::Exception(_)
                    | Fact::Cuda(_)
                    | Fact::LastError(_)
                    | Fact::Error { .. }
                    | Fact::Mention(_)
            ) || map.steps_after(report.source, report.line, *rank) < SURVIVED
        });
    }
}

/// Returns the ranks whose launcher saw them fail first, and after the first failure that another launcher saw.
fn later(scene: &Scene<'_>) -> BTreeSet<u32> {
    let firsts = scene.reports.iter().filter_map(|known| match &known.report.fact {
        Fact::Exit { order: Order::First, at: Some(at), .. } => {
            Some((launcher::seconds(at.as_bytes())?, known.rank?))
        }
        _ => None,
    });
    let firsts: Vec<(u64, u32)> = firsts.collect();
    let Some((start, first)) = firsts.iter().min() else { return BTreeSet::new() };
    let same_clock =
        |rank: &u32| scene.node_of.get(rank).is_some_and(|node| scene.node_of.get(first) == Some(node));
    let is_later = |(at, rank): &&(u64, u32)| *at > start + if same_clock(rank) { 0 } else { CLOCKS };
    firsts.iter().filter(is_later).map(|(_, rank)| *rank).collect()
}

/// Returns the rank of an unnamed line in a source that only one rank writes to.
fn alone(source: &SourceRanks, writer: &Writer) -> Option<u32> {
    let signed = writer.local.is_some() || writer.pid.is_some() || writer.task.is_some();
    if signed || source.agent || source.by_pid.len() > 1 {
        return None;
    }
    match source.seen.len() {
        1 => source.seen.first().copied(),
        _ => None,
    }
}

/// Returns the first rank of a source without named ranks, where those of all other sources are known.
fn inferred_bases(scene: &mut Scene<'_>, sources: &Sources<'_>) -> BTreeMap<SourceIndex, u32> {
    let nameless: Vec<_> =
        sources.iter().filter(|(_, source)| source.seen.is_empty() && !source.locals.is_empty()).collect();
    let missing: Vec<u32> = scene.unseen();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return BTreeMap::new() };
    let in_a_row = (last - first) as usize + 1 == missing.len();
    let [(at, source)] = nameless.as_slice() else { return BTreeMap::new() };
    let fits = source.locals.last().is_some_and(|local| (*local as usize) < missing.len());
    if !in_a_row || !fits || scene.seen.is_empty() {
        return BTreeMap::new();
    }
    // Every other node must be full, or the missing ranks may be on two nodes.
    let widest = sources.values().filter_map(|source| source.by_local.keys().last()).max();
    if widest.is_some_and(|widest| *widest as usize + 1 != missing.len()) {
        return BTreeMap::new();
    }
    scene.inferred = true;
    BTreeMap::from([(**at, *first)])
}

/// Names each rank's node: its `NCCL_HOSTID`, or its host where hosts distinguish the sources.
fn name_nodes(scene: &mut Scene<'_>, sources: &Sources<'_>, tasks: bool) {
    let mut uses: BTreeMap<&str, BTreeSet<SourceIndex>> = BTreeMap::new();
    for (at, source) in sources {
        for host in
            source.hosts.iter().chain(source.host_of_rank.values()).chain(source.host_of_task.values())
        {
            uses.entry(host).or_default().insert(*at);
        }
    }
    let count = sources.len();
    let mut pids: BTreeMap<(SourceIndex, u32), u64> = BTreeMap::new();
    for (at, source) in sources {
        for (pid, rank) in &source.by_pid {
            pids.entry((*at, *rank)).or_insert(*pid);
        }
    }
    for (rank, at) in &scene.source_of {
        let Some(source) = sources.get(at) else { continue };
        let pid = pids.get(&(*at, *rank));
        let id = pid.and_then(|pid| source.host_of_pid.get(pid).cloned());
        let tells = |host: &&String| count == 1 || uses.get(host.as_str()).is_some_and(|of| of.len() == 1);
        let own = || {
            let of_task = source.host_of_task.get(rank).filter(|_| tasks);
            source.host_of_rank.get(rank).or(of_task).filter(tells)
        };
        let host = || source.hosts.first().filter(|_| source.hosts.len() == 1).filter(tells);
        // What a backend names `NODE/rankN`. The name of a file is no host.
        let of_backend = || {
            let name = scene.names.get(at).map_or("", String::as_str);
            name.split_once("/rank").filter(|(node, _)| !node.contains('/')).map(|(node, _)| node.to_owned())
        };
        // srun names the hosts of its tasks in the log of the batch script.
        let of_task = || {
            let mut hosts = sources.values().filter_map(|source| source.host_of_task.get(rank));
            hosts.next().filter(|_| tasks).cloned()
        };
        let name =
            id.or_else(|| own().cloned()).or_else(|| host().cloned()).or_else(of_task).or_else(of_backend);
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            scene.node_of.insert(*rank, name);
        }
    }
}

/// Assigns unnamed tracebacks and errors to the worker that the launcher of the same source saw fail first.
fn name_by_launcher(scene: &mut Scene<'_>) {
    type Ranks = BTreeMap<(SourceIndex, Option<u32>), BTreeSet<u32>>;
    let (mut failed, mut aborted, mut ended) = (Ranks::new(), Ranks::new(), Ranks::new());
    for known in &scene.reports {
        if let (Fact::Exit { code, order, .. }, Some(rank)) = (&known.report.fact, known.rank) {
            if !matches!(code, 0 | -15 | 143) {
                // Of one failure alone the launcher need not say that it was the first.
                ended.entry((known.report.source, None)).or_default().insert(rank);
            }
            let of = match code {
                _ if *order != Order::First => continue,
                1.. => &mut failed,
                // C++ aborts after an exception that nothing caught.
                -6 => &mut aborted,
                _ => continue,
            };
            of.entry((known.report.source, known.report.writer.task)).or_default().insert(rank);
        }
    }
    for known in &mut scene.reports {
        let of = match &known.report.fact {
            Fact::Exception(exception) if exception.is_launcher() => continue,
            Fact::Exception(exception) if judge(root(exception)).0 == Grade::Rendezvous => continue,
            Fact::Exception(_) => &failed,
            Fact::Cuda(_) => &aborted,
            Fact::Error { text, fatal }
                if *fatal || rule_of_error(CauseClass::Unexplained, &[text]).is_end() =>
            {
                &ended
            }
            _ => continue,
        };
        let task = known.report.writer.task;
        if known.rank.is_none() && known.report.writer == (Writer { task, ..Writer::default() }) {
            let ranks = of.get(&(known.report.source, task)).filter(|ranks| ranks.len() == 1);
            known.rank = ranks.and_then(|ranks| ranks.first().copied());
        }
    }
}
