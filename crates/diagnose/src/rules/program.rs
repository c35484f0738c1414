//! Rules about the program, its versions and its ranks.

use crate::nodes::Fault;
use std::collections::BTreeSet;

use weftrun_nccl::{Signature, Trace};

use super::differ::odd_version;
use super::messages::CUDA_LINES;
use super::{
    Blame, CUDA_FAILURE, HIGH, MEDIUM, NOTE, Rule, TROUBLESHOOTING, cause, nccl_issue, ofi_issue, rule,
};
use crate::cause::{CauseClass, named};
use crate::rule_input::RuleInput;

/// The rule about ranks that call different collectives.
pub const COLLECTIVES_DIFFER: &str = "R41";
/// The signature of a warning that no rule explains.
pub const UNKNOWN_WARNING: Signature = Signature::UnknownWarning;

pub(super) const RULES: &[Rule] = &[
    rule("R40", "NCCL-VERSION-MISMATCH", HIGH,
        "ranks run different versions of NCCL",
        "use one image on all nodes, and one NCCL in it",
        "https://github.com/NVIDIA/nccl-tests/issues/185")
        .signatures(&[Signature::VersionMismatch, Signature::VersionPrinted])
        .when(versions_differ)
        .detail(both_versions)
        .fails(),
    rule(COLLECTIVES_DIFFER, "COLLECTIVE-MISMATCH", HIGH,
        "ranks disagree on a collective or its size",
        "make all ranks call the same collectives with the same shapes; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call",
        nccl_issue!("969")).patch(&[("env.TORCH_DISTRIBUTED_DEBUG", Some("DETAIL"))])
        .signatures(&[Signature::CollectiveMismatch])
        // Gloo's pair.cc: a message is longer than the buffer that waits for it.
        .says(&[&["op.preamble.length <= op.nbytes"]])
        .of(&[CauseClass::CollectiveMismatch])
        .detail(mismatched_sizes)
        .advice(relaxed_ordering)
        .by_line(compared_in_detail)
        .blame(Blame::Rank(CauseClass::CollectiveMismatch)),
    rule("R41b", "BOOTSTRAP-MIXED", HIGH,
        "while ranks connected, one got a message of another size than it waited for: they connect in different orders, run different builds of NCCL, or their NCCL mixes messages up",
        "run one build of NCCL on all ranks and make them do the same sends and receives; where they do, and it comes and goes, another version of NCCL is the way (2.19.3 is known for it)",
        nccl_issue!("1176"))
        .signatures(&[Signature::BootstrapMixed])
        .fails(),
    rule("R42", "DUPLICATE-GPU", HIGH,
        "two ranks use one GPU",
        "set the device from the local rank: torch.cuda.set_device(local_rank)",
        "https://github.com/horovod/horovod/issues/3929")
        .signatures(&[Signature::DuplicateGpu])
        .detail(sharing_ranks)
        .fails(),
    rule("R43", "WATCHDOG-TIMEOUT", HIGH,
        "a collective timed out; the ranks that report it are its victims, the suspect is a rank that did not join",
        "compare the last enqueued work of every rank, or read the flight recorder (TORCH_FR_BUFFER_SIZE)",
        "https://github.com/pytorch/pytorch/issues/118369")
        .signatures(&[Signature::WatchdogTimeout])
        .detail(reporting_ranks),
    rule("R44", "PEER-CLOSED", NOTE,
        "a peer closed its connection, as a process does that fails or ends",
        "find the first error in the peer's log",
        "https://github.com/NVIDIA/nccl-tests/issues/166")
        .signatures(&[Signature::PeerClosed])
        .detail(closing_peers),
    rule("R70", "NCCL-PROXY-FAILED", NOTE,
        "a request to NCCL's proxy thread failed: a consequence of what the thread met",
        "find the first warning of the same process; without one the number tells the kind: 1 CUDA, 2 system, 3 internal, 6 a peer",
        "https://github.com/NVIDIA/nccl/blob/master/src/proxy.cc")
        .signatures(&[Signature::ProxyFailed]),
    rule("R71", "NCCL-CALL-FAILED", HIGH,
        "a call of NCCL failed, and no line says why",
        "read the lines of the other ranks at that moment: for `socket.cc` whether the peer ran and its address can be reached from that host, for other files with NCCL_DEBUG=TRACE",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclresult-t")
        .signatures(&[Signature::CallFailed, Signature::ErrorTrace])
        .when(failed_without_words)
        .detail(first_trace)
        .fails(),
    rule("R45", "TOPOLOGY-XML", HIGH,
        "NCCL could not use a description of the node's GPUs and NICs: that of a topology file, or what the system tells of a device",
        "use all GPUs of the node, unset NCCL_TOPO_FILE, or update the plugin",
        ofi_issue!("476")).patch(&[("env.NCCL_TOPO_FILE", None)])
        .signatures(&[Signature::TopologyXml])
        .advice(unusable_nic)
        .by_line(nic_without_address)
        .fails(),
    rule("R45b", "GRAPH-XML", HIGH,
        "the file of NCCL's graph does not fit the GPUs and NICs that are visible",
        "unset NCCL_GRAPH_FILE, in the environment, the image and /etc/nccl.conf, or take the one for this type of machine",
        "https://github.com/NVIDIA/nccl/blob/master/src/graph/search.cc").patch(&[("env.NCCL_GRAPH_FILE", None)])
        .signatures(&[Signature::GraphXml])
        .fails(),
    rule("R45c", "TOPOLOGY-TOO-LARGE", HIGH,
        "the node has more PCI devices than this NCCL can hold",
        "use a newer NCCL, which holds more of them",
        "https://github.com/NVIDIA/nccl/blob/master/src/graph/xml.h")
        .signatures(&[Signature::TopologyTooLarge])
        .fails(),
    rule("R72", "PCI-PATH-MISSING", HIGH,
        "NCCL does not find the PCI device of a GPU or NIC in /sys: a virtual machine, WSL2, or a container without the host's /sys",
        "give the container the host's /sys, or use a newer NCCL or an NCCL_TOPO_FILE of the virtual machine",
        nccl_issue!("573"))
        .signatures(&[Signature::SysPathMissing])
        .fails(),
    rule("R74", "RCCL-SETTING-MISSING", MEDIUM,
        "RCCL recommends a parameter of the kernel or a variable that the node does not have",
        "set what the line names on the nodes if jobs hang or are slow there; RCCL goes on without it",
        "https://github.com/ROCm/rccl/blob/rocm-5.6.0/src/init.cc")
        .signatures(&[Signature::SettingRecommended]),
    rule("R80", "FASTSOCKET-NOT-PLACED", NOTE,
        "Google's FastSocket did not place connections by the queues of the NIC, and goes on with the free ones",
        "nothing, as long as the job runs",
        "https://github.com/google/nccl-fastsocket/blob/master/net_fastsocket.cc")
        .signatures(&[Signature::SocketNotPlaced]),
    rule("R81", "NCCL-KERNEL-TOO-LARGE", HIGH,
        "a kernel of this NCCL needs more shared memory than a block of this GPU has: the library is older than the GPU",
        "use a newer NCCL that is built for this GPU, as a newer PyTorch brings it",
        "https://github.com/NVIDIA/nccl/blob/v2.25.1-1/src/enqueue.cc")
        .signatures(&[Signature::KernelTooLarge])
        .fails(),
    rule("R76", "NCCL-RANK-INVALID", HIGH,
        "a process joined NCCL with a rank that its world does not have",
        "start as many processes as the world has, and give each the rank and the world size of its launcher (RANK, WORLD_SIZE)",
        "https://github.com/NVIDIA/nccl/blob/master/src/init.cc")
        .explaining(&["NCCL-INVALID-USAGE"])
        .signatures(&[Signature::RankInvalid])
        .detail(invalid_rank)
        .fails(),
    rule("R75", "NCCL-NO-ALGORITHM", HIGH,
        "no algorithm of NCCL is left for an operation: the settings exclude all that could run it, or none fits these GPUs and nodes",
        "unset NCCL_ALGO, NCCL_PROTO and the tuner plugin's settings, or allow the algorithms that this operation has (Ring and Tree for AllReduce)",
        "https://github.com/NVIDIA/nccl/blob/master/src/enqueue.cc")
        .signatures(&[Signature::NoAlgorithm])
        .fails(),
    rule("R73", "TOPOLOGY-ONE-WAY", HIGH,
        "the topology that NCCL read has a link in one direction only, as in a virtual machine that hides parts of it",
        "use a newer NCCL or RCCL, or give it the topology of the virtual machine (NCCL_TOPO_FILE)",
        "https://github.com/ROCm/rccl/issues/1728")
        .signatures(&[Signature::ReversePathMissing])
        .fails(),
    rule("R56", "SSH-REFUSED", HIGH,
        "an ssh login was refused: the other side accepts none of the keys",
        "add the public key of the host that logs in (for mpirun the first one) to `~/.ssh/authorized_keys` of the others; on plain hosts `ssh-keys = \"job\"` in `[backend.hosts]` makes one for the job",
        "https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html")
        .explaining(&["MPI-DAEMON-NOT-STARTED"])
        .signatures(&[Signature::SshRefused])
        .blame(Blame::Rank(CauseClass::Rendezvous)),
    rule("R57", "CONTAINER-DAEMON", HIGH,
        "docker's daemon does not run on the host, or this user may not use it",
        "run `systemctl start docker` there, or add the user to the group `docker`; on plain hosts `container = \"podman\"` in `[backend.hosts]` needs no daemon",
        "https://docs.docker.com/engine/daemon/troubleshoot/")
        .signatures(&[Signature::ContainerDaemon])
        .fails(),
    rule("R55", "NCCL-WARNING", MEDIUM,
        "NCCL warned of something that no rule explains",
        "read the lines around the cited one in the log",
        TROUBLESHOOTING)
        .signatures(&[Signature::UnknownWarning])
        .of(&[CauseClass::Nccl])
        .detail(first_warning),
    rule("R61", "CUDA-NOT-READY", HIGH,
        "CUDA is not initialised (error 802): the fabric manager of the NVSwitches does not run, or has another version than the driver",
        "have your cluster administrator start nvidia-fabricmanager in the version of the driver (`systemctl status nvidia-fabricmanager`)",
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/").fault(Fault::Node)
        .explaining(&["CUDA-FAILURE"])
        .says(&[&["system not yet initialized"]])
        .signatures(&[Signature::CudaNotReady])
        .fails(),
    rule("R67", "BOOTSTRAP-RANK-TAKEN", HIGH,
        "two processes joined NCCL with the same rank",
        "give each process a rank of its own and start as many processes as the world has: with Slurm one task for each rank (`--ntasks-per-node`), or torchrun once a node",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/14986")
        .signatures(&[Signature::RankTaken])
        .detail(taken_rank)
        .fails(),
    rule("R68", "CUDA-LIBRARY-MISSING", MEDIUM,
        "NCCL found no libcuda.so: it goes on without the functions that need it (cuMem, NVLink SHARP)",
        "put the directory of the driver's libcuda.so on LD_LIBRARY_PATH (WSL2: /usr/lib/wsl/lib), or start the container with the NVIDIA runtime",
        "https://github.com/NVIDIA/nccl/blob/master/src/misc/cudawrap.cc")
        .signatures(&[Signature::CudaLibraryMissing]),
    rule("R46", CUDA_FAILURE, HIGH,
        "a CUDA call failed",
        "run once with CUDA_LAUNCH_BLOCKING=1 to find the call; if the GPU has Xid errors, drain its node",
        nccl_issue!("444"))
        .lines(CUDA_LINES)
        .by_line(of_nccl_itself)
        .of(&[CauseClass::CudaError]),
    // src/proxy.cc, read 2026-11-27.
    cause("C55i", "NCCL-PROXY-CONNECT",
        "NCCL's proxy could not make the connection that a rank asked of it: the process or host at the other end was not reached",
        "read the NCCL WARN lines of all ranks (NCCL_DEBUG=INFO): the proxy's own one names the address or the device; check NCCL_SOCKET_IFNAME, NCCL_IB_HCA and the firewall between the nodes",
        "https://github.com/NVIDIA/nccl/blob/master/src/proxy.cc")
        .says(&[&["Proxy Call to rank ", "failed (Connect)"]])
        .blame(Blame::Link),
    // accept(2): EBADF.
    cause("C55j", "NCCL-LISTENER-CLOSED",
        "NCCL could not accept a connection: the socket on which it listens was no longer open in that process",
        "look for an earlier error of the other threads and ranks: a set-up that is given up closes its sockets; if there is none, look for code that closes descriptors it did not open (a fork, a daemon)",
        "https://github.com/NVIDIA/nccl/issues/1382")
        .says(&[&["socketTryAccept: Accept failed", "Bad file descriptor"]])
        .blame(Blame::Rank(CauseClass::Nccl)),
    // src/graph/rings.cc.
    cause("C55h", "NCCL-RINGS-DIFFER",
        "the ranks computed rings that do not fit together: they see different topologies, or have different settings or versions",
        "use one image, one NCCL and one plugin on all nodes; compare NCCL_TOPO_FILE, NCCL_GRAPH_FILE and the other NCCL_* variables of the ranks, and the GPUs that each node shows (`nvidia-smi topo -m`)",
        "https://github.com/NVIDIA/nccl/blob/master/src/graph/rings.cc")
        .says(&[&["does not loop back to start"]])
        .blame(Blame::Rank(CauseClass::Nccl)),
];

/// Says what to do where a call of NCCL's own failed for its arguments, which no kernel of the program explains.
fn of_nccl_itself(line: &str) -> Option<String> {
    let is_own = line.contains("Cuda failure ") && line.contains("'invalid argument'");
    is_own.then(|| {
        "NCCL itself called CUDA with what this driver refuses: the NCCL WARN line of that rank names the source (NCCL_DEBUG=INFO); try NCCL_CUMEM_ENABLE=0 and NCCL_NVLS_ENABLE=0, or a driver as new as the CUDA that NCCL was built for"
            .to_owned()
    })
}

/// Names the rank and the world: `Invalid rank requested : 1/1`.
fn invalid_rank(seen: &RuleInput<'_>) -> Option<String> {
    let trace = seen.map.signatures().get(Signature::RankInvalid)?.traces.first()?;
    let (rank, world) = trace.text.split_once("requested : ")?.1.split_once('/')?;
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    Some(format!(": rank {} of a world of {}", digits(rank), digits(world)))
}

/// Names the peers that closed their connections, as the lines name them: `10.0.0.2`. `told` are lines that only the
/// program printed (`Last error:`). The process's own proxy counts where there is no other peer.
pub fn closed_peers<'t>(seen: &RuleInput<'_>, told: impl Iterator<Item = &'t str>) -> Option<String> {
    const MOST: usize = 4;
    let peer = |text: &str| {
        let rest =
            ["remote peer ", "recv from ", "send to "].iter().find_map(|words| text.split_once(words))?.1;
        let name = rest.split(['<', ' ', ',']).next().unwrap_or_default();
        (!name.is_empty()).then(|| name.to_owned())
    };
    let traces = seen.map.signatures().get(Signature::PeerClosed).map(|found| &found.traces);
    let mut peers: BTreeSet<String> = told.filter_map(peer).collect();
    let mut own = BTreeSet::new();
    for trace in traces.into_iter().flatten() {
        let Some(name) = peer(&trace.text) else { continue };
        let host = seen.map.host_of(trace).unwrap_or("-");
        let is_own = name.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if is_own {
            own.insert(name)
        } else {
            peers.insert(name)
        };
    }
    if peers.is_empty() {
        peers = own;
    }
    (!peers.is_empty()).then(|| peers.into_iter().take(MOST).collect::<Vec<_>>().join(", "))
}

/// Names the two ranks of a line about one GPU.
fn sharing_ranks(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::DuplicateGpu)?.traces;
    let [one, other] = traces.iter().find_map(|trace| ranks_of_one_gpu(&trace.text))?;
    Some(format!(": rank {one} and rank {other}"))
}

/// Returns the two ranks of a line about one GPU: `rank 3 and rank 0`.
pub(crate) fn ranks_of_one_gpu(text: &str) -> Option<[u32; 2]> {
    let (one, rest) = text.split_once("Duplicate GPU detected : rank ")?.1.split_once(" and rank ")?;
    Some([one.parse().ok()?, rest.split(' ').next()?.parse().ok()?])
}

/// Says which rank two processes have: `rank 1 of 8`.
fn taken_rank(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::RankTaken)?.traces;
    let rank = |text: &str| {
        let rest = text.split_once("Bootstrap Root : ")?.1;
        Some(format!(": {}", rest.split_once(" ranks")?.0))
    };
    traces.iter().find_map(|trace| rank(&trace.text))
}

