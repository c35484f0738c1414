//! Rules about the links between the GPUs of a node or an NVLink domain.

use crate::nodes::Fault;
use weftrun_nccl::{FabricSeen, Kind, Signature};

use super::{CauseClass, ENV, HIGH, MEDIUM, NOTE, Rule, TROUBLESHOOTING, nccl_issue, rule};
use crate::rule_input::RuleInput;

pub(super) const RULES: &[Rule] = &[
    // Its words come before those of a full volume and of a tensor that could not be opened.
    rule("C12a", "SHM-TOO-SMALL", HIGH,
        "/dev/shm is too small",
        "make /dev/shm larger: an emptyDir of medium Memory in Kubernetes, --shm-size=1g or --ipc=host in Docker, and on a host end what left files there (`ls /dev/shm`); or use fewer data loader workers",
        nccl_issue!("290")).patch(&[("shm", Some("8Gi"))])
        .explaining(&["CUDA-FAILURE", "SHM-NOT-MADE"])
        .signatures(&[Signature::ShmTooSmall])
        // PyTorch's MapAllocator.cpp, and Python's multiprocessing.
        .says(&[
            &["unable to write to file </torch_", "No space left on device"],
            &["unable to allocate shared memory", "No space left on device"],
            &["unable to open shared memory object", "No space left on device"],
            &["No space left on device: '/psm_"],
            &["No space left on device: '/dev/shm"],
            &["/dev/shm", "No space left on device"],
        ])
        .fails(),
    rule("R29c", "SHM-NOT-MADE", HIGH,
        "a shared memory segment could not be made; the line does not say why: most often /dev/shm is too small",
        "compare the size in the line with the free space of /dev/shm (`df /dev/shm`) on that host, and make it larger if it is smaller; NCCL_DEBUG=INFO prints the reason",
        nccl_issue!("290"))
        .signatures(&[Signature::ShmNotMade])
        .fails(),
    rule("R29d", "SHM-NOT-REGISTERED", HIGH,
        "CUDA could not register a shared memory segment of the host (the segment itself was made)",
        "check the limit of locked memory (`ulimit -l`) and that the driver fits the CUDA of the image; NCCL_SHM_DISABLE=1 as a test",
        nccl_issue!("1518"))
        .explaining(&["CUDA-FAILURE", "SHM-NOT-MADE"])
        .signatures(&[Signature::ShmNotRegistered])
        .fails(),
    rule("R29e", "SHM-HOST-MEMORY", HIGH,
        "CUDA could not share the host's memory that NCCL's SHM transport allocates with cuMem: it asks for peer access, which these GPUs lack",
        "set NCCL_CUMEM_HOST_ENABLE=0 for all ranks, or use another release of NCCL (2.27 asks for it); NCCL_P2P_DISABLE does not help",
        nccl_issue!("1838")).patch(&[("env.NCCL_CUMEM_HOST_ENABLE", Some("0"))])
        .explaining(&["CUDA-FAILURE", "P2P-MEMORY-REFUSED"])
        .signatures(&[Signature::ShmHostMemory])
        .fails(),
    rule("R29b", "SHM-ATTACH", HIGH,
        "a rank found no shared memory segment under the name that its peer sent: the ranks of a node do not share /dev/shm, or disagree on NCCL_CUMEM_HOST_ENABLE",
        "give all ranks of the node one /dev/shm and one value of NCCL_CUMEM_HOST_ENABLE (0 as a test)",
        "https://github.com/NVIDIA/nccl/pull/2059")
        .signatures(&[Signature::ShmAttach])
        .fails()
        .detail(segment_without_name)
        .advice(one_host_memory),
    rule("R30", "P2P-DISABLED", NOTE,
        "the GPUs cannot reach each other's memory over PCIe: shared memory is used",
        "expected on GeForce; else switch ACS and IOMMU off",
        "https://github.com/pytorch/pytorch/issues/130113")
        .signatures(&[Signature::P2pUnavailable]),
    rule("R30b", "P2P-MEMORY-REFUSED", HIGH,
        "a process could not open the memory of another process's GPU (CUDA or HIP IPC): the GPUs cannot reach each other, or the processes do not see the same GPUs",
        "set NCCL_P2P_DISABLE=1 in the environment of every rank (with Ray in its `runtime_env`), so that shared memory is used; else show each process all GPUs of the node, in one IPC namespace (`--ipc=host`)",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#gpu-direct")
        .patch(&[("env.NCCL_P2P_DISABLE", Some("1"))])
        .explaining(&["CUDA-FAILURE"])
        .signatures(&[Signature::PeerMemoryRefused])
        .says(&[&["peer access is not supported"]])
        .fails(),
    rule("R31", "P2P-NVLINK-BROKEN", HIGH,
        "GPUs joined by NVLink cannot reach each other's memory: hardware or fabric manager",
        "have the node serviced; do not hide it with NCCL_IGNORE_DISABLED_P2P",
        nccl_issue!("2329")).fault(Fault::Node)
        .explaining(&["CUDA-FAILURE", "P2P-MEMORY-REFUSED"])
        .signatures(&[Signature::NvlinkP2pBroken])
        .fails(),
    rule("R32", "NVLS-FAILED", HIGH,
        "NVLink SHARP could not be set up: most often the fabric manager or the NVSwitches are not in order",
        "restart the fabric manager with a GPU reset; NCCL_NVLS_ENABLE=0 as a test",
        nccl_issue!("1488")).patch(&[("env.NCCL_NVLS_ENABLE", Some("0"))])
        .explaining(&["CUDA-FAILURE"])
        .signatures(&[Signature::NvlsFailed])
        .advice(refused_multicast)
        .fails(),
    rule("R32b", "NVLS-SLOTS", HIGH,
        "NVLink SHARP has no multicast memory left: each communicator takes some, and many communicators or another job on the node use it up. This is not the GPU memory that the model uses",
        "set NCCL_NVLS_ENABLE=0, or make fewer communicators",
        ENV).patch(&[("env.NCCL_NVLS_ENABLE", Some("0"))])
        .explaining(&["CUDA-FAILURE"])
        .signatures(&[Signature::NvlsSlots])
        .fails(),
    rule("R33b", "TOPOLOGY-PATHS", MEDIUM,
        "NCCL found no good rings or trees through the node's GPUs and NICs, and takes a simple order: less bandwidth",
        "use a newer NCCL, and a topology file that fits the type of machine (NCCL_TOPO_FILE; the EFA plugin brings those of AWS)",
        "https://github.com/NVIDIA/nccl/blob/master/src/graph/search.cc")
        .signatures(&[Signature::SimpleOrder]),
    rule("R33", "NVLS-NOT-USED", NOTE,
        "NVLink SHARP is not available",
        "needs Hopper or later with NVSwitch, CUDA 12.1 and a running fabric manager",
        nccl_issue!("892"))
        .signatures(&[Signature::NvlsUnavailable])
        .when(nvls_possible),
    rule("R34", "COLLNET-NOT-USED", MEDIUM,
        "SHARP was requested and is not used; rings and trees are used instead",
        "free the SHARP quota (sharp_am), use the HPC-X plugin and one process a GPU",
        "https://github.com/NVIDIA/nccl-tests/issues/311")
        .signatures(&[Signature::CollnetUnavailable, Signature::CollnetRequested])
        .says(&[&["sharp_get_job_data_len failed"], &["SHARP coll init error"], &["SHARP group create: "], &["Failed to lock SAT tree"]])
        .kind(CauseClass::Nccl)
        .when(collnet_missed),
    rule("R35", "MNNVL-IMEX", HIGH,
        "memory could not be shared over multi-node NVLink: most often the IMEX channel is not in the container",
        "give the container /dev/nvidia-caps-imex-channels/channel0 (ComputeDomain); NCCL_MNNVL_ENABLE=0 goes without",
        nccl_issue!("1925")).patch(&[("env.NCCL_MNNVL_ENABLE", Some("0"))])
        .explaining(&["CUDA-FAILURE"])
        .signatures(&[Signature::MnnvlBroken])
        .fails(),
    // The CUDA driver API's cuMemCreate with CU_MEM_HANDLE_TYPE_FABRIC.
    rule("R35b", "FABRIC-MEMORY-REFUSED", HIGH,
        "the driver refused memory that other nodes of an NVLink domain can reach: the process has no IMEX channel",
        "give the container an IMEX channel (/dev/nvidia-caps-imex-channels; in Kubernetes a ComputeDomain) and run nvidia-imex on the nodes; on a system without NVLink between nodes run what needs none",
        "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html")
        .says(&[&["CUDA_ERROR_NOT_PERMITTED", "cuMemCreate"]])
        .kind(CauseClass::CudaError),
    rule("R47", "CUMEM-HOST-FALLBACK", NOTE,
        "memory of the host is not allocated with cuMem",
        "--cap-add SYS_NICE, or NCCL_CUMEM_HOST_ENABLE=0",
        TROUBLESHOOTING)
        .signatures(&[Signature::CumemHostFallback]),
    rule("R30c", "RESULTS-WRONG", HIGH,
        "a test of NCCL found wrong values in its results: data is damaged on its way between the GPUs",
        "set NCCL_P2P_DISABLE=1 as a test: if that helps, switch ACS and the IOMMU off, or use the GPUs without P2P; else check them and the NICs (dcgmi diag, ib_write_bw)",
        "https://github.com/NVIDIA/nccl-tests/blob/master/src/common.cu")
        .says(&[&["Out of bounds values : ", " FAILED"]])
        .fails(),
    rule("R62", "RMA-NOT-AVAILABLE", NOTE,
        "NCCL 2.32's one-sided operations over sockets are not available without GDRCopy: nothing else is affected",
        "nothing to do, unless the program uses ncclPutSignal; then install GDRCopy",
        ENV)
        .signatures(&[Signature::RmaUnavailable]),
    rule("R49", "NET-NOT-NEEDED", NOTE,
        "a network was chosen, and all traffic goes over multi-node NVLink: nothing is wrong",
        "nothing to do",
        "https://docs.nvidia.com/multi-node-nvlink-systems/")
        .signatures(&[Signature::MnnvlConnection])
        .when(network_not_needed),
];

/// Returns whether the name of the missing segment is empty: the descriptor of cuMem was read as a name.
/// Returns what to do where the driver refused the arguments of a multicast call, which a missing device and an old driver do, too.
fn refused_multicast(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::NvlsFailed)?.traces;
    traces.iter().any(|trace| trace.text.contains("invalid argument")).then(|| {
        "set NCCL_NVLS_ENABLE=0 to go on; then check that the driver is as new as the CUDA of this NCCL (`nvidia-smi`), that the container has the GPU's capability devices (/dev/nvidia-caps), and that the fabric manager runs".to_owned()
    })
}

