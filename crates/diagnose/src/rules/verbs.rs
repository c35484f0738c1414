//! Rules about InfiniBand and RoCE.

use crate::nodes::{Fault, is_dead_nic};
use std::collections::{BTreeMap, BTreeSet};

use weftrun_nccl::{Devices, FabricSeen, GdrSeen, Kind, Network, Signature};

use super::{Blame, HIGH, LOW, MEDIUM, NOTE, Rule, TROUBLESHOOTING, nccl_issue, rule};
use crate::cause::CauseClass;
use crate::rule_input::RuleInput;
use weftrun_core::text::counted;

pub(super) const RULES: &[Rule] = &[
    rule("R15", "IB-NO-DEVICE", MEDIUM,
        "NCCL's built-in IB network found no device it can use",
        "install rdma-core in the image and give the container /dev/infiniband (by its RDMA resource)",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1877")
        .signatures(&[Signature::IbNoDevice])
        .when(ib_is_missed),
    rule("R17", "IB-RETRY-EXCEEDED", HIGH,
        "packets to a peer are lost (transport retries exceeded, status 12): cable, port, GID, MTU or flow control",
        "run ib_write_bw between that pair with the same GID and traffic class; NCCL_IB_TIMEOUT only hides it",
        nccl_issue!("426")).fault(Fault::Link)
        .signatures(&[Signature::IbRetryExceeded])
        .detail(lost_peers)
        .advice(of_ucx)
        // libibverbs' ibv_wc_status_str (`verbs.c`), which Mooncake and others print.
        .by_line(without_nccl)
        .says(&[&["transport retry counter exceeded"]])
        .kind(CauseClass::Nccl)
        .blame(Blame::Link),
    rule("R18", "IB-FLUSHED", NOTE,
        "work requests were flushed (status 5): an echo of an earlier error",
        "find the first completion error with another status",
        nccl_issue!("1814"))
        .signatures(&[Signature::IbFlushed]),
    rule("R19", "IB-LOCAL-PROTECTION", HIGH,
        "a NIC was denied access to memory (status 4): most often ACS, IOMMU or a missing peer memory module blocks GPUDirect",
        "disable ACS, boot with iommu=pt; NCCL_NET_GDR_LEVEL=LOC confirms it",
        nccl_issue!("707"))
        .explaining(&["IB-QP-EVENT"])
        .signatures(&[Signature::IbLocalProtection])
        // UCX's ib_mlx5_log.c, and libibverbs.
        .by_line(denied_to_ucx)
        .says(&[&["ocal protection error"]])
        .fails(),
    rule("R20", "IB-REMOTE-REFUSED", HIGH,
        "the peer refused an RDMA request (status 9, 10 or 11)",
        "look at the peer's log of the same moment",
        nccl_issue!("1710"))
        .signatures(&[Signature::IbRemoteRefused])
        .says(&[&["emote access error"], &["emote invalid request error"], &["emote operation error"], &["Remote access on "]])
        .kind(CauseClass::Nccl)
        .blame(Blame::Link),
    rule("R21", "IB-QP-TRANSITION", HIGH,
        "a queue pair could not be connected: wrong GID index, no route between the GIDs, or ports of two kinds (InfiniBand and RoCE)",
        "leave NCCL_IB_GID_INDEX unset with NCCL 2.21 or later, else set the index of the RoCE v2 GID; check VLAN and routes",
        TROUBLESHOOTING).patch(&[("env.NCCL_IB_GID_INDEX", None)])
        .signatures(&[Signature::QpTransition])
        // NVSHMEM's ibgda.cpp.
        .says(&[&["INIT2RTR_QP"], &["ibgda_rc_init2rtr failed"]])
        .by_line(|text| text.contains("nvshmem").then(|| OTHER_LIBRARY.to_owned()))
        .advice(unconnected_pair)
        .fails(),
    rule("R22", "IB-CONNECT-TIMEOUT", HIGH,
        "connecting a queue pair timed out: the NIC does not reach that of its peer, by a GID that is not routed, or on a rail-only fabric since it reaches only NICs of its own rail",
        "check with ib_write_bw that these two NICs reach each other with the GID index in the log (`show_gids`; leave NCCL_IB_GID_INDEX unset with NCCL 2.21 or later); on a rail-only fabric set NCCL_CROSS_NIC=0",
        nccl_issue!("2013")).fault(Fault::Link)
        .explaining(&["IB-QP-TRANSITION"])
        .signatures(&[Signature::QpTimeout])
        .by_line(without_nccl)
        // Mooncake's rdma_endpoint.cpp, UCCL and UCX.
        .says(&[&["Failed to modify QP to RTR", "timed out"], &["ibv_create_ah(", "failed: Connection timed out"]])
        .kind(CauseClass::Nccl)
        .blame(Blame::Link),
    rule("R23", "IB-ASYNC-EVENT", HIGH,
        "an HCA reported an asynchronous event",
        "look at dmesg and the link counters of that HCA on that host; replace it if it comes back",
        nccl_issue!("1919")).fault(Fault::Node).proof(is_dead_nic)
        .signatures(&[Signature::IbAsyncEvent])
        .detail(async_events)
        .advice(of_async_event)
        .fails(),
    rule("R82", "IB-SUBNET-EVENT", NOTE,
        "the subnet manager spoke to an HCA, or a port came up, and NCCL went on",
        "nothing, as long as the job runs; where it comes often, ask whoever runs the fabric about its subnet manager",
        "https://www.man7.org/linux/man-pages/man3/ibv_get_async_event.3.html")
        .signatures(&[Signature::IbSubnetEvent]),
    rule("R21b", "ROCE-GID-UNREADABLE", HIGH,
        "the kind of a GID of a RoCE NIC could not be read: that index of its table is empty, or the container does not show it",
        "choose an index that `show_gids` lists in the container as RoCE v2 (NCCL_IB_GID_INDEX, for UCCL UCCL_IB_GID_INDEX), or give the container the host's network and /sys/class/infiniband",
        "https://github.com/uccl-project/uccl/issues/301")
        .says(&[&["ncclIbRoceGetVersionNum"], &["Failed to query GID"]])
        .kind(CauseClass::Nccl),
    rule("R23b", "IB-QP-EVENT", HIGH,
        "an HCA reported an error of one queue pair: the end of a request that failed, on this side or on the peer's",
        "look for the first completion error (`status=`) of this host and of the peer; with an access violation also for ACS, IOMMU and the GPUDirect module (nvidia_peermem)",
        "https://www.man7.org/linux/man-pages/man3/ibv_get_async_event.3.html").fault(Fault::Link)
        // The event is of the side that was asked, the refusal of the side that asked.
        .explaining(&["IB-REMOTE-REFUSED"])
        .signatures(&[Signature::IbQpEvent])
        .fails(),
    rule("R24", "IB-MEMLOCK", HIGH,
        "memory could not be registered or a queue made: most often the limit of locked memory is too small, else the NIC has none left",
        "set memlock unlimited: IPC_LOCK in Kubernetes, --ulimit memlock=-1 in Docker, PropagateResourceLimitsExcept=MEMLOCK in Slurm; if it is (`ulimit -l`), look at what the NIC has left (`rdma resource`)",
        TROUBLESHOOTING)
        .signatures(&[Signature::MemoryRegistration])
        .explaining(&["EFA-ABORT"])
        // PSM3's verbs.
        .says(&[&["Unable to create ", "CQ of size ", "Cannot allocate memory"]])
        .fails(),
    rule("R24f", "PSM-NO-CONTEXT", HIGH,
        "no hardware context of the Omni-Path adapter is free for another process",
        "start fewer ranks on a node, let them share contexts (PSM2_SHAREDCONTEXTS=1), or have your cluster administrator raise num_user_contexts of the module hfi1",
        "https://github.com/cornelisnetworks/opa-psm2/blob/master/psm_context.c")
        .says(&[&["assign_context command failed: Device or resource busy"], &["PSM2 can't open hfi unit"]])
        .fails(),
    // The kernel's mlx5 driver.
    rule("R24i", "IB-KEYS-EXHAUSTED", HIGH,
        "a NIC has no memory keys left: the processes of its host have registered too many regions",
        "register fewer and larger regions, or run fewer processes on the NIC (`rdma resource show mr` counts them; those of ended processes go with them)",
        "https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/mr.c")
        .says(&[&["CREATE_MKEY(", "limits exceeded"], &["create_mkey", "async reg mr failed"]])
        .kind(CauseClass::Nccl),
    rule("R24g", "PSM-NO-PORT", HIGH,
        "the Omni-Path or PSM3 library found no port of a NIC that it can use",
        "look at the link of that host's NIC (`opainfo`, `ibstat`: cable, subnet manager); for another network choose another provider (FI_PROVIDER), on one host PSM3_DEVICES=self,shm or PSM2_DEVICES=self,shm",
        "https://github.com/cornelisnetworks/opa-psm2/blob/master/psm_context.c")
        .says(&[&["no hfi units are active"], &["PSM3 can't open nic unit"]])
        .explaining(&["MPI-NOT-STARTED"])
        .fails(),
    rule("R24h", "PSM-SHARED-MEMORY", HIGH,
        "the Omni-Path library could not join the shared memory of its node",
        "give all ranks of a node one /dev/shm with room in it, and remove what ended jobs left there (`ls /dev/shm/psm*`)",
        "https://github.com/cornelisnetworks/opa-psm2/issues/42")
        .says(&[&["PSM could not set up shared memory segment"]])
        .explaining(&["MPI-NOT-STARTED"])
        .fails(),
    NIXL_FAILED,
    // DeepEP's csrc/kernels/internode.cu.
    rule("R17b", "DEEPEP-TIMEOUT", HIGH,
        "DeepEP waited in vain for data of another rank: one of a node (NVL) or of another node (RDMA), as the line says",
        "read the log of the rank that the line names as `src`: it ended, hangs, or calls something else; where all run, test the RDMA path between the nodes (NVSHMEM_DEBUG=INFO, ib_write_bw)",
        "https://github.com/deepseek-ai/DeepEP/issues/137")
        .says(&[&["DeepEP ", " timeout"]])
        .kind(CauseClass::Nccl),
    rule("R24c", "UCX-MEMLOCK", MEDIUM,
        "UCX could not register memory with a NIC or make a queue of it, and goes on without that NIC",
        "set memlock unlimited (IPC_LOCK in Kubernetes, --ulimit memlock=-1 in Docker) if MPI is to use the NIC; on a host without InfiniBand nothing is to do",
        "https://openucx.readthedocs.io/en/master/faq.html")
        .signatures(&[Signature::UcxRegistration])
        .says(&[&["UCX ", "ERROR", "ibv_", "Cannot allocate memory"]])
        .kind(CauseClass::Nccl),
    rule("R24ca", "UCX-QUEUES", HIGH,
        "UCX could not make a queue of a NIC: the NIC has none left for so many processes and connections, or the limit of locked memory is too small",
        "let UCX make fewer queue pairs (UCX_TLS=dc_x,sm,self or ud_x,sm,self in place of rc, fewer processes on a node), and set memlock unlimited (`ulimit -l`); `rdma resource` shows what the NIC has in use",
        "https://github.com/openucx/ucx/issues/7978")
        .says(&[&["devx_obj_create(", "Cannot allocate memory"], &["UCX ", "ERROR", "create_qp", "Cannot allocate memory"]])
        .explaining(&["MPI-NOT-STARTED"])
        .kind(CauseClass::Nccl),
    // UCX's src/uct/ib/mlx5/dv/ib_mlx5_dv.c and src/uct/ib/mlx5/gdaki/gdaki.c, read 2026-11-27.
    rule("R24cb", "UCX-DEVX-REFUSED", HIGH,
        "the NIC refused UCX an object that it makes with DevX: its firmware or its limits do not allow it",
        "look up the syndrome of the line (dmesg, mlx5_core); use a newer firmware, or do without what needs DevX: UCX_IB_MLX5_DEVX=n, and for queues that the GPU drives UCX_TLS without rc_gda",
        "https://openucx.readthedocs.io/en/master/faq.html")
        .says(&[&["devx_obj_create(", " failed"]])
        .kind(CauseClass::Nccl),
    // libibverbs' init.c: a NIC of the host whose provider is not in the image.
    rule("R24j", "VERBS-PROVIDER-MISSING", HIGH,
        "libibverbs has no driver for the NICs of the host: RDMA cannot be used, and NCCL goes over TCP",
        "install the providers in the image, in a version that fits the kernel's driver (rdma-core with ibverbs-providers, or the vendor's user space), and check `ibv_devinfo` inside it",
        "https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/init.c")
        .says(&[&["libibverbs: ", "device-specific driver found"]])
        .kind(CauseClass::Nccl),
    rule("R24e", "UCX-UNREACHABLE", HIGH,
        "UCX has no transport by which it reaches a peer: the devices and transports that it may use do not join the two hosts",
        "let UCX use the NIC that joins the hosts: set UCX_NET_DEVICES to it (such as `mlx5_0:1` or `eth0`; not docker0, whose 172.17.0.1 every host has), and compare UCX_TLS with `ucx_info -d` on both",
        "https://openucx.readthedocs.io/en/master/faq.html")
        .says(&[
            &["no active messages transport to"],
            &["ucp_ep_create(proc=", "Destination is unreachable"],
            &["ibv_create_ah(", "failed: Invalid argument"],
        ])
        .fails(),
    rule("R24d", "IB-DMABUF-UNSUPPORTED", HIGH,
        "the driver of a NIC does not support DMA-BUF",
        "load nvidia_peermem and set NCCL_DMABUF_ENABLE=0, or update the NIC's driver (MLNX_OFED, or kernel 5.12 and later)",
        nccl_issue!("778")).patch(&[("env.NCCL_DMABUF_ENABLE", Some("0"))])
        .signatures(&[Signature::DmabufUnsupported])
        .fails(),
    rule("R24b", "IB-REGISTRATION-REFUSED", HIGH,
        "a NIC refused to register memory, and not for want of memory: it cannot reach that memory of the GPU",
        "set no expandable segments (PYTORCH_CUDA_ALLOC_CONF), and load nvidia_peermem or use DMA-BUF with a driver of this CUDA; NCCL_NET_GDR_LEVEL=LOC as a test",
        nccl_issue!("1842"))
        .signatures(&[Signature::RegistrationRefused])
        // Mooncake's rdma_context.cpp.
        .says(&[&["Failed to register memory ", "Bad address"]])
        .fails(),
    rule("R25", "IB-WITHOUT-GDR", MEDIUM,
        "InfiniBand or RoCE connections run without GPUDirect RDMA",
        "load nvidia_peermem (NCCL before 2.23 may overlook it: use a newer one), or use the open driver with DMA-BUF on kernel 5.12 or later; consumer GPUs and GB10 have none",
        nccl_issue!("1537"))
        .signatures(&[Signature::IbGdrDisabled, Signature::IbConnectionWithoutGdr])
        .when(without_gdr)
        .detail(hosts_without_gdr),
    // NVSHMEM's src/host/transport/transport.cpp.
    rule("R83", "NVSHMEM-NO-TRANSPORT", MEDIUM,
        "NVSHMEM could not set up a transport between nodes",
        "read the lines before it: IBGDA needs a NIC of mlx5 that the container shows, and `PeerMappingOverride=1` of the driver; NVSHMEM_DEBUG=INFO says more, and NVSHMEM_IB_ENABLE_IBGDA=0 takes another transport",
        "https://github.com/deepseek-ai/DeepEP/blob/main/third-party/README.md")
        .says(&[&["init failed for transport: "], &["Unable to initialize any transports"]])
        .kind(CauseClass::Nccl),
    // NVSHMEM's src/modules/transport/ibgda/ibgda.cpp and ibrc.cpp.
    rule("R25b", "NVSHMEM-NO-PEER-MEMORY", MEDIUM,
        "NVSHMEM leaves a transport out, since the kernel module for GPUDirect RDMA is not loaded (nvidia_peermem or nv_peer_mem)",
        "load the module for GPUDirect RDMA on every node (`modprobe nvidia_peermem`), or let NVSHMEM use DMA-BUF where kernel and driver have it",
        "https://docs.nvidia.com/nvshmem/release-notes-install-guide/install-guide/abstract.html")
        .says(&[&["neither nv_peer_mem, or nvidia_peermem detected"]])
        .kind(CauseClass::Nccl),
    rule("R26", "GDR-TOO-FAR", MEDIUM,
        "GPUDirect RDMA is off because GPU and NIC are too far apart",
        "use a near NIC; in a VM set NCCL_NET_GDR_LEVEL=SYS or give NCCL a topology file",
        "https://github.com/Mellanox/nv_peer_memory/issues/56").patch(&[("env.NCCL_NET_GDR_LEVEL", Some("SYS"))])
        .signatures(&[Signature::GdrTooFar]),
    rule("R27", "IB-ROCE-MIXED", MEDIUM,
        "InfiniBand and Ethernet ports are in one list: a storage or management port was taken for data",
        "exclude that port by its name with NCCL_IB_HCA=^NAME, or list the data ports",
        nccl_issue!("302"))
        .signatures(&[Signature::IncompatibleIbDevices, Signature::IbDeviceList])
        .when(mixed_ports)
        .advice(exclude_odd_ports),
    rule("R28", "NET-DEVICE-COUNT-MIXED", HIGH,
        "ranks of one node see different numbers of NICs",
        "set the same NCCL_IB_HCA everywhere and give every container the same devices",
        nccl_issue!("2428"))
        .signatures(&[Signature::DeviceCountsMixed])
        .fails(),
    rule("R50", "NICS-IDLE", LOW,
        "fewer NICs are used than the node has",
        "give the container all EFA devices, a topology file, or a fitting NCCL_IB_HCA",
        nccl_issue!("527"))
        .signatures(&[Signature::OneNicFound, Signature::IbDeviceList])
        .when(nics_idle),
    rule("R58", "NICS-DIFFER", MEDIUM,
        "the hosts list different NICs",
        "give every node the same NICs: check the missing ones (`ibstat`), the devices of the container, and NCCL_IB_HCA",
        nccl_issue!("2428"))
        .signatures(&[Signature::IbDeviceList])
        .when(nics_differ)
        .detail(odd_hosts),
    rule("R53", "IB-DEVICE-NOT-OPENED", HIGH,
        "an HCA is listed and cannot be opened: NCCL goes on without it",
        "if the job is to use that HCA, give the container its device in /dev/infiniband; one of another pod or function is left out with NCCL_IB_HCA, the same on every rank",
        nccl_issue!("2428"))
        .signatures(&[Signature::DeviceNotOpened]),
];

/// What NIXL raises of any error of UCX, whose own lines stand above it.
pub(crate) const NIXL_FAILED: Rule = rule("R17c", "NIXL-BACKEND-FAILED", HIGH,
    "the backend of NIXL, most often UCX, failed to move data",
    "read the lines of UCX above it; without any set UCX_LOG_LEVEL=info, and check UCX_NET_DEVICES and UCX_TLS against `ucx_info -d`",
    "https://github.com/ai-dynamo/nixl/blob/main/src/api/cpp/nixl_types.h")
    .says(&[&["NIXL_ERR_BACKEND"]])
    .blame(Blame::Rank(CauseClass::Exception));

/// Returns the peer that a completion of NCCL names: `Got completion from peer 10.0.0.2<38536> with error 12`.
pub fn peer_of(text: &str) -> Option<&str> {
    name_behind(text, "from peer ", &['<', ' '])
}

fn hca_of(text: &str) -> Option<&str> {
    let words = [" hca ", "count exceeded on "].into_iter().find(|words| text.contains(words))?;
    name_behind(text, words, &[' '])
}

/// Returns the name behind some words, up to one of the letters that end it.
fn name_behind<'t>(text: &'t str, words: &str, ends: &[char]) -> Option<&'t str> {
    let name = text.split_once(words)?.1.split(ends).next()?.trim();
    (!name.is_empty()).then_some(name)
}

