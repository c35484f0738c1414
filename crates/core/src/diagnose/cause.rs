//! Why a job failed or hangs: the first cause, out of what all ranks wrote.
//!
//! The loudest lines come from victims, often on another node and minutes before or after the culprit's own, and clocks
//! differ between nodes. So a cause outranks its consequences by kind, and only between equals does order decide. A rank
//! that hangs writes nothing: it is named by the sequence numbers of the others.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::collective;
use crate::finding::Evidence;
use crate::{Confidence, Finding};
use weftrun_nccl::TransportMap;
use weftrun_nccl::failure::{ClusterReason, Exception, Fact, Report, SourceRanks, Writer};

/// Most lines cited for a cause.
const EVIDENCE: usize = 6;

/// What became of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum WhyState {
    /// It ended with an error.
    Failed,
    /// It runs, and a collective operation waits beyond its time limit.
    Hanging,
    /// It runs.
    Running,
    /// It ended in order.
    Succeeded,
    /// The logs do not say.
    #[default]
    Unknown,
}

impl WhyState {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Hanging => "hanging",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Unknown => "unknown",
        }
    }
}

/// The kind of a first cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CauseClass {
    /// An exception in the program.
    Exception,
    /// A GPU's memory is full.
    CudaOutOfMemory,
    /// A CUDA call failed, or the driver reports an error of a GPU.
    CudaError,
    /// A signal ended a process.
    Signal,
    /// A process ended with an exit code, and its log does not say why.
    ExitCode,
    /// A rank did not join a collective operation.
    CollectiveTimeout,
    /// Ranks joined a collective operation with different sizes or kinds.
    CollectiveMismatch,
    /// The processes did not find each other.
    Rendezvous,
    /// Kubernetes: a container exceeded its memory limit.
    #[serde(rename = "OOMKilled")]
    OomKilled,
    /// Kubernetes: a pod was evicted.
    #[serde(rename = "Evicted")]
    Evicted,
    /// Kubernetes: an image could not be pulled.
    #[serde(rename = "ImagePullBackOff")]
    Image,
    /// Kubernetes: no node can take a pod.
    #[serde(rename = "Unschedulable")]
    Unschedulable,
    /// Slurm: a task exceeded its memory limit.
    #[serde(rename = "OUT_OF_MEMORY")]
    OutOfMemory,
    /// A node failed.
    #[serde(rename = "NODE_FAIL")]
    NodeFail,
    /// The time limit of the job was reached.
    #[serde(rename = "TIMEOUT")]
    TimeLimit,
    /// Another job took the nodes.
    #[serde(rename = "PREEMPTED")]
    Preempted,
}

impl CauseClass {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exception => "exception",
            Self::CudaOutOfMemory => "cuda-out-of-memory",
            Self::CudaError => "cuda-error",
            Self::Signal => "signal",
            Self::ExitCode => "exit-code",
            Self::CollectiveTimeout => "collective-timeout",
            Self::CollectiveMismatch => "collective-mismatch",
            Self::Rendezvous => "rendezvous",
            Self::OomKilled => "OOMKilled",
            Self::Evicted => "Evicted",
            Self::Image => "ImagePullBackOff",
            Self::Unschedulable => "Unschedulable",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::NodeFail => "NODE_FAIL",
            Self::TimeLimit => "TIMEOUT",
            Self::Preempted => "PREEMPTED",
        }
    }
}

/// A place in the user's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CauseFrame {
    /// File, as the traceback names it.
    pub file: String,
    /// Line.
    pub line: u64,
    /// Function.
    pub function: String,
}

/// The first cause of a failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// Kind.
    pub class: CauseClass,
    /// Global ranks that failed first; empty where no rank did, or none is proved.
    pub ranks: Vec<u32>,
    /// Their nodes.
    pub nodes: Vec<String>,
    /// What happened, in one line.
    pub what: String,
    /// The innermost frame of the user's own code.
    pub frame: Option<CauseFrame>,
    /// The log lines that prove it.
    pub evidence: Vec<Evidence>,
    /// How sure that is.
    pub confidence: Confidence,
}

