//! The lines of NCCL's own diagnostics: what they checked, what they found, and what they could not check.
//!
//! NCCL has them since 2.31. They are printed when a communicator starts (`NCCL_RUN_RAS_DIAGNOSTICS`, `NCCL_RUN_DIAGNOSTICS`), and
//! are the answer of the RAS service to [`ras::DIAGNOSTICS`](crate::ras::DIAGNOSTICS). The wordings are those of `src/ras/diagnostics*.cc`
//! and `src/diagnostics` of 2.32.3.

use crate::text::text;

/// Most bytes of a line that are read. NCCL cuts its own at 1024.
const LINE: usize = 2048;
/// Most ranks that are read of one list. NCCL prints fewer.
const RANKS: usize = 256;

word_enum! {
    /// What is checked, by NCCL's own name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Check: ALL {
        /// Number and model of the GPUs of each node.
        Gpus = "GPU inventory",
        /// The version of CUDA that the driver supports.
        CudaDriver = "CUDA driver version",
        /// The version of the driver.
        Driver = "NVIDIA graphics driver version",
        /// Memory errors of the GPUs.
        Ecc = "ECC",
        /// What the drivers of GPUs and NVSwitches wrote to the kernel's log.
        Xid = "Xid/SXid",
        /// Whether all NVLinks are active, at one speed.
        NvLink = "NVLink",
        /// Whether the variables of NCCL are the same on all ranks.
        Environment = "NCCL environment",
        /// What the tool `rdma_topo` reports of GPUs and NICs.
        RdmaTopology = "rdma_topo check",
        /// The mode of the IOMMU.
        IommuMode = "IOMMU mode",
        /// Whether a GPU and its NIC are in one group of the IOMMU.
        IommuGroups = "IOMMU groups",
        /// Address translation services of the NICs.
        Ats = "ATS state",
        /// The kinds of paths between ranks.
        Paths = "Paths",
        /// Whether each GPU reads and writes the memory of the others.
        P2p = "p2p",
        /// The bandwidth of each rank's NIC, measured with `ib_write_bw`.
        NetBandwidth = "net bw",
        /// Anything else.
        Other = "",
    }
}

/// How a check ended. NCCL has two tags only: `[OK]`, and `[INFO]` for all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing was found.
    Passed,
    /// Something was found.
    Found,
    /// It could not be checked, or only in part.
    Unchecked,
}

/// What a line tells besides its words.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Detail {
    /// The value of a variable that differs between ranks; none where it is not set.
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        value: Option<String>,
    },
    /// A NIC that is more than 30 % off the median of all.
    Bandwidth {
        /// Its bandwidth in Gbit/s.
        gbits: f64,
        /// The median in Gbit/s.
        median: f64,
        /// `same-nic` or `cross-nic`: which NIC of the other node it was measured with.
        mode: String,
    },
    /// The words are all.
    None,
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Checked {
    /// What was checked.
    pub check: Check,
    /// How it ended.
    pub outcome: Outcome,
    /// NCCL's words, with neither tag nor communicator.
    pub words: String,
    /// The hash of the communicator.
    pub comm: Option<u64>,
    /// The ranks it names, counted in the communicator.
    pub ranks: Vec<u32>,
    /// The host it names.
    pub host: Option<String>,
    /// What it tells besides.
    pub detail: Detail,
}

/// A line of a report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DiagnosticLine {
    /// A report begins.
    Begin,
    /// A result.
    Checked(Checked),
    /// A report ends.
    End,
    /// There is no report, with the reason.
    Skipped(String),
}

/// The words of results that say that something could not be checked. NCCL tags them like findings.
const UNCHECKED: &[&str] = &[
    "unavailable",
    "not usable",
    "unable to",
    "incomplete",
    "no kernel-log source",
    "truncated",
    "could not locate",
    "cannot ",
    "tool missing",
    "does not support IB",
    "no usable IB device",
    "root access",
    "inaccessible",
    "may be partial",
    "probe timed out",
    "setup failed",
    "bootstrap failure",
    "only the first device",
    "concurrent use can lower",
    "invalid ",
    "server did not start",
];

