//! Signatures: wordings of log lines that indicate a cause. One table, one search over the line. A
//! signature alone decides nothing; the rules weigh it against the rest of the log.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::prefix::Level;
use super::text::{Cursor, behind, contains};

/// What a log line indicates: a fault, or a fact that rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Signature {
    /// No external network plugin was found.
    PluginNotFound,
    /// A plugin, or a library it needs, wants newer symbols than the container has.
    PluginAbi,
    /// A program needs a newer C or C++ library than the container has.
    LibcTooOld,
    /// A library that the network plugin needs is missing.
    PluginDependency,
    /// A plugin was found whose interface is older than this NCCL.
    PluginTooOld,
    /// libfabric found no provider for the plugin.
    OfiNoProvider,
    /// libfabric selected a provider that is neither EFA nor another fabric's own.
    OfiOtherProvider,
    /// The plugin refuses a provider other than EFA.
    OfiOnlyEfa,
    /// The aws-ofi-nccl plugin could not be initialised.
    OfiInitFailed,
    /// The plugin disabled GPUDirect RDMA on an instance that has it.
    OfiGdrDisabled,
    /// libfabric's `FI_HMEM` needs RDMA, which is off.
    OfiHmemNeedsRdma,
    /// EFA packets to a peer are dropped.
    EfaUnreachablePeer,
    /// A resource of libfabric could not be made.
    OfiResources,
    /// A process forked while it held EFA memory.
    EfaFork,
    /// A fork failed for want of memory.
    ForkOutOfMemory,
    /// libfabric is older than the plugin needs.
    LibfabricTooOld,
    /// Two nodes group their NICs differently.
    RailMismatch,
    /// NCCL's IB network found no device.
    IbNoDevice,
    /// `NCCL_IB_DISABLE` or `NCCL_NET_DISABLE` is set.
    IbDisabled,
    /// `NCCL_NET=Socket` is set.
    SocketsRequested,
    /// `NCCL_P2P_DISABLE` is set.
    P2pDisabled,
    /// `NCCL_SHM_DISABLE` is set.
    ShmDisabled,
    /// A completion failed because retries were exceeded (status 12).
    IbRetryExceeded,
    /// A work request was flushed (status 5).
    IbFlushed,
    /// A NIC was denied access to memory (status 4).
    IbLocalProtection,
    /// The peer refused an RDMA request (status 9 to 11).
    IbRemoteRefused,
    /// A queue pair could not change its state.
    QpTransition,
    /// Connecting a queue pair timed out.
    QpTimeout,
    /// An HCA reported an asynchronous event.
    IbAsyncEvent,
    /// Memory could not be registered, or a queue not made.
    MemoryRegistration,
    /// GPUDirect RDMA is off for an HCA.
    IbGdrDisabled,
    /// GPUDirect RDMA is off because GPU and NIC are far apart.
    GdrTooFar,
    /// InfiniBand and Ethernet ports would be connected to each other.
    IncompatibleIbDevices,
    /// Ranks of one node see different numbers of NICs.
    DeviceCountsMixed,
    /// Shared memory could not be made or extended.
    ShmTooSmall,
    /// GPUs cannot reach each other's memory over PCIe.
    P2pUnavailable,
    /// GPUs joined by NVLink cannot reach each other's memory.
    NvlinkP2pBroken,
    /// NVLink SHARP could not be set up.
    NvlsFailed,
    /// NVLink SHARP multicast is not available.
    NvlsUnavailable,
    /// CollNet (SHARP) is not used.
    CollnetUnavailable,
    /// `NCCL_ALGO` requests CollNet.
    CollnetRequested,
    /// Multi-node NVLink is present but does not work.
    MnnvlBroken,
    /// No network interface fits.
    NoInterface,
    /// An interface was chosen that other hosts may not reach.
    SuspiciousInterface,
    /// The loopback interface was chosen.
    LoopbackInterface,
    /// A TCP connection failed.
    ConnectFailed,
    /// A connection did not come from a rank of this job.
    StrayConnection,
    /// NCCL reports that versions differ.
    VersionMismatch,
    /// Ranks disagree on a collective or its size.
    CollectiveMismatch,
    /// A line of Huawei's HCCL, which is not NCCL.
    Hccl,
    /// Two ranks use one GPU.
    DuplicateGpu,
    /// A collective timed out.
    WatchdogTimeout,
    /// A peer closed its connection.
    PeerClosed,
    /// A topology file does not fit.
    TopologyXml,
    /// A CUDA call failed inside NCCL.
    CudaFailure,
    /// Host memory is not allocated with cuMem.
    CumemHostFallback,
    /// The requested network is missing.
    NetworkNotFound,
    /// The plugin found one NIC.
    OneNicFound,
    /// Memory of a GPU could not be registered with EFA (-22).
    EfaRegistration,
    /// libfabric's CUDA calls cannot be switched off, so GPUDirect RDMA is.
    HmemWithoutGdr,
    /// A listed HCA cannot be opened.
    DeviceNotOpened,
    /// The plugin runs on AWS.
    OnAws,
    /// A message names EFA.
    EfaNamed,
    /// The instance type has GPUDirect RDMA over EFA.
    GdrInstance,
    /// The instance type has no GPUDirect RDMA over EFA.
    InstanceWithoutGdr,
    /// A process chose the socket network.
    SocketChosen,
    /// A list of IB or RoCE devices was printed.
    IbDeviceList,
    /// A version of NCCL was printed.
    VersionPrinted,
    /// An error passed through NCCL's socket network.
    ErrorInSocket,
    /// An error passed through NCCL's IB network.
    ErrorInIb,
    /// An error passed through the external IB plugin.
    ErrorInIbExternal,
    /// A request or a completion of the libfabric plugin failed at run time.
    ErrorInOfi,
    /// Two ranks are connected over sockets.
    SocketConnection,
    /// Two ranks are connected over libfabric with GPUDirect RDMA.
    OfiConnection,
    /// Two ranks are connected over libfabric without GPUDirect RDMA.
    OfiConnectionWithoutGdr,
    /// Two ranks are connected over IB or RoCE with GPUDirect RDMA.
    IbConnection,
    /// Two ranks are connected over IB or RoCE without GPUDirect RDMA.
    IbConnectionWithoutGdr,
    /// Two ranks are connected over multi-node NVLink.
    MnnvlConnection,
    /// A line names a rank beyond the ranks of its communicator.
    ImpossibleRank,
    /// A warning that no other signature explains.
    UnknownWarning,
    /// Any warning of NCCL.
    Warning,
}

