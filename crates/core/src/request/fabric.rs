//! The requested fabric: the values in job files, flags and the SDK.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weftrun_nccl::{FabricSeen, Network};

word_enum! {
    /// A kind of interconnect, as requested or as decided.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum Fabric: ALL {
        /// The fabric of the cluster; a job that cannot have it is still submitted.
        #[default]
        Auto = "auto",
        /// AWS Elastic Fabric Adapter, through libfabric and aws-ofi-nccl.
        Efa = "efa",
        /// RDMA over Converged Ethernet, through NCCL's IB transport.
        Roce = "roce",
        /// InfiniBand, through NCCL's IB transport.
        #[serde(alias = "ib")]
        InfiniBand = "infiniband",
        /// Plain TCP sockets.
        Tcp = "tcp",
        /// Leave the job alone.
        #[serde(alias = "none")]
        Off = "off",
    }
}

impl Fabric {
    /// Returns it where it names a fabric: neither `auto` nor `off`.
    pub fn named(self) -> Option<Self> {
        Some(self).filter(|fabric| !matches!(fabric, Self::Auto | Self::Off))
    }

    /// Returns whether the fabric that a log proves is this one; none where nothing was planned or nothing is proved.
    pub fn is_met_by(self, seen: FabricSeen) -> Option<bool> {
        let is = |network: Network| Some(seen == FabricSeen::Network(network));
        match (self, seen) {
            (Self::Auto | Self::Off, _) | (_, FabricSeen::Unknown | FabricSeen::IntraNode) => None,
            // Its provider may be efa: the line that names it may be another rank's, or cut off.
            (Self::Efa, FabricSeen::Network(Network::LibfabricOther)) => None,
            (Self::Roce | Self::InfiniBand, FabricSeen::Network(Network::Verbs | Network::Sharp)) => {
                Some(true)
            }
            (Self::Efa, _) => is(Network::Efa),
            (Self::Roce, _) => is(Network::Roce),
            (Self::InfiniBand, _) => is(Network::InfiniBand),
            (Self::Tcp, _) => is(Network::Socket),
        }
    }
}

/// The user's fabric request.
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
    /// Measure NCCL's collectives with weftrun's library, which is brought with the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bandwidth: bool,
    /// Who adds the stack to the pods.
    #[serde(default)]
    pub inject: Inject,
    /// Whether a webhook of the cluster adds EFA on its own.
    #[serde(default)]
    pub webhook: Webhook,
    /// Instance type of all worker nodes, where the roles do not set it.
    #[serde(default)]
    pub instance_type: Option<String>,
    /// Memory to request where a role requests neither CPU nor memory: huge pages are refused without.
    #[serde(default)]
    pub memory: Option<String>,
    /// Set `NCCL_DEBUG=INFO` where it is unset; by default for job files, and not for raw manifests.
    #[serde(default)]
    pub detect: Option<bool>,
}

word_enum! {
    /// Whether a rule applies.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum RuleSetting: ALL {
        /// Applies when it fits, else is skipped with a reason.
        #[default]
        Auto = "auto",
        /// Must apply; an error where it cannot.
        On = "on",
        /// Does not apply, nor does what depends on it.
        Off = "off",
    }
}

/// How the RoCE GID index is found. In files: `"auto"`, `"compute"` or a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "GidWord"))]
#[serde(try_from = "GidWord", into = "GidWord")]
pub enum Gid {
    /// NCCL ≥ 2.21 finds it; nothing is written.
    #[default]
    Auto,
    /// The command is wrapped to find it inside the pod.
    Compute,
    /// This index.
    Index(u32),
}

/// A [`Gid`] as it is written.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum GidWord {
    Index(u32),
    Word(String),
}

impl From<Gid> for GidWord {
    fn from(gid: Gid) -> Self {
        match gid {
            Gid::Auto => Self::Word("auto".to_owned()),
            Gid::Compute => Self::Word("compute".to_owned()),
            Gid::Index(index) => Self::Index(index),
        }
    }
}

impl TryFrom<GidWord> for Gid {
    type Error = crate::Error;

    fn try_from(word: GidWord) -> crate::Result<Self> {
        match word {
            GidWord::Index(index) => Ok(Self::Index(index)),
            GidWord::Word(word) => word.parse(),
        }
    }
}

impl std::str::FromStr for Gid {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "compute" => Ok(Self::Compute),
            number => number.parse().map(Self::Index).map_err(|_| {
                crate::Error::new(
                    crate::ErrorKind::InvalidSpec,
                    format!("`{text}` is not a way to find the GID index"),
                )
                .hint("`auto`, `compute` or a number")
            }),
        }
    }
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

/// Who adds the stack to the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Inject {
    /// weftrun does; the pods opt out of a webhook of the cluster.
    #[default]
    Client,
    /// The cluster's webhook does; weftrun only rewrites `mpirun`.
    Server,
}

/// Whether a webhook of the cluster adds EFA on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Webhook {
    /// The cluster is queried; offline, nothing is added.
    #[default]
    Auto,
    /// There is one.
    Yes,
    /// There is none.
    No,
}

crate::text::words!(Fabric, "fabric");

crate::text::words!(RuleSetting, "setting of a rule");