/// The words of results that are findings, whatever else they say.
const FOUND: &[&str] = &["mismatch", "SXid ", "differ", "disabled on", ">30% off", "failed on rank"];

impl DiagnosticLine {
    /// Reads the message of a line of the level `DIAG`. None where a line is no part of a report.
    ///
    /// ```
    /// use weftrun_nccl::diagnostics::{Check, DiagnosticLine, Outcome};
    /// let said = b"[INFO] NVLink: inactive link(s) on rank(s) {3} across 8 ranks in comm 0x2a";
    /// let Some(DiagnosticLine::Checked(checked)) = DiagnosticLine::read(said) else { panic!() };
    /// assert_eq!((checked.check, checked.outcome), (Check::NvLink, Outcome::Found));
    /// assert_eq!((checked.ranks.as_slice(), checked.comm), (&[3][..], Some(42)));
    /// ```
    pub fn read(message: &[u8]) -> Option<Self> {
        let line = text(&message[..message.len().min(LINE)]).trim();
        if line.starts_with("===") && line.contains("Diagnostics ===") {
            return Some(Self::Begin);
        }
        if line.contains("diagnostics completed in ") {
            return Some(Self::End);
        }
        if let Some((_, why)) = line.split_once("diagnostics skipped: ") {
            return Some(Self::Skipped(why.to_owned()));
        }
        let of_tag = |tag| line.strip_prefix(tag).map(str::trim_start);
        match (of_tag("[OK]"), of_tag("[INFO]").or_else(|| of_tag("[WARN]"))) {
            (Some(said), _) => Some(Self::Checked(Checked::read(said, true))),
            (_, Some(said)) => Some(Self::Checked(Checked::read(said, false))),
            _ => None,
        }
    }
}

impl Checked {
    fn read(said: &str, passed: bool) -> Self {
        let (check, rest) = check_of(said);
        let detail = if check == Check::Environment { variable(rest) } else { None };
        // A value may contain anything, and its line names no communicator.
        let (words, comm) = if detail.is_some() { (said.to_owned(), None) } else { without_comm(said) };
        let has = |list: &[&str]| list.iter().any(|one| words.contains(one));
        let outcome = match passed {
            true if has(&[": skipped ("]) => Outcome::Unchecked,
            true => Outcome::Passed,
            false if detail.is_some() || has(FOUND) || !has(UNCHECKED) => Outcome::Found,
            false => Outcome::Unchecked,
        };
        let (detail, ranks, host) = match detail {
            Some((detail, ranks)) => (detail, ranks, None),
            None if check == Check::NetBandwidth => match bandwidth(rest) {
                Some((detail, rank, host)) => (detail, vec![rank], Some(host)),
                None => (Detail::None, keyed_ranks(&words), None),
            },
            None if check == Check::P2p => (Detail::None, keyed_ranks(&words), None),
            None => (Detail::None, rank_set(&words), host(&words)),
        };
        Self { check, outcome, words, comm, ranks, host, detail }
    }
}

/// Returns what a line is about, and what it says of it.
fn check_of(said: &str) -> (Check, &str) {
    if said.starts_with("Xid ") || said.starts_with("SXid ") {
        return (Check::Xid, said);
    }
    let named = said.split_once(": ");
    let known = named.and_then(|(name, rest)| {
        let check = Check::ALL.into_iter().find(|check| check.as_str() == name)?;
        Some((check, rest))
    });
    known.unwrap_or((Check::Other, said))
}

/// Takes ` in comm 0xHASH` out of a line.
fn without_comm(said: &str) -> (String, Option<u64>) {
    const WORDS: &str = " in comm 0x";
    let Some((before, behind)) = said.rsplit_once(WORDS) else { return (said.to_owned(), None) };
    let digits = behind.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (hash, rest) = behind.split_at(digits);
    match u64::from_str_radix(hash, 16) {
        // An incomplete check prints three hashes; the first is the communicator's.
        Ok(hash) => {
            let rest =
                rest.trim_start_matches(|letter: char| letter.is_ascii_hexdigit() || "/x".contains(letter));
            (format!("{before}{rest}"), Some(hash))
        }
        Err(_) => (said.to_owned(), None),
    }
}

