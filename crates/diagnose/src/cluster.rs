//! What the cluster reports of a job, beside what its logs show.

use std::collections::BTreeSet;

use super::cause::{Cause, CauseClass, NOT_FATAL, PHASE, RANK_FAILED, Why, WhyState, signal_text};
use super::rule_input::RuleInput;
use super::rules::{rule_of_error, rule_of_exit};
use weftrun_core::finding::Evidence;
use weftrun_core::job::{JobDetail, JobPhase, ReplicaStatus, TIME_LIMIT_REACHED};
use weftrun_core::{Confidence, Finding, Severity};

/// Returns the state that a phase proves.
pub fn state_of(phase: JobPhase) -> Option<WhyState> {
    match phase {
        JobPhase::Failed => Some(WhyState::Failed),
        JobPhase::Succeeded => Some(WhyState::Succeeded),
        JobPhase::Cancelled => Some(WhyState::Cancelled),
        JobPhase::Running | JobPhase::Restarting => Some(WhyState::Running),
        JobPhase::Submitted | JobPhase::Pending | JobPhase::Starting | JobPhase::Suspended => {
            Some(WhyState::Pending)
        }
        _ => None,
    }
}

/// Adds what the cluster reports to what the logs show.
pub fn add_status(why: &mut Why, seen: &RuleInput<'_>, job: &JobDetail) {
    let phase = job.summary.phase;
    if phase == JobPhase::Succeeded {
        say_how_it_ended(&mut why.findings, &job.replicas);
        let failed = job.findings.iter().filter(|finding| finding.severity == Severity::Error);
        why.findings.extend(failed.cloned());
        return;
    }
    let mut used = None;
    if let Some((said, finding)) = said_by_cluster(seen, job, why.cause.as_ref()) {
        let vague = why
            .cause
            .as_ref()
            .is_none_or(|cause| cause.ranks.is_empty() && cause.confidence == Confidence::Low);
        // An exit code says less than any line, and a deletion that nobody explains than a failure of a rank's own.
        let outweighs = |cause: &Cause| match said.class {
            CauseClass::ExitCode | CauseClass::Signal => cause.class == CauseClass::ExitCode,
            CauseClass::Deleted => !is_own(cause),
            _ => true,
        };
        let outweighs = why.cause.as_ref().is_none_or(outweighs);
        // These end processes from outside; what the ranks print of it are consequences.
        let taken = matches!(
            said.class,
            CauseClass::OomKilled
                | CauseClass::OutOfMemory
                | CauseClass::NodeFail
                | CauseClass::Evicted
                | CauseClass::Preempted
                | CauseClass::Deleted
        );
        if outweighs && (taken || vague) {
            why.victims.retain(|rank| !said.ranks.contains(rank));
            why.cause = Some(said);
            used = finding;
            if phase == JobPhase::Failed || taken && why.state != WhyState::Pending {
                why.state = WhyState::Failed;
            }
        }
    }
    if why.state == WhyState::Pending
        && let Some(cause) = why.cause.as_mut().filter(|cause| cause.class.is_over_when_queued_again())
    {
        "nothing, if it may run again: it is queued again and starts when nodes are free; else cancel it"
            .clone_into(&mut cause.fix);
    }
    if matches!(phase, JobPhase::Running | JobPhase::Restarting) {
        why.wait_for_the_end();
    }
    let reason = &job.summary.reason;
    if why.state == WhyState::Failed && why.cause.is_none() {
        let reason = if reason.is_empty() { "no reason given" } else { reason };
        let message = format!("the job failed ({reason}), and its logs do not show why");
        why.findings.push(Finding::warning("WHY-NO-CAUSE", message));
    }
    let says_more = !(reason.is_empty() || reason == phase.as_str());
    // The state itself says that a job was cancelled.
    let stated = state_of(phase).is_some_and(|state| state != WhyState::Pending)
        && !(phase == JobPhase::Cancelled && says_more);
    if !stated && phase != JobPhase::Unknown && (why.cause.is_none() || why.state == WhyState::Pending) {
        let reason = if says_more { format!(": {reason}") } else { String::new() };
        let finding = Finding::info(PHASE, format!("the job is {phase}{reason}"));
        let held = phase == JobPhase::Suspended;
        why.findings.push(if held { finding.fix(release(&reason)) } else { finding });
    }
    // What else the cluster reports, without what only repeats that the job failed.
    let repeats = |finding: &&Finding| {
        Some(&finding.code) == used.as_ref()
            || class_of(&finding.code) == Some(CauseClass::ExitCode)
            || why.cause.as_ref().is_some_and(|cause| cause.code == finding.code)
    };
    let more: Vec<Finding> = job.findings.iter().filter(|finding| !repeats(finding)).cloned().collect();
    why.findings.extend(more);
}