/// Names the peers of lost packets and the HCAs that lost them, as the lines have them.
fn lost_peers(seen: &RuleInput<'_>) -> Option<String> {
    const MOST: usize = 4;
    let traces = &seen.map.signatures().get(Signature::IbRetryExceeded)?.traces;
    let named = |name: fn(&str) -> Option<&str>| {
        let names: BTreeSet<&str> = traces.iter().filter_map(|trace| name(&trace.text)).collect();
        names.into_iter().take(MOST).collect::<Vec<_>>().join(", ")
    };
    let parts = [("peer", named(peer_of)), ("HCA", named(hca_of))];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(what, names)| format!("{what} {names}")).collect();
    (!parts.is_empty()).then(|| format!(" ({})", parts.join("; ")))
}

/// Returns the event of a line, and the port if it names one: `NET/IB : mlx5_3:1 Got async error event: port error`.
fn async_event(text: &str) -> Option<(&str, Option<&str>)> {
    let (before, event) = text.split_once("event").filter(|_| !text.starts_with("Call to "))?;
    let port = name_behind(before, "NET/IB : ", &[' ']).filter(|name| name.contains(':'));
    let event = event.trim_start_matches([' ', ':']).trim_end();
    (!event.is_empty()).then_some((event, port))
}

fn async_events_of<'s>(seen: &'s RuleInput<'_>) -> impl Iterator<Item = (&'s str, Option<&'s str>)> {
    let hits = seen.map.signatures().get(Signature::IbAsyncEvent);
    hits.into_iter().flat_map(|hits| &hits.traces).filter_map(|trace| async_event(&trace.text))
}