/// Returns what to do where a NIC has no PCI address, as a virtual one or one behind USB has none.
fn nic_without_address(text: &str) -> Option<String> {
    text.contains("Attribute busid of node nic").then(|| {
        "use a newer NCCL, or leave the NIC without a PCI address (virtual, or behind USB) out with NCCL_SOCKET_IFNAME and NCCL_IB_HCA; a topology file that is set (NCCL_TOPO_FILE) may name it, too".to_owned()
    })
}

fn unusable_nic(seen: &RuleInput<'_>) -> Option<String> {
    let traces = &seen.map.signatures().get(Signature::TopologyXml)?.traces;
    traces.iter().find_map(|trace| nic_without_address(&trace.text))
}

/// Says which sizes the two ends of a connection have.
fn mismatched_sizes(seen: &RuleInput<'_>) -> Option<String> {
    let text = &ib_mismatch(seen)?.text;
    let size = |words: &str| text.split_once(words)?.1.split(' ').next();
    Some(format!(": {} here, {} on the peer's side", size("local size ")?, size("remote size ")?))
}

/// Returns what to do where PyTorch compared the calls: it does so only where TORCH_DISTRIBUTED_DEBUG=DETAIL is set already.
fn compared_in_detail(text: &str) -> Option<String> {
    text.contains("CollectiveFingerPrint(")
        .then(|| "make all ranks call the same collectives with the same shapes".to_owned())
}

