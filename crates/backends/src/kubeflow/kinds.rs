//! The kinds of job, and the names that their operators use.

use weftrun_convert::TrainerVersion;
use weftrun_core::{Error, ErrorKind, Result};

use crate::kubernetes::logs::RankPosition;
use crate::kubernetes::{Pod, Resource};

/// A kind of job that weftrun creates and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// `PyTorchJob` of `kubeflow.org/v1` (training-operator).
    #[serde(rename = "pytorchjob", alias = "PyTorchJob")]
    PyTorchJob,
    /// `MPIJob` of `kubeflow.org/v2beta1` (mpi-operator): the launcher connects to the workers by ssh.
    #[serde(rename = "mpijob", alias = "MPIJob", alias = "mpijob.v2beta1")]
    MpiJobV2,
    /// `MPIJob` of `kubeflow.org/v1` (training-operator): the launcher uses `kubectl exec`.
    #[serde(rename = "mpijob.v1")]
    MpiJobV1,
    /// `TrainJob` of `trainer.kubeflow.org/v1alpha1` (Kubeflow Trainer 2).
    #[serde(rename = "trainjob", alias = "TrainJob")]
    TrainJob,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::PyTorchJob, Self::MpiJobV2, Self::MpiJobV1, Self::TrainJob];

    /// Returns its API resource.
    pub fn resource(self) -> Resource {
        match self {
            Self::PyTorchJob => Resource::of("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
            Self::MpiJobV2 => Resource::of("kubeflow.org", "v2beta1", "mpijobs", "MPIJob"),
            Self::MpiJobV1 => Resource::of("kubeflow.org", "v1", "mpijobs", "MPIJob"),
            Self::TrainJob => Resource::of("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
        }
    }

    /// Returns the word used in handles.
    pub fn word(self) -> &'static str {
        match self {
            Self::PyTorchJob => "pytorchjob",
            Self::MpiJobV2 => "mpijob",
            Self::MpiJobV1 => "mpijob.v1",
            Self::TrainJob => "trainjob",
        }
    }

    /// Parses a word used in handles.
    pub fn of_word(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("`{word}` is not a kind of job"))
                .with("kinds", Self::ALL.map(Self::word).join(", "))
        })
    }

    /// Returns the entry of `ClusterFacts::serves` (`PyTorchJob.kubeflow.org/v1`).
    pub fn served_as(self) -> String {
        let resource = self.resource();
        format!("{}.{}", resource.kind, resource.api_version())
    }

    /// Parses an entry of `ClusterFacts::serves`.
    pub fn of_served(entry: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.served_as() == entry)
    }

    /// Returns the label that carries the job's name on its pods.
    pub fn job_label(self) -> &'static str {
        match self {
            Self::TrainJob => "jobset.sigs.k8s.io/jobset-name",
            _ => "training.kubeflow.org/job-name",
        }
    }

    /// Returns the selector of a job's pods.
    pub fn selector(self, name: &str) -> String {
        format!("{}={name}", self.job_label())
    }

    /// Returns whether it is an MPIJob, which has a launcher beside its nodes.
    pub fn is_mpi(self) -> bool {
        matches!(self, Self::MpiJobV1 | Self::MpiJobV2)
    }

    /// Returns the container that runs the ranks.
    pub fn container(self) -> &'static str {
        match self {
            Self::PyTorchJob => "pytorch",
            Self::MpiJobV2 | Self::MpiJobV1 => "mpi",
            Self::TrainJob => "node",
        }
    }

    /// Returns the role and number of a pod in a job of this kind.
    pub fn place(self, pod: &Pod) -> RankPosition {
        let label = |key: &str| pod.labels.get(key).map(String::as_str);
        let number = |key: &str| label(key).and_then(|text| text.parse().ok());
        let role = label("training.kubeflow.org/replica-type")
            .or_else(|| label("training.kubeflow.org/job-role"))
            .or_else(|| label("jobset.sigs.k8s.io/replicatedjob-name"))
            .unwrap_or("worker")
            .to_lowercase();
        let replica = number("training.kubeflow.org/replica-index")
            .or_else(|| number("batch.kubernetes.io/job-completion-index"))
            .unwrap_or(0);
        let named = pod.container(self.container()).is_some();
        let first = || {
            pod.containers.iter().find(|container| !container.init).map(|container| container.name.clone())
        };
        let main = if named { Some(self.container().to_owned()) } else { first() };
        RankPosition { role, replica, rank: None, main }
    }

    /// Returns the operator that must be installed for a cluster to serve it.
    pub fn operator(self) -> &'static str {
        match self {
            Self::PyTorchJob => "Kubeflow Training Operator 1.9 (PyTorchJob)",
            Self::MpiJobV2 => "MPI Operator 0.6 (MPIJob v2beta1)",
            Self::MpiJobV1 => "Kubeflow Training Operator (MPIJob v1)",
            Self::TrainJob => "Kubeflow Trainer 2 (TrainJob)",
        }
    }
}

/// Parses a Trainer version, for settings and facts.
pub fn trainer_version(text: &str) -> Result<TrainerVersion> {
    TrainerVersion::parse(text).ok_or_else(|| {
        Error::new(ErrorKind::InvalidConfig, format!("Kubeflow Trainer `{text}` is not a supported version"))
            .with("versions", "2.0, 2.1, 2.2, 2.3")
    })
}
