//! Every environment variable that weftrun reads, sets or knows: its own, and those of NCCL, libfabric,
//! Open MPI, UCX and torch.
//!
//! The lints find misspelt names with these lists, the reference page is generated from them, and code
//! names a variable by its constant. The names are data (`data/env-names.tsv`). NCCL's are every name that
//! its sources read, release by release; the others are from their own documentation and sources:
//! aws-ofi-nccl 1.21 (`doc/`), libfabric 2.x (`fi_efa(7)`), PyTorch 2.9 (`torch/distributed/run.py`,
//! `ProcessGroupNCCL.hpp`).

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::text::numbers;

/// A name with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvName {
    /// The variable.
    pub name: &'static str,
    /// What it sets.
    pub doc: &'static str,
    /// Whether the launcher of the ranks sets it to a different value for each rank.
    pub by_launcher: bool,
    /// The first NCCL release that reads it; none if it is not NCCL's, or older than the oldest listed
    /// release.
    pub first: Option<&'static str>,
    /// The last NCCL release that reads it, if a later one does not.
    pub last: Option<&'static str>,
}

/// A library and its variables.
#[derive(Clone, Debug)]
pub struct EnvGroup {
    /// The library.
    pub owner: &'static str,
    /// The variables, sorted.
    pub names: Vec<EnvName>,
}

/// File read instead of the user's config file.
pub const CONFIG: &str = "WEFTRUN_CONFIG";
/// Folder of the user's configuration instead of `$XDG_CONFIG_HOME/weftrun`.
pub const CONFIG_DIR: &str = "WEFTRUN_CONFIG_DIR";
/// Folder of the journal and of what backends keep, instead of `$XDG_STATE_HOME/weftrun`.
pub const STATE_DIR: &str = "WEFTRUN_STATE_DIR";
/// Target used when none is named, as `-b`.
pub const TARGET: &str = "WEFTRUN_TARGET";
/// As `WEFTRUN_TARGET`: what `-b` takes.
pub const BACKEND: &str = "WEFTRUN_BACKEND";
/// Kubernetes namespace, as `-n`.
pub const NAMESPACE: &str = "WEFTRUN_NAMESPACE";
/// Project, as `-p`.
pub const PROJECT: &str = "WEFTRUN_PROJECT";
/// Profile of the site, as `--profile`.
pub const PROFILE: &str = "WEFTRUN_PROFILE";
/// Output format, as `-o`.
pub const OUTPUT: &str = "WEFTRUN_OUTPUT";
/// `auto`, `always` or `never`, as `--color`.
pub const COLOR: &str = "WEFTRUN_COLOR";
/// Fabric of jobs that name none.
pub const FABRIC: &str = "WEFTRUN_FABRIC";
/// Queue, partition or node pool of jobs that name none.
pub const QUEUE: &str = "WEFTRUN_QUEUE";
/// Priority class or qos of jobs that name none.
pub const PRIORITY: &str = "WEFTRUN_PRIORITY";
/// Instance type of jobs that name none.
pub const INSTANCE_TYPE: &str = "WEFTRUN_INSTANCE_TYPE";
/// Image of jobs that name none.
pub const IMAGE: &str = "WEFTRUN_IMAGE";

/// All lists, in the order of the reference page.
pub static GROUPS: LazyLock<Vec<EnvGroup>> = LazyLock::new(|| {
    let mut groups: Vec<EnvGroup> = Vec::new();
    // An unreadable line is a bug in the build; a test reads all of them.
    for line in include_str!("../data/env-names.tsv").lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let [owner, name, first, last, by, doc] = cells[..] else { continue };
        let known = |cell: &'static str| Some(cell).filter(|cell| *cell != "-");
        let (first, last, by_launcher) = (known(first), known(last), by == "launcher");
        let name = EnvName { name, doc, by_launcher, first, last };
        match groups.last_mut().filter(|group| group.owner == owner) {
            Some(group) => group.names.push(name),
            None => groups.push(EnvGroup { owner, names: vec![name] }),
        }
    }
    groups
});

static BY_NAME: LazyLock<HashMap<&'static str, &'static EnvName>> =
    LazyLock::new(|| GROUPS.iter().flat_map(|group| &group.names).map(|known| (known.name, known)).collect());

/// Returns the entry of a name.
pub fn find(name: &str) -> Option<&'static EnvName> {
    BY_NAME.get(name).copied()
}

/// Returns the releases of NCCL with the day of each, oldest first.
fn releases() -> impl DoubleEndedIterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../data/nccl-releases.tsv").lines();
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t'))
}

/// Returns the newest NCCL release whose variables are known.
pub fn newest_nccl() -> &'static str {
    releases().next_back().map_or("", |(version, _)| version)
}

