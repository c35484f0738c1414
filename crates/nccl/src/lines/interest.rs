//! Searches for the words that make a line relevant, at memory speed.

use std::sync::LazyLock;

use aho_corasick::packed;

use crate::text::contains;

/// Any line worth parsing contains one of these or of [`RATES`]: NCCL's own lines, those whose prefix was stripped, and
/// exceptions that quote NCCL's last error. Which of them a line contains decides nothing else.
///
/// At most 32, and none shorter than 4 bytes: with more, or with shorter ones, the search takes half as many bytes at once.
/// The needles at every eighth place share a bucket of the search, which distinguishes them only by the
/// halves of their first four bytes: this order makes false hits rare, and prefixes of words in training
/// logs are left out (`batch`, `step `).
const NEEDLES: &[&str; 36] = &[
    "P2P/",
    " truncated",
    "ibfabric",
    "uda failure",
    "NCCL",
    "prov_err",
    "NET/",
    "nnection ",
    "FORK_SAFE",
    "vendor",
    "dev/shm",
    " via direct",
    "SHM/",
    " not found",
    "Errno 12",
    "tchdog",
    "busbw",
    "RCCL",
    "   sum ",
    "bandwidth",
    "uplicate GPU",
    "NVLS",
    "ibv_",
    "  none ",
    "HCCL",
    "(publickey",
    "Docker daemon",
    "gloo/",
    "not yet ini",
    "now abort",
    "EFA prov",
    "UDA fail",
    "[c10d]",
    "count exceeded",
    "node cfg#",
    "ware emulation",
];

/// Words of throughput values. A line that contains one of these and none of [`NEEDLES`] has no other
/// information. Training logs have one in most of their lines, so these are searched separately: the search
/// for everything else then runs at memory speed.
pub(crate) const RATES: &[&str; 8] =
    &["_step_timing", "SamplesPerSec", "per_sec", "/sec", "elapsed time", "it/s", "tokens/s", "per sec"];

/// What launchers, watchdogs, drivers and the kernel report has one of these. With [`ERRORS`] at most 64, and none shorter than 4 bytes: the
/// search stays vectorised.
const REPORTS: &[&str] = &[
    "Cuda failure",
    "atchdog",
    "exitcode",
    "NCCL_HOSTID",
    "Segmentation fault",
    "NVRM: ",
    "ncclRemoteError",
    "CUDA error",
    "MPI_A",
    "Bus error",
    "oom_kill",
    "slurmstepd",
    "killed by signal",
    "local_rank:",
    "KILLED BY SIGNAL",
    "loading shared lib",
    "Signal: ",
    "memory pressure",
    "exited on signal",
    "NCCL work: ",
    "Fatal Python",
    "nranks ",
    "worker group",
    "segfault at",
    "enqueued",
    "Exit code: ",
    "host      : ",
    " shut down",
    "dump signal",
    "terminate called",
    "Root Cause (",
    "WorkNCCL(SeqNum",
    "_OUT_OF_MEM",
    "received by PID",
    "return code = ",
    "EXIT ",
    "OOMKilled",
    "Destroy COMPLETE",
    "worker died",
    " exception",
    "died with",
    "already filled",
    "oom-kill:",
    "srun: error",
    "Process name: [[",
];

/// Other lines that may report a failure contain one of these.
const ERRORS: &[&str] = &[
    "error: ",
    "Traceback (",
    "infiniband ",
    ": line ",
    "ERROR",
    "ssh: ",
    "NCCL error",
    "Last error:",
    "nvshmem",
    "unable to reliab",
    "ocket creation failed",
    "enough slots",
    "BackOff",
    "now abort",
    "Raylet is term",
    "FATAL",
    "Error: ",
    "<warn>",
    " failure ",
];

/// The same, searched by themselves since the search above is full: at most 64, too.
///
/// Needles at every sixteenth place of a search share a bucket (see [`NEEDLES`]): the order of these lists makes false hits in training logs ten times rarer.
const RARE: &[&str] = &[
    "to reach each other",
    "issing ranks:",
    "Abort",
    " exited with code ",
    "NCCL Error ",
    "tcp/pair.cc",
    "(): ",
    ": Fatal error in ",
    " death signal",
    "Non-OK-status",
    "processes registered",
    "execvp error",
    "HYDU_sock",
    "unexpectedly failed after",
    "device handle for GPU",
    "GLOBAL_RANK: ",
    "to run proxy on ",
    " Killed ",
    ": Cannot alloc",
    "external/xla",
    "marked dead",
    "etected mismatch between ",
    "Out of bounds values",
    "OCI runtime",
    ": No ",
    ": Network is unr",
    "Heartbeat monitor",
    "function was called ",
    "WTERMSIG ",
    "response from daemon",
    "not successful for host",
    "has lost comm",
    "PMIx server",
    "monitoredBarrier",
    ": Operation not p",
    "core dumped",
    "NCCL operation",
    "sequential map was",
    " Failed",
    "JAX distributed service",
    "Timed out waiting ",
    "to all addresses",
    "Memory access fault",
    "errorcode ",
    "Caught signal ",
    "registration failed",
    "HIP out of memory",
    "corrupted size vs.",
    "in store",
    "double free",
    ": Connection ",
    " its node has died",
    "bstrap_proxy",
    "pmix_psec_base",
    "placement group",
    "Expected to have finished reduction",
    "Remote daemon: [",
    "waitForInput",
    "HW Exception by",
    "mca_btl_tcp_",
    "[ready ranks: ",
    "[enforce fail at",
    "low on resource",
    "Assertion `",
];

