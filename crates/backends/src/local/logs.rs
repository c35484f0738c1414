//! Reads the processes' own files, starting at a cursor.
//!
//! Files are polled, not watched: a poll reads the new bytes, at most [`MOST_A_LOOK`], so memory is bounded
//! regardless of how fast a process writes. No file stays open between two polls, so that 512 ranks need no
//! 512 descriptors.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, BoxStream, StreamExt as _};
use weftrun_core::job::JobHandle;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

use super::document::{Process, ProcessList};
use super::store::{Job, Store};
use super::{NAME, error};
use crate::clock;
use crate::stream::{fed, put};

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

/// Reads the logs of a job.
pub(super) fn logs(
    store: Store,
    handle: JobHandle,
    options: LogOptions,
) -> BoxStream<'static, Result<LogBatch>> {
    if options.since.is_some() {
        let error = Error::unsupported(NAME, "log_times")
            .hint("processes write their own files here, without times: use `tail`");
        return stream::iter([Err(error)]).boxed();
    }
    fed(move |feed| async move {
        let mut reader = error::blocking(move || Reader::open(&store, &handle, options)).await?;
        loop {
            let (looked, batches) = error::blocking(move || {
                let batches = reader.look()?;
                Ok((reader, batches))
            })
            .await?;
            reader = looked;
            let is_quiet = batches.is_empty();
            for batch in batches {
                put(&feed, batch).await;
            }
            if reader.over {
                return Ok(());
            }
            if is_quiet {
                let pause = (reader.last.elapsed() / QUIET).clamp(PAUSE, LONG_PAUSE);
                tokio::time::sleep(pause).await;
            } else {
                reader.last = Instant::now();
            }
        }
    })
}

/// The log file of a process in one attempt.
struct Source {
    id: Arc<SourceId>,
    index: usize,
    offset: u64,
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
    /// When something came last.
    last: Instant,
    over: bool,
}

impl Reader {
    fn open(store: &Store, handle: &JobHandle, options: LogOptions) -> Result<Self> {
        let job = store.get(handle)?;
        let list = Store::list_of(&job)?;
        if let Some(world) = list.world()
            && let Some(rank) = options.ranks.iter().find(|rank| **rank >= world)
        {
            return Err(Error::new(ErrorKind::Usage, format!("the job has no rank {rank}"))
                .with("ranks", format!("0 to {}", world.saturating_sub(1))));
        }
        let now = Store::snapshot(&job)?.attempt();
        let start = match options.from.iter().map(|cursor| cursor.attempt).min() {
            Some(attempt) => attempt.min(now),
            None if options.previous => match now.checked_sub(1) {
                Some(before) => before,
                None => {
                    let text = format!("`{}` has no earlier attempt", handle.name());
                    return Err(Error::new(ErrorKind::NotFound, text));
                }
            },
            None => now,
        };
        let mut reader = Self {
            job,
            list,
            options,
            attempt: start,
            sources: Vec::new(),
            turn: VecDeque::new(),
            last: Instant::now(),
            over: false,
        };
        reader.enter(start);
        Ok(reader)
    }

    /// Opens the sources of an attempt, each at its cursor.
    fn enter(&mut self, attempt: u32) {
        self.attempt = attempt;
        let ranks = self.list.ranks();
        let wanted = |(index, process): &(usize, &Process)| {
            self.options.wants(process, ranks.get(*index).and_then(Option::as_ref))
        };
        let source = |(index, process): (usize, &Process)| {
            let id = source_id(&self.job.submission, process, attempt);
            let mark =
                self.options.from.iter().find(|cursor| cursor.uid == id.uid && cursor.attempt == attempt);
            let offset = mark.map_or(0, |cursor| cursor.offset);
            let tail = if mark.is_none() { self.options.tail } else { None };
            Source { id: Arc::new(id), index, offset, tail }
        };
        let sources: Vec<_> = self.list.processes.iter().enumerate().filter(wanted).map(source).collect();
        self.turn = (0..sources.len()).collect();
        self.sources = sources;
    }