/// Says which events they were, and of which ports.
fn async_events(seen: &RuleInput<'_>) -> Option<String> {
    const MOST: usize = 4;
    let shown = |(event, port): (&str, Option<&str>)| {
        port.map_or_else(|| event.to_owned(), |port| format!("{event} ({port})"))
    };
    let events: BTreeSet<String> = async_events_of(seen).map(shown).collect();
    let named: Vec<String> = events.into_iter().take(MOST).collect();
    (!named.is_empty()).then(|| format!(": {}", named.join(", ")))
}

/// Returns what to do about a port, and about a whole HCA, by the names that libibverbs gives the events (`src/enum_strs.c`).
fn of_async_event(seen: &RuleInput<'_>) -> Option<String> {
    let has = |words: &str| async_events_of(seen).any(|(event, _)| event.contains(words));
    if has("catastrophic") || has("fatal") {
        return Some("take that host out and look at its dmesg: the HCA or its firmware failed (update the firmware, reset or replace the HCA)".to_owned());
    }
    has("port error").then(|| {
        "look at the link of that port: dmesg, `ibstat` or `ethtool`, its error counters, cable, transceiver and switch port".to_owned()
    })
}

/// Returns what to do where the ports of a list have different link layers, or another library could not connect.
fn unconnected_pair(seen: &RuleInput<'_>) -> Option<String> {
    let mixed = seen.map.lists_mixed_ports().then(|| {
        "the log lists InfiniBand and Ethernet (RoCE) ports together, which cannot be connected to each other: leave those of one kind out with NCCL_IB_HCA (`^mlx5_2` excludes that one); else check the GID index (`show_gids`), VLAN and routes".to_owned()
    });
    mixed.or_else(|| of_another_library(seen))
}

