//! Possible causes of a failure, graded by how likely they are causes and not consequences.

mod rulings;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use weftrun_nccl::SourceIndex;
use weftrun_nccl::failure::{ClusterReason, Exception, Fact, Frame, Order, SIGNALS};
use weftrun_nccl::launcher;

use super::EVIDENCE;
use super::answer::{Cause, CauseClass, CauseDetail, not_read};
use super::scene::Scene;
use crate::Confidence;
use crate::diagnose::rule_input::RuleInput;
use crate::diagnose::rules::closed_peers;
use crate::finding::Evidence;
use rulings::{Ruling, of_rules};

/// How much a fact explains: smaller is closer to the start of the chain of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grade {
    /// The cluster removed a process or a node.
    Cluster,
    /// The kernel or a person killed a process that its launcher saw fail first.
    Killed,
    /// The program failed by itself.
    Own,
    /// The cluster ended a job that ran.
    Ended,
    /// NCCL or its network failed on a rank, as a rule says.
    Nccl,
    /// Native code crashed, which also happens to victims while they end.
    Crashed,
    /// A link between two ranks failed, as a rule says.
    Link,
    /// An exception after a failure of NCCL on the same rank.
    Followed,
    /// An exception whose traceback is not in the log, as it is not of one that was handled either.
    Alone,
    /// A process ended with an exit code.
    Exited,
    /// Ranks disagree about a collective, or one did not join.
    Collective,
    /// NCCL warned of something that no rule explains.
    Warned,
    /// The program reports an error in its own words.
    Reported,
    /// Aborted, as watchdogs do with the ranks that wait for another.
    Aborted,
    /// Killed, as a launcher also does with the others.
    KilledWithOthers,
    /// The launcher saw another failure before, which is not in the log.
    Later,
    /// The processes did not find each other.
    Rendezvous,
    /// The time limit was reached.
    TimeLimit,
    /// A connection broke, as it does when another process ends.
    Broken,
    /// NCCL reports that another process ended.
    Remote,
    /// Ranks wait for one that is not named.
    Waiting,
    /// A line speaks of an error, which need not have ended anything.
    Quoted,
}

impl Grade {
    /// Returns whether the cluster ended the job as a whole.
    pub fn ends_job(self) -> bool {
        matches!(self, Self::Ended | Self::TimeLimit)
    }

    /// Returns whether it only quotes a line: what that led to is not known.
    pub fn is_quote(self) -> bool {
        matches!(self, Self::Warned | Self::Quoted)
    }
}

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
    first: bool,
    source: SourceIndex,
    line: u64,
    evidence: Evidence,
    detail: CauseDetail,
    /// The code and the fix of its rule.
    rule: Option<(&'static str, String)>,
}

impl Candidate {
    /// Returns whether neither the line nor a launcher says which rank it was.
    pub fn is_nobodys(&self) -> bool {
        self.ranks.is_empty() && !self.first
    }
}

