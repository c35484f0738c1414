//! Every environment variable we read, set or know: ours, and those of NCCL, libfabric, Open MPI, UCX and torch.
//!
//! The lints find misspelt names with these lists, the reference page is made of them, and code names a variable by
//! its constant. The names of others are from their own documentation and sources: NCCL 2.30 (`src/**/param`,
//! docs.nvidia.com/deeplearning/nccl, read 2026-11), aws-ofi-nccl 1.21 (`doc/`), libfabric 2.x (`fi_efa(7)`),
//! PyTorch 2.9 (`torch/distributed/run.py`, `ProcessGroupNCCL.hpp`).
//!
//! Long, because it is data: one line a name.

/// A name with what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvName {
    /// The variable.
    pub name: &'static str,
    /// What it sets.
    pub doc: &'static str,
    /// Whether whatever starts the ranks sets it, each rank's its own.
    pub by_launcher: bool,
}

/// A library with the variables it knows.
#[derive(Clone, Copy, Debug)]
pub struct EnvGroup {
    /// Whose they are.
    pub owner: &'static str,
    /// The variables, sorted.
    pub names: &'static [EnvName],
}

const fn known(name: &'static str, doc: &'static str) -> EnvName {
    EnvName { name, doc, by_launcher: false }
}

const fn started(name: &'static str, doc: &'static str) -> EnvName {
    EnvName { name, doc, by_launcher: true }
}

/// File read instead of the user's config file.
pub const CONFIG: &str = "WEFTRUN_CONFIG";
/// Folder of the user's configuration instead of `$XDG_CONFIG_HOME/weftrun`.
pub const CONFIG_DIR: &str = "WEFTRUN_CONFIG_DIR";
/// Folder of the journal and of what backends keep, instead of `$XDG_STATE_HOME/weftrun`.
pub const STATE_DIR: &str = "WEFTRUN_STATE_DIR";
/// Target used when none is named, as `-b`.
pub const TARGET: &str = "WEFTRUN_TARGET";
/// As `WEFTRUN_TARGET`: what `-b` takes.
pub const BACKEND: &str = "WEFTRUN_BACKEND";
/// Kubernetes namespace, as `-n`.
pub const NAMESPACE: &str = "WEFTRUN_NAMESPACE";
/// Project, as `-p`.
pub const PROJECT: &str = "WEFTRUN_PROJECT";
/// Profile of the site, as `--profile`.
pub const PROFILE: &str = "WEFTRUN_PROFILE";
/// Output format, as `-o`.
pub const OUTPUT: &str = "WEFTRUN_OUTPUT";
/// `auto`, `always` or `never`, as `--color`.
pub const COLOR: &str = "WEFTRUN_COLOR";
/// Fabric of jobs that name none.
pub const FABRIC: &str = "WEFTRUN_FABRIC";
/// Queue, partition or node pool of jobs that name none.
pub const QUEUE: &str = "WEFTRUN_QUEUE";
/// Priority class or qos of jobs that name none.
pub const PRIORITY: &str = "WEFTRUN_PRIORITY";
/// Instance type of jobs that name none.
pub const INSTANCE_TYPE: &str = "WEFTRUN_INSTANCE_TYPE";
/// Image of jobs that name none.
pub const IMAGE: &str = "WEFTRUN_IMAGE";

/// What weftrun reads.
pub static OURS: &[EnvName] = &[
    known(BACKEND, "As `WEFTRUN_TARGET`: what `-b` takes"),
    known(COLOR, "`auto`, `always` or `never`, as `--color`"),
    known(CONFIG, "File read instead of the user's config file"),
    known(CONFIG_DIR, "Folder of the user's configuration instead of `$XDG_CONFIG_HOME/weftrun`"),
    known(FABRIC, "Fabric of jobs that name none"),
    known(IMAGE, "Image of jobs that name none"),
    known(INSTANCE_TYPE, "Instance type of jobs that name none"),
    known(NAMESPACE, "Kubernetes namespace, as `-n`"),
    known(OUTPUT, "Output format, as `-o`"),
    known(PRIORITY, "Priority class or qos of jobs that name none"),
    known(PROFILE, "Profile of the site, as `--profile`"),
    known(PROJECT, "Project, as `-p`"),
    known(QUEUE, "Queue, partition or node pool of jobs that name none"),
    known(STATE_DIR, "Folder of the journal and of what backends keep, instead of `$XDG_STATE_HOME/weftrun`"),
    known(TARGET, "Target used when none is named, as `-b`"),
];