/// Reads `NAME=VALUE on rank(s) {0,1}`.
fn variable(rest: &str) -> Option<(Detail, Vec<u32>)> {
    let (setting, ranks) = rest.rsplit_once(" on rank(s) ")?;
    let (name, value) = setting.split_once('=')?;
    let value = (value != "(unset)").then(|| value.to_owned());
    Some((Detail::Variable { name: name.to_owned(), value }, rank_set(ranks)))
}

/// Reads `cross-nic rank 3 (node0): 265.1 Gbit/s, >30% off median 391.5 Gbit/s`.
fn bandwidth(rest: &str) -> Option<(Detail, u32, String)> {
    let (mode, rest) = rest.split_once(" rank ")?;
    let (rank, rest) = rest.split_once(" (")?;
    let (host, rest) = rest.split_once("): ")?;
    let (gbits, rest) = rest.split_once(" Gbit/s, >30% off median ")?;
    let (median, _) = rest.split_once(" Gbit/s")?;
    let number =
        |digits: &str| digits.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let detail = Detail::Bandwidth { gbits: number(gbits)?, median: number(median)?, mode: mode.to_owned() };
    Some((detail, rank.parse().ok()?, host.to_owned()))
}

/// Reads the first list of ranks, `{0,3,...} (N=40)`; of a longer list NCCL prints the beginning.
fn rank_set(words: &str) -> Vec<u32> {
    let inner = words.split_once('{').and_then(|(_, behind)| Some(behind.split_once('}')?.0));
    let links = words.starts_with("SXid ");
    let numbers = inner.filter(|_| !links).into_iter().flat_map(|inner| inner.split(','));
    numbers.filter_map(|number| number.trim().parse().ok()).take(RANKS).collect()
}

/// Reads the ranks of `srcRank=0 … dstRank=1` and `server_rank=0 … client_rank=4`.
fn keyed_ranks(words: &str) -> Vec<u32> {
    let keys = ["srcRank=", "dstRank=", "server_rank=", "client_rank="];
    let fields = words.split_ascii_whitespace();
    let ranks = fields.filter_map(|field| keys.iter().find_map(|key| field.strip_prefix(key)?.parse().ok()));
    ranks.take(RANKS).collect()
}

