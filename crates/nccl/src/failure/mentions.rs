//! Lines that say that something failed, in words that programs that go on print too.

use super::facts::speaks;
use super::words::Text;
use crate::lines::Piece;
use crate::map::printable;

/// Returns a line that says no more than that something failed.
pub(super) fn mention(piece: &Piece<'_>) -> Option<String> {
    (mentions_failure(piece) && speaks(piece)).then(|| printable(piece.text, 300))
}

/// Returns the signal that ended a program, as a shell says it in a line of its own, behind a progress bar, or with the place in its script.
pub(super) fn signal_of_shell(piece: &Piece<'_>) -> Option<i32> {
    let own = piece.text.trim_ascii_end();
    let text = Text(own);
    let of_script = text.has(": line ") && text.has(" Terminated ");
    match own {
        b"Killed" => Some(9),
        // Of a script, where no command is behind the word.
        _ if text.has(": line ") && own.ends_with(b" Killed") => Some(9),
        _ if text.has(": line ") && own.ends_with(b" Aborted") => Some(6),
        _ if own == b"Terminated" || own.ends_with(b"]Terminated") || of_script => Some(15),
        _ => None,
    }
}

/// What Kubernetes' scheduler says of a pod that no node can take.
const NODES: &str = "nodes are available: ";

/// Words of lines that say that something failed. Programs that go on print them too.
const MENTIONS: &[&str] = &[
    "ailed",
    "nable to ",
    "ould not ",
    "annot ",
    "an't open ",
    " died",
    "imed out",
    "borted",
    "exited with ",
    "onnection refused",
    "erminated",
    "MPI_ERR_",
    "CUDA_ERROR_",
    "CUDA-capable device",
    ": command not found",
    "etry to connect to ",
    "SLURM's PMI support",
    "double free detected",
    ": not found",
    "atal: ",
    "onnection closed",
    "onnection reset",
    "oes not know how to",
    "No devices were found",
    "xceeded quota",
    NODES,
    "RayTaskError(",
    "Error [CUDA]",
    "received errors",
    "fi_getinfo: -",
    "efa returned -61",
    "llocate MR",
    "MPIJobEvicted",
    " Evicted ",
    "no userspace device-specific",
    " hw_synd ",
    "EI0006: ",
    "EI0002: ",
    "task timeout occurred",
    "no hfi units are active",
    " timeout, channel: ",
    " timeout (RDMA ",
    "SXid (",
    "[Hardware Error]",
    "I/O error",
    "timeout, aborting",
    "soft lockup",
    "blocked for more than ",
    "ncorrectable hardware error",
    "nbound MPI TCP connection",
    "id not find interface",
    "an't find address",
    // What DeepSpeed's launcher and mpirun refuse.
    "No slot ",
    "would result in binding more",
    "requested more cpus per process",
    "more processes than the ppr",
    "attempt to run as root",
    // What `scontrol show job` prints of a job that ended.
    "JobState=FAILED",
    "JobState=NODE_FAIL",
    "JobState=OUT_OF_MEMORY",
    "JobState=TIMEOUT",
    "JobState=BOOT_FAIL",
];

/// What is no warning, though it has the word of one or of information.
const SERIOUS: &[&str] = &[
    "Unable to find hostfile",
    "Warning  Failed",
    "Warning   Failed",
    "blocked for more than ",
    "CCOM WARN",
    "Warning  Evicted",
    "Warning   Evicted",
    "no userspace device-specific",
];

/// Returns whether words before `failed` say that nothing did: `12 passed (0 `, `0 tests `, `none `; but not `rank 0 `.
fn counts_none(before: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // The first letters of the word itself.
    let own = before.iter().rev().take_while(|byte| is_word(byte)).count();
    let mut words = before.get(..before.len() - own).unwrap_or_default().rsplit(|byte| !is_word(byte));
    let mut words = words.by_ref().filter(|word| !word.is_empty()).take(3);
    let (last, second, third) = (words.next(), words.next(), words.next());
    let named = |word: Option<&[u8]>| {
        word.is_some_and(|word| {
            ["rank", "worker", "node", "task", "process", "gpu", "device", "replica", "actor", "pod", "step"]
                .iter()
                .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        })
    };
    let none = |word: Option<&[u8]>, before: Option<&[u8]>| match word {
        Some(b"0") => !named(before),
        Some(word) => [&b"no"[..], b"none", b"zero"].iter().any(|none| word.eq_ignore_ascii_case(none)),
        None => false,
    };
    none(last, second) || none(second, third)
}

/// Returns whether a line says that something failed, in words that are no proof of it. Warnings, questions and counts (`0 failed`,
/// `failed=0`) are none.
fn mentions_failure(piece: &Piece<'_>) -> bool {
    const NOISE: &[&str] = &[
        "arning",
        "WARN",
        "DEBUG",
        "INFO:",
        "?",
        "external/xla",
        "tensorflow/",
        "erminated normally",
        "Per user-direction",
        // c10d goes on with IPv4.
        "errno: 97 - Address family",
    ];
    let whole = Text(piece.bytes);
    let any = |list: &[&str]| list.iter().any(|words| whole.has(words));
    let is_noise = any(NOISE) && !any(SERIOUS);
    let says = |words: &&str| {
        let Some(before) = whole.before(words) else { return false };
        let behind = piece.bytes.get(before.len() + words.len()..).unwrap_or_default();
        // What is counted there is what is missing: `0/10 nodes are available: `.
        // So is the number of a device.
        let is_counted = *words != NODES && !words.starts_with("ncorrectable");
        let is_count =
            is_counted && counts_none(before) || matches!(behind, [b'=' | b'_', ..] | [b':', b' ', b'0', ..]);
        !is_count && !whole.is_quoted(words)
    };
    !is_noise && MENTIONS.iter().any(says)
}