    /// Reads new bytes, up to the limit of one poll. The state is read first: what was written before the end
    /// of the job is then either read in this poll, or the poll reports that more is left.
    fn look(&mut self) -> Result<Vec<LogBatch>> {
        let now = match Store::snapshot(&self.job) {
            Ok(now) => now,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.over = true;
                return Ok(self.sources.iter().map(|source| ended(source, None)).collect());
            }
            Err(error) => return Err(error),
        };
        let complete = now.phase.is_terminal() || now.attempt() > self.attempt;
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
        if left == 0 || !batches.is_empty() {
            return Ok(batches);
        }
        if complete {
            let processes = now.record.as_ref().filter(|record| record.attempt == self.attempt);
            let code = |source: &Source| processes?.processes.get(source.index)?.exit_code;
            for source in &self.sources {
                let path = self.job.folder.log(self.attempt, &self.list.processes[source.index].name);
                if code(source).is_some() && !path.exists() {
                    let reason = format!("the log file {} is gone", path.display());
                    batches.push(LogBatch::marked(source.id.clone(), Mark::Gap { reason }, source.cursor()));
                }
                batches.push(ended(source, code(source)));
            }
            if now.attempt() > self.attempt && (self.options.follow || !self.options.from.is_empty()) {
                // The last lines were asked for of the attempt that ran then.
                self.options.tail = None;
                self.enter(self.attempt + 1);
            } else {
                self.over = true;
            }
        } else if !self.options.follow {
            self.over = true;
        }
        Ok(batches)
    }

    fn read(&mut self, at: usize, left: &mut usize, batches: &mut Vec<LogBatch>) -> Result<()> {
        let source = &mut self.sources[at];
        let path = self.job.folder.log(self.attempt, &self.list.processes[source.index].name);
        let (length, written) = match std::fs::metadata(&path) {
            Ok(meta) => (meta.len(), meta.modified().ok().map(clock::of)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(error::file("look at a log", &path, e)),
        };
        if length < source.offset {
            source.offset = 0;
            batches.push(LogBatch::marked(source.id.clone(), Mark::Truncated, source.cursor()));
        }
        if length == source.offset {
            return Ok(());
        }
        let read = (|| {
            let mut file = File::open(&path)?;
            if let Some(lines) = source.tail.take() {
                source.offset = start_of_tail(&mut file, length, lines)?;
            }
            file.seek(SeekFrom::Start(source.offset))?;
            // Bytes written during the poll are left to the next one, so that one source cannot use up this
            // one.
            let mut rest = usize::try_from(length - source.offset).unwrap_or(usize::MAX);
            while *left > 0 && rest > 0 {
                let mut bytes = Vec::new();
                let most = CHUNK.min(*left).min(rest);
                let got = file.by_ref().take(most as u64).read_to_end(&mut bytes)?;
                if got == 0 {
                    break;
                }
                (*left, rest) = (*left - got, rest - got);
                source.offset += got as u64;
                let mut batch = LogBatch::new(source.id.clone(), bytes, source.cursor());
                batch.written = written.filter(|_| source.offset == length);
                batches.push(batch);
            }
            Ok(())
        })();
        read.map_err(|e| error::file("read a log", &path, e))
    }
}

impl Source {
    fn cursor(&self) -> Cursor {
        Cursor::at(&self.id, self.offset)
    }
}

fn ended(source: &Source, exit_code: Option<i32>) -> LogBatch {
    LogBatch::marked(source.id.clone(), Mark::Ended { exit_code }, source.cursor())
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

/// Selects the sources that a reader requested.
trait Wants {
    fn wants(&self, process: &Process, ranks: Option<&Range<u32>>) -> bool;
}

impl Wants for LogOptions {
    /// A source of several ranks is selected if any of them is.
    fn wants(&self, process: &Process, ranks: Option<&Range<u32>>) -> bool {
        let role = self.roles.is_empty() || self.roles.contains(&process.role);
        let wanted = |ranks: &Range<u32>| self.ranks.iter().any(|rank| ranks.contains(rank));
        role && (self.ranks.is_empty() || ranks.is_none_or(wanted))
    }
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