impl Cause {
    /// What to do about it, in one sentence.
    pub fn fix(&self) -> String {
        let place = self.frame.as_ref().map(|frame| format!("{}:{}", frame.file, frame.line));
        match self.class {
            CauseClass::Exception if self.what.contains("No space left on device") => {
                "free space on the volume that is written to, or write checkpoints to another one".to_owned()
            }
            CauseClass::Exception if self.what.contains("No module named") => {
                "install the missing module in the image or environment of every node".to_owned()
            }
            CauseClass::Exception => match place {
                Some(place) => format!("correct {place}, which raised it"),
                None => "correct the program where the traceback ends".to_owned(),
            },
            CauseClass::CudaOutOfMemory => {
                "use a smaller batch or shard the model, and check that no other process uses the GPU (nvidia-smi)".to_owned()
            }
            CauseClass::CudaError => {
                "run once with CUDA_LAUNCH_BLOCKING=1 to find the call; if the GPU has Xid errors, drain its node".to_owned()
            }
            CauseClass::Signal if self.what.starts_with("SIGKILL") => {
                "check the node for out-of-memory kills (dmesg) and raise the memory request of the job".to_owned()
            }
            CauseClass::Signal => "run the rank with python -X faulthandler to see where it crashes".to_owned(),
            CauseClass::ExitCode if self.ranks.is_empty() => {
                "add the log of the missing ranks and ask again".to_owned()
            }
            CauseClass::ExitCode => "read the last lines of that rank: it ended without a traceback".to_owned(),
            CauseClass::CollectiveTimeout if self.ranks.is_empty() => {
                "add the logs of all ranks and ask again, or check the network between the nodes".to_owned()
            }
            CauseClass::CollectiveTimeout => {
                "look at what the rank did instead: run py-spy dump on its process while it hangs".to_owned()
            }
            CauseClass::CollectiveMismatch => {
                "make all ranks call the same collectives with the same shapes; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call".to_owned()
            }
            CauseClass::Rendezvous => {
                "check that MASTER_ADDR resolves on every node, its port is free, and all nodes started".to_owned()
            }
            CauseClass::OomKilled | CauseClass::OutOfMemory => "raise the memory request of the job, or use fewer data loader workers".to_owned(),
            CauseClass::Evicted => "request the resources that the pod uses, or use a node with more free disk and memory".to_owned(),
            CauseClass::Image => "check the name of the image and the pull secret".to_owned(),
            CauseClass::Unschedulable => "request fewer or other resources, or wait until nodes are free".to_owned(),
            CauseClass::NodeFail => "submit the job again, and exclude the node if it fails again".to_owned(),
            CauseClass::TimeLimit => "raise the time limit, or write checkpoints and continue from the last one".to_owned(),
            CauseClass::Preempted => "submit the job again, or use a queue that is not preempted".to_owned(),
        }
    }

    /// Who failed, in words: `rank 3 on node1`.
    pub fn who(&self) -> String {
        let ranks = match self.ranks.as_slice() {
            [] => "no rank is named".to_owned(),
            [one] => format!("rank {one}"),
            many => format!("ranks {}", rank_list(many)),
        };
        match self.nodes.as_slice() {
            [] => ranks,
            [one] => format!("{ranks} on {one}"),
            many => format!("{ranks} on {} nodes", many.len()),
        }
    }
}

/// Why a job failed or hangs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// What became of the job.
    pub state: WhyState,
    /// The first cause; none where nothing failed, or nothing proves one.
    pub cause: Option<Cause>,
    /// Ranks that failed because of it.
    pub victims: Vec<u32>,
    /// What else is worth knowing.
    pub findings: Vec<Finding>,
}

impl Why {
    /// The cause as a finding, for lists of findings; none where there is no cause.
    pub fn finding(&self) -> Option<Finding> {
        let cause = self.cause.as_ref()?;
        let place = cause.frame.as_ref().map_or_else(String::new, |frame| {
            format!(" ({}:{} in {})", frame.file, frame.line, frame.function)
        });
        let who = cause.who();
        let message =
            format!("{} {}: {}: {}{place}", self.state.as_str(), cause.class.as_str(), who, cause.what);
        let mut finding = Finding::error("WHY-CAUSE", message).fix(cause.fix());
        finding.confidence = Some(cause.confidence);
        finding.ranks.clone_from(&cause.ranks);
        finding.evidence.clone_from(&cause.evidence);
        Some(finding)
    }

