//! Answers of NCCL's RAS service in files: the output of `ncclras`, alone or among the lines of a log.

use std::time::Duration;

use memchr::memmem;
use weftrun_core::nccl::TransportMap;
use weftrun_core::nccl::ras::Report;
use weftrun_diagnose::health::{self, Observer};

use crate::report::{Asked, HealthReport};

/// The title that only the text of an answer has. The version of NCCL stands a few lines above it.
const TITLE: &[u8] = b"\nJob summary\n";
/// Bytes above the title that belong to the answer.
const ABOVE: usize = 400;
/// Most bytes of an answer: one of 16,384 ranks that all differ has half of them.
const MOST: usize = 4 << 20;

/// The last answer in what was read so far.
#[derive(Default)]
pub(super) struct RasAnswers {
    /// The end of the source, or its answer so far.
    kept: Vec<u8>,
    is_answer: bool,
    last: Option<Report>,
}

impl RasAnswers {
    /// Takes the next bytes of a source.
    pub fn take(&mut self, bytes: &[u8]) {
        let searched = self.kept.len().saturating_sub(TITLE.len());
        self.kept.extend_from_slice(bytes);
        let title = memmem::rfind(&self.kept[searched..], TITLE).map(|at| searched + at);
        self.is_answer |= title.is_some();
        let needed = match title {
            Some(title) => title.saturating_sub(ABOVE),
            None if self.is_answer => 0,
            None => self.kept.len().saturating_sub(ABOVE + TITLE.len()),
        };
        self.kept.drain(..needed);
        self.kept.truncate(MOST);
    }

    /// Ends a source.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_answer) {
            self.last = Report::read(&self.kept).ok().or(self.last.take());
        }
        self.kept.clear();
    }

    /// Judges the last answer with the logs of its job.
    pub fn judge(self, logs: &TransportMap) -> Option<HealthReport> {
        let last = self.last.filter(|answer| health::is_of(answer, logs) != Some(false))?;
        let state = Observer::default().observe(Duration::ZERO, &last);
        let mut asked = Asked::default();
        (asked.via, asked.answers) = ("file".to_owned(), 1);
        Some(HealthReport::new(state, &last, health::culprits(&last, logs), asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "NCCL version 2.28.9 compiled with CUDA 13.0\n\nJob summary\n===========\n\n\
        Communicators... (0.00s)\n=============\n\nErrors\n======\n\nWarnings\n========\n\n\
        #0-0 (c4cf64bc550944d1) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  \
        3 ranks have launched up to operation 31\n  \
        Rank 1 has launched up to operation 30 -- GPU 1 managed by process 77 on node 10.0.0.2\n";

    #[test]
    fn an_answer_is_found_wherever_it_is_cut() {
        let text = format!("{}{ANSWER}", "h:1:1 [0] NCCL INFO x\n".repeat(40));
        for size in [1, 7, 64, 300, 4096] {
            let mut answers = RasAnswers::default();
            text.as_bytes().chunks(size).for_each(|bytes| answers.take(bytes));
            answers.end();
            let health = answers.judge(&TransportMap::new()).unwrap();
            assert_eq!(health.culprits[0].pid, 77, "chunks of {size}");
            assert_eq!(health.nccl_version.as_deref(), Some("2.28.9"), "chunks of {size}");
        }
        let mut none = RasAnswers::default();
        none.take(b"a program\nJob summary: 3 of 4\n");
        none.end();
        assert!(none.judge(&TransportMap::new()).is_none());
    }
}
