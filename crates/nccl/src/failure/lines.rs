//! Cuts bytes into lines and passes on those that may report a failure.

use std::sync::LazyLock;

use aho_corasick::packed;

use crate::lines::{LINE_CAP, Needles, newlines};

/// A line of interest contains one of these. At most 64, and none shorter than 4 bytes: the search stays vectorised.
const NEEDLES: &[&str] = &[
    "Traceback (",
    "atchdog",
    "enqueued",
    "exitcode",
    " exception",
    "local_rank:",
    "nranks ",
    "Destroy COMPLETE",
    "terminate called",
    "CUDA error",
    "Cuda failure",
    "NVRM: ",
    "Segmentation fault",
    "killed by signal",
    "oom_kill",
    "OOMKilled",
    "srun: error",
    "slurmstepd",
    "MPI_A",
    "exited on signal",
    "KILLED BY SIGNAL",
    "EXIT CODE: ",
    "worker group",
    "NCCL_HOSTID",
    "Root Cause (",
    "Process name: [[",
    "Exit code: ",
    "Bus error",
    "Fatal Python",
    "ncclRemoteError",
    "died with",
    "return code = ",
    "Last error:",
    "Error: ",
    "ERROR",
    "FATAL",
    "error: ",
    "NCCL error",
    " failure ",
    "now abort",
    "host      : ",
    "WorkNCCL(SeqNum",
    "NCCL work: ",
    "Killed process",
    "oom-kill:",
    "segfault at",
    "Signal: ",
    "worker died",
    "<warn>",
];

static INTEREST: Needles = Needles(LazyLock::new(|| packed::Searcher::new(NEEDLES)));

/// The places in a piece of a log where a line may report a failure. They depend only on the bytes, so the thread that
/// reads a file can search for them while another thread interprets the piece before.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// The first place in each line, and how many newlines precede it.
    places: Vec<(usize, u64)>,
    newlines: u64,
}

impl Candidates {
    /// Searches a piece of a log.
    pub fn of(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        let mut from = 0;
        while let Some(rest) = bytes.get(from..)
            && let Some(hit) = INTEREST.find(rest, 0)
        {
            let (before, behind) = rest.split_at(hit);
            found.newlines += newlines(before);
            found.places.push((from + hit, found.newlines));
            let Some(end) = memchr::memchr(b'\n', behind) else { return found };
            found.newlines += 1;
            from += hit + end + 1;
        }
        found.newlines += newlines(bytes.get(from..).unwrap_or_default());
        found
    }
}

/// Cuts a stream of bytes into lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutter {
    carry: Vec<u8>,
    open: bool,
    lines: u64,
    /// Whether the next line is needed, whatever its content.
    every: bool,
    /// The end of the last whole line.
    last: Vec<u8>,
}

/// Bytes kept of the line above one that is passed on.
const ABOVE: usize = 200;

impl Cutter {
    pub fn lines(&self) -> u64 {
        self.lines + u64::from(self.open)
    }

    /// Takes bytes and their candidates; `sink` takes each line with its number and the end of the line above, and returns whether it needs
    /// the next one, whatever its content.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        candidates: &Candidates,
        mut sink: impl FnMut(&[u8], u64, &[u8]) -> bool,
    ) {
        let before = self.lines;
        let mut from = 0;
        if self.open {
            let Some(end) = memchr::memchr(b'\n', bytes) else { return self.keep(bytes) };
            self.keep(bytes.get(..end).unwrap_or_default());
            from = end + 1;
            self.carried(&mut sink);
        }
        let (whole, rest) = bytes.split_at(memchr::memrchr(b'\n', bytes).map_or(0, |last| last + 1));
        let begin = from;
        let mut places = candidates.places.iter();
        while from < whole.len() {
            if !self.every {
                let Some((place, newlines)) = places.find(|(place, _)| *place >= from) else { break };
                let Some(skipped) = whole.get(from..*place) else { break };
                from += memchr::memrchr(b'\n', skipped).map_or(0, |at| at + 1);
                self.lines = before + newlines;
            }
            self.lines += 1;
            let line = whole.get(from..).unwrap_or_default();
            let line = line.get(..memchr::memchr(b'\n', line).unwrap_or(line.len())).unwrap_or(line);
            let above = if from == begin { &self.last } else { last_line(whole.get(begin..from)) };
            self.every = sink(line.get(..LINE_CAP).unwrap_or(line), self.lines, above);
            from += line.len() + 1;
        }
        if whole.len() > begin {
            self.remember(last_line(whole.get(begin..)));
        }
        self.lines = before + candidates.newlines;
        if !rest.is_empty() {
            self.open = true;
            self.keep(rest);
        }
    }

    /// Passes on the last line if no newline ended it; returns whether there was one.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8], u64, &[u8]) -> bool) -> bool {
        let open = self.open;
        if open {
            self.carried(&mut sink);
        }
        open
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_CAP.saturating_sub(self.carry.len()).min(bytes.len());
        self.carry.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    fn remember(&mut self, line: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(line);
    }

    fn carried(&mut self, sink: &mut impl FnMut(&[u8], u64, &[u8]) -> bool) {
        let mut carry = std::mem::take(&mut self.carry);
        self.open = false;
        self.lines += 1;
        if self.every || INTEREST.find(&carry, 0).is_some() {
            self.every = sink(&carry, self.lines, &self.last);
        }
        self.remember(end_of(&carry));
        carry.clear();
        carry.shrink_to(4096);
        self.carry = carry;
    }
}

/// Returns the end of the last of some whole lines.
fn last_line(lines: Option<&[u8]>) -> &[u8] {
    let lines = lines.and_then(|lines| lines.strip_suffix(b"\n")).unwrap_or_default();
    end_of(lines.get(memchr::memrchr(b'\n', lines).map_or(0, |at| at + 1)..).unwrap_or_default())
}

/// Returns the last bytes of a line: what stands above a traceback may follow a progress bar.
fn end_of(line: &[u8]) -> &[u8] {
    line.get(line.len().saturating_sub(ABOVE)..).unwrap_or_default()
}
