//! Phases and summaries.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JobEvent, JobHandle, SubmissionId, TaskCounts};
use crate::Finding;

/// The words in the reason of a job that ended because of its time limit, on a backend whose system has none of its own.
pub const TIME_LIMIT_REACHED: &str = "the time limit was reached";

word_enum! {
    /// Where a job is in its life.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum JobPhase: ALL {
        /// Known to the cluster, not queued yet.
        Submitted = "submitted",
        /// Waits for nodes, quota or a queue.
        Pending = "pending",
        /// Nodes are there; containers start.
        Starting = "starting",
        /// Ranks run.
        Running = "running",
        /// Some ranks failed and start again.
        Restarting = "restarting",
        /// Held or suspended.
        Suspended = "suspended",
        /// Being stopped.
        Stopping = "stopping",
        /// Ended well.
        Succeeded = "succeeded",
        /// Ended badly.
        Failed = "failed",
        /// Stopped on request.
        Cancelled = "cancelled",
        /// The cluster does not report it.
        #[default]
        Unknown = "unknown",
    }
}

impl JobPhase {
    /// Returns whether the phase is final.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

crate::text::words!(JobPhase, "phase");

/// The jobs to list or to watch.
///
/// ```
/// use weftrun_core::job::JobFilter;
/// let mine = JobFilter::default().ended(true).limit(20);
/// assert!(mine.ended && !mine.foreign);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFilter {
    /// These jobs; all of the target if empty.
    pub handles: Vec<JobHandle>,
    /// Jobs not submitted by weftrun too.
    pub foreign: bool,
    /// Ended jobs too.
    pub ended: bool,
    /// Jobs with all of these labels, on a backend that [lists labels](crate::backend::Capability::labels).
    pub labels: BTreeMap<String, String>,
    /// Only jobs of this user: their owner's, where the cluster says who that is, else those that this machine submitted.
    /// The client selects them, a backend need not.
    pub mine: bool,
    /// Each task of a set of jobs by itself, instead of one line for the set.
    pub tasks: bool,
    /// At most this many, newest first.
    pub limit: Option<usize>,
}

impl JobFilter {
    /// Makes the filter of one job, ended or not.
    pub fn one(handle: &JobHandle) -> Self {
        Self { handles: vec![handle.clone()], ..Self::all() }
    }

    /// Makes the filter of all jobs, ended ones included.
    pub fn all() -> Self {
        Self { foreign: true, ended: true, ..Self::default() }
    }

    setters! {
        /// Adds a job by its handle; without any, all jobs of the target are meant.
        handle(handle: JobHandle) |filter| filter.handles.push(handle);
        /// Sets whether jobs that weftrun did not submit are included.
        foreign(foreign: bool) |filter| filter.foreign = foreign;
        /// Sets whether only this user's jobs are included.
        mine(mine: bool) |filter| filter.mine = mine;
        /// Sets whether ended jobs are included.
        ended(ended: bool) |filter| filter.ended = ended;
        /// Adds a label that a job must have with this value; all labels that are added must fit.
        label(key: impl Into<String>, value: impl Into<String>)
            |filter| filter.labels.insert(key.into(), value.into());
        /// Sets whether the tasks of a set of jobs are listed by themselves.
        tasks(tasks: bool) |filter| filter.tasks = tasks;
        /// Limits the number of jobs, newest first.
        limit(most: usize) |filter| filter.limit = Some(most);
    }

    /// Returns whether a job's labels have all those of the filter.
    pub fn fits(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// One line of a list of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobSummary {
    /// Its handle.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub handle: JobHandle,
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: JobPhase,
    /// Why it is in that phase, in a sentence; may be empty.
    pub reason: String,
    /// Kind in the cluster's words (`PyTorchJob`, `sbatch`).
    pub kind: String,
    /// Nodes that are ready, and nodes requested.
    pub ready: (u32, u32),
    /// When it was submitted.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub created: Option<Timestamp>,
    /// When it began to run; where it waits, when the cluster expects it to begin.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(default)]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub ended: Option<Timestamp>,
    /// The job's own exit code, where the cluster has one.
    pub exit_code: Option<i32>,
    /// The submission that made it, if it was one of ours.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub submission: Option<SubmissionId>,
    /// Whose job it is, in the cluster's words, where it knows.
    #[serde(default)]
    pub owner: Option<String>,
    /// Queue, partition or node pool.
    pub queue: Option<String>,
    /// The fabric it was planned for, where the cluster carries our marker.
    pub fabric: Option<crate::request::Fabric>,
    /// Its labels, where the backend lists them, without the one that has the submission.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The tasks of a job of many by phase; none for a job of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
}

impl JobSummary {
    /// Makes a summary; the other fields start unknown.
    pub fn new(handle: JobHandle, phase: JobPhase) -> Self {
        Self {
            name: handle.name().to_owned(),
            handle,
            phase,
            reason: String::new(),
            kind: String::new(),
            ready: (0, 0),
            created: None,
            started: None,
            ended: None,
            exit_code: None,
            submission: None,
            owner: None,
            queue: None,
            fabric: None,
            labels: BTreeMap::new(),
            tasks: None,
        }
    }
}

/// Everything known of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobDetail {
    /// Its line in the list.
    pub summary: JobSummary,
    /// Its pods, hosts or processes.
    pub replicas: Vec<ReplicaStatus>,
    /// Why it is stuck or failed, and what to do.
    pub findings: Vec<Finding>,
    /// What happened, oldest first.
    pub history: Vec<JobEvent>,
    /// Further facts for people, in order (`node list` → `gpu-[1-4]`).
    pub facts: Vec<(String, String)>,
}

impl JobDetail {
    /// Makes a detail of a summary; the lists start empty.
    pub fn new(summary: JobSummary) -> Self {
        Self { summary, replicas: Vec::new(), findings: Vec::new(), history: Vec::new(), facts: Vec::new() }
    }
}

/// One pod, host or process of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// Name (pod, host, `node0`).
    pub name: String,
    /// Its role.
    pub role: String,
    /// Its number in the role, from 0.
    pub index: u32,
    /// Its phase.
    pub phase: JobPhase,
    /// Why, in a sentence.
    pub reason: String,
    /// The node it is on.
    pub node: Option<String>,
    /// Restarts so far.
    pub restarts: u32,
    /// Exit code, if it ended.
    pub exit_code: Option<i32>,
    /// The rank whose exit code it is, where several run in it and the cluster says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rank: Option<u32>,
    /// The values that a task of a sweep has (`lr=1e-3 seed=2`), where the job was submitted from this machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values: String,
}

impl ReplicaStatus {
    /// Makes a status; the other fields start unknown.
    pub fn new(name: impl Into<String>, role: impl Into<String>, index: u32, phase: JobPhase) -> Self {
        Self { name: name.into(), role: role.into(), index, phase, ..Self::default() }
    }
}