/// Returns the newest NCCL that was released before a day (`2024-07-01`).
pub fn nccl_before(day: &str) -> Option<&'static str> {
    releases().filter(|(_, released)| *released < day).map(|(version, _)| version).max_by_key(|v| numbers(v))
}

impl EnvName {
    /// Returns whether an NCCL of a version is too old to read it.
    pub fn is_newer_than(&self, nccl: &str) -> bool {
        self.first.is_some_and(|first| numbers(nccl) < numbers(first))
    }

    /// Returns the last NCCL release that reads it, if an NCCL of a version is later than that.
    pub fn gone_in(&self, nccl: &str) -> Option<&'static str> {
        self.last.filter(|last| numbers(nccl) > numbers(last))
    }
}

/// Returns whether a name is known, or belongs to a family whose members are not listed one by one.
pub fn is_known(name: &str) -> bool {
    // There are hundreds of MCA parameters; FastTrak is Google's plugin, whose variables are listed in its
    // image.
    const FAMILIES: [&str; 6] =
        ["OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "NCCL_FASTRAK_", "NCCL_TUNER_", "TORCH_NCCL_"];
    find(name).is_some() || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Returns whether the launcher of the ranks sets it to a different value for each rank.
pub fn is_set_by_launcher(name: &str) -> bool {
    find(name).is_some_and(|known| known.by_launcher)
}

/// Returns the known name that an unknown one is probably a misspelling of: of the same family (`NCCL_`,
/// `FI_`, …), with the same digits, and at most two letters away; fewer in a short name, which has many
/// neighbours (`NCCL_ROOT` is no misspelling of `NCCL_PROTO`).
///
/// ```
/// use weftrun_core::env_names::nearest;
/// assert_eq!(nearest("NCCL_BUFFERSIZE"), Some("NCCL_BUFFSIZE"));
/// assert_eq!(nearest("NCLL_DEBUG"), Some("NCCL_DEBUG"));
/// assert_eq!(nearest("NCCL_DEBUG"), None);
/// assert_eq!(nearest("MY_NCCL_DEBUG"), None);
/// ```
pub fn nearest(name: &str) -> Option<&'static str> {
    const PREFIXES: [&str; 5] = ["NCCL_", "OFI_NCCL_", "FI_", "RDMAV_", "UCX_"];
    // Prefixes that other programs use for their own variables.
    const OTHERS: [&str; 2] = ["NCCL_TESTS_", "NCCL_GPUDIRECTTCPX_"];
    const FAR: usize = 2;
    if is_known(name) || name.len() > 100 || OTHERS.iter().any(|family| name.starts_with(family)) {
        return None;
    }
    let Some(prefix) = PREFIXES.iter().find(|prefix| name.starts_with(**prefix)) else {
        return misspelt_prefix(name);
    };
    let far = ((name.len() - prefix.len()) / 4).min(FAR);
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
    let family = GROUPS.iter().flat_map(|group| &group.names).map(|known| known.name).filter(|known| {
        known.starts_with(prefix) && known.len().abs_diff(name.len()) <= far && digits(known) == digits(name)
    });
    family
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, known)| known)
}

/// Corrects `NCLL_DEBUG`, `NNCL_DEBUG`: the prefix itself is misspelt, and the rest is that of a known
/// name.
fn misspelt_prefix(name: &str) -> Option<&'static str> {
    let (prefix, rest) = name.split_once('_')?;
    // `UCCL_SOCKET_IFNAME`, `RCCL_…`, `CCL_…` (oneCCL): another library, whose name ends so too.
    if prefix.len() <= 4 && prefix.ends_with("CCL") {
        return None;
    }
    if !matches!(prefix.len(), 3..=5) || rest.len() < 4 || strsim::damerau_levenshtein(prefix, "NCCL") != 1 {
        return None;
    }
    let names = GROUPS.iter().filter(|group| group.owner == "NCCL").flat_map(|group| &group.names);
    names.map(|known| known.name).find(|known| known.strip_prefix("NCCL_") == Some(rest))
}

