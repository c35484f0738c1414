//! How far a followed job has come, in few lines: a thousand nodes that start are a counter and not a thousand lines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weftrun::core::job::{JobDetail, JobPhase, JobSummary, ReplicaStatus};
use weftrun::core::log::clean_text;

use crate::follow::{replica_text, status_text};

/// The least time between two lines that differ in counts alone.
const PAUSE: Duration = Duration::from_secs(3);
/// The largest number of groups of replicas that a line names.
const MAX_GROUPS: usize = 4;

/// What was seen of a job and of its replicas, and what of it was printed.
#[derive(Debug, Default)]
pub struct Progress {
    job: Option<JobSummary>,
    /// Those of the attempt that runs.
    replicas: BTreeMap<String, ReplicaStatus>,
    /// The line that was printed last.
    printed: String,
    /// Whether another attempt has begun.
    again: bool,
    when: Option<Instant>,
}

impl Progress {
    /// Takes the status of the job; returns its line if it is in another phase, or for another reason, than before.
    pub fn status(&mut self, job: &JobSummary, now: Instant) -> Option<String> {
        let before = self.job.replace(job.clone());
        let is_new =
            before.is_none_or(|before| (before.phase, before.reason) != (job.phase, job.reason.clone()));
        if is_new { self.line(now) } else { None }
    }

    /// Takes the status of a replica; returns its line if something is wrong with it.
    pub fn replica(&mut self, replica: &ReplicaStatus) -> Option<String> {
        let before = self.replicas.insert(replica.name.clone(), replica.clone());
        let is_new =
            before.is_none_or(|before| (before.phase, &before.reason) != (replica.phase, &replica.reason));
        (is_new && !is_ordinary(replica.phase)).then(|| replica_text(replica))
    }

    /// Forgets the replicas, where another attempt begins.
    pub fn attempt(&mut self) {
        self.replicas.clear();
        self.again = true;
    }

    /// Returns whether the job waits for its next attempt.
    pub fn waits_again(&self) -> bool {
        self.again && self.job.as_ref().is_some_and(|job| is_waiting(job.phase))
    }

    /// Returns the last status of the job and of its replicas.
    pub fn into_detail(self) -> Option<JobDetail> {
        let mut detail = JobDetail::new(self.job?);
        detail.replicas = self.replicas.into_values().collect();
        Some(detail)
    }

    /// Returns the line if counts have changed, some time after the last.
    pub fn due(&mut self, now: Instant) -> Option<String> {
        let waits = self.when.is_some_and(|when| now.duration_since(when) < PAUSE);
        if waits { None } else { self.line(now) }
    }

    fn line(&mut self, now: Instant) -> Option<String> {
        let line = status_text(self.job.as_ref()?, &self.groups());
        if line == self.printed {
            return None;
        }
        (self.printed, self.when) = (line.clone(), Some(now));
        Some(line)
    }

