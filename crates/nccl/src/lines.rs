//! Chunks of bytes become lines: chunking never matters, memory is bounded, and lines of no interest are never looked at.

use std::sync::OnceLock;

use aho_corasick::packed;

/// Bytes kept of one line. What a longer line has behind them is skipped; it still counts as one line.
pub const LINE_CAP: usize = 64 * 1024;

/// Any line worth parsing contains one of these: NCCL's own lines, those whose prefix was stripped, exceptions that quote
/// NCCL's last error, values of speed. Which of them a line contains decides nothing else.
///
/// At most 32, and none shorter than 4 bytes: with more, or with shorter ones, the search takes half as many bytes at once.
/// Every eighth shares a bucket of the search, which tells them apart by the halves of their first four bytes only: this
/// order makes false hits rare (1 in 1,100 bytes of training logs, where the order of the alphabet gives 1 in 70), and
/// beginnings that words of such logs share are left out (`batch`, `step `).
const NEEDLES: &[&str; 32] = &[
    "P2P/",
    " truncated",
    "ibfabric",
    "uda failure",
    "NCCL",
    "_step_timing",
    "prov_err",
    "NET/",
    "nnection ",
    "SamplesPerSec",
    "FORK_SAFE",
    "per_sec",
    "vendor",
    "/sec",
    "dev/shm",
    " via direct",
    "SHM/",
    " not found",
    "elapsed time",
    "Errno 12",
    "tchdog",
    "busbw",
    "RCCL",
    "   sum ",
    "bandwidth",
    "it/s",
    "tokens/s",
    "per sec",
    "uplicate GPU",
    "NVLS",
    "ibv_",
    "  none ",
];

fn searcher() -> Option<&'static packed::Searcher> {
    static SEARCHER: OnceLock<Option<packed::Searcher>> = OnceLock::new();
    SEARCHER.get_or_init(|| packed::Searcher::new(NEEDLES)).as_ref()
}

/// A line of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Number in its source, from 1.
    pub number: u64,
    /// Its bytes without the newline, cut at [`LINE_CAP`].
    pub bytes: &'a [u8],
    /// Whether a newline ended it. The last line of a source may be cut.
    pub ended: bool,
}

/// Cuts a stream of bytes into lines and hands over those of interest.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come yet.
    carry: Vec<u8>,
    /// Whether a line is open, even if its kept part is full.
    open: bool,
    lines: u64,
    bytes: u64,
}

impl Lines {
    /// Lines seen so far, including one that is still open.
    pub fn lines(&self) -> u64 {
        self.lines + u64::from(self.open)
    }

    /// Bytes seen so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes bytes and hands over every line of interest that they complete.
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
            if is_of_interest(&carry) {
                sink(Line { number: self.lines, bytes: &carry, ended: true });
            }
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

    /// Hands over the last line if no newline ended it.
    pub fn finish(&mut self, mut sink: impl FnMut(Line<'_>)) {
        if self.open {
            self.open = false;
            self.lines += 1;
            let carry = std::mem::take(&mut self.carry);
            if is_of_interest(&carry) {
                sink(Line { number: self.lines, bytes: &carry, ended: false });
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_CAP.saturating_sub(self.carry.len()).min(bytes.len());
        self.carry.extend_from_slice(&bytes[..room]);
    }

    /// Takes whole lines.
    fn block(&mut self, block: &[u8], sink: &mut impl FnMut(Line<'_>)) {
        let mut counted = 0;
        let mut from = 0;
        // How far into its line the last hit was.
        let mut reach = None;
        while from < block.len() {
            let (start, hit) = if let Some(hit) = like_the_last(block, from, reach) {
                (from, hit)
            } else {
                let Some(hit) = find(block, from) else { break };
                (memchr::memrchr(b'\n', &block[from..hit]).map_or(from, |at| from + at + 1), hit)
            };
            let end = memchr::memchr(b'\n', &block[hit..]).map_or(block.len(), |at| hit + at);
            reach = Some(hit - start);
            self.lines += newlines(&block[counted..start]) + 1;
            let kept = &block[start..end.min(start + LINE_CAP)];
            if end - start <= LINE_CAP || hit < start + LINE_CAP {
                sink(Line { number: self.lines, bytes: kept, ended: true });
            }
            from = end + 1;
            counted = from.min(block.len());
        }
        self.lines += newlines(&block[counted..]);
    }
}

/// Whether a kept line would have been found by the search.
fn is_of_interest(line: &[u8]) -> bool {
    find(line, 0).is_some()
}

/// NCCL's lines come in rows, each with `NCCL` in about the same place: where the line that begins at `from` has it
/// there, no search is begun.
fn like_the_last(block: &[u8], from: usize, reach: Option<usize>) -> Option<usize> {
    const SHIFT: usize = 3;
    const TOKEN: &[u8] = b"NCCL";
    let first = from + reach?.checked_sub(SHIFT)?;
    let near = block.get(first..first + 2 * SHIFT + TOKEN.len())?;
    let at = first + near.windows(TOKEN.len()).position(|window| window == TOKEN)?;
    memchr::memchr(b'\n', &block[from..at]).is_none().then_some(at)
}

fn find(haystack: &[u8], from: usize) -> Option<usize> {
    let rest = haystack.get(from..)?;
    match searcher() {
        Some(searcher) => searcher.find(rest).map(|found| from + found.start()),
        // No vector instructions on this machine: every line is of interest.
        None => (!rest.is_empty()).then_some(from),
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
