//! One change to one role, with the rule behind it.

use serde::{Deserialize, Serialize};

use crate::request::Origin;

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
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// An environment variable is added at the end of the list, or replaced in place (the last of its name).
    Env {
        /// Name.
        name: String,
        /// Final value.
        value: String,
    },
    /// A folder of the node appears in the container. On Kubernetes: a `hostPath` volume of `type: Directory` and a
    /// mount; a volume of this name that is there already is the right one, and only its mount is missing.
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
    /// A resource is asked, in limits and requests. Where the user wrote one of the two, that one stays and the
    /// missing one gets the same scalar.
    Resource {
        /// Name (`vpc.amazonaws.com/efa`).
        name: String,
        /// Kubernetes quantity.
        quantity: String,
    },
    /// An annotation of the pods: added, or replaced in place.
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
        /// As it was: `command` and `args` as one list.
        before: Vec<String>,
        /// As it becomes, likewise.
        after: Vec<String>,
        /// How many words of `after` are `command`; the rest is `args`.
        #[serde(default)]
        command_words: usize,
    },
    /// These words go before whatever starts the ranks of a node (`torchrun …`, the program), as `["sh", "-c", …]`.
    /// Only in job files, where the backend makes the command; raw manifests get [`Change::Command`].
    Wrap {
        /// The words.
        argv: Vec<String>,
    },
    /// The `mpirun` that the backend writes itself, for `launch = "mpi"`, is this one and forwards these variables.
    Mpirun {
        /// Absolute path, or `mpirun`.
        path: String,
        /// Names for `-x`, in order.
        forward: Vec<String>,
    },
}

/// Shows what is changed without the value, in which the user's own environment may stand.
impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resource { .. }
            | Self::Mount { .. }
            | Self::Toleration { .. }
            | Self::NodeSelector { .. } => {
                write!(f, "Change({} = {:?})", self.target(), self.value())
            }
            _ => write!(f, "Change({})", self.target()),
        }
    }
}

impl Change {
    /// What it changes, in a few words (`resources vpc.amazonaws.com/efa`).
    pub fn target(&self) -> String {
        match self {
            Self::Env { name, .. } => format!("env {name}"),
            Self::Mount { mount_path, .. } => format!("mount {mount_path}"),
            Self::Resource { name, .. } => format!("resources {name}"),
            Self::Annotation { key, .. } => format!("annotation {key}"),
            Self::Capability { .. } => "capabilities".to_owned(),
            Self::NodeSelector { key, .. } => format!("node selector {key}"),
            Self::Colocate { .. } => "affinity".to_owned(),
            Self::Toleration { key, .. } => format!("toleration {key}"),
            Self::Command { .. } | Self::Wrap { .. } => "command".to_owned(),
            Self::Mpirun { .. } => "mpirun".to_owned(),
        }
    }

    /// The value it sets, as a person reads it.
    pub fn value(&self) -> String {
        match self {
            Self::Env { value, .. } | Self::Annotation { value, .. } | Self::NodeSelector { value, .. } => {
                value.clone()
            }
            Self::Mount { host_path, read_only, .. } => {
                format!("{host_path} of the node{}", if *read_only { ", read-only" } else { "" })
            }
            Self::Resource { quantity, .. } => quantity.clone(),
            Self::Capability { name } => name.clone(),
            Self::Colocate { topology_key } => format!("all pods in one {topology_key}"),
            Self::Toleration { value, effect, .. } => {
                [value.as_deref(), effect.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(":")
            }
            Self::Command { after, .. } => shown_command(after),
            Self::Wrap { argv } => shown_command(argv),
            Self::Mpirun { path, forward } => {
                forward.iter().fold(path.clone(), |line, name| format!("{line} -x {name}"))
            }
        }
    }

    /// Where it stands among the changes of a role.
    pub(crate) fn phase(&self) -> u8 {
        match self {
            Self::Mount { .. } => 0,
            Self::Env { .. } => 1,
            Self::Resource { .. } => 2,
            Self::Capability { .. } => 3,
            Self::Annotation { .. } => 4,
            Self::NodeSelector { .. } | Self::Colocate { .. } | Self::Toleration { .. } => 5,
            Self::Command { .. } | Self::Wrap { .. } | Self::Mpirun { .. } => 6,
        }
    }
}

/// A command line with its long words cut, since a shell string can be pages long.
fn shown_command(argv: &[String]) -> String {
    const LONGEST: usize = 120;
    let shown = argv.iter().map(|word| match word.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", word.get(..cut).unwrap_or_default()),
        None => word.clone(),
    });
    shown.collect::<Vec<_>>().join(" ").replace('\n', "⏎")
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