/// Says of the error of a rank how the processes ended: a program may go on after an exception, and a rank failed only where a
/// process ended with an error.
fn say_how_it_ended(findings: &mut [Finding], replicas: &[ReplicaStatus]) {
    if replicas.iter().any(|replica| replica.exit_code.is_some_and(|code| code != 0)) {
        return;
    }
    let all = !replicas.is_empty() && replicas.iter().all(|replica| replica.exit_code == Some(0));
    let how = if all { "its process ended with exit code 0" } else { "how its process ended is not known" };
    for finding in findings.iter_mut().filter(|finding| finding.code == RANK_FAILED) {
        NOT_FATAL.clone_into(&mut finding.code);
        finding.severity = Severity::Warning;
        finding.message = format!("{}; {how}", finding.message);
    }
}

/// Returns what lets a job go on that somebody stopped.
fn release(reason: &str) -> &'static str {
    let has = |word: &str| reason.to_ascii_lowercase().contains(word);
    match () {
        () if has("administrator") => "ask your cluster's administrator why: only they can let it start",
        () if has("held") => "`weftrun release` lets it start",
        () => "`weftrun resume` lets it go on, where it was you who suspended it; else ask who did",
    }
}

/// Returns whether a rank failed by itself, whatever happened to it from outside.
fn is_own(cause: &Cause) -> bool {
    matches!(
        cause.class,
        CauseClass::Exception
            | CauseClass::CudaOutOfMemory
            | CauseClass::CudaError
            | CauseClass::CollectiveMismatch
            | CauseClass::NotStarted
    )
}

/// Returns the class of the cause that a cluster's finding is; those that only say that something failed are an exit code.
pub(crate) fn class_of(code: &str) -> Option<CauseClass> {
    Some(match code {
        "K8S-PREEMPTED" => CauseClass::Preempted,
        "K8S-DRAINED" | "K8S-EVICTED" | "K8S-DISRUPTED" => CauseClass::Evicted,
        "K8S-NODE-LOST" | "SLURM-NODE-FAILED" => CauseClass::NodeFail,
        "K8S-DELETED" | "K8S-NAMESPACE-DELETED" => CauseClass::Deleted,
        "K8S-OOM" => CauseClass::OomKilled,
        "SLURM-OUT-OF-MEMORY" => CauseClass::OutOfMemory,
        "SLURM-TIME-LIMIT" => CauseClass::TimeLimit,
        "SLURM-PREEMPTED" => CauseClass::Preempted,
        "K8S-IMAGE-PULL" => CauseClass::Image,
        "K8S-UNSCHEDULABLE" | "K8S-GANG" => CauseClass::Unschedulable,
        "K8S-QUOTA" | "K8S-PRIORITY" | "K8S-POD-SECURITY" | "K8S-HUGEPAGES" | "K8S-POD-REFUSED"
        | "K8S-ADMISSION" | "K8S-WEBHOOK" | "K8S-VALIDATION" | "SLURM-NEVER-STARTS" => CauseClass::Refused,
        "K8S-CONFIG"
        | "K8S-MOUNT"
        | "K8S-SANDBOX"
        | "K8S-DEVICES"
        | "K8S-START"
        | "K8S-NO-OPERATOR"
        | "K8S-POD-ENDING"
        | "SLURM-OUTPUT-UNUSABLE" => CauseClass::NotStarted,
        "K8S-EXIT" | "K8S-CRASH-LOOP" | "K8S-FAILED" => CauseClass::ExitCode,
        _ => return None,
    })
}

