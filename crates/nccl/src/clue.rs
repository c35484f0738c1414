//! What in a log line points at a cause: one table, one search over the line. A clue alone decides nothing; the
//! rules that read it weigh it against the rest of the log.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::prefix::Level;
use super::text::{Cursor, behind, contains};

/// A clue of one kind: the id of the rule that it feeds, with a letter where one rule has several kinds of evidence.
pub type ClueId = &'static str;

/// One row: the line contains `needle`, every one of `all`, and none of `none`.
struct Row {
    id: ClueId,
    needle: &'static str,
    all: &'static [&'static str],
    none: &'static [&'static str],
}

const fn row(id: ClueId, needle: &'static str) -> Row {
    Row { id, needle, all: &[], none: &[] }
}

const fn with(
    id: ClueId,
    needle: &'static str,
    all: &'static [&'static str],
    none: &'static [&'static str],
) -> Row {
    Row { id, needle, all, none }
}

const NOT_THE_NET_PLUGIN: &[&str] =
    &["PROFILER/", "TUNER/", "ENV/", "GIN/", "-profiler", "-tuner", "-env.so", "-gin"];
const COMPLETION: &[&str] = &["ibv_modify_qp", "ibv_query_gid"];

/// Sources of the wordings: the tags of NVIDIA/nccl 2.3.5 to 2.30.7 and aws-ofi-nccl 0.9.1 to 1.21.1, libfabric, and
/// PyTorch's ProcessGroupNCCL.cpp, read 2026-11-21.
const TABLE: &[Row] = &[
    with("R02", "No plugin found", &[], NOT_THE_NET_PLUGIN),
    row("R02", "No network plugin found"),
    with("R02", "Could not find: ", &["nccl-net"], NOT_THE_NET_PLUGIN),
    with("R02", "Could not find:", &["NET/Plugin"], NOT_THE_NET_PLUGIN),
    with("R02", "Plugin load", &["returned "], NOT_THE_NET_PLUGIN),
    with("R02", "cannot open shared object file", &["nccl-net"], NOT_THE_NET_PLUGIN),
    row("R02", "Unable to load libnccl-net"),
    with("R03", "' not found", &["version `"], &[]),
    with("R04", ": cannot open shared object", &[], NOT_THE_NET_PLUGIN),
    with("R04b", "ncclNetPlugin symbol", &["ot supported"], &[]),
    with("R04b", "Failed to find ncclNetPlugin symbol", &[], &["ncclNetPlugin_v"]),
    row("R05", "No eligible providers were found"),
    row("R05", "find any optimal provider"),
    row("R05", "fi_getinfo() call failed"),
    row("R05", "provider efa output empty list"),
    with("R06", "elected provider is ", &[], &[]),
    with("R06", "elected Provider is ", &[], &[]),
    row("R06b", "Only EFA provider is supported"),
    row("R07", "aws-ofi-nccl initialization failed"),
    row("R07", "Initializing plugin failed"),
    row("R07", "Unable to find a protocol that worked"),
    row("R07", "Failed to initialize sendrecv protocol"),
    row("R07", "Failed to initialize rdma protocol"),
    row("R08", "GDR disabled on GDR-supported instance type"),
    row("R08b", "FI_HMEM capability requires RDMA"),
    with("R10", "completed with error", &["RC: 2"], &[]),
    with("R10", "completed with error", &["err: 2"], &["vendor"]),
    row("R10", "prov_err: Not a directory"),
    row("R10", "Operation with NULL context completed with error"),
    row("R10", "Unreachable remote"),
    row("R10", "FI_EHOSTUNREACH"),
    row("R10", "security group"),
    row("R11", "Couldn't open AV"),
    row("R11", "Couldn't enable endpoint"),
    row("R11", "Couldn't open domain"),
    row("R11", "Couldn't open a domain"),
    row("R11", "Couldn't open fabric access domain"),
    row("R11", "Couldn't open a fabric access domain"),
    row("R11", "Couldn't open endpoint"),
    row("R11", "Unable to insert remote address into address vector"),
    row("R11", "ALLOC_PD err"),
    row("R11", "Failure to post internal receive buffers"),
    with("R11", "Creating new endpoint for domain", &["failed"], &[]),
    row("R11", "Unable to write to EQ"),
    with("R11", "vni", &["cxi"], &[]),
    with("R11", "VNI", &["cxi"], &[]),
    row("R12", "libfabric EFA provider is operating in"),
    with("R12", "RDMAV_FORK_SAFE", &[], &["Setting ", "set by environment", "export ", "-x "]),
    row("R12b", "OSError: [Errno 12] Cannot allocate memory"),
    row("R13", "requires at least libfabric version"),
    row("R13", "requires at least Libfabric version"),
    row("R13", "Disabling shared memory failed"),
    row("R13", "Couldn't set FI_OPT_E"),
    with("R13", "FI_OPT_", &["failed"], &[]),
    with("R13", "FI_OPT_", &["Protocol not available"], &[]),
    row("R14", "Unexpected number of remote rails"),
    with("R15", "No device found", &["NET/IB"], &[]),
    row("R15", "Failed to open libibverbs"),
    row("R15", "call to devices() returned 0"),
    with("R16", "NCCL_IB_DISABLE set by environment to 1", &[], &[]),
    row("R16n", "NCCL_NET set by environment to Socket"),
    with("R16p", "NCCL_P2P_DISABLE set by environment to 1", &[], &[]),
    with("R16s", "NCCL_SHM_DISABLE set by environment to 1", &[], &[]),
    with("R16", "NCCL_NET_DISABLE", &[" 1"], &[]),
    with("WC", "ith error ", &["ompletion"], COMPLETION),
    with("WC", "status=", &["ompletion"], COMPLETION),
    row("WC", "IBV_WC_"),
    row("R21", "ibv_modify_qp failed"),
    with("R21", "ibv_query_gid", &["failed"], &[]),
    with("R22", "ibv_modify_qp", &["Connection timed out"], &[]),
    with("R22", "ibv_modify_qp", &[" 110 "], &[]),
    row("R23", "Got async event"),
    row("R23", "async fatal event"),
    row("R23", "Got async fatal event"),
    row("R23", "non-fatal async event"),
    row("R23", "local catastrophic error"),
    row("R23", "ibv_get_async_event failed"),
    with("R23", "port error", &[], &["support"]),
    row("R23", "port_err"),
    with("R24", "ibv_reg_mr", &["failed"], &["Bad address", "not supported"]),
    with("R24", "ibv_reg_dmabuf_mr", &["failed", "Cannot allocate memory"], &[]),
    with("R24", "ibv_create_qp", &["failed"], &["not supported"]),
    with("R24", "ibv_create_cq", &["failed"], &["not supported"]),
    with("R24", "ibv_alloc_pd", &["failed"], &["not supported"]),
    row("R24", "Failure to post internal receive buffers"),
    with("R24", "Unable to write to EQ", &["Cannot allocate memory"], &[]),
    // NCCL says it of its socket network too, which never had it.
    with("R25", "GPU Direct RDMA Disabled for HCA", &[], &["NET/Socket"]),
    with("R26", "GPU Direct RDMA Disabled for GPU", &[], &[]),
    row("R27", "Trying to connect incompatible IB devices"),
    row("R28", "Detected mixed local Net device counts"),
    row("R29", "failed to extend /dev/shm"),
    with("R29", "No space left on device", &["shm"], &[]),
    row("R29", "Error while creating shared memory segment"),
    row("R29", "posix_fallocate failed"),
    with("R30", "P2P is disabled between", &[], &["NVLINK"]),
    row("R31", "P2P is disabled between NVLINK connected GPUs"),
    row("R32", "Failed to bind NVLink SHARP"),
    row("R32", "CUDA error 401"),
    with("R32", "NVLS", &["ailed"], &["IMEX", "MNNVL"]),
    with("R32", "NVLS", &["Cuda failure"], &["IMEX", "MNNVL"]),
    row("R33", "NVLS multicast support is not available"),
    row("R34", "Cannot initialize CollNet"),
    with("R34", "CollNet", &["not supported"], &["ncclCollNet", "CollNetPlugin"]),
    with("R34", "CollNet", &["ignor"], &["ncclCollNet", "CollNetPlugin"]),
    with("R34", "CollNet", &["disabl"], &["ncclCollNet", "CollNetPlugin"]),
    row("R34", "SHARP coll init error"),
    row("R34", "sharp_get_job_data_len failed"),
    row("R34", "not initialized! CollNet"),
    with("R34b", "NCCL_ALGO", &["COLLNET"], &[]),
    with("R34b", "NCCL_ALGO", &["CollNet"], &[]),
    with("R35", "MNNVL", &["is available but not working"], &[]),
    with("R35", "MNNVL", &["not working on this system"], &[]),
    row("R35", "IMEX channel configuration"),
    row("R35", "Cuda failure 800 'operation not permitted'"),
    row("R36", "no socket interface found"),
    row("R36", "No interface found"),
    row("R36", "neither AF_INET"),
    row("R36", "Could not find any interface"),
    row("R36", "Could not find any usable interface"),
    row("R37", "Bootstrap : Using"),
    row("R37", "Bootstrap: Using"),
    row("R37", "Bootstrap :Using"),
    row("R37", "NET/Socket : Using"),
    row("R37", "NET : Using interface"),
    row("R37", "onnect to "),
    with("R38", "onnect to ", &["failed"], &["ibv_"]),
    row("R38", "socketPollConnect"),
    row("R38", "Software caused connection abort"),
    with("R38", "Connection refused", &[], &["ibv_"]),
    with("R38", "Connection timed out", &[], &["ibv_"]),
    with("R38", "Connection reset by peer", &["onnect to"], &["ibv_"]),
    with("R38", "No route to host", &[], &["ibv_"]),
    with("R39", "wrong type ", &[" != "], &[]),
    row("R39", "socketFinalizeAccept"),
    row("R39", "invalid magic"),
    row("R39", "wrong magic"),
    row("R39", "magic mismatch"),
    row("R40", "Mismatched NCCL version"),
    row("R41", "essage truncated"),
    row("R41", "Mismatched collective"),
    row("R41", "collective mismatch"),
    row("R42", "Duplicate GPU detected"),
    row("R43", "Watchdog caught collective operation timeout"),
    row("R43", "WorkNCCL(SeqNum="),
    row("R43", "collective operation timeout"),
    row("R44", "Connection closed by remote peer"),
    row("R44", "Connection closed by peer"),
    row("R44", "Socket recv failed"),
    row("R44", "remote process exited or there was a network error"),
    with("R45", "Attribute ", &[" of node ", " not found"], &[]),
    row("R45", "XML parse"),
    row("R45", "XML Import"),
    row("R45", "XML Mismatch"),
    row("R45", "Could not find XML"),
    row("R45", "NCCL_TOPO_XML_MAX_NODES"),
    with("R46", "Cuda failure", &["'"], &["operation not permitted"]),
    row("R46", "Failed to find CUDA library"),
    with("R47", "cuMem host", &["disabled"], &[]),
    with("R47", "cuMem host", &[" not "], &[]),
    with("R47", "falling back", &["cuMem"], &[]),
    with("R48", "Error: network ", &[" not found"], &[]),
    row("R48", "Failed to initialize any NET plugin"),
    with("R50", "(found 1 nics)", &[], &[]),
    with("R51", "Unable to register memory (type = 2)", &["RC: -22"], &[]),
    row("R52", "Could not disable CUDA API usage for HMEM, disabling GDR"),
    row("R53", "Unable to open device "),
    with("R53", "could not open ", &[" ("], &[]),
    // Facts that the rules need, and that are no fault by themselves.
    row("AWS", "Configuring AWS-specific options"),
    with("AWS", "Running on ", &["platform", "NCCL_TOPO_FILE"], &[]),
    row("AWS", "Plugin selected platform: AWS"),
    row("EFA", "provider_filter to efa"),
    row("EFA", "FI_EFA_"),
    row("EFA", "efa_nv_peermem"),
    row("EFA", "[::]efa:"),
    row("EFA", ":efa:"),
    with("GDR-INSTANCE", "p4d", &["NET/OFI"], &[]),
    with("GDR-INSTANCE", "P4d", &["NET/OFI"], &[]),
    with("GDR-INSTANCE", "p5", &["NET/OFI"], &[]),
    with("GDR-INSTANCE", "P5", &["NET/OFI"], &[]),
    with("GDR-INSTANCE", "p6-", &["NET/OFI"], &[]),
    with("NO-GDR-INSTANCE", "g4dn", &["NET/OFI"], &[]),
    with("NO-GDR-INSTANCE", "p3dn", &["NET/OFI"], &[]),
    with("NO-GDR-INSTANCE", "g5.", &["NET/OFI"], &[]),
    row("SOCKET-CHOSEN", "Using network Socket"),
    row("SOCKET-CHOSEN", "Using internal Network Socket"),
    row("SOCKET-CHOSEN", "Initialized NET plugin Socket"),
    row("SOCKET-CHOSEN", "Socket NIC distance"),
    row("IB-LIST", "NET/IB : Using ["),
    row("VERSION", "NCCL version "),
    // `file:line -> code` traces an error through the files it passed.
    with("IN-SOCKET", "transport/net_socket.cc:", &[" -> "], &[]),
    with("IN-IB", "transport/net_ib", &[" -> "], &[]),
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

/// Hands over the id of every clue in a line, each once.
pub fn find(level: Option<Level>, location: &[u8], message: &[u8], mut sink: impl FnMut(ClueId)) {
    let mut found: Vec<ClueId> = Vec::new();
    let mut once = |id: ClueId| {
        if !found.contains(&id) {
            found.push(id);
            sink(id);
        }
    };
    if level == Some(Level::Warn) {
        in_location(location, message, &mut once);
    }
    let Some(automaton) = automaton() else { return };
    // A row is judged by its first hit: what it asks is asked of the whole message.
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
            let id =
                if row.id == "WC" { completion(message) } else { judged(row.id, level, location, message) };
            id.into_iter().for_each(&mut once);
        }
    }
}

