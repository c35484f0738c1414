//! The rules, each with the id that switches it.

use std::collections::BTreeMap;

use crate::Finding;
use crate::request::{Fabric, RuleSetting};

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricRule {
    /// Id (`efa.devices`).
    pub id: &'static str,
    /// The fabric it belongs to; [`Fabric::Auto`] for those of any fabric.
    pub fabric: Fabric,
    /// What it sets, in a sentence.
    pub what: &'static str,
    /// Why that is needed.
    pub why: &'static str,
    /// The rule that it depends on, if there is one.
    pub depends_on: Option<&'static str>,
    /// The source of the fact behind it.
    pub source: &'static str,
}

const DGXC: &str = "https://docs.nvidia.com/dgx-cloud/ (DGX Cloud Create, AWS clusters, Auto-Mounted EFA)";
const EFA_VARS: &str = "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md";
const EKS_EFA: &str = "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html";
const EC2_EFA: &str = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html";
const FI_EFA: &str = "https://github.com/ofiwg/libfabric/blob/main/man/fi_efa.7.md";
const NCCL_ENV: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";
const NCCL_DIAGNOSTICS: &str =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/diagnostics.html";
const FLIGHT_RECORDER: &str = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html";
const NETOP: &str = "https://github.com/Mellanox/network-operator";
const K8S_PODS: &str = "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/";
const OPEN_MPI: &str = "https://www.open-mpi.org/faq/?category=running#mpirun-prefix";