impl Signature {
    /// Returns whether a warning with this signature means that its rank failed. What NCCL only mentions,
    /// or continues without, does not.
    pub fn fails_rank(self) -> bool {
        self <= Self::DeviceNotOpened
            && !matches!(
                self,
                Self::IbNoDevice
                    | Self::NvlsUnavailable
                    | Self::SuspiciousInterface
                    | Self::LoopbackInterface
                    | Self::CumemHostFallback
            )
    }
}

impl Signature {
    /// Returns whether it only shows through which network an error passed, not what went wrong.
    pub(crate) fn is_place(self) -> bool {
        matches!(
            self,
            Self::ErrorInSocket | Self::ErrorInIb | Self::ErrorInIbExternal | Self::EfaNamed | Self::OnAws
        )
    }
}

/// The signature of a row.
#[derive(Clone, Copy)]
enum Target {
    Signature(Signature),
    /// The status of an InfiniBand completion, read from the message.
    Completion,
}

/// One row: the line contains `needle`, every one of `all`, and none of `none`.
struct Row {
    points_at: Target,
    needle: &'static str,
    all: &'static [&'static str],
    none: &'static [&'static str],
}

const fn row(id: Signature, needle: &'static str) -> Row {
    Row { points_at: Target::Signature(id), needle, all: &[], none: &[] }
}

const fn with(
    id: Signature,
    needle: &'static str,
    all: &'static [&'static str],
    none: &'static [&'static str],
) -> Row {
    Row { points_at: Target::Signature(id), needle, all, none }
}

