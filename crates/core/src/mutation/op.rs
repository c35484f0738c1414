//! One change to one role, with the rule behind it.

use serde::{Deserialize, Serialize};

use crate::fabric::Origin;

/// One change to one role. Backends translate it; the decision was made before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Op {
    /// Rule id (`efa.devices`).
    pub rule: String,
    /// The role it changes.
    pub role: String,
    /// The change.
    pub change: Change,
    /// Why, in a sentence.
    pub why: String,
    /// Where the value came from.
    pub origin: Origin,
    /// Where the fact behind it is written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What changes. Values are final: merging with the user's own happened when the op was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// An environment variable is added, or replaced in place.
    Env {
        /// Name.
        name: String,
        /// Final value.
        value: String,
    },
    /// A folder of the node appears in the container.
    Mount {
        /// Volume name.
        name: String,
        /// Folder of the node.
        host_path: String,
        /// Where it appears.
        mount_path: String,
        /// Whether writing is refused.
        read_only: bool,
    },
    /// A resource is asked, in limits and requests.
    Resource {
        /// Name (`vpc.amazonaws.com/efa`).
        name: String,
        /// Kubernetes quantity.
        quantity: String,
    },
    /// An annotation of the pods.
    Annotation {
        /// Key.
        key: String,
        /// Final value.
        value: String,
    },
    /// A Linux capability (`IPC_LOCK`).
    Capability {
        /// Name without `CAP_`.
        name: String,
    },
    /// A node selector.
    NodeSelector {
        /// Label.
        key: String,
        /// Value.
        value: String,
    },
    /// The pods stand in one topology domain.
    Colocate {
        /// Node label whose value must be equal (`topology.kubernetes.io/zone`).
        topology_key: String,
    },
    /// A toleration.
    Toleration {
        /// Taint key.
        key: String,
        /// Taint value, any if none.
        value: Option<String>,
        /// Taint effect, any if none.
        effect: Option<String>,
    },
    /// The command is rewritten (`mpirun` made absolute, variables forwarded, a wrapper put before it).
    Command {
        /// As it was.
        before: Vec<String>,
        /// As it becomes.
        after: Vec<String>,
    },
}

impl Op {
    /// Makes an op.
    pub fn new(
        rule: impl Into<String>,
        role: impl Into<String>,
        change: Change,
        why: impl Into<String>,
        origin: Origin,
    ) -> Self {
        Self { rule: rule.into(), role: role.into(), change, why: why.into(), origin, source: None }
    }

    /// Says where the fact behind it is written down.
    #[must_use]
    pub fn source(mut self, url: impl Into<String>) -> Self {
        self.source = Some(url.into());
        self
    }
}