/// What NCCL reads.
pub static NCCL: &[EnvName] = &[
    known("NCCL_ALGO", "Algorithms it may choose from"),
    known("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "LL buffers for network point-to-point"),
    known("NCCL_ASYNC_ERROR_HANDLING", "Old name of TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    known("NCCL_BLOCKING_WAIT", "Old name of TORCH_NCCL_BLOCKING_WAIT"),
    known("NCCL_BUFFSIZE", "Bytes of a channel's buffer"),
    known("NCCL_CGA_CLUSTER_SIZE", "Blocks of a cooperative group array"),
    known("NCCL_CHECKS_DISABLE", "Argument checks (old name)"),
    known("NCCL_CHECK_MODE", "Which checks run"),
    known("NCCL_CHECK_POINTERS", "Check of pointers"),
    known("NCCL_CHUNK_SIZE", "Bytes of a chunk"),
    known("NCCL_COLLNET_ENABLE", "In-network collectives (SHARP)"),
    known("NCCL_COLLNET_NODE_THRESHOLD", "Nodes from which CollNet is used"),
    known("NCCL_COMM_BLOCKING", "Whether calls block"),
    known("NCCL_COMM_ID", "Address of the bootstrap root"),
    known("NCCL_COMM_SHRINK_SHARE_RESOURCES", "Whether shrunk communicators share resources"),
    known("NCCL_COMM_SPLIT_SHARE_RESOURCES", "Whether split communicators share resources"),
    known("NCCL_CONF_FILE", "Configuration file"),
    known("NCCL_CONNECT_ROUND_MAX_PEERS", "Peers connected at once"),
    known("NCCL_CREATE_THREAD_CONTEXT", "CUDA context of its threads"),
    known("NCCL_CROSS_NIC", "Whether rings may change NIC between nodes"),
    known("NCCL_CTA_POLICY", "Policy for thread blocks"),
    known("NCCL_CUMEM_ENABLE", "Memory through cuMem"),
    known("NCCL_CUMEM_HOST_ENABLE", "Host memory through cuMem"),
    known("NCCL_DEBUG", "How much it logs: `VERSION`, `WARN`, `INFO`, `TRACE`"),
    known("NCCL_DEBUG_FILE", "File it logs to instead of stdout"),
    known("NCCL_DEBUG_SUBSYS", "Parts of it that log"),
    known("NCCL_DEBUG_TIMESTAMP_FORMAT", "Format of the times in its log"),
    known("NCCL_DEBUG_TIMESTAMP_LEVELS", "Levels whose lines carry a time"),
    known("NCCL_DMABUF_ENABLE", "GPUDirect RDMA through DMA-BUF"),
    known("NCCL_ENV_PLUGIN", "Plugin that supplies settings"),
    known("NCCL_GDRCOPY_ENABLE", "GDRCopy for flags"),
    known("NCCL_GDRCOPY_FIFO_ENABLE", "GDRCopy for its queues"),
    known("NCCL_GDRCOPY_FLUSH_ENABLE", "GDRCopy for flushes"),
    known("NCCL_GDRCOPY_SYNC_ENABLE", "GDRCopy for flags"),
    known("NCCL_GDR_FLUSH_DISABLE", "Flush after GPUDirect reads"),
    known("NCCL_GIN_ENABLE", "GPU-initiated networking"),
    known("NCCL_GIN_PLUGIN", "Plugin for GPU-initiated networking"),
    known("NCCL_GIN_TYPE", "Kind of GPU-initiated networking"),
    known("NCCL_GRAPH_DUMP_FILE", "File the search's result is written to"),
    known("NCCL_GRAPH_DUMP_FILE_RANK", "Rank that writes the graph file"),
    known("NCCL_GRAPH_FILE", "File the search's result is read from"),
    known("NCCL_GRAPH_HELPER_DISABLE", "No helper thread for CUDA graphs"),
    known("NCCL_GRAPH_MIXING_SUPPORT", "Graph and other launches beside one another"),
    known("NCCL_GRAPH_REGISTER", "Registration of buffers in CUDA graphs"),
    known("NCCL_HOSTID", "What tells hosts apart"),
    known("NCCL_IBEXT_DISABLE", "The SHARP plugin's own InfiniBand transport"),
    known("NCCL_IBVERBS_LIB", "The libibverbs it loads"),
    known("NCCL_IB_ADAPTIVE_ROUTING", "Adaptive routing"),
    known("NCCL_IB_ADDR_FAMILY", "Address family of the RoCE GID"),
    known("NCCL_IB_ADDR_RANGE", "Address range of the RoCE GID"),
    known("NCCL_IB_AR_THRESHOLD", "Size from which adaptive routing is used"),
    known("NCCL_IB_CUDA_SUPPORT", "GPUDirect RDMA (old name)"),
    known("NCCL_IB_DATA_DIRECT", "Data Direct NICs"),
    known("NCCL_IB_DISABLE", "Whether the IB transport is off"),
    known("NCCL_IB_ECE_ENABLE", "Enhanced connection establishment"),
    known("NCCL_IB_FIFO_TC", "Traffic class of control messages"),
    known("NCCL_IB_GDR_LEVEL", "Distance up to which GPUDirect RDMA is used (old name)"),
    known("NCCL_IB_GID_INDEX", "GID index; found by itself from 2.21 on"),
    known("NCCL_IB_HCA", "Adapters to use"),
    known("NCCL_IB_IS_GLOBAL", "Global routing headers"),
    known("NCCL_IB_MERGE_NICS", "Ports of one adapter as one device"),
    known("NCCL_IB_MERGE_VFS", "Virtual functions of one adapter as one device"),
    known("NCCL_IB_MQP_RETRY_ALL", "Retry of queue pair changes"),
    known("NCCL_IB_MQP_RETRY_CNT", "How often queue pair changes are retried"),
    known("NCCL_IB_MQP_RETRY_SLEEP_MSEC", "Pause between those retries"),
    known("NCCL_IB_OOO_RQ", "Out-of-order receive queues"),
    known("NCCL_IB_PCI_RELAXED_ORDERING", "Relaxed PCI ordering"),
    known("NCCL_IB_PKEY", "Partition key"),
    known("NCCL_IB_QPS_PER_CONNECTION", "Queue pairs of a connection"),
    known("NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", "How a receiver matches messages"),
    known("NCCL_IB_RESILIENCY_PORT_FAILOVER", "Going on over another port"),
    known("NCCL_IB_RETRY_CNT", "Retries of a send"),
    known("NCCL_IB_RETURN_ASYNC_EVENTS", "Whether adapter events end the job"),
    known("NCCL_IB_ROCE_VERSION_NUM", "RoCE version of the GID"),
    known("NCCL_IB_ROUTABLE_FLID_GID_INDEX", "GID index of a routable LID"),
    known("NCCL_IB_SL", "Service level"),
    known("NCCL_IB_SPLIT_DATA_ON_QPS", "Whether a message is split over queue pairs"),
    known("NCCL_IB_SUBNET_AWARE_ROUTING", "Routing by subnet"),
    known("NCCL_IB_SUBNET_PREFIX_LEN", "Length of a subnet's prefix"),
    known("NCCL_IB_TC", "Traffic class"),
    known("NCCL_IB_TIMEOUT", "Time before a send is retried"),
    known("NCCL_IB_USE_INLINE", "Inline sends"),
    known("NCCL_IB_WARN_RAIL_LOCAL", "Warning when a rail is crossed"),
    known("NCCL_IGNORE_COLLNET_MISMATCH", "Go on where CollNet differs between ranks"),
    known("NCCL_IGNORE_CPU_AFFINITY", "Whether the job's CPU affinity is ignored"),
    known("NCCL_IGNORE_DISABLED_P2P", "Go on where peer access is off"),
    known("NCCL_IGNORE_NET_MISMATCH", "Go on where the network differs between ranks"),
    known("NCCL_L1_SHARED_MEMORY_CARVEOUT", "Share of L1 for shared memory"),
    known("NCCL_LAUNCH_MODE", "How kernels are launched"),
    known("NCCL_LAUNCH_ORDER_IMPLICIT", "Order of launches"),
    known("NCCL_LAUNCH_RACE_FATAL", "Whether launch races are fatal"),
    known("NCCL_LL128_BUFFSIZE", "Bytes of an LL128 buffer"),
    known("NCCL_LL128_NTHREADS", "Threads of an LL128 block"),
    known("NCCL_LL_BUFFSIZE", "Bytes of an LL buffer"),
    known("NCCL_LOCAL_REGISTER", "Registration of user buffers"),
    known("NCCL_MAX_CTAS", "Most thread blocks"),
    known("NCCL_MAX_NCHANNELS", "Most channels"),
    known("NCCL_MAX_NRINGS", "Most rings (old name)"),
    known("NCCL_MAX_P2P_NCHANNELS", "Most point-to-point channels"),
    known("NCCL_MAX_P2P_PEERS", "Most point-to-point peers"),
    known("NCCL_MEM_SYNC_DOMAIN", "Memory synchronisation domain"),
    known("NCCL_MIN_CTAS", "Fewest thread blocks"),
    known("NCCL_MIN_NCHANNELS", "Fewest channels"),
    known("NCCL_MIN_NRINGS", "Fewest rings (old name)"),
    known("NCCL_MIN_P2P_NCHANNELS", "Fewest point-to-point channels"),
    known("NCCL_MNNVL_CLIQUE_ID", "Multi-node NVLink clique"),
    known("NCCL_MNNVL_CLIQUE_SIZE", "Ranks of an NVLink clique"),
    known("NCCL_MNNVL_ENABLE", "NVLink between nodes"),
    known("NCCL_MNNVL_SCATTER_NETS_ENABLE", "Spreading of NICs over NVLink nodes"),
    known("NCCL_MNNVL_UUID", "Multi-node NVLink domain"),
    known("NCCL_NCHANNELS_PER_NET_PEER", "Channels to one network peer"),
    known("NCCL_NCHANNELS_PER_PEER", "Channels to one peer (old name)"),
    known("NCCL_NET", "Name of the network it must use"),
    known("NCCL_NETDEVS_POLICY", "Which NICs a GPU uses"),
    known("NCCL_NET_DEVICE_UNPACK", "Unpacking on the device"),
    known("NCCL_NET_DISABLE_INTRA", "Network between GPUs of one node"),
    known("NCCL_NET_FORCE_FLUSH", "Flush after each receive"),
    known("NCCL_NET_FORCE_MERGE", "NICs to treat as one"),
    known("NCCL_NET_GDR_C2C", "GPUDirect RDMA over the CPU's link"),
    known("NCCL_NET_GDR_LEVEL", "Distance up to which GPUDirect RDMA is used"),
    known("NCCL_NET_GDR_READ", "GPUDirect RDMA for sends"),
    known("NCCL_NET_MERGE_LEVEL", "Distance up to which NICs are merged"),
    known("NCCL_NET_MERGE_POLICY", "How NICs are merged"),
    known("NCCL_NET_OPTIONAL_RECV_COMPLETION", "Receives that need no completion"),
    known("NCCL_NET_OVERHEAD", "Overhead of the network in the tuning model"),
    known("NCCL_NET_PLUGIN", "Network plugin"),
    known("NCCL_NET_PLUGIN_REF_COUNT", "Unloading of the network plugin"),
    known("NCCL_NET_SHARED_BUFFERS", "Shared network buffers"),
    known("NCCL_NET_SHARED_COMMS", "Shared network connections"),
    known("NCCL_NO_CACHE", "Parameters read each time"),
    known("NCCL_NSOCKS_PERTHREAD", "Sockets of a thread"),
    known("NCCL_NTHREADS", "Threads of a block"),
    known("NCCL_NVB_DISABLE", "Paths through another GPU"),
    known("NCCL_NVB_PRECONNECT", "Early connection of such paths"),
    known("NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", "Scheduling by use of NVLink"),
    known("NCCL_NVLSTREE_MAX_CHUNKSIZE", "Largest chunk of NVLS trees"),
    known("NCCL_NVLS_CHUNKSIZE", "Chunk of NVLS"),
    known("NCCL_NVLS_ENABLE", "Collectives in the NVSwitch"),
    known("NCCL_NVLS_NCHANNELS", "Channels of NVLS"),
    known("NCCL_NVTX_DISABLE", "Profiler ranges"),
    known("NCCL_OOB_NET_ENABLE", "Bootstrap over the network plugin"),
    known("NCCL_OOB_NET_IFNAME", "Interface of that bootstrap"),
    known("NCCL_P2P_DIRECT_DISABLE", "Direct access to peers' buffers"),
    known("NCCL_P2P_DISABLE", "Peer access between GPUs"),
    known("NCCL_P2P_LEVEL", "Distance up to which peers are accessed"),
    known("NCCL_P2P_LL_THRESHOLD", "Size up to which point-to-point uses LL"),
    known("NCCL_P2P_NET_CHUNKSIZE", "Chunk of network point-to-point"),
    known("NCCL_P2P_NVL_CHUNKSIZE", "Chunk of NVLink point-to-point"),
    known("NCCL_P2P_PCI_CHUNKSIZE", "Chunk of PCI point-to-point"),
    known("NCCL_P2P_PER_CHANNEL_NET_PEER", "Network peers of a channel"),
    known("NCCL_P2P_PXN_LEVEL", "When a peer's NIC is used for point-to-point"),
    known("NCCL_P2P_READ_ENABLE", "Peer reads instead of writes"),
    known("NCCL_P2P_SCHEDULE_GROUP_SIZE", "Peers scheduled together"),
    known("NCCL_P2P_USE_CUDA_MEMCPY", "Copies by the copy engine"),
    known("NCCL_PAT_ENABLE", "The PAT algorithm"),
    known("NCCL_PROFILER_PLUGIN", "Profiler plugin"),
    known("NCCL_PROFILE_EVENT_MASK", "Events given to the profiler"),
    known("NCCL_PROGRESS_APPENDOP_FREQ", "How often the proxy takes work"),
    known("NCCL_PROTO", "Protocols it may choose from"),
    known("NCCL_PROXY_APPEND_BATCH_SIZE", "Work the proxy takes at once"),
    known("NCCL_PROXY_CPUSET", "CPUs of the proxy"),
    known("NCCL_PROXY_DUMP_SIGNAL", "Signal that dumps the proxy's state"),
    known("NCCL_PXN_C2C", "PXN over the CPU's link"),
    known("NCCL_PXN_DISABLE", "NICs of other GPUs of the node"),
    known("NCCL_RAS_ADDR", "Address of the RAS service"),
    known("NCCL_RAS_ENABLE", "The RAS service"),
    known("NCCL_RAS_TIMEOUT_FACTOR", "Patience of the RAS service"),
    known("NCCL_REPORT_CONNECT_PROGRESS", "Progress of connecting"),
    known("NCCL_RINGS", "Rings by hand"),
    known("NCCL_RMA_PLUGIN", "Plugin for one-sided operations"),
    known("NCCL_RUNTIME_CONNECT", "Connections made when first used"),
    known("NCCL_SCATTER_XNIC", "Spreading over NICs"),
    known("NCCL_SET_CPU_STACK_SIZE", "Stack of its threads"),
    known("NCCL_SET_STACK_SIZE", "Stack of its kernels"),
    known("NCCL_SET_THREAD_NAME", "Names of its threads"),
    known("NCCL_SHM_CE_DEV", "Device of copies through shared memory"),
    known("NCCL_SHM_DISABLE", "Shared memory between GPUs of a node"),
    known("NCCL_SHM_LOCALITY", "Where shared memory is placed"),
    known("NCCL_SHM_MEMCPY_MODE", "Copies of shared memory"),
    known("NCCL_SHM_USE_CUDA_MEMCPY", "Copies of shared memory by the copy engine"),
    known("NCCL_SINGLE_PROC_MEM_REG_ENABLE", "Registration within one process"),
    known("NCCL_SINGLE_RING_THRESHOLD", "Size up to which one ring is used (old)"),
    known("NCCL_SOCKET_FAMILY", "Address family of sockets"),
    known("NCCL_SOCKET_IFNAME", "Interfaces for sockets and bootstrap"),
    known("NCCL_SOCKET_INLINE", "Inline data of sockets"),
    known("NCCL_SOCKET_MIN_TASKSIZE", "Smallest piece of a socket's work"),
    known("NCCL_SOCKET_NTHREADS", "Threads of a connection"),
    known("NCCL_SOCKET_POLL_TIMEOUT_MSEC", "Poll of sockets"),
    known("NCCL_SOCKET_RETRY_CNT", "Retries of a connection"),
    known("NCCL_SOCKET_RETRY_SLEEP_MSEC", "Pause between them"),
    known("NCCL_SPINS_BEFORE_CHECK_ABORT", "Turns of a wait before the abort flag is read"),
    known("NCCL_SYM_CTAS", "Thread blocks of symmetric kernels"),
    known("NCCL_SYM_KERNEL", "Symmetric kernels"),
    known("NCCL_THREAD_THRESHOLDS", "Sizes at which protocols change"),
    known("NCCL_TOPO_DUMP_FILE", "File the topology is written to"),
    known("NCCL_TOPO_DUMP_FILE_RANK", "Rank that writes it"),
    known("NCCL_TOPO_FILE", "File the topology is read from"),
    known("NCCL_TOPO_XML_MAX_NODES", "Largest such file"),
    known("NCCL_TREE_THRESHOLD", "Size up to which trees are used (old)"),
    known("NCCL_TUNER_CONFIG_FILE", "The tuner's configuration"),
    known("NCCL_TUNER_PLUGIN", "Tuner plugin"),
    known("NCCL_UID_STAGGER_RATE", "Pace of joining ranks"),
    known("NCCL_UID_STAGGER_THRESHOLD", "Ranks from which joining is paced"),
    known("NCCL_UNPACK_DOUBLE_NCHANNELS", "Twice the channels where the device unpacks"),
    known("NCCL_UNPACK_DOUBLE_NELEM", "Kernel tuning"),
    known("NCCL_WARN_ENABLE_DEBUG_INFO", "Logs INFO after a warning"),
    known("NCCL_WIN_ENABLE", "Window registration"),
    known("NCCL_WIN_STRIDE", "Stride of windows"),
    known("NCCL_WORK_ARGS_BYTES", "Bytes of a kernel's arguments"),
    known("NCCL_WORK_FIFO_BYTES", "Bytes of the work queue"),
];

/// What aws-ofi-nccl reads.
pub static OFI_NCCL: &[EnvName] = &[
    known("OFI_NCCL_CQ_READ_COUNT", "Completions read at once"),
    known("OFI_NCCL_CUDA_FLUSH_ENABLE", "Flush by CUDA"),
    known("OFI_NCCL_CUSTOM_MIN_LATENCY", "Latency it reports"),
    known("OFI_NCCL_DISABLE_DMABUF", "DMA-BUF"),
    known("OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK", "Refusal to start without GPUDirect"),
    known("OFI_NCCL_DISABLE_NATIVE_RDMA_CHECK", "Check for RDMA in hardware"),
    known("OFI_NCCL_DOMAIN_PER_THREAD", "A domain for each thread"),
    known("OFI_NCCL_EAGER_MAX_SIZE", "Largest eager message"),
    known("OFI_NCCL_EAGER_SEND_SIZE", "Largest eager message (old name)"),
    known("OFI_NCCL_EARLY_COMPLETION", "Completion before the data is placed"),
    known("OFI_NCCL_ENDPOINT_PER_COMM", "An endpoint for each communicator"),
    known("OFI_NCCL_ENDPOINT_PER_DEVICE", "An endpoint for each device"),
    known("OFI_NCCL_ERRORCHECK_MUTEX", "Checked locks"),
    known("OFI_NCCL_EXCLUDE_TCP_IF", "Interfaces that provider tcp leaves out"),
    known("OFI_NCCL_FORCE_NUM_RAILS", "Number of rails"),
    known("OFI_NCCL_FORCE_PRODUCT_NAME", "Platform it believes to be on"),
    known("OFI_NCCL_GDR_FLUSH_DISABLE", "Flush after receives"),
    known("OFI_NCCL_GIN_MAX_REQUESTS", "Requests of GPU-initiated networking"),
    known("OFI_NCCL_MIN_STRIPE_SIZE", "Smallest piece of a striped message"),
    known("OFI_NCCL_MR_CACHE_DISABLE", "Cache of registrations"),
    known("OFI_NCCL_MR_KEY_SIZE", "Size of memory keys"),
    known("OFI_NCCL_NET_LATENCY", "Latency it reports"),
    known("OFI_NCCL_NIC_DUP_CONNS", "Connections of a NIC"),
    known("OFI_NCCL_PLATFORM", "Platform it believes to be on"),
    known("OFI_NCCL_PLATFORM_ALLOW_UNMATCHED_NIC", "NICs without a GPU beside them"),
    known("OFI_NCCL_PROGRESS_MODEL", "Progress of libfabric"),
    known("OFI_NCCL_PROTOCOL", "`SENDRECV` or `RDMA`"),
    known("OFI_NCCL_RDMA_MAX_POSTED_BOUNCE_BUFFERS", "Most receive buffers"),
    known("OFI_NCCL_RDMA_MIN_POSTED_BOUNCE_BUFFERS", "Fewest receive buffers"),
    known("OFI_NCCL_ROUND_ROBIN_THRESHOLD", "Size up to which rails take turns"),
    known("OFI_NCCL_SCHED_MAX_SMALL_MSG_SIZE", "Largest message that goes over one rail"),
    known("OFI_NCCL_SCHED_MAX_SMALL_RR_SIZE", "Largest message sent on one rail in turn"),
    known("OFI_NCCL_SKIP_NICS_WITHOUT_ACCEL", "NICs without a GPU at their PCI level"),
    known("OFI_NCCL_TOPO_FILE_TEMPLATE", "Name of the topology file"),
    known("OFI_NCCL_TOPO_FILE_WRITE_ENABLE", "Writing of the topology file"),
    known("OFI_NCCL_TUNER_TYPE", "Which tuner"),
    known("OFI_NCCL_USE_IPV6_TCP", "IPv6 with provider tcp"),
    known("OFI_NCCL_USE_LOW_LAT_TC", "Low-latency traffic class"),
];

/// What libfabric reads.
pub static LIBFABRIC: &[EnvName] = &[
    known("FI_CXI_DISABLE_HOST_REGISTER", "No registration of host memory (provider cxi)"),
    known("FI_EFA_CQ_READ_SIZE", "Completions read at once"),
    known("FI_EFA_CQ_SIZE", "Size of a completion queue"),
    known("FI_EFA_ENABLE_SHM_TRANSFER", "Shared memory inside a node"),
    known("FI_EFA_FORCE_PRODUCT_NAME", "Platform it believes to be on"),
    known("FI_EFA_FORK_SAFE", "Fork support; turns huge pages off on old kernels"),
    known("FI_EFA_HOMOGENEOUS_PEERS", "All peers have the same device"),
    known("FI_EFA_HOST_ID_FILE", "File with the host's id"),
    known("FI_EFA_IFACE", "Interfaces to use"),
    known("FI_EFA_INTER_MAX_GDRCOPY_MESSAGE_SIZE", "Largest message by GDRCopy between nodes"),
    known("FI_EFA_INTER_MAX_MEDIUM_MESSAGE_SIZE", "Largest medium message"),
    known("FI_EFA_INTER_MIN_READ_MESSAGE_SIZE", "Smallest message by RDMA read between nodes"),
    known("FI_EFA_INTER_MIN_READ_WRITE_SIZE", "Smallest write by RDMA read"),
    known("FI_EFA_INTER_READ_SEGMENT_SIZE", "Piece of a read"),
    known("FI_EFA_INTRA_MAX_GDRCOPY_FROM_DEV_SIZE", "Largest copy inside a node"),
    known("FI_EFA_MAX_MEMCPY_SIZE", "Largest copy instead of a registration"),
    known("FI_EFA_MR_CACHE_ENABLE", "Cache of registrations"),
    known("FI_EFA_MR_MAX_CACHED_COUNT", "Most cached registrations"),
    known("FI_EFA_MR_MAX_CACHED_SIZE", "Most cached bytes"),
    known("FI_EFA_MTU_SIZE", "Packet size"),
    known("FI_EFA_RECVWIN_SIZE", "Size of the receive window"),
    known("FI_EFA_RNR_RETRY", "Retries when the receiver is not ready"),
    known("FI_EFA_RUNT_SIZE", "Bytes sent ahead of a read"),
    known("FI_EFA_RX_COPY_OOO", "Copies of packets out of order"),
    known("FI_EFA_RX_COPY_UNEXP", "Copies of unexpected packets"),
    known("FI_EFA_RX_SIZE", "Receive queue"),
    known("FI_EFA_SET_CUDA_SYNC_MEMOPS", "Synchronous memory operations"),
    known("FI_EFA_SHM_AV_SIZE", "Peers of a node"),
    known("FI_EFA_TRACK_MR", "Tracking of registrations"),
    known("FI_EFA_TX_IOV_LIMIT", "Pieces of a send"),
    known("FI_EFA_TX_MAX_CREDITS", "Most credits"),
    known("FI_EFA_TX_MIN_CREDITS", "Fewest credits"),
    known("FI_EFA_TX_QUEUE_SIZE", "Size of the send queue"),
    known("FI_EFA_TX_SIZE", "Send queue"),
    known("FI_EFA_UNEXP_POOL_CHUNK_SIZE", "Pool of unexpected packets"),
    known("FI_EFA_USE_DEVICE_RDMA", "RDMA of the device; 1 aborts where it has none"),
    known("FI_EFA_USE_HUGE_PAGE", "Huge pages for its own buffers"),
    known("FI_EFA_USE_UNSOLICITED_WRITE_RECV", "Writes without a posted receive"),
    known("FI_EFA_USE_ZCPY_RX", "Receives without a copy"),
    known("FI_EFA_WRITE_SEGMENT_SIZE", "Piece of a write"),
    known("FI_HMEM", "Kinds of device memory"),
    known("FI_HMEM_CUDA_ENABLE_XFER", "Copies by CUDA"),
    known("FI_HMEM_CUDA_USE_DMABUF", "DMA-BUF for CUDA memory"),
    known("FI_HMEM_CUDA_USE_GDRCOPY", "GDRCopy"),
    known("FI_HMEM_DISABLE_P2P", "Peer access to device memory"),
    known("FI_LOG_LEVEL", "How much libfabric logs"),
    known("FI_LOG_PROV", "Providers that log"),
    known("FI_LOG_SUBSYS", "Parts of it that log"),
    known("FI_MR_CACHE_MAX_COUNT", "Most cached registrations"),
    known("FI_MR_CACHE_MAX_SIZE", "Most cached bytes"),
    known("FI_MR_CACHE_MONITOR", "How changes of memory are seen"),
    known("FI_MR_CUDA_CACHE_MONITOR_ENABLED", "Such monitoring of CUDA memory"),
    known("FI_OFI_RXM_RX_SIZE", "Receive queue of provider rxm"),
    known("FI_OFI_RXM_TX_SIZE", "Send queue of provider rxm"),
    known("FI_OFI_RXM_USE_SRX", "Shared receive context"),
    known("FI_PROVIDER", "Provider it must use"),
    known("FI_PROVIDER_PATH", "Folder of provider plugins"),
    known("FI_SHM_USE_XPMEM", "XPMEM inside a node"),
    known("FI_SOCKETS_IFACE", "Interface of provider sockets"),
    known("FI_TCP_IFACE", "Interface of provider tcp"),
    known("FI_UNIVERSE_SIZE", "Expected number of peers"),
    known("FI_VERBS_IFACE", "Interface of provider verbs"),
];

/// What rdma-core reads.
pub static RDMA_CORE: &[EnvName] = &[
    known("RDMAV_ALLOW_DISASSOC_DESTROY", "Destroying what a device that is gone had"),
    known("RDMAV_FORK_SAFE", "Fork support; needless since kernel 5.13 with rdma-core 38"),
    known("RDMAV_HUGEPAGES_SAFE", "Fork support over huge pages"),
];

/// What UCX reads.
pub static UCX: &[EnvName] = &[
    known("UCX_IB_ADDR_TYPE", "Kind of address"),
    known("UCX_IB_GID_INDEX", "GID index"),
    known("UCX_IB_GPU_DIRECT_RDMA", "GPUDirect RDMA"),
    known("UCX_IB_PCI_RELAXED_ORDERING", "Relaxed ordering of PCI writes"),
    known("UCX_IB_REG_METHODS", "Ways of registering memory"),
    known("UCX_IB_ROCE_REACHABILITY_MODE", "When a RoCE peer counts as reachable"),
    known("UCX_IB_SL", "Service level"),
    known("UCX_IB_TRAFFIC_CLASS", "Traffic class"),
    known("UCX_LOG_FILE", "File of the log"),
    known("UCX_LOG_LEVEL", "How much it logs"),
    known("UCX_MAX_RNDV_RAILS", "Most rails"),
    known("UCX_MEMTYPE_CACHE", "Cache of memory types"),
    known("UCX_MEMTYPE_REG_WHOLE_ALLOC_TYPES", "Memory that is registered as a whole"),
    known("UCX_NET_DEVICES", "Devices to use"),
    known("UCX_RC_MAX_RD_ATOMIC", "Reads and atomics under way"),
    known("UCX_RC_TIMEOUT", "Timeout of a reliable connection"),
    known("UCX_RNDV_SCHEME", "Large messages"),
    known("UCX_RNDV_THRESH", "Size of large messages"),
    known("UCX_TLS", "Transports to use"),
    known("UCX_WARN_UNUSED_ENV_VARS", "Warning of unknown names"),
];

/// What Open MPI and PMIx read and set; any `OMPI_MCA_*` besides.
pub static MPI: &[EnvName] = &[
    known("OMPI_ALLOW_RUN_AS_ROOT", "Running as root"),
    known("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "Running as root, confirmed"),
    started("OMPI_COMM_WORLD_LOCAL_RANK", "Rank on the node; set by mpirun"),
    started("OMPI_COMM_WORLD_LOCAL_SIZE", "Ranks on the node; set by mpirun"),
    started("OMPI_COMM_WORLD_NODE_RANK", "Node-relative rank; set by mpirun"),
    started("OMPI_COMM_WORLD_RANK", "Rank; set by mpirun"),
    started("OMPI_COMM_WORLD_SIZE", "Ranks in total; set by mpirun"),
    known("OPAL_PREFIX", "Where Open MPI is installed"),
    known("PMIX_MCA_gds", "Storage of PMIx"),
    started("PMIX_RANK", "Rank; set by PMIx"),
    started("PMI_RANK", "Rank; set by PMI"),
    started("PMI_SIZE", "Ranks in total; set by PMI"),
];

/// What torch and torchrun read and set.
pub static TORCH: &[EnvName] = &[
    known("GLOO_SOCKET_IFNAME", "Interface of Gloo"),
    started("GROUP_RANK", "Number of the node; set by torchrun"),
    started("GROUP_WORLD_SIZE", "Nodes in total; set by torchrun"),
    started("LOCAL_RANK", "Rank on the node; set by torchrun"),
    started("LOCAL_WORLD_SIZE", "Ranks on the node; set by torchrun"),
    started("MASTER_ADDR", "Address of the first rank; set by torchrun"),
    started("MASTER_PORT", "Port of the first rank; set by torchrun"),
    started("NODE_RANK", "Number of the node; set by the backend"),
    known("NVIDIA_GDRCOPY", "`enabled` makes the container toolkit bring `/dev/gdrdrv`"),
    started("PET_MASTER_ADDR", "torchrun's `--master-addr`; set by the operator"),
    started("PET_MASTER_PORT", "torchrun's `--master-port`; set by the operator"),
    started("PET_NNODES", "torchrun's `--nnodes`; set by the operator"),
    started("PET_NODE_RANK", "torchrun's `--node-rank`; set by the operator"),
    started("PET_NPROC_PER_NODE", "torchrun's `--nproc-per-node`; set by the operator"),
    started("RANK", "Rank; set by torchrun"),
    started("ROLE_RANK", "Rank in its role; set by torchrun"),
    started("ROLE_WORLD_SIZE", "Ranks of the role; set by torchrun"),
    started("TORCHELASTIC_MAX_RESTARTS", "Most restarts; set by torchrun"),
    started("TORCHELASTIC_RESTART_COUNT", "Restarts so far; set by torchrun"),
    started("TORCHELASTIC_RUN_ID", "Id of the run; set by torchrun"),
    known("TORCH_CPP_LOG_LEVEL", "How much the C++ side logs"),
    known("TORCH_DISTRIBUTED_DEBUG", "Checks of collectives"),
    known("TORCH_FR_BUFFER_SIZE", "Entries of the flight recorder"),
    known("TORCH_FR_DUMP_TEMP_FILE", "Where the flight recorder writes"),
    known("TORCH_NCCL_ASYNC_ERROR_HANDLING", "What happens when a collective fails"),
    known("TORCH_NCCL_AVOID_RECORD_STREAMS", "Lifetime of buffers"),
    known("TORCH_NCCL_BLOCKING_WAIT", "Whether waits block"),
    known("TORCH_NCCL_CUDA_EVENT_CACHE", "Reuse of events"),
    known("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "Pipe that triggers a dump"),
    known("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "Where dumps go"),
    known("TORCH_NCCL_DESYNC_DEBUG", "Report of ranks that fell behind"),
    known("TORCH_NCCL_DUMP_ON_TIMEOUT", "Dump when a collective hangs"),
    known("TORCH_NCCL_ENABLE_MONITORING", "Watchdog of the watchdog"),
    known("TORCH_NCCL_ENABLE_TIMING", "Times of collectives"),
    known("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "Patience of that watchdog"),
    known("TORCH_NCCL_HIGH_PRIORITY", "Priority of streams"),
    known("TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", "Stacks at an unclean end"),
    known("TORCH_NCCL_NAN_CHECK", "Check for NaN"),
    known("TORCH_NCCL_PROPAGATE_ERROR", "Propagate errors to all ranks"),
    known("TORCH_NCCL_RETHROW_CUDA_ERRORS", "CUDA errors of the watchdog"),
    known("TORCH_NCCL_TRACE_BUFFER_SIZE", "Entries of the flight recorder (old name)"),
    known("TORCH_NCCL_TRACE_CPP_STACK", "Stacks in the flight recorder"),
    known("TORCH_NCCL_USE_COMM_NONBLOCKING", "Non-blocking communicators"),
    known("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "Time for a dump"),
    started("WORLD_SIZE", "Ranks in total; set by torchrun"),
];

/// All lists, in the order of the reference page.
pub static GROUPS: [EnvGroup; 8] = [
    EnvGroup { owner: "weftrun", names: OURS },
    EnvGroup { owner: "NCCL", names: NCCL },
    EnvGroup { owner: "aws-ofi-nccl", names: OFI_NCCL },
    EnvGroup { owner: "libfabric", names: LIBFABRIC },
    EnvGroup { owner: "rdma-core", names: RDMA_CORE },
    EnvGroup { owner: "UCX", names: UCX },
    EnvGroup { owner: "Open MPI and PMIx", names: MPI },
    EnvGroup { owner: "torch", names: TORCH },
];

/// The entry of a name.
pub fn find(name: &str) -> Option<&'static EnvName> {
    GROUPS.iter().flat_map(|group| group.names).find(|known| known.name == name)
}

/// Whether a name is known, or of a family whose members are not listed one by one.
pub fn is_known(name: &str) -> bool {
    // MCA parameters are hundreds; FastTrak is Google's plugin, whose list is its image's own.
    const FAMILIES: [&str; 6] =
        ["OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "NCCL_FASTRAK_", "NCCL_TUNER_", "TORCH_NCCL_"];
    find(name).is_some() || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Whether whatever starts the ranks sets it, each rank's its own.
pub fn is_set_by_launcher(name: &str) -> bool {
    find(name).is_some_and(|known| known.by_launcher)
}

/// The name somebody meant who wrote one that is not known: of the same family (`NCCL_`, `FI_`, …), with the same digits,
/// and at most two letters away; fewer in a short name, which has many neighbours (`NCCL_ROOT` is no slip of
/// `NCCL_PROTO`).
///
/// ```
/// use weftrun_core::env_names::nearest;
/// assert_eq!(nearest("NCCL_BUFFERSIZE"), Some("NCCL_BUFFSIZE"));
/// assert_eq!(nearest("NCLL_DEBUG"), Some("NCCL_DEBUG"));
/// assert_eq!(nearest("NCCL_DEBUG"), None);
/// assert_eq!(nearest("MY_NCCL_DEBUG"), None);
/// ```
pub fn nearest(name: &str) -> Option<&'static str> {
    const PREFIXES: [&str; 5] = ["NCCL_", "OFI_NCCL_", "FI_", "RDMAV_", "UCX_"];
    // Names that programs around these libraries give their own variables.
    const STRANGERS: [&str; 2] = ["NCCL_TESTS_", "NCCL_GPUDIRECTTCPX_"];
    const FAR: usize = 2;
    if is_known(name) || name.len() > 100 || STRANGERS.iter().any(|family| name.starts_with(family)) {
        return None;
    }
    let Some(prefix) = PREFIXES.iter().find(|prefix| name.starts_with(**prefix)) else {
        return misspelt_prefix(name);
    };
    let far = ((name.len() - prefix.len()) / 4).min(FAR);
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
    let family = GROUPS.iter().flat_map(|group| group.names).map(|known| known.name).filter(|known| {
        known.starts_with(prefix) && known.len().abs_diff(name.len()) <= far && digits(known) == digits(name)
    });
    family
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, known)| known)
}

/// `NCLL_DEBUG`, `NNCL_DEBUG`: the prefix itself has the slip, and the rest is a known name's.
fn misspelt_prefix(name: &str) -> Option<&'static str> {
    let (prefix, rest) = name.split_once('_')?;
    if !matches!(prefix.len(), 3..=5) || rest.len() < 4 || strsim::damerau_levenshtein(prefix, "NCCL") != 1 {
        return None;
    }
    NCCL.iter().map(|known| known.name).find(|known| known.strip_prefix("NCCL_") == Some(rest))
}

/// The reference page of the variables, in Markdown.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Environment variables\n\n\
         Those of weftrun stand between the project's configuration and a job file: a flag or the file wins.\n\
         The others are what the lints know: a name that is near one of them, and none of them, is misspelt.\n",
    );
    for group in GROUPS {
        page.push_str(&format!("\n## {}\n\n| variable | meaning |\n|---|---|\n", group.owner));
        for known in group.names {
            page.push_str(&format!("| `{}` | {} |\n", known.name, known.doc));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_sorted_and_has_each_name_once() {
        for group in GROUPS {
            assert!(group.names.windows(2).all(|pair| pair[0].name < pair[1].name), "{}", group.owner);
        }
    }

    /// Slips found in real manifests (`practice.md` §4), and names that are none.
    #[test]
    fn slips_are_found_without_false_alarm() {
        for (slip, meant) in [
            ("NCCL_BUFFERSIZE", Some("NCCL_BUFFSIZE")),
            ("FI_HMEM_CUDA_USE_BMABUF", Some("FI_HMEM_CUDA_USE_DMABUF")),
            ("NCCL_SOKET_IFNAME", Some("NCCL_SOCKET_IFNAME")),
            ("FI_PROVIDERS", Some("FI_PROVIDER")),
            ("NCCL_NET", None),
            ("NCCL_IB_HCA", None),
            ("NCCL_SOMETHING_NEW", None),
            ("TORCH_NCCL_SOMETHING", None),
            ("OMPI_MCA_btl", None),
            ("NCCL_FASTRAK_IFNAME", None),
            ("FIFO_PATH", None),
            ("RDMAV_FORM_SAFE", Some("RDMAV_FORK_SAFE")),
            ("NCCL_IB_HCA2", None),
        ] {
            assert_eq!(nearest(slip), meant, "{slip}");
        }
    }

    #[test]
    fn what_torchrun_sets_is_known_as_such() {
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "LOCAL_RANK", "PET_NNODES"] {
            assert!(is_set_by_launcher(name), "{name}");
        }
        assert!(!is_set_by_launcher("NCCL_DEBUG"));
    }
}
