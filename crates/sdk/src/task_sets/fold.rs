//! The jobs of a set as one job.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weftrun_core::Result;
use weftrun_core::job::{JobHandle, JobPhase, JobSummary, ReplicaStatus, TaskCounts};
use weftrun_core::log::{LogBatch, SourceId};

use super::{SET, TASK, TASKS, set_handle};

/// The tasks of one set that the cluster has, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(BTreeMap<u32, JobSummary>);

impl Members {
    /// Takes the jobs that are tasks; of two with one number, the newer.
    pub fn of(jobs: Vec<JobSummary>) -> Self {
        let mut members: BTreeMap<u32, JobSummary> = BTreeMap::new();
        for job in jobs {
            let Some(task) = number(&job, TASK) else { continue };
            if members.get(&task).is_none_or(|known| known.created < job.created) {
                members.insert(task, job);
            }
        }
        Self(members)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, task: u32) -> bool {
        self.0.contains_key(&task)
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
        let id = first.labels.get(SET)?;
        let jobs = || self.0.values();
        let phase = JobPhase::of_many(jobs().map(|job| job.phase));
        let name = set_name(first);
        let mut whole = JobSummary::new(set_handle(&first.handle, &name, id), phase);
        let total = number(first, TASKS).unwrap_or(0).max(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        let counts = TaskCounts::new(total, jobs().map(|job| job.phase));
        whole.name = name;
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
        [SET, TASK, TASKS].iter().for_each(|own| drop(whole.labels.remove(*own)));
        Some(whole)
    }

    /// Counts the tasks, and says how the first one failed.
    fn reason(&self, counts: &TaskCounts) -> String {
        let failed = self.0.iter().find(|(_, job)| job.phase == JobPhase::Failed && !job.reason.is_empty());
        match failed {
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
    let mut replica = ReplicaStatus::new(&job.name, "task", task, job.phase);
    replica.reason.clone_from(&job.reason);
    replica.exit_code = job.exit_code;
    replica
}

/// Returns the name of a task's set: that of the task without its number.
fn set_name(task: &JobSummary) -> String {
    let end = task.labels.get(TASK).map(|number| format!("-{number}")).unwrap_or_default();
    task.name.strip_suffix(end.as_str()).unwrap_or(&task.name).to_owned()
}

fn number(job: &JobSummary, label: &str) -> Option<u32> {
    job.labels.get(label)?.parse().ok()
}

/// Puts one line in place of the jobs of each set, where the first of them was.
pub(super) fn fold_sets(jobs: Vec<JobSummary>) -> Vec<JobSummary> {
    let mut sets: BTreeMap<String, Vec<JobSummary>> = BTreeMap::new();
    let mut order: Vec<(Option<String>, Option<JobSummary>)> = Vec::new();
    for job in jobs {
        let Some(id) = job.labels.get(SET).filter(|_| number(&job, TASK).is_some()).cloned() else {
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
