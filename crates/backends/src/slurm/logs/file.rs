//! One log file: what came of it, cut into lines, each given to the stream of the task that wrote it.

use std::collections::BTreeMap;
use std::sync::Arc;

use weftrun_core::log::{Cursor, LogBatch, Mark, SourceId};

use super::streams::{Header, Stream};
use crate::slurm::ids::JobId;

/// A line that does not end is passed on after this many bytes.
const LONGEST_LINE: usize = 64 << 10;

/// Most streams of one file, over all its attempts.
const MOST_STREAMS: usize = 1 << 18;

/// What one look brought of one file.
#[derive(Debug, Default)]
pub struct Piece {
    /// The path.
    pub path: String,
    /// Inode: another file of the same name has another.
    pub inode: u64,
    /// Size of the file when looked at.
    pub size: u64,
    /// Offset of the first byte asked for.
    pub offset: u64,
    /// The file's first line, where it was asked for.
    pub header: Vec<u8>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Cuts the pieces out of an answer: `NONCE inode size offset count path`, header, `NONCE|`, bytes, `NONCE.`.
    pub fn all(answer: &[u8], nonce: &[u8]) -> Vec<Self> {
        let begin = [nonce, b" "].concat();
        let middle = [nonce, b"|"].concat();
        let end = [nonce, b"."].concat();
        let mut pieces = Vec::new();
        let mut rest = answer;
        while let Some(piece) = Self::next(&mut rest, &begin, &middle, &end) {
            pieces.push(piece);
        }
        pieces
    }

    fn next(rest: &mut &[u8], begin: &[u8], middle: &[u8], end: &[u8]) -> Option<Self> {
        let start = memchr::memmem::find(rest, begin)? + begin.len();
        let line_end = start + memchr::memchr(b'\n', rest.get(start..)?)?;
        let line = String::from_utf8_lossy(rest.get(start..line_end)?).into_owned();
        let body = rest.get(line_end + 1..)?;
        let header = memchr::memmem::find(body, middle)?;
        let bytes = body.get(header + middle.len()..)?;
        let stop = memchr::memmem::find(bytes, end)?;
        let mut words = line.splitn(5, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
        let (inode, size, offset, _count) = (number()?, number()?, number()?, number()?);
        let piece = Self {
            path: words.next()?.to_owned(),
            inode: inode.unsigned_abs(),
            size: size.unsigned_abs(),
            offset: offset.unsigned_abs(),
            header: body.get(..header)?.to_vec(),
            bytes: bytes.get(..stop)?.to_vec(),
        };
        *rest = bytes.get(stop + end.len()..)?;
        Some(piece)
    }
}

/// One file while it is read.
#[derive(Debug)]
pub struct LogFile {
    name: String,
    job: String,
    inode: Option<u64>,
    /// Bytes read, those of `carry` included.
    offset: u64,
    /// The beginning of a line whose end has not come.
    carry: Vec<u8>,
    header: Option<Header>,
    attempt: u32,
    streams: BTreeMap<Stream, Arc<SourceId>>,
    /// Streams made over all attempts: each is a source that readers keep.
    streams_made: usize,
    complete: bool,
    /// The exit code of the script's last line.
    code: Option<i32>,
}

impl LogFile {
    /// Starts a file at the place where an earlier reader stopped.
    pub fn new(name: &str, job: &JobId, start: Option<&Cursor>) -> Self {
        Self {
            name: name.to_owned(),
            job: job.to_string(),
            inode: None,
            offset: start.map_or(0, |cursor| cursor.offset),
            carry: Vec::new(),
            header: None,
            attempt: start.map_or(0, |cursor| cursor.attempt),
            streams: BTreeMap::new(),
            streams_made: 0,
            complete: false,
            code: None,
        }
    }

    /// Where the next look starts.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the file's first line is not known, since reading began behind it.
    pub fn wants_header(&self) -> bool {
        self.header.is_none() && self.offset > 0
    }

    /// What the script's first line says, once it was read.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Whether the job's own last line was read.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes what came and gives it in runs of lines of one stream, in the file's order: a reader that stops behind any of them
    /// can go on from its cursor exactly.
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
        batches
    }