/// Returns whether the cluster itself says that it ended a job: a node failed, or it took the nodes away. Never where a person
/// cancelled the job, whatever had happened to it before.
pub fn ended_by_cluster(job: &JobDetail) -> bool {
    let reason = &job.summary.reason;
    let by_person = reason.to_ascii_lowercase().contains("cancelled");
    let said = by_finding(job).map(|(_, class)| class).or_else(|| class(reason));
    !by_person && matches!(said, Some(CauseClass::NodeFail | CauseClass::Preempted | CauseClass::Evicted))
}

/// Returns the cause that a finding of the cluster is, with the replica that it names.
fn by_finding(job: &JobDetail) -> Option<(&Finding, CauseClass)> {
    let mut known = job.findings.iter().filter_map(|finding| Some((finding, class_of(&finding.code)?)));
    known.find(|(_, class)| *class != CauseClass::ExitCode)
}

/// Returns the class of a cluster's message.
fn class(text: &str) -> Option<CauseClass> {
    [
        (&["OOMKilled"][..], CauseClass::OomKilled),
        (&["OUT_OF_MEMORY", "OutOfMemory"], CauseClass::OutOfMemory),
        (&["Evicted", "evicted"], CauseClass::Evicted),
        (&["NODE_FAIL", "NodeLost", "NodeShutdown", "NodeNotReady", "node lost"], CauseClass::NodeFail),
        (&["PREEMPTED", "Preempted", "Preempting"], CauseClass::Preempted),
        (&["TIMEOUT", "DeadlineExceeded", "DEADLINE", TIME_LIMIT_REACHED], CauseClass::TimeLimit),
        (&["ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"], CauseClass::Image),
        (&["Unschedulable", "FailedScheduling"], CauseClass::Unschedulable),
    ]
    .into_iter()
    .find(|(words, _)| words.iter().any(|word| text.contains(word)))
    .map(|(_, class)| class)
}

