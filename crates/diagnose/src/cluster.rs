//! What the cluster reports of a job, beside what its logs show.

use super::cause::{Cause, CauseClass, Why, WhyState, signal_text};
use super::rule_input::RuleInput;
use super::rules::{rule_of_error, rule_of_exit};
use weftrun_core::finding::Evidence;
use weftrun_core::job::{JobDetail, JobPhase, TIME_LIMIT_REACHED};
use weftrun_core::{Confidence, Finding};

/// Returns the state that a phase proves.
pub fn state_of(phase: JobPhase) -> Option<WhyState> {
    match phase {
        JobPhase::Failed => Some(WhyState::Failed),
        JobPhase::Succeeded => Some(WhyState::Succeeded),
        JobPhase::Cancelled => Some(WhyState::Cancelled),
        JobPhase::Running | JobPhase::Restarting => Some(WhyState::Running),
        _ => None,
    }
}

/// Adds what the cluster reports to what the logs show.
pub fn add_status(why: &mut Why, seen: &RuleInput<'_>, job: &JobDetail) {
    let phase = job.summary.phase;
    if phase == JobPhase::Succeeded {
        return;
    }
    if let Some(said) = said_by_cluster(seen, job, why.cause.as_ref()) {
        let vague = why
            .cause
            .as_ref()
            .is_none_or(|cause| cause.ranks.is_empty() && cause.confidence == Confidence::Low);
        let taken = matches!(
            said.class,
            CauseClass::OomKilled | CauseClass::OutOfMemory | CauseClass::NodeFail | CauseClass::Evicted
        );
        if taken || vague {
            why.victims.retain(|rank| !said.ranks.contains(rank));
            why.cause = Some(said);
            if phase.is_terminal() || taken {
                why.state = WhyState::Failed;
            }
        }
    }
    let reason = &job.summary.reason;
    if why.state == WhyState::Failed && why.cause.is_none() {
        let reason = if reason.is_empty() { "no reason given" } else { reason };
        let message = format!("the job failed ({reason}), and its logs do not show why");
        why.findings.push(Finding::warning("WHY-NO-CAUSE", message));
    }
    let says_more = !(reason.is_empty() || reason == phase.as_str());
    // The state itself says that a job was cancelled.
    let stated = state_of(phase).is_some() && !(phase == JobPhase::Cancelled && says_more);
    if !stated && phase != JobPhase::Unknown && why.cause.is_none() {
        let reason = if says_more { format!(": {reason}") } else { String::new() };
        why.findings.push(Finding::info("WHY-PHASE", format!("the job is {phase}{reason}")));
    }
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

/// Returns the cause that the cluster reports, with its replica.
fn said_by_cluster(seen: &RuleInput<'_>, job: &JobDetail, by_logs: Option<&Cause>) -> Option<Cause> {
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
    let map = &seen.map;
    let failures = map.failures();
    let mut ranks: Vec<u32> = replica.and_then(|replica| replica.failed_rank).into_iter().collect();
    if let Some(replica) = replica.filter(|replica| replica.failed_rank.is_none()) {
        let own =
            |name: &str| name == replica.name || name.split(['/', ' ']).any(|part| part == replica.name);
        let sources = map.sources().filter(|(_, id)| own(&id.name) || own(&id.uid));
        let mut seen: Vec<u32> = sources
            .filter_map(|(at, id)| Some((id.rank, failures.ranks(at)?)))
            .flat_map(|(rank, source)| rank.into_iter().chain(source.seen.iter().copied()))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        if let [one] = seen.as_slice() {
            ranks.push(*one);
        }
    }
    if ranks.is_empty()
        && let Some(cause) = by_logs.filter(|cause| cause.class == CauseClass::Signal)
    {
        ranks.clone_from(&cause.ranks);
    }
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
    Some(Cause {
        ranks,
        nodes: node.into_iter().collect(),
        evidence: vec![Evidence { source: name.to_owned(), line: 0, text }],
        confidence,
        ..Cause::new(class, rule, what)
    })
}
