//! The nodes' own files, read from where a cursor stands.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use weftrun_core::job::JobHandle;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

use crate::NAME;
use crate::folder::{Job, Spool, io};

/// Bytes of a batch at most.
const CHUNK: u64 = 256 << 10;
/// Time between two looks when nothing came.
const PAUSE: Duration = Duration::from_millis(50);

struct Source {
    id: Arc<SourceId>,
    offset: u64,
    /// Lines from the end to start at, until that place was found.
    tail: Option<u64>,
}

struct Reader {
    job: Job,
    follow: bool,
    sources: Vec<Source>,
    ready: VecDeque<LogBatch>,
    over: bool,
}

/// Reads a job's logs. The nodes write files without times and there is one attempt: what needs either is refused.
pub(crate) fn logs(
    spool: &Spool,
    handle: &JobHandle,
    options: LogOptions,
) -> BoxStream<'static, Result<LogBatch>> {
    let opened = match (options.since, options.previous) {
        (Some(_), _) => Err(Error::unsupported(NAME, "log_times")),
        (_, true) => Err(Error::unsupported(NAME, "previous_logs")),
        _ => spool.get(handle).and_then(|job| Reader::open(job, &options)),
    };
    match opened {
        Ok(reader) => stream::unfold(Some(reader), next).boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    }
}

async fn next(reader: Option<Reader>) -> Option<(Result<LogBatch>, Option<Reader>)> {
    let mut reader = reader?;
    loop {
        if let Some(batch) = reader.ready.pop_front() {
            return Some((Ok(batch), Some(reader)));
        }
        if reader.over {
            return None;
        }
        match reader.look() {
            Ok(()) if reader.ready.is_empty() && !reader.over => tokio::time::sleep(PAUSE).await,
            Ok(()) => {}
            Err(error) => return Some((Err(error), None)),
        }
    }
}

impl Reader {
    fn open(job: Job, options: &LogOptions) -> Result<Self> {
        let source = |node: u32| {
            let mut id = SourceId::new(format!("node{node}"));
            id.uid = format!("{}/node{node}", job.handle.uid().unwrap_or_default());
            id.role = "worker".to_owned();
            id.replica = node;
            let cursor = options.from.iter().find(|cursor| cursor.uid == id.uid);
            let tail = if cursor.is_none() { options.tail } else { None };
            Source { id: Arc::new(id), offset: cursor.map_or(0, |cursor| cursor.offset), tail }
        };
        let sources = (0..job.nodes()?).map(source).collect();
        Ok(Self { job, follow: options.follow, sources, ready: VecDeque::new(), over: false })
    }

    /// Reads what has grown. Whether the job has ended is asked first: then nothing is written behind what we read.
    fn look(&mut self) -> Result<()> {
        let ended = match self.job.summary() {
            Ok(summary) => summary.phase.is_terminal(),
            // Deleted under us: what was read is all there is.
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        for source in &mut self.sources {
            let path = self.job.path.join(format!("{}.log", source.id.name));
            match File::open(&path) {
                Ok(file) => self.ready.extend(source.read(file).map_err(io("read", &path))?),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io("open", &path)(error)),
            }
        }
        if self.ready.is_empty() && (ended || !self.follow) {
            self.over = true;
            if ended {
                let end = |source: &Source| {
                    LogBatch::marked(source.id.clone(), Mark::Ended { exit_code: None }, source.cursor())
                };
                self.ready.extend(self.sources.iter().map(end));
            }
        }
        Ok(())
    }
}

impl Source {
    fn read(&mut self, mut file: File) -> std::io::Result<Option<LogBatch>> {
        if let Some(lines) = self.tail.take() {
            self.offset = start_of_tail(&mut file, lines)?;
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        let read = file.take(CHUNK).read_to_end(&mut bytes)?;
        self.offset += read as u64;
        Ok((read > 0).then(|| LogBatch::new(self.id.clone(), bytes, self.cursor())))
    }

    fn cursor(&self) -> Cursor {
        let mut cursor = Cursor::default();
        cursor.uid.clone_from(&self.id.uid);
        cursor.offset = self.offset;
        cursor
    }
}

/// Where the last lines of a file start: found by going back, a chunk at a time.
fn start_of_tail(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    let (mut end, mut found) = (length, 0);
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.by_ref().take(end - start).read_to_end(&mut bytes)?;
        for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let behind = start + at as u64 + 1;
            if behind < length {
                found += 1;
                if found == lines {
                    return Ok(behind);
                }
            }
        }
        end = start;
    }
    Ok(if lines == 0 { length } else { 0 })
}
