//! Possible causes of a failure, graded by how likely they are causes and not consequences.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use weftrun_nccl::failure::{ClusterReason, Exception, Fact, Frame, Order, SIGNALS};

use super::EVIDENCE;
use super::answer::{Cause, CauseClass, CauseDetail, not_read};
use super::scene::Scene;
use crate::Confidence;
use crate::finding::Evidence;

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
    /// Native code crashed, which also happens to victims while they end.
    Crashed,
    /// A process ended with an exit code.
    Exited,
    /// Ranks disagree about a collective, or one did not join.
    Collective,
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
}

impl Grade {
    /// Returns whether the cluster ended the job as a whole.
    pub fn ends_job(self) -> bool {
        matches!(self, Self::Ended | Self::TimeLimit)
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
    rank: Option<u32>,
    first: bool,
    report: usize,
}

impl Candidate {
    /// Returns whether neither the line nor a launcher says which rank it was.
    pub fn is_nobodys(&self) -> bool {
        self.rank.is_none() && !self.first
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

/// Returns how much an exception explains, and its class.
pub(super) fn judge(exception: &Exception) -> (Grade, CauseClass) {
    let (name, message) = (exception.short_name(), exception.message.as_str());
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let full = ["CUDA out of memory", "CUDA error: out of memory", "RESOURCE_EXHAUSTED: Out of memory"];
    if name == "OutOfMemoryError" || says(&full) {
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

/// Returns every fact that may be the cause.
pub(super) fn candidates(scene: &Scene<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    let remote = LazyCell::new(|| remote(scene));
    let explains = |fact: &Fact| {
        matches!(fact, Fact::Exception(_) | Fact::TimedOut { .. } | Fact::RemoteExit | Fact::Died)
    };
    // Ranks whose exit the log explains.
    let explained = scene.reports.iter().filter(|known| explains(&known.report.fact));
    let explained: BTreeSet<u32> = explained.filter_map(|known| known.rank).collect();
    for (at, known) in scene.reports.iter().enumerate() {
        let mut add = |grade, class, what: String, frame: Option<Frame>, first| {
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
                let frame = root.frame.as_ref().or(exception.frame.as_ref()).cloned();
                match grade {
                    Grade::Remote => add(grade, class, remote.clone(), None, false),
                    Grade::Rendezvous => add(grade, class, what(class, root), None, false),
                    _ => add(grade, class, what(class, root), frame, false),
                }
            }
            Fact::Exit { code, order } => {
                let explained = known.rank.is_some_and(|rank| explained.contains(&rank));
                if let Some((grade, class, what)) = exit(*code, *order, explained) {
                    add(grade, class, what, None, *order == Order::First);
                }
            }
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
                let what = format!("the driver reports Xid {number}");
                add(Grade::Cluster, CauseClass::CudaError, what, None, false);
            }
            Fact::Cluster(reason) => {
                let (grade, class, what) = cluster(*reason);
                add(grade, class, what.to_owned(), None, false);
            }
            Fact::RemoteExit => add(Grade::Remote, CauseClass::ExitCode, remote.clone(), None, false),
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
    format!("a process of another rank exited; {}", not_read(&unseen, ""))
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
        Grade::Rendezvous | Grade::Later => ranks.clear(),
        Grade::Cluster if ranks.is_empty() => {
            // The launcher may report which rank the kernel killed.
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
        matches!(known.report.fact, Fact::Exit { order: Order::First, .. })
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
        detail: scene
            .reports
            .get(head.report)
            .map_or_else(CauseDetail::default, |known| detail(&known.report.fact)),
        frame: head.frame.clone(),
        evidence,
        confidence,
    })
}
