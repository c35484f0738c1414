//! Cuts bytes into lines and passes on those that may report a failure.

use std::sync::OnceLock;

use aho_corasick::packed;

use crate::lines::LINE_CAP;

/// A line of interest contains one of these. At most 32, and none shorter than 4 bytes: the search stays vectorised.
const NEEDLES: &[&str; 32] = &[
    "Traceback (",
    "atchdog",
    "enqueued",
    "exitcode",
    "above exception",
    "async exception",
    "local_rank:",
    "nranks ",
    "Destroy COMPLETE",
    "terminate called",
    "CUDA error",
    "Cuda failure",
    "NVRM: Xid",
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
    "Fatal Python",
    "ncclRemoteError",
    "died with",
    "Errorcode: ",
];

fn searcher() -> Option<&'static packed::Searcher> {
    static SEARCHER: OnceLock<Option<packed::Searcher>> = OnceLock::new();
    SEARCHER.get_or_init(|| packed::Searcher::new(NEEDLES)).as_ref()
}

fn find(haystack: &[u8]) -> Option<usize> {
    match searcher() {
        Some(searcher) => searcher.find(haystack).map(|found| found.start()),
        // No vector instructions on this machine: every line is of interest.
        None => (!haystack.is_empty()).then_some(0),
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
}

impl Cutter {
    pub fn lines(&self) -> u64 {
        self.lines + u64::from(self.open)
    }

    /// Takes bytes; `sink` returns for each line whether it needs the next one, whatever its content.
    pub fn feed(&mut self, mut bytes: &[u8], mut sink: impl FnMut(&[u8], u64) -> bool) {
        if self.open {
            let Some(end) = memchr::memchr(b'\n', bytes) else { return self.keep(bytes) };
            let (head, rest) = bytes.split_at(end);
            self.keep(head);
            bytes = rest.get(1..).unwrap_or_default();
            self.carried(&mut sink);
        }
        while !bytes.is_empty() {
            let Some(last) = memchr::memrchr(b'\n', bytes) else { break };
            let (block, rest) = bytes.split_at(last + 1);
            self.block(block, &mut sink);
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.open = true;
            self.keep(bytes);
        }
    }

    /// Passes on the last line if no newline ended it; returns whether there was one.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8], u64) -> bool) -> bool {
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

    fn carried(&mut self, sink: &mut impl FnMut(&[u8], u64) -> bool) {
        let mut carry = std::mem::take(&mut self.carry);
        self.open = false;
        self.lines += 1;
        if self.every || find(&carry).is_some() {
            self.every = sink(&carry, self.lines);
        }
        carry.clear();
        carry.shrink_to(4096);
        self.carry = carry;
    }

    /// Takes whole lines.
    fn block(&mut self, mut block: &[u8], sink: &mut impl FnMut(&[u8], u64) -> bool) {
        while !block.is_empty() {
            let start = if self.every {
                0
            } else {
                let Some(hit) = find(block) else {
                    self.lines += newlines(block);
                    return;
                };
                block.get(..hit).and_then(|before| memchr::memrchr(b'\n', before)).map_or(0, |at| at + 1)
            };
            let (before, rest) = block.split_at(start);
            self.lines += newlines(before) + 1;
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let (line, behind) = rest.split_at(end);
            self.every = sink(line.get(..LINE_CAP).unwrap_or(line), self.lines);
            block = behind.get(1..).unwrap_or_default();
        }
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
