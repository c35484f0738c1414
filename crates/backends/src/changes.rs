//! What changed of a job between two polls, as events.

use std::collections::{BTreeMap, BTreeSet};

use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::{Finding, Result};

/// The last reported state of a job.
#[derive(Debug, Default)]
pub struct Reported {
    /// Its line in a list.
    pub summary: Option<JobSummary>,
    /// Its attempt, from 0.
    pub attempt: u32,
    replicas: BTreeMap<String, ReplicaStatus>,
    /// Messages of findings.
    findings: BTreeSet<String>,
}

/// The state of a job at one poll.
#[derive(Clone, Debug)]
pub struct Look {
    /// Its line in a list.
    pub summary: JobSummary,
    /// Its processes, hosts or pods.
    pub replicas: Vec<ReplicaStatus>,
    /// Its attempt, from 0.
    pub attempt: u32,
    /// Why the attempt began.
    pub why: String,
    /// What keeps the job from going on.
    pub findings: Vec<Finding>,
}

impl Look {
    /// Makes the state of a job in its first attempt, of which nothing else is known.
    pub fn of(summary: JobSummary) -> Self {
        // The reason of a job that has ended is that of its end.
        let why = if summary.phase.is_terminal() { String::new() } else { summary.reason.clone() };
        Self { summary, replicas: Vec::new(), attempt: 0, why, findings: Vec::new() }
    }
}

impl Reported {
    /// Returns whether the job was reported to have ended.
    pub fn has_ended(&self) -> bool {
        self.summary.as_ref().is_some_and(|summary| summary.phase.is_terminal())
    }

    /// Returns what changed since the last poll.
    pub fn changes(&mut self, look: Look) -> Vec<JobEvent> {
        let (mut events, job) = (Vec::new(), look.summary.handle.clone());
        if look.attempt > self.attempt {
            self.attempt = look.attempt;
            events.push(JobEvent::Attempt { job: job.clone(), attempt: look.attempt, reason: look.why });
        }
        // One that is not there for a while is reported again.
        let mut known = std::mem::take(&mut self.replicas);
        for replica in look.replicas {
            // A replica that was never reported gets an event once it leaves the pending phase.
            let before = known.remove(&replica.name);
            if before.map_or(replica.phase != JobPhase::Submitted, |before| before != replica) {
                events.push(JobEvent::Replica { job: job.clone(), replica: replica.clone() });
            }
            self.replicas.insert(replica.name.clone(), replica);
        }
        let news = look.findings.into_iter().filter(|finding| self.findings.insert(finding.message.clone()));
        events.extend(news.map(|finding| JobEvent::Stuck { job: job.clone(), finding }));
        if self.summary.as_ref() != Some(&look.summary) {
            events.push(JobEvent::Status { job: look.summary.clone() });
            self.summary = Some(look.summary);
        }
        events
    }
}

/// Returns what changed of all jobs since the last poll, and whether everything requested has ended.
pub fn compare(
    reported: &mut BTreeMap<JobHandle, Reported>,
    seen: Vec<Look>,
    filter: &JobFilter,
) -> (Vec<Result<JobEvent>>, bool) {
    let is_gone = |handle: &&JobHandle| !seen.iter().any(|look| look.summary.handle == **handle);
    let gone: Vec<_> = reported.keys().filter(is_gone).cloned().collect();
    reported.retain(|handle, _| !gone.contains(handle));
    let mut events: Vec<_> = gone.into_iter().map(|job| Ok(JobEvent::Gone { job })).collect();
    let ended = seen.iter().all(|look| look.summary.phase.is_terminal());
    for look in seen {
        let reported = reported.entry(look.summary.handle.clone()).or_default();
        events.extend(reported.changes(look).into_iter().map(Ok));
    }
    (events, ended && !filter.handles.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of a job that is queued again, and runs on the same node.
    #[test]
    fn a_replica_that_was_not_there_for_a_while_is_reported_again() {
        let mut reported = Reported::default();
        let mut poll = |attempt, running: bool| {
            let phase = if running { JobPhase::Running } else { JobPhase::Pending };
            let summary = JobSummary::new(JobHandle::new("b", "t", ["job"]), phase);
            let nodes = running.then(|| ReplicaStatus::new("n1", "worker", 0, JobPhase::Running));
            let finding = Finding::warning("X", "it waits");
            let look = Look {
                attempt,
                replicas: nodes.into_iter().collect(),
                findings: vec![finding],
                ..Look::of(summary)
            };
            let name = |event: &JobEvent| match event {
                JobEvent::Attempt { .. } => "attempt",
                JobEvent::Replica { .. } => "replica",
                JobEvent::Stuck { .. } => "stuck",
                _ => "status",
            };
            reported.changes(look).iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(poll(0, true), ["replica", "stuck", "status"]);
        assert_eq!(poll(0, true), [""; 0]);
        assert_eq!(poll(1, false), ["attempt", "status"]);
        assert_eq!(poll(1, true), ["replica", "status"]);
    }
}