fn ib_mismatch<'s>(seen: &'s RuleInput<'_>) -> Option<&'s Trace> {
    let found = seen.map.signatures().get(Signature::CollectiveMismatch)?;
    found
        .traces
        .iter()
        .find(|trace| trace.text.contains("collective mismatch") && trace.text.contains("local size"))
}

/// Returns what to do where the network found the sizes to differ: NICs that reorder writes look the same.
fn relaxed_ordering(seen: &RuleInput<'_>) -> Option<String> {
    ib_mismatch(seen)?;
    Some("make all ranks call the same collectives with the same sizes, with one version of NCCL and the same NCCL_* variables (NCCL_PROTO, NCCL_ALGO, NCCL_BUFFSIZE change the sizes of messages); if they do, set NCCL_IB_PCI_RELAXED_ORDERING=0 and switch forced relaxed ordering off in the NICs' firmware".to_owned())
}

/// Returns whether no warning of NCCL says why its call failed.
fn failed_without_words(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::CallFailed) && !seen.has(Signature::Warning) && !seen.has(Signature::PeerClosed)
}

/// Says where the error began, and its kind.
fn first_trace(seen: &RuleInput<'_>) -> Option<String> {
    let first = seen.map.signatures().get(Signature::ErrorTrace)?.traces.first()?;
    let kind = match first.text.rsplit_once("-> ")?.1.chars().next()? {
        '1' => "an error of CUDA",
        '2' => "an error of the system",
        _ => return None,
    };
    let sockets = if first.text.contains("socket.cc") { " in its TCP sockets" } else { "" };
    Some(format!(": {kind}{sockets} ({})", first.text))
}