const fn completed(needle: &'static str, all: &'static [&'static str]) -> Row {
    Row { points_at: Target::Completion, needle, all, none: COMPLETION }
}

const NOT_THE_NET_PLUGIN: &[&str] =
    &["PROFILER/", "TUNER/", "ENV/", "GIN/", "-profiler", "-tuner", "-env.so", "-gin"];
const COMPLETION: &[&str] = &["ibv_modify_qp", "ibv_query_gid"];

/// Sources of the wordings: the tags of NVIDIA/nccl 2.3.5 to 2.30.7 and aws-ofi-nccl 0.9.1 to 1.21.1, libfabric, and
/// PyTorch's ProcessGroupNCCL.cpp, read 2026-11-21.
const TABLE: &[Row] = &[
    with(Signature::PluginNotFound, "No plugin found", &[], NOT_THE_NET_PLUGIN),
    row(Signature::PluginNotFound, "No network plugin found"),
    with(Signature::PluginNotFound, "Could not find: ", &["nccl-net"], NOT_THE_NET_PLUGIN),
    with(Signature::PluginNotFound, "Could not find:", &["NET/Plugin"], NOT_THE_NET_PLUGIN),
    with(Signature::PluginNotFound, "Plugin load", &["returned "], NOT_THE_NET_PLUGIN),
    with(Signature::PluginNotFound, "cannot open shared object file", &["nccl-net"], NOT_THE_NET_PLUGIN),
    row(Signature::PluginNotFound, "Unable to load libnccl-net"),
    with(Signature::PluginAbi, "' not found", &["version `"], &[]),
    with(Signature::LibcTooOld, "' not found", &["version ", "GLIBC"], &[]),
    with(Signature::PluginDependency, ": cannot open shared object", &[], NOT_THE_NET_PLUGIN),
    with(Signature::PluginTooOld, "ncclNetPlugin symbol", &["ot supported"], &[]),
    with(Signature::PluginTooOld, "Failed to find ncclNetPlugin symbol", &[], &["ncclNetPlugin_v"]),
    row(Signature::OfiNoProvider, "No eligible providers were found"),
    row(Signature::OfiNoProvider, "find any optimal provider"),
    row(Signature::OfiNoProvider, "fi_getinfo() call failed"),
    row(Signature::OfiNoProvider, "provider efa output empty list"),
    with(Signature::OfiOtherProvider, "elected provider is ", &[], &[]),
    with(Signature::OfiOtherProvider, "elected Provider is ", &[], &[]),
    row(Signature::OfiOnlyEfa, "Only EFA provider is supported"),
    row(Signature::OfiInitFailed, "aws-ofi-nccl initialization failed"),
    row(Signature::OfiInitFailed, "Initializing plugin failed"),
    row(Signature::OfiInitFailed, "Unable to find a protocol that worked"),
    row(Signature::OfiInitFailed, "Failed to initialize sendrecv protocol"),
    row(Signature::OfiInitFailed, "Failed to initialize rdma protocol"),
    row(Signature::OfiGdrDisabled, "GDR disabled on GDR-supported instance type"),
    row(Signature::OfiHmemNeedsRdma, "FI_HMEM capability requires RDMA"),
    with(Signature::EfaUnreachablePeer, "completed with error", &["RC: 2"], &[]),
    with(Signature::EfaUnreachablePeer, "completed with error", &["err: 2"], &["vendor"]),
    row(Signature::EfaUnreachablePeer, "prov_err: Not a directory"),
    row(Signature::EfaUnreachablePeer, "Operation with NULL context completed with error"),
    row(Signature::EfaUnreachablePeer, "Unreachable remote"),
    with(Signature::ErrorInOfi, "completed with error", &["NET/OFI"], &[]),
    with(Signature::ErrorInOfi, "NET/OFI", &["Failed to process completions"], &[]),
    with(Signature::ErrorInOfi, "NET/OFI", &["Error posting"], &[]),
    row(Signature::EfaUnreachablePeer, "FI_EHOSTUNREACH"),
    row(Signature::EfaUnreachablePeer, "security group"),
    row(Signature::OfiResources, "Couldn't open AV"),
    row(Signature::OfiResources, "Couldn't enable endpoint"),
    row(Signature::OfiResources, "Couldn't open domain"),
    row(Signature::OfiResources, "Couldn't open a domain"),
    row(Signature::OfiResources, "Couldn't open fabric access domain"),
    row(Signature::OfiResources, "Couldn't open a fabric access domain"),
    row(Signature::OfiResources, "Couldn't open endpoint"),
    row(Signature::OfiResources, "Unable to insert remote address into address vector"),
    row(Signature::OfiResources, "ALLOC_PD err"),
    row(Signature::OfiResources, "Failure to post internal receive buffers"),
    with(Signature::OfiResources, "Creating new endpoint for domain", &["failed"], &[]),
    row(Signature::OfiResources, "Unable to write to EQ"),
    with(Signature::OfiResources, "vni", &["cxi"], &[]),
    with(Signature::OfiResources, "VNI", &["cxi"], &[]),
    row(Signature::EfaFork, "libfabric EFA provider is operating in"),
    with(Signature::EfaFork, "RDMAV_FORK_SAFE", &[], &["Setting ", "set by environment", "export ", "-x "]),
    row(Signature::ForkOutOfMemory, "OSError: [Errno 12] Cannot allocate memory"),
    row(Signature::LibfabricTooOld, "requires at least libfabric version"),
    row(Signature::LibfabricTooOld, "requires at least Libfabric version"),
    row(Signature::LibfabricTooOld, "Disabling shared memory failed"),
    row(Signature::LibfabricTooOld, "Couldn't set FI_OPT_E"),
    with(Signature::LibfabricTooOld, "FI_OPT_", &["failed"], &[]),
    with(Signature::LibfabricTooOld, "FI_OPT_", &["Protocol not available"], &[]),
    row(Signature::RailMismatch, "Unexpected number of remote rails"),
    with(Signature::IbNoDevice, "No device found", &["NET/IB"], &[]),
    row(Signature::IbNoDevice, "Failed to open libibverbs"),
    row(Signature::IbNoDevice, "call to devices() returned 0"),
    with(Signature::IbDisabled, "NCCL_IB_DISABLE set by environment to 1", &[], &[]),
    row(Signature::SocketsRequested, "NCCL_NET set by environment to Socket"),
    with(Signature::P2pDisabled, "NCCL_P2P_DISABLE set by environment to 1", &[], &[]),
    with(Signature::ShmDisabled, "NCCL_SHM_DISABLE set by environment to 1", &[], &[]),
    with(Signature::IbDisabled, "NCCL_NET_DISABLE", &[" 1"], &[]),
    completed("ith error ", &["ompletion"]),
    completed("status=", &["ompletion"]),
    completed("IBV_WC_", &[]),
    row(Signature::QpTransition, "ibv_modify_qp failed"),
    with(Signature::QpTransition, "ibv_query_gid", &["failed"], &[]),
    with(Signature::QpTimeout, "ibv_modify_qp", &["Connection timed out"], &[]),
    with(Signature::QpTimeout, "ibv_modify_qp", &[" 110 "], &[]),
    row(Signature::IbAsyncEvent, "Got async event"),
    row(Signature::IbAsyncEvent, "async fatal event"),
    row(Signature::IbAsyncEvent, "Got async fatal event"),
    row(Signature::IbAsyncEvent, "non-fatal async event"),
    row(Signature::IbAsyncEvent, "local catastrophic error"),
    row(Signature::IbAsyncEvent, "ibv_get_async_event failed"),
    with(Signature::IbAsyncEvent, "port error", &[], &["support"]),
    row(Signature::IbAsyncEvent, "port_err"),
    with(Signature::MemoryRegistration, "ibv_reg_mr", &["failed"], &["Bad address", "not supported"]),
    with(Signature::MemoryRegistration, "ibv_reg_dmabuf_mr", &["failed", "Cannot allocate memory"], &[]),
    with(Signature::MemoryRegistration, "ibv_create_qp", &["failed"], &["not supported"]),
    with(Signature::MemoryRegistration, "ibv_create_cq", &["failed"], &["not supported"]),
    with(Signature::MemoryRegistration, "ibv_alloc_pd", &["failed"], &["not supported"]),
    row(Signature::MemoryRegistration, "Failure to post internal receive buffers"),
    with(Signature::MemoryRegistration, "Unable to write to EQ", &["Cannot allocate memory"], &[]),
    // NCCL prints it for its socket network too, which never supports it.
    with(Signature::IbGdrDisabled, "GPU Direct RDMA Disabled for HCA", &[], &["NET/Socket"]),
    with(Signature::GdrTooFar, "GPU Direct RDMA Disabled for GPU", &[], &[]),
    row(Signature::IncompatibleIbDevices, "Trying to connect incompatible IB devices"),
    row(Signature::DeviceCountsMixed, "Detected mixed local Net device counts"),
    row(Signature::ShmTooSmall, "failed to extend /dev/shm"),
    with(Signature::ShmTooSmall, "No space left on device", &["shm"], &[]),
    row(Signature::ShmTooSmall, "Error while creating shared memory segment"),
    row(Signature::ShmTooSmall, "posix_fallocate failed"),
    with(Signature::P2pUnavailable, "P2P is disabled between", &[], &["NVLINK"]),
    row(Signature::NvlinkP2pBroken, "P2P is disabled between NVLINK connected GPUs"),
    row(Signature::NvlsFailed, "Failed to bind NVLink SHARP"),
    row(Signature::NvlsFailed, "CUDA error 401"),
    with(Signature::NvlsFailed, "NVLS", &["ailed"], &["IMEX", "MNNVL"]),
    with(Signature::NvlsFailed, "NVLS", &["Cuda failure"], &["IMEX", "MNNVL"]),
    row(Signature::NvlsUnavailable, "NVLS multicast support is not available"),
    row(Signature::CollnetUnavailable, "Cannot initialize CollNet"),
    with(Signature::CollnetUnavailable, "CollNet", &["not supported"], &["ncclCollNet", "CollNetPlugin"]),
    with(Signature::CollnetUnavailable, "CollNet", &["ignor"], &["ncclCollNet", "CollNetPlugin"]),
    with(Signature::CollnetUnavailable, "CollNet", &["disabl"], &["ncclCollNet", "CollNetPlugin"]),
    row(Signature::CollnetUnavailable, "SHARP coll init error"),
    row(Signature::CollnetUnavailable, "sharp_get_job_data_len failed"),
    row(Signature::CollnetUnavailable, "not initialized! CollNet"),
    with(Signature::CollnetRequested, "NCCL_ALGO", &["COLLNET"], &[]),
    with(Signature::CollnetRequested, "NCCL_ALGO", &["CollNet"], &[]),
    with(Signature::MnnvlBroken, "MNNVL", &["is available but not working"], &[]),
    with(Signature::MnnvlBroken, "MNNVL", &["not working on this system"], &[]),
    row(Signature::MnnvlBroken, "IMEX channel configuration"),
    row(Signature::MnnvlBroken, "Cuda failure 800 'operation not permitted'"),
    row(Signature::NoInterface, "no socket interface found"),
    row(Signature::NoInterface, "No interface found"),
    row(Signature::NoInterface, "neither AF_INET"),
    row(Signature::NoInterface, "Could not find any interface"),
    row(Signature::NoInterface, "Could not find any usable interface"),
    row(Signature::SuspiciousInterface, "Bootstrap : Using"),
    row(Signature::SuspiciousInterface, "Bootstrap: Using"),
    row(Signature::SuspiciousInterface, "Bootstrap :Using"),
    row(Signature::SuspiciousInterface, "NET/Socket : Using"),
    row(Signature::SuspiciousInterface, "NET : Using interface"),
    row(Signature::SuspiciousInterface, "onnect to "),
    with(Signature::ConnectFailed, "onnect to ", &["failed"], &["ibv_"]),
    row(Signature::ConnectFailed, "socketPollConnect"),
    row(Signature::ConnectFailed, "Software caused connection abort"),
    with(Signature::ConnectFailed, "Connection refused", &[], &["ibv_"]),
    with(Signature::ConnectFailed, "Connection timed out", &[], &["ibv_"]),
    with(Signature::ConnectFailed, "Connection reset by peer", &["onnect to"], &["ibv_"]),
    with(Signature::ConnectFailed, "No route to host", &[], &["ibv_"]),
    with(Signature::StrayConnection, "wrong type ", &[" != "], &[]),
    row(Signature::StrayConnection, "socketFinalizeAccept"),
    row(Signature::StrayConnection, "invalid magic"),
    row(Signature::StrayConnection, "wrong magic"),
    row(Signature::StrayConnection, "magic mismatch"),
    row(Signature::VersionMismatch, "Mismatched NCCL version"),
    row(Signature::CollectiveMismatch, "essage truncated"),
    row(Signature::CollectiveMismatch, "Mismatched collective"),
    row(Signature::CollectiveMismatch, "collective mismatch"),
    row(Signature::DuplicateGpu, "Duplicate GPU detected"),
    row(Signature::Hccl, "] HCCL("),
    row(Signature::Hccl, "ProcessGroupHCCL"),
    row(Signature::WatchdogTimeout, "Watchdog caught collective operation timeout"),
    row(Signature::WatchdogTimeout, "WorkNCCL(SeqNum="),
    row(Signature::WatchdogTimeout, "collective operation timeout"),
    row(Signature::PeerClosed, "Connection closed by remote peer"),
    row(Signature::PeerClosed, "Connection closed by peer"),
    row(Signature::PeerClosed, "Socket recv failed"),
    row(Signature::PeerClosed, "remote process exited or there was a network error"),
    with(Signature::TopologyXml, "Attribute ", &[" of node ", " not found"], &[]),
    row(Signature::TopologyXml, "XML parse"),
    row(Signature::TopologyXml, "XML Import"),
    row(Signature::TopologyXml, "XML Mismatch"),
    row(Signature::TopologyXml, "Could not find XML"),
    row(Signature::TopologyXml, "NCCL_TOPO_XML_MAX_NODES"),
    with(Signature::CudaFailure, "Cuda failure", &["'"], &["operation not permitted"]),
    row(Signature::CudaFailure, "Failed to find CUDA library"),
    with(Signature::CumemHostFallback, "cuMem host", &["disabled"], &[]),
    with(Signature::CumemHostFallback, "cuMem host", &[" not "], &[]),
    with(Signature::CumemHostFallback, "falling back", &["cuMem"], &[]),
    with(Signature::NetworkNotFound, "Error: network ", &[" not found"], &[]),
    row(Signature::NetworkNotFound, "Failed to initialize any NET plugin"),
    with(Signature::OneNicFound, "(found 1 nics)", &[], &[]),
    with(Signature::EfaRegistration, "Unable to register memory (type = 2)", &["RC: -22"], &[]),
    row(Signature::HmemWithoutGdr, "Could not disable CUDA API usage for HMEM, disabling GDR"),
    row(Signature::DeviceNotOpened, "Unable to open device "),
    with(Signature::DeviceNotOpened, "could not open ", &[" ("], &[]),
    // Facts that the rules need, and that are no faults by themselves.
    row(Signature::OnAws, "Configuring AWS-specific options"),
    with(Signature::OnAws, "Running on ", &["platform", "NCCL_TOPO_FILE"], &[]),
    row(Signature::OnAws, "Plugin selected platform: AWS"),
    row(Signature::EfaNamed, "provider_filter to efa"),
    row(Signature::EfaNamed, "FI_EFA_"),
    row(Signature::EfaNamed, "efa_nv_peermem"),
    row(Signature::EfaNamed, "[::]efa:"),
    row(Signature::EfaNamed, ":efa:"),
    with(Signature::GdrInstance, "p4d", &["NET/OFI"], &[]),
    with(Signature::GdrInstance, "P4d", &["NET/OFI"], &[]),
    with(Signature::GdrInstance, "p5", &["NET/OFI"], &[]),
    with(Signature::GdrInstance, "P5", &["NET/OFI"], &[]),
    with(Signature::GdrInstance, "p6-", &["NET/OFI"], &[]),
    with(Signature::InstanceWithoutGdr, "g4dn", &["NET/OFI"], &[]),
    with(Signature::InstanceWithoutGdr, "p3dn", &["NET/OFI"], &[]),
    with(Signature::InstanceWithoutGdr, "g5.", &["NET/OFI"], &[]),
    row(Signature::SocketChosen, "Using network Socket"),
    row(Signature::SocketChosen, "Using internal Network Socket"),
    row(Signature::SocketChosen, "Initialized NET plugin Socket"),
    row(Signature::SocketChosen, "Socket NIC distance"),
    row(Signature::IbDeviceList, "NET/IB : Using ["),
    row(Signature::VersionPrinted, "NCCL version "),
    // `file:line -> code` traces an error through the files it passed.
    with(Signature::ErrorInSocket, "transport/net_socket.cc:", &[" -> "], &[]),
    with(Signature::ErrorInIb, "transport/net_ib", &[" -> "], &[]),
];

fn automaton() -> Option<&'static AhoCorasick> {
    static AUTOMATON: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    AUTOMATON
        .get_or_init(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::Standard)
                .build(TABLE.iter().map(|row| row.needle))
                .ok()
        })
        .as_ref()
}