/// Returns what to do where not NCCL, which names its calls (`Call to ibv_modify_qp`), could not connect.
fn of_another_library(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::QpTransition)?.traces;
    let other = !traces.iter().any(|trace| trace.text.contains("Call to ") || trace.text.contains("NCCL"));
    other.then(|| OTHER_LIBRARY.to_owned())
}

const OTHER_LIBRARY: &str = "check with ib_write_bw that the NICs of the two hosts reach each other, and the GID index of the library that printed it (NVSHMEM: NVSHMEM_IB_GID_INDEX, NVSHMEM_HCA_LIST)";

/// Returns what to do about a path that another library than NCCL uses, which reads none of NCCL's variables.
fn without_nccl(text: &str) -> Option<String> {
    let gid = if text.contains("UCX") {
        "its GID index (UCX_IB_GID_INDEX)"
    } else {
        "the GID index that the library uses"
    };
    (!text.contains("NCCL")).then(|| {
        format!("check with ib_write_bw that the NICs in the line reach each other between the two hosts, with {gid} (`show_gids`), and look at their link counters")
    })
}

/// Returns what to do where the memory of a GPU was denied to UCX.
fn denied_to_ucx(text: &str) -> Option<String> {
    text.contains("UCX")
        .then(|| "disable ACS, boot with iommu=pt; UCX_IB_GPU_DIRECT_RDMA=no confirms it".to_owned())
}