    /// The answer in at most ten lines.
    pub fn lines(&self) -> Vec<String> {
        let Some(cause) = &self.cause else {
            let head = match self.state {
                WhyState::Failed => "failed: the logs do not show the cause",
                WhyState::Hanging => "hanging: the logs do not show the cause",
                WhyState::Running => "running: no failure in the logs",
                WhyState::Succeeded => "succeeded: no failure in the logs",
                WhyState::Unknown => "unknown: no failure in the logs, and no end of the job",
            };
            let more = self.findings.iter().take(8).map(|finding| format!("  note      {}", finding.message));
            return std::iter::once(head.to_owned()).chain(more).collect();
        };
        let mut lines = vec![format!("{}: {}: {}", self.state.as_str(), cause.class.as_str(), cause.who())];
        lines.push(format!("  what      {}", cause.what));
        if let Some(frame) = &cause.frame {
            lines.push(format!("  at        {}:{} in {}", frame.file, frame.line, frame.function));
        }
        for evidence in cause.evidence.iter().take(2) {
            let text: String = evidence.text.chars().take(160).collect();
            let line = if evidence.line == 0 { String::new() } else { format!(":{}", evidence.line) };
            lines.push(format!("  evidence  {}{line}: {text}", evidence.source));
        }
        if !self.victims.is_empty() {
            let word = if self.victims.len() == 1 { "rank" } else { "ranks" };
            lines.push(format!("  victims   {word} {}", rank_list(&self.victims)));
        }
        lines.push(format!("  fix       {}", cause.fix()));
        if cause.confidence != Confidence::High {
            let sure = if cause.confidence == Confidence::Low { "low" } else { "medium" };
            let why = if self.findings.is_empty() { "" } else { ": " };
            let reason = self.findings.first().map_or("", |finding| finding.message.as_str());
            lines.push(format!("  sure      {sure}{why}{reason}"));
        }
        lines
    }
}

/// Numbers as ranges: `0-3, 7`.
pub fn rank_list(ranks: &[u32]) -> String {
    const MOST: usize = 16;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown = runs.iter().take(MOST).map(|(from, to)| match to - from {
        0 => from.to_string(),
        _ => format!("{from}-{to}"),
    });
    let more = if runs.len() > MOST { ", …" } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

/// How much a fact explains: smaller is nearer to the beginning of the chain of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// The cluster took a process or a node away.
    Cluster,
    /// The kernel or somebody killed a process that its launcher saw fail first.
    Killed,
    /// The program failed by itself.
    Own,
    /// The cluster ended a job that ran.
    Ended,
    /// Native code crashed, which also happens to victims while they end.
    Crashed,
    /// A process left with an exit code.
    Exited,
    /// Ranks disagree about a collective, or one did not join.
    Collective,
    /// Killed, as a launcher also does with the others.
    KilledWithOthers,
    /// The processes did not find each other.
    Rendezvous,
    /// The time is over.
    TimeLimit,
    /// A connection broke, as it does when another process ends.
    Broken,
    /// NCCL reports that another process went away.
    Remote,
    /// Ranks wait for one that is not named.
    Waiting,
}

/// A possible cause.
pub(super) struct Candidate {
    grade: Grade,
    class: CauseClass,
    what: String,
    frame: Option<CauseFrame>,
    /// What stands for the same failure on several ranks.
    key: String,
    rank: Option<u32>,
    first: bool,
    report: usize,
}

/// One report with the global rank of its writer.
pub(super) struct Known<'a> {
    pub report: &'a Report,
    pub rank: Option<u32>,
}

/// Everything that is known about who wrote what, of the last life of each source.
pub(super) struct Scene<'a> {
    pub reports: Vec<Known<'a>>,
    /// Ranks that wrote anything.
    pub seen: BTreeSet<u32>,
    /// Ranks of the job, by the largest communicator or number seen.
    pub world: u32,
    /// Whether some source was cut off in a line.
    pub cut: BTreeSet<u32>,
    /// The source in which a rank was seen.
    pub source_of: BTreeMap<u32, u32>,
    /// Whether all logs that there are were read.
    complete: bool,
    /// Whether a node's ranks were inferred from those of the others.
    inferred: bool,
    names: Vec<String>,
    node_of: BTreeMap<u32, String>,
    finished: BTreeSet<u32>,
    lives: usize,
}

impl Scene<'_> {
    /// Ranks of the job that wrote nothing that was read.
    pub fn unseen(&self) -> Vec<u32> {
        (0..self.world).filter(|rank| !self.seen.contains(rank)).take(65_536).collect()
    }

    fn evidence(&self, report: &Report) -> Evidence {
        Evidence {
            source: self.names.get(report.source as usize).cloned().unwrap_or_default(),
            line: report.line,
            text: report.text.clone(),
        }
    }
}

