//! The kinds of first causes.

use serde::{Deserialize, Serialize};

word_enum! {
    /// The kind of a first cause.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum CauseClass {
        /// An exception in the program.
        Exception = "exception",
        /// A GPU's memory is full.
        CudaOutOfMemory = "cuda-out-of-memory",
        /// A CUDA call failed, or the driver reports an error of a GPU.
        CudaError = "cuda-error",
        /// A signal ended a process.
        Signal = "signal",
        /// A process ended with an exit code, and its log does not show why.
        ExitCode = "exit-code",
        /// A program could not be started.
        NotStarted = "not-started",
        /// A disk or a volume is full.
        DiskFull = "disk-full",
        /// A rank did not join a collective operation.
        CollectiveTimeout = "collective-timeout",
        /// A running job: a rank has launched fewer operations than the others; one answer does not show whether it moves.
        Behind = "behind",
        /// Ranks joined a collective operation with different sizes or kinds.
        CollectiveMismatch = "collective-mismatch",
        /// NCCL or its network failed.
        #[serde(rename = "nccl-error")]
        Nccl = "nccl-error",
        /// A line reports an error that no rule explains; it is quoted.
        Unexplained = "unexplained",
        /// The processes did not find each other.
        Rendezvous = "rendezvous",
        /// Kubernetes: a container exceeded its memory limit.
        #[serde(rename = "OOMKilled")]
        OomKilled = "OOMKilled",
        /// Kubernetes: a pod was evicted.
        #[serde(rename = "Evicted")]
        Evicted = "Evicted",
        /// Kubernetes: an image could not be pulled.
        #[serde(rename = "ImagePullBackOff")]
        Image = "ImagePullBackOff",
        /// Kubernetes: no node can take a pod.
        #[serde(rename = "Unschedulable")]
        Unschedulable = "Unschedulable",
        /// Slurm: a task exceeded its memory limit.
        #[serde(rename = "OUT_OF_MEMORY")]
        OutOfMemory = "OUT_OF_MEMORY",
        /// A node failed.
        #[serde(rename = "NODE_FAIL")]
        NodeFail = "NODE_FAIL",
        /// The time limit of the job was reached.
        #[serde(rename = "TIMEOUT")]
        TimeLimit = "TIMEOUT",
        /// Another job took the nodes.
        #[serde(rename = "PREEMPTED")]
        Preempted = "PREEMPTED",
        /// A pod or process was deleted while it ran, and nothing says who did it.
        Deleted = "deleted",
        /// The cluster refuses the job, its pods or its start: quota, priority class, a webhook, a dependency that failed.
        Refused = "refused",
        /// The job was cancelled.
        #[serde(rename = "CANCELLED")]
        Cancelled = "CANCELLED",
    }
}

impl CauseClass {
    /// Returns whether a job that is queued again needs nothing done about it.
    pub(crate) fn is_over_when_queued_again(self) -> bool {
        matches!(self, Self::NodeFail | Self::Preempted | Self::Evicted | Self::Deleted)
    }

    /// Returns whether it ends a job as a whole, so that no rank is to blame.
    pub(crate) fn is_of_whole_job(self) -> bool {
        matches!(
            self,
            Self::Rendezvous
                | Self::Image
                | Self::Unschedulable
                | Self::TimeLimit
                | Self::Preempted
                | Self::Deleted
                | Self::Refused
                | Self::Cancelled
        )
    }
}