/// Returns what to do where UCX lost the packets, which reads none of NCCL's variables.
fn of_ucx(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::IbRetryExceeded)?.traces;
    let ucx = traces.iter().all(|trace| trace.text.contains("ransport retry count exceeded on "));
    ucx.then(|| {
        "run ib_write_bw over that HCA between the two hosts, and look at its link counters; UCX_RC_TIMEOUT only hides it".to_owned()
    })
}

fn nics_differ(seen: &RuleInput<'_>) -> bool {
    let hosts = seen.map.nics_of_hosts();
    hosts.values().collect::<BTreeSet<_>>().len() > 1
}

/// Says which hosts list other NICs than most do.
fn odd_hosts(seen: &RuleInput<'_>) -> Option<String> {
    const MOST: usize = 4;
    let hosts = seen.map.nics_of_hosts();
    let mut lists: BTreeMap<&BTreeSet<&str>, Vec<&str>> = BTreeMap::new();
    for (host, list) in &hosts {
        lists.entry(list).or_default().push(host);
    }
    // Of two lists that as many hosts have, the longer one is taken for the right one.
    let (usual, others) = lists.iter().max_by_key(|(list, hosts)| (hosts.len(), list.len()))?;
    let names = |list: Vec<&&str>| list.into_iter().take(8).copied().collect::<Vec<_>>().join(", ");
    let odd = lists
        .iter()
        .filter(|(list, _)| *list != usual)
        .flat_map(|(list, hosts)| hosts.iter().map(move |host| (host, list)));
    let told: Vec<String> = odd
        .take(MOST)
        .map(|(host, list)| {
            let (missing, more) =
                (names(usual.difference(list).collect()), names(list.difference(usual).collect()));
            match (missing.is_empty(), more.is_empty()) {
                (false, true) => format!("{host} lacks {missing}"),
                (true, _) => format!("{host} has {more} besides"),
                (false, false) => format!("{host} has {more}, not {missing}"),
            }
        })
        .collect();
    let rest = match others.as_slice() {
        [only] => (*only).to_owned(),
        more => counted(more.len(), "other host"),
    };
    Some(format!(": {}, compared with {rest}", told.join("; ")))
}

