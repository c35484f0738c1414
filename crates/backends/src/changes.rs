//! What changed of jobs between two polls, as events: for the backends that poll.

use std::collections::BTreeMap;

use weftrun_core::Result;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus};

/// The last reported state of a job.
#[derive(Default)]
pub struct Reported {
    summary: Option<JobSummary>,
    replicas: Vec<ReplicaStatus>,
    attempt: u32,
}

/// The state of a job at one poll.
#[derive(Clone)]
pub struct Look {
    pub summary: JobSummary,
    /// Its processes.
    pub replicas: Vec<ReplicaStatus>,
    pub attempt: u32,
}

/// Returns what changed since the last poll, and whether everything requested has ended.
pub fn compare(
    reported: &mut BTreeMap<JobHandle, Reported>,
    seen: Vec<Look>,
    filter: &JobFilter,
) -> (Vec<Result<JobEvent>>, bool) {
    let mut events = Vec::new();
    let gone: Vec<_> =
        reported.keys().filter(|h| !seen.iter().any(|l| l.summary.handle == **h)).cloned().collect();
    for handle in gone {
        reported.remove(&handle);
        events.push(Ok(JobEvent::Gone { job: handle }));
    }
    let ended = seen.iter().all(|look| look.summary.phase.is_terminal());
    for look in seen {
        tell(reported.entry(look.summary.handle.clone()).or_default(), look, &mut events);
    }
    (events, ended && !filter.handles.is_empty())
}

fn tell(reported: &mut Reported, look: Look, events: &mut Vec<Result<JobEvent>>) {
    let job = look.summary.handle.clone();
    if look.attempt > reported.attempt {
        reported.attempt = look.attempt;
        // The reason of a job that has ended is that of its end.
        let reason =
            if look.summary.phase.is_terminal() { String::new() } else { look.summary.reason.clone() };
        events.push(Ok(JobEvent::Attempt { job: job.clone(), attempt: look.attempt, reason }));
    }
    let changed = look.replicas.iter().enumerate().filter(|(i, now)| reported.replicas.get(*i) != Some(now));
    // A replica that was never reported gets an event once it leaves the pending phase.
    let news =
        changed.filter(|(i, now)| reported.replicas.get(*i).is_some() || now.phase != JobPhase::Submitted);
    events.extend(news.map(|(_, now)| Ok(JobEvent::Replica { job: job.clone(), replica: now.clone() })));
    reported.replicas = look.replicas;
    if reported.summary.as_ref() != Some(&look.summary) {
        events.push(Ok(JobEvent::Status { job: look.summary.clone() }));
        reported.summary = Some(look.summary);
    }
}
