//! Turns the bytes of one log source into events. No I/O; chunk borders never matter.

use super::event::NcclEvent;
use super::lines::{Line, Lines};
use super::message;
use super::prefix::{self, Level, Part, Record, Writer};
use super::throughput::REACH;
use super::unwrap;

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
    /// Address of the node in a launcher's prefix of the line.
    pub launcher_node: Option<&'a str>,
    /// The meaning of the message.
    pub event: NcclEvent<'a>,
}

impl<'a> Entry<'a> {
    /// Returns the entry of a line that has no NCCL prefix.
    fn without_prefix(line: u64, text: &'a [u8], launcher_rank: Option<u32>, event: NcclEvent<'a>) -> Self {
        Self {
            line,
            writer: None,
            device: None,
            level: None,
            location: b"",
            text,
            launcher_rank,
            launcher_node: None,
            event,
        }
    }
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

/// What a line contains.
#[allow(
    clippy::large_enum_variant,
    reason = "it is handed over once and never kept; a box would cost an allocation a line"
)]
pub(crate) enum Content<'a> {
    Rate(Rate<'a>),
    Entry(Entry<'a>),
}

impl<'a> From<Content<'a>> for Entry<'a> {
    fn from(content: Content<'a>) -> Self {
        match content {
            Content::Entry(entry) => entry,
            Content::Rate(Rate { line, text, at, launcher_rank }) => {
                Entry::without_prefix(line, text, launcher_rank, NcclEvent::Rate { at })
            }
        }
    }
}

/// Reads one source.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    lines: Lines,
}

impl Parser {
    /// Makes a parser at the beginning of a source.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines.lines()
    }

    /// Returns the number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    /// Takes bytes and passes on every message that they complete.
    pub fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Entry<'_>)) {
        self.contents(bytes, |content| sink(content.into()));
    }

    /// Does the same with rates apart from other messages.
    pub(crate) fn contents(&mut self, bytes: &[u8], mut sink: impl FnMut(Content<'_>)) {
        self.lines.feed(bytes, |line| contents(line, &mut sink));
    }

    /// Passes on the content of the last line if no newline ended it. Call it when the source has ended.
    pub fn finish(&mut self, mut sink: impl FnMut(Entry<'_>)) {
        self.last_contents(|content| sink(content.into()));
    }

    /// Does the same with rates apart from other messages.
    pub(crate) fn last_contents(&mut self, mut sink: impl FnMut(Content<'_>)) {
        self.lines.finish(|line| contents(line, &mut sink));
    }
}

#[inline]
fn contents(line: Line<'_>, sink: &mut impl FnMut(Content<'_>)) {
    if let Some(at) = line.rate
        && (line.plain
            || (line.bytes.first() != Some(&b'{') && memchr::memchr2(b'\r', 0x1b, line.bytes).is_none()))
    {
        return sink(Content::Rate(Rate {
            line: line.number,
            text: &line.bytes[at.saturating_sub(REACH)..],
            at: at.min(REACH),
            launcher_rank: crate::launcher::told_rank(line.bytes),
        }));
    }
    entries(line, &mut |entry| sink(Content::Entry(entry)));
}

fn entries(line: Line<'_>, sink: &mut impl FnMut(Entry<'_>)) {
    let number = line.number;
    if let Some(record) = prefix::plain(line.bytes) {
        return sink(of_record(number, record, None, None));
    }
    if let Some(plain) = unwrap::unwrap(line.bytes) {
        for piece in plain.split(|byte| matches!(byte, b'\n' | b'\r')) {
            piece_entries(number, piece, sink);
        }
    } else if memchr::memchr(b'\r', line.bytes).is_some() {
        // Progress bars redraw one line; NCCL's messages may be in between.
        for piece in line.bytes.split(|byte| *byte == b'\r') {
            piece_entries(number, piece, sink);
        }
    } else {
        piece_entries(number, line.bytes, sink);
    }
}

fn piece_entries(line: u64, piece: &[u8], sink: &mut impl FnMut(Entry<'_>)) {
    if piece.is_empty() {
        return;
    }
    let (mut launcher_rank, mut launcher_node) = (None, None);
    prefix::split(piece, |part| match part {
        Part::Text(text) => {
            launcher_rank = crate::launcher::told_rank(text);
            launcher_node = crate::launcher::ray_node(text);
            if !text.is_empty() && text.len() == piece.trim_ascii().len() {
                let text = without_tag(text);
                let short = shortened(text);
                let (host, device, text) =
                    short.map_or((None, None, text), |(host, device, text)| (Some(host), Some(device), text));
                let entry = Entry::without_prefix(line, text, launcher_rank, message::parse(text));
                sink(Entry { launcher_node: host, device, ..entry });
            }
        }
        Part::Record(record) => sink(of_record(line, record, launcher_rank, launcher_node)),
    });
}

fn of_record<'a>(
    line: u64,
    record: Record<'a>,
    launcher_rank: Option<u32>,
    launcher_node: Option<&'a str>,
) -> Entry<'a> {
    Entry {
        line,
        writer: record.writer,
        device: record.device,
        level: Some(record.level),
        location: record.location,
        text: record.message,
        launcher_rank,
        launcher_node,
        event: message::parse(without_place(record.message)),
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

/// Reads a connection whose prefix was shortened by hand: `worker-0 [1] Channel 00/0 : 0[0] -> 1[1] via P2P/IPC`; returns
/// the host, the device and the message.
fn shortened(text: &[u8]) -> Option<(&str, i32, &[u8])> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let length = text.iter().take(256).take_while(|byte| is_name(byte)).count();
    let (host, rest) = text.split_at(length);
    let rest = rest.strip_prefix(b" [").filter(|_| length > 0)?;
    let (device, rest) = rest.split_at(memchr::memchr(b']', rest.get(..rest.len().min(5))?)?);
    let message = rest.strip_prefix(b"] ").filter(|rest| rest.starts_with(b"Channel "))?;
    Some((crate::text::text(host), crate::text::text(device).parse().ok()?, message))
}

/// Removes a launcher's prefix from a line whose NCCL prefix was stripped: `[1,0]<stdout>:NCCL version …`,
/// `> Channel …`.
fn without_tag(text: &[u8]) -> &[u8] {
    let mut rest = text;
    for _ in 0..3 {
        rest = rest.trim_ascii_start();
        if let Some(quoted) = rest.strip_prefix(b"> ") {
            rest = quoted;
        } else if rest.first() == Some(&b'[')
            && let Some(end) = memchr::memchr(b']', &rest[..rest.len().min(40)])
            && let Some(behind) = rest.get(end + 1..)
            && let Some(colon) =
                [&b":"[..], b"<stdout>:", b"<stderr>:"].iter().find(|tag| behind.starts_with(tag))
        {
            rest = &behind[colon.len()..];
        } else {
            break;
        }
    }
    rest
}
