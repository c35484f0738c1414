//! Many tasks as one job: their phases, counted and folded.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{JobHandle, JobPhase, SubmissionId};

/// The label with the id of a task's set, where a job of many tasks is a set of jobs.
pub const SET_LABEL: &str = "weftrun.dev/set";
/// The label with the number of a task in its set.
pub const TASK_LABEL: &str = "weftrun.dev/task";
/// The label with the number of tasks of the set.
pub const TASKS_LABEL: &str = "weftrun.dev/tasks";
/// The role of the replicas that are tasks of a job of many, and of the nodes of one task.
pub const TASK_ROLE: &str = "task";
/// The part of a set's handle where a job's has its kind.
const SET_KIND: &str = "set";

/// The place of a task among those of its set that run one after another. All before it are named: one that was cancelled before
/// it started says nothing about the end of those before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Lane {
    /// The submission of the set.
    pub set: SubmissionId,
    /// The numbers of the tasks before it, in their order.
    pub before: Vec<u32>,
}

impl Lane {
    /// Returns the submissions of the tasks before it, in their order.
    pub fn submissions(&self) -> Vec<SubmissionId> {
        self.before.iter().map(|task| self.set.of_task(*task)).collect()
    }
}

impl SubmissionId {
    /// Returns the submission of a task of a set. The number comes first, so that the beginnings of two of them differ, too.
    #[must_use]
    pub fn of_task(&self, task: u32) -> Self {
        Self::from_text([task.to_string().as_str(), "/", self.as_str()])
    }
}

impl JobHandle {
    /// Returns the handle of the set of a task, with the name and the id of the set.
    #[must_use]
    pub fn of_set(&self, name: &str, id: &str) -> Self {
        let scope = self.parts().first().filter(|_| self.parts().len() > 1).cloned();
        let parts = scope.into_iter().chain([SET_KIND.to_owned(), name.to_owned()]);
        Self::new(self.backend(), self.target(), parts).with_uid(id)
    }

    /// Returns the handle of the set of which the job is a task, by its labels; none for other jobs.
    pub fn set_of_task(&self, labels: &BTreeMap<String, String>) -> Option<Self> {
        let (id, task) = (labels.get(SET_LABEL)?, labels.get(TASK_LABEL)?);
        let name = self.name().strip_suffix(&format!("-{task}")).unwrap_or(self.name());
        Some(self.of_set(name, id))
    }

    /// Returns the id of the set that it names; none for the handle of a job.
    pub fn set(&self) -> Option<&str> {
        let before = self.parts().len().checked_sub(2)?;
        (self.parts().get(before)? == SET_KIND).then(|| self.uid()).flatten()
    }
}

/// The tasks of a job of many, by phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskCounts {
    /// How many tasks the job has; none where the cluster does not say it and the job was not submitted from this machine.
    pub total: Option<u32>,
    /// How many of them the cluster has in each phase. Their sum is less than the total while some are not submitted, and once
    /// some were deleted.
    pub phases: BTreeMap<JobPhase, u32>,
}

/// The phases in the order in which one decides for all: what is active first, then what failed.
const ORDER: [JobPhase; 11] = [
    JobPhase::Running,
    JobPhase::Starting,
    JobPhase::Stopping,
    JobPhase::Restarting,
    JobPhase::Pending,
    JobPhase::Submitted,
    JobPhase::Suspended,
    JobPhase::Unknown,
    JobPhase::Failed,
    JobPhase::Cancelled,
    JobPhase::Succeeded,
];

impl JobPhase {
    /// Returns one phase for many parts of a job: that of the active parts, and once all have ended, whether one failed.
    ///
    /// ```
    /// use weftrun_core::job::JobPhase::{self, Cancelled, Failed, Pending, Running, Succeeded};
    /// assert_eq!(JobPhase::of_many([Failed, Running, Pending]), Running);
    /// assert_eq!(JobPhase::of_many([Succeeded, Failed, Cancelled]), Failed);
    /// assert_eq!(JobPhase::of_many([]), JobPhase::Unknown);
    /// ```
    pub fn of_many(phases: impl IntoIterator<Item = Self>) -> Self {
        let place = |phase: &Self| ORDER.iter().position(|known| known == phase);
        phases.into_iter().min_by_key(place).unwrap_or(Self::Unknown)
    }
}

impl TaskCounts {
    /// Counts phases.
    pub fn new(total: u32, phases: impl IntoIterator<Item = JobPhase>) -> Self {
        let mut counts = Self { total: Some(total), phases: BTreeMap::new() };
        phases.into_iter().for_each(|phase| counts.add(phase, 1));
        counts
    }

    /// Returns how many tasks the cluster does not have: they were not submitted, or were deleted. 0 where the total is
    /// not known.
    pub fn missing(&self) -> u32 {
        let known = self.phases.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
        self.total.map_or(0, |total| total.saturating_sub(known))
    }

    /// Adds tasks in a phase.
    pub fn add(&mut self, phase: JobPhase, count: u32) {
        let known = self.phases.entry(phase).or_default();
        *known = known.saturating_add(count);
    }
}

/// Writes `3/20 running, 16 pending, 1 failed`.
impl fmt::Display for TaskCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total.map(|total| format!("/{total}")).unwrap_or_default();
        let mut parts = ORDER.iter().filter_map(|phase| Some((phase, self.phases.get(phase)?)));
        match parts.next() {
            Some((phase, count)) => write!(f, "{count}{total} {phase}")?,
            None => write!(f, "0{total} known")?,
        }
        parts.try_for_each(|(phase, count)| write!(f, ", {count} {phase}"))?;
        match self.missing() {
            missing if missing > 0 && !self.phases.is_empty() => write!(f, ", {missing} not in the cluster"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_one_line() {
        use JobPhase::{Failed, Pending, Running};
        let counts = TaskCounts::new(5, [Failed, Running, Running, Pending, Pending]);
        assert_eq!(counts.to_string(), "2/5 running, 2 pending, 1 failed");
        assert_eq!(TaskCounts::new(5, [Failed]).to_string(), "1/5 failed, 4 not in the cluster");
        assert_eq!(TaskCounts::new(5, []).to_string(), "0/5 known");
        let mut counts = TaskCounts::default();
        counts.add(Running, 2);
        assert_eq!(counts.to_string(), "2 running", "a total that is not known is not said");
    }

    #[test]
    fn every_phase_has_its_place() {
        assert!(JobPhase::ALL.iter().all(|phase| ORDER.contains(phase)));
    }
}