/// Names the first cause of what the sources of a map tell. `known` is what the cluster says of the job, where it was asked.
pub fn why(map: &TransportMap, known: Option<WhyState>) -> Why {
    let mut scene = scene(map, None);
    // The cluster gave all logs there are: a rank without one wrote nothing.
    scene.complete = known.is_some();
    let mut why = of_scene(&scene);
    if scene.lives > 0 && why.cause.is_none() {
        let earlier = of_scene(&self::scene(map, Some(scene.lives - 1)));
        if let Some(cause) = earlier.cause {
            let message =
                format!("an earlier attempt in the same logs failed: {}: {}", cause.who(), cause.what);
            let mut finding = Finding::info("WHY-EARLIER-ATTEMPT", message);
            finding.ranks = cause.ranks;
            finding.evidence = cause.evidence;
            why.findings.push(finding);
        }
    }
    match known {
        Some(WhyState::Running) if why.state == WhyState::Failed || why.state == WhyState::Hanging => {}
        Some(WhyState::Unknown) | None => {}
        Some(WhyState::Succeeded) => {
            why = Why { state: WhyState::Succeeded, findings: why.findings, ..Why::default() }
        }
        Some(state) => why.state = state,
    }
    why
}

fn of_scene(scene: &Scene<'_>) -> Why {
    let mut candidates = candidates(scene);
    let collective = collective::find(scene);
    candidates.sort_by_key(|candidate| candidate.grade);
    let best = candidates.first().map(|candidate| candidate.grade);
    let collective_grade = collective.as_ref().map(|found| {
        let named =
            !found.ranks.is_empty() || found.class == CauseClass::CollectiveMismatch || found.complete;
        if named { Grade::Collective } else { Grade::Waiting }
    });
    let by_collective = match (best, collective_grade) {
        (Some(best), Some(grade)) => grade < best,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let mut cause = match collective.filter(|_| by_collective) {
        Some(found) => Some(Cause {
            class: found.class,
            ranks: found.ranks,
            nodes: Vec::new(),
            what: found.what,
            frame: None,
            evidence: found.reports.iter().take(EVIDENCE).map(|report| scene.evidence(report)).collect(),
            confidence: found.confidence,
        }),
        None => best.and_then(|grade| choose(scene, &candidates, grade)),
    };
    let state = state(scene, cause.is_some());
    let mut findings = Vec::new();
    let unseen = if scene.complete { Vec::new() } else { scene.unseen() };
    if let Some(cause) = &mut cause {
        cause.nodes = nodes(scene, &cause.ranks);
        if !unseen.is_empty() && cause.confidence == Confidence::High {
            cause.confidence = Confidence::Medium;
        }
        if scene.inferred && cause.confidence == Confidence::High {
            cause.confidence = Confidence::Medium;
        }
    }
    if !unseen.is_empty()
        && (cause.is_some() || state == WhyState::Unknown)
        && scene.world > 1
        && !scene.seen.is_empty()
    {
        let message = format!("the logs of rank {} of {} were not read", rank_list(&unseen), scene.world);
        let mut finding = Finding::info("WHY-LOGS-MISSING", message);
        finding.ranks = unseen;
        findings.push(finding);
    }
    if findings.is_empty()
        && cause.as_ref().is_some_and(|cause| cause.ranks.is_empty() && cause.confidence == Confidence::Low)
    {
        let message = "no log that was read shows the first failure; the log of a rank is missing";
        findings.push(Finding::info("WHY-LOGS-MISSING", message));
    }
    let victims = match &cause {
        Some(cause) => scene.seen.iter().copied().filter(|rank| !cause.ranks.contains(rank)).collect(),
        None => Vec::new(),
    };
    Why { state, cause, victims, findings }
}

fn nodes(scene: &Scene<'_>, ranks: &[u32]) -> Vec<String> {
    let names: BTreeSet<&String> = ranks.iter().filter_map(|rank| scene.node_of.get(rank)).collect();
    names.into_iter().cloned().collect()
}

fn state(scene: &Scene<'_>, caused: bool) -> WhyState {
    let mut waits = false;
    for known in &scene.reports {
        match &known.report.fact {
            Fact::TimedOut { .. } => waits = true,
            Fact::Exit { code: 0, .. } | Fact::Progress { .. } | Fact::Finished => {}
            Fact::Cuda(_) | Fact::Xid(_) if !caused => {}
            _ => return WhyState::Failed,
        }
    }
    if waits {
        return WhyState::Hanging;
    }
    let all =
        !scene.seen.is_empty() && scene.seen.len() >= scene.world as usize && scene.seen == scene.finished;
    if all { WhyState::Succeeded } else { WhyState::Unknown }
}

/// Who wrote what. `life` is the life to look at, where it is not the last.
fn scene(map: &TransportMap, life: Option<usize>) -> Scene<'_> {
    let failures = map.failures();
    let ids: Vec<_> = map.source_ids().collect();
    let sources: Vec<Option<&SourceRanks>> = ids
        .iter()
        .zip(0u32..)
        .map(|(id, at)| failures.ranks(at).filter(|_| !map.is_earlier_attempt(id)))
        .collect();
    let mut scene = Scene {
        reports: Vec::new(),
        seen: BTreeSet::new(),
        world: 0,
        cut: BTreeSet::new(),
        source_of: BTreeMap::new(),
        complete: false,
        inferred: false,
        names: ids.iter().map(|id| id.name.clone()).collect(),
        node_of: BTreeMap::new(),
        finished: BTreeSet::new(),
        lives: sources.iter().flatten().map(|source| source.lives.len()).max().unwrap_or(0),
    };
    let of_source = |at: u32| sources.get(at as usize).copied().flatten();
    for (at, source) in (0u32..).zip(&sources).filter_map(|(at, source)| Some((at, (*source)?))) {
        scene.world = scene.world.max(source.world.unwrap_or(0));
        let ranks = source.seen.iter().chain(source.by_pid.values()).chain(source.by_local.values());
        for rank in ranks {
            scene.seen.insert(*rank);
            scene.source_of.entry(*rank).or_insert(at);
        }
        if source.cut {
            scene.cut.insert(at);
        }
    }
    let bases = inferred_bases(&mut scene, &sources);
    let tasks = !sources.iter().flatten().any(|source| source.agent || !source.by_local.is_empty());
    for report in failures.reports() {
        let Some(source) = of_source(report.source) else { continue };
        let wanted = life.map_or(source.lives.len(), |life| life.min(source.lives.len()));
        if source.life(report.line) != wanted {
            continue;
        }
        let task = || report.writer.task.filter(|_| tasks);
        let base = || Some(bases.get(&report.source)? + report.writer.local?);
        let rank =
            source.rank(&report.writer).or_else(base).or_else(task).or_else(|| alone(source, &report.writer));
        if let Some(rank) = rank {
            scene.seen.insert(rank);
            scene.source_of.entry(rank).or_insert(report.source);
            if report.fact == Fact::Finished {
                scene.finished.insert(rank);
            }
        }
        scene.reports.push(Known { report, rank });
    }
    scene.world = scene.world.max(scene.seen.last().map_or(0, |last| last.saturating_add(1)));
    name_nodes(&mut scene, &sources);
    name_by_launcher(&mut scene);
    scene
}

