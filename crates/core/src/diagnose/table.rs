//! What each rule says: its code, how bad it is, what it means, what to do, where that is written down.
//!
//! When a rule applies is in [`super::conditions`]; what counts as its evidence is in [`crate::nccl::clue`].

use crate::{Confidence, Severity};

/// One rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Id, the finding's `ref`.
    pub id: &'static str,
    /// Stable code.
    pub code: &'static str,
    /// How bad.
    pub severity: Severity,
    /// How sure, once its condition holds.
    pub confidence: Confidence,
    /// What it means.
    pub message: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// Where it is written down.
    pub source: &'static str,
    /// Edits of the job file: path, and the value to set; none unsets.
    pub patch: &'static [(&'static str, Option<&'static str>)],
}

const fn rule(
    id: &'static str,
    code: &'static str,
    level: (Severity, Confidence),
    message: &'static str,
    fix: &'static str,
    source: &'static str,
) -> Rule {
    Rule { id, code, severity: level.0, confidence: level.1, message, fix, source, patch: &[] }
}

impl Rule {
    const fn patch(mut self, patch: &'static [(&'static str, Option<&'static str>)]) -> Self {
        self.patch = patch;
        self
    }
}

const HIGH: (Severity, Confidence) = (Severity::Error, Confidence::High);
const MEDIUM: (Severity, Confidence) = (Severity::Warning, Confidence::Medium);
const LOW: (Severity, Confidence) = (Severity::Warning, Confidence::Low);
const NOTE: (Severity, Confidence) = (Severity::Info, Confidence::Medium);

macro_rules! nccl {
    ($number:literal) => {
        concat!("https://github.com/NVIDIA/nccl/issues/", $number)
    };
}
macro_rules! ofi {
    ($number:literal) => {
        concat!("https://github.com/aws/aws-ofi-nccl/issues/", $number)
    };
}

const TROUBLESHOOTING: &str =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html";
const ENV: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";

