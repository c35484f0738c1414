//! The tasks of a job of many: one of them as a job of its own, their values, why the first one failed, and the end of each in the
//! history of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use weftrun_core::backend::Arrays;
use weftrun_core::job::{JobDetail, JobHandle, JobPhase, JobSummary, ReplicaStatus, TASK_ROLE};
use weftrun_core::nccl::FabricSeen;
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::cause::Why;
use weftrun_diagnose::nodes::JobRecord;

use crate::Job;
use crate::array_end::judge;
use crate::diagnosis::HISTORY_UNWRITTEN;
use crate::task_sets::{is_set, task_by_labels, tasks_in_set};

/// Largest number of tasks that are named in a sentence.
const NAMED: usize = 8;
/// Most tasks that one look adds to the history, those that failed first.
const MOST_KEPT: usize = 64;
/// Tasks that are described or diagnosed at once.
const AT_ONCE: usize = 8;
/// How long one look may take for that: the next one continues.
const KEEPING: Duration = Duration::from_secs(60);

/// Returns of which array or set a job is a task, and its number there: the one place that tells a task from a job of its own,
/// through whichever handle it is seen. Slurm gives each task of an array a job number of its own beside `ARRAY_TASK`.
pub(crate) fn task_of(detail: &JobDetail) -> Option<(String, u32)> {
    if detail.summary.tasks.is_some() {
        return None;
    }
    let own = || {
        let replica = detail.replicas.first().filter(|replica| replica.role == TASK_ROLE)?;
        let (array, _) = replica.name.split_once('_')?;
        Some((with_name(&detail.summary.handle, array).to_string(), replica.index))
    };
    task_by_labels(&detail.summary).or_else(own)
}

