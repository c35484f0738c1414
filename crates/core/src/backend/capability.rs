//! What a backend can do, as data.

use serde::{Deserialize, Serialize};

use crate::job::JobFilter;
use crate::{Error, ErrorKind, Result};

/// What a backend can do. Flat, one literal for each backend; the conformance suite is chosen by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Capability {
    /// The backend's name, as registered.
    pub backend: String,
    /// Jobs are only shown: none can be submitted or acted on.
    pub read_only: bool,
    /// The job continues when weftrun ends.
    pub detach: bool,
    /// The cluster can check a job without taking it.
    pub dry_run: bool,
    /// [`Action::Suspend`](crate::job::Action::Suspend) and `Resume`.
    pub suspend: bool,
    /// [`Action::Hold`](crate::job::Action::Hold) and `Release`.
    pub hold: bool,
    /// [`Action::Requeue`](crate::job::Action::Requeue).
    pub requeue: bool,
    /// [`Action::Signal`](crate::job::Action::Signal).
    pub signal: bool,
    /// [`Action::Delete`](crate::job::Action::Delete): the record is deleted too.
    pub delete: bool,
    /// Jobs run in containers.
    pub containers: bool,
    /// `launch = "mpi"`.
    pub mpi: bool,
    /// Commands can be run beside a rank of a running job.
    pub exec: bool,
    /// Ports of localhost beside a rank of a running job can be connected to.
    pub ports: bool,
    /// Logs of an earlier attempt can be read.
    pub previous_logs: bool,
    /// Each rank has a log source of its own; otherwise a source carries all ranks of its node or pod.
    pub rank_logs: bool,
    /// Log lines carry times.
    pub log_times: bool,
    /// A log stream can be resumed from a cursor without loss or repetition.
    pub exact_resume: bool,
    /// Cursors of logs are offsets in files at hand: a log can be opened at its end and read from its beginning beside.
    pub log_offsets: bool,
    /// The logs of chosen replicas can be read alone ([`LogOptions::replicas`](crate::log::LogOptions::replicas)).
    pub replica_logs: bool,
    /// Restarts by policy.
    pub restarts: bool,
    /// Jobs are listed with their labels, and can be selected by them.
    pub labels: bool,
    /// Only jobs of this account are listed.
    pub own_jobs: bool,
    /// A time limit is enforced.
    pub time_limit: bool,
    /// How a job of many tasks is run.
    pub arrays: Arrays,
    /// A job can start after others ([`JobSpec::after`](crate::spec::JobSpec::after)).
    pub dependencies: bool,
    /// Longest job name.
    pub max_name: usize,
    /// Longest text of all arguments together, 0 for no limit.
    pub max_args_bytes: usize,
}

/// How a backend runs a job of many tasks ([`JobSpec::tasks`](crate::spec::JobSpec::tasks)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Arrays {
    /// Not at all.
    #[default]
    None,
    /// Each task as a job of its own, which the client submits: the backend has [labels](Capability::labels), and a job that
    /// cannot start yet waits.
    Jobs,
    /// The cluster has such jobs, and the backend submits one.
    Native,
}

impl Capability {
    /// Refuses a filter that the backend cannot list by; the SDK calls it before each list and watch.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for labels, where jobs are listed without them.
    pub fn check_filter(&self, filter: &JobFilter) -> Result<()> {
        if self.labels || filter.labels.is_empty() {
            return Ok(());
        }
        let message = format!("backend `{}` lists jobs without their labels", self.backend);
        let labels: Vec<String> = filter.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Err(Error::new(ErrorKind::Unsupported, message)
            .with("labels", labels.join(","))
            .hint("list the jobs without labels"))
    }
}