/// Returns the reference page of the variables, in Markdown.
pub fn markdown() -> String {
    let mut page = format!(
        "# Environment variables\n\n\
         Those of weftrun stand between the project's configuration and a job file: a flag or the file wins.\n\
         The others are what the lints know: a name that is near one of them, and none of them, is misspelt.\n\
         Versions are the NCCL releases that read a name, up to {}; none is given where all do.\n",
        newest_nccl()
    );
    for group in GROUPS.iter() {
        page.push_str(&format!("\n## {}\n\n| variable | meaning |\n|---|---|\n", group.owner));
        for EnvName { name, doc, first, last, .. } in &group.names {
            let versions = match (first, last) {
                (Some(first), Some(last)) => format!(" (NCCL {first} to {last})"),
                (Some(first), None) => format!(" (NCCL {first} and later)"),
                (None, Some(last)) => format!(" (up to NCCL {last})"),
                (None, None) => String::new(),
            };
            page.push_str(&format!("| `{name}` | {doc}{versions} |\n"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_and_every_list_is_sorted() {
        let lines = include_str!("../data/env-names.tsv").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(GROUPS.iter().map(|group| group.names.len()).sum::<usize>(), lines.count());
        for group in GROUPS.iter() {
            assert!(group.names.windows(2).all(|pair| pair[0].name < pair[1].name), "{}", group.owner);
        }
        let owners: Vec<_> = GROUPS.iter().map(|group| group.owner).collect();
        assert_eq!(BY_NAME.len(), GROUPS.iter().map(|group| group.names.len()).sum::<usize>(), "{owners:?}");
        let of_nccl = GROUPS.iter().filter(|group| group.owner == "NCCL").flat_map(|group| &group.names);
        for known in of_nccl.filter(|known| known.first.is_some() && known.last.is_some()) {
            assert!(
                numbers(known.first.unwrap_or_default()) <= numbers(known.last.unwrap_or_default()),
                "{known:?}"
            );
        }
        assert!(
            releases().count() > 50
                && releases().all(|(version, day)| { numbers(version).len() == 3 && day.len() == 10 })
        );
    }

    #[test]
    fn the_variables_that_weftrun_reads_are_listed() {
        for name in [
            BACKEND,
            COLOR,
            CONFIG,
            CONFIG_DIR,
            FABRIC,
            IMAGE,
            INSTANCE_TYPE,
            NAMESPACE,
            OUTPUT,
            PRIORITY,
            PROFILE,
            PROJECT,
            QUEUE,
            STATE_DIR,
            TARGET,
        ] {
            assert!(GROUPS[0].names.iter().any(|known| known.name == name), "{name}");
        }
    }

    /// Facts from NCCL's release notes and documentation, not from the table.
    #[test]
    fn versions_are_those_of_the_documentation() {
        for (name, older, has) in [
            ("NCCL_RAS_ENABLE", "2.23.4", "2.24.3"),
            ("NCCL_IB_QPS_PER_CONNECTION", "2.9.9", "2.10.3"),
            ("NCCL_NVLS_ENABLE", "2.16.5", "2.17.1"),
            ("NCCL_DMABUF_ENABLE", "2.12.12", "2.13.4"),
            ("NCCL_WIN_ENABLE", "2.26.5", "2.27.3"),
            ("NCCL_PXN_DISABLE", "2.11.4", "2.12.7"),
        ] {
            let known = find(name).unwrap();
            assert!(known.is_newer_than(older) && !known.is_newer_than(has), "{known:?}");
        }
        assert!(!find("NCCL_DEBUG").unwrap().is_newer_than("2.3.5"));
        assert_eq!(find("NCCL_TREE_THRESHOLD").unwrap().gone_in("2.5.6"), Some("2.4.8"));
        assert_eq!(find("NCCL_TREE_THRESHOLD").unwrap().gone_in("2.4.7"), None);
        assert_eq!(nccl_before("2024-07-01"), Some("2.22.3"));
        assert_eq!(nccl_before("2017-01-01"), None);
    }

    /// Misspellings found in real manifests (`practice.md` §4), and names that are none.
    #[test]
    fn slips_are_found_without_false_alarm() {
        for (slip, meant) in [
            ("NCCL_BUFFERSIZE", Some("NCCL_BUFFSIZE")),
            ("FI_HMEM_CUDA_USE_BMABUF", Some("FI_HMEM_CUDA_USE_DMABUF")),
            ("NCCL_SOKET_IFNAME", Some("NCCL_SOCKET_IFNAME")),
            ("FI_PROVIDERS", Some("FI_PROVIDER")),
            ("NCCL_NET", None),
            ("NCCL_IB_HCA", None),
            ("NCCL_SOMETHING_NEW", None),
            ("TORCH_NCCL_SOMETHING", None),
            ("OMPI_MCA_btl", None),
            ("NCCL_FASTRAK_IFNAME", None),
            ("FIFO_PATH", None),
            ("RDMAV_FORM_SAFE", Some("RDMAV_FORK_SAFE")),
            ("NCCL_IB_HCA2", None),
        ] {
            assert_eq!(nearest(slip), meant, "{slip}");
        }
    }

    #[test]
    fn what_torchrun_sets_is_known_as_such() {
        for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "LOCAL_RANK", "PET_NNODES"] {
            assert!(is_set_by_launcher(name), "{name}");
        }
        assert!(!is_set_by_launcher("NCCL_DEBUG"));
    }
}