/// Passes every signature of a line to `sink`, each once.
pub fn find(level: Option<Level>, location: &[u8], message: &[u8], mut sink: impl FnMut(Signature)) {
    let mut found: Vec<Signature> = Vec::new();
    let mut once = |id: Signature| {
        if !found.contains(&id) {
            found.push(id);
            sink(id);
        }
    };
    if matches!(level, Some(Level::Warn | Level::Attention)) {
        in_location(location, message, &mut once);
    }
    let Some(automaton) = automaton() else { return };
    // A row is judged by its first hit, against the whole message.
    let mut judged_rows = [false; TABLE.len()];
    for hit in automaton.find_overlapping_iter(message) {
        let at = hit.pattern().as_usize();
        if std::mem::replace(&mut judged_rows[at], true) {
            continue;
        }
        let row = &TABLE[at];
        let fits = row.all.iter().all(|needle| contains(message, needle))
            && !row.none.iter().any(|needle| contains(message, needle));
        if fits {
            let found = match row.points_at {
                Target::Completion => completion(message),
                Target::Signature(id) => judged(id, level, location, message),
            };
            found.into_iter().for_each(&mut once);
        }
    }
}

/// Finds the signatures of a warning by its file, whatever its message.
fn in_location(location: &[u8], message: &[u8], mut sink: impl FnMut(Signature)) {
    if contains(location, "transport/nvls.cc:") && !contains(message, "MNNVL") {
        sink(Signature::NvlsFailed);
    }
    for (file, id) in [
        ("net_ib", Signature::ErrorInIb),
        ("ibvwrap.cc", Signature::ErrorInIb),
        ("net_socket.cc", Signature::ErrorInSocket),
        ("ib_plugin.c:", Signature::ErrorInIbExternal),
        ("ibvwrap.c:", Signature::ErrorInIbExternal),
        ("ibv_wrap.c:", Signature::ErrorInIbExternal),
        (" socket.c:", Signature::ErrorInIbExternal),
    ] {
        // A missing libibverbs is reported from ibvwrap.cc and means that IB is not used.
        let named = contains(location, file)
            || file.strip_prefix(' ').is_some_and(|own| location.starts_with(own.as_bytes()));
        if named && !contains(message, "Failed to open libibverbs") {
            sink(id);
        }
    }
}

