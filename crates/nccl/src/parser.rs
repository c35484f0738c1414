//! Turns the bytes of one log source into events. No I/O; chunk borders never matter.

use super::event::NcclEvent;
use super::launcher;
use super::lines::{Candidates, Cutter, Line, Needed, Piece, each_piece};
use super::message;
use super::record::{self, Level, Record, Writer};
use super::text::text;
use super::throughput::REACH;

/// One message and its place.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// Line in the source, from 1.
    pub line: u64,
    /// Who printed it, where the prefix shows it.
    pub writer: Option<Writer<'a>>,
    /// Device in the brackets, also where the rest of the prefix was stripped.
    pub device: Option<i32>,
    /// NCCL's level; none for a line without NCCL's prefix.
    pub level: Option<Level>,
    /// `file:line` before a warning.
    pub location: &'a [u8],
    /// The message, or the whole line where there is no prefix.
    pub text: &'a [u8],
    /// Global rank in a launcher's prefix of the line.
    pub launcher_rank: Option<u32>,
    /// Name or address of the node in a launcher's prefix of the line.
    pub launcher_node: Option<&'a str>,
    /// The meaning of the message.
    pub event: NcclEvent<'a>,
}

/// A line that can only hold a throughput value. Most lines of a training log are such lines, so they are passed on apart
/// from entries, whose many fields they do not need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate<'a> {
    /// Line in the source, from 1.
    pub line: u64,
    /// The line, from at most [`REACH`] bytes before the first words of the value.
    pub text: &'a [u8],
    /// Where these words are in the text.
    pub at: usize,
    /// Global rank in a launcher's prefix of the line.
    pub launcher_rank: Option<u32>,
}

impl<'a> Rate<'a> {
    /// Reads a line that can hold nothing else that the map shows.
    #[inline]
    pub fn of(line: &Line<'a>) -> Option<Self> {
        let at = line.rate?;
        let bytes = line.bytes;
        let plain =
            line.plain || (bytes.first() != Some(&b'{') && memchr::memchr2(b'\r', 0x1b, bytes).is_none());
        plain.then(|| Self {
            line: line.number,
            text: &bytes[at.saturating_sub(REACH)..],
            at: at.min(REACH),
            launcher_rank: launcher::rank_of_line(bytes),
        })
    }
}

/// Reads one source.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    cutter: Cutter,
}

impl Parser {
    /// Makes a parser at the beginning of a source.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of lines so far.
    pub fn lines(&self) -> u64 {
        self.cutter.lines()
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.cutter.bytes()
    }

    /// Takes bytes and passes on every message that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Entry<'_>)) {
        self.cutter.feed(bytes, &Candidates::of(bytes), |line| of_line(&line, &mut sink));
    }

    /// Passes on the content of the last line if no newline ended it. Call it when the source has ended.
    pub fn finish(&mut self, mut sink: impl FnMut(Entry<'_>)) {
        self.cutter.finish(|line| of_line(&line, &mut sink));
    }
}

fn of_line(line: &Line<'_>, sink: &mut impl FnMut(Entry<'_>)) -> Needed {
    if let Some(Rate { line, text, at, launcher_rank }) = Rate::of(line) {
        let event = NcclEvent::Rate { at };
        sink(Entry { line, launcher_rank, ..without_prefix(text, event) });
    } else if let Some(entry) = plain(line) {
        sink(entry);
    } else if line.of_map {
        each_piece(line, |piece| entries(piece, &mut *sink));
    }
    Needed::default()
}

/// Reads a line that is one usual record, as most of NCCL's are.
#[inline]
pub(crate) fn plain<'a>(line: &Line<'a>) -> Option<Entry<'a>> {
    let record = record::plain(line.bytes)?;
    let entry = without_prefix(record.message, message::parse(without_place(record.message)));
    let (writer, device, level) = (record.writer, record.device, Some(record.level));
    Some(Entry { line: line.number, writer, device, level, ..entry })
}

/// Passes on the messages of a piece of a line.
pub(crate) fn entries(piece: &Piece<'_>, mut sink: impl FnMut(Entry<'_>)) {
    let (line, launcher_rank, prefix) = (piece.line, piece.prefix.told_rank(), &piece.prefix);
    let mut records = 0;
    let of_record = |record: Record<'_>| {
        records += 1;
        sink(Entry {
            line,
            writer: record.writer,
            device: record.device,
            level: Some(record.level),
            location: record.location,
            text: record.message,
            launcher_rank,
            launcher_node: if record.writer.is_some() { prefix.node.map(text) } else { prefix.place() },
            event: message::parse(without_place(record.message)),
        });
    };
    record::split(piece.text, of_record);
    let whole = piece.text.trim_ascii();
    if records == 0 && !whole.is_empty() {
        let (launcher_node, device) = (prefix.place(), prefix.device);
        let entry = without_prefix(whole, message::parse(whole));
        sink(Entry { line, device, launcher_rank, launcher_node, ..entry });
    }
}

/// Returns the entry of a text that has no NCCL prefix.
fn without_prefix<'a>(text: &'a [u8], event: NcclEvent<'a>) -> Entry<'a> {
    Entry {
        line: 0,
        writer: None,
        device: None,
        level: None,
        location: b"",
        text,
        launcher_rank: None,
        launcher_node: None,
        event,
    }
}

/// Removes `file.cc:321 (function) `, which NCCL 2.30.7 puts before located INFO messages.
fn without_place(message: &[u8]) -> &[u8] {
    // A path begins with a lowercase letter; most messages do not.
    if message.first().is_none_or(u8::is_ascii_uppercase) {
        return message;
    }
    let Some(blank) = memchr::memchr(b' ', &message[..message.len().min(120)]) else { return message };
    let (place, rest) = message.split_at(blank);
    let located = memchr::memchr(b':', place).is_some_and(|at| {
        place[..at].contains(&b'.') && place.len() > at + 1 && place[at + 1..].iter().all(u8::is_ascii_digit)
    });
    if !located {
        return message;
    }
    let rest = rest.trim_ascii_start();
    match rest.strip_prefix(b"(").and_then(|inner| memchr::memchr(b')', inner).map(|end| &inner[end + 1..])) {
        Some(behind) => behind.trim_ascii_start(),
        None => message,
    }
}
