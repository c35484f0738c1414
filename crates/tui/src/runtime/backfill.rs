//! Reads a log from its end and from its beginning at once: the lines on the screen come first, and NCCL's
//! lines, which are at the beginning, are still all read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weftrun::core::log::{LogBatch, Mark, SourceId};

/// Merges the two streams, so that each line is shown once.
#[derive(Debug, Default)]
pub(super) struct Backfill {
    /// Offset at which the stream of the end began, by source.
    starts: HashMap<Arc<SourceId>, u64>,
    /// Sources whose earlier part is still to come.
    behind: HashSet<Arc<SourceId>>,
    /// Offset up to which lines may have been there before the log was opened, by source.
    old: HashMap<Arc<SourceId>, u64>,
    /// Earlier parts of sources whose end has not been seen yet.
    waiting: Vec<LogBatch>,
}

impl Backfill {
    /// Notes that the lines up to the end of a batch of the end may be older than the view of them.
    pub(super) fn note_old(&mut self, batch: &LogBatch) {
        let until = self.old.entry(batch.source.clone()).or_default();
        *until = batch.cursor.offset.max(*until);
    }

    /// Returns whether the lines of a batch read from the beginning were written after the log was opened.
    pub(super) fn is_new(&self, batch: &LogBatch) -> bool {
        let begin = batch.cursor.offset.saturating_sub(batch.bytes.len() as u64);
        self.old.get(&batch.source).is_none_or(|old| begin >= *old)
    }

    /// Returns whether the end of each known source has been reached from its beginning.
    pub(super) fn has_caught_up(&self) -> bool {
        self.behind.is_empty() && self.waiting.is_empty()
    }

    /// Adds a batch of the end; returns the batches that have waited for it.
    pub(super) fn end(&mut self, batch: &LogBatch) -> Vec<LogBatch> {
        if self.starts.contains_key(&batch.source) {
            return Vec::new();
        }
        let start = batch.cursor.offset.saturating_sub(batch.bytes.len() as u64);
        self.starts.insert(batch.source.clone(), start);
        if start > 0 {
            self.behind.insert(batch.source.clone());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (mine, others) = waiting.into_iter().partition(|waiting| waiting.source == batch.source);
        self.waiting = others;
        let mine: Vec<LogBatch> = mine;
        mine.into_iter().filter_map(|batch| self.beginning(batch)).collect()
    }

    /// Adds a batch read from the beginning; returns the part of it that the end does not contain.
    pub(super) fn beginning(&mut self, mut batch: LogBatch) -> Option<LogBatch> {
        if batch.mark == Some(Mark::Truncated) {
            // Later lines are new, and the end contains them.
            self.starts.insert(batch.source.clone(), 0);
            self.old.remove(&batch.source);
            self.behind.remove(&batch.source);
        }
        batch.mark = None;
        let Some(start) = self.starts.get(&batch.source).copied() else {
            if !batch.bytes.is_empty() {
                self.waiting.push(batch);
            }
            return None;
        };
        let begin = batch.cursor.offset.saturating_sub(batch.bytes.len() as u64);
        if batch.cursor.offset >= start {
            self.behind.remove(&batch.source);
        }
        let keep = usize::try_from(start.saturating_sub(begin)).unwrap_or(usize::MAX).min(batch.bytes.len());
        batch.bytes.truncate(keep);
        batch.lines.retain(|line| line.end <= keep);
        (keep > 0).then_some(batch)
    }

    /// Returns whether earlier parts wait for their ends: reading on would only fill memory.
    pub(super) fn waits(&self) -> bool {
        self.waiting.iter().map(|batch| batch.bytes.len()).sum::<usize>() > 8 << 20
    }

    /// Returns whether every known source has been read from its beginning.
    pub(super) fn is_whole(&self) -> bool {
        !self.starts.is_empty() && self.behind.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun::core::log::Cursor;

    fn piece(text: &[u8], range: std::ops::Range<usize>) -> LogBatch {
        let mut cursor = Cursor::default();
        cursor.offset = range.end as u64;
        LogBatch::new(Arc::new(SourceId::new("r0")), text[range].to_vec(), cursor)
    }

    #[test]
    fn only_lines_behind_those_that_were_there_are_new() {
        let text = b"one\ntwo\nthree\n";
        let mut backfill = Backfill::default();
        backfill.end(&piece(text, 4..8));
        assert!(!backfill.has_caught_up());
        backfill.note_old(&piece(text, 4..8));
        assert!(!backfill.is_new(&piece(text, 0..8)));
        backfill.beginning(piece(text, 0..8));
        assert!(backfill.has_caught_up() && backfill.is_new(&piece(text, 8..14)));
        let mut again = piece(text, 0..4);
        again.mark = Some(Mark::Truncated);
        backfill.beginning(again);
        assert!(backfill.is_new(&piece(text, 0..4)), "the file begins anew");
    }

    #[test]
    fn each_byte_is_given_once_whichever_stream_is_first() {
        let text = b"one\ntwo\nthree\nfour\nfive\n";
        for (end_at, step) in [(14, 5), (0, 3), (8, 100), (14, 1)] {
            for end_first in [true, false] {
                let mut backfill = Backfill::default();
                let mut history = Vec::new();
                let end = piece(text, end_at..text.len());
                let begin = |backfill: &mut Backfill, history: &mut Vec<u8>| {
                    for at in (0..text.len()).step_by(step) {
                        let batch = piece(text, at..(at + step).min(text.len()));
                        history.extend(backfill.beginning(batch).into_iter().flat_map(|b| b.bytes));
                    }
                };
                if !end_first {
                    begin(&mut backfill, &mut history);
                }
                history.extend(backfill.end(&end).into_iter().flat_map(|b| b.bytes));
                if end_first {
                    begin(&mut backfill, &mut history);
                }
                assert_eq!(history, text[..end_at], "{end_at} {step} {end_first}");
                assert!(backfill.is_whole());
            }
        }
    }
}
