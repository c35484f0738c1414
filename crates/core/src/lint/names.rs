//! Names that are nearly a known one, and slips that are no near miss by their letters.

use crate::Finding;
use crate::env_names::{is_known, nearest};

/// Spellings that were seen and are no near miss by their letters.
const SLIPS: [(&str, &str, &str); 3] = [
    ("NCCL_INFO", "NCCL_DEBUG=INFO", "NCCL knows no NCCL_INFO, so nothing is logged"),
    ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE=0", "NCCL knows no NCCL_NVLS_DISABLE, so NVLS stays on"),
    ("NCCL_DEBUG_LEVEL", "NCCL_DEBUG", "NCCL knows no NCCL_DEBUG_LEVEL"),
];

/// A misspelt or unknown name, as a finding.
pub(super) fn check(name: &str, value: &str) -> Option<Finding> {
    if let Some((_, meant, why)) = SLIPS.iter().find(|(slip, _, _)| *slip == name) {
        return Some(
            Finding::error("L-NAME-UNKNOWN", format!("`{name}={value}`: {why}"))
                .fix(format!("write {meant}")),
        );
    }
    if let Some((_, since, instead)) = REMOVED.iter().find(|(removed, _, _)| *removed == name) {
        return Some(
            Finding::warning("L-NAME-UNKNOWN", format!("`{name}` has no effect: {since}")).fix(*instead),
        );
    }
    if let Some(meant) = nearest(name) {
        return Some(
            Finding::warning("L-NAME-MISSPELT", format!("`{name}` is not known; `{meant}` is"))
                .rename(name, meant),
        );
    }
    is_unread(name).then(|| {
        Finding::info("L-NAME-UNKNOWN", format!("`{name}` is read by no NCCL up to {NEWEST_NCCL}"))
            .fix(format!("remove {name}, unless a program of yours or a newer NCCL reads it"))
    })
}

/// The version whose variables the list of known names holds.
const NEWEST_NCCL: &str = "2.30";

/// Names that NCCL never read or no longer reads: what is the case, and what to write instead.
const REMOVED: [(&str, &str, &str); 9] = [
    ("NCCL_IB_CUDA_SUPPORT", "NCCL 2.4 replaced it", "use NCCL_NET_GDR_LEVEL, or remove it"),
    ("NCCL_LL_THRESHOLD", "NCCL 2.5 replaced it", "use NCCL_PROTO, or remove it"),
    ("NCCL_MAX_NRINGS", "NCCL 2.5 replaced it", "use NCCL_MAX_NCHANNELS, or remove it"),
    ("NCCL_MIN_NRINGS", "NCCL 2.5 replaced it", "use NCCL_MIN_NCHANNELS, or remove it"),
    ("NCCL_RINGS", "NCCL 2.5 removed it", "remove it"),
    ("NCCL_SOCKET_TIMEOUT", "no NCCL reads it", "set the timeout of torch.distributed.init_process_group"),
    ("NCCL_TIMEOUT", "no NCCL reads it", "set the timeout of torch.distributed.init_process_group"),
    ("NCCL_TIMEOUT_MS", "no NCCL reads it", "set the timeout of torch.distributed.init_process_group"),
    ("NCCL_TREE_THRESHOLD", "NCCL 2.5 replaced it", "use NCCL_ALGO, or remove it"),
];

/// Returns whether a name looks like one of NCCL's and is none that it, its plugins or a build reads.
fn is_unread(name: &str) -> bool {
    const OF_PLUGINS: [&str; 6] = ["GPUDIRECTTCPX_", "FASTRAK_", "SHIMNET_", "OFI_", "GIB_", "LLCM_"];
    const OF_BUILDS: [&str; 22] = [
        "ARGS", "BIN", "BRANCH", "BUILD", "COMMIT", "DIR", "FLAGS", "HOME", "IMAGE", "INCLUDE", "INSTALL",
        "LIB", "LIBRARY", "LOG", "PATH", "REPO", "ROOT", "SRC", "TAG", "TEST", "TESTS", "VERSION",
    ];
    let Some(rest) = name.strip_prefix("NCCL_") else { return false };
    !is_known(name)
        && !OF_PLUGINS.iter().any(|family| rest.starts_with(family))
        && !rest.split('_').any(|word| OF_BUILDS.contains(&word))
        && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}
