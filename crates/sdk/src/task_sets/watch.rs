//! The events of a set's tasks as those of one job.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use weftrun_core::Result;
use weftrun_core::job::{JobEvent, JobHandle, JobSummary, ordered};

use super::fold::Members;

/// A set that is watched.
struct Set {
    handle: JobHandle,
    members: Members,
    /// What was reported of it, so that a change of one task that does not change the whole is silent.
    reported: Option<JobSummary>,
}

/// Folds the events of the tasks of sets; those of other jobs pass.
pub(super) fn folded(
    events: BoxStream<'static, Result<JobEvent>>,
    sets: Vec<Members>,
) -> BoxStream<'static, Result<JobEvent>> {
    let set = |members: Members| Some(Set { handle: members.whole()?.handle, members, reported: None });
    let mut sets: Vec<Set> = sets.into_iter().filter_map(set).collect();
    // By handle, since each event looks for its set.
    let of: BTreeMap<JobHandle, usize> = sets
        .iter()
        .enumerate()
        .flat_map(|(at, set)| set.members.handles().map(move |handle| (handle, at)))
        .collect();
    let fold = move |event: Result<JobEvent>| {
        let folded = match event {
            Ok(event) => match of_job(&event).and_then(|job| of.get(job)).and_then(|at| sets.get_mut(*at)) {
                Some(set) => set.fold(event).into_iter().map(Ok).collect(),
                None => vec![Ok(event)],
            },
            Err(error) => vec![Err(error)],
        };
        stream::iter(folded)
    };
    ordered(events.flat_map(fold).boxed())
}

fn of_job(event: &JobEvent) -> Option<&JobHandle> {
    match event {
        JobEvent::Status { job } => Some(&job.handle),
        JobEvent::Replica { job, .. }
        | JobEvent::Message { job, .. }
        | JobEvent::Stuck { job, .. }
        | JobEvent::Attempt { job, .. }
        | JobEvent::Gone { job } => Some(job),
        _ => None,
    }
}

impl Set {
    fn fold(&mut self, event: JobEvent) -> Vec<JobEvent> {
        let set = self.handle.clone();
        match event {
            JobEvent::Status { job } => {
                let replica = self.members.update(job).map(|replica| JobEvent::Replica { job: set, replica });
                replica.into_iter().chain(self.change()).collect()
            }
            // A status came before it. Of a task whose own processes change, its status says enough.
            JobEvent::Gone { .. } | JobEvent::Replica { .. } => Vec::new(),
            JobEvent::Message { severity, reason, text, time, job } => {
                let text = format!("{}: {text}", job.name());
                vec![JobEvent::Message { job: set, severity, reason, text, time }]
            }
            JobEvent::Stuck { mut finding, job } => {
                finding.message = format!("{}: {}", job.name(), finding.message);
                vec![JobEvent::Stuck { job: set, finding }]
            }
            // Attempts of one task are none of the set.
            JobEvent::Attempt { job, reason, .. } => vec![JobEvent::Message {
                job: set,
                severity: weftrun_core::Severity::Info,
                reason: "attempt".to_owned(),
                text: format!("{}: {reason}", job.name()),
                time: None,
            }],
            other => vec![other],
        }
    }

    /// Returns the status of the set, if it is not the one that was reported last.
    fn change(&mut self) -> Option<JobEvent> {
        let whole = self.members.whole()?;
        if self.reported.as_ref() == Some(&whole) {
            return None;
        }
        self.reported = Some(whole.clone());
        Some(JobEvent::Status { job: whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_core::job::JobPhase;

    use crate::task_sets::{SET, TASK, TASKS};

    fn task(number: u32, phase: JobPhase) -> JobSummary {
        let handle = JobHandle::new("local", "local", [format!("lr-{number}")]).with_uid(number.to_string());
        let mut job = JobSummary::new(handle, phase);
        for (key, value) in [(SET, "abc".to_owned()), (TASK, number.to_string()), (TASKS, "2".to_owned())] {
            job.labels.insert(key.to_owned(), value);
        }
        job
    }

    #[tokio::test]
    async fn a_set_ends_with_its_last_task_and_is_failed_if_one_is() {
        use JobPhase::{Failed, Pending, Running, Succeeded};
        let members = Members::of(vec![task(0, Running), task(1, Pending)]);
        let statuses = [(0, Running), (1, Pending), (1, Running), (0, Failed), (1, Succeeded)];
        let events = statuses.map(|(number, phase)| Ok(JobEvent::Status { job: task(number, phase) }));
        let gone = Ok(JobEvent::Gone { job: task(1, Succeeded).handle });
        let events = stream::iter(events.into_iter().chain([gone])).boxed();
        let seen: Vec<JobEvent> = folded(events, vec![members]).map(Result::unwrap).collect().await;
        let phases: Vec<String> = seen
            .iter()
            .filter_map(|event| match event {
                JobEvent::Status { job } => Some(format!("{} {}", job.handle, job.reason)),
                _ => None,
            })
            .collect();
        assert_eq!(
            phases,
            [
                "local://local/set/lr#abc 1/2 running, 1 pending",
                "local://local/set/lr#abc 2/2 running",
                "local://local/set/lr#abc 1/2 running, 1 failed",
                "local://local/set/lr#abc 1/2 failed, 1 succeeded",
            ]
        );
        assert_eq!(seen.last().and_then(JobEvent::phase), Some(Failed), "nothing comes after the end");
    }
}