/// Returns whether InfiniBand or RoCE runs without GPUDirect RDMA; Omni-Path prints the same, and has other drivers.
fn without_gdr(seen: &RuleInput<'_>) -> bool {
    let said = seen.has(Signature::IbGdrDisabled) || seen.has(Signature::IbConnectionWithoutGdr);
    said && seen.verdict.fabric != FabricSeen::Network(Network::OmniPath)
}

/// Names the hosts without GPUDirect RDMA where other connections have it.
fn hosts_without_gdr(seen: &RuleInput<'_>) -> Option<String> {
    const MOST: usize = 4;
    let hits = [Signature::IbGdrDisabled, Signature::IbConnectionWithoutGdr];
    let hits = hits.into_iter().filter_map(|signature| seen.map.signatures().get(signature));
    let hosts: BTreeSet<&str> =
        hits.flat_map(|hits| &hits.traces).filter_map(|trace| seen.map.host_of(trace)).collect();
    let named: Vec<&str> = hosts.into_iter().take(MOST).collect();
    (seen.verdict.gdr == GdrSeen::Some && !named.is_empty())
        .then(|| format!(" on {}; other connections have it", named.join(", ")))
}

/// Returns whether missing InfiniBand matters: not on one node, or where another network is in use.
fn ib_is_missed(seen: &RuleInput<'_>) -> bool {
    let other = seen.networks.iter().any(|named| !named.is_built_in);
    seen.has(Signature::IbNoDevice) && seen.several_nodes() != Some(false) && !other
}

