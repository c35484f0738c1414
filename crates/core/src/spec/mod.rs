//! What to run: one [`JobSpec`], from a file, from flags or from a builder.

mod avoid;
mod builder;
mod code;
pub mod file;
pub mod git;
mod launch;
mod masked;
mod origins;
mod role;
mod runtime;
mod tasks;
mod validate;
mod volume;

pub use crate::text::Quantity;
pub use avoid::{LeftOut, RetryAvoid, RetryPolicy, SUSPECTS, is_node_name};
pub use builder::JobSpecBuilder;
pub use code::{Archive, CODE_FILE_TIME, Code, CodeContent, MAX_CODE_BYTES, MAX_CODE_FILES, NO_EVIDENCE};
pub use file::{Format, JobFile, JobFlag, Overrides, PartialJob, job_flags, patched, to_toml, tool_of};
pub use launch::{Rendezvous, node_command};
pub use origins::Origins;
pub use role::{Role, RoleKind};
pub use runtime::{is_runtime, runtimes_in};
pub use tasks::{MAX_TASKS, Parameter, Piece, TASK_VARIABLE, TASKS_VARIABLE, Tasks};
pub use validate::{SHM_OVER_MEMORY, nul_paths};

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::request::FabricRequest;

/// A distributed job, described once for every backend.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobSpec {
    /// Name of the job; a DNS label, since every cluster makes host names of it.
    pub name: String,
    /// Container image; none for `local` and for Slurm without a container.
    pub image: Option<String>,
    /// Who starts the processes of a node.
    pub launch: Launch,
    /// The groups of equal nodes. One role by default.
    pub roles: Vec<Role>,
    /// Code brought along, beside what the image has.
    pub code: Option<Code>,
    /// Environment of every role, in order.
    pub env: Vec<EnvVar>,
    /// Environment whose values live in the cluster's secret store.
    pub secrets: Vec<SecretRef>,
    /// Volumes mounted in every role.
    pub volumes: Vec<Volume>,
    /// Working directory in the container.
    pub workdir: Option<String>,
    /// Which fabric, and which of its rules are switched on or off.
    pub fabric: FabricRequest,
    /// Profile of the site (`dgxc`, `eks-image`, …); the target's otherwise.
    pub profile: Option<String>,
    /// Queue, partition or node pool.
    pub queue: Option<String>,
    /// Priority class, or qos on Slurm.
    pub priority: Option<String>,
    /// What happens when a rank fails.
    pub restart: RestartPolicy,
    /// How often it is submitted again after a failure of its nodes; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Nodes that it does not run on; [`SUSPECTS`] stands for those that the history suspects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
    /// How long the job may run.
    #[serde(with = "crate::text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub time_limit: Option<Duration>,
    /// The jobs that must have ended before it starts: a handle or a name, with `afterany:` before it whatever their result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The numbers of its tasks, as `sbatch --array` reads them; none for a job of one task, and for a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// The parameters whose values the tasks have, each combination one task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Parameter>,
    /// Largest number of tasks that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// Labels on what is submitted.
    pub labels: BTreeMap<String, String>,
    /// Annotations on every pod.
    pub annotations: BTreeMap<String, String>,
    /// Settings of one backend, by backend name; passed on unchanged.
    pub backend: BTreeMap<String, serde_json::Value>,
    /// Where each value came from; not part of the job's identity.
    #[serde(skip)]
    pub origins: Origins,
}

word_enum! {
    /// Who starts the processes of a node.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Launch: ALL {
        /// The user gives a Python script; the backend starts `torchrun` once per node.
        Torchrun = "torchrun",
        /// The user gives a program; one launcher starts it on all nodes with `mpirun`.
        Mpi = "mpi",
        /// The backend starts the command once per GPU (rank).
        PerRank = "per-rank",
        /// The backend starts the command once per node; it does the rest itself.
        #[default]
        PerNode = "per-node",
        /// The backend starts the command once, on the first node; it starts the ranks itself (`srun` in a batch script).
        Once = "once",
    }
}

crate::text::words!(Launch, "way to launch");

/// One environment variable.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvVar {
    /// Name: letters, digits and `_`, no digit first.
    pub name: String,
    /// Value, taken literally.
    pub value: String,
}

