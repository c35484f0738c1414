//! Reads the messages of the kernel and its drivers.

use super::content::Content;
use super::words::Text;
use super::{ClusterReason, Fact, Writer};
use crate::map::printable;

/// Errors that the driver corrected and only records: a row that is remapped, and many single-bit errors. docs.nvidia.com/deploy/xid-errors,
/// read 2026-11-26.
const RECORDED: &[u32] = &[63, 92];

/// Errors of the driver (Xid) that mean a fault of the GPU, its memory or its links, whatever came before: docs.nvidia.com/deploy/xid-errors,
/// read 2026-11-26.
pub const HARDWARE_XIDS: &[u32] = &[48, 63, 64, 74, 79, 92, 94, 95];

/// What the driver says of a GPU that it cannot start: open-gpu-kernel-modules' osinit.c and nv.c, read 2026-11-26.
const NOT_STARTED: &[&str] = &[
    "RmInitAdapter failed",
    "rm_init_adapter failed",
    "Cannot attach gpu",
    "NV_ERR_RESET_REQUIRED",
    "requires reset",
];

/// Reads one line; returns whether it was one of the kernel's.
pub(super) fn kernel(text: Text<'_>, say: &mut impl FnMut(Writer, Content<'_>)) -> bool {
    let number = || text.after("): ").and_then(Text::small);
    if text.has("NVRM: Xid") && number().is_some_and(|number| RECORDED.contains(&number)) {
        let what = printable(text.from("NVRM: ").unwrap_or(text).0, 300);
        say(Writer::default(), Content::Fact(Fact::Error { text: what, fatal: false }));
        return true;
    }
    let mut pid = None;
    let fact = if text.has("NVRM: Xid") || text.has("NVRM: fallen off the bus") {
        // The driver that finds a lost GPU when it starts prints no number. 79: docs.nvidia.com/deploy/xid-errors, read 2026-11-23.
        let cause = text.after("caused by previous Xid ").and_then(Text::small);
        // The driver itself says which errors of NVLink end nothing.
        if text.has("Nonfatal") {
            return true;
        }
        let number = || if text.has("Xid") { number() } else { Some(79) };
        Fact::Xid(cause.or_else(number).unwrap_or(0))
    } else if let Some(what) =
        text.from("NVRM: ").filter(|what| NOT_STARTED.iter().any(|words| what.has(words)))
    {
        Fact::Error { text: printable(what.0, 300), fatal: false }
    } else if text.has("Killed process") && (text.has("ut of memory") || text.has("oom")) {
        // `Memory cgroup out of memory: Killed process 140339 (python3)`.
        pid = text.after("Killed process ").and_then(Text::number);
        Fact::Cluster(ClusterReason::OutOfMemory)
    } else if text.has("oom-kill:") {
        Fact::Cluster(ClusterReason::OutOfMemory)
    } else if let Some(before) = text.before("]: segfault at ") {
        pid = memchr::memrchr(b'[', before).and_then(|at| Text(before.get(at + 1..)?).number());
        Fact::Signal(11)
    } else {
        return false;
    };
    say(Writer { pid, ..Writer::default() }, Content::Fact(fact));
    true
}
