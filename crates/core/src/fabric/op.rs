//! One change to one role, with the rule behind it.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::TolerationProfile;
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
    /// The source of the fact behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Op {
    /// Returns the same change of another role.
    #[must_use]
    pub fn of_role(mut self, role: &str) -> Self {
        role.clone_into(&mut self.role);
        self
    }
}

/// A list of the pod, or of the container the ranks run in, whose members have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PodList {
    /// `volumes` of the pod.
    Volumes,
    /// `volumeMounts` of the container; their name here is the path.
    VolumeMounts,
    /// `initContainers` of the pod: one with `restartPolicy: Always` is a sidecar.
    InitContainers,
    /// `resourceClaims` of the pod.
    ResourceClaims,
    /// `resources.claims` of the container.
    ContainerClaims,
}

impl PodList {
    /// Returns the name of the list in the API.
    pub fn field(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::VolumeMounts => "volumeMounts",
            Self::InitContainers => "initContainers",
            Self::ResourceClaims => "resourceClaims",
            Self::ContainerClaims => "claims",
        }
    }

    /// Returns the key of a member's name.
    pub fn key(self) -> &'static str {
        if self == Self::VolumeMounts { "mountPath" } else { "name" }
    }

    /// Returns whether it is a list of the pod, and not of a container.
    pub fn is_of_pod(self) -> bool {
        matches!(self, Self::Volumes | Self::InitContainers | Self::ResourceClaims)
    }

    fn what(self) -> &'static str {
        match self {
            Self::Volumes => "volume",
            Self::VolumeMounts => "mount",
            Self::InitContainers => "sidecar",
            Self::ResourceClaims => "resource claim",
            Self::ContainerClaims => "claim of the container",
        }
    }
}

/// What is taken out of the container the ranks run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Removed {
    /// An environment variable.
    Env,
    /// The mount at a path.
    Mount,
    /// A resource, in limits and requests.
    Resource,
}

impl Removed {
    fn what(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Mount => "mount",
            Self::Resource => "resources",
        }
    }
}

/// What changes. Values are final: merging with the user's own happened when the op was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
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
    /// A resource is requested, in limits and requests. Where the user wrote one of the two, that one stays
    /// and the missing one gets the same scalar.
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
    /// The pods are placed in one topology domain.
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
    /// These words go before the command that starts the ranks of a node (`torchrun …`, the program), as
    /// `["sh", "-c", …]`. Only in job files, where the backend makes the command; raw manifests get
    /// [`Change::Command`].
    Wrap {
        /// The words.
        argv: Vec<String>,
    },
    /// A member is added to a list of the pod or the container.
    Member {
        /// The list.
        list: PodList,
        /// Name of the member, by which it is known to be there already.
        name: String,
        /// The whole member.
        value: Json,
    },
    /// A field of the pod is set (`hostNetwork`).
    PodField {
        /// Its name.
        key: String,
        /// Its value.
        value: Json,
    },
    /// Something is taken out of the container: it belongs to another fabric.
    Remove {
        /// What.
        what: Removed,
        /// Its name, or the path of a mount.
        name: String,
    },
    /// An object beside the job, in its namespace (a ResourceClaimTemplate). It is written before the job.
    Companion {
        /// The whole object.
        object: Json,
    },
    /// A field of the job's own object is set (the label of a Kueue queue).
    JobField {
        /// JSON pointer of the field.
        pointer: String,
        /// Its value.
        value: String,
    },
    /// The `mpirun` that the backend writes itself, for `launch = "mpi"`, is this one and forwards these variables.
    Mpirun {
        /// Absolute path, or `mpirun`.
        path: String,
        /// Names for `-x`, in order.
        forward: Vec<String>,
    },
}

/// Shows the change without the value, which may contain the user's own environment.
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

/// The path at which the topology file of a profile is mounted.
pub(crate) const TOPOLOGY_PATH: &str = "/etc/nccl/topo.xml";

/// The path at which pods and containers see weftrun's library for NCCL; where there are none, a backend writes its own.
pub const PROFILER_PATH: &str = "/opt/weftrun/nccl/libweftrun-nccl.so";

impl Change {
    pub(crate) fn env(name: &str, value: &str) -> Self {
        Self::Env { name: name.to_owned(), value: value.to_owned() }
    }

    pub(crate) fn annotation(key: &str, value: &str) -> Self {
        Self::Annotation { key: key.to_owned(), value: value.to_owned() }
    }

    pub(crate) fn node_selector(key: &str, value: &str) -> Self {
        Self::NodeSelector { key: key.to_owned(), value: value.to_owned() }
    }

    pub(crate) fn toleration(taint: &TolerationProfile) -> Self {
        let TolerationProfile { key, value, effect } = taint.clone();
        Self::Toleration { key, value, effect }
    }

    pub(crate) fn member(list: PodList, name: &str, value: Json) -> Self {
        Self::Member { list, name: name.to_owned(), value }
    }

    /// Returns whether the change needs an object beside the job, which only some backends create.
    pub fn needs_companion(&self) -> bool {
        matches!(self, Self::Env { value, .. } if value == TOPOLOGY_PATH)
    }

    /// Returns whether the change names weftrun's library for NCCL, which a backend must bring.
    pub fn needs_library(&self) -> bool {
        matches!(self, Self::Env { value, .. } if value == PROFILER_PATH)
    }

    /// Returns the target of the change in a few words (`resources vpc.amazonaws.com/efa`).
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
            Self::Member { list, name, .. } => format!("{} {name}", list.what()),
            Self::PodField { key, .. } => key.clone(),
            Self::Remove { what, name } => format!("{} {name}", what.what()),
            Self::Companion { object } => {
                let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
                format!("object {} {}", text("/kind"), text("/metadata/name"))
            }
            Self::JobField { pointer, .. } => match pointer.strip_prefix("/metadata/labels/") {
                Some(label) => format!("label {}", label.replace("~1", "/")),
                None => pointer.trim_start_matches('/').replace('/', "."),
            },
        }
    }

    /// Returns the new value, for display.
    pub fn value(&self) -> String {
        match self {
            Self::Env { value, .. }
            | Self::Annotation { value, .. }
            | Self::NodeSelector { value, .. }
            | Self::JobField { value, .. } => value.clone(),
            Self::Member { value, .. } | Self::PodField { value, .. } | Self::Companion { object: value } => {
                shown_command(&[value.to_string()])
            }
            Self::Remove { .. } => "removed".to_owned(),
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

    /// Returns its position among the changes of a role.
    #[expect(clippy::match_same_arms, reason = "in the order of the phases")]
    pub(crate) fn phase(&self) -> u8 {
        match self {
            Self::Companion { .. } | Self::Remove { .. } | Self::Mount { .. } => 0,
            Self::Member { list: PodList::Volumes | PodList::VolumeMounts, .. } => 0,
            Self::Env { .. } => 1,
            Self::Resource { .. } | Self::Member { .. } => 2,
            Self::Capability { .. } => 3,
            Self::Annotation { .. } | Self::JobField { .. } => 4,
            Self::NodeSelector { .. }
            | Self::Colocate { .. }
            | Self::Toleration { .. }
            | Self::PodField { .. } => 5,
            Self::Command { .. } | Self::Wrap { .. } | Self::Mpirun { .. } => 6,
        }
    }
}

/// Returns a command line with its long words cut, since a shell string can be pages long.
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

    /// Sets the source of the fact behind it.
    #[must_use]
    pub fn source(mut self, url: impl Into<String>) -> Self {
        self.source = Some(url.into());
        self
    }
}
