//! Which fabric a job gets, and every decision behind it.

mod profile;
pub mod rules;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use profile::Profile;

use crate::Finding;
use crate::backend::ClusterFacts;
use crate::catalogue::Catalogue;
use crate::mutation::Op;
use crate::spec::JobSpec;

/// A kind of interconnect, as asked for or as decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Fabric {
    /// Whatever the cluster has; a job that cannot have it is still submitted.
    #[default]
    Auto,
    /// AWS Elastic Fabric Adapter, through libfabric and aws-ofi-nccl.
    Efa,
    /// RDMA over Converged Ethernet, through NCCL's IB transport.
    Roce,
    /// InfiniBand, through NCCL's IB transport.
    InfiniBand,
    /// Plain TCP sockets.
    Tcp,
    /// Leave the job alone.
    Off,
}

/// What the user asked of the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FabricRequest {
    /// The fabric.
    pub kind: Fabric,
    /// Rules by id.
    pub rules: BTreeMap<String, RuleSetting>,
    /// How the RoCE GID index is found.
    pub gid: Option<Gid>,
    /// Network attachments (`namespace/name`) instead of the profile's.
    pub networks: Vec<String>,
    /// Whether the fabric's libraries are mounted or in the image.
    pub stack: Stack,
    /// Pin the network plugin, so that a silent fallback is a failure.
    pub strict: bool,
}

/// Whether a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RuleSetting {
    /// Applies when it fits, else is skipped with a reason.
    #[default]
    Auto,
    /// Must apply; an error where it cannot.
    On,
    /// Does not apply, nor does what depends on it.
    Off,
}

/// How the RoCE GID index is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Gid {
    /// NCCL ≥ 2.21 finds it; nothing is written.
    #[default]
    Auto,
    /// The command is wrapped to find it inside the pod.
    Compute,
    /// This index.
    Index(u32),
}

/// Where the fabric's libraries come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// Mounted, unless the job names paths of a bundled one.
    #[default]
    Auto,
    /// Mounted from the node.
    Mounted,
    /// In the image already.
    Bundled,
}

/// Where a value came from; later ones win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// weftrun's own default.
    Default,
    /// The system's config file.
    System,
    /// The user's config file.
    UserConfig,
    /// The project's `.weftrun.toml`.
    ProjectConfig,
    /// A profile, by name.
    Profile(String),
    /// An environment variable, by name.
    Env(String),
    /// The instance catalogue, by row.
    Catalogue(String),
    /// What the cluster said.
    Cluster,
    /// Assumed, since nothing said otherwise.
    Assumed,
    /// The job file or manifest.
    Job,
    /// A command-line flag.
    Flag(String),
}

/// One decision, for a person: what is set on what, by which rule, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Decision {
    /// Rule id (`efa.devices`).
    pub rule: String,
    /// What it is set on (`worker: resources vpc.amazonaws.com/efa`).
    pub target: String,
    /// The value.
    pub value: String,
    /// Why, in a sentence.
    pub why: String,
    /// Where the value came from.
    pub origin: Origin,
    /// Where the fact behind it is written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A rule that did not apply, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// Rule id, or the fabric's name when all of it was skipped.
    pub rule: String,
    /// Stable reason (`partial-node`, `opt-out`, `not-distributed`, …).
    pub reason: String,
    /// A sentence.
    pub why: String,
}

/// What was decided for one job: the same value whichever backend it goes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FabricPlan {
    /// The fabric the ranks are expected to use between nodes.
    pub fabric: Fabric,
    /// The decisions, in the order of the rules.
    pub decisions: Vec<Decision>,
    /// What did not apply.
    pub skipped: Vec<Skipped>,
    /// Errors and warnings.
    pub findings: Vec<Finding>,
    /// The changes the decisions mean.
    pub ops: Vec<Op>,
}

impl FabricPlan {
    /// Decides. Pure: the result depends on nothing but its arguments.
    pub fn new(spec: &JobSpec, _catalogue: &Catalogue, _facts: &ClusterFacts, _profile: &Profile) -> Self {
        Self::unchanged(spec.fabric.kind)
    }

    /// Makes the plan that changes nothing.
    pub fn unchanged(fabric: Fabric) -> Self {
        Self { fabric, decisions: Vec::new(), skipped: Vec::new(), findings: Vec::new(), ops: Vec::new() }
    }
}
