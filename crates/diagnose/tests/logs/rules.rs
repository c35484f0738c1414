//! Every rule fires on its own line and stays silent on a similar line. The wordings are those of the tags
//! of NVIDIA/nccl 2.3.5 to 2.30.7, aws-ofi-nccl 0.9.1 to 1.21.1, libfabric and PyTorch, with invented
//! hosts.

use std::collections::BTreeSet;

use weftrun_core::Confidence;
use weftrun_core::backend::ClusterFacts;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{FabricPlan, Profiles};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_diagnose::{Sources, rules};

use crate::{report, rules_of};

const INFO: &str = "gpu-1:31:77 [0] NCCL INFO ";
/// Two nodes, so that a network is needed.
const TWO_NODES: &str =
    "gpu-1:31:77 [0] NCCL INFO comm 0x7f10 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n";

/// Two ranks of one node, connected by the network.
fn inside_one_node() -> String {
    let rank = |rank: u32| {
        let process = format!("gpu-1:{}:{} [{rank}] NCCL INFO", 31 + rank, 31 + rank);
        let side = if rank == 0 { "send" } else { "receive" };
        format!(
            "{process} Using network Socket\n\
             {process} ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}0 commId 0x5 - Init COMPLETE\n\
             {process} Channel 00/0 : 0[0] -> 1[1] [{side}] via NET/Socket/0\n"
        )
    };
    rank(0) + &rank(1)
}

fn info(message: &str) -> String {
    format!("{INFO}{message}\n")
}

fn warn(place: &str, message: &str) -> String {
    format!("\ngpu-1:31:77 [0] {place} NCCL WARN {message}\n")
}

fn channel(from: u32, to: u32, via: &str) -> String {
    info(&format!("Channel 00/0 : {from}[0] -> {to}[0] [send] via {via}"))
}

/// Returns each rule, with logs in each of which it must fire.
/// Three processes on three hosts, of which the second says something else.
fn one_of_three(odd: &str, usual: &str) -> String {
    let say = |(host, said)| format!("{host}:31:31 [0] NCCL INFO {said}\n");
    [("gpu-1", usual), ("gpu-2", odd), ("gpu-3", usual)].map(say).concat()
}

