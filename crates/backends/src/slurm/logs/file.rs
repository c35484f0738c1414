//! One log file: its new bytes, split into lines, each assigned to the stream of the task that wrote it.

use std::collections::BTreeMap;
use std::sync::Arc;

use weftrun_core::log::{Cursor, LogBatch, Mark, SourceId};

use super::streams::{self, Header, Stream};
use crate::remote::piece::Piece;
use crate::slurm::ids::JobId;
use crate::slurm::task_files::Owner;

/// An unterminated line is passed on after this many bytes.
const LONGEST_LINE: usize = 64 << 10;

/// Largest number of streams of one file, over all its attempts.
const MOST_STREAMS: usize = 1 << 18;

/// The state of one file while it is read.
#[derive(Debug, Default)]
pub struct LogFile {
    name: String,
    job: String,
    inode: Option<u64>,
    /// Number of bytes read, including those of `carry`.
    offset: u64,
    /// The beginning of an unterminated line.
    carry: Vec<u8>,
    header: Option<Header>,
    attempt: u32,
    streams: BTreeMap<Stream, Arc<SourceId>>,
    /// Number of streams over all attempts: each is a source that readers keep.
    streams_made: usize,
    complete: bool,
    /// The exit code from the script's last line.
    code: Option<i32>,
    /// The exit codes of tasks, from srun's lines.
    task_codes: BTreeMap<u32, i32>,
    /// Whether the tasks write this file instead of the script.
    of_tasks: Option<OfTasks>,
}

/// A file that one or more tasks of the job write.
#[derive(Clone, Debug)]
pub struct OfTasks {
    /// The header from the job's log.
    pub header: Header,
    /// The task or node that the file belongs to.
    pub owner: Owner,
    /// The file name of the job's log, which contains the array task.
    pub log: String,
}

impl LogFile {
    /// Starts a file at the position where an earlier reader stopped.
    pub fn new(name: &str, job: &JobId, start: Option<&Cursor>) -> Self {
        Self {
            name: name.to_owned(),
            job: job.to_string(),
            offset: start.map_or(0, |cursor| cursor.offset),
            attempt: start.map_or(0, |cursor| cursor.attempt),
            ..Self::default()
        }
    }

    /// Creates the reader of a file that tasks of the job write.
    pub fn of_tasks(name: &str, job: &JobId, start: Option<&Cursor>, of: OfTasks) -> Self {
        Self { header: Some(of.header.of_files()), of_tasks: Some(of), ..Self::new(name, job, start) }
    }

    /// Returns the offset of the next poll.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the first line of the file is still needed, since reading started after it.
    pub fn wants_header(&self) -> bool {
        self.header.is_none() && self.offset > 0
    }

    /// Returns the header that the script wrote as its first line, once read.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns whether the job's own last line was read.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns new bytes as runs of lines of one stream, in the order of the file: a reader that stops after
    /// any run can resume exactly from its cursor.
    pub fn take(&mut self, piece: &Piece, resumed: bool) -> Vec<LogBatch> {
        let mut batches = Vec::new();
        let replaced = self.inode.is_some_and(|inode| inode != piece.inode);
        if piece.size < self.offset || replaced {
            batches.extend(self.rest());
            self.restart();
            batches.push(self.marked(Mark::Truncated));
            return batches;
        }
        self.inode = Some(piece.inode);
        if piece.offset != self.offset {
            return batches;
        }
        if resumed {
            batches.push(self.marked(Mark::Resumed { lost: Some(0), repeated: 0 }));
        }
        if self.header.is_none() {
            self.header = Header::parse(&piece.header);
        }
        self.offset += piece.bytes.len() as u64;
        let mut bytes = std::mem::take(&mut self.carry);
        let mut place = self.offset - piece.bytes.len() as u64 - bytes.len() as u64;
        bytes.extend_from_slice(&piece.bytes);
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        let whole = if bytes.len() - whole > LONGEST_LINE { bytes.len() } else { whole };
        self.carry = bytes.split_off(whole);
        self.runs(&bytes, &mut place, &mut batches);
        if let Some(last) = batches.last_mut() {
            last.written = piece.written();
        }
        batches
    }