fn closing_peers(seen: &RuleInput<'_>) -> Option<String> {
    closed_peers(seen, std::iter::empty()).map(|peers| format!(" ({peers})"))
}

fn versions_differ(seen: &RuleInput<'_>) -> bool {
    seen.has(Signature::VersionMismatch) || versions(seen).is_some()
}

/// Returns two different versions of live ranks; exceptions print them without the CUDA part.
fn versions(seen: &RuleInput<'_>) -> Option<(String, String)> {
    let bases: BTreeSet<&str> =
        seen.map.live_versions().map(|version| version.split('+').next().unwrap_or(version)).collect();
    let mut bases = bases.into_iter();
    let pair = (bases.next()?, bases.next()?);
    Some((pair.0.to_owned(), pair.1.to_owned()))
}

fn both_versions(seen: &RuleInput<'_>) -> Option<String> {
    odd_version(seen).or_else(|| versions(seen).map(|(one, other)| format!(": {one} and {other}")))
}

fn first_warning(seen: &RuleInput<'_>) -> Option<String> {
    let found = seen.map.signatures().get(Signature::UnknownWarning)?;
    found.traces.first().map(|trace| format!(": {}", trace.text))
}

fn reporting_ranks(seen: &RuleInput<'_>) -> Option<String> {
    let ranks = &seen.map.signatures().get(Signature::WatchdogTimeout)?.told_ranks;
    let ranks: Vec<u32> = ranks.iter().copied().collect();
    (!ranks.is_empty()).then(|| format!(" (reported by {})", named(&ranks)))
}