/// All rules, in the order they are applied. Specification: docs/concepts/mutation.md.
pub const RULES: &[FabricRule] = &[
    rule("efa.stack", Fabric::Efa,
        "mounts the node's libfabric, aws-ofi-nccl and Open MPI into the pod",
        "NCCL reaches EFA only through these libraries, and the image need not have them",
        DGXC),
    rule("efa.library-path", Fabric::Efa,
        "puts the stack's folders first in LD_LIBRARY_PATH",
        "the loader must find the mounted libraries before those of the image",
        DGXC).after("efa.stack"),
    rule("efa.opal-prefix", Fabric::Efa,
        "sets OPAL_PREFIX to the mounted Open MPI",
        "Open MPI looks for its own files below this folder, and images point it elsewhere",
        DGXC).after("efa.stack"),
    rule("efa.gdrcopy", Fabric::Efa,
        "sets NVIDIA_GDRCOPY=enabled",
        "NVIDIA's container toolkit then adds /dev/gdrdrv, which small messages between GPU and NIC use",
        "https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/modifier/gated.go"),
    rule("efa.device-rdma", Fabric::Efa,
        "sets FI_EFA_USE_DEVICE_RDMA=1 where the instance type has RDMA read",
        "older plugins use GPUDirect RDMA only if this is set; on types without RDMA read, the value 1 aborts",
        FI_EFA),
    rule("efa.neuron", Fabric::Efa,
        "sets FI_PROVIDER, FI_EFA_USE_DEVICE_RDMA and FI_EFA_FORK_SAFE for Trainium",
        "aws-ofi-nccl sets none of them on Neuron",
        "https://awsdocs-neuron.readthedocs-hosted.com/"),
    rule("efa.devices", Fabric::Efa,
        "requests all EFA interfaces of a node",
        "a worker on a whole node needs all of them for full bandwidth",
        EKS_EFA),
    rule("efa.hugepages", Fabric::Efa,
        "requests huge pages of 2 MiB",
        "libfabric keeps its bounce buffers in huge pages; without, it falls back to normal ones",
        EKS_EFA).after("efa.devices"),
    rule("efa.memlock", Fabric::Efa,
        "adds the capability IPC_LOCK, if the profile requires it",
        "memory is registered with the device by pinning it; images with a low memlock limit need it",
        "https://github.com/NVIDIA/cluster-readiness-engine"),
    rule("efa.webhook", Fabric::Efa,
        "opts out of the cluster's webhook (disable-auto-efa) and adds weftrun's marker",
        "two injections mean a double prefix and two mounts of one path, which the API server refuses",
        DGXC),
    rule("efa.colocate", Fabric::Efa,
        "keeps the workers in one zone, on one instance type, on the reservation of the profile",
        "EFA traffic does not cross an availability zone, and P4d, P4de and DL1 cannot interoperate with other instance types",
        EC2_EFA),
    rule("efa.mpirun", Fabric::Efa,
        "makes mpirun the mounted one, and forwards what the ranks need with -x",
        "an image's mpirun does not fit the mounted libraries; ranks started by ssh get only what is forwarded",
        OPEN_MPI).after("efa.stack"),
    rule("roce.network", Fabric::Roce,
        "adds the RoCE network to the Multus annotation",
        "the pod gets the RDMA interface through this network",
        "https://github.com/k8snetworkplumbingwg/multus-cni/blob/master/docs/how-to-use.md"),
    rule("roce.devices", Fabric::Roce,
        "requests the RDMA device",
        "the device plugin makes /dev/infiniband visible in the pod only if its resource is requested",
        NETOP),
    rule("roce.memlock", Fabric::Roce,
        "adds the capability IPC_LOCK",
        "RDMA pins the memory it sends from",
        NETOP),
    rule("roce.hca", Fabric::Roce,
        "sets NCCL_IB_HCA",
        "NCCL then uses the fabric's adapters and no other",
        NCCL_ENV),
    rule("roce.socket-threads", Fabric::Roce,
        "sets NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD",
        "what still goes over sockets uses more of them; their product is at most 64",
        NCCL_ENV),
    rule("roce.gid", Fabric::Roce,
        "sets NCCL_IB_GID_INDEX to a number, or finds it in the pod; with `auto` it writes nothing",
        "NCCL before 2.21 takes index 0, which is often RoCE v1; later ones find the index themselves",
        NCCL_ENV),
    rule("ib.devices", Fabric::InfiniBand,
        "requests the InfiniBand device and the capability IPC_LOCK",
        "the device plugin makes /dev/infiniband visible in the pod only if its resource is requested",
        NETOP),
    rule("ib.hca", Fabric::InfiniBand,
        "sets NCCL_IB_HCA",
        "NCCL then uses the fabric's adapters and no other",
        NCCL_ENV),
    rule("tcp.socket", Fabric::Tcp,
        "sets NCCL_NET=Socket",
        "NCCL would use any RDMA device it finds, although plain TCP was requested",
        NCCL_ENV),
    rule("pod.remove", Fabric::Auto,
        "takes out variables, mounts and resources that belong to another fabric",
        "a cluster without that fabric cannot schedule the pods, or its settings switch the working network off",
        K8S_PODS),
    rule("pod.volumes", Fabric::Auto,
        "adds the volumes of the profile, with their mounts",
        "the fabric's library looks for its files, devices and shared memory there",
        K8S_PODS),
    rule("pod.topology-file", Fabric::Auto,
        "mounts the profile's NCCL topology file from a ConfigMap beside the job, and names it in NCCL_TOPO_FILE",
        "NCCL sees the PCIe topology of a virtual machine only in a file",
        "https://github.com/Azure/ai-infrastructure-on-azure"),
    rule("pod.sidecars", Fabric::Auto,
        "adds the daemons of the profile as init containers that run as long as the pod",
        "the fabric's daemon must run before the ranks, and must not keep a finished job from ending",
        "https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/"),
    rule("pod.claims", Fabric::Auto,
        "adds resource claims, and the objects they refer to",
        "dynamic resource allocation gives devices only to pods that claim them",
        "https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/"),
    rule("pod.resources", Fabric::Auto,
        "requests the further resources of the profile",
        "the network or device is given only to pods that request it",
        K8S_PODS),
    rule("pod.capabilities", Fabric::Auto,
        "adds the Linux capabilities of the profile",
        "the fabric's library pins memory or opens devices",
        K8S_PODS),
    rule("pod.annotations", Fabric::Auto,
        "adds the pod annotations of the profile; lists are merged with what is there",
        "the cluster gives the pod its interfaces and devices by annotation",
        K8S_PODS),
    rule("pod.host-network", Fabric::Auto,
        "puts the pods on the host's network, with the DNS policy that goes with it",
        "the fabric's interfaces are those of the node",
        K8S_PODS),
    rule("pod.nodes", Fabric::Auto,
        "adds the node labels and tolerations of the profile",
        "only some nodes have the fabric, and they are often tainted",
        K8S_PODS),
    rule("pod.library-path", Fabric::Auto,
        "puts the profile's folders first in LD_LIBRARY_PATH",
        "the loader must find the fabric's libraries before those of the image",
        K8S_PODS),
    rule("pod.script", Fabric::Auto,
        "reads a script of the profile before the command, in the same process",
        "the fabric's settings are kept in that script, which changes with its version",
        K8S_PODS),
    rule("queue.kueue", Fabric::Auto,
        "puts the job into the profile's queue of Kueue, where it names none",
        "Kueue admits only jobs that name a queue where the cluster manages quota",
        "https://kueue.sigs.k8s.io/docs/tasks/run/jobs/"),
    rule("queue.topology", Fabric::Auto,
        "annotates the workers with the profile's topology level",
        "Kueue then gives the pods nodes of one topology domain",
        "https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/"),
    rule("queue.volcano", Fabric::Auto,
        "puts the job into the profile's queue of Volcano, where it names none",
        "Volcano starts all pods of the job together, from this queue",
        "https://volcano.sh/en/docs/queue/"),
    rule("profile.env", Fabric::Auto,
        "sets the environment of the profile",
        "the site requires it in every job of this fabric",
        EFA_VARS),
    rule("strict.net", Fabric::Auto,
        "pins NCCL_NET, and NCCL_NET_PLUGIN where its path is known (`--strict`)",
        "NCCL then fails where it would silently fall back to another network",
        NCCL_ENV),
    rule("observe.ras-addr", Fabric::Auto,
        "sets NCCL_RAS_ADDR to a port by the job's name: where switched on, and on the host's network if the job uses a part of its nodes' GPUs",
        "the RAS services of two jobs on one node would listen on the same port, so that one of them cannot be queried",
        NCCL_ENV),
    rule("observe.flight-recorder", Fabric::Auto,
        "switches on PyTorch's flight recorder and gives each rank a named pipe in /tmp, where switched on",
        "`weftrun why --dump` can then request the last collectives of every rank of a job that hangs",
        FLIGHT_RECORDER),
    rule("observe.diagnostics", Fabric::Auto,
        "sets NCCL_RUN_RAS_DIAGNOSTICS=1 and NCCL_RUN_DIAGNOSTICS=1, where switched on",
        "NCCL 2.31 and later then checks drivers, NVLinks, variables and NICs of all ranks when a communicator starts, and `weftrun transport` reads what it prints",
        NCCL_DIAGNOSTICS),
    rule("observe.profiler", Fabric::Auto,
        "brings weftrun's library for NCCL's profiler interface with the job and names it in NCCL_PROFILER_PLUGIN, with NCCL_ALLGATHERV_ENABLE=0, where `bandwidth` is set",
        "`weftrun bandwidth` can then show how fast each collective is and which rank the others wait for, while the job runs",
        NCCL_ENV),
    rule("detect.nccl-debug", Fabric::Auto,
        "sets NCCL_DEBUG=INFO where it is unset",
        "NCCL logs the transport it uses only at this level; without it, nothing can be detected",
        NCCL_ENV),
];