fn is_without_name(seen: &RuleInput<'_>) -> bool {
    let found = seen.map.signatures().get(Signature::ShmAttach);
    found.is_some_and(|found| found.traces.iter().any(|trace| trace.text.contains("(size 0)")))
}

fn segment_without_name(seen: &RuleInput<'_>) -> Option<String> {
    is_without_name(seen)
        .then(|| " (the name is empty and the size 0, so the size of /dev/shm is not the cause)".to_owned())
}

fn one_host_memory(seen: &RuleInput<'_>) -> Option<String> {
    is_without_name(seen).then(|| "set NCCL_CUMEM_HOST_ENABLE=0 for all ranks".to_owned())
}

/// Returns whether NVLink SHARP could be used; otherwise the note is useless.
fn nvls_possible(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::NvlsUnavailable) && seen.ranks().iter().filter(|rank| rank.node == 0).count() >= 4
}

fn collnet_missed(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::CollnetUnavailable)
        || (seen.has(Signature::CollnetRequested)
            && !seen.connects_by(Kind::Collnet)
            && seen.verdict.fabric != FabricSeen::Unknown)
}

fn network_not_needed(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::MnnvlConnection)
        && !seen.connects_by(Kind::Net)
        && seen.ranks().iter().any(|rank| rank.announced.is_some())
}
