//! Log batches, taken into the map as they come.

use std::ops::Range;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Event, TransportMap, Who};
use crate::log::{LogBatch, Mark, SourceId};

/// Lines written less than this apart are one moment.
const MOMENT: SignedDuration = SignedDuration::from_millis(20);

/// The parts of a batch that were written at one moment, each with its time. What has no time is one part.
fn moments(batch: &LogBatch) -> Vec<(Range<usize>, Option<Timestamp>)> {
    let mut parts: Vec<(Range<usize>, Option<Timestamp>)> = Vec::new();
    let mut begin = 0;
    for line in &batch.lines {
        let same = match (parts.last().map(|(_, time)| *time), line.time) {
            (Some(Some(before)), Some(now)) => now.duration_since(before).abs() < MOMENT,
            (Some(before), now) => before.is_some() == now.is_some(),
            (None, _) => false,
        };
        match parts.last_mut().filter(|_| same) {
            Some((range, _)) => range.end = line.end,
            None => parts.push((begin..line.end, line.time)),
        }
        begin = line.end;
    }
    // A line that has not ended goes with the one before it: its time comes with its end.
    match parts.last_mut() {
        Some((range, _)) => range.end = batch.bytes.len(),
        None => parts.push((0..batch.bytes.len(), None)),
    }
    parts
}

impl TransportMap {
    /// Takes a batch and gives what is new. A batch that marks the end of its source also takes its last line.
    pub fn observe(&mut self, batch: &LogBatch) -> Vec<Event> {
        let mut all = Vec::new();
        self.take(batch, [(0..batch.bytes.len(), None)], |_, _, mut events| all.append(&mut events));
        all
    }

    /// The same, told moment by moment: when its lines were written, where the cluster says, and what they brought.
    pub fn observe_timed(
        &mut self,
        batch: &LogBatch,
        told: impl FnMut(&Self, Option<Timestamp>, Vec<Event>),
    ) {
        self.take(batch, moments(batch), told);
    }

    fn take(
        &mut self,
        batch: &LogBatch,
        parts: impl IntoIterator<Item = (Range<usize>, Option<Timestamp>)>,
        mut told: impl FnMut(&Self, Option<Timestamp>, Vec<Event>),
    ) {
        let source = self.source(&batch.source);
        let mut events = Vec::new();
        if matches!(batch.mark, Some(Mark::Truncated | Mark::Gap { .. })) {
            self.finish_into(source, &mut events);
        }
        let mut last = None;
        for (range, time) in parts {
            self.feed_into(source, batch.bytes.get(range).unwrap_or_default(), &mut events);
            last = time;
            told(self, time, std::mem::take(&mut events));
        }
        if matches!(batch.mark, Some(Mark::Ended { .. })) {
            self.finish_into(source, &mut events);
        }
        if !events.is_empty() {
            told(self, last, events);
        }
    }

    /// Whether a source prints steps of a training.
    pub fn steps(&self, source: &Arc<SourceId>) -> bool {
        self.source_index.get(source).is_some_and(|at| self.sources[*at as usize].throughput.steps())
    }

    /// The processes that were found behind the first so many, in the order they were found.
    pub fn newcomers(&self, known: usize) -> impl Iterator<Item = Who> {
        (known..self.processes.len()).map(|at| self.who(u32::try_from(at).unwrap_or(u32::MAX)))
    }

    /// Takes bytes of a named source, such as a file.
    pub fn read(&mut self, source: &Arc<SourceId>, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        let source = self.source(source);
        self.feed_into(source, bytes, &mut events);
        events
    }
}