/// A warning's file tells what failed, whatever it says.
fn in_location(location: &[u8], message: &[u8], mut sink: impl FnMut(ClueId)) {
    if contains(location, "transport/nvls.cc:") && !contains(message, "MNNVL") {
        sink("R32");
    }
    for (file, id) in [
        ("net_ib", "IN-IB"),
        ("ibvwrap.cc", "IN-IB"),
        ("net_socket.cc", "IN-SOCKET"),
        ("ib_plugin.c:", "IN-IBEXT"),
        ("ibvwrap.c:", "IN-IBEXT"),
        ("ibv_wrap.c:", "IN-IBEXT"),
        (" socket.c:", "IN-IBEXT"),
    ] {
        // libibverbs missing is said from ibvwrap.cc and means that IB is not used.
        let named = contains(location, file)
            || file.strip_prefix(' ').is_some_and(|own| location.starts_with(own.as_bytes()));
        if named && !contains(message, "Failed to open libibverbs") {
            sink(id);
        }
    }
}

/// Clues that need a look at numbers or names.
fn judged(id: ClueId, level: Option<Level>, location: &[u8], message: &[u8]) -> Option<ClueId> {
    let keep = match id {
        "R03" => versioned_library(message),
        "R04" => return missing_library(message),
        "R06" => return provider(message),
        "R10" if contains(message, "err: 2") || contains(message, "RC: 2") => efa_completion(message),
        "R16" | "R16p" | "R16s" => ends_in_one(message),
        "R26" => contains(message, "(distance ") && contains(message, ">"),
        "R37" => return suspicious_interface(message),
        "R38" => level.is_some() || in_rendezvous(message),
        "R45" => level != Some(Level::Info) || !contains(message, "XML Import"),
        "R46" => !contains(location, "nvls") && !contains(location, "mnnvl") && !contains(message, "NVLS"),
        "R24" => !contains(message, "ibv_reg_mr_iova2 not"),
        _ => true,
    };
    keep.then_some(id)
}

