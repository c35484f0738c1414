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

/// Which needles are those of values of speed. A line that contains no other says nothing else.
const IS_RATE: [bool; 32] = {
    let mut rates = [false; 32];
    let mut at = 0;
    while at < 32 {
        rates[at] = matches!(
            NEEDLES[at].as_bytes(),
            b"_step_timing"
                | b"SamplesPerSec"
                | b"per_sec"
                | b"/sec"
                | b"elapsed time"
                | b"it/s"
                | b"tokens/s"
                | b"per sec"
        );
        at += 1;
    }
    rates
};

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
    /// Where the first words of a value of speed stand, if such a value is all that the line can say.
    pub rate: Option<usize>,
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

    /// Hands over the last line if no newline ended it.
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
        let mut counted = 0;
        let mut from = 0;
        // How far into its line the last hit was.
        let mut reach = None;
        // A hit behind the last line, found while that was searched to its end.
        let mut ahead: Option<Hit> = None;
        while from < block.len() {
            let (start, hit) = if let Some(at) = like_the_last(block, from, reach) {
                (from, Hit { at, rate: false })
            } else {
                let known = ahead.filter(|hit| hit.at >= from);
                let Some(hit) = known.or_else(|| find(block, from)) else { break };
                (memchr::memrchr(b'\n', &block[from..hit.at]).map_or(from, |at| from + at + 1), hit)
            };
            let end = memchr::memchr(b'\n', &block[hit.at..]).map_or(block.len(), |at| hit.at + at);
            let rate = hit.rate && {
                ahead = next_other(block, hit, end);
                ahead.is_none_or(|next| next.at >= end)
            };
            reach = (!hit.rate).then_some(hit.at - start);
            self.lines += newlines(&block[counted..start]) + 1;
            let kept = &block[start..end.min(start + LINE_CAP)];
            if end - start <= LINE_CAP || hit.at < start + LINE_CAP {
                let rate = rate.then_some(hit.at - start);
                sink(Line { number: self.lines, bytes: kept, ended: true, rate });
            }
            let exhausted = rate && ahead.is_none();
            from = end + 1;
            counted = from.min(block.len());
            if exhausted {
                break;
            }
        }
        self.lines += newlines(&block[counted..]);
    }
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

/// Where a needle was found.
#[derive(Clone, Copy)]
struct Hit {
    at: usize,
    /// Whether it is that of a value of speed.
    rate: bool,
}

/// The next hit behind one of a value of speed: the first of another kind in the same line, or the first behind `end`.
fn next_other(block: &[u8], hit: Hit, end: usize) -> Option<Hit> {
    let mut hit = hit;
    loop {
        hit = find(block, hit.at + 1)?;
        if hit.at >= end || !hit.rate {
            return Some(hit);
        }
    }
}

/// Hands over a line that stands alone.
fn hand_over(number: u64, bytes: &[u8], ended: bool, sink: &mut impl FnMut(Line<'_>)) {
    if let Some(hit) = find(bytes, 0) {
        let rate = (hit.rate && next_other(bytes, hit, bytes.len()).is_none()).then_some(hit.at);
        sink(Line { number, bytes, ended, rate });
    }
}

fn find(haystack: &[u8], from: usize) -> Option<Hit> {
    let rest = haystack.get(from..)?;
    match searcher() {
        Some(searcher) => searcher.find(rest).map(|found| Hit {
            at: from + found.start(),
            rate: IS_RATE.get(found.pattern().as_usize()).copied().unwrap_or(false),
        }),
        // No vector instructions on this machine: every line is of interest.
        None => (!rest.is_empty()).then_some(Hit { at: from, rate: false }),
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
