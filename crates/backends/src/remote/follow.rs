//! Follows the files that the processes of a job write, on this machine or on other hosts. No byte is lost or repeated by a
//! lost connection, since every poll names its offsets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

use super::piece::Piece;
use crate::stream::{Feed, put};

/// A file while it is read.
#[derive(Debug)]
pub struct LogFile {
    /// The source that it is.
    pub source: Arc<SourceId>,
    /// The first byte that was not read.
    pub offset: u64,
    inode: Option<u64>,
}

impl LogFile {
    /// Starts a file at an offset.
    pub fn new(source: SourceId, offset: u64) -> Self {
        Self { source: Arc::new(source), offset, inode: None }
    }

    /// Adds the bytes of a piece to the batches; `resumed` if the polls before failed.
    pub fn take(&mut self, piece: Piece, resumed: bool, batches: &mut Vec<LogBatch>) {
        if piece.size < self.offset || self.inode.is_some_and(|inode| inode != piece.inode) {
            (self.offset, self.inode) = (0, None);
            return batches.push(self.marked(Mark::Truncated));
        }
        if piece.offset != self.offset {
            return;
        }
        self.inode = Some(piece.inode);
        if resumed {
            batches.push(self.marked(Mark::Resumed { lost: Some(0), repeated: 0 }));
        }
        if !piece.bytes.is_empty() {
            let written = piece.written();
            self.offset += piece.bytes.len() as u64;
            let mut batch =
                LogBatch::new(self.source.clone(), piece.bytes, Cursor::at(&self.source, self.offset));
            batch.written = written;
            batches.push(batch);
        }
    }

    /// Returns a mark at the present offset.
    pub fn marked(&self, mark: Mark) -> LogBatch {
        LogBatch::marked(self.source.clone(), mark, Cursor::at(&self.source, self.offset))
    }
}

/// A job whose processes write files, while one attempt of it is read.
#[async_trait]
pub trait JobFiles: Send + Sized {
    /// The requested part of the logs.
    fn options(&mut self) -> &mut LogOptions;

    /// Forgets the files, and begins those of an attempt.
    fn enter(&mut self, attempt: u32);

    /// Reads the state of the job, then new bytes of its files: what was written before the end is read before the end is
    /// reported.
    async fn poll(self) -> Result<(Self, Poll)>;

    /// Returns the end of every file, and the logs that are missing.
    fn ends(&mut self) -> Vec<LogBatch>;

    /// Returns the pause after so long without news.
    fn pause(&self, quiet: Duration) -> Duration;
}

/// What one poll returned.
#[derive(Debug, Default)]
pub struct Poll {
    /// What is new.
    pub batches: Vec<LogBatch>,
    /// Whether more can be read at once.
    pub more: bool,
    /// The job's present attempt, and whether the job has ended; none if no such job was found.
    pub attempt: Option<(u32, bool)>,
    /// Whether the job may still be there: nothing that could know it answered.
    pub is_silent: bool,
}

/// Returns the attempt to read first, of a job whose present one is `now`.
///
/// # Errors
/// [`ErrorKind::NotFound`] if the attempt before is requested, and there is none.
pub fn first_attempt(options: &LogOptions, name: &str, now: u32) -> Result<u32> {
    match options.from.iter().map(|cursor| cursor.attempt).min() {
        Some(attempt) => Ok(attempt.min(now)),
        None if options.previous => now.checked_sub(1).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("`{name}` has no earlier attempt"))
                .hint("leave `--previous` out")
        }),
        None => Ok(now),
    }
}

/// Feeds the logs of a job, from an attempt on.
///
/// # Errors
/// Those of [`JobFiles::poll`].
pub async fn follow<J: JobFiles>(mut job: J, mut attempt: u32, feed: Feed<LogBatch>) -> Result<()> {
    let follow = job.options().follow;
    let resumes = follow || !job.options().from.is_empty();
    let mut last = Instant::now();
    job.enter(attempt);
    loop {
        let poll;
        (job, poll) = job.poll().await?;
        if !poll.batches.is_empty() {
            last = Instant::now();
        }
        for batch in poll.batches {
            put(&feed, batch).await;
        }
        if feed.is_closed() {
            return Ok(());
        }
        let newest = match poll.attempt {
            _ if poll.more => continue,
            Some((newest, is_over)) if is_over || newest > attempt => newest,
            None if !(poll.is_silent && follow) => attempt,
            _ if !follow => return Ok(()),
            _ => {
                tokio::time::sleep(job.pause(last.elapsed())).await;
                continue;
            }
        };
        for batch in job.ends() {
            put(&feed, batch).await;
        }
        if newest <= attempt || !resumes {
            return Ok(());
        }
        attempt += 1;
        // The last lines were asked for of the attempt that ran then.
        job.options().tail = None;
        job.enter(attempt);
    }
}