/// The object of the missing symbol version must be part of the network stack.
fn versioned_library(message: &[u8]) -> bool {
    let known = ["GLIBC", "CXXABI", "FABRIC", "IBVERBS", "EFA_", "MLX5"];
    let parts = ["nccl", "libfabric", "ibverbs", "libefa", "mlx5", "rdmacm"];
    behind(message, "version `")
        .is_some_and(|rest| known.iter().any(|name| rest.starts_with(name.as_bytes())))
        && parts.iter().any(|part| contains(message, part))
}

/// The library whose absence kept the plugin from loading: the plugin itself (R02) or one that it needs (R04).
fn missing_library(message: &[u8]) -> Option<ClueId> {
    let end = memchr::memmem::find(message, b": cannot open shared object")?;
    let start =
        message[..end].iter().rposition(|byte| matches!(byte, b' ' | b':' | b'=' | b'(' | b'\'' | b'"'));
    let object = &message[start.map_or(0, |at| at + 1)..end];
    let file = object.rsplit(|byte| *byte == b'/').next().unwrap_or(object);
    if contains(file, "nccl-net") {
        return Some("R02");
    }
    let always = [&b"libhwloc"[..], b"libcudart", b"libfabric", b"libefa"];
    let needed = always.iter().any(|name| file.starts_with(name))
        || (contains(message, "NET/Plugin") && file.starts_with(b"lib"))
        || (contains(message, "nccl-net") && file.starts_with(b"lib"));
    if needed {
        Some("R04")
    } else if contains(message, "NET/Plugin") {
        Some("R02")
    } else {
        None
    }
}

