//! Possible causes of a failure, graded by how likely they are causes and not consequences.

mod ends;
mod precede;
mod rulings;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use weftrun_nccl::SourceIndex;
use weftrun_nccl::failure::{ClusterReason, Exception, Fact, Frame, Order, Report, SIGNALS};
use weftrun_nccl::launcher;

use super::EVIDENCE;
use super::answer::{Cause, named};
use super::class::CauseClass;
use super::exceptions::{is_nccl, is_of_another, is_of_store, judge, root, what};
use super::grade::Grade;
use super::place::of_user;
use super::scene::{CLOCKS, Scene};
use crate::rule_input::RuleInput;
use crate::rules::{
    Blame, COLLECTIVE_TIMEOUT_UNNAMED, GPU_XID, GPU_XID_OF_PROGRAM, PEER_ENDED, PEER_ENDED_UNREAD,
    PROCESS_SILENT, PROGRAM_EXCEPTION, RANKS_ABORTED, RAY_WORKER_LOST, Rule, STORE_BARRIER_CROWDED,
    STORE_LOST, barrier_counts, closed_peers, rule_of_error, rule_of_exit, rule_of_signal,
};
pub(crate) use ends::HARDWARE_XIDS;
pub(crate) use ends::signal_text;
use ends::{PROGRAM_XIDS, cluster, exit, grade_of_xid, host_of, xid};
use precede::{explain, follow, lead, precede};
use rulings::{Ruling, of_rules};
use weftrun_core::Confidence;
use weftrun_core::finding::Evidence;

/// A possible cause.
pub(super) struct Candidate {
    pub grade: Grade,
    class: CauseClass,
    what: String,
    frame: Option<Frame>,
    /// Equal for the same failure on several ranks.
    key: String,
    ranks: BTreeSet<u32>,
    /// The host that its line names, where its rank is not known.
    host: Option<String>,
    /// The GPU of the process that printed it.
    gpu: Option<u32>,
    first: bool,
    pub source: SourceIndex,
    pub line: u64,
    /// When its line was written, in seconds that only serve to compare.
    time: Option<u64>,
    evidence: Evidence,
    rule: &'static Rule,
    /// The fix of the rule, in this case.
    fix: String,
    /// Whether the rule knows that what it found ends a job.
    is_proof: bool,
}

/// Most lines between an error line that no rule explains and one that says more.
const NEAR: u64 = 20;

/// Returns whether a line is a warning by its letter, as glog and c10d write it: `[W socket.cpp:755]`, `[rank0]:[W1124 …`.
fn is_warning(text: &str) -> bool {
    text.split_once("[W").is_some_and(|(before, rest)| {
        before.len() < 120 && rest.starts_with(|next: char| next == ' ' || next.is_ascii_digit())
    })
}

/// More GPUs than a host has.
const MOST_GPUS: u32 = 256;

impl Candidate {
    /// Returns whether neither the line nor a launcher says which rank it was.
    pub fn is_nobodys(&self) -> bool {
        self.ranks.is_empty() && !self.first
    }
}

/// Returns what is equal for one failure on several ranks: its numbers may differ.
fn key(class: CauseClass, what: &str) -> String {
    format!("{class:?} {}", what.replace(|digit: char| digit.is_ascii_digit(), "0"))
}

/// Returns the class of an error of CUDA.
fn class_of_cuda(text: &str) -> CauseClass {
    if text.contains("out of memory") { CauseClass::CudaOutOfMemory } else { CauseClass::CudaError }
}

