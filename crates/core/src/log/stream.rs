//! Streams: the ranks (or other writers) inside one log source.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Level, SourceId};
use weftrun_nccl::Writer;
use weftrun_nccl::launcher::{Prefix, prefix};

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
    /// Whether its last line belongs to a traceback that continues.
    traceback: bool,
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
    Local(Vec<u8>, u32),
    Task(u32),
    Process(String, u32),
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

    /// Finds the stream of a line; returns it, and the length of the launcher's prefix before the text.
    pub(super) fn of(&mut self, number: usize, source: &Arc<SourceId>, line: &[u8]) -> (StreamId, u8) {
        let mut found = prefix(line);
        found.rank = named_rank(line, &found);
        let taken = u8::try_from(found.len).unwrap_or(0);
        let key = match source.rank {
            Some(_) => Key::Whole,
            None => key(&found),
        };
        let known = &mut self.sources[number];
        let key = if known.len() < STREAMS_PER_SOURCE || known.contains_key(&key) { key } else { Key::Whole };
        if let Some(id) = known.get(&key) {
            let stream = &mut self.all[*id as usize];
            if let (None, Some(process)) = (&stream.process, found.process) {
                stream.process = Some(process_of(process));
            }
            return (*id, taken);
        }
        let id = StreamId::try_from(self.all.len()).unwrap_or(StreamId::MAX);
        self.all.push(LogStream {
            source: source.clone(),
            name: name(&key),
            rank: source.rank.or(found.rank),
            is_past: false,
            process: found.process.map(process_of),
            lines: 0,
            warnings: 0,
            errors: 0,
            last: None,
            bytes: 0,
            number,
            traceback: false,
        });
        known.insert(key, id);
        (id, taken)
    }

    /// Returns the level of a line: those of a traceback are as severe as its first one.
    pub(super) fn in_traceback(&mut self, id: StreamId, text: &[u8], own: Level) -> Level {
        let stream = &mut self.all[id as usize];
        let text = behind_rank(text);
        if text.starts_with(b"Traceback (most recent call last)")
            || text.starts_with(b"Exception raised from ")
        {
            stream.traceback = true;
            return Level::Error;
        }
        let joins = || {
            text.starts_with(b"During handling of the above exception")
                || text.starts_with(b"The above exception was the direct cause")
        };
        if !stream.traceback {
            return if joins() { Level::Error } else { own };
        }
        let inner = text.first().is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        if inner || text.starts_with(b"frame #") {
            return Level::Error;
        }
        // The exception itself is the last line.
        stream.traceback = false;
        Level::Error
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

fn key(found: &Prefix<'_>) -> Key {
    match found {
        Prefix { rank: Some(rank), .. } => Key::Rank(*rank),
        Prefix { local: Some((role, local)), .. } => Key::Local(role.to_vec(), *local),
        Prefix { task: Some(task), .. } => Key::Task(*task),
        Prefix { process: Some(process), .. } => {
            let (host, pid) = process_of(*process);
            Key::Process(host, pid)
        }
        _ => Key::Whole,
    }
}

/// Most bytes before the rank that a line names: times, the place in the source.
const BEFORE_RANK: usize = 160;

/// Returns the rank that a line names as its writer: in a launcher's prefix, or as `[rank 3]` or `[Rank 3]` at the beginning
/// of its text, behind times, levels and other brackets. NCCL numbers the ranks of a communicator, which are none of the job's.
pub fn rank_of_line(line: &[u8]) -> Option<u32> {
    named_rank(line, &prefix(line))
}

fn named_rank(line: &[u8], found: &Prefix<'_>) -> Option<u32> {
    if found.rank.is_some() || found.process.is_some() {
        return found.rank;
    }
    let text = line.get(found.len..)?;
    let near = text.get(..text.len().min(BEFORE_RANK))?;
    memchr::memchr_iter(b'[', near).find_map(|at| {
        let inside = near
            .get(at + 1..)
            .filter(|rest| rest.get(..5).is_some_and(|word| word.eq_ignore_ascii_case(b"rank ")))?;
        let digits = inside.get(5..)?;
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rank = std::str::from_utf8(digits.get(..count)?).ok()?.parse().ok()?;
        (digits.get(count) == Some(&b']') && is_head(&near[..at])).then_some(rank)
    })
}

/// Returns whether a text holds only what loggers write before a message: brackets, times, levels, a place followed by a colon.
fn is_head(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    let word = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    word.last().is_none_or(|last| b"]:|-".contains(last)) || !word.iter().any(u8::is_ascii_lowercase)
}

/// Returns a text behind the rank that PyTorch writes before each line of an exception (`[rank3]: `).
fn behind_rank(text: &[u8]) -> &[u8] {
    let behind = text.strip_prefix(b"[rank").and_then(|rest| {
        let end = memchr::memchr(b']', &rest[..rest.len().min(12)])?;
        rest[..end].iter().all(u8::is_ascii_digit).then_some(&rest[end + 1..])?.strip_prefix(b":")
    });
    behind.map_or(text, |rest| rest.strip_prefix(b" ").unwrap_or(rest))
}

fn process_of(writer: Writer<'_>) -> (String, u32) {
    (writer.host.to_owned(), u32::try_from(writer.pid).unwrap_or(u32::MAX))
}

fn name(key: &Key) -> String {
    let name = match key {
        Key::Whole => String::new(),
        Key::Rank(rank) => format!("rank{rank}"),
        Key::Local(role, local) => format!("{}{local}", String::from_utf8_lossy(role)),
        Key::Task(task) => format!("task {task}"),
        Key::Process(host, pid) => format!("{host}:{pid}"),
    };
    super::clean_text(&name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::rank_of_line;

    #[test]
    fn a_rank_in_brackets_at_the_beginning_of_a_text_is_its_writer() {
        for line in [
            "[rank 3] step 5 loss 0.3313 1280.0 samples/s",
            "[default1]:[rank 3] done",
            "[rank3]:[E1122 03:12:05.018 ProcessGroupNCCL.cpp:689] [Rank 7] Watchdog caught",
            "[E1122 03:12:05.018 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught",
            "2026-11-22 03:12:05,018 INFO [Rank 3] begins",
            "RuntimeError: [Rank 3]: Rank 0 failed to pass monitoredBarrier",
            "[1,3]<stdout>:hello",
        ] {
            assert_eq!(rank_of_line(line.as_bytes()), Some(3), "{line}");
        }
        for line in [
            "waits for [rank 3] to join",
            "h:1:1 [0] NCCL INFO [Rank 3] ncclCommInitRankConfig comm",
            "[rank x] step 5",
            "[rank 3 of 4] step 5",
            "[rank 99999999999] step 5",
            "[rank ",
            "",
        ] {
            assert_eq!(rank_of_line(line.as_bytes()), None, "{line}");
        }
    }
}