fn mixed_ports(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::IncompatibleIbDevices) || seen.map.lists_mixed_ports()
}

/// Names the ports of the kind that fewer have, as the log lists them.
fn exclude_odd_ports(seen: &RuleInput<'_>) -> Option<String> {
    const MOST: usize = 4;
    let hits = seen.map.signatures().get(Signature::IbDeviceList)?;
    let of_kind = |list: &str, kind: &str| -> BTreeSet<String> {
        let words = list.split([' ', ']', ';', ',']).filter_map(|word| word.split_once(':'));
        let ports = words.filter(|(_, port)| port.split_once('/').is_some_and(|(_, of)| of == kind));
        ports.map(|(name, _)| name.to_owned()).collect()
    };
    hits.traces.iter().find_map(|trace| {
        let (ethernet, infiniband) = (of_kind(&trace.text, "RoCE"), of_kind(&trace.text, "IB"));
        let odd = match ethernet.len().cmp(&infiniband.len()) {
            std::cmp::Ordering::Less => ethernet,
            std::cmp::Ordering::Greater => infiniband,
            std::cmp::Ordering::Equal => return None,
        };
        let names = odd.into_iter().collect::<Vec<_>>();
        let fits = (1..=MOST).contains(&names.len());
        fits.then(|| {
            let names = names.join(",");
            format!("if {names} is for storage or management, exclude it with NCCL_IB_HCA=^{names}, or list the data ports")
        })
    })
}