/// Where only one rank writes to a source, a line without a name is its.
fn alone(source: &SourceRanks, writer: &Writer) -> Option<u32> {
    if writer.local.is_some() || writer.pid.is_some() || source.agent || source.by_pid.len() > 1 {
        return None;
    }
    match source.seen.len() {
        1 => source.seen.first().copied(),
        _ => None,
    }
}

/// The first rank of a source whose ranks nothing names, where those of all other sources are known.
fn inferred_bases(scene: &mut Scene<'_>, sources: &[Option<&SourceRanks>]) -> BTreeMap<u32, u32> {
    let nameless: Vec<(u32, &SourceRanks)> = (0u32..)
        .zip(sources)
        .filter_map(|(at, source)| Some((at, (*source)?)))
        .filter(|(_, source)| source.seen.is_empty() && !source.locals.is_empty())
        .collect();
    let missing: Vec<u32> = scene.unseen();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return BTreeMap::new() };
    let in_a_row = (last - first) as usize + 1 == missing.len();
    let [(at, source)] = nameless.as_slice() else { return BTreeMap::new() };
    let fits = source.locals.last().is_some_and(|local| (*local as usize) < missing.len());
    if !in_a_row || !fits || scene.seen.is_empty() {
        return BTreeMap::new();
    }
    // Every other node must be full, or the missing ranks may be of two nodes.
    let widest = sources.iter().flatten().filter_map(|source| source.by_local.keys().last()).max();
    if widest.is_some_and(|widest| *widest as usize + 1 != missing.len()) {
        return BTreeMap::new();
    }
    scene.inferred = true;
    BTreeMap::from([(*at, *first)])
}

