//! Cuts chunks of bytes into lines, once for all readers: chunk borders never matter, memory is bounded, and irrelevant lines
//! are never read.

mod escape;
mod interest;
mod piece;
mod rates;
mod steps;
mod unwrap;

use std::ops::Range;

pub use escape::{Escape, measure_escape};
pub use interest::Candidates;
pub(crate) use interest::{RATES, is_report};
pub(crate) use piece::{Piece, each_piece};
pub(crate) use steps::is_step;
pub use unwrap::{pieces, unwrap};

use interest::{INTEREST, NextHit, RATE, SLASHLESS, like_the_last, newlines};
use rates::{RateRun, plain_line, rate_at_slash};
use steps::STEP;

/// Bytes kept of one line. The rest of a longer line is skipped; it still counts as one line.
pub const LINE_CAP: usize = 64 * 1024;

/// Bytes kept of the line above one that may report a failure.
const ABOVE: usize = 200;

/// Bytes kept of the end of a source, whose lines are read again when it ends.
const TAIL: usize = 4 * 1024;

/// A line of interest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// Number in its source, from 1.
    pub number: u64,
    /// Its bytes without the newline, cut at [`LINE_CAP`].
    pub bytes: &'a [u8],
    /// Whether the line may hold what the map shows.
    pub of_map: bool,
    /// Where the first words of a throughput value are, if such a value is all that the map can find in the line.
    pub rate: Option<usize>,
    /// The end of the line above, if the line may belong to the report of a failure.
    pub failure: Option<&'a [u8]>,
    /// Whether the line may report a training step, and nothing else that the map shows but a rate.
    pub step: bool,
    /// Whether the line is known to contain no control characters other than tabs, and not to be JSON.
    pub plain: bool,
}

/// What the reader of a line needs of the lines behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needed {
    /// The next line, whatever its content.
    pub next: bool,
    /// Lines that may report a training step.
    pub steps: bool,
}

/// The unfinished last line of a source, of which at most `CAP` bytes are kept.
#[derive(Clone, Debug, Default)]
pub struct OpenLine<const CAP: usize = LINE_CAP> {
    kept: Vec<u8>,
    /// Whether a line is open, even if its kept part is full.
    open: bool,
}

impl<const CAP: usize> OpenLine<CAP> {
    /// Takes the next bytes and passes on every line that they complete.
    pub fn each(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        let (first, whole) = self.take(bytes);
        first.iter().for_each(|first| sink(first));
        let mut from = whole.start;
        for end in memchr::memchr_iter(b'\n', &bytes[whole.clone()]).map(|at| whole.start + at) {
            sink(&bytes[from..end]);
            from = end + 1;
        }
    }

    /// Takes the next bytes and keeps those of the last line if it is unfinished. Returns the line that was unfinished before, if they
    /// complete it, and where the whole lines are.
    fn take(&mut self, bytes: &[u8]) -> (Option<Vec<u8>>, Range<usize>) {
        let Some(last) = memchr::memrchr(b'\n', bytes) else {
            self.keep(bytes);
            return (None, 0..0);
        };
        let mut begin = 0;
        let mut first = None;
        if self.open {
            let end = memchr::memchr(b'\n', bytes).unwrap_or(last);
            self.keep(&bytes[..end]);
            first = self.end();
            begin = end + 1;
        }
        self.keep(&bytes[last + 1..]);
        (first, begin..last + 1)
    }

    /// Returns the unfinished line: no more bytes follow.
    pub fn end(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.open).then(|| std::mem::take(&mut self.kept))
    }

    /// Takes the next bytes, which have no newline; returns how many are left out.
    pub fn keep(&mut self, bytes: &[u8]) -> usize {
        self.open |= !bytes.is_empty();
        let room = CAP.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        bytes.len() - room
    }

    /// Returns what is kept of the unfinished line.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Forgets the unfinished line.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.open = false;
    }
}

/// Cuts the bytes of a source into lines and passes on those of interest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cutter {
    open: OpenLine,
    lines: u64,
    bytes: u64,
    rate_run: RateRun,
    /// What is needed besides the lines of interest.
    pub needed: Needed,
    /// The end of the last whole line.
    above: Vec<u8>,
    /// The last bytes so far.
    tail: Vec<u8>,
}