    fn runs(&mut self, bytes: &[u8], place: &mut u64, batches: &mut Vec<LogBatch>) {
        let mut run: Option<(Stream, Vec<u8>)> = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(b"#weftrun ") && self.is_own(line) {
                // Earlier lines belong to the previous run of the job.
                if let Some((stream, text)) = run.take() {
                    batches.push(self.batch(&stream, text, *place));
                }
                self.own_line(line);
                *place += line.len() as u64;
                continue;
            }
            let (stream, text) = self.stream_of(line);
            if stream == Stream::Batch {
                self.note_ends(line);
            }
            match &mut run {
                Some((current, bytes)) if *current == stream => bytes.extend_from_slice(text),
                _ => {
                    if let Some((stream, text)) = run.replace((stream, text.to_vec())) {
                        batches.push(self.batch(&stream, text, *place));
                    }
                }
            }
            *place += line.len() as u64;
        }
        if let Some((stream, text)) = run {
            batches.push(self.batch(&stream, text, *place));
        }
    }

    fn is_own(&self, line: &[u8]) -> bool {
        self.header_in(line).is_some() || self.is_end(line)
    }

    fn is_end(&self, line: &[u8]) -> bool {
        self.of_tasks.is_none() && self.header.is_some() && line.starts_with(b"#weftrun end ")
    }

    /// Returns the header in a line, if the script wrote it: the first line of the file, or the header of a
    /// later attempt of the same job. Any other such line was printed by a program and is ordinary output.
    fn header_in(&self, line: &[u8]) -> Option<Header> {
        Header::parse(line)
            .filter(|_| self.of_tasks.is_none())
            .filter(|later| self.header.as_ref().is_none_or(|known| known.continues_as(later)))
    }

    /// Handles the lines that the script writes for weftrun: the beginning and the end of a run of the job.
    fn own_line(&mut self, line: &[u8]) -> bool {
        if let Some(header) = self.header_in(line) {
            self.attempt = header.attempt;
            self.header = Some(header);
            self.streams.clear();
            self.task_codes.clear();
            (self.complete, self.code) = (false, None);
            return true;
        }
        let ours = self.is_end(line);
        if ours {
            let text = String::from_utf8_lossy(line);
            let code = text.split_whitespace().find_map(|word| word.strip_prefix("code="));
            (self.complete, self.code) = (true, code.and_then(|code| code.parse().ok()));
        }
        ours
    }

    /// Returns the stream of a line. After [`MOST_STREAMS`] streams, the lines of further tasks keep their
    /// label and go to the script's own stream.
    fn stream_of<'a>(&self, line: &'a [u8]) -> (Stream, &'a [u8]) {
        if let Some(task) = self.of_tasks.as_ref().and_then(|of| of.owner.task) {
            return (Stream::Task(task), line);
        }
        let (stream, text) =
            self.header.as_ref().map_or((Stream::Batch, line), |header| header.stream_of(line));
        if self.streams_made >= MOST_STREAMS && stream != Stream::Batch && !self.streams.contains_key(&stream)
        {
            return (Stream::Batch, line);
        }
        (stream, text)
    }

    fn source(&mut self, stream: &Stream) -> Arc<SourceId> {
        if let Some(known) = self.streams.get(stream) {
            return Arc::clone(known);
        }
        let mut source = match &self.header {
            Some(header) => header.source(stream),
            None => SourceId::new("batch"),
        };
        if *stream == Stream::Batch
            && let Some(node) = self.of_tasks.as_ref().and_then(|of| of.owner.node.as_ref())
        {
            source.name.clone_from(node);
        } else if self.header.is_none() {
            source.name.clone_from(&self.name);
        }
        let log = self.of_tasks.as_ref().map_or(&self.name, |of| &of.log);
        if let Some((_, array)) = log.rsplit_once(&format!("-{}_", self.job)) {
            let task = array.split('-').next().unwrap_or_default();
            source.name = format!("{}_{task}/{}", self.job, source.name);
            // Each task of an array is a separate job with its own rank 0.
            source.rank = None;
        }
        source.uid = format!("{}#{}", self.name, source.name);
        source.attempt = self.attempt;
        let source = Arc::new(source);
        self.streams_made += 1;
        self.streams.insert(stream.clone(), Arc::clone(&source));
        source
    }

    fn batch(&mut self, stream: &Stream, bytes: Vec<u8>, end: u64) -> LogBatch {
        let source = self.source(stream);
        let cursor = self.cursor(&source, end);
        LogBatch::new(source, bytes, cursor)
    }

    fn marked(&mut self, mark: Mark) -> LogBatch {
        let source = self.source(&Stream::Batch);
        let cursor = self.cursor(&source, self.offset - self.carry.len() as u64);
        LogBatch::marked(source, mark, cursor)
    }

    fn cursor(&self, source: &SourceId, offset: u64) -> Cursor {
        let mut cursor = Cursor::at(source, offset);
        cursor.attempt = self.attempt;
        cursor
    }

    /// Returns the last line without a newline, once nothing more will come.
    pub fn rest(&mut self) -> Option<LogBatch> {
        let line = std::mem::take(&mut self.carry);
        if line.is_empty() || self.own_line(&line) {
            return None;
        }
        let (stream, text) = self.stream_of(&line);
        let text = text.to_vec();
        Some(self.batch(&stream, text, self.offset))
    }

    /// Returns a gap if the last line is missing of a script that was not stopped: the output before it could not be
    /// written either, because the disk was full or the node lost the file system. A signal may have ended the script
    /// as well.
    pub fn gap(&mut self, exit_code: Option<i32>) -> Option<LogBatch> {
        let reason = match exit_code {
            Some(0..128) => {
                "the job's last line is missing: its end could not be written (is the disk full?)"
            }
            _ => {
                "the job's last line is missing: a signal ended its script, or its end could not be written (is the disk full?)"
            }
        };
        (self.of_tasks.is_none() && self.header.is_some() && !self.complete)
            .then(|| self.marked(Mark::Gap { reason: reason.to_owned() }))
    }

    /// Keeps the exit codes that srun prints of tasks.
    fn note_ends(&mut self, line: &[u8]) {
        let tasks = self.header.as_ref().map_or(0, Header::tasks_of_one_role);
        self.task_codes.extend(streams::ends_in(line, tasks).into_iter().flatten());
    }

    /// Returns the end of every stream, with the exit code that the script reported: the tasks of an array
    /// end differently. Of a job that failed, a task has only the code that srun printed of it.
    pub fn ends(&self, exit_code: Option<i32>) -> Vec<LogBatch> {
        let whole = self.code.or(exit_code);
        let alone = self.header.as_ref().is_none_or(|header| header.tasks() == 1);
        let code = |stream: &Stream| match stream {
            Stream::Task(task) if !alone && whole != Some(0) => self.task_codes.get(task).copied(),
            _ => whole,
        };
        let end = |(stream, source): (&Stream, &Arc<SourceId>)| {
            let mark = Mark::Ended { exit_code: code(stream) };
            LogBatch::marked(Arc::clone(source), mark, self.cursor(source, self.offset))
        };
        self.streams.iter().map(end).collect()
    }

    fn restart(&mut self) {
        self.inode = None;
        self.offset = 0;
        self.carry.clear();
        self.header = self.of_tasks.as_ref().map(|of| of.header.of_files());
        self.task_codes.clear();
        (self.complete, self.code) = (false, None);
    }
}

#[cfg(test)]
mod tests;