/// The name of each rank's node: its `NCCL_HOSTID`, its host where that tells the sources apart, else its source.
fn name_nodes(scene: &mut Scene<'_>, sources: &[Option<&SourceRanks>]) {
    let mut uses: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (at, source) in (0u32..).zip(sources).filter_map(|(at, source)| Some((at, (*source)?))) {
        for host in &source.hosts {
            uses.entry(host).or_default().insert(at);
        }
    }
    let count = sources.iter().flatten().count();
    for (rank, at) in &scene.source_of {
        let Some(source) = sources.get(*at as usize).copied().flatten() else { continue };
        let pid = source.by_pid.iter().find(|(_, of)| *of == rank).map(|(pid, _)| *pid);
        let id = pid.and_then(|pid| source.host_of_pid.get(&pid).cloned());
        let host = || match source.hosts.len() {
            1 => source
                .hosts
                .first()
                .filter(|host| count == 1 || uses.get(host.as_str()).is_some_and(|of| of.len() == 1)),
            _ => None,
        };
        let stem = || {
            let name = scene.names.get(*at as usize).map_or("", String::as_str);
            if let Some((node, _)) = name.split_once("/rank").filter(|(node, _)| !node.contains('/')) {
                return node.to_owned();
            }
            let file = name.rsplit('/').next().unwrap_or(name);
            let plain = file.trim_end_matches(".gz").trim_end_matches(".zst");
            [".log", ".out", ".err"]
                .iter()
                .find_map(|end| plain.strip_suffix(end))
                .unwrap_or(plain)
                .to_owned()
        };
        let name = id.or_else(|| host().cloned()).unwrap_or_else(stem);
        if name != "-" && !name.is_empty() {
            scene.node_of.insert(*rank, name);
        }
    }
}

/// Tracebacks without a name belong to the worker that the launcher of the same source saw fail first.
fn name_by_launcher(scene: &mut Scene<'_>) {
    let mut failed: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for known in &scene.reports {
        if let (Fact::Exit { code: 1.., first: true }, Some(rank)) = (&known.report.fact, known.rank) {
            failed.entry(known.report.source).or_default().insert(rank);
        }
    }
    for known in &mut scene.reports {
        let Fact::Exception(exception) = &known.report.fact else { continue };
        let nameless = known.rank.is_none() && known.report.writer == Writer::default();
        if nameless && !exception.is_launcher() && judge(root(exception)).0 != Grade::Rendezvous {
            let ranks = failed.get(&known.report.source).filter(|ranks| ranks.len() == 1);
            known.rank = ranks.and_then(|ranks| ranks.first().copied());
        }
    }
}

/// The exception to name: the one another was raised for, where the program says so.
fn root(exception: &Exception) -> &Exception {
    let earlier = exception.cause.as_deref();
    let weighty = |earlier: &Exception| {
        matches!(judge(earlier).1, CauseClass::CudaOutOfMemory | CauseClass::CudaError)
            || earlier.message.contains("No space left on device")
    };
    match earlier {
        Some(earlier) if exception.direct || weighty(earlier) => earlier,
        _ => exception,
    }
}

/// How much an exception explains, and what it is.
fn judge(exception: &Exception) -> (Grade, CauseClass) {
    let (name, message) = (exception.short_name(), exception.message.as_str());
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if name == "OutOfMemoryError" || says(&["CUDA out of memory", "CUDA error: out of memory"]) {
        return (Grade::Own, CauseClass::CudaOutOfMemory);
    }
    if name == "DistBackendError" || says(&["NCCL error", "ncclRemoteError"]) {
        if says(&["invalid usage", "invalid argument", "ncclInvalid"]) {
            return (Grade::Own, CauseClass::Exception);
        }
        if says(&["unhandled cuda error"]) {
            return (Grade::Own, CauseClass::CudaError);
        }
        return (Grade::Remote, CauseClass::ExitCode);
    }
    if says(&["NCCL communicator was aborted", "Watchdog caught", "NCCL timeout", "remote process exited"]) {
        return (Grade::Remote, CauseClass::ExitCode);
    }
    if name == "AcceleratorError"
        || says(&["CUDA error", "cuda runtime error", "CUBLAS_STATUS", "cuDNN error", "CUDNN_STATUS"])
    {
        return (Grade::Own, CauseClass::CudaError);
    }
    let broken = &[
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Connection was likely closed",
        "recvValue failed",
        "sendBytes failed",
        "gloo/transport",
        "Application timeout caused pair closure",
        "but received errors while waiting",
    ];
    if says(broken)
        || matches!(name, "BrokenPipeError" | "ConnectionResetError" | "EOFError" | "KeyboardInterrupt")
    {
        return (Grade::Broken, CauseClass::ExitCode);
    }
    let rendezvous = &[
        "EADDRINUSE",
        "ddress already in use",
        "failed to listen",
        "client socket has timed out",
        "ailed to connect",
        "Name or service not known",
        "Temporary failure in name resolution",
        "clients joined",
        "wait timeout after",
        "Timed out waiting for clients",
        "Socket Timeout",
        "store",
    ];
    let distributed =
        matches!(name, "DistNetworkError" | "DistStoreError") || exception.name.contains("endezvous");
    if distributed
        || (says(rendezvous)
            && (exception.frame.is_none() || message.contains("c10d") || message.contains("TCPStore")))
    {
        return (Grade::Rendezvous, CauseClass::Rendezvous);
    }
    (Grade::Own, CauseClass::Exception)
}

