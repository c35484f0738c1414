//! A site's paths, names and sizes. Shipped ones are TOML in `data/profiles/`; users add their own with `extends`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::rules::opt_out::OPT_OUT;
use crate::request::{Fabric, Gid, Webhook};

/// What a site names its resources, paths and labels; no site's name is in the code. `Debug` hides the
/// values of environment variables.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Profile {
    /// Name (`dgxc`).
    pub name: String,
    /// The profile that this one extends; its own values win, table by table.
    pub extends: Option<String>,
    /// One sentence.
    pub summary: String,
    /// What `fabric = "auto"` means here.
    pub fabric: Fabric,
    /// The resource that counts as an accelerator.
    pub accelerator: String,
    /// Accelerators of a whole node, where the instance type is unknown.
    pub node_accelerators: u32,
    /// Instance type of the worker nodes, where the job names none.
    pub instance_type: Option<String>,
    /// Annotation by which a pod opts out of EFA.
    pub opt_out: Option<String>,
    /// Whether a webhook of the cluster adds EFA.
    pub webhook: Webhook,
    /// Memory to request for a worker that requests neither CPU nor memory: a quantity, or `90%` of the
    /// instance type's.
    pub memory_default: Option<String>,
    /// Additional environment of the workers (rule `profile.env`).
    pub env: BTreeMap<String, String>,
    /// The same for workers on one instance type; it overrides `env`.
    pub instance_env: BTreeMap<String, BTreeMap<String, String>>,
    /// The source of each value, by key (`env.NCCL_IB_TC`, `roce.devices`); `*` is the source of all
    /// others.
    pub sources: BTreeMap<String, String>,
    /// Whether the profile is based on documentation alone and was never run on the real cloud.
    pub untried: bool,
    /// The fabric's libraries on the node; none if they are in the image.
    pub stack: Option<StackProfile>,
    /// The fabric's libraries where a job has no container.
    pub node: NodeProfile,
    /// EFA.
    pub efa: Option<EfaProfile>,
    /// RoCE.
    pub roce: Option<RoceProfile>,
    /// InfiniBand.
    pub infiniband: Option<InfinibandProfile>,
    /// What a launcher without GPUs needs.
    pub launcher: LauncherProfile,
    /// Where workers are placed.
    pub placement: Placement,
    /// What the pods of workers get with any fabric.
    pub pod: PodProfile,
    /// The queue of jobs, and how close together Kueue places their pods.
    pub queue: QueueProfile,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("fabric", &self.fabric)
            .field("accelerator", &self.accelerator)
            .field("instance_type", &self.instance_type)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The fabric's libraries, mounted from the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct StackProfile {
    /// Name of the volume.
    pub volume: String,
    /// Folder of the node.
    pub host_path: String,
    /// Where it appears in the container.
    pub mount_path: String,
    /// Folders put before the user's `LD_LIBRARY_PATH`, in order.
    pub library_dirs: Vec<String>,
    /// Folders appended where the user sets no `LD_LIBRARY_PATH`, since setting it hides the image's value.
    pub library_tail: Vec<String>,
    /// Value of `OPAL_PREFIX`.
    pub opal_prefix: Option<String>,
    /// Folder of `mpirun`.
    pub mpirun_dir: Option<String>,
    /// Absolute path of the NCCL net plugin in the mounted stack, which `--strict` pins.
    pub net_plugin: Option<String>,
    /// The oldest glibc of an image that these libraries can be loaded with (`--check-image`).
    pub glibc: Option<String>,
}

/// The fabric's libraries on the nodes themselves; a container has its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct NodeProfile {
    /// Folders put before the `LD_LIBRARY_PATH` of a job without a container. A folder that a node lacks is
    /// harmless.
    pub library_dirs: Vec<String>,
}

