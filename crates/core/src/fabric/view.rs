//! A job as the rules see it, whether it came from a job file, a Kubernetes object or an sbatch script.
//!
//! Values are as the user wrote them. Places are JSON pointers into the source object, so that a finding
//! can be shown at its place and an op can be turned into an edit; a job file has none.

use std::collections::BTreeMap;

use crate::text::Quantity;

/// A whole job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobView {
    /// What it came from.
    pub kind: JobKind,
    /// Its name.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// The queue or partition it names.
    pub queue: Option<String>,
    /// Annotations of the job itself (`metadata.annotations`); the pods' own are in the roles.
    pub annotations: BTreeMap<String, Annotation>,
    /// Labels of the job itself.
    pub labels: BTreeMap<String, String>,
    /// Its roles, in the order of the file.
    pub roles: Vec<RoleView>,
    /// Which MPI starts the ranks, if `mpirun` starts them.
    pub mpi: Option<Mpi>,
    /// The program of a job file with `launch = "mpi"`. The backend puts an `mpirun` before it, or completes the one that
    /// it calls itself.
    pub program: Vec<String>,
    /// Whether the launcher would get what a worker requests, so that devices cannot be requested at all: a
    /// TrainJob with an MPI runtime whose launcher is a pod of its own, and no runtime to copy.
    pub devices_go_to_launcher: bool,
}

/// What a job came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobKind {
    /// A job file, flags or a builder.
    #[default]
    JobFile,
    /// `PyTorchJob` of `kubeflow.org/v1`.
    PyTorchJob,
    /// `MPIJob` of `kubeflow.org/v1`: ranks are started by `kubectl exec` and see the container's environment.
    MpiJobV1,
    /// `MPIJob` of `kubeflow.org/v2beta1`: ranks are started by ssh and do not see it.
    MpiJobV2,
    /// `TrainJob` of `trainer.kubeflow.org/v1alpha1`.
    TrainJob,
    /// An sbatch script.
    Sbatch,
    /// Another object with pod templates.
    Workload(Workload),
}

word_enum! {
    /// An object with pod templates that is no Kubeflow job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Workload {
        /// `Job` of `batch`.
        Job = "Job",
        /// A bare `Pod`.
        Pod = "Pod",
        /// `Deployment` of `apps`.
        Deployment = "Deployment",
        /// `StatefulSet` of `apps`.
        StatefulSet = "StatefulSet",
        /// `JobSet` of `jobset.x-k8s.io`.
        JobSet = "JobSet",
        /// `LeaderWorkerSet` of `leaderworkerset.x-k8s.io`; one of its groups is a job.
        LeaderWorkerSet = "LeaderWorkerSet",
        /// `RayCluster` of `ray.io`.
        RayCluster = "RayCluster",
        /// `RayJob` of `ray.io`.
        RayJob = "RayJob",
        /// `Job` of `batch.volcano.sh`.
        VolcanoJob = "Job",
        /// An object of a kind that weftrun does not know, with pod templates.
        Unknown = "object",
    }
}

impl Workload {
    /// Returns the label by which its controller marks the pods of one object, if it sets one.
    pub fn pods_label(self) -> Option<&'static str> {
        match self {
            Self::Job => Some("batch.kubernetes.io/job-name"),
            Self::JobSet => Some("jobset.sigs.k8s.io/jobset-name"),
            Self::LeaderWorkerSet => Some("leaderworkerset.sigs.k8s.io/name"),
            Self::RayCluster => Some("ray.io/cluster"),
            Self::VolcanoJob => Some("volcano.sh/job-name"),
            // A RayJob's cluster gets a name of its own.
            Self::Pod | Self::Deployment | Self::StatefulSet | Self::RayJob | Self::Unknown => None,
        }
    }
}

/// How `mpirun` starts the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mpi {
    /// Open MPI, the only one whose command line is rewritten.
    #[default]
    OpenMpi,
    /// Intel MPI.
    Intel,
    /// MPICH.
    Mpich,
}

