//! A group of equal nodes.

use serde::{Deserialize, Serialize};

use super::EnvVar;

/// What a role's processes are to NCCL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RoleKind {
    /// Ranks of the job.
    #[default]
    Worker,
    /// Starts the ranks with `mpirun` and has none itself.
    Launcher,
}

impl RoleKind {
    /// Returns the kind of a role that does not set one: a role named `launcher` is a launcher.
    pub(crate) fn of_name(name: &str) -> Self {
        if name == "launcher" { Self::Launcher } else { Self::Worker }
    }
}

/// A group of equal nodes: how many, what each has, what runs on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Role {
    /// Name, such as `worker`.
    pub name: String,
    /// Whether it has ranks.
    pub kind: RoleKind,
    /// Number of nodes (pods, hosts).
    pub nodes: u32,
    /// GPUs requested on each node.
    pub gpus_per_node: u32,
    /// Ranks on each node, where it is not one per GPU.
    pub ranks_per_node: Option<u32>,
    /// Instance type of the nodes (`p5.48xlarge`), if it matters or is known.
    pub instance_type: Option<String>,
    /// The program and its arguments; for `launch = "torchrun"` the Python script and its arguments.
    pub command: Vec<String>,
    /// Image, where it is not the job's.
    pub image: Option<String>,
    /// CPUs of each node, a Kubernetes quantity.
    pub cpus: Option<String>,
    /// Memory of each node, a Kubernetes quantity.
    pub memory: Option<String>,
    /// Size of `/dev/shm`, a Kubernetes quantity.
    pub shm: Option<String>,
    /// Environment of this role, after the job's.
    pub env: Vec<EnvVar>,
    /// Further resources by name, each a quantity (`vpc.amazonaws.com/efa = "32"`).
    pub resources: std::collections::BTreeMap<String, String>,
}

impl Role {
    /// Makes a worker role of one node without GPUs.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), nodes: 1, ..Self::default() }
    }

    /// Makes the role named `worker`.
    pub fn worker() -> Self {
        Self::new("worker")
    }

    /// Makes the role named `launcher`, which has no ranks.
    pub fn launcher() -> Self {
        Self { kind: RoleKind::Launcher, ..Self::new("launcher") }
    }

    setters! {
        /// Sets the number of nodes.
        nodes(nodes: u32) |role| role.nodes = nodes;
        /// Sets the number of GPUs of each node.
        gpus_per_node(gpus: u32) |role| role.gpus_per_node = gpus;
        /// Sets the number of ranks of each node.
        ranks_per_node(ranks: u32) |role| role.ranks_per_node = Some(ranks);
        /// Sets the instance type.
        instance_type(name: impl Into<String>) |role| role.instance_type = Some(name.into());
        /// Sets the memory of each node, a Kubernetes quantity such as `1800Gi`.
        memory(quantity: impl Into<String>) |role| role.memory = Some(quantity.into());
        /// Adds an environment variable for this role only.
        env(name: impl Into<String>, value: impl Into<String>)
            |role| role.env.push(EnvVar { name: name.into(), value: value.into() });
    }

    /// Sets the program and its arguments.
    #[must_use]
    pub fn command<S: Into<String>>(mut self, argv: impl IntoIterator<Item = S>) -> Self {
        self.command = argv.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the number of ranks on a node: as requested, else one per GPU, else one.
    pub fn procs_per_node(&self) -> u32 {
        self.ranks_per_node.unwrap_or(self.gpus_per_node.max(1))
    }
}
