//! Conditions that depend on the numbers and names of a message.

use super::Signature;
use crate::text::{Cursor, behind, contains};

/// Returns whether the dynamic loader reports a C or C++ library that is too old, with either kind of quotes.
pub(super) fn missing_runtime_version(message: &[u8]) -> bool {
    ["version `GLIBC", "version 'GLIBC"].iter().any(|start| contains(message, start))
        && ["libc.so", "libm.so", "libstdc++.so", "libpthread.so"]
            .iter()
            .any(|library| contains(message, library))
}

/// Returns whether the object of the missing symbol version is part of the network stack.
pub(super) fn versioned_library(message: &[u8]) -> bool {
    let known = ["GLIBC", "CXXABI", "FABRIC", "IBVERBS", "EFA_", "MLX5"];
    let parts = ["nccl", "libfabric", "ibverbs", "libefa", "mlx5", "rdmacm"];
    behind(message, "version `")
        .is_some_and(|rest| known.iter().any(|name| rest.starts_with(name.as_bytes())))
        && parts.iter().any(|part| contains(message, part))
}

/// Finds the library whose absence kept the plugin from loading: the plugin itself (R02) or one that it
/// needs (R04).
pub(super) fn missing_library(message: &[u8]) -> Option<Signature> {
    let end = crate::text::find(message, b": cannot open shared object")?;
    let start =
        message[..end].iter().rposition(|byte| matches!(byte, b' ' | b':' | b'=' | b'(' | b'\'' | b'"'));
    let object = &message[start.map_or(0, |at| at + 1)..end];
    let file = object.rsplit(|byte| *byte == b'/').next().unwrap_or(object);
    // RCCL names its plugin `librccl-net.so`.
    if contains(file, "ccl-net") {
        return Some(Signature::PluginNotFound);
    }
    let always = [&b"libhwloc"[..], b"libcudart", b"libfabric", b"libefa"];
    let needed = always.iter().any(|name| file.starts_with(name))
        || (contains(message, "NET/Plugin") && file.starts_with(b"lib"))
        || (contains(message, "ccl-net") && file.starts_with(b"lib"));
    if needed {
        Some(Signature::PluginDependency)
    } else if contains(message, "NET/Plugin") {
        Some(Signature::PluginNotFound)
    } else {
        None
    }
}

/// Tells the providers that are correct on their own fabrics from others: efa, cxi (Slingshot), psm2/psm3, opx
/// (Omni-Path), gni.
pub(super) fn provider(message: &[u8]) -> Option<Signature> {
    let rest = behind(message, "rovider is ")?;
    let right = [&b"efa"[..], b"cxi", b"psm", b"opx", b"gni", b"ucx", b"lnx"];
    let is_right = right.iter().any(|name| rest.starts_with(name));
    let found = if is_right { Signature::OfiProvider } else { Signature::OfiOtherProvider };
    (!rest.is_empty()).then_some(found)
}

/// Returns whether a message counts the last try: `retrying (34/34)`.
pub(super) fn is_last_try(message: &[u8]) -> bool {
    behind(message, "retrying (").is_some_and(|rest| {
        let mut rest = Cursor::new(rest);
        let (now, most) = (rest.number(), rest.eat(b"/").then(|| rest.number()).flatten());
        now.is_some() && now == most
    })
}

/// Returns whether a message is a place and a result of NCCL other than "in progress" (7): `bootstrap.cc:270 -> 2`.
pub(super) fn is_error_trace(message: &[u8]) -> bool {
    let Some(rest) = [".cc:", ".cu:"].iter().find_map(|file| behind(message, file)) else { return false };
    let mut rest = Cursor::new(rest);
    let place = rest.number().is_some();
    place && rest.eat(b" -> ") && rest.number().is_some_and(|result| (1..7).contains(&result))
}

/// Returns whether an error of CUDA (1) or of the system (2) left NCCL. Others (3, 6) also end the calls that an abort
/// interrupts.
pub(super) fn is_failed_call(message: &[u8]) -> bool {
    let rest = ["group.cc:", "init.cc:"].iter().find_map(|file| message.strip_prefix(file.as_bytes()));
    let Some(rest) = rest else { return false };
    let mut rest = Cursor::new(rest);
    let place = rest.number().is_some();
    place && rest.eat(b" -> ") && matches!(rest.number(), Some(1 | 2))
}

/// Returns whether NCCL tries again to connect, in the words without a count of its tries.
pub(super) fn ends_with_retry(message: &[u8]) -> bool {
    message.trim_ascii_end().ends_with(b", retrying")
}

/// Returns whether a request of EFA failed since its peer did not answer: `RC: 20` (plugin 1.3 to 1.20) and `err: 20` (1.21) are
/// rdma-core's `IBV_WC_RESP_TIMEOUT_ERR` (21 stands for all errors without a number of their own), 15 is libfabric's
/// `LOCAL_ERROR_UNREACH_REMOTE` (prov/efa/src/efa_errno.h, read 2026-11-26).
pub(super) fn efa_completion(message: &[u8]) -> bool {
    contains(message, "Unreachable remote")
        || [("RC: ", 20), ("err: ", 20), ("prov_errno ", 15), ("prov_errno: ", 15)].iter().any(
            |(label, wanted)| {
                behind(message, label).is_some_and(|rest| Cursor::new(rest).number() == Some(*wanted))
            },
        )
}

/// Returns whether a text contains `… set by environment to 1`, and not `to 10`; true if it contains neither.
pub(super) fn ends_in_one(message: &[u8]) -> bool {
    behind(message, "environment to ")
        .is_none_or(|rest| rest.first() == Some(&b'1') && !rest.get(1).is_some_and(u8::is_ascii_digit))
}

/// Returns the signature of an InfiniBand completion. The first error is the cause; status 5 (flush) is a
/// consequence.
pub(super) fn completion(message: &[u8]) -> Option<Signature> {
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

/// Returns whether a line without NCCL's prefix is about PyTorch's store.
pub(super) fn in_store(message: &[u8]) -> bool {
    ["c10d", "TCPStore", "[W socket", "[E socket"].iter().any(|name| contains(message, name))
}

/// Returns whether a line without NCCL's prefix is about NCCL's connections, and not about other ones.
pub(super) fn is_of_nccl(message: &[u8]) -> bool {
    ["NCCL", "nccl", "socketStartConnect"].iter().any(|name| contains(message, name))
}

/// Finds interfaces that other hosts cannot reach. `lo` is separate, since on a single node it is correct.
pub(super) fn suspicious_interface(message: &[u8]) -> Option<Signature> {
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