impl Job {
    /// Returns one task of a job of many, as a job of its own.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a number that the job does not have, or whose task the cluster does not have yet.
    pub async fn task(&self, task: u32) -> Result<Self> {
        let handle = if is_set(self.handle()) {
            tasks_in_set(self.backend().as_ref(), self.handle(), Some(task)).await?.remove(&task)
        } else if self.backend().capability().arrays == Arrays::Native {
            let detail = self.describe().await?;
            let own =
                detail.replicas.iter().find(|replica| replica.role == TASK_ROLE && replica.index == task);
            own.map(|own| with_name(self.handle(), &own.name))
        } else {
            let message = "the job has no tasks: it is not one of many";
            return Err(Error::new(ErrorKind::Usage, message).with("job", self.handle()));
        };
        let handle = handle.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the cluster has no task {task} of this job"))
                .with("job", self.handle())
                .hint("`weftrun describe` prints its tasks")
        })?;
        Ok(self.with_handle(handle, task))
    }

    /// Judges a whole array, as [`judge`].
    pub(crate) fn judge(&self, job: &mut JobSummary) {
        judge(job, || Some(self.spec()?.tasks()?.different()));
    }

    /// Adds how many tasks there are, and the values of a sweep, to a description.
    pub(crate) fn add_values(&self, detail: &mut JobDetail) {
        self.judge(&mut detail.summary);
        let Some(spec) = self.spec().filter(|spec| !spec.sweep.is_empty()) else { return };
        for replica in detail.replicas.iter_mut().filter(|replica| replica.role == TASK_ROLE) {
            replica.values = spec.task_line(replica.index);
        }
    }

    /// Adds the tasks that have ended to the history of nodes, those that failed with the cause of each. Returns a note where some
    /// are left for the next look, or could not be added.
    pub(crate) async fn keep_tasks(&self, detail: &JobDetail) -> Option<Finding> {
        let deadline = tokio::time::Instant::now() + KEEPING;
        let mut ended = self.tasks_to_keep(detail, deadline).await?;
        let mut is_all = ended.len() <= MOST_KEPT;
        ended.truncate(MOST_KEPT);
        let (mut note, mut failed) = (None, None);
        let all = async {
            let tasks = self.jobs_of(&ended).await?;
            let keeping = stream::iter(tasks).map(|task| async move { task.keep().await });
            let mut keeping = keeping.buffer_unordered(AT_ONCE);
            while let Some(kept) = keeping.next().await {
                match kept {
                    Ok(unwritten) => note = note.take().or(unwritten),
                    Err(error) => failed = failed.take().or(Some(error)),
                }
            }
            Ok::<_, Error>(())
        };
        let done = tokio::time::timeout_at(deadline, Box::pin(all)).await;
        match done {
            Ok(all) => failed = all.err().or(failed),
            Err(_) => is_all = false,
        }
        let more = || {
            let why = failed.as_ref().map_or_else(String::new, |error| format!(": {}", error.one_line()));
            let message = format!("the history of nodes does not have all tasks of this job yet{why}");
            Finding::info("HISTORY-TASKS", message).fix("the same command adds further ones")
        };
        note.or_else(|| (!is_all || failed.is_some()).then(more))
    }

    /// Returns the tasks that have ended and are not in the history, those that failed first; none where no history is kept.
    async fn tasks_to_keep<'d>(
        &self,
        detail: &'d JobDetail,
        deadline: tokio::time::Instant,
    ) -> Option<Vec<&'d ReplicaStatus>> {
        let known = tokio::time::timeout_at(deadline, self.history()?.read_apart()).await;
        let known = known.ok().and_then(Result::ok).unwrap_or_default().records;
        let set = set_name(self.handle());
        let of_set = known.iter().filter(|record| record.submitted() == set);
        // The newest run of each.
        let known: BTreeMap<u32, &JobRecord> =
            of_set.filter_map(|record| Some((record.task?, record))).collect();
        let is_known = |task: &ReplicaStatus| {
            // Its logs may show no cause: they were read, and are not read again at each look.
            let known = known.get(&task.index);
            known.is_some_and(|known| known.outcome == task.phase && known.attempt >= task.restarts)
        };
        let ended =
            |task: &&ReplicaStatus| task.role == TASK_ROLE && task.phase.is_terminal() && !is_known(task);
        let mut ended: Vec<&ReplicaStatus> = detail.replicas.iter().filter(ended).collect();
        ended.sort_by_key(|task| task.phase != JobPhase::Failed);
        Some(ended)
    }

    /// Adds a task that has ended to the history of nodes. Returns a note where it could not be written.
    async fn keep(&self) -> Result<Option<Finding>> {
        let detail = self.describe().await?;
        Ok(match detail.summary.phase {
            // Why it failed is kept with it.
            JobPhase::Failed => {
                let why = Box::pin(self.why_with(&detail)).await;
                why.findings.into_iter().find(|finding| finding.code == HISTORY_UNWRITTEN)
            }
            _ => Box::pin(self.keep_end(&detail, None, FabricSeen::Unknown)).await,
        })
    }

    /// Returns tasks as jobs of their own, those that the cluster has.
    async fn jobs_of(&self, tasks: &[&ReplicaStatus]) -> Result<Vec<Self>> {
        let of_set = match is_set(self.handle()) && !tasks.is_empty() {
            true => Some(tasks_in_set(self.backend().as_ref(), self.handle(), None).await?),
            false => None,
        };
        let handle = |task: &ReplicaStatus| match &of_set {
            Some(handles) => handles.get(&task.index).cloned(),
            None => Some(with_name(self.handle(), &task.name)),
        };
        Ok(tasks.iter().filter_map(|task| Some(self.with_handle(handle(task)?, task.index))).collect())
    }

    /// Diagnoses the first task that failed, else the first that runs, else the first that waits, and names all that failed; none
    /// for a job of one task, and where all tasks have ended and none failed.
    pub(crate) async fn why_of_tasks(&self, detail: &JobDetail) -> Option<Why> {
        // One task of an array is described as such, too.
        detail.summary.tasks.as_ref()?;
        let of = |phase: JobPhase| {
            detail.replicas.iter().filter(move |replica| replica.role == TASK_ROLE && replica.phase == phase)
        };
        let failed: Vec<&ReplicaStatus> = of(JobPhase::Failed).collect();
        let waits = || {
            let waits = |replica: &&ReplicaStatus| replica.role == TASK_ROLE && !replica.phase.is_terminal();
            detail.replicas.iter().find(waits)
        };
        let chosen = failed.first().copied().or_else(|| of(JobPhase::Running).next()).or_else(waits)?;
        let task = self.task(chosen.index).await.ok()?;
        let known = task.describe().await.ok()?;
        let mut why = Box::pin(task.why_with(&known)).await;
        let name = |replica: &&ReplicaStatus| match replica.values.as_str() {
            "" => replica.index.to_string(),
            values => format!("{} ({values})", replica.index),
        };
        let mut names: Vec<String> = failed.iter().take(NAMED).map(name).collect();
        let more = failed.len().saturating_sub(NAMED);
        names.extend((more > 0).then(|| format!("{more} more")));
        let message = match failed.len() {
            0 => format!("no task has failed; this is about task {}", name(&chosen)),
            count => format!(
                "{} failed: {}; the cause is that of task {}",
                counted(count, "task"),
                names.join(", "),
                chosen.index
            ),
        };
        let fix = format!("another task: `weftrun why '{}'`", task.handle());
        why.findings.insert(0, Finding::info("WHY-TASKS", message).fix(fix));
        Some(why)
    }
}

