//! Signatures: wordings of log lines that indicate a cause, in one table that is searched once for each line. A
//! signature alone proves nothing; the rules consider it together with the rest of the log.

mod condition;
mod table;

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use condition::{
    completion, efa_completion, ends_in_one, in_rendezvous, missing_library, missing_runtime_version,
    provider, suspicious_interface, versioned_library,
};
use table::{TABLE, Target};

use super::prefix::Level;
use super::text::contains;

/// What a log line indicates: a fault, or a fact that rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Signature {
    /// No external network plugin was found.
    PluginNotFound,
    /// A plugin, or a library it needs, requires newer symbols than the container has.
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
    /// An ssh server accepted no key.
    SshRefused,
    /// Docker's daemon does not run, or may not be used.
    ContainerDaemon,
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
    /// Returns whether a warning with this signature means that its rank failed. Warnings after which NCCL
    /// continues do not.
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

    /// Returns whether the signature shows only which network returned an error, and not its cause.
    pub(crate) fn is_place(self) -> bool {
        matches!(
            self,
            Self::ErrorInSocket | Self::ErrorInIb | Self::ErrorInIbExternal | Self::EfaNamed | Self::OnAws
        )
    }
}

static AUTOMATON: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().match_kind(MatchKind::Standard).build(TABLE.iter().map(|row| row.needle)).ok()
});

/// Calls `sink` once for every signature of a line.
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
    let Some(automaton) = &*AUTOMATON else { return };
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
