//! Splits chunks of bytes into lines: chunk borders never matter, memory is bounded, and irrelevant lines
//! are never read.

use std::sync::LazyLock;

use aho_corasick::packed;

/// Bytes kept of one line. The rest of a longer line is skipped; it still counts as one line.
pub const LINE_CAP: usize = 64 * 1024;

/// Any line worth parsing contains one of these or of [`RATES`]: NCCL's own lines, those whose prefix was stripped, and
/// exceptions that quote NCCL's last error. Which of them a line contains decides nothing else.
///
/// At most 32, and none shorter than 4 bytes: with more, or with shorter ones, the search takes half as many bytes at once.
/// The needles at every eighth place share a bucket of the search, which distinguishes them only by the
/// halves of their first four bytes: this order makes false hits rare, and prefixes of words in training
/// logs are left out (`batch`, `step `).
const NEEDLES: &[&str; 34] = &[
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
];

/// Words of throughput values. A line that contains one of these and none of [`NEEDLES`] has no other
/// information. Training logs have one in most of their lines, so these are searched separately: the search
/// for everything else then runs at memory speed.
pub(crate) const RATES: &[&str; 8] =
    &["_step_timing", "SamplesPerSec", "per_sec", "/sec", "elapsed time", "it/s", "tokens/s", "per sec"];

/// A line of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Number in its source, from 1.
    pub number: u64,
    /// Its bytes without the newline, cut at [`LINE_CAP`].
    pub bytes: &'a [u8],
    /// Whether a newline ended it. The last line of a source may be cut.
    pub ended: bool,
    /// Where the first words of a throughput value are, if such a value is all that the line can contain.
    pub rate: Option<usize>,
    /// Whether the line is known to contain no control characters other than tabs, and not to be JSON.
    pub plain: bool,
}

/// Cuts a stream of bytes into lines and passes on those of interest.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The beginning of an unfinished line.
    carry: Vec<u8>,
    /// Whether a line is open, even if its kept part is full.
    open: bool,
    lines: u64,
    bytes: u64,
    rate_run: RateRun,
}

impl Lines {
    /// Returns the number of lines so far, including an unfinished one.
    pub fn lines(&self) -> u64 {
        self.lines + u64::from(self.open)
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes bytes and passes on every line of interest that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut sink: impl FnMut(Line<'_>)) {
        self.bytes += bytes.len() as u64;
        if self.open {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.keep(bytes);
                return;
            };
            self.keep(&bytes[..end]);
            self.open = false;
            let carry = std::mem::take(&mut self.carry);
            self.lines += 1;
            hand_over(self.lines, &carry, true, &mut sink);
            self.carry = carry;
            self.carry.clear();
            bytes = &bytes[end + 1..];
        }
        let whole = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        self.block(&bytes[..whole], &mut sink);
        if whole < bytes.len() {
            self.open = true;
            self.keep(&bytes[whole..]);
        } else if self.carry.capacity() > 4096 {
            self.carry = Vec::new();
        }
    }

