//! Streams: the ranks (or other writers) inside one log source.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Level, SourceId};
use weftrun_nccl::failure::TracebackLines;
use weftrun_nccl::launcher::{Prefix, prefix};
use weftrun_nccl::{Writer, writer};

/// Number of a stream in its store.
pub type StreamId = u32;

/// Most streams of one source that are distinguished; the rest share the last. A hostile log names endless
/// ranks.
const STREAMS_PER_SOURCE: usize = 1024;

/// One writer of lines: a rank of a source, or the source itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogStream {
    /// The source it is part of.
    pub source: Arc<SourceId>,
    /// Its own name inside the source (`default3`, `task 7`, `pid 5272`); empty for the source itself.
    pub name: String,
    /// Its global rank, once known.
    pub rank: Option<u32>,
    /// Whether a later attempt of its writer is known.
    pub is_past: bool,
    /// Host and process id, once NCCL has printed them.
    pub process: Option<(String, u32)>,
    /// Lines it wrote.
    pub lines: u64,
    /// Warnings among them.
    pub warnings: u64,
    /// Errors among them.
    pub errors: u64,
    /// Time of its last line, where lines carry times or were seen to arrive.
    pub last: Option<Timestamp>,
    /// Bytes of it that are in memory.
    pub(super) bytes: usize,
    /// Number of its source in the store.
    pub(super) number: usize,
    traceback: TracebackLines,
}

impl LogStream {
    /// Returns the label before its lines: `r12`, or the source's name.
    pub fn label(&self) -> String {
        match (self.rank, self.name.is_empty()) {
            (Some(rank), _) => format!("r{rank}"),
            (None, true) => super::clean_text(&self.source.name).into_owned(),
            (None, false) => format!("{}/{}", super::clean_text(&self.source.name), self.name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Whole,
    Rank(u32),
    /// What names the node, the role and the rank on the node.
    Local(String, Vec<u8>, u32),
    Task(u32),
    Node(String),
    Process((String, u32)),
}

/// The streams of a store.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) all: Vec<LogStream>,
    sources: Vec<HashMap<Key, StreamId>>,
}

impl Streams {
    /// Adds a source; returns its number.
    pub(super) fn source(&mut self) -> usize {
        self.sources.push(HashMap::new());
        self.sources.len() - 1
    }

    /// Finds the stream of a line; returns it, and what stands before the message.
    pub(super) fn of<'a>(
        &mut self,
        number: usize,
        source: &Arc<SourceId>,
        line: &'a [u8],
    ) -> (StreamId, Prefix<'a>) {
        let found = prefix(line);
        let rank = found.rank_of_writer(line);
        let process = || writer(&line[found.body..]).map(process_of);
        let key = match source.rank {
            Some(_) => Key::Whole,
            None => key(&found, rank).or_else(|| process().map(Key::Process)).unwrap_or(Key::Whole),
        };
        let known = &mut self.sources[number];
        let key = if known.len() < STREAMS_PER_SOURCE || known.contains_key(&key) { key } else { Key::Whole };
        if let Some(id) = known.get(&key) {
            let stream = &mut self.all[*id as usize];
            if stream.process.is_none() {
                stream.process = process();
            }
            return (*id, found);
        }
        let id = StreamId::try_from(self.all.len()).unwrap_or(StreamId::MAX);
        self.all.push(LogStream {
            source: source.clone(),
            name: name(&key),
            rank: source.rank.or(rank),
            is_past: false,
            process: process(),
            lines: 0,
            warnings: 0,
            errors: 0,
            last: None,
            bytes: 0,
            number,
            traceback: TracebackLines::default(),
        });
        known.insert(key, id);
        (id, found)
    }

    /// Returns the level of a line: those of a traceback are as severe as its first one.
    pub(super) fn in_traceback(&mut self, id: StreamId, text: &[u8], own: Level) -> Level {
        if self.all[id as usize].traceback.take(text) { Level::Error } else { own }
    }

    /// Counts a line.
    pub(super) fn count(&mut self, id: StreamId, level: Level, bytes: usize, time: Option<Timestamp>) {
        let stream = &mut self.all[id as usize];
        stream.lines += 1;
        stream.bytes += bytes;
        stream.warnings += u64::from(level == Level::Warn);
        stream.errors += u64::from(level == Level::Error);
        stream.last = time.or(stream.last);
    }
}

/// Returns the writer that a prefix names.
fn key(found: &Prefix<'_>, rank: Option<u32>) -> Option<Key> {
    let node = || found.place().filter(|_| found.body > 0);
    let place = || match (node(), found.task.or(found.tag)) {
        (Some(node), _) => node.to_owned(),
        (None, Some(task)) => format!("task {task}"),
        (None, None) => String::new(),
    };
    Some(match (rank, found.local, found.task, found.pid) {
        (Some(rank), ..) => Key::Rank(rank),
        (_, Some((role, local)), ..) => Key::Local(place(), role.to_vec(), local),
        (_, _, Some(task), _) => Key::Task(task),
        (.., Some(pid)) => {
            let host = found.place().unwrap_or_default();
            Key::Process((host.to_owned(), u32::try_from(pid).ok()?))
        }
        _ => Key::Node(node()?.to_owned()),
    })
}

fn process_of(writer: Writer<'_>) -> (String, u32) {
    (writer.host.to_owned(), u32::try_from(writer.pid).unwrap_or(u32::MAX))
}

fn name(key: &Key) -> String {
    let name = match key {
        Key::Whole => String::new(),
        Key::Rank(rank) => format!("rank{rank}"),
        Key::Local(place, role, local) if place.is_empty() => {
            format!("{}{local}", String::from_utf8_lossy(role))
        }
        Key::Local(place, role, local) => format!("{place}/{}{local}", String::from_utf8_lossy(role)),
        Key::Task(task) => format!("task {task}"),
        Key::Node(node) => node.clone(),
        Key::Process((host, pid)) if host.is_empty() => format!("pid {pid}"),
        Key::Process((host, pid)) => format!("{host}:{pid}"),
    };
    super::clean_text(&name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writers_of_one_source_are_told_apart() {
        let source = Arc::new(SourceId::new("all.log"));
        let mut streams = Streams::default();
        let number = streams.source();
        let mut label = |line: &str| {
            let (id, _) = streams.of(number, &source, line.as_bytes());
            streams.all[id as usize].label()
        };
        for (line, wanted) in [
            ("step 1", "all.log"),
            ("[rank3]: x", "r3"),
            ("2026-03-01 10:00:00,123 [rank3]: x", "r3"),
            ("[1,2]<stdout>:x", "r2"),
            ("[1,0]<stdout>:[rank5]: x", "r5"),
            ("[default1]:x", "all.log/default1"),
            ("0: [default1]:x", "all.log/task 0/default1"),
            ("1: [default1]:x", "all.log/task 1/default1"),
            ("[1,1]<stdout>:[default1]:x", "all.log/task 1/default1"),
            ("3: x", "all.log/task 3"),
            ("[pod/w-0/main] x", "all.log/w-0"),
            ("[pod/w-1/main] vm:7:7 [0] NCCL INFO x", "all.log/w-1"),
            ("worker-1  | x", "all.log/worker-1"),
            ("(train pid=954, ip=10.0.0.2) x", "all.log/10.0.0.2:954"),
            ("(train pid=954) x", "all.log/pid 954"),
            ("vm:7:7 [0] NCCL INFO x", "all.log/vm:7"),
            ("h1: Test NCCL failure common.cu:1", "all.log"),
        ] {
            assert_eq!(label(line), wanted, "{line}");
        }
    }
}