/// Returns the cause that the cluster reports, with its replica, and the code of the finding that it is.
fn said_by_cluster(
    seen: &RuleInput<'_>,
    job: &JobDetail,
    by_logs: Option<&Cause>,
) -> Option<(Cause, Option<String>)> {
    if let Some((finding, class)) = by_finding(job) {
        let subject = finding.subject.as_deref().unwrap_or_default();
        let pod = subject.split('/').next().unwrap_or_default();
        let replica = job.replicas.iter().find(|replica| replica.name == pod);
        let node = replica.and_then(|replica| replica.node.clone());
        let by_logs_too = by_logs.filter(|cause| cause.class == class && !cause.nodes.is_empty());
        let nodes = match (node, by_logs_too) {
            (Some(node), _) => vec![node],
            (None, Some(cause)) => cause.nodes.clone(),
            (None, None) if class == CauseClass::NodeFail && !subject.is_empty() => vec![subject.to_owned()],
            (None, None) => Vec::new(),
        };
        let rule = rule_of_error(class, &[]);
        let fix = finding.fix.as_ref().map_or(rule.fix, |fix| fix.text.as_str());
        let source = if subject.is_empty() { job.summary.name.clone() } else { subject.to_owned() };
        let cause = Cause {
            ranks: replica.map_or_else(Vec::new, |replica| ranks_of(seen, replica, by_logs)),
            nodes,
            code: finding.code.clone(),
            fix: fix.to_owned(),
            evidence: by_logs.filter(|cause| cause.class == class).map_or_else(
                || vec![Evidence { source, line: 0, text: finding.message.clone() }],
                |cause| cause.evidence.clone(),
            ),
            confidence: if finding.code == "K8S-DELETED" { Confidence::Medium } else { Confidence::High },
            ..Cause::new(class, rule, finding.message.clone())
        };
        return Some((cause, Some(finding.code.clone())));
    }
    let of_replica = job.replicas.iter().find_map(|replica| Some((class(&replica.reason)?, Some(replica))));
    let of_job = || class(&job.summary.reason).map(|class| (class, None));
    let exited = || {
        let failed = job
            .replicas
            .iter()
            .find(|replica| replica.exit_code.is_some_and(|code| !matches!(code, 0 | 143 | -15)));
        failed.map(|replica| (CauseClass::ExitCode, Some(replica)))
    };
    let whole = || {
        let code = job.summary.exit_code.filter(|code| *code != 0);
        code.filter(|_| job.summary.phase == JobPhase::Failed).map(|_| (CauseClass::ExitCode, None))
    };
    let (class, replica) = of_replica.or_else(of_job).or_else(exited).or_else(whole)?;
    let ranks = match replica {
        Some(replica) => ranks_of(seen, replica, by_logs),
        None => of_signal(by_logs),
    };
    let code = replica.map_or(job.summary.exit_code, |replica| replica.exit_code);
    let (name, reason) = match replica {
        Some(replica) => (replica.name.as_str(), replica.reason.as_str()),
        None => (job.summary.name.as_str(), job.summary.reason.as_str()),
    };
    let (class, what) = match (class, code) {
        (CauseClass::ExitCode, Some(137 | -9)) => (CauseClass::Signal, signal_text(9)),
        (CauseClass::ExitCode, Some(139 | -11)) => (CauseClass::Signal, signal_text(11)),
        (CauseClass::ExitCode, Some(code)) => (CauseClass::ExitCode, format!("exit code {code}")),
        (_, Some(code)) if code != 0 => (class, format!("{name}: {reason} (exit code {code})")),
        _ => (class, format!("{name}: {reason}")),
    };
    let node = replica.and_then(|replica| replica.node.clone());
    let confidence = if class == CauseClass::ExitCode { Confidence::Low } else { Confidence::High };
    let text = if reason.is_empty() { what.clone() } else { reason.to_owned() };
    let rule = match (class, code) {
        (CauseClass::ExitCode | CauseClass::Signal, Some(code)) => rule_of_exit(code),
        _ => rule_of_error(class, &[]),
    };
    let cause = Cause {
        ranks,
        nodes: node.into_iter().collect(),
        evidence: vec![Evidence { source: name.to_owned(), line: 0, text }],
        confidence,
        ..Cause::new(class, rule, what)
    };
    Some((cause, None))
}

/// Returns the ranks that the logs show a signal to have ended.
fn of_signal(by_logs: Option<&Cause>) -> Vec<u32> {
    by_logs
        .filter(|cause| cause.class == CauseClass::Signal)
        .map_or_else(Vec::new, |cause| cause.ranks.clone())
}

/// Returns the rank of a replica, where it is known.
fn ranks_of(seen: &RuleInput<'_>, replica: &ReplicaStatus, by_logs: Option<&Cause>) -> Vec<u32> {
    if let Some(rank) = replica.failed_rank {
        return vec![rank];
    }
    let (map, failures) = (&seen.map, seen.map.failures());
    let own = |name: &str| name == replica.name || name.split(['/', ' ']).any(|part| part == replica.name);
    let sources = map.sources().filter(|(_, id)| own(&id.name) || own(&id.uid));
    let ranks: BTreeSet<u32> = sources
        .filter_map(|(at, id)| Some((id.rank, failures.ranks(at)?)))
        .flat_map(|(rank, source)| rank.into_iter().chain(source.seen.iter().copied()))
        .collect();
    if ranks.len() == 1 { ranks.into_iter().collect() } else { of_signal(by_logs) }
}
