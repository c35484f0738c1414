//! The events of a set's tasks as those of one job.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, SelectAll};
use tokio::time::Instant;
use weftrun_core::Result;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobSummary, ordered};

use super::TaskSets;
use super::fold::Members;

/// A set that is watched.
struct Set {
    handle: JobHandle,
    members: Members,
    /// What was reported of it, so that a change of one task that does not change the whole is silent.
    reported: Option<JobSummary>,
}

/// How often it is looked for tasks of a set that are submitted later.
const LOOK: Duration = Duration::from_secs(2);

/// Sets that are watched, beside other jobs.
struct Watched {
    own: TaskSets,
    events: SelectAll<BoxStream<'static, Result<JobEvent>>>,
    sets: Vec<Set>,
    /// The set of each task, since each event looks for it.
    of: BTreeMap<JobHandle, usize>,
    look: Instant,
}

/// Watches jobs, and folds the events of the tasks of sets; those of other jobs pass.
pub(super) fn folded(
    own: TaskSets,
    filter: JobFilter,
    sets: Vec<Members>,
) -> BoxStream<'static, Result<JobEvent>> {
    let set = |members: Members| Some(Set { handle: members.whole()?.handle, members, reported: None });
    let sets: Vec<Set> = sets.into_iter().filter_map(set).collect();
    let of = sets
        .iter()
        .enumerate()
        .flat_map(|(at, set)| set.members.handles().map(move |handle| (handle, at)))
        .collect();
    let mut events = SelectAll::new();
    events.push(own.0.watch(filter));
    let watched = Watched { own, events, sets, of, look: Instant::now() + LOOK };
    let batches = stream::unfold(watched, |mut watched| async move {
        let events = watched.next().await?;
        Some((stream::iter(events), watched))
    });
    ordered(batches.flatten().boxed())
}

impl Watched {
    /// Returns the next events; none when all jobs have ended, and no set may get more tasks.
    async fn next(&mut self) -> Option<Vec<Result<JobEvent>>> {
        let lacks = self.sets.iter().any(Set::may_grow);
        tokio::select! {
            Some(event) = self.events.next() => Some(self.fold(event)),
            () = tokio::time::sleep_until(self.look), if lacks => {
                let found = self.find_new().await;
                self.look = Instant::now() + LOOK;
                Some(match found {
                    Ok(changes) => changes.into_iter().map(Ok).collect(),
                    // The other stream says that the connection is lost.
                    Err(error) if error.is_retryable() && !self.events.is_empty() => Vec::new(),
                    Err(error) => vec![Err(error)],
                })
            }
            else => None,
        }
    }

    fn fold(&mut self, event: Result<JobEvent>) -> Vec<Result<JobEvent>> {
        let event = match event {
            Ok(event) => event,
            Err(error) => return vec![Err(error)],
        };
        match of_job(&event).and_then(|job| self.of.get(job)).and_then(|at| self.sets.get_mut(*at)) {
            Some(set) => set.fold(event).into_iter().map(Ok).collect(),
            None => vec![Ok(event)],
        }
    }

    /// Watches the tasks that were submitted since the last look, too.
    async fn find_new(&mut self) -> Result<Vec<JobEvent>> {
        let mut changes = Vec::new();
        for (at, set) in self.sets.iter_mut().enumerate().filter(|(_, set)| set.may_grow()) {
            let found = self.own.members(set.handle.uid().unwrap_or_default()).await?;
            let new = set.members.add_new(found);
            if !new.is_empty() {
                let mut filter = JobFilter::all();
                filter.handles.clone_from(&new);
                self.events.push(self.own.0.watch(filter));
                self.of.extend(new.into_iter().map(|handle| (handle, at)));
            }
            changes.extend(set.change());
        }
        Ok(changes)
    }
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
    /// Returns whether tasks of it may still be submitted: some are not there, and it has not ended.
    fn may_grow(&self) -> bool {
        let is_over = self.reported.as_ref().is_some_and(|whole| whole.phase.is_terminal());
        !is_over && self.members.lacks_some()
    }

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