const fn rule(
    id: &'static str,
    fabric: Fabric,
    what: &'static str,
    why: &'static str,
    source: &'static str,
) -> FabricRule {
    FabricRule { id, fabric, what, why, depends_on: None, source }
}

impl FabricRule {
    const fn after(mut self, base: &'static str) -> Self {
        self.depends_on = Some(base);
        self
    }

    /// Returns the rule of an id.
    pub fn get(id: &str) -> Option<&'static Self> {
        RULES.iter().find(|rule| rule.id == id)
    }

    /// Returns the fabric of the rule of an id; [`Fabric::Auto`] if it belongs to none.
    pub fn fabric_of(id: &str) -> Fabric {
        Self::get(id).map_or(Fabric::Auto, |rule| rule.fabric)
    }
}

/// The user's setting of each rule; those that depend on one switched off are off too.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSwitches {
    set: BTreeMap<String, RuleSetting>,
}

impl RuleSwitches {
    /// Takes the user's settings; an id that no rule has, or an `on` whose dependency is off, is an error.
    pub(crate) fn new(asked: &BTreeMap<String, RuleSetting>, findings: &mut Vec<Finding>) -> Self {
        let settings = Self { set: asked.clone() };
        for (id, setting) in asked {
            let Some(rule) = FabricRule::get(id) else {
                findings.push(unknown(id));
                continue;
            };
            if *setting == RuleSetting::On
                && let Some(base) = settings.base_that_is_off(rule)
            {
                findings.push(
                    Finding::error(
                        "E-RULE-UNMET",
                        format!("rule `{id}` is on, but it depends on `{base}`, which is off"),
                    )
                    .fix(format!("switch `{base}` on, or leave `{id}` at auto")),
                );
            }
        }
        settings
    }

    pub(crate) fn of(&self, id: &str) -> RuleSetting {
        // Mostly the user sets no rules, and then no lookup is needed.
        if self.set.is_empty() {
            return RuleSetting::default();
        }
        match FabricRule::get(id) {
            Some(rule) if self.base_that_is_off(rule).is_some() => RuleSetting::Off,
            _ => self.own(id),
        }
    }

    /// Returns whether a rule applies where it fits.
    pub(crate) fn active(&self, id: &str) -> bool {
        self.of(id) != RuleSetting::Off
    }

    /// Returns the rules of a fabric that are off: those the user switched off, and those that depend on a rule
    /// that is off, each of these with that rule.
    pub(crate) fn switched_off(
        &self,
        fabric: Fabric,
    ) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        let rules = RULES.iter().filter(move |rule| rule.fabric == fabric || rule.fabric == Fabric::Auto);
        rules.filter_map(|rule| match self.own(rule.id) {
            RuleSetting::Off => Some((rule.id, None)),
            _ => self.base_that_is_off(rule).map(|base| (rule.id, Some(base))),
        })
    }

    /// Returns the rules that must apply.
    pub(crate) fn demanded(&self) -> impl Iterator<Item = &str> {
        self.set.iter().filter(|(_, setting)| **setting == RuleSetting::On).map(|(id, _)| id.as_str())
    }

    fn own(&self, id: &str) -> RuleSetting {
        self.set.get(id).copied().unwrap_or_default()
    }

    fn base_that_is_off(&self, rule: &FabricRule) -> Option<&'static str> {
        let base = FabricRule::get(rule.depends_on?)?;
        if self.own(base.id) == RuleSetting::Off { Some(base.id) } else { self.base_that_is_off(base) }
    }
}

fn unknown(id: &str) -> Finding {
    let near = crate::text::suggestion(id, RULES.iter().map(|rule| rule.id));
    Finding::error("E-RULE-UNKNOWN", format!("there is no rule `{id}`"))
        .fix(near.unwrap_or_else(|| "`weftrun explain rules` lists them".to_owned()))
}
