//! The end of an array, of which the cluster may have forgotten tasks.

use weftrun_core::job::{JobPhase, JobSummary};
use weftrun_core::text::counted;

/// Adds to an array how many tasks were submitted, which its own list does not say. Once it has ended, those that the cluster has
/// forgotten count as not known, and it has succeeded only if every task is known to have.
pub(crate) fn judge(job: &mut JobSummary, total: impl FnOnce() -> Option<u32>) {
    let Some(counts) = job.tasks.as_mut().filter(|counts| counts.total.is_none()) else { return };
    counts.total = total();
    let missing = counts.missing();
    if missing == 0 || !job.phase.is_terminal() {
        return;
    }
    counts.add(JobPhase::Unknown, missing);
    if job.phase == JobPhase::Succeeded {
        (job.phase, job.exit_code) = (JobPhase::Unknown, None);
    }
    let unknown = format!(
        "the results of {} are not known: the cluster has forgotten them",
        counted(usize::try_from(missing).unwrap_or(usize::MAX), "task")
    );
    job.reason = if job.reason.is_empty() { unknown } else { format!("{}; {unknown}", job.reason) };
}

#[cfg(test)]
mod tests {
    use weftrun_core::job::{JobHandle, TaskCounts};

    use super::*;

    /// A task that was cancelled before it began is in no list of Slurm.
    #[test]
    fn an_array_with_forgotten_tasks_has_not_succeeded() {
        use JobPhase::{Failed, Running, Succeeded, Unknown};
        for (phase, known, expected, unknown) in [
            (Succeeded, 5, Unknown, Some(1)),
            (Succeeded, 6, Succeeded, None),
            (Failed, 4, Failed, Some(2)),
            (Running, 3, Running, None),
        ] {
            let mut job = JobSummary::new(JobHandle::new("slurm", "pc", ["2"]), phase);
            let counts = TaskCounts::new(0, std::iter::repeat_n(phase, known));
            job.tasks = Some(TaskCounts { total: None, ..counts });
            // A second look at the same summary changes nothing.
            judge(&mut job, || Some(6));
            judge(&mut job, || Some(6));
            let counts = job.tasks.unwrap();
            assert_eq!((job.phase, counts.total), (expected, Some(6)), "{known} {phase}");
            assert_eq!(counts.phases.get(&Unknown).copied(), unknown, "{known} {phase}");
            assert_eq!(job.reason.contains("not known"), unknown.is_some(), "{}", job.reason);
        }
    }
}