    /// Passes on the last line if no newline ended it.
    pub fn finish(&mut self, mut sink: impl FnMut(Line<'_>)) {
        if self.open {
            self.open = false;
            self.lines += 1;
            let carry = std::mem::take(&mut self.carry);
            hand_over(self.lines, &carry, false, &mut sink);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_CAP.saturating_sub(self.carry.len()).min(bytes.len());
        self.carry.extend_from_slice(&bytes[..room]);
    }

    /// Takes whole lines.
    fn block(&mut self, block: &[u8], sink: &mut impl FnMut(Line<'_>)) {
        let (mut others, mut rates) = (NextHit::new(&INTEREST), NextHit::new(&RATE));
        let mut slashless = NextHit::new(&SLASHLESS);
        let mut counted = 0;
        let mut from = 0;
        // How far into its line the last hit was.
        let mut reach = None;
        while from < block.len() {
            let other = like_the_last(block, from, reach).or_else(|| others.next(block, from));
            if self.rate_run.attempt() {
                let before = slashless.next(block, from).into_iter().chain(other).min();
                let end = self.run_of_rates(block, from, before.unwrap_or(block.len()), sink);
                self.rate_run.note(end > from);
                (from, counted) = (end, end);
            }
            let rate = rates.next(block, from);
            let Some(hit) = [other, rate].into_iter().flatten().min() else { break };
            let start = memchr::memrchr(b'\n', &block[from..hit]).map_or(from, |at| from + at + 1);
            let end = memchr::memchr(b'\n', &block[hit..]).map_or(block.len(), |at| hit + at);
            let rate = rate.filter(|at| *at == hit && other.is_none_or(|other| other >= end));
            reach = rate.is_none().then_some(hit - start);
            self.rate_run.see(rate.is_some());
            self.lines += newlines(&block[counted..start]) + 1;
            if end - start <= LINE_CAP || hit < start + LINE_CAP {
                let kept = &block[start..end.min(start + LINE_CAP)];
                let rate = rate.map(|at| at - start);
                sink(Line { number: self.lines, bytes: kept, ended: true, rate, plain: false });
            }
            from = end + 1;
            counted = from.min(block.len());
        }
        self.lines += newlines(&block[counted..]);
    }

    /// Passes on consecutive plain lines with a rate, from the line that begins at `from`, and returns where the
    /// first other line begins. Before `limit` the only needles are words of [`RATES`] with a slash.
    fn run_of_rates(
        &mut self,
        block: &[u8],
        mut from: usize,
        limit: usize,
        sink: &mut impl FnMut(Line<'_>),
    ) -> usize {
        while let Some((slash, end)) = plain_line(block, from)
            && end < limit
            && let Some(at) = rate_at_slash(block, slash)
            && at >= from
        {
            self.lines += 1;
            let bytes = &block[from..end];
            sink(Line { number: self.lines, bytes, ended: true, rate: Some(at - from), plain: true });
            from = end + 1;
        }
        from
    }
}

/// Decides when reading every line is faster than searching for lines with a rate. In a typical training log nearly all
/// lines have one, and a separate search for each line takes several times as long.
#[derive(Clone, Copy, Debug, Default)]
struct RateRun {
    /// Consecutive lines with a rate that the search found.
    streak: u32,
    /// Consecutive attempts that read no line.
    failures: u32,
}

impl RateRun {
    /// Returns whether to try reading every line. Each consecutive failure doubles the number of lines to search first.
    fn attempt(self) -> bool {
        self.streak >= 2 << self.failures.min(12)
    }

    /// Records an attempt.
    fn note(&mut self, succeeded: bool) {
        if succeeded {
            self.failures = 0;
        } else {
            (self.streak, self.failures) = (0, self.failures.saturating_add(1));
        }
    }

    /// Records a line that the search found.
    fn see(&mut self, rate: bool) {
        if rate {
            self.streak = self.streak.saturating_add(1);
        }
    }
}

/// Returns the first slash and the end of the line that begins at `from`; none if it has no slash, is JSON, is long, is at
/// the end of the block, or has control characters other than tabs. Reads eight bytes at once.
fn plain_line(block: &[u8], from: usize) -> Option<(usize, usize)> {
    const LONG: usize = 4096;
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);
    const BLANKS: u64 = u64::from_le_bytes([b' '; 8]);
    let slashes = |word: u64| (word ^ SLASHES).wrapping_sub(ONES) & !(word ^ SLASHES) & HIGH;
    let controls = |word: u64| word.wrapping_sub(BLANKS) & !word & HIGH;
    // The lowest marked byte is correct; a borrow may also mark bytes above it.
    let first = |mask: u64| (mask.trailing_zeros() / 8) as usize;
    let rest = block.get(from..)?;
    if rest.first() == Some(&b'{') {
        return None;
    }
    let mut slash = None;
    let mut at = 0;
    while at < LONG {
        let word = u64::from_le_bytes(*rest.get(at..)?.first_chunk()?);
        let control = controls(word);
        if slash.is_none() {
            let found = slashes(word);
            if found != 0 && (control == 0 || first(found) < first(control)) {
                slash = Some(from + at + first(found));
            }
        }
        if control == 0 {
            at += 8;
            continue;
        }
        at += first(control);
        match rest.get(at)? {
            b'\n' => return Some((slash?, from + at)),
            b'\t' => at += 1,
            _ => return None,
        }
    }
    None
}

/// Returns the start of the word of [`RATES`] whose slash is at a position.
fn rate_at_slash(block: &[u8], slash: usize) -> Option<usize> {
    let (before, behind) = block.split_at_checked(slash)?;
    if behind.get(1) != Some(&b's') {
        return None;
    }
    // Returns the word that begins first, as a search would.
    if before.ends_with(b"tokens") {
        return Some(slash - 6);
    }
    if before.ends_with(b"it") {
        return Some(slash - 2);
    }
    behind.starts_with(b"/sec").then_some(slash)
}

/// The next hit of a search in a block, cached.
struct NextHit {
    needles: &'static Needles,
    /// Where it is; none before the first search.
    known: Option<usize>,
    over: bool,
}

impl NextHit {
    fn new(needles: &'static Needles) -> Self {
        Self { needles, known: None, over: false }
    }

    /// Returns the first hit at or after `from`, which never decreases.
    fn next(&mut self, block: &[u8], from: usize) -> Option<usize> {
        if !self.over && self.known.is_none_or(|at| at < from) {
            self.known = self.needles.find(block, from);
            self.over = self.known.is_none();
        }
        self.known
    }
}

/// Checks the place of the last hit before a search, since consecutive NCCL lines have `NCCL` at about the
/// same place: where the line that begins at `from` has it there, no search is needed.
fn like_the_last(block: &[u8], from: usize, reach: Option<usize>) -> Option<usize> {
    const SHIFT: usize = 3;
    const TOKEN: &[u8] = b"NCCL";
    let first = from + reach?.checked_sub(SHIFT)?;
    let near = block.get(first..first + 2 * SHIFT + TOKEN.len())?;
    let at = first + near.windows(TOKEN.len()).position(|window| window == TOKEN)?;
    memchr::memchr(b'\n', &block[from..at]).is_none().then_some(at)
}

/// Passes on a line that was assembled from several chunks.
fn hand_over(number: u64, bytes: &[u8], ended: bool, sink: &mut impl FnMut(Line<'_>)) {
    let (other, rate) = (INTEREST.find(bytes, 0), RATE.find(bytes, 0));
    if other.or(rate).is_some() {
        sink(Line { number, bytes, ended, rate: rate.filter(|_| other.is_none()), plain: false });
    }
}

static INTEREST: Needles = Needles(LazyLock::new(|| packed::Searcher::new(NEEDLES)));
static RATE: Needles = Needles(LazyLock::new(|| packed::Searcher::new(RATES)));
/// The words of [`RATES`] that have no slash.
static SLASHLESS: Needles =
    Needles(LazyLock::new(|| packed::Searcher::new(RATES.iter().filter(|words| !words.contains('/')))));

/// A search for any of several words; none on a machine without vector instructions.
pub(crate) struct Needles(pub LazyLock<Option<packed::Searcher>>);

impl Needles {
    /// Returns the first hit at or after `from`. Without a search every line is of interest.
    pub fn find(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let rest = haystack.get(from..)?;
        match &*self.0 {
            Some(searcher) => searcher.find(rest).map(|found| from + found.start()),
            None => (!rest.is_empty()).then_some(from),
        }
    }
}

pub(crate) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
