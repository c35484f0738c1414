//! The requested part of a log: ranks, roles, an attempt, the last lines, and where to resume.

use std::collections::{BTreeMap, HashMap, VecDeque};

use weftrun_core::Result;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};

use super::streams::Header;
use crate::refusals::missing_rank;
use crate::stream::Feed;

/// Largest number of bytes held back, over all sources.
const MOST_HELD: usize = 256 << 20;

/// Passes on what was requested.
pub struct Selection {
    feed: Feed<LogBatch>,
    options: LogOptions,
    /// Offsets to resume from, by file name.
    starts: BTreeMap<String, Cursor>,
    held: Held,
    /// Ranks behind each node's label, if lines are labelled with nodes.
    ranks_per_node: Option<u32>,
}

/// What is held back until the end of the file was reached once.
enum Held {
    /// Nothing: batches pass.
    Nothing,
    /// The last lines of each source.
    Tail(Kept),
    /// The last two attempts, until it is known which the last one is.
    Attempts { kept: Kept, last: u32 },
}

impl Selection {
    /// Creates the selection for the options.
    pub fn new(options: &LogOptions, feed: Feed<LogBatch>) -> Self {
        let mut starts: BTreeMap<String, Cursor> = BTreeMap::new();
        for cursor in &options.from {
            let file = cursor.uid.rsplit_once('#').map_or(cursor.uid.as_str(), |(file, _)| file);
            // Batches are sent in the order of the file: everything before the farthest cursor was read.
            let farthest = starts.entry(file.to_owned()).or_insert_with(|| cursor.clone());
            if cursor.offset > farthest.offset {
                *farthest = cursor.clone();
            }
        }
        let held = match options.tail {
            _ if options.previous => Held::Attempts { kept: Kept::new(None), last: 0 },
            Some(most) => Held::Tail(Kept::new(Some(usize::try_from(most).unwrap_or(usize::MAX)))),
            None => Held::Nothing,
        };
        Self { feed, options: options.clone(), starts, held, ranks_per_node: None }
    }

    /// Returns where a file is resumed.
    pub fn start_of(&self, file: &str) -> Option<&Cursor> {
        self.starts.get(file)
    }

    /// Returns all files that are resumed, with their offsets.
    pub fn starts(&self) -> impl Iterator<Item = (&String, u64)> {
        self.starts.iter().map(|(file, cursor)| (file, cursor.offset))
    }

    /// Returns whether the reader is gone.
    pub fn is_closed(&self) -> bool {
        self.feed.is_closed()
    }

    /// Records the job's ranks from the header of its script.
    ///
    /// # Errors
    /// [`Usage`](weftrun_core::ErrorKind::Usage) if a requested rank does not exist in the job.
    pub fn knows(&mut self, header: Option<&Header>) -> Result<()> {
        let Some(header) = header else { return Ok(()) };
        self.ranks_per_node = header.ranks_per_node();
        missing_rank(&self.options, header.ranks().unwrap_or(u32::MAX))
    }

    fn wants(&self, source: &SourceId) -> bool {
        let ranks = match (source.rank, self.ranks_per_node, node_of(source)) {
            (Some(rank), ..) => Some(rank..rank.saturating_add(1)),
            // torchrun's own output on a node belongs to all its ranks.
            (None, Some(each), Some(node)) => {
                Some(node.saturating_mul(each)..node.saturating_add(1).saturating_mul(each))
            }
            (None, ..) => None,
        };
        self.options.wants(&source.role, ranks)
    }

    /// Passes on, holds back or drops a batch.
    pub async fn offer(&mut self, batch: LogBatch) {
        if !self.wants(&batch.source) {
            return;
        }
        match &mut self.held {
            Held::Nothing => super::send(&self.feed, batch).await,
            Held::Attempts { kept, last } => {
                if batch.source.attempt > *last {
                    *last = batch.source.attempt;
                    let wanted = last.saturating_sub(1);
                    kept.retain(|batch| batch.source.attempt >= wanted);
                }
                kept.keep(batch);
            }
            Held::Tail(kept) => kept.keep_lines(batch),
        }
    }

    /// Sends a batch regardless of what is held back.
    pub async fn pass(&self, batch: LogBatch) {
        if self.wants(&batch.source) {
            super::send(&self.feed, batch).await;
        }
    }

    /// Releases what was held back, since the present end was reached; later batches pass.
    pub async fn flush(&mut self) {
        let kept = match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => return,
            Held::Tail(kept) => kept,
            Held::Attempts { mut kept, last } => {
                kept.retain(|batch| last.checked_sub(1) == Some(batch.source.attempt));
                kept
            }
        };
        for batch in kept.into_batches() {
            super::send(&self.feed, batch).await;
        }
    }
}

/// Returns the node number of a node's stream.
fn node_of(source: &SourceId) -> Option<u32> {
    source.name.strip_prefix("node")?.parse().ok()
}

/// The batches held back, in the order of arrival.
struct Kept {
    /// Largest number of lines of one source; none for no limit.
    most: Option<usize>,
    next: u64,
    batches: BTreeMap<u64, LogBatch>,
    by_source: HashMap<String, VecDeque<u64>>,
    bytes: usize,
    /// Whether batches were dropped because the total was too large.
    cut: bool,
}

