//! Maps Slurm's job states and pending reasons to weftrun's.

use weftrun_core::job::JobPhase;

/// Returns the phase of a state word. `CANCELLED by 2001` (sacct) and `RUNNING+` are accepted too; an unknown
/// word is [`JobPhase::Unknown`], and the word itself is kept in the reason.
pub fn phase(state: &str, reason: &str) -> JobPhase {
    let word = state.split([' ', '+']).next().unwrap_or_default();
    match word {
        "PENDING" if is_held(reason) => JobPhase::Suspended,
        "PENDING" | "REQUEUED" | "RESV_DEL_HOLD" => JobPhase::Pending,
        "REQUEUE_HOLD" | "SPECIAL_EXIT" | "SUSPENDED" | "STOPPED" => JobPhase::Suspended,
        "CONFIGURING" => JobPhase::Starting,
        "RUNNING" | "RESIZING" | "SIGNALING" => JobPhase::Running,
        "COMPLETING" | "STAGE_OUT" => JobPhase::Stopping,
        "COMPLETED" => JobPhase::Succeeded,
        "CANCELLED" | "REVOKED" => JobPhase::Cancelled,
        "FAILED" | "TIMEOUT" | "NODE_FAIL" | "OUT_OF_MEMORY" | "PREEMPTED" | "BOOT_FAIL" | "DEADLINE"
        | "LAUNCH_FAILED" => JobPhase::Failed,
        _ => JobPhase::Unknown,
    }
}

fn is_held(reason: &str) -> bool {
    matches!(reason, "JobHeldUser" | "JobHeldAdmin")
        || reason.starts_with("launch failed requeued held")
        || reason.starts_with("launch_failed_requeued_held")
}

/// The reason of a failed job until its exit code is known.
pub const FAILED: &str = "exited with an error";
/// The exit code of a job whose output file or folder slurmstepd cannot open: slurmstepd ends it with
/// real-time signal 53.
pub const UNUSABLE_OUTPUT: i32 = 128 + 53;

/// Describes how a failed job ended.
pub fn exit_words(code: i32) -> String {
    match code {
        UNUSABLE_OUTPUT => {
            "could not be started: its output file or working directory is not usable on the first node"
                .to_owned()
        }
        129..=192 => format!("ended by signal {}", code - 128),
        _ => format!("exited with {code}"),
    }
}

/// Describes a state and Slurm's reason in a sentence; empty if there is nothing to add.
pub fn sentence(state: &str, reason: &str) -> String {
    let word = state.split([' ', '+']).next().unwrap_or_default();
    let reason = if matches!(reason, "None" | "(null)" | "") { "" } else { reason };
    let text = match (word, reason) {
        ("PENDING", "") => "waits to be scheduled",
        ("PENDING", known) => return pending(known),
        ("CONFIGURING", _) => "nodes are being powered up",
        ("COMPLETING", _) => "is ending: processes are being stopped",
        // Slurm repeats the reason of the tasks of an array that wait for those that run.
        ("COMPLETED" | "RUNNING", "" | "JobHeldUser" | "JobHeldAdmin" | "JobArrayTaskLimit") => "",
        ("TIMEOUT", _) => "ran into its time limit",
        ("OUT_OF_MEMORY", _) => "ran out of memory",
        ("NODE_FAIL", _) => "a node failed",
        ("PREEMPTED", _) => "was preempted by another job",
        ("BOOT_FAIL", _) => "a node did not boot",
        ("DEADLINE", _) => "its deadline passed",
        ("CANCELLED", known) if never(known).is_some() => {
            return format!(
                "was cancelled before it started: {} ({known})",
                never(known).unwrap_or_default()
            );
        }
        ("CANCELLED", _) => "was cancelled",
        // 22.05 reports every end by a signal as a launch failure; the exit code distinguishes them.
        ("FAILED", "NonZeroExitCode" | "JobLaunchFailure" | "") => FAILED,
        ("FAILED", signal) if signal.starts_with("RaisedSignal:") => FAILED,
        ("FAILED", known) if never(known).is_some() => {
            return format!("could never start: {}", never(known).unwrap_or_default());
        }
        (_, "") => return word.to_owned(),
        _ => return format!("{word}: {reason}"),
    };
    text.to_owned()
}