/// Returns every fact that may be the cause. `compared`: what ranks say of a collective was compared already.
pub(super) fn candidates(scene: &Scene<'_>, seen: &RuleInput<'_>, compared: bool) -> Vec<Candidate> {
    let mut found = of_rules(scene, seen);
    let told: BTreeSet<u32> = found.iter().flat_map(|one| one.ranks.iter().copied()).collect();
    let ruled: BTreeSet<u32> =
        found.iter().filter(|one| !one.grade.is_quote()).flat_map(|one| one.ranks.iter().copied()).collect();
    let ruled_sources: BTreeSet<SourceIndex> =
        found.iter().filter(|one| !one.grade.is_quote()).map(|one| one.source).collect();
    let remote = LazyCell::new(|| remote(scene, seen));
    let explains = |fact: &Fact| {
        matches!(
            fact,
            Fact::Exception(_)
                | Fact::TimedOut { .. }
                | Fact::RemoteExit
                | Fact::Died
                | Fact::LastError(_)
                | Fact::Error { fatal: true, .. }
        )
    };
    // Ranks whose exit the log explains.
    let explained = scene.reports.iter().filter(|known| explains(&known.report.fact));
    let explained: BTreeSet<u32> = explained.filter_map(|known| known.rank).chain(told).collect();
    let timed_out: BTreeSet<SourceIndex> = scene
        .reports
        .iter()
        .filter(|known| matches!(known.report.fact, Fact::TimedOut { .. }))
        .map(|known| known.report.source)
        .collect();
    let told_by = scene.reports.iter().filter(|known| explains(&known.report.fact));
    let told_by: BTreeSet<u64> = told_by.filter_map(|known| known.report.writer.pid).collect();
    let is_end = |fact: &Fact| matches!(fact, Fact::Exit { code, .. } if *code != 0);
    let ends = scene.reports.iter().filter(|known| is_end(&known.report.fact)).count();
    let exited = scene.has_exited();
    let names_job = names_job(scene);
    for known in &scene.reports {
        let mut push = |ruling: Ruling, frame: Option<Frame>, first| {
            let writer = weftrun_nccl::writer(known.report.text.as_bytes());
            found.push(Candidate {
                frame: frame.map(of_user),
                ranks: known.rank.into_iter().collect(),
                host: known
                    .report
                    .host
                    .clone()
                    .or_else(|| launcher::host(known.report.text.as_bytes()).map(str::to_owned))
                    .or_else(|| host_of(&known.report.fact, &known.report.text)),
                // The threads of NCCL's proxy may print 0 for every device.
                gpu: writer.and_then(|writer| u32::try_from(writer.device?).ok().filter(|gpu| *gpu > 0)),
                first,
                source: known.report.source,
                time: known.report.time,
                ..ruling.candidate(scene.evidence(known.report))
            });
        };
        let mut add = |grade, class, what: String, frame: Option<Frame>, first| {
            let rule = rule_of(known.report, class, &what);
            push(Ruling::of(rule, grade, class, what), frame, first);
        };
        match &known.report.fact {
            Fact::Exception(exception) if exception.short_name() == "SignalException" => {
                let number =
                    exception.message.rsplit_once("got signal: ").map_or("", |(_, number)| number.trim());
                let known = SIGNALS
                    .iter()
                    .find(|(_, known, _)| matches!(known, 1 | 2) && known.to_string() == number);
                let why =
                    known.map_or_else(String::new, |(name, _, meaning)| format!(" ({name}: {meaning})"));
                let what = format!("the launcher (torchrun) was ended from outside by signal {number}{why}");
                add(Grade::TimeLimit, CauseClass::Cancelled, what, None, false);
            }
            Fact::Exception(exception) if exception.is_launcher() => {}
            Fact::Exception(exception) => {
                let root = root(exception);
                let compares = root.message.contains("Timed out task names")
                    || !weftrun_nccl::failure::mismatch(&root.message).is_empty()
                    || root.message.contains(" failed to pass monitoredBarrier");
                // The ranks that waited are compared by what they waited in.
                let waited = root.message.contains("Watchdog caught collective operation timeout");
                if compared && (compares || waited) {
                    continue;
                }
                let last_error = root.last_error.as_deref().or(exception.last_error.as_deref());
                if is_nccl(root) {
                    let by_rule = match known.rank {
                        Some(rank) => ruled.contains(&rank),
                        None => ruled_sources.contains(&known.report.source),
                    };
                    let ruling = last_error.and_then(|text| Ruling::of_last_error(text, seen));
                    if let Some(ruling) = ruling {
                        push(ruling, None, false);
                        continue;
                    }
                    // A rule says more of the same failure.
                    if by_rule {
                        continue;
                    }
                }
                let (grade, class) = judge(root);
                let frame = root.frame.as_ref().or(exception.frame.as_ref()).cloned();
                let frame = frame.filter(|_| class != CauseClass::OutOfMemory);
                let grade = match grade {
                    Grade::Own if exception.alone && scene.ends(known.report, exception) => Grade::Alone,
                    Grade::Own if exception.alone => Grade::Quoted,
                    grade => grade,
                };
                match grade {
                    Grade::Quoted => add(grade, CauseClass::Unexplained, what(class, root), None, false),
                    _ if is_crowded(&root.message) => {
                        push(
                            Ruling::of(&STORE_BARRIER_CROWDED, grade, class, what(class, root)),
                            frame,
                            false,
                        );
                    }
                    Grade::Remote if is_of_another(root) => {
                        push(Ruling::of(&PEER_ENDED, grade, class, what(class, root)), None, false);
                    }
                    Grade::Broken if is_of_store(root) => {
                        add(grade, class, STORE_GONE.to_owned(), None, false);
                    }
                    Grade::Remote => push(remote.clone(), None, false),
                    Grade::Rendezvous => add(grade, class, what(class, root), None, false),
                    _ => {
                        let what = what(class, root);
                        let mut ruling = Ruling::of(rule_of(known.report, class, &what), grade, class, what);
                        let is_own = root.innermost.is_none() || root.innermost == root.frame;
                        if let Some(frame) = frame.clone().map(of_user)
                            && ruling.is_of(&PROGRAM_EXCEPTION)
                        {
                            let place = format!("{}:{}", frame.file, frame.line);
                            ruling.fix = match is_own {
                                true if is_from_outside(root) => {
                                    format!("read its message, which names what failed; {place} raised it")
                                }
                                true => format!("correct {place}, which raised it"),
                                false => {
                                    format!("read its message: a library raised it, which {place} called")
                                }
                            };
                        }
                        push(ruling, frame, false);
                    }
                }
            }
            Fact::Exit { code: -6 | 134, .. } if timed_out.contains(&known.report.source) => {}
            Fact::Exit { code, order, .. } => {
                let is_later = known.rank.is_some_and(|rank| scene.later.contains(&rank));
                let order = match order {
                    _ if is_later => Order::Later,
                    // The head of the table is not in the log: this may be the first one as well.
                    Order::Later if ends == 1 => Order::Unknown,
                    order => *order,
                };
                let explained = known.rank.is_some_and(|rank| explained.contains(&rank));
                if let Some((grade, class, mut what)) = exit(*code, order, explained) {
                    let local = known.report.writer.local.filter(|_| known.rank.is_none());
                    what.extend(local.map(|local| format!(" (local rank {local})")));
                    add(grade, class, what, None, order == Order::First);
                }
            }
            // A watchdog that gave up aborts its own process.
            Fact::Signal(6) if timed_out.contains(&known.report.source) => {}
            Fact::Signal(signal) => {
                let grade = match (*signal, known.report.writer.task) {
                    (9, None) => Grade::Killed,
                    (6, None) => Grade::Aborted,
                    // From outside, as launchers also do with the others.
                    (1 | 2 | 15, _) => Grade::TimeLimit,
                    (_, None) => Grade::Crashed,
                    _ => Grade::KilledWithOthers,
                };
                add(grade, CauseClass::Signal, signal_text(*signal), None, false);
            }
            Fact::Cuda(text) => {
                add(Grade::Crashed, class_of_cuda(text), text.clone(), None, false);
            }
            Fact::Xid(number) => {
                add(
                    grade_of_xid(*number, known.report, scene),
                    CauseClass::CudaError,
                    xid(*number, &known.report.text),
                    None,
                    false,
                );
            }
            // Of a job that is cancelled Slurm names the job as well.
            Fact::Cluster(ClusterReason::Cancelled)
                if known.report.text.contains("*** STEP ") && !names_job =>
            {
                let what = "a step of the job was cancelled: by a person, or by srun after one of its tasks had ended";
                add(Grade::TimeLimit, CauseClass::Cancelled, what.to_owned(), None, false);
            }
            Fact::Cluster(reason) => {
                let (grade, class, what) = cluster(*reason);
                add(grade, class, what.to_owned(), None, false);
            }
            Fact::RemoteExit => push(remote.clone(), None, false),
            // What the worker itself says of its end is more.
            Fact::WorkerLost { pid: Some(pid), .. } if told_by.contains(pid) => {}
            Fact::WorkerLost { pid, host } => {
                let pid = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
                let on = host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
                let what = format!("Ray lost a worker{pid}{on}; it does not say what ended it");
                add(Grade::Reported, CauseClass::ExitCode, what, None, false);
            }
            // Ranks of a job that ends in order say it too, if rank 0 ends first.
            Fact::StoreLost => add(Grade::Quoted, CauseClass::ExitCode, STORE_GONE.to_owned(), None, false),
            Fact::LastError(text) => match Ruling::of_last_error(text, seen) {
                Some(ruling) => push(ruling, None, false),
                None => push(remote.clone(), None, false),
            },
            Fact::Error { text, fatal } => {
                let grade = if *fatal { Grade::Reported } else { Grade::Quoted };
                let nccl = *fatal
                    && ["NCCL error", "NCCL operation", "Test NCCL"]
                        .iter()
                        .any(|start| text.starts_with(start));
                let class = if nccl { CauseClass::Nccl } else { CauseClass::Unexplained };
                // TensorFlow's allocator, which may go on with less.
                let is_full = text.contains("CUDA_ERROR_OUT_OF_MEMORY");
                let rule = rule_of_error(if is_full { CauseClass::CudaOutOfMemory } else { class }, &[text]);
                let is_last = scene.is_near_end(known.report)
                    && !scene.went_on(seen, known.report.source, known.report.line, known.rank);
                let near_end = exited && scene.is_near_end(known.report);
                // What a rule knows says more than an exit code, and a job that ends as its processes look for each other failed so.
                let (grade, class) = match rule.class() {
                    Some(known)
                        if rule.is_end()
                            || *fatal && known != CauseClass::Nccl
                            || near_end && known != class =>
                    {
                        (Grade::Alone, known)
                    }
                    Some(known) if is_last && is_of_rendezvous(rule) => (Grade::Rendezvous, known),
                    known => (grade, known.unwrap_or(class)),
                };
                let rule = if is_crowded(text) { &STORE_BARRIER_CROWDED } else { rule };
                let mut ruling = Ruling::of(rule, grade, class, text.clone()).advised(seen);
                ruling.is_proof = rule.is_end() || grade == Grade::Rendezvous;
                push(ruling, None, false);
            }
            Fact::Mention(text) => {
                let rule = rule_of_error(CauseClass::Unexplained, &[text]);
                let class = rule.class().unwrap_or(CauseClass::Unexplained);
                let near_end = scene.is_near_end(known.report);
                let grade = match rule.is_end() {
                    true if exited && near_end => Grade::Alone,
                    true => Grade::Reported,
                    false if near_end && is_of_rendezvous(rule) => Grade::Rendezvous,
                    false => Grade::Mentioned,
                };
                let mut ruling = Ruling::of(rule, grade, class, text.clone()).advised(seen);
                ruling.is_proof = grade != Grade::Mentioned;
                push(ruling, None, false);
            }
            Fact::TimedOut { .. }
            | Fact::Absent { .. }
            | Fact::Progress { .. }
            | Fact::ToldOfTimeout { .. }
            | Fact::WatchdogFailed { .. }
            | Fact::Stack(_)
            | Fact::Died
            | Fact::Finished => {}
        }
    }
    follow(&mut found);
    lead(&mut found);
    precede(&mut found, seen);
    explain(&mut found);
    found
}