/// Returns what [`task_of`] calls the array or set with this handle.
fn set_name(handle: &JobHandle) -> String {
    handle.set().map_or_else(|| with_name(handle, handle.name()).to_string(), str::to_owned)
}

/// Returns the handle of a task of an array, whose name takes the place of the array's.
fn with_name(array: &JobHandle, name: &str) -> JobHandle {
    let parts = array.parts().split_last().map_or(&[][..], |(_, before)| before);
    JobHandle::new(array.backend(), array.target(), parts.iter().cloned().chain([name.to_owned()]))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use weftrun_core::backend::{Backend, BackendEntry};
    use weftrun_testkit::fake::Fake;

    use super::*;
    use crate::{Client, Config, Registry};

    static FAKE: LazyLock<Fake> = LazyLock::new(|| Fake::new("fake").with(|can| can.arrays = Arrays::Native));

    #[tokio::test]
    async fn failed_tasks_without_a_cause_are_read_once_and_one_that_is_gone_is_said() {
        let connect = |_| Box::pin(async { Ok(Arc::new(FAKE.clone()) as Arc<dyn Backend>) }) as _;
        let registry = Registry::empty().with(BackendEntry::new("fake", "", "here", connect));
        let state = tempfile::tempdir().unwrap();
        let client =
            Client::builder().registry(registry).config(Config::empty(state.path())).build().unwrap();
        let array = FAKE.add("lr", 1, 1);
        FAKE.array(&array, &[JobPhase::Failed; 70]);
        let job = client.attach(&array).await.unwrap();
        let look = async || {
            let detail = job.describe().await.unwrap();
            let deadline = tokio::time::Instant::now() + KEEPING;
            (job.keep_tasks(&detail).await, job.tasks_to_keep(&detail, deadline).await.unwrap().len())
        };
        let (note, left) = look().await;
        assert_eq!((note.unwrap().code.as_str(), left), ("HISTORY-TASKS", 6));
        // One of those that are left is gone.
        FAKE.remove(&with_name(&array, "lr_69"));
        let (note, left) = look().await;
        let note = note.unwrap();
        assert!(note.message.contains("there is no job fake://fake/lr_69"), "{}", note.message);
        assert_eq!((note.code.as_str(), left), ("HISTORY-TASKS", 1));
    }
}