/// Finds signatures that depend on numbers or names.
fn judged(id: Signature, level: Option<Level>, location: &[u8], message: &[u8]) -> Option<Signature> {
    let keep = match id {
        Signature::PluginAbi => versioned_library(message),
        Signature::LibcTooOld => !versioned_library(message) && missing_runtime_version(message),
        Signature::PluginDependency => return missing_library(message),
        Signature::OfiOtherProvider => return provider(message),
        Signature::EfaUnreachablePeer if contains(message, "err: 2") || contains(message, "RC: 2") => {
            efa_completion(message)
        }
        Signature::IbDisabled | Signature::P2pDisabled | Signature::ShmDisabled => ends_in_one(message),
        Signature::GdrTooFar => contains(message, "(distance ") && contains(message, ">"),
        Signature::SuspiciousInterface => return suspicious_interface(message),
        Signature::ConnectFailed => level.is_some() || in_rendezvous(message),
        Signature::TopologyXml => level != Some(Level::Info) || !contains(message, "XML Import"),
        Signature::CudaFailure => {
            !contains(location, "nvls") && !contains(location, "mnnvl") && !contains(message, "NVLS")
        }
        Signature::MemoryRegistration => !contains(message, "ibv_reg_mr_iova2 not"),
        _ => true,
    };
    keep.then_some(id)
}