/// EFA's names and sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct EfaProfile {
    /// The resource; none where nodes are exclusive and no resource is requested.
    pub devices: Option<String>,
    /// How many a whole node has, where the instance type is unknown; 0 if that is unknown too.
    pub count: u32,
    /// Huge pages of 2 MiB, as a quantity. None, or `omit`, requests none.
    pub hugepages: Option<String>,
    /// Value of `FI_EFA_USE_DEVICE_RDMA`.
    pub device_rdma: Option<String>,
    /// Value of `NVIDIA_GDRCOPY`: with `enabled` NVIDIA's container toolkit adds `/dev/gdrdrv`.
    pub gdrcopy: Option<String>,
    /// Absolute path of the NCCL net plugin in the image, or on the nodes, where no stack is mounted; `--strict` pins it.
    pub net_plugin: Option<String>,
    /// Whether the capability IPC_LOCK is added (NVIDIA's examples do, AWS's do not).
    pub memlock: bool,
    /// What Neuron needs (rule `efa.neuron`).
    pub neuron_env: BTreeMap<String, String>,
}

/// RoCE's names and sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct RoceProfile {
    /// Networks (`namespace/name`) of the Multus annotation; none where no annotation is needed.
    pub networks: Vec<String>,
    /// Whether each network is named once for each requested device, as sites with virtual functions need
    /// it.
    pub network_per_device: bool,
    /// The RDMA resource; none where no resource is requested.
    pub devices: Option<String>,
    /// How many of it a pod requests.
    pub count: u32,
    /// Whether the capability IPC_LOCK is added.
    pub memlock: bool,
    /// Value of `NCCL_IB_HCA`.
    pub hca: Option<String>,
    /// Value of `NCCL_SOCKET_NTHREADS`; its product with the next is at most 64.
    pub socket_threads: Option<String>,
    /// Value of `NCCL_NSOCKS_PERTHREAD`.
    pub sockets_per_thread: Option<String>,
    /// How the GID index is determined, where the job does not set it.
    pub gid: Gid,
}

/// InfiniBand's names and sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct InfinibandProfile {
    /// The RDMA resource; none where no resource is requested.
    pub devices: Option<String>,
    /// How many of it a pod requests.
    pub count: u32,
    /// Whether the capability IPC_LOCK is added.
    pub memlock: bool,
    /// Value of `NCCL_IB_HCA`.
    pub hca: Option<String>,
}

/// What a launcher without GPUs needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct LauncherProfile {
    /// Labels of the nodes that have the stack.
    pub node_selector: BTreeMap<String, String>,
}

/// Where workers are placed (rule `efa.colocate`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Placement {
    /// Node labels of a capacity block or reservation.
    pub node_selector: BTreeMap<String, String>,
    /// Its taints.
    pub tolerations: Vec<TolerationProfile>,
}

/// What the pods of workers get besides devices and variables. Strings may contain `{job}`, `{nodes}`,
/// `{accelerators}`, `{index}` and `{efa}` (EFA interfaces for each accelerator); a string that consists of
/// one numeric placeholder becomes a number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct PodProfile {
    /// Puts the pods on the host's network, with the DNS policy that goes with it.
    pub host_network: bool,
    /// Annotations. A list is merged with the existing one, member by member.
    pub annotations: BTreeMap<String, Json>,
    /// Additional resources (`networking.gke.io.networks/rdma-0`).
    pub resources: BTreeMap<String, String>,
    /// Linux capabilities.
    pub capabilities: Vec<String>,
    /// Folders put before the user's `LD_LIBRARY_PATH`, in order.
    pub library_dirs: Vec<String>,
    /// A script of the container that bash reads before the command, in the same process.
    pub script: Option<String>,
    /// Node labels.
    pub node_selector: BTreeMap<String, String>,
    /// Taints.
    pub tolerations: Vec<TolerationProfile>,
    /// A node label that all pods share, where the job has no more nodes than `colocate-nodes`.
    pub colocate: Option<String>,
    /// How many nodes have the label's value in common.
    pub colocate_nodes: u64,
    /// Volumes, sidecars and resource claims, by name.
    pub add: BTreeMap<String, AddProfile>,
    /// What is removed since it belongs to another fabric.
    pub remove: RemoveProfile,
    /// NCCL's topology file.
    pub topology_file: TopologyFileProfile,
}

/// The file from which NCCL reads the PCIe topology of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct TopologyFileProfile {
    /// Whether the file is NCCL's only source of the topology, so that a job without it is reported.
    pub needed: bool,
    /// The file's text. It is put into a ConfigMap beside the job and mounted.
    pub content: Option<String>,
}