impl EnvVar {
    /// Returns whether the name conventionally holds credentials (`HF_TOKEN`, `WANDB_API_KEY`, `GH_PAT`).
    pub fn looks_secret(&self) -> bool {
        crate::mask::is_secret_name(&self.name)
    }
}

/// An environment variable whose value is in the cluster's secret store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretRef {
    /// Name of the environment variable.
    pub env: String,
    /// Name of the secret.
    pub secret: String,
    /// Key inside the secret.
    pub key: String,
}

/// Something mounted into the containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Volume {
    /// Name, unique in the job.
    pub name: String,
    /// Where it appears in the container.
    pub mount: String,
    /// What it is.
    pub source: VolumeSource,
    /// Whether writing is refused.
    pub read_only: bool,
}

impl Volume {
    /// Returns whether it is a device of the host, which only the workers' nodes need to have.
    pub fn is_device(&self) -> bool {
        matches!(&self.source, VolumeSource::HostPath(path) if path.starts_with("/dev/"))
    }
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum VolumeSource {
    /// A folder of the node, or of the shared file system on Slurm.
    HostPath(String),
    /// A PersistentVolumeClaim.
    Claim(String),
    /// Memory, such as `/dev/shm`; the size is a Kubernetes quantity.
    Memory {
        /// Upper limit, none for the node's.
        size: Option<String>,
    },
}

/// What happens when a rank fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// The job fails.
    #[default]
    Never,
    /// All ranks start again, at most this many times.
    OnFailure {
        /// Most restarts.
        max: u32,
    },
}

/// Shows only the name: a value may be a secret.
impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvVar").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Hides the values of environment variables.
impl fmt::Debug for JobSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        macro_rules! shown {
            ($($field:ident)*) => {{
                let Self { $($field,)* backend, origins: _ } = self;
                // Passed on unchanged, so they may contain environment variables.
                let settings: Vec<_> = backend.keys().collect();
                f.debug_struct("JobSpec")
                    $(.field(stringify!($field), $field))*
                    .field("backend", &settings)
                    .finish_non_exhaustive()
            }};
        }
        shown! {
            name image launch roles code env secrets volumes workdir fabric profile queue priority
            restart retry avoid time_limit after array sweep parallel labels annotations
        }
    }
}

impl JobSpec {
    /// Starts a builder.
    pub fn builder(name: impl Into<String>) -> JobSpecBuilder {
        JobSpecBuilder::new(name)
    }

    /// Sets a key of one backend's settings.
    pub fn set_backend(&mut self, backend: &str, key: &str, value: impl Into<serde_json::Value>) {
        let settings = self.backend.entry(backend.to_owned()).or_default();
        if !settings.is_object() {
            *settings = serde_json::json!({});
        }
        settings[key] = value.into();
    }

    /// Returns the roles whose ranks take part in NCCL's communicators.
    pub fn workers(&self) -> impl Iterator<Item = &Role> {
        self.roles.iter().filter(|role| role.kind == RoleKind::Worker)
    }

    /// Returns the total number of GPU nodes.
    pub fn nodes(&self) -> u32 {
        self.workers().fold(0, |sum, role| sum.saturating_add(role.nodes))
    }

    /// Returns the total number of ranks: processes of all worker nodes.
    pub fn world_size(&self) -> u32 {
        let ranks = |role: &Role| role.nodes.saturating_mul(role.procs_per_node());
        self.workers().fold(0, |sum, role| sum.saturating_add(ranks(role)))
    }

    /// Returns the number of ranks where weftrun starts them: a command that runs once starts its own.
    pub fn ranks(&self) -> Option<u32> {
        (self.launch != Launch::Once).then(|| self.world_size())
    }

    /// Returns the number of tasks that the job requests for a command that runs once and starts its ranks itself.
    pub fn processes_of_script(&self) -> Option<u32> {
        let each: Option<Vec<u32>> =
            self.workers().map(|role| Some(role.nodes.saturating_mul(role.ranks_per_node?))).collect();
        each.filter(|_| self.launch == Launch::Once).map(|each| each.into_iter().fold(0, u32::saturating_add))
    }
}

/// Returns the condition and the job of a dependency, which waits for a success where it names no condition: `afterok` and
/// `slurm://prod/7` of `slurm://prod/7`.
pub fn split_dependency(text: &str) -> (&str, &str) {
    match text.split_once(':') {
        Some((condition, job)) if condition.starts_with("after") => (condition, job),
        _ => ("afterok", text),
    }
}