/// Returns whether the dynamic loader reports a too old C or C++ library, with either kind of quotes.
fn missing_runtime_version(message: &[u8]) -> bool {
    ["version `GLIBC", "version 'GLIBC"].iter().any(|start| contains(message, start))
        && ["libc.so", "libm.so", "libstdc++.so", "libpthread.so"]
            .iter()
            .any(|library| contains(message, library))
}

/// Returns whether the object of the missing symbol version is part of the network stack.
fn versioned_library(message: &[u8]) -> bool {
    let known = ["GLIBC", "CXXABI", "FABRIC", "IBVERBS", "EFA_", "MLX5"];
    let parts = ["nccl", "libfabric", "ibverbs", "libefa", "mlx5", "rdmacm"];
    behind(message, "version `")
        .is_some_and(|rest| known.iter().any(|name| rest.starts_with(name.as_bytes())))
        && parts.iter().any(|part| contains(message, part))
}

/// Finds the library whose absence kept the plugin from loading: the plugin itself (R02) or one that it
/// needs (R04).
fn missing_library(message: &[u8]) -> Option<Signature> {
    let end = memchr::memmem::find(message, b": cannot open shared object")?;
    let start =
        message[..end].iter().rposition(|byte| matches!(byte, b' ' | b':' | b'=' | b'(' | b'\'' | b'"'));
    let object = &message[start.map_or(0, |at| at + 1)..end];
    let file = object.rsplit(|byte| *byte == b'/').next().unwrap_or(object);
    if contains(file, "nccl-net") {
        return Some(Signature::PluginNotFound);
    }
    let always = [&b"libhwloc"[..], b"libcudart", b"libfabric", b"libefa"];
    let needed = always.iter().any(|name| file.starts_with(name))
        || (contains(message, "NET/Plugin") && file.starts_with(b"lib"))
        || (contains(message, "nccl-net") && file.starts_with(b"lib"));
    if needed {
        Some(Signature::PluginDependency)
    } else if contains(message, "NET/Plugin") {
        Some(Signature::PluginNotFound)
    } else {
        None
    }
}