/// Returns whether Slurm says that it cancelled the job, and not a step alone.
fn names_job(scene: &Scene<'_>) -> bool {
    scene.reports.iter().any(|known| known.report.text.contains("*** JOB "))
}

/// Returns whether an exception is of a kind that tells of something outside the program, or of nothing.
fn is_from_outside(exception: &Exception) -> bool {
    let name = exception.short_name();
    matches!(name, "Exception" | "OSError" | "IOError" | "PermissionError" | "FileNotFoundError")
        || ["ConnectionError", "Timeout", "TimeoutError", "HTTPError", "SSLError"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Returns whether more processes came to the barrier of a process group than it has ranks: `(world_size=2, worker_count=4, `.
fn is_crowded(text: &str) -> bool {
    text.contains("store based barrier") && barrier_counts(text).is_some_and(|(came, world)| came > world)
}

/// Returns whether a rule knows that what it found ends the search of the processes for each other.
fn is_of_rendezvous(rule: &Rule) -> bool {
    rule.blame == Some(Blame::Rank(CauseClass::Rendezvous))
}

/// What a rank says whose connection to the store broke.
const STORE_GONE: &str = "the store of the rendezvous is gone: the process that holds it, rank 0 or the launcher of the first node, ended first";

/// Returns that the process of another rank ended.
fn remote(scene: &Scene<'_>, seen: &RuleInput<'_>) -> Ruling {
    let told = scene.reports.iter().filter_map(|known| match &known.report.fact {
        Fact::LastError(text) => Some(text.as_str()),
        Fact::Exception(exception) => exception.last_error.as_deref(),
        _ => None,
    });
    let peers = closed_peers(seen, told)
        .map_or_else(String::new, |peers| format!(" ({peers} closed the connection)"));
    let (rule, what) = if scene.unseen().is_empty() {
        (
            &PEER_ENDED,
            format!(
                "a connection to another rank ended{peers}: its process ended, or the network between them failed; no log says which rank was the first"
            ),
        )
    } else {
        (
            &PEER_ENDED_UNREAD,
            format!(
                "a connection to another rank ended{peers}: its process ended, or the network between them failed; {}",
                scene.not_read("")
            ),
        )
    };
    Ruling::of(rule, Grade::Remote, CauseClass::ExitCode, what)
}

/// Returns the rule about what a line reports, as far as it is known by its kind or its words.
fn rule_of(report: &Report, class: CauseClass, what: &str) -> &'static Rule {
    match &report.fact {
        Fact::Exception(exception) => match root(exception) {
            root if judge(root).0 == Grade::Broken && is_of_store(root) => &STORE_LOST,
            root if matches!(judge(root).0, Grade::Broken | Grade::Remote) => &PEER_ENDED,
            root => rule_of_error(class, &[&root.message, &report.text]),
        },
        Fact::Exit { code, .. } => rule_of_exit(*code),
        Fact::Signal(signal) => rule_of_signal(*signal),
        Fact::WorkerLost { .. } => &RAY_WORKER_LOST,
        Fact::StoreLost => &STORE_LOST,
        Fact::Xid(number) if PROGRAM_XIDS.contains(number) => &GPU_XID_OF_PROGRAM,
        Fact::Xid(_) => &GPU_XID,
        _ => rule_of_error(class, &[what, &report.text]),
    }
}

/// Says which ranks aborted, where several did and no launcher saw another end: one of them is not the cause of the others.
fn abort_together(scene: &Scene<'_>) -> Option<String> {
    let mut aborted: BTreeSet<u32> = BTreeSet::new();
    for known in &scene.reports {
        match (&known.report.fact, known.rank) {
            (Fact::Exit { code: -6 | 134, .. } | Fact::Signal(6), Some(rank)) => {
                aborted.insert(rank);
            }
            // The launcher ends the others so.
            (Fact::Exit { code: 0 | -15 | 143, .. }, _) => {}
            (Fact::Exit { .. } | Fact::Signal(_), Some(_)) => return None,
            _ => {}
        }
    }
    let ranks: Vec<u32> = aborted.into_iter().collect();
    (ranks.len() > 1).then(|| {
        format!("{} ended themselves with SIGABRT, as PyTorch's watchdog ends ranks that wait; what they waited for is not in the log", named(&ranks))
    })
}

/// Chooses among candidates of one grade: first by the launchers' first failure, then by fewer ranks, then
/// by order. Returns also whether its rule knows that it ended the job.
pub(super) fn choose(scene: &Scene<'_>, candidates: &[Candidate], grade: Grade) -> Option<(Cause, bool)> {
    let of_grade = || candidates.iter().filter(|candidate| candidate.grade == grade);
    let first_ranks: BTreeSet<u32> = scene
        .reports
        .iter()
        .filter(|known| matches!(known.report.fact, Fact::Exit { order: Order::First, .. }))
        .filter_map(|known| known.rank)
        .filter(|rank| !scene.later.contains(rank))
        .collect();
    let mut groups: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in of_grade() {
        groups.entry(&candidate.key).or_default().push(candidate);
    }
    // Where all lines have their time, what came clearly later is a consequence.
    let start = |group: &Vec<&Candidate>| group.iter().filter_map(|one| one.time).min();
    let starts: Option<Vec<u64>> = groups.values().map(start).collect();
    let earliest = starts.and_then(|starts| starts.into_iter().min());
    // What a rule knows says more than the line just above it, and an error more than a warning.
    let first_line = of_grade().map(|one| (one.source, one.line)).min();
    let quoted_later = |group: &Vec<&Candidate>, line: Option<u64>| {
        let Some(head) = group.first().filter(|_| grade.is_quote()) else { return (false, false) };
        let near = first_line.zip(line).is_some_and(|((source, first), line)| {
            source == head.source && line.saturating_sub(first) <= NEAR
        });
        let is_known = near && head.class != CauseClass::Unexplained;
        (!is_known, grade == Grade::Mentioned && is_warning(&head.what))
    };
    let weight = |group: &Vec<&Candidate>| {
        let is_later = earliest.zip(start(group)).is_some_and(|(earliest, at)| at > earliest + CLOCKS);
        let launcher = group.iter().any(|one| one.first || !one.ranks.is_disjoint(&first_ranks));
        let ranks = group.iter().flat_map(|one| &one.ranks).collect::<BTreeSet<_>>().len();
        let line = group.iter().map(|one| one.line).min();
        // What NCCL wrote first led to the rest.
        let in_order = matches!(grade, Grade::Nccl | Grade::Reported) || grade.is_quote();
        let ranks = if in_order { 0 } else { ranks };
        (!launcher, is_later, quoted_later(group, line), ranks, line)
    };
    let group = groups.values().min_by_key(|group| weight(group))?;
    let head = group.first()?;
    let mut ranks: BTreeSet<u32> = group.iter().flat_map(|one| one.ranks.iter().copied()).collect();
    let mut together = None;
    let victims_report = matches!(grade, Grade::Remote | Grade::Broken | Grade::Waiting);
    let mut confidence = if groups.len() > 1 { Confidence::Medium } else { Confidence::High };
    match grade {
        _ if victims_report || grade == Grade::Reported || grade.is_quote() => {
            // Who reports it is a victim.
            if victims_report {
                ranks.clear();
            }
            confidence = Confidence::Low;
        }
        Grade::Rendezvous | Grade::Later => ranks.clear(),
        // As watchdogs do with the ranks that wait.
        Grade::Aborted => {
            confidence = Confidence::Low;
            together = abort_together(scene);
            if together.is_some() {
                ranks.clear();
            }
        }
        Grade::Cluster if ranks.is_empty() => {
            // The launcher may report which rank the kernel killed.
            ranks.extend(
                candidates
                    .iter()
                    .filter(|one| one.grade == Grade::Killed)
                    .flat_map(|one| one.ranks.iter().copied()),
            );
        }
        _ => {}
    }
    let host = |one: &&Candidate| one.host.clone().filter(|host| host != "-" && !victims_report);
    let hosts: BTreeSet<String> = group.iter().filter_map(host).collect();
    // One GPU of one host, or none is named.
    let gpus: BTreeSet<Option<u32>> = group.iter().map(|one| one.gpu).collect();
    let hosts_known = if gpus.len() == 1 { hosts.len() } else { 0 };
    if ranks.is_empty()
        && !matches!(grade, Grade::Rendezvous | Grade::Cluster | Grade::Ended | Grade::TimeLimit)
    {
        // A GPU of a host is as good as its rank.
        let one_process =
            matches!(grade, Grade::Nccl | Grade::Link) && hosts_known == 1 && !gpus.contains(&None);
        confidence = if one_process { confidence.min(Confidence::Medium) } else { Confidence::Low };
    }
    let silent = if matches!(grade, Grade::Remote | Grade::Broken) { scene.silent() } else { None };
    if let Some(silent) = silent {
        ranks.insert(silent);
        confidence = Confidence::Medium;
    }
    let mut evidence: Vec<Evidence> = Vec::new();
    let exits = scene.reports.iter().filter(|known| {
        matches!(known.report.fact, Fact::Exit { order: Order::First, .. })
            && known.rank.is_some_and(|rank| ranks.contains(&rank))
    });
    let exits = exits.map(|known| scene.evidence(known.report));
    for line in group.iter().map(|one| one.evidence.clone()).chain(exits) {
        let known = |other: &Evidence| other.line == line.line && other.source == line.source;
        if evidence.len() < EVIDENCE && !evidence.iter().any(known) {
            evidence.push(line);
        }
    }
    let (rule, what) = match (silent, together) {
        (Some(rank), _) => {
            let what = format!(
                "the log of rank {rank} ends without an error, and all others report that a process ended"
            );
            (&PROCESS_SILENT, what)
        }
        (None, Some(together)) => (&RANKS_ABORTED, together),
        (None, None)
            if ranks.is_empty() && head.class == CauseClass::CollectiveTimeout && !head.rule.is_end() =>
        {
            (&COLLECTIVE_TIMEOUT_UNNAMED, head.what.clone())
        }
        (None, None) => (head.rule, head.what.clone()),
    };
    let fix = if rule.code == head.rule.code { head.fix.clone() } else { rule.fix.to_owned() };
    let cause = Cause {
        ranks: ranks.into_iter().collect(),
        nodes: hosts.into_iter().collect(),
        fix,
        frame: head.frame.clone(),
        // A thread without a device prints what is in its memory.
        gpu: head.gpu.filter(|gpu| hosts_known == 1 && *gpu < MOST_GPUS),
        evidence,
        confidence,
        ..Cause::new(head.class, rule, what)
    };
    Some((cause, head.is_proof))
}
