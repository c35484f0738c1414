//! What of a log was asked for: ranks, roles, an attempt, the last lines, and where to go on.

use std::collections::{BTreeMap, VecDeque};

use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};

use crate::slurm::stream::Feed;

/// Most lines kept of one source for `tail`.
const MOST_TAIL: u64 = 100_000;

/// Lets through what was asked for.
pub struct Selection {
    feed: Feed<LogBatch>,
    roles: Vec<String>,
    ranks: Vec<u32>,
    /// Offsets to go on from, by file name.
    starts: BTreeMap<String, Cursor>,
    held: Held,
}

/// What is kept back until the end of the file was reached once.
enum Held {
    /// Nothing: batches go through.
    Nothing,
    /// The last lines of each source.
    Tail { most: usize, lines: VecDeque<LogBatch>, counts: BTreeMap<String, usize> },
    /// Everything, until the number of the last attempt is known.
    Attempts(Vec<LogBatch>),
}

impl Selection {
    /// Makes the selection of the options.
    pub fn new(options: &LogOptions, feed: Feed<LogBatch>) -> Self {
        let mut starts: BTreeMap<String, Cursor> = BTreeMap::new();
        for cursor in &options.from {
            let file = cursor.uid.split_once('#').map_or(cursor.uid.as_str(), |(file, _)| file);
            // Batches are given in the file's order: everything before the farthest cursor was read.
            let farthest = starts.entry(file.to_owned()).or_insert_with(|| cursor.clone());
            if cursor.offset > farthest.offset {
                *farthest = cursor.clone();
            }
        }
        let held = match options.tail {
            _ if options.previous => Held::Attempts(Vec::new()),
            Some(most) => Held::Tail {
                most: usize::try_from(most.min(MOST_TAIL)).unwrap_or(usize::MAX),
                lines: VecDeque::new(),
                counts: BTreeMap::new(),
            },
            None => Held::Nothing,
        };
        Self { feed, roles: options.roles.clone(), ranks: options.ranks.clone(), starts, held }
    }

    /// Where a file goes on.
    pub fn start_of(&self, file: &str) -> Option<&Cursor> {
        self.starts.get(file)
    }

    /// All files that go on somewhere.
    pub fn starts(&self) -> impl Iterator<Item = (&String, u64)> {
        self.starts.iter().map(|(file, cursor)| (file, cursor.offset))
    }

    /// Whether nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.feed.is_closed()
    }

    fn wants(&self, source: &SourceId) -> bool {
        let role = self.roles.is_empty() || self.roles.contains(&source.role);
        role && (self.ranks.is_empty() || source.rank.is_none_or(|rank| self.ranks.contains(&rank)))
    }

    /// Takes a batch.
    pub async fn offer(&mut self, batch: LogBatch) {
        if !self.wants(&batch.source) {
            return;
        }
        match &mut self.held {
            Held::Nothing => super::send(&self.feed, batch).await,
            Held::Attempts(all) => all.push(batch),
            Held::Tail { most, lines, counts } => keep_lines(batch, *most, lines, counts),
        }
    }

    /// Sends on a batch whatever is held back.
    pub async fn pass(&self, batch: LogBatch) {
        if self.wants(&batch.source) {
            super::send(&self.feed, batch).await;
        }
    }

    /// The present end was reached: what was held back goes out, and what comes from now on goes through.
    pub async fn flush(&mut self) {
        let batches: Vec<LogBatch> = match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => Vec::new(),
            Held::Tail { lines, .. } => lines.into(),
            Held::Attempts(all) => {
                let last = all.iter().map(|batch| batch.source.attempt).max().unwrap_or(0);
                all.into_iter().filter(|batch| last.checked_sub(1) == Some(batch.source.attempt)).collect()
            }
        };
        for batch in batches {
            super::send(&self.feed, batch).await;
        }
    }
}

/// Keeps a batch's lines one by one, and drops the oldest of a source that has too many.
fn keep_lines(
    batch: LogBatch,
    most: usize,
    lines: &mut VecDeque<LogBatch>,
    counts: &mut BTreeMap<String, usize>,
) {
    if matches!(batch.mark, Some(Mark::Truncated)) {
        lines.push_back(batch);
        return;
    }
    for line in batch.bytes.split_inclusive(|byte| *byte == b'\n') {
        lines.push_back(LogBatch::new(batch.source.clone(), line.to_vec(), batch.cursor.clone()));
        let count = counts.entry(batch.source.uid.clone()).or_default();
        *count += 1;
        if *count > most {
            *count -= 1;
            let oldest = lines.iter().position(|kept| kept.source.uid == batch.source.uid);
            let _ = oldest.and_then(|at| lines.remove(at));
        }
    }
}
