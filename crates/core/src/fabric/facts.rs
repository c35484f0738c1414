//! What a cluster reports about itself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::DeviceKind;
use crate::Finding;

/// The key in [`ClusterFacts::extra`] under which a backend says by which addresses its endpoints are reached.
pub const PRIVATE_ACCESS: &str = "private access";

/// What to query of a cluster.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Scope {
    /// Instance types the job names; others need not be looked up.
    pub instance_types: Vec<String>,
    /// Queue, partition or node pool the job names.
    pub queue: Option<String>,
    /// Everything that helps a person to find a problem, at the cost of more requests: for `doctor`.
    pub thorough: bool,
    /// Whether to check that the endpoints are reached without the public internet, and to say by which addresses.
    pub private_access: bool,
    /// Whether to query again instead of using a cached answer.
    pub fresh: bool,
}

/// What a cluster says against a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeState {
    /// Its words: `drained (Xid 79)`.
    pub what: String,
    /// Since when; none where the cluster does not say it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub since: Option<Timestamp>,
}

/// What a cluster reports about itself. Absent values are unknown, not zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterFacts {
    /// Whether a cluster was queried at all; false offline.
    pub online: bool,
    /// Version of the control plane or of Slurm.
    pub version: Option<String>,
    /// Nodes, grouped by what they have.
    pub nodes: Vec<NodeGroup>,
    /// The nodes by name, each with its queues, where it has any. Empty if they are not known.
    #[serde(skip)]
    pub node_queues: BTreeMap<String, Vec<String>>,
    /// Nodes that the cluster keeps jobs from, or reports something wrong of, by name.
    pub node_states: BTreeMap<String, Vec<NodeState>>,
    /// Queues, partitions, node pools.
    pub queues: Vec<Queue>,
    /// Kinds it serves (`PyTorchJob.kubeflow.org/v1`), plugins it has (`pyxis`).
    pub serves: Vec<String>,
    /// Networks that pods can be attached to beside the default one. Empty if there are none, or if they
    /// could not be read.
    pub networks: Vec<PodNetwork>,
    /// Settings of the cluster that identify its site or its fabric (`SwitchType` → `switch/hpe_slingshot`).
    pub settings: BTreeMap<String, String>,
    /// Whether a webhook adds EFA on the server; none if it could not be found out.
    pub efa_webhook: Option<bool>,
    /// Pod Security level enforced in the namespace (`baseline`, `restricted`, `privileged`).
    pub pod_security: Option<String>,
    /// Names that the job needs and only the server has (`project-id`, `cluster-id`).
    pub ids: BTreeMap<String, String>,
    /// Priority classes or qos.
    pub priorities: Vec<String>,
    /// What could not be queried, and what follows from it.
    pub notes: Vec<Finding>,
    /// Other facts of one backend, for its own render.
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// A network that pods can be attached to beside the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct PodNetwork {
    /// Name; with its namespace (`kube-system/roce`), if it has one.
    pub name: String,
    /// The API that defines it.
    pub api: NetworkApi,
    /// What attaches pods to it: `deviceMode` of GKE (`RDMA`, `NetDevice`), or the type of the CNI plugin
    /// (`host-device`, `ib-sriov`), if it is known.
    pub driver: Option<String>,
    /// The resource that pods request with it, if any.
    pub resource: Option<String>,
}

/// The API that defines a network of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NetworkApi {
    /// `NetworkAttachmentDefinition.k8s.cni.cncf.io`, which Multus reads.
    #[default]
    Multus,
    /// `Network.networking.gke.io`.
    Gke,
}

/// Nodes that are alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct NodeGroup {
    /// Instance type, if it is known.
    pub instance_type: Option<String>,
    /// GPU product (`NVIDIA-H100-80GB-HBM3`), if it is known.
    pub gpu_product: Option<String>,
    /// How many such nodes.
    pub count: u32,
    /// What one of them can give: resource name to quantity (`nvidia.com/gpu` → `8`).
    pub allocatable: BTreeMap<String, String>,
    /// Labels or features all of them have.
    pub labels: BTreeMap<String, String>,
    /// Queues or partitions they belong to.
    pub queues: Vec<String>,
    /// Kinds of their network devices, where the backend can look at them.
    pub devices: BTreeSet<DeviceKind>,
}

/// A queue, partition or node pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct Queue {
    /// Name.
    pub name: String,
    /// Whether it is used when none is requested.
    pub default: bool,
    /// Most nodes of a job.
    pub max_nodes: Option<u32>,
    /// Longest time of a job, in seconds.
    pub max_seconds: Option<u64>,
    /// Whether it takes jobs now.
    pub up: bool,
}