/// A group of equal pods or nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleView {
    /// Name as in the input: `Master`, `Worker`, `Launcher`, `trainer`, or the job file's.
    pub name: String,
    /// Whether its processes are ranks. True for a launcher that counts as a worker: MPIJob v2beta1 with
    /// `runLauncherAsWorker`, MPIJob v1 whose launcher requests GPUs, TrainJob with `runLauncherAsNode`.
    pub worker: bool,
    /// Whether it starts the others, so that its command may hold an `mpirun` to rewrite.
    pub launcher: bool,
    /// Number of pods.
    pub replicas: u32,
    /// The text in place of the number of pods, if it is no number (`$NUM_NODES`): the file is an unfilled
    /// template.
    pub replicas_text: Option<String>,
    /// Whether nothing says how many pods there are, so that `replicas` is only the least number.
    pub replicas_unknown: bool,
    /// Annotations of the pod template.
    pub annotations: BTreeMap<String, Annotation>,
    /// Instance types that node selector and required node affinity allow; empty if they restrict nothing.
    pub instance_types: Vec<String>,
    /// The node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Keys of required topology terms the pods already have (`topology.kubernetes.io/zone`).
    pub colocated_by: Vec<String>,
    /// Taint keys it tolerates.
    pub tolerates: Vec<String>,
    /// The pod's volumes.
    pub volumes: Vec<VolumeView>,
    /// Whether the pod is on the host's network.
    pub host_network: bool,
    /// The pod's DNS policy, if it names one.
    pub dns_policy: Option<String>,
    /// Names of the pod's init containers.
    pub init_containers: Vec<String>,
    /// Names of the pod's resource claims.
    pub resource_claims: Vec<String>,
    /// The container the ranks run in.
    pub container: ContainerView,
    /// The pod's other containers (not the init containers), for their resources and for lint.
    pub sidecars: Vec<ContainerView>,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerView {
    /// Name.
    pub name: String,
    /// JSON pointer of the container; empty in a job file.
    pub at: String,
    /// Image.
    pub image: Option<String>,
    /// `command`, unchanged; empty if there is none.
    pub command: Vec<String>,
    /// `args`, unchanged.
    pub args: Vec<String>,
    /// Environment, in order. The last of several with one name applies, as in Kubernetes.
    pub env: Vec<EnvView>,
    /// `resources.limits`, each as written.
    pub limits: BTreeMap<String, String>,
    /// `resources.requests`, each as written.
    pub requests: BTreeMap<String, String>,
    /// Volume mounts.
    pub mounts: Vec<MountView>,
    /// Names of the resource claims it uses (`resources.claims`).
    pub claims: Vec<String>,
    /// Linux capabilities it adds, as written.
    pub capabilities: Vec<String>,
    /// Whether it is privileged.
    pub privileged: bool,
    /// Whether what it runs starts containers of its own.
    pub starts_containers: bool,
}

/// An environment variable. Its `Debug` does not show the value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvView {
    /// Name.
    pub name: String,
    /// Its literal value, or none if it is read from `valueFrom`.
    pub value: Option<String>,
    /// JSON pointer of the list's entry; empty in a job file.
    pub at: String,
}

impl std::fmt::Debug for EnvView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvView").field("name", &self.name).field("at", &self.at).finish_non_exhaustive()
    }
}

/// A volume of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeView {
    /// Name.
    pub name: String,
    /// JSON pointer; empty in a job file.
    pub at: String,
    /// The folder of the node, for a `hostPath`.
    pub host_path: Option<String>,
    /// The largest size of a volume in memory, as written.
    pub memory: Option<String>,
}

/// A volume mounted in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountView {
    /// The volume's name.
    pub volume: String,
    /// Where it appears.
    pub path: String,
}

/// The value of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// A string, as Kubernetes requires.
    Text(String),
    /// Something else (`true`, `1`), as written: the API server refuses it.
    NotText(String),
}

impl Annotation {
    /// Returns the value, if it is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::NotText(_) => None,
        }
    }
}

impl JobView {
    /// Returns the roles whose processes are ranks.
    pub fn workers(&self) -> impl Iterator<Item = &RoleView> {
        self.roles.iter().filter(|role| role.worker)
    }

    /// Returns the number of pods with ranks.
    pub fn worker_pods(&self) -> u64 {
        self.workers().map(|role| u64::from(role.replicas)).sum()
    }
}

impl RoleView {
    /// Returns the accelerators that the whole pod requests: those of a profile, else AMD's GPUs, which the same
    /// networks connect.
    pub fn accelerators(&self, of_profile: &str) -> u64 {
        match self.pod_asks(of_profile) {
            0 => self.pod_asks("amd.com/gpu"),
            asked => asked,
        }
    }

    /// Returns the amount of a resource that the whole pod requests: its containers together, limits before
    /// requests.
    pub fn pod_asks(&self, resource: &str) -> u64 {
        std::iter::once(&self.container)
            .chain(&self.sidecars)
            .map(|container| container.count(resource))
            .sum()
    }
}

impl ContainerView {
    /// Returns the variable of a name that applies: the last one.
    pub fn env(&self, name: &str) -> Option<&EnvView> {
        self.env.iter().rev().find(|var| var.name == name)
    }

    /// Returns the quantity of a resource as written, limits before requests.
    pub fn asks(&self, resource: &str) -> Option<&str> {
        self.limits.get(resource).or_else(|| self.requests.get(resource)).map(String::as_str)
    }

    /// Returns the number of a resource; 0 if none is requested or the quantity is unreadable.
    pub fn count(&self, resource: &str) -> u64 {
        self.asks(resource).and_then(Quantity::parse).map_or(0, Quantity::whole)
    }

    /// Returns command and arguments as one list.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        self.command.iter().chain(&self.args).map(String::as_str)
    }

    /// Returns whether CPU or memory is in its limits or requests: huge pages are refused without.
    pub fn asks_cpu_or_memory(&self) -> bool {
        ["cpu", "memory"].iter().any(|resource| self.asks(resource).is_some())
    }
}
