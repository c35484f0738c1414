//! Which lines a store still holds, and where they are among the others.

use super::LogStore;
use super::entry::Entry;

/// By what lines are sorted: microseconds, and the number of the line.
pub type LogPosition = (i64, u64);

impl LogStore {
    /// Returns whether the line of a number is still held.
    pub fn holds(&self, seq: u64) -> bool {
        let segment = self.segments.get(self.segments.partition_point(|s| s.last < seq));
        let segment = segment.filter(|segment| segment.count > 0 && segment.first <= seq);
        // Only what eviction has kept has gaps in its numbers.
        segment.is_some_and(|segment| !segment.kept || self.get(seq).is_some())
    }

    /// Returns by what a line is placed among the others: its time, else that of the line before it of the same source.
    pub fn place(&self, entry: &Entry) -> LogPosition {
        /// Most lines that are looked at for one with a time.
        const BEFORE: usize = 256;
        let untimed = entry.order.is_none() && self.is_ordered();
        let source = |entry: &Entry| self.streams().get(entry.stream as usize).map(|stream| stream.number);
        let before = || {
            let mut earlier =
                self.before(entry.seq).take(BEFORE).filter(|other| source(other) == source(entry));
            earlier.find_map(|other| other.order)
        };
        (entry.order.or_else(|| if untimed { before() } else { None }).unwrap_or(i64::MIN), entry.seq)
    }
}
