//! The jobs of a set as one job.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weftrun_core::Result;
use weftrun_core::job::{
    JobHandle, JobPhase, JobSummary, ReplicaStatus, SET_LABEL, TASK_LABEL, TASK_ROLE, TASKS_LABEL, TaskCounts,
};
use weftrun_core::log::{LogBatch, SourceId};

/// How long after a task the next one of its set may be submitted, by a client that is not seen from here.
const FOLLOWS: Duration = Duration::from_secs(60);

/// The tasks of one set that the cluster has, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(BTreeMap<u32, JobSummary>);

impl Members {
    /// Takes the jobs that are tasks; of two with one number, the newer.
    pub fn of(jobs: Vec<JobSummary>) -> Self {
        let mut members: BTreeMap<u32, JobSummary> = BTreeMap::new();
        for job in jobs {
            let Some(task) = number(&job, TASK_LABEL) else { continue };
            if members.get(&task).is_none_or(|known| known.created < job.created) {
                members.insert(task, job);
            }
        }
        Self(members)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the highest number of a task. Tasks are submitted in order, so that all before it were, too: one that is not
    /// here was deleted.
    pub fn last(&self) -> Option<u32> {
        self.0.last_key_value().map(|(task, _)| *task)
    }

    /// Returns whether the set was cancelled: all its tasks have ended, and some by that. Then no more are submitted.
    pub fn is_cancelled(&self) -> bool {
        let phases = || self.0.values().map(|job| job.phase);
        phases().all(JobPhase::is_terminal) && phases().any(|phase| phase == JobPhase::Cancelled)
    }

    /// Returns whether the set was cancelled or deleted by another client while this one submits it: all tasks that were there
    /// before have ended or are gone, and some not by themselves.
    pub fn were_stopped(&self, before: &[u32]) -> bool {
        let phases =
            || before.iter().map(|task| self.0.get(task).map_or(JobPhase::Cancelled, |job| job.phase));
        phases().all(|phase| phase.is_terminal() || phase == JobPhase::Stopping)
            && phases().any(|phase| phase == JobPhase::Cancelled)
    }

    /// Returns whether it has fewer tasks than it is to have.
    pub fn lacks_some(&self) -> bool {
        self.whole().and_then(|whole| whole.tasks).is_some_and(|counts| counts.missing() > 0)
    }

    /// Adds the tasks that are new, and returns their handles.
    pub fn add_new(&mut self, found: Self) -> Vec<JobHandle> {
        let mut new = Vec::new();
        for (task, job) in found.0 {
            if let Entry::Vacant(place) = self.0.entry(task) {
                new.push(job.handle.clone());
                place.insert(job);
            }
        }
        new
    }

    /// Returns the phase in place of that of the tasks which the cluster does not have: they may follow, as long as the newest one
    /// is young.
    fn phase_of_missing(&self) -> JobPhase {
        let newest = self.0.values().filter_map(|job| job.created).max();
        let age = newest.map(|newest| weftrun_backends::clock::now().duration_since(newest).unsigned_abs());
        let may_follow = age.is_some_and(|age| age < FOLLOWS) && !self.is_cancelled();
        if may_follow { JobPhase::Submitted } else { JobPhase::Cancelled }
    }

    pub fn handles(&self) -> impl Iterator<Item = JobHandle> {
        self.0.values().map(|job| job.handle.clone())
    }

    pub fn into_jobs(self) -> Vec<JobSummary> {
        self.0.into_values().collect()
    }

    pub fn into_tasks(self) -> BTreeMap<u32, JobSummary> {
        self.0
    }

    /// Replaces what is known of a task, and returns it as a part of the set; none for a job that is no task of it.
    pub fn update(&mut self, job: JobSummary) -> Option<ReplicaStatus> {
        let (task, known) = self.0.iter_mut().find(|(_, known)| known.handle == job.handle)?;
        *known = job;
        Some(replica(*task, known))
    }

    /// Returns the whole set as one job; none without a task.
    pub fn whole(&self) -> Option<JobSummary> {
        let (_, first) = self.0.first_key_value()?;
        let handle = first.handle.set_of_task(&first.labels)?;
        let jobs = || self.0.values();
        let total =
            number(first, TASKS_LABEL).unwrap_or(0).max(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        let counts = TaskCounts::new(total, jobs().map(|job| job.phase));
        let missing = (counts.missing() > 0).then(|| self.phase_of_missing());
        let phase = JobPhase::of_many(jobs().map(|job| job.phase).chain(missing));
        let mut whole = JobSummary::new(handle, phase);
        whole.kind.clone_from(&first.kind);
        whole.reason = self.reason(&counts);
        whole.tasks = Some(counts);
        let nodes = |of: fn(&JobSummary) -> u32| jobs().map(of).fold(0, u32::saturating_add);
        whole.ready = (nodes(|job| job.ready.0), nodes(|job| job.ready.1));
        whole.created = jobs().filter_map(|job| job.created).min();
        whole.started = jobs().filter_map(|job| job.started).min();
        whole.ended = phase.is_terminal().then(|| jobs().filter_map(|job| job.ended).max()).flatten();
        // The worst of all.
        whole.exit_code = phase
            .is_terminal()
            .then(|| jobs().filter_map(|job| job.exit_code).max_by_key(|code| code.unsigned_abs()))
            .flatten();
        whole.owner.clone_from(&first.owner);
        whole.queue.clone_from(&first.queue);
        whole.fabric = first.fabric;
        whole.labels = first.labels.clone();
        [SET_LABEL, TASK_LABEL, TASKS_LABEL].iter().for_each(|own| drop(whole.labels.remove(*own)));
        Some(whole)
    }

    /// Counts the tasks, and says how the first one failed, or why the first one waits where none runs.
    fn reason(&self, counts: &TaskCounts) -> String {
        let first =
            |so: fn(JobPhase) -> bool| self.0.iter().find(|(_, job)| so(job.phase) && !job.reason.is_empty());
        let told = first(|phase| phase == JobPhase::Failed).or_else(|| {
            let runs = counts.phases.contains_key(&JobPhase::Running);
            first(|phase| !phase.is_terminal()).filter(|_| !runs)
        });
        match told {
            Some((task, job)) => format!("{counts}; task {task}: {}", job.reason),
            None => counts.to_string(),
        }
    }

    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        self.0.iter().map(|(task, job)| replica(*task, job)).collect()
    }
}

/// Returns the job of a task as a part of its set.
fn replica(task: u32, job: &JobSummary) -> ReplicaStatus {
    let mut replica = ReplicaStatus::new(&job.name, TASK_ROLE, task, job.phase);
    replica.reason.clone_from(&job.reason);
    replica.exit_code = job.exit_code;
    replica
}

fn number(job: &JobSummary, label: &str) -> Option<u32> {
    job.labels.get(label)?.parse().ok()
}

/// Puts one line in place of the jobs of each set, where the first of them was.
pub(super) fn fold_sets(jobs: Vec<JobSummary>) -> Vec<JobSummary> {
    let mut sets: BTreeMap<String, Vec<JobSummary>> = BTreeMap::new();
    let mut order: Vec<(Option<String>, Option<JobSummary>)> = Vec::new();
    for job in jobs {
        let Some(id) = job.labels.get(SET_LABEL).filter(|_| number(&job, TASK_LABEL).is_some()).cloned()
        else {
            order.push((None, Some(job)));
            continue;
        };
        if !sets.contains_key(&id) {
            order.push((Some(id.clone()), None));
        }
        sets.entry(id).or_default().push(job);
    }
    let whole = |id: &String| Members::of(sets.get(id).cloned().unwrap_or_default()).whole();
    order.into_iter().filter_map(|(id, job)| job.or_else(|| whole(&id?))).collect()
}

/// Puts the number of the task before the names of its sources. Each task has a rank 0 of its own, so that none is that of the set.
pub(super) fn named(
    logs: BoxStream<'static, Result<LogBatch>>,
    task: u32,
) -> BoxStream<'static, Result<LogBatch>> {
    let mut known: BTreeMap<Arc<SourceId>, Arc<SourceId>> = BTreeMap::new();
    let rename = move |batch: Result<LogBatch>| {
        let mut batch = batch?;
        let renamed = known.entry(Arc::clone(&batch.source)).or_insert_with(|| {
            let mut source = (*batch.source).clone();
            source.name = format!("task{task}/{}", source.name);
            source.rank = None;
            Arc::new(source)
        });
        batch.source = Arc::clone(renamed);
        Ok(batch)
    };
    logs.map(rename).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32, phase: JobPhase, age: i64) -> JobSummary {
        let handle = JobHandle::new("local", "local", [format!("lr-{number}")]).with_uid(number.to_string());
        let mut job = JobSummary::new(handle, phase);
        job.created = weftrun_backends::clock::now().checked_sub(jiff::SignedDuration::from_secs(age)).ok();
        for (key, value) in
            [(SET_LABEL, "abc".to_owned()), (TASK_LABEL, number.to_string()), (TASKS_LABEL, "4".to_owned())]
        {
            job.labels.insert(key.to_owned(), value);
        }
        job
    }

    #[test]
    fn a_set_without_all_of_its_tasks_has_not_succeeded() {
        use JobPhase::{Cancelled, Failed, Running, Submitted, Succeeded};
        for (phases, age, expected) in [
            (&[Succeeded, Succeeded][..], 5, Submitted),
            (&[Succeeded, Succeeded], 100, Cancelled),
            (&[Succeeded, Cancelled], 5, Cancelled),
            (&[Succeeded, Failed], 100, Failed),
            (&[Succeeded, Running], 100, Running),
            (&[Succeeded; 4], 5, Succeeded),
        ] {
            let jobs = (0..).zip(phases).map(|(number, phase)| task(number, *phase, age)).collect();
            let whole = Members::of(jobs).whole().unwrap();
            assert_eq!(whole.phase, expected, "{phases:?} {age}");
            let missing = 4 - phases.len();
            let said = format!("{missing} not in the cluster");
            assert_eq!(whole.reason.contains(&said), missing > 0, "{}", whole.reason);
        }
    }

    #[test]
    fn a_set_says_why_it_waits_until_a_task_runs() {
        use JobPhase::{Pending, Running, Starting};
        let reason = |first: JobPhase| {
            let mut jobs =
                vec![task(0, first, 5), task(1, Starting, 5), task(2, Pending, 5), task(3, Pending, 5)];
            jobs.iter_mut().skip(1).for_each(|job| job.reason = "the image is not there".to_owned());
            Members::of(jobs).whole().unwrap().reason
        };
        assert_eq!(reason(Starting), "2/4 starting, 2 pending; task 1: the image is not there");
        assert_eq!(reason(Running), "1/4 running, 1 starting, 2 pending");
    }

    #[test]
    fn one_cancelled_task_is_not_a_cancelled_set() {
        use JobPhase::{Cancelled, Running};
        let one = Members::of(vec![task(0, Running, 5), task(1, Cancelled, 5)]);
        let all = Members::of(vec![task(0, Cancelled, 5), task(2, Running, 5)]);
        assert!(!one.were_stopped(&[0, 1]) && !one.is_cancelled());
        assert!(all.were_stopped(&[0, 1]), "task 2 was submitted since");
        assert!(!all.were_stopped(&[]) && !all.is_cancelled());
    }
}