/// Finds a provider other than those that are correct on their own fabrics: cxi (Slingshot), psm2/psm3, opx
/// (Omni-Path), gni.
fn provider(message: &[u8]) -> Option<Signature> {
    let rest = behind(message, "rovider is ")?;
    let right = [&b"efa"[..], b"cxi", b"psm", b"opx", b"gni", b"ucx", b"lnx"];
    let cut = rest.is_empty();
    (!cut && !right.iter().any(|name| rest.starts_with(name))).then_some(Signature::OfiOtherProvider)
}

/// Returns whether a code is one of EFA's completion codes: `RC: 20` (plugin 1.3 to 1.20), `err: 20` (1.21)
/// and the like.
fn efa_completion(message: &[u8]) -> bool {
    ["RC: ", "err: "].iter().any(|label| {
        behind(message, label)
            .is_some_and(|rest| Cursor::new(rest).number().is_some_and(|code| (20..30).contains(&code)))
    })
}

/// Returns whether a text has `… set by environment to 1`, and not `to 10`; true without these words.
fn ends_in_one(message: &[u8]) -> bool {
    behind(message, "environment to ")
        .is_none_or(|rest| rest.first() == Some(&b'1') && !rest.get(1).is_some_and(u8::is_ascii_digit))
}

/// Returns the signature of an InfiniBand completion: the first error is the cause, 5 (flush) its
/// consequence.
fn completion(message: &[u8]) -> Option<Signature> {
    for (name, id) in [
        ("IBV_WC_RETRY_EXC_ERR", Signature::IbRetryExceeded),
        ("IBV_WC_WR_FLUSH_ERR", Signature::IbFlushed),
        ("IBV_WC_LOC_PROT_ERR", Signature::IbLocalProtection),
        ("IBV_WC_REM_", Signature::IbRemoteRefused),
    ] {
        if contains(message, name) {
            return Some(id);
        }
    }
    let rest = behind(message, "status=").or_else(|| behind(message, "ith error "))?;
    match Cursor::new(rest).number()? {
        12 => Some(Signature::IbRetryExceeded),
        5 => Some(Signature::IbFlushed),
        4 => contains(message, "vendor").then_some(Signature::IbLocalProtection),
        9..=11 => Some(Signature::IbRemoteRefused),
        _ => None,
    }
}

