//! The tasks of a job of many: one of them as a job of its own, their values, and why the first one failed.

use weftrun_core::backend::Arrays;
use weftrun_core::job::{JobDetail, JobHandle, JobPhase, JobSummary, ReplicaStatus, TaskCounts};
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::cause::Why;

use crate::Job;
use crate::task_sets::{is_set, task_in_set};

/// The role of the replicas that are tasks.
const TASK: &str = "task";
/// Largest number of tasks that are named in a sentence.
const NAMED: usize = 8;

impl Job {
    /// Returns one task of a job of many, as a job of its own.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a number that the job does not have, or whose task the cluster does not have yet.
    pub async fn task(&self, task: u32) -> Result<Self> {
        let handle = if is_set(self.handle()) {
            task_in_set(self.backend().as_ref(), self.handle(), task).await?
        } else if self.backend().capability().arrays == Arrays::Native {
            let detail = self.describe().await?;
            let own = detail.replicas.iter().find(|replica| replica.role == TASK && replica.index == task);
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

    /// Adds how many tasks there are. An array's own list does not say it.
    fn add_total(&self, summary: &mut JobSummary) {
        if let Some(counts) = &mut summary.tasks {
            counts.total = counts.total.or_else(|| Some(self.spec()?.tasks()?.different()));
        }
    }

    /// Returns the end of the job that was waited for: success only if that of every task is known.
    pub(crate) fn judged(&self, mut end: JobSummary) -> JobSummary {
        self.add_total(&mut end);
        let missing = end.tasks.as_ref().map_or(0, TaskCounts::missing);
        if missing > 0 && end.phase == JobPhase::Succeeded {
            end.phase = JobPhase::Unknown;
            let unknown = format!(
                "the results of {} are not known: the cluster has forgotten them",
                counted(usize::try_from(missing).unwrap_or(usize::MAX), "task")
            );
            end.reason = if end.reason.is_empty() { unknown } else { format!("{}; {unknown}", end.reason) };
        }
        end
    }

    /// Adds how many tasks there are, and the values of a sweep, to a description.
    pub(crate) fn add_values(&self, detail: &mut JobDetail) {
        self.add_total(&mut detail.summary);
        let Some(spec) = self.spec().filter(|spec| !spec.sweep.is_empty()) else { return };
        for replica in detail.replicas.iter_mut().filter(|replica| replica.role == TASK) {
            replica.values = spec.task_line(replica.index);
        }
    }

    /// Diagnoses the first task that failed, else the first that runs, else the first that waits, and names all that failed; none
    /// for a job of one task, and where all tasks have ended and none failed.
    pub(crate) async fn why_of_tasks(&self, detail: &JobDetail) -> Option<Why> {
        // One task of an array is described as such, too.
        detail.summary.tasks.as_ref()?;
        let of = |phase: JobPhase| {
            detail.replicas.iter().filter(move |replica| replica.role == TASK && replica.phase == phase)
        };
        let failed: Vec<&ReplicaStatus> = of(JobPhase::Failed).collect();
        let waits = || {
            let waits = |replica: &&ReplicaStatus| replica.role == TASK && !replica.phase.is_terminal();
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

/// Returns the handle of a task of an array, whose name takes the place of the array's.
fn with_name(array: &JobHandle, name: &str) -> JobHandle {
    let parts = array.parts().split_last().map_or(&[][..], |(_, before)| before);
    JobHandle::new(array.backend(), array.target(), parts.iter().cloned().chain([name.to_owned()]))
}