fn nics_idle(seen: &RuleInput<'_>) -> bool {
    one_nic_found(seen) || one_nic_of_many(seen)
}

/// Returns whether one NIC is too few: every AWS instance with GPUDirect over EFA has several, but for a
/// few sizes.
fn one_nic_found(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::OneNicFound)
        && (seen.has(Signature::GdrInstance) || matches!(seen.verdict.gdr, GdrSeen::All | GdrSeen::Some))
        && !seen.has(Signature::InstanceWithoutGdr)
}

/// Returns whether all ranks use one NIC, where every rank of a node is seen and there are as many NICs as
/// ranks.
fn one_nic_of_many(seen: &RuleInput<'_>) -> bool {
    let devices: BTreeSet<u32> = seen.map.ports().iter().map(|port| port.device).collect();
    let of_plugin = seen.map.plugins().iter().filter_map(|plugin| plugin.nics).max();
    let listed = devices.len().max(of_plugin.unwrap_or(0) as usize);
    let mut used = Devices::default();
    for transport in seen.transports.iter().filter(|used| used.kind == Kind::Net) {
        used.union(transport.devices);
    }
    let rdma = matches!(
        seen.verdict.fabric,
        FabricSeen::Network(Network::Efa | Network::Roce | Network::InfiniBand | Network::Verbs)
    );
    if !rdma || listed < 2 || used.count() != 1 {
        return false;
    }
    let mut ranks_on: BTreeMap<u32, usize> = BTreeMap::new();
    for rank in seen.ranks() {
        *ranks_on.entry(rank.node).or_default() += 1;
    }
    let fewest = ranks_on.values().copied().min().unwrap_or(0);
    let whole = seen.comms().iter().any(|comm| comm.world && comm.seen_ranks.len() == comm.nranks as usize);
    whole && fewest >= listed
}
