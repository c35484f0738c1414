//! What single lines say of an end: exit codes, signals, the cluster's reasons, errors of the driver.

use weftrun_nccl::failure::{ClusterReason, Fact, Order, Report, SIGNALS};

use super::super::class::CauseClass;
use super::super::scene::Scene;
use crate::cause::grade::Grade;

/// Returns the host that a fact or its line names.
pub(super) fn host_of(fact: &Fact, text: &str) -> Option<String> {
    match fact {
        Fact::WorkerLost { host, .. } => host.clone(),
        _ => host_in_brackets(text).or_else(|| host_in_words(text)),
    }
}

/// Returns the host that Ray's monitor of memory, launchers or nccl-tests name.
fn host_in_words(text: &str) -> Option<String> {
    let behind = |words: &str| text.split_once(words).map(|(_, rest)| rest);
    let rest = if text.contains("memory pressure") || text.contains("memory usage threshold") {
        behind("IP: ")?
    } else if text.contains("Raylet is terminated") {
        behind("ip=")?
    } else if text.contains("Node failure on ") {
        behind("Node failure on ")?
    } else if text.contains("STEPD TERMINATED ON ") {
        behind("STEPD TERMINATED ON ")?
    } else if text.contains("Task launch for") {
        behind(" failed on node ")?
    } else if text.contains("has been marked dead") {
        behind("address: ").or_else(|| behind(" ip: "))?
    } else if text.contains("MPICH ERROR [Rank ") {
        text.split_once("] - Abort(")?.0.rsplit_once('[')?.1
    } else if text.contains("exits with return code = ") {
        // pdsh, with which DeepSpeed starts its launchers.
        text.split_once(": [").map(|(host, _)| host).filter(|host| !host.contains(' '))?
    } else {
        // Behind a row of its table, which has no newline yet, the name cannot be told from the row's last word.
        text.split_once(": Test ")?.0.rsplit('>').next().filter(|host| !host.trim().contains(' '))?
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    let name = rest.split(|letter| !is_name(letter)).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the host that a line names in the way of Open MPI and UCX: `[node1:4711]`, `[node1:4711:0:4711]`.
pub(super) fn host_in_brackets(text: &str) -> Option<String> {
    let (inside, _) = text.split_once(']')?;
    let (host, rest) = inside.strip_prefix('[').unwrap_or(inside).split_once(':')?;
    let is_name = host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    let numbers =
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b' '));
    (is_name && numbers).then(|| host.to_owned())
}

/// Errors of the driver that a program causes, or that follow from others: docs.nvidia.com/deploy/xid-errors, read 2026-11-26.
pub(super) const PROGRAM_XIDS: &[u32] = &[13, 31, 43, 45, 68, 69, 109];

pub(crate) use weftrun_nccl::failure::HARDWARE_XIDS;

/// Returns how much an error of the driver explains: what comes after an error of a program on the same GPU follows from it.
pub(super) fn grade_of_xid(number: u32, report: &Report, scene: &Scene<'_>) -> Grade {
    let gpu = |text: &str| Some(text.split_once("(PCI:")?.1.split_once(')')?.0.to_owned());
    let own = gpu(&report.text);
    let is_first = |other: &Report| {
        matches!(other.fact, Fact::Xid(13 | 31 | 43 | 69))
            && other.source == report.source
            && other.line < report.line
            && own.is_some()
            && gpu(&other.text) == own
    };
    let follows =
        !HARDWARE_XIDS.contains(&number) && scene.reports.iter().any(|known| is_first(known.report));
    if follows || PROGRAM_XIDS.contains(&number) { Grade::Crashed } else { Grade::Cluster }
}

/// Describes an error that the driver reports, with its GPU where the line names one.
pub(super) fn xid(number: u32, text: &str) -> String {
    const MEANINGS: &[(u32, &str)] = &[
        (13, "a kernel accessed memory wrongly"),
        (31, "a kernel accessed memory that is not mapped"),
        (43, "a kernel stopped the GPU's processing"),
        (45, "cleanup after an earlier error"),
        (48, "uncorrectable ECC error"),
        (63, "a row of memory is remapped"),
        (64, "a row of memory cannot be remapped"),
        (74, "NVLink error"),
        (79, "the GPU fell off the bus"),
        (94, "contained ECC error"),
        (95, "uncontained ECC error"),
        (69, "a kernel or a call of the program was wrong"),
        (109, "a switch between programs on the GPU timed out, as after an earlier error"),
        (119, "the GSP of the GPU does not answer"),
        (120, "error of the GSP of the GPU"),
        (137, "NVLink error of an access to another GPU's memory"),
        (140, "unrecovered ECC error"),
        (144, "NVLink error"),
        (145, "NVLink error"),
        (146, "NVLink error"),
        (147, "NVLink error"),
        (148, "NVLink error"),
        (149, "NVLink error"),
        (150, "NVLink error"),
    ];
    // The address stands behind `PCI:`, or as `GPU 0000:b3:00.0` where the driver found no GPU to name.
    let address = text.split_once("PCI:").or_else(|| text.split_once("GPU ")).and_then(|(_, rest)| {
        let end = rest.find(|of: char| !of.is_ascii_hexdigit() && !matches!(of, ':' | '.'))?;
        rest.get(..end).filter(|address| address.contains(':'))
    });
    let gpu = address.map_or_else(String::new, |address| format!(" of GPU {address}"));
    // A following error names the first one, which another GPU may have reported.
    let gpu = if text.contains("caused by previous Xid") { String::new() } else { gpu };
    if number == 79 && !text.contains("Xid") {
        return "a GPU fell off the bus".to_owned();
    }
    let meaning = MEANINGS.iter().find(|(known, _)| *known == number);
    let meaning = meaning.map_or_else(String::new, |(_, meaning)| format!(": {meaning}"));
    format!("the driver reports Xid {number}{gpu}{meaning}")
}

pub(super) fn exit(code: i32, order: Order, explained: bool) -> Option<(Grade, CauseClass, String)> {
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
pub(crate) fn signal_text(signal: i32) -> String {
    let known = SIGNALS.iter().find(|(_, number, meaning)| *number == signal && !meaning.is_empty());
    known.map_or_else(
        || format!("signal {signal}"),
        |(name, number, meaning)| format!("{name} ({number}): {meaning}"),
    )
}

pub(super) fn cluster(reason: ClusterReason) -> (Grade, CauseClass, &'static str) {
    match reason {
        ClusterReason::OutOfMemory => (
            Grade::Cluster,
            CauseClass::OutOfMemory,
            "memory ran out (the limit of the job, or that of the host), and the kernel killed a process",
        ),
        ClusterReason::NodeFailure => (Grade::Cluster, CauseClass::NodeFail, "a node failed"),
        ClusterReason::Evicted => (Grade::Cluster, CauseClass::Evicted, "a pod was evicted"),
        ClusterReason::Image => (Grade::Cluster, CauseClass::Image, "the image could not be pulled"),
        ClusterReason::Unschedulable => (Grade::Cluster, CauseClass::Unschedulable, "no node can take a pod"),
        ClusterReason::Preempted => (Grade::Ended, CauseClass::Preempted, "another job took the nodes"),
        ClusterReason::Requeued => {
            (Grade::Ended, CauseClass::Cancelled, "the job was put back into the queue")
        }
        ClusterReason::Cancelled => (Grade::TimeLimit, CauseClass::Cancelled, "the job was cancelled"),
        ClusterReason::TimeLimit => {
            (Grade::TimeLimit, CauseClass::TimeLimit, "the time limit of the job was reached")
        }
    }
}