impl Kept {
    fn new(most: Option<usize>) -> Self {
        Self { most, next: 0, batches: BTreeMap::new(), by_source: HashMap::new(), bytes: 0, cut: false }
    }

    /// Keeps the lines of a batch one by one, and drops the oldest of a source that has too many.
    fn keep_lines(&mut self, batch: LogBatch) {
        if matches!(batch.mark, Some(Mark::Truncated)) {
            return self.keep(batch);
        }
        for line in batch.bytes.split_inclusive(|byte| *byte == b'\n') {
            self.keep(LogBatch::new(batch.source.clone(), line.to_vec(), batch.cursor.clone()));
        }
    }

    fn keep(&mut self, batch: LogBatch) {
        let number = self.next;
        self.next += 1;
        self.bytes += cost(&batch);
        if batch.mark.is_none()
            && let Some(most) = self.most
        {
            let own = self.by_source.entry(batch.source.uid.clone()).or_default();
            own.push_back(number);
            let oldest = if own.len() > most { own.pop_front() } else { None };
            if let Some(oldest) = oldest {
                self.drop_one(oldest);
            }
        }
        // A tail of 0 lines keeps none.
        if self.most != Some(0) || batch.mark.is_some() {
            self.batches.insert(number, batch);
        }
        while self.bytes > MOST_HELD
            && let Some(oldest) = self.batches.keys().next().copied()
        {
            self.cut = true;
            self.drop_one(oldest);
        }
    }

    fn drop_one(&mut self, number: u64) {
        if let Some(batch) = self.batches.remove(&number) {
            self.bytes = self.bytes.saturating_sub(cost(&batch));
        }
    }

    /// Drops batches that are no longer needed.
    fn retain(&mut self, wanted: impl Fn(&LogBatch) -> bool) {
        self.batches.retain(|_, batch| wanted(batch));
        self.bytes = self.batches.values().map(cost).sum();
    }

    fn into_batches(self) -> impl Iterator<Item = LogBatch> {
        let reason = format!("more than {} MiB would have had to be kept", MOST_HELD >> 20);
        let first = self.batches.values().next().filter(|_| self.cut);
        let mark = first
            .map(|first| LogBatch::marked(first.source.clone(), Mark::Gap { reason }, first.cursor.clone()));
        mark.into_iter().chain(self.batches.into_values())
    }
}

/// Returns the approximate memory size of a batch.
fn cost(batch: &LogBatch) -> usize {
    batch.bytes.len() + 256
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn batch(source: &str, bytes: &[u8]) -> LogBatch {
        let mut source = SourceId::new(source);
        source.uid = source.name.clone();
        LogBatch::new(Arc::new(source), bytes.to_vec(), Cursor::default())
    }

    fn text(kept: Kept) -> String {
        kept.into_batches().map(|batch| String::from_utf8(batch.bytes).unwrap()).collect()
    }

    #[test]
    fn a_tail_holds_the_last_lines_of_each_source_in_their_order() {
        let mut kept = Kept::new(Some(2));
        for (source, lines) in [("a", "1\n2\n"), ("b", "x\n"), ("a", "3\n"), ("b", "y\nz\n")] {
            kept.keep_lines(batch(source, lines.as_bytes()));
        }
        assert_eq!(text(kept), "2\n3\ny\nz\n");
        let mut none = Kept::new(Some(0));
        none.keep_lines(batch("a", b"1\n"));
        assert_eq!(text(none), "");
    }

    #[test]
    fn a_tail_of_any_number_of_lines_is_whole_or_marked() {
        let mut kept = Kept::new(Some(150_000));
        let lines: String = (0..200_000).map(|line| format!("{line}\n")).collect();
        kept.keep_lines(batch("a", lines.as_bytes()));
        let wanted: String = (50_000..200_000).map(|line| format!("{line}\n")).collect();
        assert!(text(kept) == wanted, "lines of the tail are missing");
    }

    #[test]
    fn what_is_held_is_bounded_and_a_cut_is_marked() {
        let mut kept = Kept::new(None);
        let large = vec![b'x'; 1 << 20];
        for _ in 0..(MOST_HELD >> 20) + 16 {
            kept.keep(batch("a", &large));
        }
        assert!(kept.bytes <= MOST_HELD, "{}", kept.bytes);
        let first = kept.into_batches().next().unwrap();
        assert!(matches!(first.mark, Some(Mark::Gap { .. })), "{first:?}");
    }

    #[test]
    fn a_tail_of_many_sources_takes_linear_time() {
        let time = |sources: usize| {
            let began = std::time::Instant::now();
            let mut kept = Kept::new(Some(4));
            for line in 0..sources * 6 {
                kept.keep_lines(batch(&format!("rank{}", line % sources), b"x\n"));
            }
            began.elapsed()
        };
        let (once, many) = (time(1000), time(8000));
        assert!(many < once * 30 + std::time::Duration::from_millis(300), "{once:?}, {many:?}");
    }
}
