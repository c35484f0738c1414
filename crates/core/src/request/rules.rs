//! The rules, each with the id that switches it.

use std::collections::BTreeMap;

use crate::Finding;
use crate::request::{Fabric, RuleSetting};

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
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
const FLIGHT_RECORDER: &str = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html";
const NETOP: &str = "https://github.com/Mellanox/network-operator";
const K8S_PODS: &str = "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/";
const OPEN_MPI: &str = "https://www.open-mpi.org/faq/?category=running#mpirun-prefix";

/// All rules, in the order they are applied. Specification: docs/concepts/mutation.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "efa.stack",
        fabric: Fabric::Efa,
        what: "mounts the node's libfabric, aws-ofi-nccl and Open MPI into the pod",
        why: "NCCL reaches EFA only through these libraries, and the image need not have them",
        depends_on: None,
        source: DGXC,
    },
    Rule {
        id: "efa.library-path",
        fabric: Fabric::Efa,
        what: "puts the stack's folders first in LD_LIBRARY_PATH",
        why: "the loader must find the mounted libraries before those of the image",
        depends_on: Some("efa.stack"),
        source: DGXC,
    },
    Rule {
        id: "efa.opal-prefix",
        fabric: Fabric::Efa,
        what: "sets OPAL_PREFIX to the mounted Open MPI",
        why: "Open MPI looks for its own files below this folder, and images point it elsewhere",
        depends_on: Some("efa.stack"),
        source: DGXC,
    },
    Rule {
        id: "efa.gdrcopy",
        fabric: Fabric::Efa,
        what: "sets NVIDIA_GDRCOPY=enabled",
        why: "NVIDIA's container toolkit then adds /dev/gdrdrv, which small messages between GPU and NIC use",
        depends_on: None,
        source: "https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/modifier/gated.go",
    },
    Rule {
        id: "efa.device-rdma",
        fabric: Fabric::Efa,
        what: "sets FI_EFA_USE_DEVICE_RDMA=1 where the instance type has RDMA read",
        why: "older plugins use GPUDirect RDMA only if this is set; on types without RDMA read, the value 1 aborts",
        depends_on: None,
        source: FI_EFA,
    },
    Rule {
        id: "efa.neuron",
        fabric: Fabric::Efa,
        what: "sets FI_PROVIDER, FI_EFA_USE_DEVICE_RDMA and FI_EFA_FORK_SAFE for Trainium",
        why: "aws-ofi-nccl sets none of them on Neuron",
        depends_on: None,
        source: "https://awsdocs-neuron.readthedocs-hosted.com/",
    },
    Rule {
        id: "efa.devices",
        fabric: Fabric::Efa,
        what: "requests all EFA interfaces of a node",
        why: "a worker on a whole node needs all of them for full bandwidth",
        depends_on: None,
        source: EKS_EFA,
    },
    Rule {
        id: "efa.hugepages",
        fabric: Fabric::Efa,
        what: "requests huge pages of 2 MiB",
        why: "libfabric keeps its bounce buffers in huge pages; without, it falls back to normal ones",
        depends_on: Some("efa.devices"),
        source: EKS_EFA,
    },
    Rule {
        id: "efa.memlock",
        fabric: Fabric::Efa,
        what: "adds the capability IPC_LOCK, if the profile requires it",
        why: "memory is registered with the device by pinning it; images with a low memlock limit need it",
        depends_on: None,
        source: "https://github.com/NVIDIA/cluster-readiness-engine",
    },
    Rule {
        id: "efa.webhook",
        fabric: Fabric::Efa,
        what: "tells the cluster's own webhook to keep out (disable-auto-efa), with our marker beside it",
        why: "two injections mean a double prefix and two mounts of one path, which the API server refuses",
        depends_on: None,
        source: DGXC,
    },
    Rule {
        id: "efa.colocate",
        fabric: Fabric::Efa,
        what: "keeps the workers in one zone, on one instance type, on the reservation of the profile",
        why: "EFA traffic does not cross an availability zone, and P4d, P4de and DL1 speak only among themselves",
        depends_on: None,
        source: EC2_EFA,
    },
    Rule {
        id: "efa.mpirun",
        fabric: Fabric::Efa,
        what: "makes mpirun the mounted one, and forwards what the ranks need with -x",
        why: "an image's mpirun does not fit the mounted libraries; ranks started by ssh get only what is forwarded",
        depends_on: Some("efa.stack"),
        source: OPEN_MPI,
    },
    Rule {
        id: "roce.network",
        fabric: Fabric::Roce,
        what: "adds the RoCE network to the Multus annotation",
        why: "the pod gets the RDMA interface through this network",
        depends_on: None,
        source: "https://github.com/k8snetworkplumbingwg/multus-cni/blob/master/docs/how-to-use.md",
    },
    Rule {
        id: "roce.devices",
        fabric: Fabric::Roce,
        what: "requests the RDMA device",
        why: "the device plugin makes /dev/infiniband visible in the pod only if its resource is requested",
        depends_on: None,
        source: NETOP,
    },
    Rule {
        id: "roce.memlock",
        fabric: Fabric::Roce,
        what: "adds the capability IPC_LOCK",
        why: "RDMA pins the memory it sends from",
        depends_on: None,
        source: NETOP,
    },
    Rule {
        id: "roce.hca",
        fabric: Fabric::Roce,
        what: "sets NCCL_IB_HCA",
        why: "NCCL then uses the fabric's adapters and no other",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "roce.socket-threads",
        fabric: Fabric::Roce,
        what: "sets NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD",
        why: "what still goes over sockets uses more of them; their product is at most 64",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "roce.gid",
        fabric: Fabric::Roce,
        what: "sets NCCL_IB_GID_INDEX to a number, or finds it in the pod; with `auto` it writes nothing",
        why: "NCCL before 2.21 takes index 0, which is often RoCE v1; later ones find the index themselves",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "ib.devices",
        fabric: Fabric::InfiniBand,
        what: "requests the InfiniBand device and the capability IPC_LOCK",
        why: "the device plugin makes /dev/infiniband visible in the pod only if its resource is requested",
        depends_on: None,
        source: NETOP,
    },
    Rule {
        id: "ib.hca",
        fabric: Fabric::InfiniBand,
        what: "sets NCCL_IB_HCA",
        why: "NCCL then uses the fabric's adapters and no other",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "tcp.socket",
        fabric: Fabric::Tcp,
        what: "sets NCCL_NET=Socket",
        why: "NCCL would use any RDMA device it finds, although plain TCP was requested",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "pod.remove",
        fabric: Fabric::Auto,
        what: "takes out variables, mounts and resources that belong to another fabric",
        why: "a cluster without that fabric cannot schedule the pods, or its settings switch the working network off",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.volumes",
        fabric: Fabric::Auto,
        what: "adds the volumes of the profile, with their mounts",
        why: "the fabric's library looks for its files, devices and shared memory there",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.topology-file",
        fabric: Fabric::Auto,
        what: "mounts the profile's NCCL topology file from a ConfigMap beside the job, and names it in NCCL_TOPO_FILE",
        why: "NCCL sees the PCIe topology of a virtual machine only in a file",
        depends_on: None,
        source: "https://github.com/Azure/ai-infrastructure-on-azure",
    },
    Rule {
        id: "pod.sidecars",
        fabric: Fabric::Auto,
        what: "adds the daemons of the profile as init containers that run as long as the pod",
        why: "the fabric's daemon must run before the ranks, and must not keep a finished job from ending",
        depends_on: None,
        source: "https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/",
    },
    Rule {
        id: "pod.claims",
        fabric: Fabric::Auto,
        what: "adds resource claims, and the objects they refer to",
        why: "dynamic resource allocation gives devices only to pods that claim them",
        depends_on: None,
        source: "https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/",
    },
    Rule {
        id: "pod.resources",
        fabric: Fabric::Auto,
        what: "requests the further resources of the profile",
        why: "the network or device is given only to pods that request it",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.capabilities",
        fabric: Fabric::Auto,
        what: "adds the Linux capabilities of the profile",
        why: "the fabric's library pins memory or opens devices",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.annotations",
        fabric: Fabric::Auto,
        what: "adds the pod annotations of the profile; lists are merged with what is there",
        why: "the cluster gives the pod its interfaces and devices by annotation",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.host-network",
        fabric: Fabric::Auto,
        what: "puts the pods on the host's network, with the DNS policy that goes with it",
        why: "the fabric's interfaces are those of the node",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.nodes",
        fabric: Fabric::Auto,
        what: "adds the node labels and tolerations of the profile",
        why: "only some nodes have the fabric, and they are often tainted",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.library-path",
        fabric: Fabric::Auto,
        what: "puts the profile's folders first in LD_LIBRARY_PATH",
        why: "the loader must find the fabric's libraries before those of the image",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "pod.script",
        fabric: Fabric::Auto,
        what: "reads a script of the profile before the command, in the same process",
        why: "the fabric's settings are kept in that script, which changes with its version",
        depends_on: None,
        source: K8S_PODS,
    },
    Rule {
        id: "queue.kueue",
        fabric: Fabric::Auto,
        what: "puts the job into the profile's queue of Kueue, where it names none",
        why: "Kueue admits only jobs that name a queue where the cluster manages quota",
        depends_on: None,
        source: "https://kueue.sigs.k8s.io/docs/tasks/run/jobs/",
    },
    Rule {
        id: "queue.topology",
        fabric: Fabric::Auto,
        what: "annotates the workers with the profile's topology level",
        why: "Kueue then gives the pods nodes of one topology domain",
        depends_on: None,
        source: "https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/",
    },
    Rule {
        id: "queue.volcano",
        fabric: Fabric::Auto,
        what: "puts the job into the profile's queue of Volcano, where it names none",
        why: "Volcano starts all pods of the job together, from this queue",
        depends_on: None,
        source: "https://volcano.sh/en/docs/queue/",
    },
    Rule {
        id: "profile.env",
        fabric: Fabric::Auto,
        what: "sets the environment of the profile",
        why: "the site wants it in every job of this fabric",
        depends_on: None,
        source: EFA_VARS,
    },
    Rule {
        id: "strict.net",
        fabric: Fabric::Auto,
        what: "pins NCCL_NET, and NCCL_NET_PLUGIN where its path is known (`--strict`)",
        why: "NCCL then fails where it would fall back to another network without a word",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "observe.ras-addr",
        fabric: Fabric::Auto,
        what: "sets NCCL_RAS_ADDR to a port by the job's name: where switched on, and on the host's network if the job uses a part of its nodes' GPUs",
        why: "the RAS services of two jobs on one node would listen on the same port, so that one of them cannot be queried",
        depends_on: None,
        source: NCCL_ENV,
    },
    Rule {
        id: "observe.flight-recorder",
        fabric: Fabric::Auto,
        what: "switches on PyTorch's flight recorder and gives each rank a named pipe in /tmp, where switched on",
        why: "`weftrun why --dump` can then request the last collectives of every rank of a job that hangs",
        depends_on: None,
        source: FLIGHT_RECORDER,
    },
    Rule {
        id: "detect.nccl-debug",
        fabric: Fabric::Auto,
        what: "sets NCCL_DEBUG=INFO where it is unset",
        why: "NCCL logs the transport it uses only at this level; without it, nothing can be detected",
        depends_on: None,
        source: NCCL_ENV,
    },
];

