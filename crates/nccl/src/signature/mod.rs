//! Signatures: wordings of log lines that indicate a cause, in one table that is searched once for each line. A
//! signature alone proves nothing; the rules consider it together with the rest of the log.

mod condition;
mod table;

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use condition::{
    completion, efa_completion, ends_in_one, ends_with_retry, in_store, is_error_trace, is_failed_call,
    is_last_try, is_of_nccl, missing_library, missing_runtime_version, provider, suspicious_interface,
    versioned_library,
};
use table::{TABLE, Target};

use super::record::Level;
use super::text::contains;

/// A warning with the signature means that its rank failed.
const FAILS: bool = true;
/// NCCL continues after a warning with the signature, or it is no warning.
const CONTINUES: bool = false;

/// Declares the signatures, each with whether a warning with it means that its rank failed.
macro_rules! signatures {
    ($(#[$about:meta])* pub enum Signature { $($(#[$note:meta])* $name:ident: $fails:ident,)* }) => {
        $(#[$about])*
        pub enum Signature { $($(#[$note])* $name,)* }

        impl Signature {
            /// Returns whether a warning with this signature means that its rank failed.
            pub fn fails_rank(self) -> bool {
                match self { $(Self::$name => $fails,)* }
            }
        }
    };
}

signatures! {
    /// What a log line indicates: a fault, or a fact that rules need.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Signature {
        /// No external network plugin was found.
        PluginNotFound: FAILS,
        /// A plugin, or a library it needs, requires newer symbols than the container has.
        PluginAbi: FAILS,
        /// A program needs a newer C or C++ library than the container has.
        LibcTooOld: FAILS,
        /// A library that the network plugin needs is missing.
        PluginDependency: FAILS,
        /// A plugin was found whose interface is older than this NCCL.
        PluginTooOld: FAILS,
        /// libfabric found no provider for the plugin.
        OfiNoProvider: FAILS,
        /// libfabric selected a provider that is neither EFA nor another fabric's own.
        OfiOtherProvider: FAILS,
        /// The plugin refuses a provider other than EFA.
        OfiOnlyEfa: FAILS,
        /// The aws-ofi-nccl plugin could not be initialised.
        OfiInitFailed: FAILS,
        /// The plugin disabled GPUDirect RDMA on an instance that has it.
        OfiGdrDisabled: FAILS,
        /// libfabric's `FI_HMEM` needs RDMA, which is off.
        OfiHmemNeedsRdma: FAILS,
        /// EFA packets to a peer are dropped.
        EfaUnreachablePeer: FAILS,
        /// A resource of libfabric could not be made.
        OfiResources: FAILS,
        /// A process forked while it held EFA memory.
        EfaFork: FAILS,
        /// A fork failed for want of memory.
        ForkOutOfMemory: FAILS,
        /// libfabric is older than the plugin needs.
        LibfabricTooOld: FAILS,
        /// Two nodes group their NICs differently.
        RailMismatch: FAILS,
        /// NCCL's IB network found no device.
        IbNoDevice: CONTINUES,
        /// `NCCL_IB_DISABLE` or `NCCL_NET_DISABLE` is set.
        IbDisabled: FAILS,
        /// `NCCL_NET=Socket` is set.
        SocketsRequested: FAILS,
        /// `NCCL_P2P_DISABLE` is set.
        P2pDisabled: FAILS,
        /// `NCCL_SHM_DISABLE` is set.
        ShmDisabled: FAILS,
        /// A completion failed because retries were exceeded (status 12).
        IbRetryExceeded: FAILS,
        /// A work request was flushed (status 5).
        IbFlushed: FAILS,
        /// A NIC was denied access to memory (status 4).
        IbLocalProtection: FAILS,
        /// The peer refused an RDMA request (status 9 to 11).
        IbRemoteRefused: FAILS,
        /// A queue pair could not change its state.
        QpTransition: FAILS,
        /// Connecting a queue pair timed out.
        QpTimeout: FAILS,
        /// An HCA reported an asynchronous event.
        IbAsyncEvent: FAILS,
        /// An HCA reported an error of one queue pair.
        IbQpEvent: FAILS,
        /// Memory could not be registered, or a queue not made.
        MemoryRegistration: FAILS,
        /// A NIC refused to register memory, for another reason than a limit.
        RegistrationRefused: FAILS,
        /// GPUDirect RDMA is off for an HCA.
        IbGdrDisabled: FAILS,
        /// GPUDirect RDMA is off because GPU and NIC are far apart.
        GdrTooFar: FAILS,
        /// InfiniBand and Ethernet ports would be connected to each other.
        IncompatibleIbDevices: FAILS,
        /// Ranks of one node see different numbers of NICs.
        DeviceCountsMixed: FAILS,
        /// Shared memory could not be made or extended.
        ShmTooSmall: FAILS,
        /// A shared memory segment could not be made; the line does not say why.
        ShmNotMade: FAILS,
        /// CUDA could not register a shared memory segment.
        ShmNotRegistered: FAILS,
        /// CUDA could not give a GPU the host memory that NCCL's SHM transport made.
        ShmHostMemory: FAILS,
        /// GPUs cannot reach each other's memory over PCIe.
        P2pUnavailable: FAILS,
        /// A process could not open the memory of another one's GPU.
        PeerMemoryRefused: FAILS,
        /// GPUs joined by NVLink cannot reach each other's memory.
        NvlinkP2pBroken: FAILS,
        /// NVLink SHARP could not be set up.
        NvlsFailed: FAILS,
        /// NVLink SHARP has no multicast object left for a communicator.
        NvlsSlots: FAILS,
        /// A shared memory segment that a peer named does not exist.
        ShmAttach: FAILS,
        /// The address of a peer is empty.
        AddressEmpty: FAILS,
        /// A connection to a link-local address failed.
        LinkLocal: FAILS,
        /// EFA: the peer's queue pair no longer exists.
        EfaPeerGone: FAILS,
        /// libfabric's efa provider ended the process.
        EfaAbort: FAILS,
        /// libfabric selected a provider that fits its fabric.
        OfiProvider: CONTINUES,
        /// A request to NCCL's own proxy thread failed: a consequence of what the thread met.
        ProxyFailed: FAILS,
        /// Gloo could not connect the ranks.
        GlooMesh: FAILS,
        /// The port of the rendezvous is in use.
        RendezvousPort: FAILS,
        /// The rendezvous was not reached in time.
        RendezvousTimeout: FAILS,
        /// A try to reach the store of the rendezvous failed; later ones may succeed.
        StoreUnreachable: CONTINUES,
        /// NCCL passed an error on (`file.cc:12 -> 3`) whose reason it did not print.
        ErrorTrace: CONTINUES,
        /// Gloo finds no interface of the name that it was given.
        GlooInterface: FAILS,
        /// One-sided operations over sockets are not available.
        RmaUnavailable: CONTINUES,
        /// CUDA is not initialised (802): the fabric manager does not run.
        CudaNotReady: FAILS,
        /// NVLink SHARP multicast is not available.
        NvlsUnavailable: CONTINUES,
        /// CollNet (SHARP) is not used.
        CollnetUnavailable: FAILS,
        /// `NCCL_ALGO` requests CollNet.
        CollnetRequested: FAILS,
        /// Multi-node NVLink is present but does not work.
        MnnvlBroken: FAILS,
        /// No network interface fits.
        NoInterface: FAILS,
        /// An interface was chosen that other hosts may not reach.
        SuspiciousInterface: CONTINUES,
        /// The loopback interface was chosen.
        LoopbackInterface: CONTINUES,
        /// A TCP connection failed.
        ConnectFailed: FAILS,
        /// A connection did not come from a rank of this job.
        StrayConnection: FAILS,
        /// NCCL reports that versions differ.
        VersionMismatch: FAILS,
        /// Ranks disagree on a collective or its size.
        CollectiveMismatch: FAILS,
        /// While ranks connected, one got a message of another size than it waited for.
        BootstrapMixed: FAILS,
        /// A line of Huawei's HCCL, which is not NCCL.
        Hccl: FAILS,
        /// Two ranks use one GPU.
        DuplicateGpu: FAILS,
        /// A collective timed out.
        WatchdogTimeout: FAILS,
        /// A peer closed its connection.
        PeerClosed: FAILS,
        /// A topology file does not fit.
        TopologyXml: FAILS,
        /// NCCL found no good rings or trees.
        SimpleOrder: CONTINUES,
        /// An ssh server accepted no key.
        SshRefused: FAILS,
        /// Docker's daemon does not run, or may not be used.
        ContainerDaemon: FAILS,
        /// A CUDA call failed inside NCCL.
        CudaFailure: FAILS,
        /// NCCL found no `libcuda.so`.
        CudaLibraryMissing: CONTINUES,
        /// Two processes have one rank.
        RankTaken: FAILS,
        /// NCCL does not find a PCI device in `/sys`.
        SysPathMissing: FAILS,
        /// RCCL misses a parameter of the kernel or a variable that it recommends.
        SettingRecommended: CONTINUES,
        /// A kernel of NCCL needs more shared memory than a block of this GPU has.
        KernelTooLarge: FAILS,
        /// The subnet manager, or a port that is up, told an HCA something.
        IbSubnetEvent: CONTINUES,
        /// Google's FastSocket did not place a connection by the queue of the NIC.
        SocketNotPlaced: CONTINUES,
        /// A call of NCCL returned an error (`group.cc:64 -> 2`).
        CallFailed: CONTINUES,
        /// A process of the node closed its connection to another one's proxy thread.
        LocalRankClosed: CONTINUES,
        /// A communicator failed: a consequence of what another line reports.
        CommFailed: FAILS,
        /// Host memory is not allocated with cuMem.
        CumemHostFallback: CONTINUES,
        /// The requested network is missing.
        NetworkNotFound: FAILS,
        /// The plugin found one NIC.
        OneNicFound: FAILS,
        /// Memory of a GPU could not be registered with EFA (-22).
        EfaRegistration: FAILS,
        /// libfabric's CUDA calls cannot be switched off, so GPUDirect RDMA is.
        HmemWithoutGdr: FAILS,
        /// A listed HCA cannot be opened.
        DeviceNotOpened: FAILS,
        /// The plugin runs on AWS.
        OnAws: CONTINUES,
        /// A message names EFA.
        EfaNamed: CONTINUES,
        /// A message has the address of an EFA endpoint.
        EfaAddress: CONTINUES,
        /// The instance type has GPUDirect RDMA over EFA.
        GdrInstance: CONTINUES,
        /// The instance type has no GPUDirect RDMA over EFA.
        InstanceWithoutGdr: CONTINUES,
        /// A process chose the socket network.
        SocketChosen: CONTINUES,
        /// A list of IB or RoCE devices was printed.
        IbDeviceList: CONTINUES,
        /// A version of NCCL was printed.
        VersionPrinted: CONTINUES,
        /// An error passed through NCCL's socket network.
        ErrorInSocket: CONTINUES,
        /// An error passed through NCCL's IB network.
        ErrorInIb: CONTINUES,
        /// An error passed through the external IB plugin.
        ErrorInIbExternal: CONTINUES,
        /// A request or a completion of the libfabric plugin failed at run time.
        ErrorInOfi: CONTINUES,
        /// Two ranks are connected over sockets.
        SocketConnection: CONTINUES,
        /// Two ranks are connected over libfabric with GPUDirect RDMA.
        OfiConnection: CONTINUES,
        /// Two ranks are connected over libfabric without GPUDirect RDMA.
        OfiConnectionWithoutGdr: CONTINUES,
        /// Two ranks are connected over IB or RoCE with GPUDirect RDMA.
        IbConnection: CONTINUES,
        /// Two ranks are connected over IB or RoCE without GPUDirect RDMA.
        IbConnectionWithoutGdr: CONTINUES,
        /// Two ranks are connected over multi-node NVLink.
        MnnvlConnection: CONTINUES,
        /// A line names a rank beyond the ranks of its communicator.
        ImpossibleRank: CONTINUES,
        /// UCX could not register memory or make a queue.
        UcxRegistration: CONTINUES,
        /// UCX printed what carries data between two nodes.
        UcxLanes: CONTINUES,
        /// UCX emulates access to remote memory in software.
        UcxEmulated: CONTINUES,
        /// A NIC's driver does not support DMA-BUF.
        DmabufUnsupported: FAILS,
        /// The topology has a link in one direction only.
        ReversePathMissing: FAILS,
        /// No interface of the host is in the subnet of the address that it must reach.
        OtherSubnet: FAILS,
        /// The system gave NCCL no socket.
        SocketRefused: FAILS,
        /// The file of NCCL's graph does not fit the node.
        GraphXml: FAILS,
        /// The topology has more devices than NCCL can hold.
        TopologyTooLarge: FAILS,
        /// The libfabric plugin could not register memory.
        OfiRegistration: FAILS,
        /// A process joins with a rank that its world does not have.
        RankInvalid: FAILS,
        /// No algorithm and protocol of NCCL is left for an operation.
        NoAlgorithm: FAILS,
        /// A test program reports an error of CUDA.
        TestCudaFailed: FAILS,
        /// A test program reports the result of a call of NCCL, without its reason.
        TestNcclFailed: CONTINUES,
        /// A warning that no other signature explains.
        UnknownWarning: CONTINUES,
        /// Any warning of NCCL.
        Warning: CONTINUES,
    }
}

impl Signature {
    /// Returns whether the signature shows only which network returned an error, and not its cause.
    pub(crate) fn is_place(self) -> bool {
        matches!(
            self,
            Self::ErrorInSocket
                | Self::ErrorInIb
                | Self::ErrorInIbExternal
                | Self::EfaNamed
                | Self::EfaAddress
                | Self::OnAws
        )
    }
}

impl Signature {
    /// Returns the signatures of a warning's text, such as the one that PyTorch prints below `Last error:`.
    pub fn of_warning(text: &str) -> Vec<Self> {
        let mut found = Vec::new();
        find(Some(Level::Warn), b"", text.as_bytes(), |id| found.push(id));
        found
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
    if contains(location, "transport/nvls.cc:")
        && !["MNNVL", "out of memory"].iter().any(|other| contains(message, other))
    {
        sink(Signature::NvlsFailed);
    }
    let cuda = contains(message, "Cuda failure") && !contains(message, "out of memory");
    if cuda && contains(location, "transport/p2p.cc") {
        sink(Signature::PeerMemoryRefused);
    }
    if contains(location, "transport/shm.cc") && contains(message, "peer access is not supported") {
        sink(Signature::ShmHostMemory);
    }
    if contains(location, "shmutils.cc") || contains(location, "include/shm.h") {
        if cuda {
            sink(Signature::ShmNotRegistered);
        } else if contains(message, "Call to open failed") {
            sink(Signature::ShmAttach);
        }
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
        Signature::EfaUnreachablePeer if contains(message, "completed with error") => efa_completion(message),
        Signature::IbDisabled | Signature::P2pDisabled | Signature::ShmDisabled => ends_in_one(message),
        Signature::GdrTooFar => contains(message, "(distance ") && contains(message, ">"),
        Signature::SuspiciousInterface => return suspicious_interface(message),
        // NCCL announces each of its tries as INFO, and warns where it gives up.
        Signature::ConnectFailed if contains(message, "retrying (") && level == Some(Level::Info) => {
            is_last_try(message)
        }
        Signature::ConnectFailed if level == Some(Level::Info) && ends_with_retry(message) => false,
        Signature::ErrorTrace => is_error_trace(message),
        Signature::CallFailed => is_failed_call(message),
        // PyTorch's store has an address of its own, which no variable of NCCL's changes.
        Signature::ConnectFailed if level.is_none() && in_store(message) => {
            return Some(Signature::StoreUnreachable);
        }
        Signature::ConnectFailed => level.is_some() || is_of_nccl(message),
        Signature::TopologyXml | Signature::GraphXml => {
            level != Some(Level::Info) || !contains(message, "XML Import")
        }
        Signature::CudaFailure => {
            !contains(location, "nvls") && !contains(location, "mnnvl") && !contains(message, "NVLS")
        }
        Signature::MemoryRegistration => !contains(message, "ibv_reg_mr_iova2 not"),
        // The memory is that of the host.
        Signature::PeerMemoryRefused => !contains(location, "transport/shm.cc"),
        // Where NCCL only tries what a NIC can do, it says so as INFO.
        Signature::RegistrationRefused | Signature::DmabufUnsupported => level != Some(Level::Info),
        // A reason in the same line has a signature of its own.
        Signature::ShmNotMade => {
            !["No space left", "out of memory"].iter().any(|reason| contains(message, reason))
        }
        _ => true,
    };
    keep.then_some(id)
}