/// Providers that are right on their own fabrics are no clue: cxi (Slingshot), psm2/psm3, opx (Omni-Path), gni.
fn provider(message: &[u8]) -> Option<ClueId> {
    let rest = behind(message, "rovider is ")?;
    let right = [&b"efa"[..], b"cxi", b"psm", b"opx", b"gni", b"ucx", b"lnx"];
    let cut = rest.is_empty();
    (!cut && !right.iter().any(|name| rest.starts_with(name))).then_some("R06")
}

/// `RC: 20` (plugin 1.3 to 1.20) and `err: 20` (1.21) and their neighbours come from EFA's own completion codes.
fn efa_completion(message: &[u8]) -> bool {
    ["RC: ", "err: "].iter().any(|label| {
        behind(message, label)
            .is_some_and(|rest| Cursor::new(rest).number().is_some_and(|code| (20..30).contains(&code)))
    })
}

/// `… set by environment to 1`, and not `to 10`.
fn ends_in_one(message: &[u8]) -> bool {
    behind(message, "environment to ")
        .is_none_or(|rest| rest.first() == Some(&b'1') && !rest.get(1).is_some_and(u8::is_ascii_digit))
}

/// Status of an InfiniBand completion: the first error is the cause, 5 (flush) its echo.
fn completion(message: &[u8]) -> Option<ClueId> {
    for (name, id) in [
        ("IBV_WC_RETRY_EXC_ERR", "R17"),
        ("IBV_WC_WR_FLUSH_ERR", "R18"),
        ("IBV_WC_LOC_PROT_ERR", "R19"),
        ("IBV_WC_REM_", "R20"),
    ] {
        if contains(message, name) {
            return Some(id);
        }
    }
    let rest = behind(message, "status=").or_else(|| behind(message, "ith error "))?;
    match Cursor::new(rest).number()? {
        12 => Some("R17"),
        5 => Some("R18"),
        4 => contains(message, "vendor").then_some("R19"),
        9..=11 => Some("R20"),
        _ => None,
    }
}