fn pending(reason: &str) -> String {
    if let Some(nodes) =
        reason.strip_prefix("ReqNodeNotAvail, UnavailableNodes:").filter(|nodes| !nodes.is_empty())
    {
        return format!("waits: nodes are down, drained or reserved: {nodes} (ReqNodeNotAvail)");
    }
    let reason = reason.split_once(", UnavailableNodes:").map_or(reason, |(reason, _)| reason);
    let text = match reason {
        "Priority" => "waits: other jobs come first (Priority)",
        "Resources" => "waits for free nodes (Resources)",
        "BeginTime" => "waits for its start time, as a requeued job does for about two minutes (BeginTime)",
        "Dependency" => "waits for another job (Dependency)",
        "JobArrayTaskLimit" => "waits: as many tasks of the array run as allowed (JobArrayTaskLimit)",
        "JobHeldUser" => "is held by its owner; `weftrun release` lets it start (JobHeldUser)",
        "JobHeldAdmin" => "is held by an administrator (JobHeldAdmin)",
        "ReqNodeNotAvail" => "waits: a node it needs is down, drained or reserved (ReqNodeNotAvail)",
        "ReqNodeNotAvail, May be reserved for other job" => {
            "waits: a node it needs may be reserved for another job (ReqNodeNotAvail)"
        }
        "Reservation" => "waits for its reservation (Reservation)",
        "Licenses" => "waits for a license (Licenses)",
        _ if reason.to_ascii_lowercase().replace('_', " ").starts_with("nodes required for job are down") => {
            "waits: nodes it needs are down, drained or reserved for other partitions"
        }
        _ => {
            return never(reason).map_or_else(
                || format!("waits ({reason})"),
                |why| format!("will never start: {why} ({reason})"),
            );
        }
    };
    text.to_owned()
}

/// Returns why a pending job can never start, if its reason means that. Slurm accepts such requests unless
/// the site set `EnforcePartLimits` (seen on 22.05 and 26.05).
pub fn never(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "PartitionNodeLimit" => "it requests more nodes than the partition has or allows",
        "PartitionTimeLimit" => "its time limit is above the partition's",
        "PartitionConfig" => "no set of nodes of the partition can satisfy it",
        "BadConstraints" => "its constraints cannot be satisfied",
        "DependencyNeverSatisfied" => "the job it depends on failed or is unknown",
        "InvalidAccount" => "its account is not valid",
        "InvalidQOS" => "its QOS is not valid",
        "PartitionDown" | "PartitionInactive" => "the partition is down",
        "AccountNotAllowed" => "the partition does not take this account",
        "QOSNotAllowed" => "the partition does not take this QOS",
        "AssocMaxNodePerJobLimit" | "QOSMaxNodePerJobLimit" => {
            "it requests more nodes than one of your jobs may have"
        }
        "AssocMaxWallDurationPerJobLimit" | "QOSMaxWallDurationPerJobLimit" => {
            "its time limit is above what your association or QOS allows"
        }
        "AssocMaxCpuPerJobLimit" | "QOSMaxCpuPerJobLimit" | "QOSMaxGRESPerJob" | "AssocMaxGRESPerJob" => {
            "it requests more than one of your jobs may have"
        }
        _ => return None,
    })
}

/// Parses the exit code of `code:signal`, as in a shell: 128 + signal for a signal.
pub fn exit_code(text: &str) -> Option<i32> {
    let (code, signal) = text.split_once(':').unwrap_or((text, "0"));
    let (code, signal): (i32, i32) = (code.trim().parse().ok()?, signal.trim().parse().ok()?);
    Some(if signal == 0 || code != 0 { code } else { 128 + signal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_become_phases() {
        assert_eq!(phase("CANCELLED by 2001", ""), JobPhase::Cancelled);
        assert_eq!(phase("PENDING", "JobHeldUser"), JobPhase::Suspended);
        assert_eq!(phase("COMPLETING", "None"), JobPhase::Stopping);
        assert_eq!(phase("SOMETHING_NEW", "None"), JobPhase::Unknown);
        assert_eq!(sentence("SOMETHING_NEW", "None"), "SOMETHING_NEW");
    }

    #[test]
    fn a_pending_reason_names_the_nodes_it_waits_for() {
        let waits = |reason: &str| sentence("PENDING", reason);
        assert_eq!(
            waits("ReqNodeNotAvail, UnavailableNodes:rank[2-3]"),
            "waits: nodes are down, drained or reserved: rank[2-3] (ReqNodeNotAvail)"
        );
        assert_eq!(waits("ReqNodeNotAvail, UnavailableNodes:"), waits("ReqNodeNotAvail"));
        let long =
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions";
        for text in [long.to_owned(), long.replace(' ', "_")] {
            assert!(waits(&text).starts_with("waits: nodes it needs are down"), "{}", waits(&text));
        }
    }

    #[test]
    fn exit_codes_hold_signals() {
        assert_eq!(exit_code("3:0"), Some(3));
        assert_eq!(exit_code("0:9"), Some(137));
        assert_eq!(exit_code("255:0"), Some(255));
        assert_eq!(exit_code("nonsense"), None);
    }
}