/// Reads `on host NAME`.
fn host(words: &str) -> Option<String> {
    let (_, behind) = words.split_once(" on host ")?;
    let name = behind.split_ascii_whitespace().next()?.trim_end_matches(['.', ',']);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]
    use super::*;

    fn checked(message: &str) -> Checked {
        match DiagnosticLine::read(message.as_bytes()) {
            Some(DiagnosticLine::Checked(checked)) => checked,
            other => panic!("{message}: {other:?}"),
        }
    }

    /// The wordings are those of NCCL 2.32.3's sources.
    #[test]
    fn each_check_is_told_from_what_could_not_be_checked() {
        use Outcome::{Found, Passed, Unchecked};
        for (said, check, outcome, ranks) in [
            (
                "[OK]   p2p: verified P2P access in both directions between every GPU pair (2 peer accesses)",
                Check::P2p,
                Passed,
                &[][..],
            ),
            (
                "[OK] net bw: skipped (single host or no network transport)",
                Check::NetBandwidth,
                Unchecked,
                &[],
            ),
            (
                "[INFO] rdma_topo check: not usable on 2/2 ranks in comm 0xc2 (unavailable)",
                Check::RdmaTopology,
                Unchecked,
                &[],
            ),
            (
                "[INFO] rdma_topo check: failed on rank(s) {1} across 2/2 ranks in comm 0xc2; first rank 1 exit 1: ACS is on",
                Check::RdmaTopology,
                Found,
                &[1],
            ),
            (
                "[INFO] IOMMU mode: enabled (DMA remapping) for 4 relevant device(s) across 2/2 ranks in comm 0x1",
                Check::IommuMode,
                Found,
                &[],
            ),
            (
                "[INFO] CUDA driver version: mismatch across 8 ranks in comm 0x1, rank(s) {4,5} differ from rank 0 (unavailable)",
                Check::CudaDriver,
                Found,
                &[4, 5],
            ),
            ("[INFO] ECC: unavailable via NVML across 8 ranks in comm 0x1", Check::Ecc, Unchecked, &[]),
            (
                "[INFO] ECC: uncorrected volatile errors on rank(s) {1,...} (N=20) (worst=3) across 32 ranks in comm 0x1",
                Check::Ecc,
                Found,
                &[1],
            ),
            ("[INFO] Xid/SXid: no kernel-log source was available on host n1", Check::Xid, Unchecked, &[]),
            (
                "[INFO] SXid 20009 detected 1 time (NVSwitch driver reported classification unavailable, link(s) {3,4}) on host n1. See",
                Check::Xid,
                Found,
                &[],
            ),
            (
                "[INFO] p2p: write mismatch srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=1 dstCudaDev=1 dstNvmlDev=1 path=SYS handle=LEGACY_CUDA_IPC expected=0x1 got=0x2",
                Check::P2p,
                Found,
                &[0, 1],
            ),
            (
                "[INFO] net bw: required external tool missing in comm 0x1",
                Check::NetBandwidth,
                Unchecked,
                &[],
            ),
            ("[INFO] Something new: of 2.40", Check::Other, Found, &[]),
        ] {
            let read = checked(said);
            assert_eq!((read.check, read.outcome, read.ranks.as_slice()), (check, outcome, ranks), "{said}");
            assert!(!read.words.contains("in comm"), "{read:?}");
        }
    }

    #[test]
    fn a_value_may_contain_the_words_around_it() {
        let read = checked("[INFO] NCCL environment: NCCL_X=a=b in comm 0x1 on rank(s) {9} on rank(s) {0,2}");
        let value = Some("a=b in comm 0x1 on rank(s) {9}".to_owned());
        assert_eq!(read.detail, Detail::Variable { name: "NCCL_X".to_owned(), value });
        assert_eq!((read.ranks.as_slice(), read.comm), (&[0, 2][..], None));
        let unset = checked("[INFO] NCCL environment: NCCL_X=(unset) on rank(s) {1}");
        assert_eq!(unset.detail, Detail::Variable { name: "NCCL_X".to_owned(), value: None });
    }

    #[test]
    fn a_slow_nic_has_its_rank_host_and_numbers() {
        let read = checked(
            "[INFO] net bw: cross-nic rank 3 (node0): 265.1 Gbit/s, >30% off median 391.5 Gbit/s in comm 0x7a",
        );
        assert_eq!(
            (read.ranks.as_slice(), read.host.as_deref(), read.comm),
            (&[3][..], Some("node0"), Some(0x7a))
        );
        let detail = Detail::Bandwidth { gbits: 265.1, median: 391.5, mode: "cross-nic".to_owned() };
        assert_eq!(read.detail, detail);
        let torn = checked("[INFO] net bw: cross-nic rank 3 (node0): NaN Gbit/s, >30% off median inf Gbit/s");
        assert_eq!(torn.detail, Detail::None);
    }

    #[test]
    fn any_bytes_are_read() {
        for bytes in [
            &b""[..],
            b"[INFO]",
            b"[INFO] :",
            b"[OK] \xff\xfe",
            b"[INFO] net bw: rank (: Gbit/s",
            b"[INFO] x in comm 0x",
            b"[INFO] NCCL environment: = on rank(s) {",
            b"[INFO] Xid 79 detected on host ",
            b"[INFO] ECC: {,,,99999999999}",
        ] {
            let _ = DiagnosticLine::read(bytes);
        }
        let long = format!("[INFO] ECC: {{{}", "1,".repeat(1 << 20));
        assert!(checked(&long).words.len() <= LINE);
    }
}
