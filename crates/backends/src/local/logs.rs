//! Reads the processes' own files, starting at a cursor.
//!
//! Files are polled, not watched: a poll reads the new bytes, at most [`MOST_A_LOOK`], so memory is bounded
//! regardless of how fast a process writes. No file stays open between two polls, so that 512 ranks need no
//! 512 descriptors.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use async_trait::async_trait;
use weftrun_core::job::JobHandle;
use weftrun_core::log::{LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::{ErrorKind, Result};

use super::document::{Process, ProcessList};
use super::record::Record;
use super::store::{Job, Store};
use super::{NAME, error};
use crate::remote::follow::{self, JobFiles, LogFile, Poll};
use crate::remote::piece::Piece;
use crate::stream::Feed;
use crate::{clock, refusals};

/// Largest number of bytes of a batch.
const CHUNK: usize = 256 << 10;
/// Largest number of bytes of a poll.
const MOST_A_LOOK: usize = 4 << 20;
/// Time between two polls when nothing came.
const PAUSE: Duration = Duration::from_millis(40);
/// The same for a job that has been quiet for long: it costs a fraction of a percent of a core.
const LONG_PAUSE: Duration = Duration::from_millis(400);
/// How many times longer a job must have been quiet than the pause that follows.
const QUIET: u32 = 8;

/// Feeds the logs of a job.
pub(super) async fn logs(
    store: Store,
    handle: JobHandle,
    options: LogOptions,
    feed: Feed<LogBatch>,
) -> Result<()> {
    refusals::log_times(&options, NAME)?;
    let (reader, attempt) = error::blocking(move || Reader::open(&store, &handle, options)).await?;
    follow::follow(reader, attempt, feed).await
}

/// The log file of a process in one attempt.
struct Source {
    file: LogFile,
    index: usize,
    /// The number of last lines to start with; applied once, when the file is first seen.
    tail: Option<u64>,
}

struct Reader {
    job: Job,
    list: ProcessList,
    options: LogOptions,
    attempt: u32,
    sources: Vec<Source>,
    /// Sources that had more data than a poll reads are continued first, so that a fast one does not starve
    /// others.
    turn: VecDeque<usize>,
    /// The supervisor's record at the last poll, if it is of this attempt.
    record: Option<Record>,
}

#[async_trait]
impl JobFiles for Reader {
    fn options(&mut self) -> &mut LogOptions {
        &mut self.options
    }

    fn enter(&mut self, attempt: u32) {
        self.attempt = attempt;
        let ranks = self.list.ranks();
        let wanted = |(index, process): &(usize, &Process)| {
            self.options.wants(&process.role, ranks.get(*index).cloned().flatten())
        };
        let source = |(index, process): (usize, &Process)| {
            let id = source_id(&self.job.submission, process, attempt);
            let mark =
                self.options.from.iter().find(|cursor| cursor.uid == id.uid && cursor.attempt == attempt);
            let tail = if mark.is_none() { self.options.tail } else { None };
            Source { file: LogFile::new(id, mark.map_or(0, |cursor| cursor.offset)), index, tail }
        };
        let sources: Vec<_> = self.list.processes.iter().enumerate().filter(wanted).map(source).collect();
        self.turn = (0..sources.len()).collect();
        self.sources = sources;
    }

    async fn poll(mut self) -> Result<(Self, Poll)> {
        error::blocking(move || {
            let poll = self.look()?;
            Ok((self, poll))
        })
        .await
    }

    fn ends(&mut self) -> Vec<LogBatch> {
        let mut batches = Vec::new();
        for Source { file, index, .. } in &self.sources {
            let record = self.record.as_ref().and_then(|record| record.processes.get(*index));
            let exit_code = record.and_then(|process| process.exit_code);
            let path = self.job.folder.log(self.attempt, &self.list.processes[*index].name);
            if exit_code.is_some() && !path.exists() {
                let reason = format!("the log file {} is gone", path.display());
                batches.push(file.marked(Mark::Gap { reason }));
            }
            batches.push(file.marked(Mark::Ended { exit_code }));
        }
        batches
    }

    fn pause(&self, quiet: Duration) -> Duration {
        (quiet / QUIET).clamp(PAUSE, LONG_PAUSE)
    }
}

impl Reader {
    /// Returns the reader, and the attempt to read first.
    fn open(store: &Store, handle: &JobHandle, options: LogOptions) -> Result<(Self, u32)> {
        let job = store.get(handle)?;
        let list = Store::list_of(&job)?;
        if let Some(world) = list.world() {
            refusals::missing_rank(&options, world)?;
        }
        let attempt = follow::first_attempt(&options, handle.name(), Store::snapshot(&job)?.attempt())?;
        let (sources, turn) = (Vec::new(), VecDeque::new());
        Ok((Self { job, list, options, attempt, sources, turn, record: None }, attempt))
    }

    /// Reads new bytes, up to the limit of one poll.
    fn look(&mut self) -> Result<Poll> {
        let now = match Store::snapshot(&self.job) {
            Ok(now) => now,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.record = None;
                return Ok(Poll::default());
            }
            Err(error) => return Err(error),
        };
        let attempt = Some((now.attempt(), now.phase.is_terminal()));
        self.record = now.record.filter(|record| record.attempt == self.attempt);
        let (mut batches, mut left) = (Vec::new(), MOST_A_LOOK);
        let turns = self.turn.len();
        for _ in 0..turns {
            if left == 0 {
                break;
            }
            let Some(at) = self.turn.pop_front() else { break };
            self.turn.push_back(at);
            self.read(at, &mut left, &mut batches)?;
        }
        Ok(Poll { more: !batches.is_empty(), batches, attempt, is_silent: false })
    }

    fn read(&mut self, at: usize, left: &mut usize, batches: &mut Vec<LogBatch>) -> Result<()> {
        let Source { file, index, tail } = &mut self.sources[at];
        let path = self.job.folder.log(self.attempt, &self.list.processes[*index].name);
        let meta = match std::fs::metadata(&path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(error::file("look at a log", &path, e)),
        };
        let size = meta.len();
        let piece = |offset, bytes| Piece {
            inode: meta.ino(),
            size,
            modified: meta.modified().map(clock::of).unwrap_or_default(),
            offset,
            bytes,
            ..Piece::default()
        };
        let read = (|| {
            if size <= file.offset {
                file.take(piece(file.offset, Vec::new()), false, batches);
                return Ok(());
            }
            let mut log = File::open(&path)?;
            if log.metadata()?.ino() != meta.ino() {
                // It was replaced since.
                return Ok(());
            }
            if let Some(lines) = tail.take() {
                file.offset = start_of_tail(&mut log, size, lines)?;
            }
            log.seek(SeekFrom::Start(file.offset))?;
            // Bytes written during the poll are left to the next one, so that one source cannot use up this
            // one.
            while *left > 0 && file.offset < size {
                let rest = usize::try_from(size - file.offset).unwrap_or(usize::MAX);
                let mut bytes = Vec::new();
                let got = log.by_ref().take(CHUNK.min(*left).min(rest) as u64).read_to_end(&mut bytes)?;
                if got == 0 {
                    break;
                }
                *left -= got;
                file.take(piece(file.offset, bytes), false, batches);
            }
            Ok(())
        })();
        read.map_err(|e| error::file("read a log", &path, e))
    }
}

fn source_id(submission: &str, process: &Process, attempt: u32) -> SourceId {
    let mut id = SourceId::new(&process.name);
    id.uid = format!("{submission}/{}", process.name);
    id.attempt = attempt;
    id.role.clone_from(&process.role);
    id.replica = process.replica;
    id.rank = process.rank;
    id
}

/// Returns where the last lines of a file start, found from its end.
fn start_of_tail(file: &mut File, length: u64, lines: u64) -> std::io::Result<u64> {
    let (mut end, mut found) = (length, 0);
    let mut block = vec![0; 64 << 10];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let size = usize::try_from(end - start).unwrap_or(block.len());
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block[..size])?;
        for at in memchr::memrchr_iter(b'\n', &block[..size]) {
            let behind = start + at as u64 + 1;
            // The newline that ends the last line starts no new one.
            if behind == length {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(behind);
            }
        }
        end = start;
    }
    Ok(if lines == 0 { length } else { 0 })
}