fn firing() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("R01", vec![
            format!("{TWO_NODES}{}", info("Using network Socket")),
            format!("{TWO_NODES}{}", info("Initialized NET plugin Socket")),
            channel(0, 8, "NET/Socket/0"),
        ]),
        ("R02", vec![
            info("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"),
            info("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."),
            info("NET/Plugin: Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory"),
            info("No network plugin found."),
        ]),
        ("R03", vec![
            info("NET/Plugin : Plugin load (libnccl-net.so) returned 2 : /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /opt/ofi/lib/libnccl-net.so)"),
            info("NET/Plugin: dlerror=/opt/efa/libfabric.so.1: version `FABRIC_1.8' not found (required by libnccl-net.so) No plugin found"),
        ]),
        ("R03b", vec![
            "mpirun: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /opt/amazon-efa-ofi/openmpi/lib/libopen-rte.so.40)\n".to_owned(),
            // As on the page of DGX Cloud, with other quotes and on two lines.
            "mpirun: /lib/x86_64-linux-gnu/libc.so.6: version 'GLIBC_2.34' not found\n(required by /opt/amazon-efa-ofi/openmpi/lib/libopen-rte.so.40)\n".to_owned(),
            "python: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /opt/app/_C.so)\n".to_owned(),
        ]),
        ("R04", vec![
            info("NET/Plugin: libnccl-net-ofi.so: libhwloc.so.15: cannot open shared object file: No such file or directory"),
            info("NET/Plugin: dlerror=libcudart.so.12: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so), using internal implementation"),
        ]),
        ("R04b", vec![
            warn("net.cc:120", "NET/Plugin: ncclNetPlugin symbols v4 and lower are not supported."),
            info("NET/Plugin: Failed to find ncclNetPlugin symbol."),
        ]),
        ("R05", vec![
            info("NET/OFI No eligible providers were found"),
            warn("nccl_net_ofi_create_plugin:214", "NET/OFI Couldn't find any optimal provider"),
            warn("find_ofi_provider:1042", "NET/OFI fi_getinfo() call failed: No data available"),
        ]),
        ("R06", vec![
            info("NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/24 (found 2 nics)"),
            info("NET/OFI Selected Provider is sockets"),
            warn("ofi_init:730", "NET/OFI Only EFA provider is supported"),
        ]),
        ("R07", vec![
            warn("nccl_net_ofi_init:99", "NET/OFI aws-ofi-nccl initialization failed"),
            warn("int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):317", "NET/OFI Initializing plugin failed"),
        ]),
        ("R08", vec![warn("platform_init:512", "NET/OFI GDR disabled on GDR-supported instance type p5.48xlarge")]),
        ("R09", vec![format!(
            "{}{}{TWO_NODES}{}",
            info("NET/OFI Running on p4d.24xlarge platform, Setting NCCL_TOPO_FILE environment variable to /opt/p4d.xml"),
            info("NET/OFI Selected Provider is efa (found 4 nics)"),
            channel(0, 8, "NET/AWS Libfabric/0"),
        )]),
        ("R10", vec![
            warn("ofi_process_cq:1466", "NET/OFI Request 0x7f2 completed with error. RC: 20. Error: unknown error. Completed length: 0"),
            warn("rdma_process_cq:812", "NET/OFI Request 0x7f2 completed with error: err: 113 (No route to host), prov_errno 15"),
        ]),
        ("R11", vec![
            warn("create_endpoint:88", "NET/OFI Couldn't open AV. RC: -12, ERROR: Cannot allocate memory"),
            warn("create_endpoint:97", "NET/OFI Couldn't enable endpoint. RC: -12, ERROR: Cannot allocate memory"),
        ]),
        ("R12", vec![
            "A process has executed an operation involving a call\nlibfabric EFA provider is operating in a condition that could result in memory corruption\n".to_owned(),
            format!(
                "{}OSError: [Errno 12] Cannot allocate memory\n",
                info("NET/OFI Selected Provider is efa (found 4 nics)")
            ),
        ]),
        ("R13", vec![
            warn("ofi_init:55", "NET/OFI NCCL OFI requires at least libfabric version 1.22.0"),
            warn("set_options:12", "NET/OFI Couldn't set FI_OPT_EFA_USE_DEVICE_RDMA. RC: -92, ERROR: Protocol not available"),
        ]),
        ("R14", vec![warn("rdma_comm:1711", "NET/OFI Unexpected number of remote rails for dev 0. Expected 4 but got 3")]),
        ("R15", vec![
            format!("{TWO_NODES}{}", info("NET/IB : No device found.")),
            format!("{TWO_NODES}{}", warn("misc/ibvwrap.cc:63", "Failed to open libibverbs.so[.1]")),
        ]),
        ("R16", vec![
            info("NCCL_IB_DISABLE set by environment to 1."),
            info("NCCL_NET set by environment to Socket."),
            info("NCCL_P2P_DISABLE set by environment to 1"),
        ]),
        ("R17", vec![
            warn("transport/net_ib.cc:74", "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"),
            warn("transport/net_ib.cc:1295", "NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2"),
            warn("transport/net_ib/p2p.cc:318", "NET/IB: Got completion from peer 10.0.0.2<4791> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca mlx5_0"),
        ]),
        ("R18", vec![warn("transport/net_ib.cc:1295", "NET/IB : Got completion from peer 10.0.0.2<4791> with status=5 opcode=0 len=0 vendor err 249 (Recv)")]),
        ("R19", vec![warn("transport/net_ib.cc:1295", "NET/IB : Got completion from peer 10.0.0.2<4791> with status=4 opcode=0 len=0 vendor err 81 (Send)")]),
        ("R20", vec![warn("transport/net_ib.cc:1295", "NET/IB : Got completion from peer 10.0.0.2<4791> with status=10 opcode=0 len=0 vendor err 136 (Send)")]),
        ("R21", vec![
            warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with error Network is unreachable"),
            warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1, curr state INIT"),
        ]),
        ("R22", vec![warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1, curr state INIT, next state RTR")]),
        ("R23", vec![
            warn("transport/net_ib.cc:96", "NET/IB : Got async event : port error"),
            warn("transport/net_ib.cc:131", "NET/IB : mlx5_0:1 async fatal event on QP: local catastrophic error"),
        ]),
        ("R24", vec![
            warn("misc/ibvwrap.cc:184", "Call to ibv_reg_mr failed with error Cannot allocate memory"),
            warn("misc/ibvwrap.cc:201", "Call to ibv_create_cq failed with error Cannot allocate memory"),
        ]),
        ("R25", vec![
            info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)"),
            channel(0, 8, "NET/IB/0"),
        ]),
        ("R26", vec![info("NET/IB : GPU Direct RDMA Disabled for GPU 3 / HCA 2 (distance 8 > 5)")]),
        ("R27", vec![
            info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"),
            warn("transport/net_ib.cc:1010", "NET/IB : Trying to connect incompatible IB devices"),
        ]),
        ("R28", vec![warn("init.cc:900", "Detected mixed local Net device counts across ranks: 4 and 3")]),
        ("C12a", vec![
            warn("misc/shmutils.cc:87", "Error: failed to extend /dev/shm/nccl-oAbC12 to 33030532 bytes, error: No space left on device (28)"),
            warn("include/shm.h:28", "Call to posix_fallocate failed : No space left on device"),
        ]),
        ("R30", vec![info("P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.")]),
        ("R31", vec![warn("graph/paths.cc:303", "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity")]),
        ("R32", vec![
            warn("transport/nvls.cc:161", "Cuda failure 1 'invalid argument'"),
            warn("transport/nvls.cc:300", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'"),
        ]),
        ("R33", vec![(0..8)
            .map(|rank| format!("gpu-1:{0}:{0} [{rank}] NCCL INFO NVLS multicast support is not available on dev {rank}\n", 31 + rank))
            .collect()]),
        ("R34", vec![
            warn("init.cc:512", "Cannot initialize CollNet, using point-to-point network instead"),
            warn("sharp_plugin.c:305", "NET/IB :SHARP coll init error: Cannot create SHARP job(-11)"),
        ]),
        ("R35", vec![
            warn("mnnvl.cc:74", "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels)."),
            warn("transport/nvls.cc:90", "Cuda failure 800 'operation not permitted'"),
        ]),
        ("R36", vec![
            warn("bootstrap.cc:45", "Bootstrap : no socket interface found"),
            warn("bootstrap.cc:89", "Bootstrap : Could not find any usable interface"),
        ]),
        ("R37", vec![
            info("Bootstrap : Using docker0:172.17.0.1<0>"),
            info("NET/Socket : Using [0]veth12ab:169.254.3.4<0>"),
            format!("{TWO_NODES}{}", info("Bootstrap: Using lo:127.0.0.1<0>")),
        ]),
        ("R38", vec![
            warn("misc/socket.cc:426", "socketStartConnect: Connect to 10.0.0.2<41235> failed : Software caused connection abort"),
            warn("include/socket.h:403", "Connect to 10.0.0.2<41235> failed : Connection refused"),
        ]),
        ("R39", vec![warn("misc/socket.cc:301", "socketFinalizeAccept: wrong type 4 != 3")]),
        ("R40", vec![
            warn("init.cc:1043", "Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22703"),
            "a:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\nb:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n".to_owned(),
        ]),
        ("R41", vec![warn("misc/socket.cc:900", "NET/Socket : peer 10.0.0.2<41235> message truncated : receiving 8388608 bytes instead of 4194304")]),
        ("R41b", vec![warn("bootstrap.cc:77", "Message truncated : received 256 bytes instead of 4")]),
        ("R33b", vec![warn("graph/search.cc:765", "Could not find a path for pattern 4, falling back to simple order")]),
        ("R33b", vec![warn("graph/search.cc:765", "Could not find a path for pattern 4, falling back to simple order")]),
        ("R42", vec![
            warn("init.cc:761", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1c000"),
            // PyTorch quotes it on a line of its own.
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1c000\n".to_owned(),
        ]),
        ("R43", vec![
            "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n".to_owned(),
            "[rank0]:[E321 09:12:13.123 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n".to_owned(),
        ]),
        ("R44", vec![warn("misc/socket.cc:57", "socketProgress: Connection closed by remote peer gpu-2<41235>")]),
        ("R45", vec![warn("graph/xml.h:77", "Attribute busid of node gpu not found")]),
        ("R46", vec![
            warn("enqueue.cc:51", "Cuda failure 'an illegal memory access was encountered'"),
            warn("init.cc:1200", "Cuda failure 999 'unknown error'"),
        ]),
        ("R54", vec![inside_one_node()]),
        ("R55", vec![warn("misc.cc:7", "something that no rule knows")]),
        ("R56", vec![
            "researcher@10.78.7.12: Permission denied (publickey).\n".to_owned(),
            "ubuntu@gpu-2: Permission denied (publickey,password).\r\n".to_owned(),
        ]),
        ("R57", vec![
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n".to_owned(),
            "docker: permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Head \"http://x\": dial unix: permission denied\n".to_owned(),
            "Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock\n".to_owned(),
        ]),
        ("R47", vec![info("cuMem host alloc is not supported on this system: disabled")]),
        ("R48", vec![warn("net.cc:560", "Error: network AWS Libfabric not found.")]),
        ("R49", vec![format!(
            "{}{}",
            info("Using network IB"),
            info("Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL")
        )]),
        ("R50", vec![format!(
            "{}{}",
            info("NET/OFI Running on p5.48xlarge platform, topology file /opt/p5.xml"),
            info("NET/OFI Selected provider is efa, fabric is efa-direct (found 1 nics)"),
        )]),
        ("R51", vec![warn("reg_mr_ofi:1002", "NET/OFI Unable to register memory (type = 2) for device 0. RC: -22, Error: Invalid argument")]),
        ("R52", vec![info("NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR")]),
        ("R29b", vec![
            warn("misc/shmutils.cc:132", "Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such file or directory (2)"),
            warn("misc/shmutils.cc:129", "Error while attaching to shared memory segment /dev/shm/nccl-glnlGK (size 14156128), error: No such file or directory (2)"),
        ]),
        ("R32b", vec![warn("transport/nvls.cc:333", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.")]),
        ("R36b", vec![warn("misc/socket.cc:717", "ncclSocketInit: connecting to address  with family 33022 is neither AF_INET(2) nor AF_INET6(10)")]),
        ("R37b", vec![
            warn("misc/socket.cc:484", "socketStartConnect: Connect to 169.254.3.1<43369> failed : Software caused connection abort"),
            warn("misc/socket.cc:484", "socketStartConnect: Connect to fe80::b6:1%eno1<43369> failed : No route to host"),
        ]),
        ("R58", vec![format!(
            "{}{}",
            info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"),
            info("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.2<0>").replace("gpu-1", "gpu-2"),
        )]),
        ("R59", vec![warn("process_err_completion:1562", "NET/OFI Request 0x7f00 completed with error. RC: 5. Error: Invalid receiver queue pair number (QPN) Peer host id: i-0b. Completed length: 0")]),
        ("R59b", vec![
            "Libfabric EFA provider has encountered an internal error:\n\nLibfabric error: (-22) Invalid argument\n".to_owned(),
            "Your application will now abort().\n".to_owned(),
        ]),
        ("R60", vec!["[rank0]: RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ^lo\n".to_owned()]),
        ("R23b", vec![warn("transport/net_ib.cc:154", "NET/IB : mlx5_1:1 async fatal event on QP (0x7309dc3bb338): invalid request local work queue error")]),
        ("R60b", vec!["[rank1]:[E528 08:52:46.164295950 ProcessGroupGloo.cpp:145] Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n".to_owned()]),
        ("R63", vec!["[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:22 (errno: 98 - Address already in use).\n".to_owned()]),
        ("R64b", vec!["[W306 00:03:07.8 TCPStore.cpp:358] [c10d] TCP client failed to connect/validate to host 10.0.0.7:29400 - retrying (try=0, timeout=60000ms, delay=15196ms): The client socket has failed to connect to [10.0.0.7]:29400 (errno: 111 - Connection refused).\n".to_owned()]),
        ("R64", vec!["[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to (10.0.0.7, 29500).\n".to_owned()]),
        ("R62", vec![warn("transport/rma_socket.cc:32 (ncclRmaSocketProxyInit)", "RMA/Socket : rma_socket requires GDRCopy; and GDR Copy is not available")]),
        ("R61", vec!["hostg: Test CUDA failure common.cu:1030 'system not yet initialized'\n".to_owned()]),
        ("R53", vec![warn("transport/net_ib.cc:334", "NET/IB : Unable to open device mlx5_2")]),
        ("R24b", vec![
            warn("misc/ibvwrap.cc:182", "Call to ibv_reg_mr_iova2 failed with error Invalid argument"),
            warn("misc/ibvwrap.cc:178", "Call to ibv_reg_mr_iova2 failed with error Bad address"),
        ]),
        ("R29c", vec![warn("misc/shmutils.cc:114", "Error while creating shared memory segment /dev/shm/nccl-NzwJ7O (size 9637888)")]),
        ("R29d", vec![warn("misc/shmutils.cc:103", "Cuda failure 'invalid argument'")]),
        ("R29e", vec![warn("transport/shm.cc:590", "Cuda failure 217 'peer access is not supported between these two devices'")]),
        ("R30b", vec![
            warn("transport/p2p.cc:238", "failed to open CUDA IPC handle : 217 peer access is not supported between these two devices"),
            warn("transport/p2p.cc:237", "Cuda failure 'invalid argument'"),
            warn("hipify/src/transport/p2p.cc:239", "hipIpcGetMemHandle failed : invalid argument"),
        ]),
        ("R66", vec![
            warn("process_err_completion:1723", "NET/OFI Operation with NULL context completed with error"),
            "libfabric:4711:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id: i-0a Peer EFA addr: fi_addr_efa://[fe80::2]:0:2 Peer host id: i-0b (7)\n".to_owned(),
        ]),
        ("R67", vec![warn("bootstrap.cc:131", "Bootstrap Root : rank 1 of 8 ranks has already checked in")]),
        ("R68", vec![warn("misc/cudawrap.cc:179", "Failed to find CUDA library libcuda.so (NCCL_CUDA_PATH='') : libcuda.so: cannot open shared object file: No such file or directory")]),
        ("R72", vec![warn("graph/xml.cc:332", "Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0")]),
        ("R71", vec![info("misc/socket.cc:564 -> 2") + &info("bootstrap.cc:270 -> 2") + &info("init.cc:1303 -> 2") + &info("group.cc:64 -> 2 [Async thread]")]),
        ("R70", vec![
            warn("proxy.cc:1519", "[Proxy Service 11] Failed to execute operation Connect from rank 11, retcode 2"),
            warn("proxy.cc:1600", "[Service thread] Error encountered progressing operation=Connect, res=2, closing connection"),
        ]),
        ("R24c", vec!["[1668693503.47] [amp:1188443:0]          ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n".to_owned()]),
        ("R24d", vec![warn("misc/ibvwrap.cc:288", "Call to ibv_reg_dmabuf_mr failed with error Operation not supported")]),
        ("R74", vec![
            warn("src/init.cpp:120", "Missing \"amd_iommu=on\" from kernel command line which can lead to system instablity or hang!"),
            warn("src/init.cpp:126", "Missing \"HSA_FORCE_FINE_GRAIN_PCIE=1\" from environment which can lead to low RCCL performance, system instablity or hang!"),
        ]),
        ("R80", vec![
            warn("net_fastsocket.cc:765", "Cannot get incoming CPU."),
            warn("net_fastsocket.cc:785", "Maximum retry reached for accept 3."),
            warn("net_fastsocket.cc:674", "Maximum retry reached for connect 3."),
        ]),
        ("R36c", vec![warn("bootstrap.cc:61", "Net : No interface found in the same subnet as remote address 172.17.0.3<1778>")]),
        ("R36d", vec![
            "gpu-1:3171:3171 [0] include/socket.h:311 WARN Socket creation failed : Address family not supported by protocol\n".to_owned(),
warn("misc/socket.cc:311", "Socket creation failed : Address family not supported by protocol")]),
        ("R45b", vec![warn("graph/search.cc:703", "XML Import Channel : dev 1 not found.")]),
        ("R45c", vec![warn("graph/xml.h:95", "Error : too many XML nodes (max 256)")]),
        ("R11b", vec![warn("register_mr_buffers:465", "NET/OFI Unable to register memory (type = 1) for device 3. RC: 638403601, Error: ")]),
        ("R81", vec![info("ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856")]),
        ("R82", vec![warn("transport/net_ib.cc:93", "NET/IB : Got async event : client reregistration")]),
        ("R76", vec![warn("init.cc:981", "Invalid rank requested : 1/1")]),
        ("R75", vec![warn("enqueue.cc:1590", "Error : no algorithm/protocol available")]),
        ("R73", vec![warn("graph/paths.cc:82", "Failed to find reverse path from remNode 0/200000 nlinks 3 to node 0/700000")]),
        ("R77", vec![
            "[1701292112.829711] [gpu-1:162239:0]      ucp_worker.c:1855 UCX  INFO    0x100b240 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1)\n".to_owned(),
        ]),
        ("R78", vec![
            "[1701292112.829711] [gpu-1:162239:0]      ucp_worker.c:1855 UCX  INFO    ucp_context_0 inter-node cfg#2 rma(tcp/eth0) am(tcp/eth0)\n".to_owned(),
            "|                         0..inf | software emulation                       | tcp/eth0         |\n".to_owned(),
        ]),
        ("R79", vec![one_of_three(
            "MNNVL busId 0x1b000 fabric UUID 5f.a1 cliqueId 0x7ffe state 3 healthMask 0xaa",
            "MNNVL busId 0x1b000 fabric UUID 6e.b2 cliqueId 0x7ffe state 3 healthMask 0xaa",
        )]),
        ("R69", vec![
            one_of_three("NCCL_IB_HCA set by environment to mlx5_0", "NCCL_IB_HCA set by environment to mlx5"),
            one_of_three("cudaDriverVersion 12020", "cudaDriverVersion 12040"),
            one_of_three("NET/OFI Initializing aws-ofi-nccl 1.9.1-aws", "NET/OFI Initializing aws-ofi-nccl 1.12.0-aws"),
            one_of_three("NET/Socket : Using [0]ens3:10.0.0.1<0>", "NET/Socket : Using [0]eth0:10.0.0.2<0>"),
            one_of_three("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", "NET/Plugin: Loaded net plugin IBext_v8 (v8)"),
            one_of_three("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation", "Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"),
        ]),
    ]
}

/// Returns the rules about the ends of jobs, with logs that each must explain.
fn ending() -> Vec<(&'static str, Vec<String>)> {
    let raised = |message: &str| {
        format!(
            "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/train.py\", line 3, in main\n[rank0]: {message}\n"
        )
    };
    let line = |text: &str| format!("{text}\n");
    let cuda = |words: &str| warn("init.cc:1303", &format!("Cuda failure '{words}'"));
    let test = |words: &str| format!("gpu-1: Test CUDA failure common.cu:1045 '{words}'\n");
    let watchdog = |rank: u32, seq: u32| {
        format!(
            "[rank{rank}]:[E1124 12:00:00.000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=7, NumelOut=7, Timeout(ms)=60000) ran for 60001 milliseconds before timing out.\n"
        )
    };
    vec![
        ("R83", vec![
            line("/nvshmem/src/host/transport/transport.cpp:nvshmemi_transport_init:275: init failed for transport: IBGDA"),
            line("/nvshmem/src/host/transport/transport.cpp:nvshmemi_transport_init:287: Unable to initialize any transports. returning error."),
        ]),
        (
            "C01",
            vec![raised(
                "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
            )],
        ),
        (
            "C02",
            vec![raised(
                "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 9 params, while rank 1 has inconsistent 0 params.",
            )],
        ),
        (
            "C03",
            vec![raised(
                "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 9 params, while rank 1 has inconsistent 8 params.",
            )],
        ),
        (
            "C04",
            vec![raised(
                "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by store->get('0'), but store->get('0') got error: Socket Timeout",
            )],
        ),
        (
            "C05",
            vec![raised(
                "torch.distributed.DistBackendError: NCCL error in: x.cpp:1333, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5",
            )],
        ),
        (
            "C06",
            vec![
                raised("RuntimeError: No CUDA GPUs are available"),
                cuda("no CUDA-capable device is detected"),
            ],
        ),
        (
            "C07",
            vec![
                cuda("CUDA driver version is insufficient for CUDA runtime version"),
                test("CUDA driver version is insufficient for CUDA runtime version"),
            ],
        ),
        (
            "C07b",
            vec![
                raised(
                    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
                ),
                raised(
                    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW",
                ),
            ],
        ),
        (
            "C08",
            vec![raised("RuntimeError: CUDA error: invalid device ordinal"), test("invalid device ordinal")],
        ),
        (
            "C09",
            vec![
                raised("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
                cuda("CUDA-capable device(s) is/are busy or unavailable"),
            ],
        ),
        (
            "C10",
            vec![
                cuda("named symbol not found"),
                raised("RuntimeError: CUDA error: no kernel image is available for execution on the device"),
            ],
        ),
        (
            "C11",
            vec![
                raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
                cuda("uncorrectable ECC error encountered"),
            ],
        ),
        (
            "C11b",
            vec![
                cuda("GPU is lost"),
                line("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"),
            ],
        ),
        ("R63b", vec![raised("torch.distributed.DistNetworkError: The server socket has failed to bind to [::]:80 (errno: 13 - Permission denied).")]),
        ("C06b", vec![cuda("initialization error")]),
        ("C06c", vec![cuda("mapping of buffer object failed")]),
        ("C06d", vec![cuda("operation not supported")]),
        ("C44b", vec![
            line("[rank4]:[F1126 10:00:00.1 ProcessGroupNCCL.cpp:1420] [PG ID 12 PG GUID 3 Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."),
            line("[PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info."),
        ]),
        ("C48b", vec![
            line("ssh not successful for host train-worker-1:"),
            raised("subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no 10.0.0.7 hostname' returned non-zero exit status 255."),
        ]),
        ("C50m", vec![line("F0929 10:00:00.1 4711 client.h:77] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died")]),
        ("C53b", vec![line("  Warning  BackOff  2m  kubelet  Back-off restarting failed container init-pytorch in pod x-worker-0")]),
        ("C12", vec![raised("OSError: [Errno 24] Too many open files")]),
        (
            "C13",
            vec![
                raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."),
                line("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0"),
            ],
        ),
        ("C14", vec![raised("OSError: [Errno 116] Stale file handle: 'x'")]),
        ("C15", vec![raised("OSError: [Errno 28] No space left on device")]),
        (
            "C16",
            vec![raised(
                "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory",
            )],
        ),
        ("C16b", vec![raised("ImportError: /x/libtorch_cuda.so: undefined symbol: ncclCommShrink")]),
        (
            "C17b",
            vec![raised(
                "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8000): Max retries exceeded with url: /x",
            )],
        ),
        ("C17", vec![raised("ModuleNotFoundError: No module named 'apex'")]),
        (
            "C18",
            vec![raised(
                "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded with url: /x",
            )],
        ),
        ("C20", vec![raised("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB")]),
        ("C21", vec![raised("RuntimeError: CUDA error: hipErrorIllegalState")]),
        (
            "C22",
            vec![
                raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.31 GiB"),
                cuda("out of memory"),
                test("out of memory"),
            ],
        ),
        (
            "C23",
            vec![
                line(
                    "gpu-1: Test NCCL failure common.cu:961 'internal error - please report this issue to the NCCL developers / '",
                ),
                raised(
                    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1333, unhandled system error (run with NCCL_DEBUG=INFO for details)",
                ),
            ],
        ),
        ("C30", vec![raised("ValueError: bad row")]),
        (
            "C31",
            vec![line(
                "[  77.1] NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            )],
        ),
        ("C32", vec![line("srun: error: gpu-1: task 0: Killed")]),
        ("C33", vec![raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible"), line("srun: error: gpu-1: task 0: Bus error")]),
        (
            "C34", vec![[("", 1), ("Root Cause (first observed failure):\n", 0)].map(|(head, rank)| format!("{head}[{rank}]:\n  time      : 2026-11-24_12:00:00\n  host      : gpu-1\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : -6 (pid: {rank}7)\n")).concat()]),
        ("C35b", vec![line("double free or corruption (!prev)")]),
        ("C35", vec![line("srun: error: gpu-1: task 0: Segmentation fault")]),
        (
            "C36",
            vec![line(
                "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.0.0.7 Worker port: 1 Worker PID: 77",
            )],
        ),
        (
            "C37",
            vec![raised(
                "torch.distributed.DistNetworkError: recvValue failed on SocketImpl(fd=7): Connection reset by peer",
            )],
        ),
        ("C38", vec![raised("BrokenPipeError: [Errno 32] Broken pipe")]),
        (
            "C39",
            vec![
                info("comm 0x7f10 rank 0 nranks 4 cudaDev 0 busId 1000 commId 0x5 - Init COMPLETE")
                    + &warn(
                        "misc/socket.cc:49",
                        "socketProgress: Connection closed by remote peer gpu-2<57557>",
                    ),
            ],
        ),
        (
            "C40",
            vec![
                line("slurmstepd: error: execve(): torchrun: No such file or directory"),
                line("srun: error: gpu-1: task 0: Exited with exit code 127"),
            ],
        ),
        ("C42", vec![line("srun: error: gpu-1: task 0: Exited with exit code 3")]),
        (
            "C43",
            vec![
                info("comm 0x7f10 rank 2 nranks 3 cudaDev 0 busId 1000 commId 0x5 - Init COMPLETE")
                    + &watchdog(0, 7)
                    + &watchdog(1, 7),
            ],
        ),
        ("C44", vec![watchdog(0, 7)]),
        ("C46", vec![line("ORTE was unable to reliably start one or more daemons.")]),
        (
            "C47",
            vec![
                line("ssh: Could not resolve hostname gpu-2: Name or service not known")
                    + &line("ORTE was unable to reliably start one or more daemons."),
            ],
        ),
        (
            "C48",
            vec![
                line("ssh: connect to host gpu-2 port 22: Connection refused")
                    + &line("ORTE was unable to reliably start one or more daemons."),
            ],
        ),
        (
            "C49",
            vec![raised(
                "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
            )],
        ),
        (
            "C49b",
            vec![line(
                "INFO:root:Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)",
            )],
        ),
        ("C49l", vec![line(
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
        )]),
        ("C49j", vec![
            warn("misc/socket.cc:379", "Call to bind failed : Cannot assign requested address"),
            line("[E socket.cpp:957] [c10d] The server socket has failed to bind to gpu-1:29500 (errno: 99 - Cannot assign requested address)."),
        ]),
        ("C49k", vec![line("RuntimeError: Distributed package doesn't have NCCL built in")]),
        ("C48f", vec![line(
            "RuntimeError: Using hostfile at hostfile but host=gpu-1 was not reachable via ssh. If you are running with a single node please remove hostfile or setup passwordless ssh.",
        )]),
        ("C48g", vec![line(
            "horovod.run.common.util.network.NoValidAddressesFound: Horovodrun was unable to connect to horovodrun driver service on any following addresses: {'lo': [('127.0.0.1', 18721)]}.",
        )]),
        ("C46k", vec![format!(
            "{0}\nWARNING: An invalid value was given for oob_tcp_if_include.  This\nvalue will be ignored.\n\n  Local host: gpu-1\n  Value:      10.0.2.0/24\n  \
             Message:    Did not find interface matching this subnet\n{0}\n",
            "-".repeat(74),
        )]),
        ("C46l", vec![line("Open MPI detected an inbound MPI TCP connection request from a peer")]),
        ("C49v", vec![line("srun: error: Task launch for 44.0 failed on node gpu-1: Can't find an address, check slurm.conf")]),
        ("C49u", vec![line("slurmd: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host")]),
        ("C43b", vec![line(
            "2024-07-29 17:14:59.920189: E external/xla/xla/service/rendezvous.cc:38] This thread has been waiting for `initialize clique for rank 6` for 10 seconds and may be stuck.",
        )]),
        ("C46m", vec![line("Abort(1091215) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\nMPIR_Init_thread(136)........:\nMPIDI_OFI_mpi_init_hook(1061): OFI addrinfo() failed (ofi_init.c:1061:MPIDI_OFI_mpi_init_hook:No data available)")]),
        ("C46n", vec![line("MPICH ERROR [Rank 519] [job id 9.0] [Tue Jun 11 15:11:42 2024] [gpu-1] - Abort(539602063) (rank 519 in comm 0): Fatal error in PMPI_Iprobe: Other MPI error, error stack:\nPMPI_Iprobe(126)...............: MPI_Iprobe(src=MPI_ANY_SOURCE) failed\nMPIDI_OFI_handle_cq_error(1075): OFI poll failed (ofi_events.c:1077:MPIDI_OFI_handle_cq_error:Input/output error - PTLTE_NOT_FOUND)")]),
        ("C50ca", vec![line("FATAL:   container creation failed: mount hook function failure: mount /proc/self/fd/9->/var/apptainer/mnt/session/rootfs error: while mounting image /proc/self/fd/9: squashfuse_ll exited with status 255")]),
        ("C53g", vec![line("  Warning  FailedCreatePod  108s (x17 over 7m15s)  pytorchjob-controller  Error creating: admission webhook \"mpod.kb.io\" denied the request: no")]),
        ("C06g", vec![
            line("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"),
            line("2022-06-17 10:02:11.118733: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error"),
            line("F0504 12:30:02.978602 2662 common.cpp:163] Check failed: error == cudaSuccess (30 vs. 0) unknown error"),
        ]),
        ("C06f", vec![warn("misc/nvmlwrap.cc:184", "nvmlDeviceGetHandleByPciBusId() failed: Not Found")]),
        ("C21ba", vec![line(
            "[13850.912648] amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        )]),
        ("C49z", vec![line("srun: error: Task launch for StepId=36.0 failed on node gpu-1: Unable to layout tasks on given cpus")]),
        (
            "C50",
            vec![
                line("srun: error: Task launch for 36.0 failed on node gpu-1: Job credential expired"),
                line("srun: error: task 0 launch failed: Plugin initialization failed"),
            ],
        ),
        (
            "C50b",
            vec![
                line(
                    "srun: error: Unable to create step for job 7: Requested node configuration is not available",
                ),
                line("sbatch: error: Batch job submission failed: Invalid partition name specified"),
            ],
        ),
        ("C50c", vec![line("/job/run.sh: line 7: torchrun: command not found")]),
        (
            "C50d",
            vec![
                line(
                    "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory",
                ),
                line(
                    "docker: Error response from daemon: failed to create shim: OCI runtime create failed: stderr: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
                ),
            ],
        ),
        ("C50e", vec![
            raised("ValueError: Process number should not be larger than total available slots."),
            line("--------\nAll nodes which are allocated for this job are already filled.\n--------"),
        ]),
        ("C50fa", vec![
            line("WARNING 04-01 02:45:50 ray_utils.py:320] The number of required GPUs exceeds the total number of available GPUs in the placement group."),
            line("INFO 04-01 02:46:20 ray_utils.py:214] Waiting for creating a placement group of specs for 30 seconds. specs=[{'GPU': 1.0}]."),
        ]),
        ("C49wa", vec![line("sbatch: error: Batch job submission failed: Protocol authentication error")]),
        ("C08b", vec![cuda("peer mapping resources exhausted")]),
        ("C03d", vec![raised("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 8 != 2 * 1 * 1")]),
        ("C07", vec![line("gpu-1:77:77 [0] init.cu:674 WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'")]),
        ("C22", vec![line("E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate 512.00M (536870912 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory")]),
        (
            "C50f",
            vec![line(
                "(autoscaler +34s) Error: No available node types can fulfill resource request {'GPU': 8.0}. Add suitable node types to this cluster to resolve this issue.",
            )],
        ),
        (
            "C50g",
            vec![line(
                "WARNING worker.py:1839 -- Raylet is terminated: ip=10.0.0.7, id=c2. Termination is unexpected.",
            )],
        ),
        ("C50j", vec![line("ERROR gcs: The node with node id: ada3 and address: 10.0.0.7 and node name: x has been marked dead because the detector has missed too many heartbeats from it.")]),
        ("C50k", vec![line("[gpu-1:94018] OPAL ERROR: Unreachable in file pmix3x_client.c at line 112")]),
        (
            "C50h",
            vec![line(
                "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0.",
            )],
        ),
        (
            "C50l",
            vec![line(
                "[rank3] WatchTasksAsync failed for task 3: UNAVAILABLE: failed to connect to all addresses",
            )],
        ),
        (
            "C50i",
            vec![line(
                "E coordination_service.cc:1170] /job:jax_worker/replica:0/task:3 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:3 heartbeat timeout.",
            )],
        ),
        ("C49a", vec![line("weftrun: error: the code was not fetched: https://git.example.com/a.git")]),
        (
            "C50a",
            vec![
                line("9m  Warning  Failed  pod/train-worker-0  Error: ErrImagePull"),
                line("slurmstepd: error: pyxis:     [ERROR] URL https://registry.example.com/v2/train/manifests/1 returned error code: 404 Not Found"),
                line("docker: Error response from daemon: pull access denied for train, repository does not exist."),
            ],
        ),
        (
            "C54",
            vec![line(
                "slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-24T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            )],
        ),
        (
            "C55",
            vec![line(
                "slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-24T12:00:00 DUE TO TIME LIMIT ***",
            )],
        ),
        (
            "C56",
            vec![line(
                "slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-24T12:00:00 DUE TO PREEMPTION ***",
            )],
        ),
        ("C57", vec![line("slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-24T12:00:00 ***")]),
        ("C11c", vec![line("[   21.09] NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)")]),
        ("C21b", vec![line(" 41%|████  | 366/903 [5:15:39<6:53:09, 46.16s/it]HW Exception by GPU node-9 (Agent handle: 0x63) reason :GPU Hang")]),
        ("C21c", vec![line("Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.")]),
        ("C39b", vec![line("slurmstepd: error: execve(): /var/spool/slurmd/job00089/slurm_script: No such file or directory")]),
        ("C46z", vec![line("Abort(2138767) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Unknown error class, error stack:\nfind_provider(2819)..........: OFI fi_getinfo() failed (ofi_init.c:2819:find_provider:No data available)")]),
        ("C46", vec![line("prterun was unable to reliably start one or more daemons.")]),
        ("C48b", vec![line("Traceback (most recent call last):\n  File \"runner.py\", line 281, in main\n    x()\nsubprocess.CalledProcessError: Command '['ssh node-0 hostname -I']' returned non-zero exit status 255.")]),
        ("C10b", vec![line("/pytorch/aten/src/ATen/native/hip/Indexing.hip:1292: indexSelectLargeIndex: Device-side assertion `srcIndex < srcSelectDimSize' failed.")]),
        ("C51", vec![line("  Warning  Evicted              109s  kubelet                                Pod ephemeral local storage usage exceeds the total limit of containers 5Gi.")]),
        ("R24cb", vec![line("[1784273406.684686] [n1:994396:0]      ib_mlx5_dv.c:452  UCX  ERROR   mlx5dv_devx_obj_create(CQ) failed on mlx5_1, syndrome 0x2aac7c: Remote I/O error")]),
        ("R24j", vec![line("libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs4")]),
        ("C55h", vec![line("n5:3048:4991 [2] graph/rings.cc:38 NCCL WARN Error : ring 2 does not loop back to start (7 != 2)")]),
        ("C55i", vec![line("[rank0]: torch.distributed.DistBackendError: NCCL error in: a.cpp:1, internal error, NCCL version 2.18.1\n[rank0]: ncclInternalError: Internal check failed.\n[rank0]: Last error:\n[rank0]: Proxy Call to rank 7 failed (Connect)")]),
        ("C55j", vec![warn("misc/socket.cc:415", "socketTryAccept: Accept failed: Bad file descriptor")]),
        ("R52c", vec![line("RuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0")]),
        ("R52d", vec![line("libfabric:7:core:core:fi_getinfo_():889<warn> fi_getinfo: provider efa returned -61 (No data available)")]),
        ("C12", vec![line("2023-Aug-01 16:12:43.0204 332066:332417 [18] bootstrap.cc:106 CCOM WARN Call to accept failed : Too many open files")]),
        ("C51", vec![line("    message: 1/8 workers are evicted\n    reason: MPIJobEvicted")]),
        (
            "C44d",
            vec![
                line("[rank0]: torch.distributed.DistBackendError: NCCL error in: a.cpp:3780, remote process exited or there was a network error, NCCL version 2.28.9\n[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n[rank0]: Last error:\n[rank0]: socketProgress: Connection closed by remote peer")
                    + &[(0, 11), (1, 12)]
                        .map(|(rank, pid)| {
                            line(&format!("n{rank}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x363c0ad0 rank {rank} nranks 2 cudaDev 0 nvmlDev {rank} busId 70 commId 0xc913ec65bea8c0e1 - Init COMPLETE"))
                        })
                        .concat()
                    + &line("n1:12:12 [0] NCCL INFO comm 0x363c0ad0 rank 1 nranks 2 cudaDev 0 busId 70 - Destroy COMPLETE"),
            ],
        ),
        (
            "C44c",
            vec![
                [(0, 7, "ALLREDUCE"), (1, 9, "BROADCAST")]
                    .map(|(rank, seq, op)| {
                        line(&format!(
                            "[rank{rank}]:[E1124 12:00:00.5 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600019 milliseconds before timing out."
                        ))
                    })
                    .concat(),
            ],
        ),
        (
            "C46b",
            vec![
                line("[mpiexec@gpu-1] check_exit_codes (../hydra/libhydra/demux/hydra_demux_poll.c:117): unable to run bstrap_proxy on gpu-2 (pid 77, exit code 256)"),
                line("[mpiexec@gpu-1] HYDU_create_process (utils/launch/launch.c:74): execvp error on file hydra_pmi_proxy (No such file or directory)"),
            ],
        ),
        (
            "C46c",
            vec![
                line("ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[53,0],0] on node gpu-1\n  Remote daemon: [[53,0],1] on node gpu-2"),
                line("PRTE has lost communication with a remote daemon."),
            ],
        ),
        (
            "C46d",
            vec![line("[proxy:0:3@gpu-2] HYDU_sock_connect (lib/utils/sock.c:140): unable to connect from \"gpu-2\" to \"gpu-1\" (No route to host)\nsrun: error: gpu-2: task 3: Exited with exit code 5")],
        ),
        ("C46e", vec![line("[gpu-1][[463,1],0][btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_complete_connect] connect() to 10.102.1.194 failed: No route to host (113)")]),
        (
            "C49d",
            vec![line(
                "initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/4\ninitializing ddp: GLOBAL_RANK: 1, MEMBER: 2/4\ninitializing ddp: GLOBAL_RANK: 0, MEMBER: 1/4",
            )],
        ),
        ("C14b", vec![raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/train/1.jpg'")]),
        ("C14c", vec![raised("PermissionError: [Errno 13] Permission denied: '/data/out'")]),
        ("C49e", vec![line("[rank1]:[W516 14:34:56.8 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=79, addr=[localhost]:41170, remote=[localhost]:29500) timed out after 1800000ms")]),
        ("R30c", vec![line("# Out of bounds values : 50 FAILED\n# Avg bus bandwidth    : 1.2")]),
        ("C49c", vec![raised("torch.distributed.elastic.rendezvous.api.RendezvousClosedError")]),
        ("C53c", vec![line("  Warning  FailedMount  26m  kubelet  Unable to attach or mount volumes: unmounted volumes=[data]: timed out waiting for the condition")]),
        ("C53d", vec![line("  Warning  FailedCreatePodSandBox  4m  kubelet  Failed to create pod sandbox: rpc error: desc = failed to get sandbox runtime: no runtime for \"nvidia\" is configured")]),
        ("C50n", vec![line("  pmix_psec_base_open failed\n  --> Returned value -46 instead of PMIX_SUCCESS")]),
        ("C50o", vec![line("*** The MPI_Barrier() function was called before MPI_INIT was invoked.\n*** Your MPI job will now abort.")]),
        ("C50p", vec![line("The worker group startup timed out after 30.0 seconds waiting for 8 workers.")]),
        ("C50q", vec![line("No PMIx server was reachable, but a PMI1/2 was detected.")]),
        ("R24e", vec![
            line("[1581060992.28] [gpu-1:77 :0]  select.c:438  UCX  ERROR no active messages transport to <no debug data>: posix/memory - Destination is unreachable"),
            line("[gpu-1:77] pml_ucx.c:323 Error: ucp_ep_create(proc=1) failed: Destination is unreachable"),
        ]),
        ("R60c", vec![raised("RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/address.cc:81] ss1.ss_family == ss2.ss_family. 2 vs 10")]),
        ("R60d", vec![line("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:281] rv != -1. -1")]),
        ("C12b", vec![raised("RuntimeError: unable to open shared memory object </torch_7_1> in read-write mode")]),
        ("C03ca", vec![
            raised("AssertionError: num_layers should be divisible by pipeline_model_parallel_size"),
            raised("ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)."),
        ]),
        ("C12a", vec![
            raised("RuntimeError: unable to write to file </torch_7_1_2>: No space left on device (28)"),
            raised("RuntimeError: unable to allocate shared memory(shm) for file </torch_7_1_2>: No space left on device (28)"),
            raised("RuntimeError: unable to open shared memory object </torch_7_1> in read-write mode: No space left on device (28)"),
            raised("OSError: [Errno 28] No space left on device: '/psm_1a2b3c'"),
        ]),
        ("C15", vec![raised("OSError: [Errno 28] No space left on device: '/out/checkpoint-1/model.pt'")]),
        ("C08c", vec![
            line("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n[373.35] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2827"),
        ]),
        ("C10b", vec![
            raised("RuntimeError: CUDA error: device-side assert triggered"),
            cuda("device-side assert triggered"),
            line("../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [342,0,0], thread: [96,0,0] Assertion `srcIndex < srcSelectDimSize` failed."),
        ]),
        ("R17b", vec![line("DeepEP dispatch NVL receiver timeout, channel: 9, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 3, start: 0, end: 0")]),
        ("R17c", vec![raised("nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND")]),
        ("R24g", vec![
            line("e001.53882PSM2 no hfi units are active (err=23)"),
            line("gpu-1:rank0: PSM3 can't open nic unit: 0 (err=23)\nAbort(673306767): Fatal error in internal_Init_thread: Other MPI error, error stack:\nMPID_Init(513)...........: \ncreate_vni_context(982)..: OFI endpoint open failed (ofi_init.c:982:create_vni_context:Cannot allocate memory)"),
        ]),
        ("R24h", vec![line("PSM could not set up shared memory segment (err=9)\nAbort(1094543) on node 5 (rank 5 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\nMPID_Init(863)..............:")]),
        ("R17", vec![line("E0325 09:33:41.551047  8274 worker_pool.cpp:294] Worker: Process failed for slice (opcode: 1, peer_nic: 10.0.0.7:15867@mlx5_9, retry_cnt: 0): transport retry counter exceeded")]),
        ("R19", vec![line("[1745700389.902821] [gpu-1:6274 :0]     ib_mlx5_log.c:179  UCX  ERROR Local protection error on mlx5_0:1/RoCE (synd 0x4 vend 0x51 hw_synd 0/2)")]),
        ("R22", vec![line("[1745563465.856286] [gpu-1:1617 :0]       ib_device.c:1332 UCX  ERROR   ibv_create_ah(dlid=49152 sl=0 port=1 src_path_bits=0 dgid=::ffff:10.0.0.2 flow_label=0xffffffff sgid_index=3) for UD mlx5 connect on mlx5_3 failed: Connection timed out\nTraceback (most recent call last):\n  File \"/train.py\", line 3, in <module>\nnixl._bindings.nixlBackendError: NIXL_ERR_BACKEND")]),
        ("R20", vec![line("[gpu-1:26764:0:26764] ib_mlx5_log.c:143  Remote access on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)")]),
        ("R21", vec![line("/src/nvshmem/src/modules/transport/ibgda/ibgda.cpp:1393: non-zero status: 121 Error in mlx5dv_devx_obj_modify for INIT2RTR_QP with syndrome 764216")]),
        ("R21b", vec![line("E0924 01:29:28.347672  2254 rdma_context.cpp:499] Failed to query GID 0 on mlx5_0/: Invalid argument [22]")]),
        ("R24i", vec![line("[33059.091472] mlx5_core 0000:41:00.0: mlx5_cmd_out_err:800:(pid 233522): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x18af6), err(-12)")]),
        ("R60b", vec![line("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at /gloo/gloo/transport/tcp/pair.cc:498] optval == 0. 111 vs 0. SO_ERROR: Connection refused")]),
        ("C43h", vec![
            line("EI0006: 2024-08-05-18:15:21.270.506 Getting socket times out. Reason: Remote Rank did not send the data in time."),
            line("        The error from device(chipId:5, dieId:0), serial number is 17, hccl fftsplus task timeout occurred during task execution, stream_id:7"),
        ]),
        ("C46a", vec![line("bash: /usr/local/bin/orted: No such file or directory\n------\nORTE was unable to reliably start one or more daemons.")]),
        ("C35", vec![raised("Exception: process 1 terminated with signal SIGSEGV")]),
        ("C57a", vec![line("slurmstepd: error: *** JOB 7 ON gpu-1 CANCELLED AT 2026-11-24T12:00:00 DUE TO JOB REQUEUE ***\nsrun: error: gpu-1: tasks 2-3: Exited with exit code 1")]),
        ("R25b", vec![line("/src/nvshmem/src/modules/transport/ibgda/ibgda.cpp:nvshmemt_init:3626: neither nv_peer_mem, or nvidia_peermem detected. Skipping transport.")]),
        ("R35b", vec![line("[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemCreate(&handle, size, &prop, 0 ) on gpu-1, rank = 0")]),
        ("R52b", vec![line("2026:08:21-10:41:21:( 8320) |CCL_ERROR| atl_ofi_helper.cpp:867 atl_ofi_get_prov_list: fi_getinfo error: ret -61, providers 0\n2026:08:21-10:41:21:( 8320) |CCL_ERROR| atl_ofi_helper.cpp:1384 atl_ofi_open_nw_provs: can not open network providers")]),
        ("C17c", vec![
            line("HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://hub.example/api/datasets/x"),
            raised("urllib.error.HTTPError: HTTP Error 429: Too Many Requests"),
            raised("requests.exceptions.RetryError: Max retries exceeded with url: /x (Caused by ResponseError('too many 429 error responses'))"),
        ]),
        ("C17d", vec![raised("requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://hub.example/x")]),
        ("C17e", vec![raised("requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://hub.example/x")]),
        ("C17f", vec![raised("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://hub.example/x")]),
        ("R21b", vec![
            line("F20250825 11:10:33.595355   331 util_rdma.h:592] Check failed: ncclIbRoceGetVersionNum(deviceName, portNum, gidIndexCandidate, &gidRoceVerNumCandidate) "),
            warn("transport/net_ib.cc:300", "NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument"),
        ]),
        ("R24ca", vec![line("[1645552289.027611] [gpu-1:77:0]      ib_mlx5_dv.c:161  UCX  ERROR   mlx5dv_devx_obj_create(QP) failed, syndrome 0: Cannot allocate memory\nAbort(1091215) on node 5 (rank 5 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\nMPIR_Init_thread(138)........:")]),
        ("C46z", vec![line("Abort(1091215) on node 5 (rank 5 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:")]),
        ("C50bb", vec![line("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")]),
        ("C57b", vec![line("[63532.0] error: *** STEP 63532.0 ON gpu-1 CANCELLED AT 2020-12-14T09:43:55 ***\n[63532.0] error: *** STEP 63532.0 STEPD TERMINATED ON gpu-1 AT 2020-12-14T09:44:56 DUE TO JOB NOT ENDING WITH SIGNALS ***")]),
        ("C55", vec![line("[63532.0] error: *** JOB 63532 ON gpu-1 CANCELLED AT 2020-12-14T09:43:55 DUE TO TIME LIMIT ***")]),
        ("C50eb", vec![line("No slot 2 specificied on host work1"), raised("ValueError: Hostname 'gpu-9' not found in hostfile")]),
        ("C50eg", vec![line("[2023-06-06 02:44:00,164] [WARNING] [runner.py:191:fetch_hostfile] Unable to find hostfile, will proceed with training with local resources only.")]),
        ("C50ec", vec![line("--------------------------------------------------------------------------\nA request was made to bind to that would result in binding more\nprocesses than cpus on a resource:\n\n   Bind to:     CORE\n   Node:        gpu-1\n   #processes:  2\n   #cpus:       1\n--------------------------------------------------------------------------")]),
        ("C50ed", vec![line("mpirun has detected an attempt to run as root.")]),
        ("R37b", vec![line("socketPollConnect: connect to 169.254.170.23<44321> returned Connection refused, retrying (13/34)\nRuntimeError: NCCL error: remote process exited or there was a network error")]),
        ("C14a", vec![
            raised("OSError: [Errno 39] Directory not empty: '/out/tmp-1' -> '/out/checkpoint-1'"),
            raised("FileExistsError: [Errno 17] File exists: '/out/checkpoint-1'"),
            raised("FileNotFoundError: [Errno 2] No such file or directory: 'tmp-1' -> 'checkpoint-1'"),
        ]),
        ("C14e", vec![line("slurmstepd: error: pyxis:     Write failed because No space left on device\nslurmstepd: error: pyxis:     FATAL ERROR:Failed to write to output filesystem")]),
        ("C15a", vec![raised("RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/2: file write failed")]),
        ("C14", vec![raised("RuntimeError: write(): fd 29 failed with Input/output error")]),
        ("C06", vec![raised("RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices found for platform CUDA")]),
        ("C08", vec![line("2024-09-05 07:57:34.5: W external/xla/xla/service/platform_util.cc:199] unable to create StreamExecutor for CUDA:1: failed initializing StreamExecutor for CUDA device ordinal 1: INTERNAL: Failed call to cuDeviceGet: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal")]),
        ("C09", vec![line("local_domain.cuh@54: CUDA Runtime Error(46): all CUDA-capable devices are busy or unavailable")]),
        ("C11d", vec![line("CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware error")]),
        ("C13", vec![line("Memory on the node (IP: 10.0.0.7, ID: 2c) where the task (task ID: 7, name=f, pid=6, memory used=0.05GB) was running was 219.41GB / 230.40GB (0.952289), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: ba)")]),
        ("C31b", vec![line("[ 9.0] NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception\n[ 14.0] NVRM: Xid (PCI:0000:cb:00): 109, pid=17, name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005")]),
        ("C32", vec![line("=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 96 RUNNING AT gpu-1\n=   EXIT CODE: 9\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)")]),
        ("C32b", vec![line("Epoch 1:  29%|#9 | 94/323 [3:28<8:28, 1.33s/it]Terminated"), line("Terminated"), line("run.sh: line 3:  77 Terminated    python train.py")]),
        ("C35a", vec![line("train: llmc/dataloader.h:186: void init(int): Assertion `tokens >= need' failed.\n[gpu-1:77] Signal: Aborted (6)")]),
        ("C46a", vec![line("bash: orted: command not found\nORTE was unable to reliably start one or more daemons.")]),
        ("C46f", vec![line("[mpiexec@gpu-1] HYD_pmcd_pmiserv_proxy_init_cb (pm/pmiserv/pmiserv_cb.c:450): assert (!closed) failed")]),
        ("C46g", vec![line("[gpu-1:77] *** MPI_ERR_TRUNCATE: message truncated\n[gpu-1:77] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,")]),
        ("C46h", vec![line("[gpu-1:77] *** An error occurred in MPI_Bcast\n[gpu-1:77] *** MPI_ERR_COMM: invalid communicator\n[gpu-1:77] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,")]),
        ("C47b", vec![line("I0224 13:50:30.2 15 tcp_utils.cc:107] Retry to connect to 127.0.1.1:63917 while the server is not yet listening.")]),
        ("C47", vec![format!("RuntimeError: The client socket has failed to connect to any network address of (gpu-9, 577). The IPv6 network addresses of (gpu-9, 577) cannot be retrieved (gai error: -2 - Name or service not known).\n{}", "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 51) of binary: python\n")]),
        ("R64", vec![
            line("[W socket.cpp:755] [c10d] The IPv6 network addresses cannot be retrieved\n[E socket.cpp:1019] The client socket has timed out after 900000ms while trying to connect"),
            line("[E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (10.0.0.9, 1234)."),
        ]),
        ("C49f", vec![line("initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/8\ninitializing ddp: GLOBAL_RANK: 0, MEMBER: 1/8")]),
        ("C49g", vec![line("[ERROR] HCCL(27,python3):2025-07-23-03:47:57.0 [hccl_socket.cc:100] [27][HcclSocket][Listen] socket type[1], listen on ip[10.0.0.1] and specific port[16666] fail.")]),
        ("C49h", vec![line("[ERROR] HCCL(13,all_reduce_test):2025-12-24-16:19:45.4 [hccl_socket_manager.cc:813] [13][Wait][LinkEstablish]wait socket establish timeout, role[0] rank[0] timeout[120 s]")]),
        ("C44", vec![line("[rank1]: RuntimeError: InnerRunOpApi:OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6\n[rank1]: [ERROR] 2025-04-08-18:07:20 (PID:12, Device:1, RankID:1) ERR01100 OPS call acl api failed.\n[rank1]: EI0006: [PID: 12] 2025-04-08-18:07:20.4 Getting socket times out. Reason: Remote Rank did not send the data in time.")]),
        ("C50d", vec![line("slurmstepd: error: pyxis: child 10 failed with error code: 1\nslurmstepd: error: pyxis: failed to import docker image")]),
        ("C50ea", vec![line("(autoscaler +13s) Error: No available node types can fulfill resource request {'node:10.0.0.9': 0.001, 'GPU': 1.0}. Add suitable node types to this cluster to resolve this issue.")]),
        ("C50k", vec![line("PMI2_Init failed to intialize.  Return code: 1")]),
        ("C50r", vec![line("E0000 00:00:17.5  69 pjrt_stream_executor_client.cc:3072] Execution of replica 0 failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: devices=[0,1]")]),
        ("C53e", vec![line("1.7 DEBUG events Pod: kubeflow.train-worker-0 exited with code 1")]),
        ("R11", vec![line("[ 1632.4] infiniband efa_0: Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12")]),
        ("R22", vec![line("Failed to modify QP to RTR: Connection timed out")]),
        ("R03b", vec![line("Traceback (most recent call last):\n  File \"/job/a.py\", line 1, in <module>\nImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.20' not found (required by /opt/a.so)")]),
        ("R24", vec![
            line("Libfabric EFA provider has encountered an internal error:\n\nLibfabric error: (-12) Cannot allocate memory\nEFA internal error: (4112) Failure to post internal receive buffers\n\nYour application will now abort()."),
            line("n1:pid7.hello: Unable to create send CQ of size 5080 on mlx5_0: Cannot allocate memory"),
        ]),
        ("R24b", vec![line("E0511 07:42:36.3 10 rdma_context.cpp:198] Failed to register memory 0x2e1c: Bad address [14]")]),
        ("R24c", vec![line("UCX ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory")]),
        ("R24f", vec![line("gpu-1.30hfi_userinit_internal: assign_context command failed: Device or resource busy"), line("gpu-1.30PSM2 can't open hfi unit: 0 (err=23)")]),
        ("C03b", vec![raised("RuntimeError: disagreement between rank0 and rank1: rank0: [1, 2], rank1: [2, 1]")]),
        ("C03c", vec![
            raised("AssertionError: expected local-rank to be the same as rank % device-count."),
            raised("RuntimeError: world size (8) is not divisible by 3"),
        ]),
        ("C14d", vec![
            line("slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device\nslurmstepd: error: pyxis: couldn't start container"),
            raised("OSError: [Errno 28] inotify watch limit reached"),
        ]),
        ("C37b", vec![line("RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.")]),
        ("C04b", vec![warn("init.cc:1256", "Your program may be hanging, this may be caused by a collective mismatch around rank 1.")]),
        ("C46i", vec![line("[gpu-1:14] pml_ucx.c:285  Error: UCP worker does not support MPI_THREAD_MULTIPLE\nNo components were able to be opened in the pml framework.")]),
        ("C46j", vec![line("[gpu-1:17] PML ucx cannot be selected")]),
        ("C49e", vec![line("torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//2//cpu//0/2")]),
        ("C49y", vec![line("slurmstepd: error:  mpi/pmix_v3: pmixp_coll_ring_reset_if_to: gpu-1 [0]: pmixp_coll_ring.c:742: 0x14: collective timeout seq=0")]),
        ("R41", vec![line("Error during backward on rank0: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=16, OpType=ALLREDUCE, TensorShape=[7]), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=16, OpType=ALLREDUCE, TensorShape=[9]).")]),
        ("C21d", vec![line(":0:rocdevice.cpp            :2660: 18 us: 17: [tid:0x7f] Device::callbackQueue aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016")]),
        ("C49w", vec![line("srun: error: If munged is up, restart with --num-threads=10\nsrun: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory")]),
        ("C49x", vec![line("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)")]),
        ("C50d", vec![line("E0604 15:51:53.7 15 kuberuntime_manager.go:749] container start failed: CreateContainerConfigError: endpoint not found in cache for a registered resource: nvidia.com/gpu")]),
        ("C53", vec![line(" Warning FailedScheduling  40s (x2 over 40s)  default-scheduler  0/2 nodes are available: 1 Insufficient nvidia.com/gpu.")]),
        ("C53b", vec![line("    State:          Waiting\n      Reason:       CrashLoopBackOff")]),
        ("R34", vec![line("[gpu-1:0:77 - context.c:670][2024-01-01 00:00:00] ERROR sharp_get_job_data_len failed: Job error(-35)")]),
        ("C06e", vec![line("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")]),
        ("C10", vec![raised("RuntimeError: CUDA error: hipErrorNoBinaryForGpu")]),
        ("C53", vec![line("0/10 nodes are available: 10 Insufficient nvidia.com/gpu.")]),
        ("C11e", vec![line("kernel: nvidia-nvswitch3: SXid (PCI:0000:89:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error")]),
        ("C14g", vec![line("kernel: I/O error, dev sda, sector 77"), line("kernel: nvme nvme0: I/O 12 QID 3 timeout, aborting")]),
        ("C14h", vec![line("kernel: INFO: task python:77 blocked for more than 120 seconds.")]),
        ("C30b", vec![line("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --local-rank=1")]),
        ("C32", vec![line("step 7\nKilled")]),
        ("C35b", vec![line("free(): double free detected in tcache 2"), line("*** stack smashing detected ***: terminated")]),
        ("C48c", vec![line("kex_exchange_identification: read: Connection reset by peer")]),
        ("C48d", vec![line("Host key verification failed.")]),
        ("C49i", vec![raised("ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set")]),
        ("C50s", vec![line("raylet.cc: Check failed: status.ok() Unable to connect to GCS at 10.0.0.1:6379")]),
        ("C53f", vec![line("Warning  FailedCreate  2m  job-controller  Error creating: pods \"x\" is forbidden: exceeded quota: gpus")]),
        (
            "C58",
            vec![line("[ERROR] the oven is cold")],
        ),
    ]
}

/// Rules that no single log proves: the cluster's reports and the logs of all ranks do.
const OF_OTHER_SOURCES: [&str; 3] = ["C41", "C51", "C53"];

#[test]
fn what_the_cluster_and_all_logs_prove_has_its_rule() {
    use weftrun_core::job::{JobDetail, JobPhase, JobSummary};
    let codes: Vec<String> = ["Evicted", "Unschedulable"]
        .map(|reason| {
            let mut job = JobSummary::new("k8s://c/ns/train".parse().unwrap(), JobPhase::Failed);
            job.reason = reason.to_owned();
            let map = weftrun_core::nccl::TransportMap::new();
            let why = Sources::of_logs(&map).job(Some(&JobDetail::new(job))).diagnose().why;
            why.cause.unwrap().code
        })
        .into();
    assert_eq!(codes, ["POD-EVICTED", "POD-NOT-PLACED"]);
    let mut map = weftrun_core::nccl::TransportMap::new();
    for rank in 0..3 {
        let source = std::sync::Arc::new(weftrun_core::log::SourceId::new(format!("rank{rank}.log")));
        let joined = format!(
            "gpu-1:3{rank}:3{rank} [{rank}] NCCL INFO comm 0x7f10 rank {rank} nranks 3 cudaDev {rank} busId {rank}0 commId 0x5 - Init COMPLETE\n"
        );
        let closed = format!(
            "gpu-1:3{rank}:3{rank} [{rank}] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer gpu-1<57557>\n\
             [rank{rank}]: torch.distributed.DistBackendError: NCCL error in: x.cpp:7, remote process exited or there was a network error\n"
        );
        map.read(&source, joined.as_bytes());
        if rank != 1 {
            map.read(&source, closed.as_bytes());
        }
        map.end(&source);
    }
    let cause = Sources::of_logs(&map).diagnose().why.cause.unwrap();
    assert_eq!((cause.code.as_str(), cause.ranks.as_slice()), ("PROCESS-SILENT", &[1][..]));
}

fn why_of(log: &str) -> weftrun_diagnose::cause::Why {
    let mut map = weftrun_core::nccl::TransportMap::new();
    let source = std::sync::Arc::new(weftrun_core::log::SourceId::new("log"));
    map.read(&source, log.as_bytes());
    map.end(&source);
    Sources::of_logs(&map).diagnose().why
}

fn cause_of(log: &str) -> Option<weftrun_diagnose::cause::Cause> {
    why_of(log).cause
}

/// Returns the rules of the cause and the notes of a log.
fn causes_of(log: &str) -> Vec<&'static str> {
    let why = why_of(log);
    let id = |code: &str| rules().find(|rule| rule.code == code).map(|rule| rule.id);
    let noted = why.findings.iter().filter_map(|finding| finding.rule.as_deref());
    let noted = noted.filter_map(|known| rules().find(|rule| rule.id == known)).map(|rule| rule.id);
    why.cause.iter().filter_map(|cause| id(&cause.code)).chain(noted).collect()
}

#[test]
fn every_cause_has_its_rule() {
    let mut missed = Vec::new();
    for (rule, logs) in ending() {
        for log in logs {
            let found = causes_of(&log);
            if !found.contains(&rule) {
                missed.push(format!("{rule} did not fire but {found:?}: {log}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What explains a failure is the cause, and what only reports it is none.
#[test]
fn what_explains_a_failure_comes_before_what_reports_it() {
    const SHUTDOWN: &str = "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce a tensor after one of the ranks finished execution.";
    let munge = "sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory\n";
    let refused = "sbatch: error: Batch job submission failed: Protocol authentication error\n";
    let too_large =
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n";
    let provider = "find_ofi_provider:543 NCCL WARN NET/OFI Couldn't find any optimal provider\n";
    let undetected = "Error: EFA libfabric provider not detected.\n";
    let actor = "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tpid: 64\n\tip: 10.0.0.3\n";
    let node = "The actor is dead because its node has died. Node Id: 677d\n";
    let traceback =
        "Traceback (most recent call last):\n  File \"/job/train.py\", line 3, in main\n    f()\n";
    let full = "E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate 512.00M (536870912 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n";
    let unread = "epoch 1\n".repeat(30);
    let xid = |pci: &str, number: u32, by: &str| {
        format!("[14328.19] NVRM: Xid (PCI:0000:{pci}:00): {number}, pid={by}, name=x, Ch 00000010\n")
    };
    let named = "ssh: Could not resolve hostname gpu-9: Name or service not known\n";
    for (log, first) in [
        (format!("{munge}{refused}"), "SLURM-MUNGE"),
        (refused.to_owned(), "SLURM-NOT-AUTHENTICATED"),
        (format!("{munge}{too_large}"), "SLURM-MUNGE"),
        // Another program's error above it.
        (format!("/job/run.sh: line 3: module: command not found\n{too_large}"), "SLURM-REFUSED"),
        (format!("{provider}{undetected}"), "OFI-NO-PROVIDER"),
        (format!("{provider}{unread}{undetected}"), "PROGRAM-EXCEPTION"),
        (format!("{provider}{traceback}ValueError: no such layer\n"), "PROGRAM-EXCEPTION"),
        (format!("{actor}{node}"), "RAY-NODE-DEAD"),
        (actor.to_owned(), "PEER-ENDED"),
        (format!("run.sh: line 3: module: command not found\n{actor}"), "PEER-ENDED"),
        (format!("{full}AbortedError (see above for traceback): {SHUTDOWN}\n"), "GPU-OUT-OF-MEMORY"),
        (format!("AbortedError (see above for traceback): {SHUTDOWN}\n"), "PEER-ENDED"),
        (format!("{}{}", xid("0a", 31, "133"), xid("0a", 62, "'<unknown>'")), "GPU-XID-OF-PROGRAM"),
        (format!("{}{}", xid("0b", 31, "133"), xid("0a", 62, "'<unknown>'")), "GPU-XID"),
        (format!("{}{}", xid("0a", 31, "133"), xid("0a", 79, "133")), "GPU-XID"),
        (named.to_owned(), "HOST-NOT-RESOLVED"),
    ] {
        let found = causes_of(&log);
        let code = |id: &&str| rules().find(|rule| rule.id == *id).map(|rule| rule.code);
        assert_eq!(found.first().and_then(code), Some(first), "{log}: {found:?}");
    }
    let shutdown = format!(
        "[1,1]<stderr>:  File \"/opt/horovod/torch/mpi_ops.py\", line 436, in synchronize\n[1,1]<stderr>:RuntimeError: {SHUTDOWN}\n\
         mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n\
         \x20 Process name: [[50371,1],0]\n  Exit code:    1\n"
    );
    let cause = cause_of(&shutdown).unwrap();
    assert_eq!((cause.code.as_str(), cause.ranks.as_slice()), ("PROCESS-EXITED", &[0][..]));
    let slots = |name: &str| {
        let log = format!(
            "ssh: Could not resolve hostname {name}: Name or service not known\nORTE was unable to reliably start one or more daemons.\n"
        );
        cause_of(&log).unwrap().fix
    };
    // One prefix stands before many reasons: the fix follows from the words behind it.
    for (log, wanted) in [
        (
            "srun: error: Unable to allocate resources: Socket timed out on send/recv operation",
            "scontrol ping",
        ),
        (
            "srun: error: Unable to allocate resources: Unable to contact slurm controller (connect failure)",
            "scontrol ping",
        ),
        (
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            "scontrol ping",
        ),
        (
            "salloc: error: Job submit/allocate failed: Requested node configuration is not available",
            "fit into the partition",
        ),
        (
            "srun: error: Unable to create step for job 7: More processors requested than permitted",
            "fit into the partition",
        ),
        ("srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification", "%G"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "--constraint"),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "sinfo -s"),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
            "--time",
        ),
        (
            "sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)",
            "takes no jobs now",
        ),
        ("sbatch: error: Batch job submission failed: Requested reservation is invalid", "reservation"),
        ("srun: error: Unable to confirm allocation for job 7: Invalid job id specified", "SLURM_JOB_ID"),
        (
            "srun: error: Unable to allocate resources: User's group not permitted to use this partition",
            "sacctmgr",
        ),
        ("srun: error: Unable to allocate resources: Something that no release has said", "read the reason"),
        (
            "Warning  FailedScheduling  13m   default-scheduler  0/1 nodes are available: 1 node(s) had taint {node-role.kubernetes.io/master: }, that the pod didn't tolerate.",
            "toleration",
        ),
        (
            "Warning  FailedScheduling  13m   default-scheduler  0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            "labels",
        ),
        (
            "Warning  FailedScheduling  13m   default-scheduler  0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            "wait",
        ),
        (
            "W0920 09:10:41.194000 84933 torch/distributed/elastic/agent/server/api.py:719] Received 1 death signal, shutting down workers",
            "tmux",
        ),
        (
            "W0920 09:10:41.194000 84933 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers",
            "submit the job again",
        ),
        (
            "Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=4, worker_count=1, timeout=0:30:00)",
            "only 1 of 4",
        ),
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=8, worker_count=6, timeout=0:30:00)",
            "only 6 of 8",
        ),
        (
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=21, OpType=BROADCAST, TensorShape=[1], TensorDt",
            "make all ranks call the same collectives",
        ),
        (
            "n4:77:91 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<58683> collective mismatch error, local size 496640 remote size 65536",
            "NCCL_PROTO",
        ),
        (
            "n4:77:91 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_3:1 Got async error event: port error",
            "cable",
        ),
        (
            "n4:77:91 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error",
            "take that host out",
        ),
        (
            "As a result, the libfabric EFA provider is operating in\na condition that could result in memory corruption or\n          RDMAV_FORK_SAFE\n",
            "RDMAV_FORK_SAFE=1",
        ),
        (
            "As a result, the libfabric EFA provider is operating in\na condition that could result in memory corruption or\n",
            "FI_EFA_USE_HUGE_PAGE=0",
        ),
        (
            "n4:77:91 [0] transport/nvls.cc:251 NCCL WARN Cuda failure 1 'invalid argument'",
            "/dev/nvidia-caps",
        ),
        (
            "n4:77:91 [0] transport/nvls.cc:251 NCCL WARN Cuda failure 401 'the operation cannot be performed in the present state'",
            "fabric manager with a GPU reset",
        ),
        (
            "n4:77:91 [0] graph/xml.h:101 NCCL WARN Attribute busid of node nic not found",
            "without a PCI address",
        ),
        ("n4:77:91 [0] graph/xml.h:101 NCCL WARN Attribute arch of node cpu not found", "NCCL_TOPO_FILE"),
    ] {
        let cause = cause_of(&format!("{log}\n"));
        let fix = cause.as_ref().map_or("", |cause| cause.fix.as_str());
        assert!(fix.contains(wanted) && !fix.contains("DETAIL"), "{log}: {cause:?}");
    }
    assert!(slots("localhost:4").contains("slots"), "{}", slots("localhost:4"));
    assert!(slots("fe80::4").contains("getent") && slots("gpu-9").contains("getent"));
    // A message below the name of its exception, and lines that are none of it.
    let what = |below: &str| {
        cause_of(&format!("lightning.utilities.exceptions.MisconfigurationException: \n{below}"))
            .unwrap()
            .what
    };
    assert!(
        what("        You requested GPUs: [0, 1]\n        But your machine only has: [0]\n\n  other\n")
            .ends_with(
                "MisconfigurationException: You requested GPUs: [0, 1] But your machine only has: [0]"
            )
    );
    assert!(what("epoch 1\n  of 7\n").ends_with("MisconfigurationException"));
    let listed = |ports: &str| {
        let found = report(&info(&format!("NET/IB : Using {ports}; OOB eth0:10.0.0.1<0>")));
        let fix = |one: &&serde_json::Value| one["ref"] == "R27";
        found["findings"].as_array().unwrap().iter().find(fix).unwrap()["fix"].to_string()
    };
    let odd = listed("[0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_7:1/RoCE [RO]");
    assert!(odd.contains("NCCL_IB_HCA=^mlx5_7,"), "{odd}");
    let even = listed("[0]mlx5_0:1/IB [1]mlx5_7:1/RoCE [RO]");
    assert!(!even.contains("mlx5"), "{even}");
    // Ranks at different operations, and PyTorch's own comparison, which is on.
    let cause = cause_of("Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=101, OpType=ALLGATHER, TensorShape=[1]), but Rank 7 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE).\n").unwrap();
    assert!(cause.what.contains("rank 7 is at SequenceNumber 0 (REDUCE)"), "{}", cause.what);
    assert!(!cause.fix.contains("DETAIL"), "{}", cause.fix);
}

/// FastSocket's warnings about the queues of a NIC do not hide what ended the job, and alone are no failure.
/// Against a node counts what is at least likely: a line of NCCL with its host and GPU is, though its rank is not known.
#[test]
fn a_gpu_of_a_host_is_as_good_as_its_rank() {
    let retry = "NCCL WARN NET/IB : Got completion from peer 10.0.0.18<43210> with error 12, opcode 0, len 0, vendor err 129";
    let sure = |lines: &[String]| cause_of(&lines.join("\n")).unwrap().confidence;
    let line = |process: &str| format!("{process} {retry}");
    assert_eq!(sure(&[line("gpu-17:100:300 [3]")]), Confidence::Medium);
    let two = [line("gpu-17:100:300 [3]"), line("gpu-18:101:301 [4]")];
    assert_eq!(sure(&two), Confidence::Low, "either may have lost the other");
}

/// What a subnet manager says is no failure; a port that goes down may be one.
#[test]
fn what_a_subnet_manager_says_is_no_failure() {
    let event = |event: &str| warn("transport/net_ib.cc:93", &format!("NET/IB : Got async event : {event}"));
    let why = why_of(&event("client reregistration"));
    assert_eq!((why.state.as_str(), &why.cause), ("unknown", &None));
    assert_eq!(why_of(&event("SM change")).cause, None);
    assert!(causes_of(&event("port error")).contains(&"R23"));
}

#[test]
fn what_fastsocket_goes_on_after_is_no_failure() {
    let warned = warn("net_fastsocket.cc:765", "Cannot get incoming CPU.")
        + &warn("net_fastsocket.cc:785", "Maximum retry reached for accept 3.");
    let why = why_of(&warned);
    assert_eq!((why.state.as_str(), &why.cause), ("unknown", &None));
    let said = why.lines().join("\n");
    assert!(!said.contains("no rule explains"), "{said}");
    let closed = warn("misc/socket.cc:415", "socketTryAccept: Accept failed: Bad file descriptor");
    assert!(causes_of(&(warned + &closed)).contains(&"C55j"));
}

/// What makes a job slow is shown where nothing failed, and is no failure.
#[test]
fn what_makes_a_job_slow_is_no_failure() {
    let gdr = info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'");
    let why = why_of(&gdr);
    assert_eq!((why.state.as_str(), why.cause), ("unknown", None));
    assert_eq!(causes_of(&gdr), ["R25"]);
    let lines = why_of(&gdr).lines();
    assert_eq!(lines[0], "unknown: no failure in the logs");
    assert!(lines.iter().any(|line| line.starts_with("  fix       load nvidia_peermem")), "{lines:?}");
    // An option that only efa knows fails with tcp, whatever the version of libfabric.
    let option =
        "\ngpu-1:31:77 [0] NCCL WARN NET/OFI Disabling shared memory failed: Protocol not available\n";
    let tcp = format!("{}{option}", info("NET/OFI Selected Provider is tcp (found 1 nics)"));
    assert_eq!(causes_of(&tcp), ["R06"]);
    let efa = format!("{}{option}", info("NET/OFI Selected Provider is efa (found 4 nics)"));
    assert_eq!(causes_of(&efa), ["R13"]);
}

/// An interface that is flagged is excluded by name.
#[test]
fn the_fix_excludes_the_interface_that_it_flags() {
    let log = info("NET/Socket : Using [0]enp73s0:10.1.216.156<0> [1]pod-id-link0:169.254.170.23<0>");
    let found = report(&log);
    let finding =
        found["findings"].as_array().unwrap().iter().find(|one| one["ref"] == "R37").unwrap().clone();
    assert!(finding["fix"].to_string().contains("pod-id-link0"), "{finding}");
    assert!(finding["fix"]["patch"].as_array().is_none_or(Vec::is_empty), "{finding}");
}

/// The ranks whose lines stand in a log are not said to be unread, and a number of ctest is no rank.
#[test]
fn ranks_with_lines_are_read() {
    let tagged = "[1,0]<stderr>:loading\n[1,1]<stderr>:Traceback (most recent call last):\n[1,1]<stderr>:  File \"/job/train.py\", line 3, in main\n[1,1]<stderr>:IndexError: list index out of range\n[1,0]<stderr>:pciBusID: 0000:65:00.0\n";
    let lines = why_of(tagged).lines().join("\n");
    assert!(lines.contains("rank 1") && !lines.contains("not read"), "{lines}");
    let list = "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n2: eth0: <BROADCAST,UP> mtu 9001\nTraceback (most recent call last):\n  File \"/job/train.py\", line 3, in main\nValueError: no such layer\n";
    assert!(why_of(list).victims.is_empty(), "{:?}", why_of(list));
    let ctest = "91: Test command: /usr/bin/python run.py\n91: Traceback (most recent call last):\n91:   File \"/job/train.py\", line 3, in main\n91: ValueError: no such layer\n";
    let lines = why_of(ctest).lines().join("\n");
    assert!(
        lines.contains("ValueError") && !lines.contains("rank 91") && !lines.contains("not read"),
        "{lines}"
    );
}

/// What only has the words of an end is none, or has another rule.
#[test]
fn what_only_looks_like_an_end_is_none() {
    let trained = "step 1 loss 0.5\n";
    let cases = [
        // Advice of another program, a quote, a name, and what a shell survives.
        ("C40", "echo \"execve(): no such file\"\n"),
        ("C50", "srun: error: Unable to create step for job 7: Requested nodes are busy\n"),
        ("C50b", "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"),
        ("C50d", "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant\n"),
        ("C50d", "pyxis: importing docker image: hello\n"),
        (
            "C50h",
            "I coordination_service.cc:77] /job:jax_worker/replica:0/task:3 has connected to coordination service.\n",
        ),
        ("C50a", "Normal Pulling image \"x\"\n"),
        // A limit that is named beside another error.
        (
            "C13",
            "gpu-1:31:77 [0] misc/ibvwrap.cc:184 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n",
        ),
        ("C05", "gpu-1:31:77 [0] enqueue.cc:43 NCCL WARN Cuda failure 'invalid argument'\n"),
        (
            "C22",
            "gpu-1:31:77 [0] transport/nvls.cc:333 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.\n",
        ),
        (
            "R24",
            "[1.4] [amp:77:0] ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory.\n",
        ),
        (
            "R24d",
            "gpu-1:31:77 [0] NCCL INFO Call to ibv_reg_dmabuf_mr failed with error Operation not supported, falling back\n",
        ),
        ("C58", trained),
        // What fails and is done without, counts, what is asked, and what steps follow.
        (
            "C58",
            "Failed to load image Python extension, going on without it\nstep 1 | tokens/s: 300.5\nstep 2 | tokens/s: 310.5\n",
        ),
        ("C58", "12 passed, 0 failed\n"),
        ("C58", "level=info msg=\"worker expected=1, running=1, succeeded=0, failed=0\"\n"),
        ("C58", "UserWarning: could not import apex\n"),
        ("C58", "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer\n"),
        ("R30c", "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.2\n"),
        ("C14b", "/job/run.sh: line 7: /job/train.py: No such file or directory\n"),
        // No volume is full where a limit of the kernel is reached, and no limit where a volume is.
        ("C15", "OSError: [Errno 28] inotify watch limit reached\n"),
        (
            "C14e",
            "slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device\n",
        ),
        (
            "C15",
            "slurmstepd: error: unable to create cgroup '/sys/fs/cgroup/memory/slurm/uid_1/job_7' : No space left on device\n",
        ),
        (
            "C55j",
            "n1:3:4 [0] misc/socket.cc:415 NCCL WARN socketTryAccept: Accept failed: Too many open files\n",
        ),
        ("C55j", "n1:3:4 [0] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Bad file descriptor\n"),
        ("C14d", "[rank0]: OSError: [Errno 28] No space left on device\n"),
        (
            "C50b",
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
        ),
        (
            "C50fa",
            "INFO 04-01 02:46:00 ray_utils.py:214] Waiting for creating a placement group of specs for 10 seconds. specs=[{'GPU': 1.0}].\n",
        ),
        ("C53", "    Warning: FailedScheduling is explained in the guide\n"),
        ("C32", "Killed 3 stale workers\n"),
        ("C14h", "INFO: queue blocked for more than expected\n"),
        // A rename of two ranks is none of a missing path, and a path alone is none of a rename.
        (
            "C14b",
            "[rank0]: FileNotFoundError: [Errno 2] No such file or directory: 'tmp-1' -> 'checkpoint-1'\n",
        ),
        ("C14a", "[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'\n"),
        // The string of Hydra is about the processes that it ended, and an assertion of a kernel on a GPU is no abort.
        (
            "C32b",
            "=   PID 96 RUNNING AT gpu-1\n=   EXIT CODE: 134\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)\n",
        ),
        (
            "C35a",
            "Indexing.cu:1422: block: [0,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n",
        ),
        (
            "C50f",
            "Error: No available node types can fulfill resource request {'node:10.0.0.9': 0.001, 'GPU': 1.0}.\n",
        ),
        ("C50ea", "Error: No available node types can fulfill resource request {'CPU': 64.0}.\n"),
        ("C32b", "mpirun: 3 processes terminated normally\n"),
        (
            "C47b",
            "I0224 13:50:30.2 15 tcp_utils.cc:107] Retry to connect to 10.0.0.1:63917 while the server is not yet listening.\n",
        ),
        (
            "C49f",
            "initializing ddp: GLOBAL_RANK: 1, MEMBER: 2/8\ninitializing ddp: GLOBAL_RANK: 2, MEMBER: 3/8\n",
        ),
        (
            "C49f",
            "initializing ddp: GLOBAL_RANK: 0, MEMBER: 1/2\ninitializing ddp: GLOBAL_RANK: 1, MEMBER: 2/2\n",
        ),
        // A group that formed, twice, and the log of one rank.
        (
            "C49d",
            "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2\nInitializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2\nAll distributed processes registered. Starting with 2 processes\nInitializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2\nInitializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2\n",
        ),
        (
            "C49d",
            "Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2\nInitializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2\n",
        ),
        // NVSHMEM's bootstrap, MPI's words on a network, and UCX's limit of locked memory.
        (
            "R41",
            "/src/nvshmem/src/modules/bootstrap/uid/bootstrap_uid.cpp:bootstrap_net_recv:99: Message truncated : received 58 bytes instead of 8\n",
        ),
        (
            "R41b",
            "/src/nvshmem/src/modules/bootstrap/uid/bootstrap_uid.cpp:bootstrap_net_recv:99: Message truncated : received 58 bytes instead of 8\n",
        ),
        (
            "R41b",
            "n4:77:91 [0] misc/socket.cc:900 NCCL WARN NET/Socket : peer 10.0.0.2<41235> message truncated : receiving 8388608 bytes instead of 4194304\n",
        ),
        (
            "R41",
            "n4:77:91 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 256 bytes instead of 4\n",
        ),
        ("C14", "[gpu-1:77] ud_iface.c:48  Fatal: iface 0x1: failed to create peer: Input/output error\n"),
        (
            "C13",
            "[1.4] [gpu-1:77:0] ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory.\n",
        ),
        // What the driver only records, and a server of TensorFlow that is stopped.
        (
            "C31",
            "[ 21.0] NVRM: Xid (PCI:0000:01:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping\n",
        ),
        (
            "C58",
            "2023-05-25 11:10:57.9: F tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc:103] Non-OK-status: Stop() status: UNIMPLEMENTED: Clean shutdown is not currently implemented\n",
        ),
        // A program that cannot be started is none of slurmd's, and none of Hydra's.
        ("C39b", "slurmstepd: error: execve(): /job/train.sh: No such file or directory\n"),
        (
            "C46b",
            "[proxy:0:0@gpu-1] HYDU_create_process (utils/launch/launch.c:74): execvp error on file ./train (No such file or directory)\n",
        ),
        ("C46", "PRTE has lost communication with a remote daemon.\n"),
        ("C53b", "pytorchjob-worker-0   1/1   Running   0   2m32s\n"),
        (
            "R60d",
            "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: eth9\n",
        ),
    ];
    for (rule, log) in cases {
        let fired =
            rules_of(&report(log)).iter().any(|fired| fired == rule) || causes_of(log).contains(&rule);
        assert!(!fired, "{rule} fired: {log}");
    }
}

#[test]
fn every_rule_fires_on_a_line_of_its_own() {
    let firing = firing();
    let ending = ending();
    let tested = firing.iter().chain(&ending).map(|(rule, _)| *rule).chain(OF_OTHER_SOURCES);
    let tested: BTreeSet<&str> = tested.collect();
    let ids: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(tested, ids, "every rule has its line here");
    assert_eq!(rules().count(), tested.len(), "every rule has an id of its own");
    let mut missed = Vec::new();
    for (rule, logs) in &firing {
        for log in logs {
            if !rules_of(&report(log)).iter().any(|fired| fired == rule) {
                missed.push(format!("{rule} did not fire: {log}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_finding_cites_its_line_and_says_what_to_do() {
    for (rule, logs) in firing() {
        for log in logs {
            let report = report(&log);
            let finding = report["findings"].as_array().unwrap().iter().find(|f| f["ref"] == rule);
            let Some(finding) = finding else { continue };
            let evidence = finding["evidence"].as_array().unwrap();
            assert!(!evidence.is_empty(), "{rule} cites nothing: {log}");
            for cited in evidence {
                let line = usize::try_from(cited["line"].as_u64().unwrap()).unwrap();
                let text = cited["text"].as_str().unwrap().trim_end_matches('…');
                assert!(
                    log.lines().nth(line - 1).is_some_and(|read| read.contains(text)),
                    "{rule}: {cited}: {log}"
                );
            }
            assert!(!finding["fix"]["text"].as_str().unwrap().is_empty(), "{rule}");
            assert!(!finding["code"].as_str().unwrap().is_empty() && !finding["message"].is_null(), "{rule}");
        }
    }
}

/// Logs on which a rule must stay silent: `formats.md` §4 numbers the traps.
#[test]
fn what_only_looks_like_a_fault_is_none() {
    let cases: &[(&str, String)] = &[
        // 3, 10: sockets where no network matters, or where they were asked for.
        ("R01", inside_one_node()),
        // The end of a plugin that did not get a socket is an error of its own.
        ("R80", warn("net_fastsocket.cc:668", "Cannot find empty socket for 3.")),
        ("R01", info("Using network Socket") + &info("comm 0x7f10 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0")),
        ("R01", format!("{}{TWO_NODES}{}", info("NCCL_IB_DISABLE set by environment to 1."), info("Using network Socket"))),
        // 9: the bootstrap's sockets do not show how data is sent.
        ("R01", info("NET/Socket : Using [0]eth0:10.0.0.1<0>") + &info("NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>") + &info("Using network IB")),
        // UCX: inside a node, beside a lane of RDMA, another protocol, and what only fails.
        ("R78", "ucp_context_0 intra-node cfg#2 rma(tcp/lo)\n".to_owned()),
        ("R78", "ucp_context_0 inter-node cfg#2 rma(rc_mlx5/mlx5_0:1) am(tcp/eth0)\n".to_owned()),
        ("R78", "| 0..inf | zero-copy | tcp/eth0 |\n".to_owned()),
        ("R78", "| 0..inf | software emulation | srd/rdmap135s0:1 |\n".to_owned()),
        ("R77", "UCX ERROR cannot find remote protocol for: ucp_context_0 inter-node cfg#2 | put(multi) from cuda/GPU0 to rocm\n".to_owned()),
        // NVLink domains: the health mask does not count, and a UUID of zero is none.
        ("R79", one_of_three("MNNVL busId 0x1b000 fabric UUID 5f.a1 cliqueId 0x7ffe state 3 healthMask 0xaa", "MNNVL busId 0x1b000 fabric UUID 5f.a1 cliqueId 0x7ffe state 3 healthMask 0x0")),
        ("R79", one_of_three("MNNVL busId 0x1b000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0", "MNNVL busId 0x1b000 fabric UUID 0.0 cliqueId 0x1 state 3 healthMask 0x0")),
        // 21 stands for any error without a number of its own.
        ("R10", warn("ofi_process_cq:1466", "NET/OFI Request completed with error. RC: 21. Error: unknown error")),
        // 23: other plugins than the network's.
        ("R02", info("PROFILER/Plugin: Could not find: libnccl-profiler.so.")),
        ("R02", info("TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.")),
        // The plugin's own libraries have a rule of their own, and a build log names versions too.
        ("R03b", info("NET/Plugin : Plugin load (libnccl-net.so) returned 2 : /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /opt/ofi/lib/libnccl-net.so)")),
        ("R03b", "conda: package with version GLIBC 2.34 'x' not found in the channel\n".to_owned()),
        // RCCL names its plugin `librccl-net.so`; that none is installed is no missing library.
        ("R04", info("NET/Plugin : dlerror=librccl-net.so: cannot open shared object file: No such file or directory No plugin found (librccl-net.so), using internal implementation")),
        // Of the errors of ibv_reg_mr only ENOMEM speaks of locked memory, and only a reason of its own of /dev/shm.
        ("R24", warn("misc/ibvwrap.cc:160", "Call to ibv_reg_mr_iova2 failed with error Invalid argument")),
        ("C12a", warn("misc/shmutils.cc:114", "Error while creating shared memory segment /dev/shm/nccl-NzwJ7O (size 9637888)")),
        // What an abort interrupts ends with 3, and a warning says why.
        ("R71", info("misc/socket.cc:64 -> 3") + &info("init.cc:1303 -> 3") + &info("group.cc:64 -> 3 [Async thread]")),
        ("R71", warn("misc/ibvwrap.cc:184", "Call to ibv_reg_mr failed with error Cannot allocate memory") + &info("init.cc:1303 -> 2")),
        // The second line of one failure.
        ("R55", warn("misc/shmutils.cc:93", "Call to open failed: No such file or directory") + &warn("misc/shmutils.cc:132", "Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such file or directory (2)")),
        ("R24b", info("Call to ibv_reg_dmabuf_mr failed with error Bad address, falling back")),
        ("R29c", warn("misc/shmutils.cc:87", "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left on device (28)")),
        ("R29d", warn("misc/shmutils.cc:114", "Cuda failure 2 'out of memory'")),
        ("R29e", warn("transport/p2p.cc:238", "Cuda failure 217 'peer access is not supported between these two devices'")),
        ("R30b", warn("transport/shm.cc:590", "Cuda failure 217 'peer access is not supported between these two devices'")),
        ("R30b", warn("transport/p2p.cc:237", "Cuda failure 2 'out of memory'")),
        ("R30b", warn("enqueue.cc:43", "Cuda failure 1 'invalid argument'")),
        ("R66", warn("process_err_completion:1562", "NET/OFI Request 0x7f completed with error. RC: 5. Error: Invalid receiver queue pair number (QPN)")),
        ("R68", warn("enqueue.cc:43", "Cuda failure 98 'invalid device function'")),
        // What each process has for itself is no difference, nor a variable that all read.
        ("R69", one_of_three("PROFILER/Plugin: Could not find: libnccl-profiler.so.", "NET/Plugin: Loaded net plugin IBext_v8 (v8)")),
        // A process that found a second plugin.
        ("R69", one_of_three("NET/Plugin: Loaded net plugin IBext_v8 (v8)\ngpu-2:31:31 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net-x.so.", "NET/Plugin: Loaded net plugin IBext_v8 (v8)")),
        ("R69", one_of_three("NCCL_HOSTID set by environment to a", "NCCL_HOSTID set by environment to b")),
        ("R69", one_of_three("NCCL_IB_HCA set by environment to mlx5", "NCCL_IB_HCA set by environment to mlx5")),
        // A queue pair's event is no port that went down; NVSHMEM reads none of NCCL's variables.
        ("R23", warn("transport/net_ib.cc:139", "NET/IB : mlx5_0:1 Got async event : local access violation work queue error")),
        ("R22", "/src/nvshmem/src/modules/transport/ibrc/ibrc.cpp:418: non-zero status: 110 ibv_modify_qp failed\n".to_owned()),
        // NCCL announces each of its tries; the last one is a failure.
        ("R38", "[W306 00:03:07.8 TCPStore.cpp:358] [c10d] TCP client failed to connect/validate to host 10.0.0.7:29400 - retrying (try=0)\n".to_owned()),
        ("R38", info("socketPollConnect: connect to 10.0.0.2<51409> returned Connection refused, retrying (1/34) after sleep for 100 msec")),
        // A probe for one provider fails before another is selected.
        ("R05", info("NET/OFI No eligible providers were found") + &info("NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)")),
        // Old NCCL and RCCL print no number of nodes: on one host nothing passes between nodes.
        ("R01", info("Using network Socket")),
        // Memory of NVLink SHARP is not broken multicast, and an empty address is no missing interface.
        ("R32", warn("transport/nvls.cc:333", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.")),
        ("R36", warn("misc/socket.cc:537", "ncclSocketInit: connecting to address  with family 1 is neither AF_INET(2) nor AF_INET6(10)")),
        ("R37b", warn("misc/socket.cc:484", "socketStartConnect: Connect to 10.0.0.7<43369> failed : Software caused connection abort")),
        ("R58", info("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>") + &info("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.2<0>").replace("gpu-1", "gpu-2")),
        ("R29b", warn("misc/shmutils.cc:112", "Error while creating shared memory segment /dev/shm/nccl-KWfVyt (size 5967872)")),
        // 21: a probe for older symbols.
        ("R04b", info("NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.")),
        // 2: Slingshot's provider is correct under the same name.
        ("R06", info("NET/OFI Selected Provider is cxi (found 4 nics)")),
        ("R06", info("NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)")),
        // 22: no memory, without EFA.
        ("R12", "OSError: [Errno 12] Cannot allocate memory\n".to_owned()),
        ("R12", info("NET/OFI Setting RDMAV_FORK_SAFE environment variable to 1")),
        ("R16", info("NCCL_IB_DISABLE set by environment to 0.")),
        ("R16", info("NCCL_P2P_DISABLE set by environment to 10")),
        // 11: HPC-X ignores NCCL_IB_DISABLE.
        ("R16", info("NCCL_IB_DISABLE set by environment to 1.") + &info("Using network IBext_v8")),
        ("R22", warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with error Network is unreachable")),
        // 20: a queue pair is no socket.
        ("R38", warn("misc/ibvwrap.cc:262", "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1")),
        // 26: the text after /GDRDMA.
        ("R25", channel(0, 8, "NET/IB/0/GDRDMA/flush=None")),
        ("R25", channel(0, 8, "NET/IB/0/GDRDMA(PCI)")),
        ("R26", info("GPU Direct RDMA Enabled for GPU 1c000 / HCA 0 (distance 3 <= 4), read 0")),
        ("R27", info("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>")),
        ("C12a", info("MMAP allocated shareable host buffer /dev/shm/nccl-abc size 9637888 ptr 0x7f")),
        ("R30", warn("graph/paths.cc:303", "P2P is disabled between NVLINK connected GPUs 1 and 0.")),
        // 12, 21: neither a budget nor a datatype is a failure of SHARP.
        ("R34", info("24 coll channels, 3 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer")),
        ("R34", warn("sharp_plugin.c:90", "SHARP int8,uint8,bfloat16 Datatypes not supported")),
        ("R37", info("RAS client listening socket at 127.0.0.1<28028>")),
        ("R37", info("Bootstrap : Using lo:127.0.0.1<0>") + &info("comm 0x7f10 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0")),
        ("R40", "a:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\nb:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.8\n".to_owned()),
        // 14: a fabric that was seen is not necessarily in use.
        ("R49", info("MNNVL busId 0x1b000 fabric UUID 1.2 cliqueId 0x1 state 3 healthMask 0x0") + &info("Using network IB") + &channel(0, 8, "NET/IB/0/GDRDMA")),
        ("R50", info("NET/OFI Running on g5.48xlarge platform") + &info("NET/OFI Selected Provider is efa (found 1 nics)")),
    ];
    let mut wrong = Vec::new();
    for (rule, log) in cases {
        if rules_of(&report(log)).iter().any(|fired| fired == rule) {
            wrong.push(format!("{rule} fired: {log}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A consequence does not hide its cause: status 5 is a note beside the first error.
/// What an earlier attempt met is history where the last one goes on.
#[test]
fn findings_of_an_earlier_attempt_are_notes() {
    let failed = "gpu-1:31:31 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n\
        gpu-1:31:31 [0] misc/socket.cc:426 NCCL WARN socketStartConnect: Connect to 10.0.0.2<41235> failed : Connection refused\n\
        E1124 12:00:00.000000 7 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 0 (pid: 31) of binary: python\n";
    let again = "gpu-1:45:45 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n\
        gpu-1:45:45 [0] NCCL INFO comm 0x7f10 rank 0 nranks 1 cudaDev 0 busId 1000 commId 0x5 - Init COMPLETE\n";
    let severity = |log: &str| {
        let findings = report(log)["findings"].as_array().unwrap().clone();
        let found = findings.into_iter().find(|finding| finding["code"] == "TCP-CONNECT-FAILED").unwrap();
        (found["severity"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(severity(failed).0, "error");
    let (level, message) = severity(&format!("{failed}{again}"));
    assert_eq!(level, "info");
    assert!(message.starts_with("in an earlier attempt: "), "{message}");
}

/// The odd one out is named with its rank, its host and what the others have.
#[test]
fn the_odd_one_out_is_named() {
    let rank = |rank: u32, value: &str| {
        let process = format!("n{rank}:{}:{} [0] NCCL INFO", 31 + rank, 31 + rank);
        format!(
            "{process} NCCL_IB_TC set by environment to {value}.\n\
             {process} comm 0x7f1{rank} rank {rank} nranks 4 cudaDev 0 busId 1000 commId 0x5 - Init COMPLETE\n"
        )
    };
    let log: String = (0..4).map(|at| rank(at, if at == 2 { "106" } else { "160" })).collect();
    let report = report(&log);
    let finding =
        report["findings"].as_array().unwrap().iter().find(|one| one["code"] == "RANKS-DIFFER").unwrap();
    let message = finding["message"].as_str().unwrap();
    assert!(message.ends_with(": rank 2 on n2 has NCCL_IB_TC=106, the other 3 have 160"), "{message}");
}

#[test]
fn the_first_error_is_the_cause() {
    let log = warn(
        "transport/net_ib.cc:1295",
        "NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 len=0 vendor err 129 (Send)",
    ) + &warn(
        "transport/net_ib.cc:1295",
        "NET/IB : Got completion from peer 10.0.0.2<4791> with status=5 opcode=0 len=0 vendor err 249 (Recv)",
    );
    let report = report(&log);
    assert_eq!(report["findings"][0]["ref"], "R17");
    assert_eq!(report["findings"][0]["severity"], "error");
    let echo = report["findings"].as_array().unwrap().iter().find(|f| f["ref"] == "R18").unwrap();
    assert_eq!(echo["severity"], "info");
}

/// Missing NCCL lines are reported where NCCL should have logged: not for a job that requests no GPU.
#[test]
fn a_log_of_another_library_is_named_and_one_of_an_old_nccl_is_read() {
    let hccl =
        "[ERROR] HCCL(12345,python3):2023-05-01-10:00:01.123.456 [socket.cc:88] [Get][Socket] timeout\n";
    let old = "NCCL version 2.1.15+cuda9.0\nnode1:12:30 [0] INFO Ring 00 : 0 -> 1 via NET/Socket/0\n";
    let new = "NCCL version 2.3.7+cuda9.0\n";
    for (log, code) in
        [(hccl, "NCCL-LOG-HCCL"), (old, "NCCL-NET-SOCKET-FALLBACK"), (new, "NCCL-DEBUG-SILENT")]
    {
        let mut map = weftrun_core::nccl::TransportMap::new();
        let source = std::sync::Arc::new(weftrun_core::log::SourceId::new("log"));
        map.read(&source, log.as_bytes());
        map.end(&source);
        let found = Sources::of_logs(&map).diagnose();
        let codes: Vec<&str> = found.findings.iter().map(|finding| finding.code.as_str()).collect();
        assert!(codes.contains(&code), "{log}: {codes:?}");
        assert_eq!(found.ok, (log == old).then_some(false), "{log}");
    }
}

#[test]
fn a_job_without_gpus_is_not_told_that_nccl_is_silent() {
    let silence = |gpus: u32, planned: bool| {
        let role = Role::worker().nodes(2).ranks_per_node(1).gpus_per_node(gpus).command(["./train"]);
        let spec = JobSpec::builder("quiet").launch(Launch::PerRank).role(role).build().unwrap();
        let profile = Profiles::builtin().get("eks-image").unwrap();
        let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
        assert_eq!(plan.runs_nccl(), gpus > 0);
        let source = std::sync::Arc::new(weftrun_core::log::SourceId::new("log"));
        let mut map = weftrun_core::nccl::TransportMap::new();
        map.read(&source, b"epoch 1\n");
        map.end(&source);
        let findings = Sources::of_logs(&map).plan(planned.then_some(&plan)).diagnose().findings;
        findings
            .into_iter()
            .find(|finding| finding.code == "NCCL-DEBUG-SILENT")
            .map(|finding| finding.message)
    };
    assert_eq!(silence(0, true), None);
    // There is no advice to set what the plan already sets.
    assert!(silence(8, true).unwrap().contains("though NCCL_DEBUG=INFO was set"));
    assert!(silence(8, false).unwrap().contains("; set NCCL_DEBUG=INFO"));
}