impl Rule {
    /// Returns the rule of an id.
    pub fn get(id: &str) -> Option<&'static Self> {
        RULES.iter().find(|rule| rule.id == id)
    }
}

/// The user's setting of each rule; those that depend on one switched off are off too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    set: BTreeMap<String, RuleSetting>,
}

impl Settings {
    /// Takes the user's settings; an id that no rule has, or an `on` whose dependency is off, is an error.
    pub(crate) fn new(asked: &BTreeMap<String, RuleSetting>, findings: &mut Vec<Finding>) -> Self {
        let settings = Self { set: asked.clone() };
        for (id, setting) in asked {
            let Some(rule) = Rule::get(id) else {
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

    /// Returns the setting of a rule.
    pub(crate) fn of(&self, id: &str) -> RuleSetting {
        // Mostly the user sets no rules, and then no lookup is needed.
        if self.set.is_empty() {
            return RuleSetting::default();
        }
        match Rule::get(id) {
            Some(rule) if self.base_that_is_off(rule).is_some() => RuleSetting::Off,
            _ => self.own(id),
        }
    }

    /// Returns whether a rule applies where it fits.
    pub(crate) fn active(&self, id: &str) -> bool {
        self.of(id) != RuleSetting::Off
    }

    /// Returns the rules of a fabric that are off, each with the reason and a sentence.
    pub(crate) fn switched_off(
        &self,
        fabric: Fabric,
    ) -> impl Iterator<Item = (&'static str, &'static str, String)> {
        RULES.iter().filter(move |rule| rule.fabric == fabric || rule.fabric == Fabric::Auto).filter_map(
            |rule| match self.base_that_is_off(rule) {
                _ if self.own(rule.id) == RuleSetting::Off => {
                    Some((rule.id, "off", "switched off by the user".to_owned()))
                }
                Some(base) => {
                    Some((rule.id, "depends-on", format!("depends on `{base}`, which is switched off")))
                }
                None => None,
            },
        )
    }

    /// Returns the rules that must apply.
    pub(crate) fn demanded(&self) -> impl Iterator<Item = &str> {
        self.set.iter().filter(|(_, setting)| **setting == RuleSetting::On).map(|(id, _)| id.as_str())
    }

    fn own(&self, id: &str) -> RuleSetting {
        self.set.get(id).copied().unwrap_or_default()
    }

    fn base_that_is_off(&self, rule: &Rule) -> Option<&'static str> {
        let base = Rule::get(rule.depends_on?)?;
        if self.own(base.id) == RuleSetting::Off { Some(base.id) } else { self.base_that_is_off(base) }
    }
}

fn unknown(id: &str) -> Finding {
    let finding = Finding::error("E-RULE-UNKNOWN", format!("there is no rule `{id}`"));
    match crate::text::did_you_mean(id, RULES.iter().map(|rule| rule.id)) {
        Some(near) => finding.fix(format!("did you mean `{near}`?")),
        None => finding.fix("`weftrun explain rules` lists them"),
    }
}