    /// Returns how many replicas are in which phase, and why, the largest groups first; nothing where the phase of the
    /// job says it.
    fn groups(&self) -> String {
        // The reason of a job of many tasks counts them.
        if self.job.as_ref().is_some_and(|job| job.tasks.is_some()) {
            return String::new();
        }
        let (phase, reason) =
            self.job.as_ref().map_or((JobPhase::Unknown, ""), |job| (job.phase, &*job.reason));
        let mut counts: BTreeMap<(JobPhase, &str), usize> = BTreeMap::new();
        for replica in self.replicas.values() {
            // A reason that another line says is not repeated.
            let is_told = !is_waiting(replica.phase) || replica.reason == reason;
            *counts.entry((replica.phase, if is_told { "" } else { &*replica.reason })).or_default() += 1;
        }
        if counts.keys().all(|(of_replica, why)| *of_replica == phase && why.is_empty()) {
            return String::new();
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|((phase, _), count)| (std::cmp::Reverse(*count), std::cmp::Reverse(*phase)));
        let more: usize = counts.iter().skip(MAX_GROUPS).map(|(_, count)| count).sum();
        let named = counts.iter().take(MAX_GROUPS).map(|((phase, why), count)| {
            let why = if why.is_empty() { String::new() } else { format!(" ({})", clean_text(why)) };
            format!("{count} {phase}{why}")
        });
        let more = (more > 0).then(|| format!("{more} more"));
        named.chain(more).collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether what is in this phase has not started: a reason is then one that replicas share, and not the end of one of them.
pub fn is_waiting(phase: JobPhase) -> bool {
    matches!(phase, JobPhase::Submitted | JobPhase::Pending | JobPhase::Starting)
}

/// Returns whether a replica in this phase is counted; others have lines of their own.
fn is_ordinary(phase: JobPhase) -> bool {
    matches!(
        phase,
        JobPhase::Submitted
            | JobPhase::Pending
            | JobPhase::Starting
            | JobPhase::Running
            | JobPhase::Stopping
            | JobPhase::Succeeded
            // One rank fails, and all others are ended.
            | JobPhase::Cancelled
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun::core::job::JobHandle;

    fn job(phase: JobPhase, ready: u32) -> JobSummary {
        let handle: JobHandle = "local://local/many#1".parse().unwrap();
        let mut job = JobSummary::new(handle, phase);
        job.ready = (ready, 1024);
        job
    }

    fn replica(index: u32, phase: JobPhase, why: &str) -> ReplicaStatus {
        let mut replica = ReplicaStatus::new(format!("node{index}"), "worker", index, phase);
        replica.reason = why.to_owned();
        replica
    }

    fn plain(line: Option<String>) -> String {
        anstream::adapter::strip_str(&line.unwrap_or_default()).to_string()
    }

    #[test]
    fn a_job_that_is_queued_again_waits_until_it_starts() {
        let (mut progress, now) = (Progress::default(), Instant::now());
        progress.status(&job(JobPhase::Pending, 0), now);
        assert!(!progress.waits_again(), "its first attempt");
        progress.attempt();
        assert!(progress.waits_again());
        progress.status(&job(JobPhase::Running, 0), now);
        assert!(!progress.waits_again());
    }

    #[test]
    fn a_thousand_nodes_are_a_few_lines() {
        let (mut progress, mut now) = (Progress::default(), Instant::now());
        let mut lines = Vec::new();
        lines.extend(progress.status(&job(JobPhase::Starting, 0), now));
        for index in 0..1024 {
            lines.extend(progress.replica(&replica(index, JobPhase::Starting, "")));
        }
        for index in 0..1024 {
            now += Duration::from_millis(10);
            lines.extend(progress.replica(&replica(index, JobPhase::Running, "")));
            lines.extend(progress.status(&job(JobPhase::Starting, index + 1), now));
            lines.extend(progress.due(now));
        }
        lines.extend(progress.status(&job(JobPhase::Running, 1024), now));
        let lines: Vec<String> = lines.into_iter().map(|line| plain(Some(line))).collect();
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!(lines[0], "many starting 0/1024 ready");
        assert_eq!(lines[1], "many starting 300/1024 ready: 724 starting, 300 running");
        assert_eq!(lines[4], "many running 1024/1024 ready");
    }

    #[test]
    fn a_replica_that_fails_has_a_line_at_once() {
        let mut progress = Progress::default();
        assert_eq!(progress.replica(&replica(0, JobPhase::Running, "")), None);
        let failed = replica(3, JobPhase::Failed, "exit code 1");
        assert_eq!(plain(progress.replica(&failed)), "  node3 failed: exit code 1");
        assert_eq!(progress.replica(&failed), None, "once");
        let line = plain(progress.status(&job(JobPhase::Restarting, 0), Instant::now()));
        assert_eq!(line, "many restarting 0/1024 ready: 1 failed, 1 running", "its reason is said above");
        let named = replica(4, JobPhase::Failed, "node4 ended with exit code 1");
        assert_eq!(plain(progress.replica(&named)), "  node4 failed: ended with exit code 1");
    }

    #[test]
    fn reasons_are_counted_and_the_phase_of_the_job_is_not_repeated() {
        let (mut progress, now) = (Progress::default(), Instant::now());
        progress.replica(&replica(0, JobPhase::Pending, "no node fits"));
        progress.replica(&replica(1, JobPhase::Pending, "no node fits"));
        let line = progress.status(&job(JobPhase::Pending, 0), now);
        assert_eq!(plain(line), "many pending 0/1024 ready: 2 pending (no node fits)");
        for index in 0..9 {
            progress.replica(&replica(index, JobPhase::Pending, &format!("why {index}")));
        }
        let line = plain(progress.due(now + PAUSE));
        assert!(line.ends_with(", 5 more"), "{line}");
    }
}