/// Finds what the map may show.
pub(super) static INTEREST: Needles = Needles(LazyLock::new(|| packed::Searcher::new(NEEDLES)));
/// Finds what may report a failure.
static FAILURE: Needles = Needles(LazyLock::new(|| packed::Searcher::new(REPORTS.iter().chain(ERRORS))));
/// Finds [`RARE`].
static UNUSUAL: Needles = Needles(LazyLock::new(|| packed::Searcher::new(RARE)));
/// Finds [`REPORTS`].
static REPORT: Needles = Needles(LazyLock::new(|| packed::Searcher::new(REPORTS)));
/// Finds [`RATES`].
pub(super) static RATE: Needles = Needles(LazyLock::new(|| packed::Searcher::new(RATES)));
/// Finds the words of [`RATES`] that have no slash.
pub(super) static SLASHLESS: Needles =
    Needles(LazyLock::new(|| packed::Searcher::new(RATES.iter().filter(|words| !words.contains('/')))));

/// A search for any of several words; none on a machine without vector instructions.
pub(super) struct Needles(pub(super) LazyLock<Option<packed::Searcher>>);

impl Needles {
    /// Returns the first hit at or after `from`. Without a search every line is of interest.
    pub(super) fn find(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let rest = haystack.get(from..)?;
        match &*self.0 {
            Some(searcher) => searcher.find(rest).map(|found| from + found.start()),
            None => (!rest.is_empty()).then_some(from),
        }
    }
}

/// What shells, UCX, Open MPI and Horovod report has one of these.
const ELSEWHERE: [&str; 16] = [
    "error: *** ",
    "Heartbeat monitor",
    " death signal",
    " Killed ",
    "core dumped",
    "errorcode ",
    "Caught signal ",
    "[missing ranks: ",
    "[ready ranks: ",
    "what():  ",
    "WTERMSIG ",
    "low on resource",
    " Aborted ",
    "memory usage threshold",
    "command terminated with exit code ",
    ": Node failure on ",
];

/// Returns whether a line may be a report of a launcher, a watchdog, a driver or the kernel.
pub(crate) fn is_report(line: &[u8]) -> bool {
    REPORT.find(line, 0).is_some() || ELSEWHERE.iter().any(|words| contains(line, words))
}

/// Counts newlines.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The next hit of a search in a block, cached.
pub(super) struct NextHit {
    needles: &'static Needles,
    /// Where it is; none before the first search.
    known: Option<usize>,
    over: bool,
}

impl NextHit {
    pub(super) fn new(needles: &'static Needles) -> Self {
        Self { needles, known: None, over: false }
    }

    /// Returns the first hit at or after `from`, which never decreases.
    pub(super) fn next(&mut self, block: &[u8], from: usize) -> Option<usize> {
        if !self.over && self.known.is_none_or(|at| at < from) {
            self.known = self.needles.find(block, from);
            self.over = self.known.is_none();
        }
        self.known
    }
}

/// Checks the place of the last hit before a search, since consecutive NCCL lines have `NCCL` at about the
/// same place: where the line that begins at `from` has it there, no search is needed.
pub(super) fn like_the_last(block: &[u8], from: usize, reach: Option<usize>) -> Option<usize> {
    const SHIFT: usize = 3;
    const TOKEN: &[u8] = b"NCCL";
    let first = from + reach?.checked_sub(SHIFT)?;
    let near = block.get(first..first + 2 * SHIFT + TOKEN.len())?;
    let at = first + near.windows(TOKEN.len()).position(|window| window == TOKEN)?;
    memchr::memchr(b'\n', &block[from..at]).is_none().then_some(at)
}

/// The places in a piece of a log where a line may report a failure. They depend only on the bytes, so the thread that
/// reads a file can search for them while another thread interprets the piece before.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// The first place in each line.
    pub(super) places: Vec<usize>,
    pub(super) newlines: u64,
}

impl Candidates {
    /// Searches a piece of a log.
    pub fn of(bytes: &[u8]) -> Self {
        let mut found = Self { places: Vec::new(), newlines: newlines(bytes) };
        let (mut failures, mut unusual) = (NextHit::new(&FAILURE), NextHit::new(&UNUSUAL));
        let mut from = 0;
        while let Some(hit) = failures.next(bytes, from).into_iter().chain(unusual.next(bytes, from)).min() {
            found.places.push(hit);
            let Some(end) = memchr::memchr(b'\n', &bytes[hit..]) else { break };
            from = hit + end + 1;
        }
        found
    }

    /// Returns whether a line may report a failure.
    pub(crate) fn is_one(line: &[u8]) -> bool {
        FAILURE.find(line, 0).is_some() || UNUSUAL.find(line, 0).is_some()
    }
}