/// Something with a name that is added to a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct AddProfile {
    /// A volume, without its name.
    pub volume: Option<Json>,
    /// Where the volume appears in the container of the ranks.
    pub mount: Option<String>,
    /// Whether writing there is refused.
    pub read_only: bool,
    /// A sidecar, without its name: an init container that runs as long as the pod.
    pub sidecar: Option<Json>,
    /// A resource claim, without its name, which the container of the ranks uses.
    pub claim: Option<Json>,
    /// The object that the volume or claim refers to.
    pub companion: Option<Json>,
    /// The resource that the claim replaces; it is removed.
    pub replaces: Option<String>,
    /// Whether one claim is made for each accelerator, as `NAME-0`, `NAME-1`, …
    pub each_accelerator: bool,
}

impl PodProfile {
    /// Returns whether the profile leaves pods as they are.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how many accelerators a container gets by claims that this profile makes instead of
    /// resources.
    pub(crate) fn claimed(&self, accelerator: &str, claims: &[String]) -> u64 {
        let of = |name: &str, claim: &String| {
            let index = claim.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            index.is_some_and(|index| index.parse::<u64>().is_ok())
        };
        let replacing = self
            .add
            .iter()
            .filter(|(_, add)| add.each_accelerator && add.replaces.as_deref() == Some(accelerator));
        replacing.map(|(name, _)| claims.iter().filter(|claim| of(name, claim)).count() as u64).sum()
    }
}

/// What is removed from the containers of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct RemoveProfile {
    /// Variables; a trailing `*` matches any suffix.
    pub env: Vec<String>,
    /// Paths of mounts.
    pub mounts: Vec<String>,
    /// Resources.
    pub resources: Vec<String>,
}

/// The queue of jobs, of Kueue or of Volcano, and how close together Kueue places the pods of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct QueueProfile {
    /// A LocalQueue of Kueue.
    pub kueue: Option<String>,
    /// A Queue of Volcano.
    pub volcano: Option<String>,
    /// A topology level of Kueue that all workers must share (`cloud.provider.com/topology-block`).
    pub topology_required: Option<String>,
    /// A topology level that the workers share where that is possible.
    pub topology_preferred: Option<String>,
}

/// A taint that workers tolerate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct TolerationProfile {
    /// Taint key.
    pub key: String,
    /// Taint value, any if none.
    pub value: Option<String>,
    /// Taint effect, any if none.
    pub effect: Option<String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: String::new(),
            extends: None,
            summary: String::new(),
            fabric: Fabric::Auto,
            accelerator: "nvidia.com/gpu".to_owned(),
            node_accelerators: 8,
            instance_type: None,
            opt_out: Some(OPT_OUT.to_owned()),
            webhook: Webhook::Auto,
            memory_default: None,
            env: BTreeMap::new(),
            instance_env: BTreeMap::new(),
            sources: BTreeMap::new(),
            untried: false,
            stack: None,
            node: NodeProfile::default(),
            efa: None,
            roce: None,
            infiniband: None,
            launcher: LauncherProfile::default(),
            placement: Placement::default(),
            pod: PodProfile::default(),
            queue: QueueProfile::default(),
        }
    }
}

impl Profile {
    /// Returns the profile for a user who named it for a cluster that is not queried. Where the profile
    /// mounts the nodes' stack, a webhook of the cluster may mount the same, which the API server refuses;
    /// so a webhook is assumed unless the profile excludes it.
    #[must_use]
    pub fn named(mut self) -> Self {
        if self.mounts_host_path() && self.webhook == Webhook::Auto {
            self.webhook = Webhook::Yes;
        }
        self
    }

    /// Returns whether it mounts a folder of the node: then only discovery, a config file or the user may
    /// choose it.
    pub fn mounts_host_path(&self) -> bool {
        self.stack.is_some()
    }

    /// Returns the source of a key's value, if the profile has one.
    pub fn source_of(&self, key: &str) -> Option<&str> {
        self.sources.get(key).or_else(|| self.sources.get("*")).map(String::as_str)
    }

    /// Returns whether it has settings for a fabric.
    pub fn covers(&self, fabric: Fabric) -> bool {
        match fabric {
            Fabric::Efa => self.efa.is_some(),
            Fabric::Roce => self.roce.is_some(),
            Fabric::InfiniBand => self.infiniband.is_some(),
            Fabric::Auto | Fabric::Tcp | Fabric::Off => true,
        }
    }
}
