//! Events and actions of a job.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JobHandle, JobPhase, JobSummary, ReplicaStatus};
use crate::{Finding, Severity};

/// Something to do to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Action {
    /// Stop it; its record and logs stay where the cluster keeps them.
    Cancel,
    /// Stop it and remove its record.
    Delete,
    /// Give its nodes back, to continue later.
    Suspend,
    /// Go on after a suspend.
    Resume,
    /// Keep a pending job from starting.
    Hold,
    /// Let a held job start.
    Release,
    /// Stop it and queue it again.
    Requeue,
    /// Send a signal to its ranks.
    Signal(i32),
}

/// Writes the word in JSON; a signal with its number.
impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Cancel => "cancel",
            Self::Delete => "delete",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Requeue => "requeue",
            Self::Signal(number) => return write!(f, "signal {number}"),
        })
    }
}

/// One thing that happened to a job. Every surface is a fold or a printer of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JobEvent {
    /// A job is there, or its summary changed: phase, reason, readiness.
    Status {
        /// The job now.
        job: JobSummary,
    },
    /// A pod, host or process changed.
    Replica {
        /// The job.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        job: JobHandle,
        /// The replica now.
        replica: ReplicaStatus,
    },
    /// The cluster sent a message.
    Message {
        /// The job.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        job: JobHandle,
        /// The severity.
        severity: Severity,
        /// The cluster's word (`FailedScheduling`).
        reason: String,
        /// Its text, sanitised.
        text: String,
        /// When.
        #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
        time: Option<Timestamp>,
    },
    /// The job is stuck, and what to do.
    Stuck {
        /// The job.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        job: JobHandle,
        /// Why, with the fix.
        finding: Finding,
    },
    /// A new attempt began: restart, requeue.
    Attempt {
        /// The job.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        job: JobHandle,
        /// Number of the attempt, from 0.
        attempt: u32,
        /// Why.
        reason: String,
    },
    /// The job is no longer in the cluster.
    Gone {
        /// The job.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        job: JobHandle,
    },
    /// The connection to the cluster was lost (`true`), or is back (`false`).
    Disconnected {
        /// Whether it is lost now.
        lost: bool,
        /// Why.
        reason: String,
    },
}

impl JobEvent {
    /// Returns the phase, if this is a status.
    pub fn phase(&self) -> Option<JobPhase> {
        match self {
            Self::Status { job } => Some(job.phase),
            _ => None,
        }
    }

    /// Returns whether the job has ended with this event.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Gone { .. }) || self.phase().is_some_and(JobPhase::is_terminal)
    }
}
