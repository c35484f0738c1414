//! Names that are nearly a known one, and slips that are no near miss by their letters.

use crate::Finding;
use crate::env_names::nearest;

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
    let meant = nearest(name)?;
    Some(
        Finding::warning("L-NAME-MISSPELT", format!("`{name}` is not known; `{meant}` is"))
            .rename(name, meant),
    )
}
