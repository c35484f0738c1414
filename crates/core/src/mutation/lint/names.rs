//! Names of settings, and those that are nearly one.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::Finding;

const KNOWN: &str = include_str!("../../../data/known-settings.txt");

static NAMES: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    KNOWN.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
});

/// Settings that NCCL, aws-ofi-nccl, libfabric's EFA provider, rdma-core and UCX read, sorted.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

fn is_known(name: &str) -> bool {
    NAMES.contains(name)
}

/// Families whose members are too many, or not ours to judge.
const FAMILIES: [&str; 6] =
    ["NCCL_FASTRAK_", "TORCH_NCCL_", "NCCL_GPUDIRECTTCPX_", "NCCL_TESTS_", "NCCL_TUNER_", "OMPI_MCA_"];

/// Spellings that were seen and are no near miss by their letters.
const SLIPS: [(&str, &str, &str); 3] = [
    ("NCCL_INFO", "NCCL_DEBUG=INFO", "NCCL knows no NCCL_INFO, so nothing is logged"),
    ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE=0", "NCCL knows no NCCL_NVLS_DISABLE, so NVLS stays on"),
    ("NCCL_DEBUG_LEVEL", "NCCL_DEBUG", "NCCL knows no NCCL_DEBUG_LEVEL"),
];

/// The known name that a name nearly is. None for a known one, for families, and for what is too far from all.
///
/// ```
/// use weftrun_core::mutation::lint::near_miss;
/// assert_eq!(near_miss("NCCL_BUFFERSIZE"), Some("NCCL_BUFFSIZE"));
/// assert_eq!(near_miss("NCCL_DEBUG_SUBSYS"), None);
/// assert_eq!(near_miss("MY_OWN"), None);
/// ```
pub fn near_miss(name: &str) -> Option<&'static str> {
    let prefixes = ["NCCL_", "FI_", "RDMAV_", "UCX_", "OFI_NCCL_"];
    let looks_like_one = prefixes.iter().any(|prefix| name.starts_with(prefix));
    let excused = FAMILIES.iter().any(|family| name.starts_with(family)) || is_known(name);
    if !looks_like_one || excused {
        return misspelt_prefix(name);
    }
    // A short name has many neighbours: `NCCL_ROOT` is no slip of `NCCL_PROTO`.
    let stem = name.split_once('_').map_or(0, |(_, stem)| stem.len());
    let farthest = (stem / 4).min(2);
    known_names()
        .filter(|known| known.len().abs_diff(name.len()) <= farthest && differs_as_a_slip(name, known))
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, _)| *distance <= farthest)
        .min()
        .map(|(_, known)| known)
}

/// `NCLL_DEBUG`, `NNCL_DEBUG`: the prefix itself has the slip, and the rest is a known name's.
fn misspelt_prefix(name: &str) -> Option<&'static str> {
    let (prefix, rest) = name.split_once('_')?;
    if !matches!(prefix.len(), 3..=5) || prefix == "NCCL" || rest.len() < 4 || is_known(name) {
        return None;
    }
    let meant = NAMES.get(format!("NCCL_{rest}").as_str())?;
    (strsim::damerau_levenshtein(prefix, "NCCL") == 1).then_some(*meant)
}

/// Numbers and plurals tell real names apart (`NCCL_IB_HCA2`, `FI_EFA_RX_SIZE`/`TX_SIZE`): a slip changes letters inside.
fn differs_as_a_slip(name: &str, known: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    digits(name) == digits(known)
}

/// A misspelt or unknown name, as a finding.
pub(super) fn check(name: &str, value: &str) -> Option<Finding> {
    if let Some((_, meant, why)) = SLIPS.iter().find(|(slip, _, _)| *slip == name) {
        return Some(
            Finding::error("L-NAME-UNKNOWN", format!("`{name}={value}`: {why}"))
                .fix(format!("write {meant}")),
        );
    }
    let meant = near_miss(name)?;
    Some(
        Finding::warning("L-NAME-MISSPELT", format!("`{name}` is not known; `{meant}` is"))
            .fix(format!("rename it to {meant}")),
    )
}
