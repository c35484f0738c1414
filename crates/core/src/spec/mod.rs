//! What to run: one [`JobSpec`], whether it came from a file, from flags or from a builder.

mod builder;
pub mod duration;
pub mod file;
mod launch;
mod origins;
pub mod quantity;
mod role;
mod validate;
mod words;

pub use builder::JobSpecBuilder;
pub use duration::parse as parse_duration;
pub use file::{Draft, Format, JobFile, Overrides, patched, to_toml};
pub use launch::{Rendezvous, node_command};
pub use origins::Origins;
pub use quantity::Quantity;
pub use role::{Role, RoleKind};
pub use words::did_you_mean;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fabric::FabricRequest;

/// A distributed job, described once for every backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobSpec {
    /// Name of the job; a DNS label, since every cluster makes host names of it.
    pub name: String,
    /// Container image; none for `local` and for Slurm without a container.
    pub image: Option<String>,
    /// Who starts the processes of a node.
    pub launch: Launch,
    /// The groups of equal nodes. One role unless something else was asked for.
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
    /// How long the job may run.
    #[serde(with = "crate::spec::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub time_limit: Option<Duration>,
    /// Labels on what is submitted.
    pub labels: BTreeMap<String, String>,
    /// Annotations on every pod.
    pub annotations: BTreeMap<String, String>,
    /// Settings only one backend knows, by backend name; passed on as they are.
    pub backend: BTreeMap<String, serde_json::Value>,
    /// Where each value came from; no part of what the job is.
    #[serde(skip)]
    pub origins: Origins,
}

/// Who starts the processes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Launch {
    /// The user gives a Python script; the backend starts `torchrun` once per node.
    Torchrun,
    /// The user gives a program; one launcher starts it on all nodes with `mpirun`.
    Mpi,
    /// The backend starts the command once per GPU (rank).
    PerRank,
    /// The backend starts the command once per node; it does the rest itself.
    #[default]
    PerNode,
}

/// One environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvVar {
    /// Name: letters, digits and `_`, no digit first.
    pub name: String,
    /// Value, taken literally.
    pub value: String,
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

/// Code brought along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// One file, carried inside the job.
    Script {
        /// File name it gets on the node.
        name: String,
        /// Its text.
        text: String,
    },
    /// A Git repository, cloned before the start.
    Git {
        /// Address.
        url: String,
        /// Branch, tag or commit.
        rev: Option<String>,
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

impl JobSpec {
    /// A job that says nothing yet.
    pub(crate) fn empty() -> Self {
        Self {
            name: String::new(),
            image: None,
            launch: Launch::default(),
            roles: Vec::new(),
            code: None,
            env: Vec::new(),
            secrets: Vec::new(),
            volumes: Vec::new(),
            workdir: None,
            fabric: FabricRequest::default(),
            profile: None,
            queue: None,
            priority: None,
            restart: RestartPolicy::default(),
            time_limit: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            backend: BTreeMap::new(),
            origins: Origins::default(),
        }
    }

    /// Starts a builder.
    pub fn builder(name: impl Into<String>) -> JobSpecBuilder {
        JobSpecBuilder::new(name)
    }

    /// The roles whose ranks take part in NCCL's communicators.
    pub fn workers(&self) -> impl Iterator<Item = &Role> {
        self.roles.iter().filter(|role| role.kind == RoleKind::Worker)
    }

    /// Number of GPU nodes in total.
    pub fn nodes(&self) -> u32 {
        self.workers().fold(0, |sum, role| sum.saturating_add(role.nodes))
    }

    /// Number of ranks in total: processes of all worker nodes.
    pub fn world_size(&self) -> u32 {
        let ranks = |role: &Role| role.nodes.saturating_mul(role.procs_per_node());
        self.workers().fold(0, |sum, role| sum.saturating_add(ranks(role)))
    }
}
<<<<<<< HEAD

/// Durations as people write them: `90s`, `15m`, `4h`, `2d`, `1d12h`.
pub(crate) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes seconds with an `s`.
    #[allow(clippy::ref_option, reason = "serde's with calls it by reference")]
    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(duration) => serializer.serialize_some(&format!("{}s", duration.as_secs())),
            None => serializer.serialize_none(),
        }
    }

    /// Reads what [`parse`] reads.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a duration")))
    }

    /// Reads `90s`, `15m`, `4h`, `2d`, `1d12h`, or bare seconds.
    pub fn parse(text: &str) -> Option<Duration> {
        let mut seconds: u64 = 0;
        let mut number: Option<u64> = None;
        for c in text.trim().chars() {
            if let Some(digit) = c.to_digit(10) {
                number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit))?);
                continue;
            }
            let unit = match c {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 86400,
                _ => return None,
            };
            seconds = seconds.checked_add(number.take()?.checked_mul(unit)?)?;
        }
        match number {
            Some(rest) if seconds == 0 => Some(Duration::from_secs(rest)),
            Some(_) => None,
            None if text.trim().is_empty() => None,
            None => Some(Duration::from_secs(seconds)),
        }
    }
}

/// The known word nearest to a misspelt one, if one is near enough to be meant.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (word.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&word.to_lowercase(), &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}
=======