/// Whether a line without NCCL's prefix is about the ranks' rendezvous, and not about some other connection.
fn in_rendezvous(message: &[u8]) -> bool {
    ["NCCL", "nccl", "c10d", "TCPStore", "socketStartConnect", "[W socket", "[E socket"]
        .iter()
        .any(|name| contains(message, name))
}

/// Interfaces that other hosts cannot reach. `lo` is told apart, since on one node it is right.
fn suspicious_interface(message: &[u8]) -> Option<ClueId> {
    let rest =
        ["Bootstrap : Using", "Bootstrap: Using", "NET/Socket : Using", "Using interface", "onnect to "]
            .iter()
            .find_map(|label| behind(message, label))
            .unwrap_or(message);
    let never = ["docker", "veth", "virbr", "cni", "flannel", "cali", "pod-id-link", "169.254.", "fe80::"];
    if never.iter().any(|name| contains(rest, name)) || bridge(rest) {
        return Some("R37");
    }
    (loopback(rest)).then_some("R37-LO")
}

fn bridge(rest: &[u8]) -> bool {
    memchr::memmem::find_iter(rest, b"br-").any(|at| at == 0 || !rest[at - 1].is_ascii_alphanumeric())
}

fn loopback(rest: &[u8]) -> bool {
    contains(rest, "127.0.0.1")
        || memchr::memmem::find_iter(rest, b"lo:").any(|at| at == 0 || !rest[at - 1].is_ascii_alphanumeric())
}