/// The message of an exception, without what differs between ranks or only fills the line.
fn what(class: CauseClass, exception: &Exception) -> String {
    let what = exception.what();
    if class == CauseClass::CudaOutOfMemory
        && let Some((head, rest)) = what.split_once("Tried to allocate ")
        && let Some(end) = rest.find("iB").map(|at| at + 2)
        && let Some(size) = rest.get(..end)
    {
        return format!("{head}Tried to allocate {size}");
    }
    what
}

/// Every fact that may be the cause.
fn candidates(scene: &Scene<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    // Ranks whose exit the log explains.
    let explained: BTreeSet<u32> = scene
        .reports
        .iter()
        .filter(|known| {
            matches!(
                known.report.fact,
                Fact::Exception(_) | Fact::TimedOut { .. } | Fact::RemoteExit | Fact::Died
            )
        })
        .filter_map(|known| known.rank)
        .collect();
    for (at, known) in scene.reports.iter().enumerate() {
        let mut add = |grade, class, what: String, frame: Option<CauseFrame>, first| {
            let key = format!("{class:?} {}", what.replace(|digit: char| digit.is_ascii_digit(), "0"));
            found.push(Candidate { grade, class, what, frame, key, rank: known.rank, first, report: at });
        };
        match &known.report.fact {
            Fact::Exception(exception) if exception.is_launcher() => {}
            Fact::Exception(exception) => {
                let root = root(exception);
                if !weftrun_nccl::failure::mismatch(&root.message).is_empty()
                    || !weftrun_nccl::failure::absent(&root.message).is_empty()
                {
                    continue;
                }
                let (grade, class) = judge(root);
                let frame = root.frame.as_ref().or(exception.frame.as_ref()).map(|frame| CauseFrame {
                    file: frame.file.clone(),
                    line: frame.line,
                    function: frame.function.clone(),
                });
                match grade {
                    Grade::Remote => add(grade, class, remote(scene), None, false),
                    Grade::Rendezvous => add(grade, class, what(class, root), None, false),
                    _ => add(grade, class, what(class, root), frame, false),
                }
            }
            Fact::Exit { code, first } => {
                let explained = known.rank.is_some_and(|rank| explained.contains(&rank));
                if let Some((grade, class, what)) = exit(*code, *first, explained) {
                    add(grade, class, what, None, *first);
                }
            }
            Fact::Signal(signal) => {
                let grade = match (*signal, known.report.writer.task) {
                    (9, None) => Grade::Killed,
                    (_, None) => Grade::Crashed,
                    _ => Grade::KilledWithOthers,
                };
                add(grade, CauseClass::Signal, signal_text(*signal), None, false);
            }
            Fact::Cuda(text) => {
                let oom = text.contains("out of memory");
                let class = if oom { CauseClass::CudaOutOfMemory } else { CauseClass::CudaError };
                add(Grade::Crashed, class, text.clone(), None, false);
            }
            Fact::Xid(number) => {
                add(
                    Grade::Cluster,
                    CauseClass::CudaError,
                    format!("the driver reports Xid {number}"),
                    None,
                    false,
                );
            }
            Fact::Cluster(reason) => {
                let (grade, class, what) = cluster(*reason);
                add(grade, class, what.to_owned(), None, false);
            }
            Fact::RemoteExit => add(Grade::Remote, CauseClass::ExitCode, remote(scene), None, false),
            Fact::TimedOut { .. } | Fact::Progress { .. } | Fact::Died | Fact::Finished => {}
        }
    }
    found
}

fn remote(scene: &Scene<'_>) -> String {
    let unseen = scene.unseen();
    if unseen.is_empty() {
        return "a process of another rank exited; its log does not say why".to_owned();
    }
    format!("a process of another rank exited; the logs of rank {} were not read", rank_list(&unseen))
}

fn exit(code: i32, first: bool, explained: bool) -> Option<(Grade, CauseClass, String)> {
    let signal = match code {
        0 => return None,
        ..0 => Some(code.checked_neg()?),
        129..=192 => Some(code - 128),
        _ => None,
    };
    match signal {
        // The launcher ends the others so, at first kindly and then not.
        Some(15 | 2 | 1) => None,
        Some(9) if !first => Some((Grade::KilledWithOthers, CauseClass::Signal, signal_text(9))),
        Some(9) => Some((Grade::Killed, CauseClass::Signal, signal_text(9))),
        Some(_) if explained => None,
        Some(signal) => Some((Grade::Crashed, CauseClass::Signal, signal_text(signal))),
        None if explained => None,
        None => Some((Grade::Exited, CauseClass::ExitCode, format!("exit code {code}"))),
    }
}