    fn runs(&mut self, bytes: &[u8], place: &mut u64, batches: &mut Vec<LogBatch>) {
        let mut run: Option<(Stream, Vec<u8>)> = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(b"#weftrun ") && self.is_own(line) {
                // What stands before belongs to the life before.
                if let Some((stream, text)) = run.take() {
                    batches.push(self.batch(&stream, text, *place));
                }
                self.own_line(line);
                *place += line.len() as u64;
                continue;
            }
            let (stream, text) = self.stream_of(line);
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
        self.header_in(line).is_some() || (self.header.is_some() && line.starts_with(b"#weftrun end "))
    }

    /// The header in a line, if the script wrote it: the first of the file, or that of a later attempt of the same job.
    /// Any other is a line of a program like all others.
    fn header_in(&self, line: &[u8]) -> Option<Header> {
        Header::parse(line).filter(|later| self.header.as_ref().is_none_or(|known| known.continues_as(later)))
    }

    /// The lines the script writes for us: the beginning and the end of a life of the job.
    fn own_line(&mut self, line: &[u8]) -> bool {
        if let Some(header) = self.header_in(line) {
            self.attempt = header.attempt;
            self.header = Some(header);
            self.streams.clear();
            (self.complete, self.code) = (false, None);
            return true;
        }
        let ours = self.header.is_some() && line.starts_with(b"#weftrun end ");
        if ours {
            let text = String::from_utf8_lossy(line);
            let code = text.split_whitespace().find_map(|word| word.strip_prefix("code="));
            (self.complete, self.code) = (true, code.and_then(|code| code.parse().ok()));
        }
        ours
    }

    /// The stream of a line. Behind [`MOST_STREAMS`] new tasks' lines stay whole, in the script's own stream.
    fn stream_of<'a>(&self, line: &'a [u8]) -> (Stream, &'a [u8]) {
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
        let of_task = ["rank", "node", "task"].into_iter().find_map(|word| {
            let (_, task) = self.name.rsplit_once(&format!(".{word}"))?;
            Some((word, task.strip_suffix(".log")?.parse::<u32>().ok()?))
        });
        if let Some((word, task)) = of_task {
            // A file of its own for each task.
            source.name = format!("{word}{task}");
            source.replica = task;
            source.rank = (word == "rank").then_some(task);
        } else if self.header.is_none() {
            source.name.clone_from(&self.name);
        }
        if let Some((_, array)) = self.name.rsplit_once(&format!("-{}_", self.job)) {
            let task = array.split('-').next().unwrap_or_default();
            source.name = format!("{}_{task}/{}", self.job, source.name);
            // Each task of an array is a job of its own, with a rank 0 of its own.
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
        let mut cursor = Cursor::default();
        cursor.uid.clone_from(&source.uid);
        cursor.attempt = self.attempt;
        cursor.offset = offset;
        cursor
    }

    /// A last line without its newline, once nothing more will come.
    pub fn rest(&mut self) -> Option<LogBatch> {
        let line = std::mem::take(&mut self.carry);
        if line.is_empty() || self.own_line(&line) {
            return None;
        }
        let (stream, text) = self.stream_of(&line);
        let text = text.to_vec();
        Some(self.batch(&stream, text, self.offset))
    }

    /// Where the job's script ended by itself and its last line is not there, what it wrote before could not be written
    /// either: the disk was full, or the node lost the file system.
    pub fn gap(&mut self) -> Option<LogBatch> {
        let reason = "the job's last line is missing: its end could not be written (is the disk full?)";
        (self.header.is_some() && !self.complete)
            .then(|| self.marked(Mark::Gap { reason: reason.to_owned() }))
    }

    /// The end of every stream, with the code the script itself told: the tasks of an array end differently.
    pub fn ends(&self, exit_code: Option<i32>) -> Vec<LogBatch> {
        let exit_code = self.code.or(exit_code);
        let end = |source: &Arc<SourceId>| {
            LogBatch::marked(Arc::clone(source), Mark::Ended { exit_code }, self.cursor(source, self.offset))
        };
        self.streams.values().map(end).collect()
    }

    fn restart(&mut self) {
        self.inode = None;
        self.offset = 0;
        self.carry.clear();
        self.header = None;
        (self.complete, self.code) = (false, None);
    }
}

#[cfg(test)]
mod tests;