/// Returns the exception to report: the one that caused another to be raised, where the program shows it.
pub(super) fn root(exception: &Exception) -> &Exception {
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

/// Returns whether NCCL's result was raised: what went wrong is in NCCL's own words.
pub(super) fn is_nccl(exception: &Exception) -> bool {
    exception.short_name() == "DistBackendError"
        || ["NCCL error", "NCCL Error", "ncclRemoteError"]
            .iter()
            .any(|words| exception.message.contains(words))
}

/// Returns how much an exception explains, and its class.
pub(super) fn judge(exception: &Exception) -> (Grade, CauseClass) {
    let (name, message) = (exception.short_name(), exception.message.as_str());
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let full = ["CUDA out of memory", "CUDA error: out of memory", "RESOURCE_EXHAUSTED: Out of memory"];
    if name == "OutOfMemoryError" || says(&full) {
        return (Grade::Own, CauseClass::CudaOutOfMemory);
    }
    if is_nccl(exception) {
        if says(&["invalid usage", "invalid argument", "ncclInvalid"]) {
            return (Grade::Own, CauseClass::Exception);
        }
        if says(&["unhandled cuda error"]) {
            return (Grade::Own, CauseClass::CudaError);
        }
        // NCCL failed by itself, and the log does not have its own words.
        if says(&["unhandled system error", "internal error"]) {
            return (Grade::Reported, CauseClass::Nccl);
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
    // The speaker waits for a peer that does not come.
    if says(&["Timed out waiting"]) && says(&["recv operation", "send operation"]) {
        return (Grade::Waiting, CauseClass::CollectiveTimeout);
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
        "connect() timed out",
        "store",
    ];
    let distributed =
        matches!(name, "DistNetworkError" | "DistStoreError") || exception.name.contains("endezvous");
    // Raised where PyTorch makes its store, whose address is that of the rendezvous.
    let in_torch =
        exception.innermost.as_ref().is_some_and(|frame| frame.file.contains("torch/distributed/"));
    if distributed
        || says(&["not reachable via ssh"])
        || (says(rendezvous)
            && (exception.frame.is_none()
                || in_torch
                || message.contains("c10d")
                || message.contains("TCPStore")))
    {
        return (Grade::Rendezvous, CauseClass::Rendezvous);
    }
    (Grade::Own, CauseClass::Exception)
}

/// Returns the message of an exception, without parts that differ between ranks or only fill the line.
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

/// Returns what is equal for one failure on several ranks: its numbers may differ.
fn key(class: CauseClass, what: &str) -> String {
    format!("{class:?} {}", what.replace(|digit: char| digit.is_ascii_digit(), "0"))
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
    for known in &scene.reports {
        let mut push = |ruling: Ruling, frame: Option<Frame>, first| {
            found.push(Candidate {
                frame,
                ranks: known.rank.into_iter().collect(),
                host: launcher::host(known.report.text.as_bytes()).map(str::to_owned),
                first,
                source: known.report.source,
                detail: detail(&known.report.fact),
                ..ruling.candidate(scene.evidence(known.report))
            });
        };
        let mut add = |grade, class, what: String, frame: Option<Frame>, first| {
            push(Ruling { grade, class, what, rule: None }, frame, first);
        };
        match &known.report.fact {
            Fact::Exception(exception) if exception.short_name() == "SignalException" => {
                let number =
                    exception.message.rsplit_once("got signal: ").map_or("", |(_, number)| number.trim());
                let what = format!("the launcher (torchrun) was ended from outside by signal {number}");
                add(Grade::TimeLimit, CauseClass::Cancelled, what, None, false);
            }
            Fact::Exception(exception) if exception.is_launcher() => {}
            Fact::Exception(exception) => {
                let root = root(exception);
                let compares = !weftrun_nccl::failure::mismatch(&root.message).is_empty()
                    || !weftrun_nccl::failure::absent(&root.message).is_empty();
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
                let grade = match grade {
                    Grade::Own if exception.alone && scene.ends(known.report, exception) => Grade::Alone,
                    Grade::Own if exception.alone => Grade::Quoted,
                    grade => grade,
                };
                match grade {
                    Grade::Quoted => add(grade, CauseClass::Unexplained, what(class, root), None, false),
                    Grade::Remote => add(grade, class, remote.clone(), None, false),
                    Grade::Rendezvous => add(grade, class, what(class, root), None, false),
                    _ => add(grade, class, what(class, root), frame, false),
                }
            }
            Fact::Exit { code: -6 | 134, .. } if timed_out.contains(&known.report.source) => {}
            Fact::Exit { code, order } => {
                let explained = known.rank.is_some_and(|rank| explained.contains(&rank));
                if let Some((grade, class, what)) = exit(*code, *order, explained) {
                    add(grade, class, what, None, *order == Order::First);
                }
            }
            // A watchdog that gave up aborts its own process.
            Fact::Signal(6) if timed_out.contains(&known.report.source) => {}
            Fact::Signal(signal) => {
                let grade = match (*signal, known.report.writer.task) {
                    (9, None) => Grade::Killed,
                    (6, None) => Grade::Aborted,
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
                let lost = *number == 79 && !known.report.text.contains("Xid");
                let what = if lost {
                    "a GPU fell off the bus".to_owned()
                } else {
                    format!("the driver reports Xid {number}")
                };
                add(Grade::Cluster, CauseClass::CudaError, what, None, false);
            }
            Fact::Cluster(reason) => {
                let (grade, class, what) = cluster(*reason);
                add(grade, class, what.to_owned(), None, false);
            }
            Fact::RemoteExit => add(Grade::Remote, CauseClass::ExitCode, remote.clone(), None, false),
            Fact::LastError(text) => match Ruling::of_last_error(text, seen) {
                Some(ruling) => push(ruling, None, false),
                None => add(Grade::Remote, CauseClass::ExitCode, remote.clone(), None, false),
            },
            Fact::Error { text, fatal } => {
                let grade = if *fatal { Grade::Reported } else { Grade::Quoted };
                add(grade, CauseClass::Unexplained, text.clone(), None, false);
            }
            Fact::TimedOut { .. } | Fact::Progress { .. } | Fact::Died | Fact::Finished => {}
        }
    }
    follow(&mut found);
    found
}

/// Marks the exceptions that came after a failure of NCCL on the same rank, as a library raises them in its parent process.
fn follow(found: &mut [Candidate]) {
    let failed: Vec<(SourceIndex, u64, BTreeSet<u32>)> = found
        .iter()
        .filter(|one| matches!(one.grade, Grade::Nccl | Grade::Link))
        .map(|one| (one.source, one.line, one.ranks.clone()))
        .collect();
    for one in found.iter_mut().filter(|one| one.grade == Grade::Own) {
        let same = |ranks: &BTreeSet<u32>| {
            ranks.is_empty() || one.ranks.is_empty() || !ranks.is_disjoint(&one.ranks)
        };
        if failed.iter().any(|(source, line, ranks)| *source == one.source && *line < one.line && same(ranks))
        {
            one.grade = Grade::Followed;
        }
    }
}

fn remote(scene: &Scene<'_>, seen: &RuleInput<'_>) -> String {
    let peers =
        closed_peers(seen).map_or_else(String::new, |peers| format!(" ({peers} closed the connection)"));
    let unseen = scene.unseen();
    if unseen.is_empty() {
        return format!("a process of another rank ended{peers}; no log says which rank was the first");
    }
    format!("a process of another rank exited{peers}; {}", not_read(&unseen, ""))
}

fn exit(code: i32, order: Order, explained: bool) -> Option<(Grade, CauseClass, String)> {
    let signal = match code {
        0 => return None,
        ..0 => Some(code.checked_neg()?),
        129..=192 => Some(code - 128),
        _ => None,
    };
    match signal {
        // The launcher ends the other ranks with these signals.
        Some(15 | 2 | 1) => None,
        _ if order == Order::Later && !explained => {
            let what = format!("exit code {code} of a later failure; the first one is not in the log");
            Some((Grade::Later, CauseClass::ExitCode, what))
        }
        Some(9) if order == Order::Unknown => {
            Some((Grade::KilledWithOthers, CauseClass::Signal, signal_text(9)))
        }
        Some(9) => Some((Grade::Killed, CauseClass::Signal, signal_text(9))),
        Some(_) if explained => None,
        Some(6) => Some((Grade::Aborted, CauseClass::Signal, signal_text(6))),
        Some(signal) => Some((Grade::Crashed, CauseClass::Signal, signal_text(signal))),
        None if explained => None,
        None => Some((Grade::Exited, CauseClass::ExitCode, format!("exit code {code}"))),
    }
}

/// Returns the name of a signal, and what usually sends it.
pub(in crate::diagnose) fn signal_text(signal: i32) -> String {
    let known = SIGNALS.iter().find(|(_, number, meaning)| *number == signal && !meaning.is_empty());
    known.map_or_else(
        || format!("signal {signal}"),
        |(name, number, meaning)| format!("{name} ({number}): {meaning}"),
    )
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
        ClusterReason::Cancelled => (Grade::TimeLimit, CauseClass::Cancelled, "the job was cancelled"),
        ClusterReason::TimeLimit => {
            (Grade::TimeLimit, CauseClass::TimeLimit, "the time limit of the job was reached")
        }
    }
}

fn detail(fact: &Fact) -> CauseDetail {
    match fact {
        Fact::Exception(exception) => CauseDetail::of_exception(&root(exception).message),
        Fact::Exit { code, .. } => CauseDetail::of_exit(*code),
        Fact::Signal(9) => CauseDetail::Killed,
        Fact::Signal(7) => CauseDetail::BusError,
        Fact::Xid(_) => CauseDetail::Xid,
        Fact::Cuda(text) if text.contains("uncorrectable ECC") => CauseDetail::Xid,
        // docs.nvidia.com/cuda/cuda-runtime-api: errors 98, 209 and 500, read 2026-11-26.
        Fact::Cuda(text)
            if ["invalid device function", "named symbol not found", "no kernel image is available"]
                .iter()
                .any(|words| text.contains(words)) =>
        {
            CauseDetail::OtherArchitecture
        }
        _ => CauseDetail::None,
    }
}

/// Chooses among candidates of one grade: first by the launchers' first failure, then by fewer ranks, then
/// by order.
pub(super) fn choose(scene: &Scene<'_>, candidates: &[Candidate], grade: Grade) -> Option<Cause> {
    let of_grade = || candidates.iter().filter(|candidate| candidate.grade == grade);
    let first_ranks: BTreeSet<u32> = scene
        .reports
        .iter()
        .filter(|known| matches!(known.report.fact, Fact::Exit { order: Order::First, .. }))
        .filter_map(|known| known.rank)
        .collect();
    let mut groups: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in of_grade() {
        groups.entry(&candidate.key).or_default().push(candidate);
    }
    let weight = |group: &Vec<&Candidate>| {
        let launcher = group.iter().any(|one| one.first || !one.ranks.is_disjoint(&first_ranks));
        let ranks = group.iter().flat_map(|one| &one.ranks).collect::<BTreeSet<_>>().len();
        let line = group.iter().map(|one| one.line).min();
        // What NCCL wrote first led to the rest.
        let ranks = if matches!(grade, Grade::Nccl | Grade::Warned | Grade::Reported | Grade::Quoted) {
            0
        } else {
            ranks
        };
        (!launcher, ranks, line)
    };
    let group = groups.values().min_by_key(|group| weight(group))?;
    let head = group.first()?;
    let mut ranks: BTreeSet<u32> = group.iter().flat_map(|one| one.ranks.iter().copied()).collect();
    let victims_report = matches!(grade, Grade::Remote | Grade::Broken | Grade::Waiting);
    let mut confidence = if groups.len() > 1 { Confidence::Medium } else { Confidence::High };
    match grade {
        Grade::Remote | Grade::Broken | Grade::Waiting | Grade::Quoted | Grade::Warned | Grade::Reported => {
            // Who reports it is a victim.
            if victims_report {
                ranks.clear();
            }
            confidence = Confidence::Low;
        }
        Grade::Rendezvous | Grade::Later => ranks.clear(),
        // As watchdogs do with the ranks that wait.
        Grade::Aborted => confidence = Confidence::Low,
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
    if ranks.is_empty()
        && !matches!(grade, Grade::Rendezvous | Grade::Cluster | Grade::Ended | Grade::TimeLimit)
    {
        confidence = Confidence::Low;
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
        if evidence.len() < EVIDENCE && !evidence.contains(&line) {
            evidence.push(line);
        }
    }
    let named = |one: &&Candidate| one.host.clone().filter(|host| host != "-" && !victims_report);
    let hosts: BTreeSet<String> = group.iter().filter_map(named).collect();
    Some(Cause {
        class: head.class,
        ranks: ranks.into_iter().collect(),
        nodes: hosts.into_iter().collect(),
        code: head.rule.as_ref().map(|(code, _)| (*code).to_owned()),
        advice: head.rule.as_ref().map(|(_, fix)| fix.clone()),
        what: match silent {
            Some(rank) => format!(
                "the log of rank {rank} ends without an error, and all others report that a process ended"
            ),
            None => head.what.clone(),
        },
        detail: if silent.is_some() { CauseDetail::Silent } else { head.detail },
        frame: head.frame.clone(),
        evidence,
        confidence,
    })
}