impl Cutter {
    /// Returns the number of lines so far, including an unfinished one.
    pub fn lines(&self) -> u64 {
        self.lines + u64::from(self.open.open)
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes bytes and their candidates, and passes on every line of interest that they complete. `sink` returns what it needs
    /// of the lines behind.
    pub fn feed(&mut self, bytes: &[u8], candidates: &Candidates, mut sink: impl FnMut(Line<'_>) -> Needed) {
        self.bytes += bytes.len() as u64;
        self.keep_tail(bytes);
        let before = self.lines;
        let (first, whole) = self.open.take(bytes);
        if let Some(first) = first {
            self.carried(&first, &mut sink);
        }
        if !whole.is_empty() {
            self.block(&bytes[..whole.end], whole.start, candidates, &mut sink);
            self.remember(last_line(&bytes[whole]));
        }
        self.lines = before + candidates.newlines;
    }

    /// Passes on the last line if no newline ended it; returns whether there was one.
    pub fn finish(&mut self, mut sink: impl FnMut(Line<'_>) -> Needed) -> bool {
        let last = self.open.end();
        if let Some(last) = &last {
            self.carried(last, &mut sink);
        }
        last.is_some()
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + bytes.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.tail.reserve_exact(bytes.len());
        self.tail.extend_from_slice(bytes);
    }

    /// Passes on the last lines of a source that has ended, whatever their content, and forgets them.
    pub fn last_lines(&mut self, mut sink: impl FnMut(Line<'_>)) {
        let tail = std::mem::take(&mut self.tail);
        if tail.is_empty() {
            return;
        }
        let lines = tail.strip_suffix(b"\n").unwrap_or(&tail);
        let first = self.lines.saturating_sub(newlines(lines));
        for (number, bytes) in (first..).zip(lines.split(|byte| *byte == b'\n')) {
            // The first one may have begun before.
            if number > first || tail.len() < TAIL {
                sink(Line {
                    number,
                    bytes,
                    of_map: false,
                    rate: None,
                    failure: Some(b""),
                    step: false,
                    plain: false,
                });
            }
        }
    }

    /// Takes the whole lines of a block from a place on.
    fn block(
        &mut self,
        block: &[u8],
        begin: usize,
        candidates: &Candidates,
        sink: &mut impl FnMut(Line<'_>) -> Needed,
    ) {
        let (mut others, mut rates) = (NextHit::new(&INTEREST), NextHit::new(&RATE));
        let (mut slashless, mut steps) = (NextHit::new(&SLASHLESS), NextHit::new(&STEP));
        let mut failures = candidates.places.iter().copied().peekable();
        let mut from = begin;
        let mut counted = begin;
        // How far into its line the last hit was.
        let mut reach = None;
        while from < block.len() {
            let other = like_the_last(block, from, reach).or_else(|| others.next(block, from));
            while failures.next_if(|place| *place < from).is_some() {}
            let mut failure = if self.needed.next { Some(from) } else { failures.peek().copied() };
            if !self.needed.next && !self.needed.steps && self.rate_run.attempt() {
                let before = slashless.next(block, from).into_iter().chain(other).chain(failure).min();
                let end = self.run_of_rates(block, from, before.unwrap_or(block.len()), sink);
                self.rate_run.note(end > from);
                (from, counted) = (end, end);
            }
            let rate = rates.next(block, from);
            failure = failure.filter(|place| *place < block.len());
            let step = if self.needed.steps { steps.next(block, from) } else { None };
            let Some(hit) = [other, rate, failure, step].into_iter().flatten().min() else { break };
            let start = memchr::memrchr(b'\n', &block[from..hit]).map_or(from, |at| from + at + 1);
            let end = memchr::memchr(b'\n', &block[hit..]).map_or(block.len(), |at| hit + at);
            let kept = end.min(start + LINE_CAP);
            let within = |hit: Option<usize>| hit.filter(|at| *at < kept);
            let (other, rate, failure, step) = (within(other), within(rate), within(failure), within(step));
            reach = other.map(|at| at - start);
            let rate = rate.filter(|_| other.is_none());
            self.rate_run.see(rate.is_some());
            self.lines += newlines(&block[counted..start]) + 1;
            if other.or(rate).or(failure).or(step).is_some() {
                let above = || if start == begin { &self.above } else { last_line(&block[begin..start]) };
                self.needed = sink(Line {
                    number: self.lines,
                    bytes: &block[start..kept],
                    of_map: other.or(rate).is_some()
                        || failure.is_some() && is_old_warning(&block[start..kept]),
                    rate: rate.map(|at| at - start),
                    failure: failure.map(|_| above()),
                    step: step.is_some() && other.is_none(),
                    plain: false,
                });
            }
            from = end + 1;
            counted = from.min(block.len());
        }
    }

    /// Passes on consecutive plain lines with a rate, from the line that begins at `from`, and returns where the
    /// first other line begins. Before `limit` the only needles are words of [`RATES`] with a slash.
    fn run_of_rates(
        &mut self,
        block: &[u8],
        mut from: usize,
        limit: usize,
        sink: &mut impl FnMut(Line<'_>) -> Needed,
    ) -> usize {
        while let Some((slash, end)) = plain_line(block, from)
            && end < limit
            && let Some(at) = rate_at_slash(block, slash)
            && at >= from
        {
            self.lines += 1;
            sink(Line {
                number: self.lines,
                bytes: &block[from..end],
                of_map: true,
                rate: Some(at - from),
                failure: None,
                step: false,
                plain: true,
            });
            from = end + 1;
        }
        from
    }

    /// Takes a line that was assembled from several chunks.
    fn carried(&mut self, bytes: &[u8], sink: &mut impl FnMut(Line<'_>) -> Needed) {
        self.lines += 1;
        let (other, rate) = (INTEREST.find(bytes, 0), RATE.find(bytes, 0));
        let failure = self.needed.next || Candidates::is_one(bytes);
        let step = other.is_none() && self.needed.steps && STEP.find(bytes, 0).is_some();
        if failure || step || other.or(rate).is_some() {
            self.needed = sink(Line {
                number: self.lines,
                bytes,
                of_map: other.or(rate).is_some() || failure && is_old_warning(bytes),
                rate: rate.filter(|_| other.is_none()),
                failure: failure.then_some(self.above.as_slice()),
                step,
                plain: false,
            });
        }
        self.remember(end_of(bytes));
    }

    fn remember(&mut self, line: &[u8]) {
        self.above.clear();
        self.above.extend_from_slice(line);
    }
}

/// Returns whether a line that may report a failure may be a warning of NCCL before 2.3, whose prefix has no `NCCL`.
fn is_old_warning(line: &[u8]) -> bool {
    crate::text::contains(line, " WARN ")
}

/// Returns the end of the last of some whole lines.
fn last_line(lines: &[u8]) -> &[u8] {
    let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
    end_of(&lines[memchr::memrchr(b'\n', lines).map_or(0, |at| at + 1)..])
}

/// Returns the last bytes of a line: what stands above a traceback may follow a progress bar.
fn end_of(line: &[u8]) -> &[u8] {
    &line[line.len().saturating_sub(ABOVE)..]
}