/// Returns whether a line without NCCL's prefix is about the ranks' rendezvous, and not about another
/// connection.
fn in_rendezvous(message: &[u8]) -> bool {
    ["NCCL", "nccl", "c10d", "TCPStore", "socketStartConnect", "[W socket", "[E socket"]
        .iter()
        .any(|name| contains(message, name))
}

/// Finds interfaces that other hosts cannot reach. `lo` is separate, since on a single node it is correct.
fn suspicious_interface(message: &[u8]) -> Option<Signature> {
    let rest =
        ["Bootstrap : Using", "Bootstrap: Using", "NET/Socket : Using", "Using interface", "onnect to "]
            .iter()
            .find_map(|label| behind(message, label))
            .unwrap_or(message);
    let never = ["docker", "veth", "virbr", "cni", "flannel", "cali", "pod-id-link", "169.254.", "fe80::"];
    if never.iter().any(|name| contains(rest, name)) || bridge(rest) {
        return Some(Signature::SuspiciousInterface);
    }
    (loopback(rest)).then_some(Signature::LoopbackInterface)
}

fn bridge(rest: &[u8]) -> bool {
    memchr::memmem::find_iter(rest, b"br-").any(|at| at == 0 || !rest[at - 1].is_ascii_alphanumeric())
}

fn loopback(rest: &[u8]) -> bool {
    contains(rest, "127.0.0.1")
        || memchr::memmem::find_iter(rest, b"lo:").any(|at| at == 0 || !rest[at - 1].is_ascii_alphanumeric())
}
