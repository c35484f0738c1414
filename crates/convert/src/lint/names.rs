//! Names that are similar to a known one, and known misspellings that are not.

use std::collections::HashSet;

use weftrun_core::Finding;
use weftrun_core::env_names::{find, is_known, nearest, newest_nccl};
use weftrun_core::image::NcclVersion;
use weftrun_core::shell::without_comment;

/// A name that is similar to a known one.
pub(super) const MISSPELT: &str = "L-NAME-MISSPELT";

/// A name that NCCL does not read.
pub(crate) const UNKNOWN: &str = "L-NAME-UNKNOWN";

/// Returns the variables that a text expands: `$NAME`, `${NAME…}`, `$(NAME)`. It reads them itself, whether NCCL knows the names
/// or not.
pub(crate) fn expanded(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|behind| {
        let behind = behind.strip_prefix(['{', '(']).unwrap_or(behind);
        let end = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        behind.get(..end.unwrap_or(behind.len())).unwrap_or_default()
    })
}

/// The variables that a script passes to programs: `export`, `declare -x`, `-x` of mpirun, `set -a`.
pub(crate) struct Exported<'a> {
    all: bool,
    /// The words of the lines that pass any.
    words: HashSet<&'a str>,
}

impl<'a> Exported<'a> {
    pub fn read(script: &'a str) -> Self {
        const PASSES: [&str; 6] = ["export", "declare", "typeset", "env", "-x", "--export"];
        let mut found = Self { all: false, words: HashSet::new() };
        for line in script.lines().map(without_comment) {
            let words: Vec<&str> =
                line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).collect();
            found.all |= words.contains(&"allexport") || words.windows(2).any(|pair| pair == ["set", "-a"]);
            if words.iter().any(|word| PASSES.contains(word)) {
                found.words.extend(words);
            }
        }
        found
    }

    pub fn has(&self, name: &str) -> bool {
        self.all || self.words.contains(name)
    }
}

/// The oldest NCCL that PyTorch 2 has (`torch.cuda.nccl.version()` of the wheels of 2.0).
const OLDEST_IN_USE: &str = "2.14.3";

/// Known misspellings that are not similar by their letters.
const SLIPS: [(&str, &str, &str); 3] = [
    ("NCCL_INFO", "NCCL_DEBUG=INFO", "NCCL has no variable NCCL_INFO, so nothing is logged"),
    ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE=0", "NCCL has no variable NCCL_NVLS_DISABLE, so NVLS stays on"),
    ("NCCL_DEBUG_LEVEL", "NCCL_DEBUG", "NCCL has no variable NCCL_DEBUG_LEVEL"),
];

/// Returns a finding for a misspelt or unknown name, or one that the image's NCCL does not read.
pub(super) fn check(name: &str, value: &str, image: Option<&str>) -> Option<Finding> {
    if let Some((_, meant, why)) = SLIPS.iter().find(|(slip, _, _)| *slip == name) {
        return Some(
            Finding::error(UNKNOWN, format!("`{name}={value}`: {why}")).fix(format!("write {meant}")),
        );
    }
    if let Some((_, instead)) = NEVER_READ.iter().find(|(never, _)| *never == name) {
        let text = format!("`{name}` has no effect: no NCCL reads it");
        return Some(Finding::warning(UNKNOWN, text).fix(*instead));
    }
    if let (Some(image), Some(nccl)) = (image, image.and_then(NcclVersion::of_image)) {
        let unread = nccl.unread(name, &format!("the image {image}"));
        // An image of a month may still have a version that reads a name that later ones do not.
        let may_read =
            find(name).is_some_and(|known| known.last.is_some() && known.gone_in(&nccl.version).is_none());
        if unread.is_some() || !nccl.at_most || may_read {
            return unread.or_else(|| unknown(name));
        }
    }
    // Without an image of a month, a name that a release in use reads may have an effect.
    let instead = REPLACED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new);
    let dated = image.and_then(NcclVersion::of_image).is_some();
    let known = find(name);
    let known = known.filter(|known| dated || instead.is_some() || known.gone_in(OLDEST_IN_USE).is_some());
    if let Some(last) = known.and_then(|known| known.last) {
        let fix =
            instead.map_or_else(|| format!("remove {name}"), |new| format!("use {new}, or remove {name}"));
        let text = format!("`{name}` has no effect: NCCL reads it up to {last}");
        return Some(Finding::warning(UNKNOWN, text).fix(fix));
    }
    unknown(name)
}

/// Reports a name that no release of NCCL reads.
fn unknown(name: &str) -> Option<Finding> {
    if let Some(meant) = nearest(name) {
        return Some(
            Finding::warning(MISSPELT, format!("`{name}` is not known; `{meant}` is")).rename(name, meant),
        );
    }
    is_unread(name).then(|| {
        Finding::info(UNKNOWN, format!("`{name}` is read by no NCCL up to {}", newest_nccl()))
            .fix(format!("remove {name}, unless a program of yours or a newer NCCL reads it"))
    })
}

/// Names that no NCCL reads, with their replacements.
const NEVER_READ: [(&str, &str); 3] = [
    ("NCCL_SOCKET_TIMEOUT", "set the timeout of torch.distributed.init_process_group"),
    ("NCCL_TIMEOUT", "set the timeout of torch.distributed.init_process_group"),
    ("NCCL_TIMEOUT_MS", "set the timeout of torch.distributed.init_process_group"),
];

/// Replacements of names that NCCL no longer reads.
const REPLACED: [(&str, &str); 6] = [
    ("NCCL_IB_CUDA_SUPPORT", "NCCL_NET_GDR_LEVEL"),
    ("NCCL_IB_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
    ("NCCL_LL_THRESHOLD", "NCCL_PROTO"),
    ("NCCL_MNNVL", "NCCL_MNNVL_ENABLE"),
    ("NCCL_RINGS", "NCCL_GRAPH_FILE"),
    ("NCCL_TREE_THRESHOLD", "NCCL_ALGO"),
];

/// Returns whether a name looks like one of NCCL's and is not read by it, its plugins or a build.
fn is_unread(name: &str) -> bool {
    // CTRAN and COLLTRACE are of Meta's NCCLX (meta-pytorch/torchcomms, comms/ncclx, nccl_cvars.yaml).
    const OF_PLUGINS: [&str; 8] =
        ["GPUDIRECTTCPX_", "FASTRAK_", "SHIMNET_", "OFI_", "GIB_", "LLCM_", "CTRAN_", "COLLTRACE"];
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