fn signal_text(signal: i32) -> String {
    match signal {
        9 => "SIGKILL (9): by the kernel for memory, or from outside".to_owned(),
        11 => "SIGSEGV (11): invalid memory access in native code".to_owned(),
        6 => "SIGABRT (6): the program aborted itself".to_owned(),
        7 => "SIGBUS (7): often /dev/shm is full or too small".to_owned(),
        8 => "SIGFPE (8): arithmetic error in native code".to_owned(),
        4 => "SIGILL (4): the binary does not fit the processor".to_owned(),
        15 => "SIGTERM (15): ended from outside".to_owned(),
        other => format!("signal {other}"),
    }
}

fn cluster(reason: ClusterReason) -> (Grade, CauseClass, &'static str) {
    match reason {
        ClusterReason::OutOfMemory => (
            Grade::Cluster,
            CauseClass::OutOfMemory,
            "the memory limit of the job was exceeded, and the kernel killed a process",
        ),
        ClusterReason::NodeFailure => (Grade::Cluster, CauseClass::NodeFail, "a node failed"),
        ClusterReason::Evicted => (Grade::Cluster, CauseClass::Evicted, "a pod was evicted"),
        ClusterReason::Image => (Grade::Cluster, CauseClass::Image, "the image could not be pulled"),
        ClusterReason::Unschedulable => (Grade::Cluster, CauseClass::Unschedulable, "no node can take a pod"),
        ClusterReason::Preempted => (Grade::Ended, CauseClass::Preempted, "another job took the nodes"),
        ClusterReason::TimeLimit => {
            (Grade::TimeLimit, CauseClass::TimeLimit, "the time limit of the job was reached")
        }
    }
}

/// Chooses among candidates of one grade: what the launchers saw first, then what fewer ranks have, then what came first.
fn choose(scene: &Scene<'_>, candidates: &[Candidate], grade: Grade) -> Option<Cause> {
    let of_grade = || candidates.iter().filter(|candidate| candidate.grade == grade);
    let first_ranks: BTreeSet<u32> = scene
        .reports
        .iter()
        .filter(|known| matches!(known.report.fact, Fact::Exit { first: true, .. }))
        .filter_map(|known| known.rank)
        .collect();
    let mut groups: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in of_grade() {
        groups.entry(&candidate.key).or_default().push(candidate);
    }
    let weight = |group: &Vec<&Candidate>| {
        let launcher =
            group.iter().any(|one| one.first || one.rank.is_some_and(|rank| first_ranks.contains(&rank)));
        let ranks = group.iter().map(|one| one.rank).collect::<BTreeSet<_>>().len();
        let line =
            group.iter().filter_map(|one| scene.reports.get(one.report)).map(|known| known.report.line).min();
        (!launcher, ranks, line)
    };
    let group = groups.values().min_by_key(|group| weight(group))?;
    let head = group.first()?;
    let mut ranks: BTreeSet<u32> = group.iter().filter_map(|one| one.rank).collect();
    let mut confidence = if groups.len() > 1 { Confidence::Medium } else { Confidence::High };
    match grade {
        Grade::Remote | Grade::Broken => {
            ranks.clear();
            confidence = Confidence::Low;
        }
        Grade::Rendezvous => ranks.clear(),
        Grade::Cluster if ranks.is_empty() => {
            // The launcher may say which rank the kernel took.
            ranks.extend(
                candidates.iter().filter(|one| one.grade == Grade::Killed).filter_map(|one| one.rank),
            );
        }
        _ => {}
    }
    if ranks.is_empty()
        && !matches!(grade, Grade::Rendezvous | Grade::Cluster | Grade::Ended | Grade::TimeLimit)
    {
        confidence = Confidence::Low;
    }
    let mut evidence: Vec<Evidence> = Vec::new();
    let exits = scene.reports.iter().filter(|known| {
        matches!(known.report.fact, Fact::Exit { first: true, .. })
            && known.rank.is_some_and(|rank| ranks.contains(&rank))
    });
    let cited = group.iter().filter_map(|one| scene.reports.get(one.report)).chain(exits);
    for known in cited {
        let line = scene.evidence(known.report);
        if evidence.len() < EVIDENCE && !evidence.contains(&line) {
            evidence.push(line);
        }
    }
    Some(Cause {
        class: head.class,
        ranks: ranks.into_iter().collect(),
        nodes: Vec::new(),
        what: head.what.clone(),
        frame: head.frame.clone(),
        evidence,
        confidence,
    })
}