/// Every rule, in the order of reports.
pub const RULES: &[Rule] = &[
    rule("R01", "NCCL-NET-SOCKET-FALLBACK", HIGH,
        "traffic between nodes goes over TCP sockets",
        "find the first reason in the findings above or below it; give the containers the RDMA or EFA devices and the network plugin",
        nccl!("952")).patch(&[("fabric", Some("auto"))]),
    rule("R02", "NCCL-PLUGIN-NOT-FOUND", NOTE,
        "no external network plugin was found: NCCL uses its built-in IB or Socket network",
        "right on InfiniBand, RoCE and a single node; on AWS install aws-ofi-nccl, put its lib directory on LD_LIBRARY_PATH, or set NCCL_NET_PLUGIN=ofi",
        nccl!("162")),
    rule("R03", "NCCL-PLUGIN-ABI", HIGH,
        "the network plugin could not be loaded: it, or a library it needs, was built for a newer libc, libfabric or rdma-core than the container has",
        "build the plugin in the image, or take a base image as new as the plugin; keep one rdma-core only; match the EFA installer's version",
        "https://github.com/awslabs/awsome-distributed-training/issues/292"),
    rule("R04", "NCCL-PLUGIN-DEPENDENCY", HIGH,
        "the network plugin could not be loaded: a library that it needs is missing",
        "install the library, or add its directory to LD_LIBRARY_PATH",
        ofi!("244")),
    rule("R04b", "NCCL-PLUGIN-TOO-OLD", MEDIUM,
        "a network plugin was found but is too old for this NCCL",
        "update the plugin, or take it off LD_LIBRARY_PATH",
        nccl!("1292")),
    rule("R05", "OFI-NO-PROVIDER", HIGH,
        "libfabric sees no EFA device in the container",
        "give the container the EFA devices (vpc.amazonaws.com/efa, or /dev/infiniband) and check `fi_info -p efa` inside it",
        ofi!("1020")).patch(&[("fabric", Some("efa"))]),
    rule("R06", "OFI-WRONG-PROVIDER", HIGH,
        "libfabric chose another provider than efa",
        "set FI_PROVIDER=efa, give the container the EFA devices, and use a plugin built for AWS; off AWS use NCCL's own IB network instead of this plugin",
        ofi!("803")).patch(&[("env.FI_PROVIDER", Some("efa"))]),
    rule("R07", "OFI-INIT-FAILED", HIGH,
        "the aws-ofi-nccl plugin gave up: NCCL goes on with IB or Socket",
        "read the warning before it: it says why",
        ofi!("889")),
    rule("R08", "OFI-GDR-DISABLED", HIGH,
        "GPUDirect RDMA is off on an instance that has it: libfabric was built without CUDA (FI_HMEM)",
        "use the EFA installer's libfabric, and efa_nv_peermem or DMA-BUF; check `fi_info -p efa -c FI_HMEM`",
        ofi!("889")),
    rule("R09", "EFA-WITHOUT-GDR", MEDIUM,
        "EFA works without GPUDirect RDMA: every byte is copied through host memory",
        "use a newer libfabric and plugin; old ones need FI_EFA_USE_DEVICE_RDMA=1",
        ofi!("64")).patch(&[("env.FI_EFA_USE_DEVICE_RDMA", Some("1"))]),
    rule("R10", "EFA-UNREACHABLE-PEER", HIGH,
        "EFA packets to a peer are dropped",
        "the security group must allow all traffic to and from itself; keep the nodes in one subnet",
        ofi!("156")),
    rule("R11", "EFA-RESOURCES", HIGH,
        "an endpoint, address vector or domain of libfabric could not be made: a resource limit, an old driver, or (Slingshot) no VNI",
        "set memlock unlimited, give all EFA devices to the container, update the EFA driver or the AMI",
        ofi!("44")),
    rule("R12", "EFA-FORK", HIGH,
        "a process forked while it held EFA memory",
        "set FI_EFA_USE_HUGE_PAGE=0, on kernels before 5.15 also FI_EFA_FORK_SAFE=1; start data loaders with `spawn`",
        ofi!("69")).patch(&[("env.FI_EFA_USE_HUGE_PAGE", Some("0")), ("env.FI_EFA_FORK_SAFE", Some("1"))]),
    rule("R13", "OFI-LIBFABRIC-TOO-OLD", HIGH,
        "libfabric is older than the plugin needs",
        "use the same EFA installer in the image and on the host",
        ofi!("803")),
    rule("R14", "OFI-RAIL-MISMATCH", HIGH,
        "two nodes group their NICs differently",
        "give every node the same number of EFA devices; set OFI_NCCL_FORCE_NUM_RAILS",
        ofi!("1061")),
    rule("R15", "IB-NO-DEVICE", MEDIUM,
        "NCCL's built-in IB network found no device it can use",
        "install rdma-core in the image and give the container /dev/infiniband (by its RDMA resource)",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1877"),
    rule("R16", "NCCL-FORCED-BY-ENV", MEDIUM,
        "the environment forces or disables a transport",
        "unset the variable, unless that is what you want",
        ENV),
    rule("R17", "IB-RETRY-EXCEEDED", HIGH,
        "packets to a peer are lost (transport retries exceeded, status 12): cable, port, GID, MTU or flow control",
        "run ib_write_bw between that pair with the same GID and traffic class; NCCL_IB_TIMEOUT only hides it",
        nccl!("426")),
    rule("R18", "IB-FLUSHED", NOTE,
        "work requests were flushed (status 5): an echo of an earlier error",
        "look for the first completion with another status",
        nccl!("1814")),
    rule("R19", "IB-LOCAL-PROTECTION", HIGH,
        "a NIC was denied access to memory (status 4): ACS, IOMMU or a missing peer memory module blocks GPUDirect",
        "disable ACS, boot with iommu=pt; NCCL_NET_GDR_LEVEL=LOC confirms it",
        nccl!("707")),
    rule("R20", "IB-REMOTE-REFUSED", HIGH,
        "the peer refused an RDMA request (status 9, 10 or 11)",
        "look at the peer's log of the same moment",
        nccl!("1710")),
    rule("R21", "IB-QP-TRANSITION", HIGH,
        "a queue pair could not be connected: wrong GID index, or no route between the GIDs",
        "leave NCCL_IB_GID_INDEX unset with NCCL 2.21 or later, else set the index of the RoCE v2 GID; check VLAN and routes",
        TROUBLESHOOTING).patch(&[("env.NCCL_IB_GID_INDEX", None)]),
    rule("R22", "IB-CROSS-RAIL", HIGH,
        "connecting a queue pair timed out: on a rail-only fabric a NIC reaches only NICs of its own rail",
        "set NCCL_CROSS_NIC=0",
        nccl!("2013")).patch(&[("env.NCCL_CROSS_NIC", Some("0"))]),
    rule("R23", "IB-ASYNC-EVENT", HIGH,
        "an HCA reported an asynchronous event: a port went down, a queue pair failed, or the HCA is dead",
        "look at dmesg and the link counters of that HCA on that host; replace it if it comes back",
        nccl!("1919")),
    rule("R24", "IB-MEMLOCK", HIGH,
        "memory could not be registered or a queue made: the limit of locked memory is too small",
        "set memlock unlimited: IPC_LOCK in Kubernetes, --ulimit memlock=-1 in Docker, PropagateResourceLimitsExcept=MEMLOCK in Slurm",
        TROUBLESHOOTING),
    rule("R25", "IB-WITHOUT-GDR", MEDIUM,
        "the InfiniBand or RoCE connections run without GPUDirect RDMA",
        "load nvidia_peermem, or use the open driver with DMA-BUF on kernel 5.12 or later; consumer GPUs and GB10 have none",
        nccl!("1537")),
    rule("R26", "GDR-TOO-FAR", MEDIUM,
        "GPUDirect RDMA is off because GPU and NIC are too far apart",
        "use a near NIC; in a VM set NCCL_NET_GDR_LEVEL=SYS or give NCCL a topology file",
        "https://github.com/Mellanox/nv_peer_memory/issues/56").patch(&[("env.NCCL_NET_GDR_LEVEL", Some("SYS"))]),
    rule("R27", "IB-ROCE-MIXED", MEDIUM,
        "InfiniBand and Ethernet ports are in one list: a storage or management port was taken for data",
        "exclude it with NCCL_IB_HCA=^mlx5_bond_0 (its name), or list the data ports",
        nccl!("302")),
    rule("R28", "NET-DEVICE-COUNT-MIXED", HIGH,
        "ranks of one node see different numbers of NICs",
        "set the same NCCL_IB_HCA everywhere and give every container the same devices",
        nccl!("2428")),
    rule("R29", "SHM-TOO-SMALL", HIGH,
        "/dev/shm is too small",
        "make it larger: an emptyDir of medium Memory in Kubernetes, --shm-size=1g in Docker",
        nccl!("290")).patch(&[("shm", Some("8Gi"))]),
    rule("R30", "P2P-DISABLED", NOTE,
        "the GPUs cannot reach each other's memory over PCIe: shared memory is used",
        "expected on GeForce; else switch ACS and IOMMU off",
        "https://github.com/pytorch/pytorch/issues/130113"),
    rule("R31", "P2P-NVLINK-BROKEN", HIGH,
        "GPUs joined by NVLink cannot reach each other's memory: hardware or fabric manager",
        "have the node serviced; do not hide it with NCCL_IGNORE_DISABLED_P2P",
        nccl!("2329")),
    rule("R32", "NVLS-FAILED", HIGH,
        "NVLink SHARP could not be set up: NVSwitch multicast is broken",
        "restart the fabric manager with a GPU reset; NCCL_NVLS_ENABLE=0 as a test",
        nccl!("1488")).patch(&[("env.NCCL_NVLS_ENABLE", Some("0"))]),
    rule("R33", "NVLS-NOT-USED", NOTE,
        "NVLink SHARP is not available",
        "needs Hopper or later with NVSwitch, CUDA 12.1 and a running fabric manager",
        nccl!("892")),
    rule("R34", "COLLNET-NOT-USED", MEDIUM,
        "SHARP was asked for and is not used: rings and trees are used instead",
        "free the SHARP quota (sharp_am), use the HPC-X plugin and one process a GPU",
        "https://github.com/NVIDIA/nccl-tests/issues/311"),
    rule("R35", "MNNVL-IMEX", HIGH,
        "multi-node NVLink is there and does not work: the IMEX channel is not in the container",
        "give the container /dev/nvidia-caps-imex-channels/channel0 (ComputeDomain); NCCL_MNNVL_ENABLE=0 goes without",
        nccl!("1925")).patch(&[("env.NCCL_MNNVL_ENABLE", Some("0"))]),
    rule("R36", "SOCKET-NO-INTERFACE", HIGH,
        "no network interface fits NCCL_SOCKET_IFNAME",
        "fix NCCL_SOCKET_IFNAME: a prefix, `=` for an exact name, `^` to exclude",
        nccl!("1837")).patch(&[("env.NCCL_SOCKET_IFNAME", None)]),
    rule("R37", "SOCKET-SUSPICIOUS-INTERFACE", MEDIUM,
        "an interface that other hosts may not reach was chosen",
        "set NCCL_SOCKET_IFNAME=^lo,docker,veth,virbr or the right name",
        nccl!("975")).patch(&[("env.NCCL_SOCKET_IFNAME", Some("^lo,docker,veth,virbr"))]),
    rule("R38", "TCP-CONNECT-FAILED", HIGH,
        "a TCP connection between ranks failed: firewall, wrong interface, or a dead peer",
        "check the address in the message, the security group, and NCCL_SOCKET_IFNAME",
        "https://github.com/NVIDIA/nccl-tests/issues/166"),
    rule("R39", "TCP-STRAY-CONNECTION", MEDIUM,
        "something else connected to a port of NCCL: a port scanner, or ranks of another job",
        "give every node its own host name or NCCL_HOSTID; keep scanners off the ports",
        "https://github.com/NVIDIA/nccl-tests/issues/188"),
    rule("R40", "NCCL-VERSION-MISMATCH", HIGH,
        "ranks run different versions of NCCL",
        "use one image on all nodes, and one NCCL in it",
        "https://github.com/NVIDIA/nccl-tests/issues/185"),
    rule("R41", "COLLECTIVE-MISMATCH", HIGH,
        "ranks disagree on a collective or its size",
        "fix the program (TORCH_DISTRIBUTED_DEBUG=DETAIL shows where); give all ranks the same environment",
        nccl!("969")).patch(&[("env.TORCH_DISTRIBUTED_DEBUG", Some("DETAIL"))]),
    rule("R42", "DUPLICATE-GPU", HIGH,
        "two ranks use one GPU",
        "set the device from the local rank: torch.cuda.set_device(local_rank)",
        "https://github.com/horovod/horovod/issues/3929"),
    rule("R43", "WATCHDOG-TIMEOUT", HIGH,
        "a collective timed out; the ranks that report it are its victims, the suspect is a rank that did not join",
        "compare the last enqueued work of every rank, or read the flight recorder (TORCH_FR_BUFFER_SIZE)",
        "https://github.com/pytorch/pytorch/issues/118369"),
    rule("R44", "PEER-CLOSED", NOTE,
        "a peer closed its connection: it failed first",
        "look for the first error in time, in the peer's log",
        "https://github.com/NVIDIA/nccl-tests/issues/166"),
    rule("R45", "TOPOLOGY-XML", HIGH,
        "the topology file does not fit the GPUs and NICs that are visible",
        "use all GPUs of the node, unset NCCL_TOPO_FILE, or update the plugin",
        ofi!("476")).patch(&[("env.NCCL_TOPO_FILE", None)]),
    rule("R46", "CUDA-FAILURE", HIGH,
        "CUDA failed inside NCCL",
        "go by the CUDA error; `named symbol not found` and `invalid device function` mean an NCCL built without this GPU's architecture",
        nccl!("444")),
    rule("R47", "CUMEM-HOST-FALLBACK", NOTE,
        "memory of the host is not allocated with cuMem",
        "--cap-add SYS_NICE, or NCCL_CUMEM_HOST_ENABLE=0",
        TROUBLESHOOTING),
    rule("R48", "NET-NOT-FOUND", HIGH,
        "the network that was asked for is not there, and NCCL does not fall back",
        "set NCCL_NET to the plugin's own name (AWS Libfabric, IB, Socket) or unset it; check why the plugin was not loaded",
        ENV).patch(&[("env.NCCL_NET", None)]),
    rule("R49", "NET-NOT-NEEDED", NOTE,
        "a network was chosen, and all traffic goes over multi-node NVLink: nothing is wrong",
        "nothing to do",
        "https://docs.nvidia.com/multi-node-nvlink-systems/"),
    rule("R50", "NICS-IDLE", LOW,
        "fewer NICs are used than the node has",
        "give the container all EFA devices, a topology file, or a fitting NCCL_IB_HCA",
        nccl!("527")),
    rule("R51", "EFA-REGISTRATION-22", HIGH,
        "memory could not be registered (-22): NCCL 2.19 or later with an EFA installer before 1.29",
        "use EFA installer 1.29 or later, or FI_EFA_SET_CUDA_SYNC_MEMOPS=0",
        ofi!("584")).patch(&[("env.FI_EFA_SET_CUDA_SYNC_MEMOPS", Some("0"))]),
    rule("R52", "OFI-GDR-OFF-HMEM", MEDIUM,
        "EFA works without GPUDirect RDMA: libfabric's CUDA calls cannot be switched off",
        "use the EFA installer's libfabric built with CUDA",
        "https://github.com/aws/aws-ofi-nccl/blob/master/src/nccl_ofi_ofiutils.cpp"),
    rule("R53", "IB-DEVICE-NOT-OPENED", HIGH,
        "an HCA is listed and cannot be opened: the ranks end with different NICs",
        "give the container every uverbs device; set the same NCCL_IB_HCA everywhere",
        nccl!("2428")),
];

/// The rule of an id.
pub fn rule_of(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}
