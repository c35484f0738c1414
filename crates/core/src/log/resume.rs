//! Reads a log by time: the server returns everything since a second, and this makes it exact.
//!
//! Kubernetes resumes a container's log with `sinceTime`, which is cut to whole seconds, so every resumption repeats
//! lines. Within one container the order of the file never changes, but the stamps may run backwards by a little, since
//! stdout and stderr are stamped by two threads. So lines are not identified by time: [`Resume`] requests
//! everything since a second before the newest one it has seen, counts how many such lines it has had and
//! what the first of them was, and skips exactly those. Only where the first line is another one (the file
//! was rotated) does it fall back to the stamps, and it reports that.

use std::fmt;

use jiff::Timestamp;

use super::stamp::Stamps;
use super::{Anchor, Cursor, LineEnd, Mark};
use crate::text::fnv1a;

/// Longest unfinished line that is held back; a longer line is emitted in pieces.
const HELD: usize = 64 * 1024;

/// Reads one log source over any number of connections. Sans-IO: open a stream with [`Resume::since`],
/// confirm it with [`Resume::opened`], feed what arrives, and open again when it breaks.
#[derive(Debug, Default)]
pub struct Resume {
    cursor: Cursor,
    /// Seconds that can be requested from: the one to use, and the newest, which replaces it with the next
    /// second.
    anchors: Vec<Anchor>,
    /// The first stream started in the middle of the file, so its first line is not the first of its second.
    middle: bool,
    /// Bytes that are not a whole line yet.
    held: Vec<u8>,
    /// The line whose head was too long to be held.
    open: Option<Open>,
    /// Bytes of the next new line that were emitted over an earlier connection.
    repeat: u64,
    phase: Phase,
    stamps: Stamps,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    time: Timestamp,
    hash: u64,
    new: bool,
    sent: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Every line is new.
    #[default]
    New,
    /// The next line must be the first one of the anchor.
    Check(Anchor),
    /// This many lines were seen before.
    Skip(u64),
    /// Lines seen before are recognised by their stamps.
    ByTime {
        /// How many lines of the newest stamp were seen before.
        left: u64,
        /// Whether a line seen before was found.
        overlap: bool,
    },
}

/// The output of [`Resume::feed`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// New bytes, without stamps.
    pub bytes: Vec<u8>,
    /// Ends of the lines in them.
    pub lines: Vec<LineEnd>,
    /// Lines that are not the container's but the node's (they carry no stamp), such as "unable to retrieve container
    /// logs for …", which comes with HTTP 200.
    pub notes: Vec<String>,
    /// A notice to show before the bytes.
    pub mark: Option<Mark>,
}

impl Fed {
    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.notes.is_empty() && self.mark.is_none()
    }
}

/// The stream does not start where the last one ended: it belongs to another container, or the file was
/// rotated. Find out which; then either call [`Resume::rotated`] and feed an empty slice to continue, or drop
/// the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved;

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the log does not start where it was left")
    }
}

impl std::error::Error for Moved {}

impl Resume {
    /// Starts at the beginning of a source.
    pub fn new(uid: impl Into<String>, attempt: u32) -> Self {
        Self { cursor: Cursor { uid: uid.into(), attempt, ..Cursor::default() }, ..Self::default() }
    }

    /// Starts inside a source, since only its end or its last minutes were requested.
    #[must_use]
    pub fn in_the_middle(mut self) -> Self {
        self.middle = true;
        self
    }

    /// Continues from a stored cursor.
    pub fn from_cursor(cursor: Cursor) -> Self {
        Self { anchors: cursor.anchor.into_iter().collect(), cursor, ..Self::default() }
    }

    /// Returns the time to request the log from; none requests everything.
    pub fn since(&self) -> Option<Timestamp> {
        let second = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
        self.anchors.first().map(|anchor| anchor.since).or(self.cursor.time.map(second))
    }

    /// Returns whether any line was seen.
    pub fn started(&self) -> bool {
        self.cursor.time.is_some()
    }

    /// Returns whether the last line is unfinished.
    pub fn torn(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns where the source continues.
    pub fn cursor(&self) -> Cursor {
        Cursor { anchor: self.anchors.first().copied(), ..self.cursor.clone() }
    }

    /// Records that a stream was opened with [`Self::since`]: the unfinished line of the last one comes
    /// again.
    pub fn opened(&mut self) {
        self.held.clear();
        self.open = None;
        self.repeat = self.cursor.offset;
        self.phase = match self.anchors.first() {
            Some(anchor) => Phase::Check(*anchor),
            None if self.started() => Phase::ByTime { left: self.cursor.count_at_time, overlap: false },
            None => Phase::New,
        };
    }

    /// Continues after [`Moved`] by the stamps, since the file was rotated.
    pub fn rotated(&mut self) {
        self.phase = Phase::ByTime { left: self.cursor.count_at_time, overlap: false };
        self.anchors.clear();
        self.middle = true;
    }

    /// Takes bytes of the stream.
    ///
    /// # Errors
    /// [`Moved`] if the first line is not the one expected; the bytes are kept.
    pub fn feed(&mut self, data: &[u8], out: &mut Fed) -> Result<(), Moved> {
        let mut held = std::mem::take(&mut self.held);
        let mut rest = data;
        if !held.is_empty() {
            // Only the torn line is copied; the rest is read in place.
            let end = memchr::memchr(b'\n', data).map_or(data.len(), |at| at + 1);
            held.extend_from_slice(&data[..end]);
            rest = &data[end..];
            let done = self.whole_lines(&held, out);
            held.drain(..done.taken);
            if done.moved {
                held.extend_from_slice(rest);
                self.held = held;
                return Err(Moved);
            }
        }
        let done = self.whole_lines(rest, out);
        held.extend_from_slice(&rest[done.taken..]);
        if !done.moved && held.len() > HELD {
            let head = self.head(&held, out);
            if head.is_ok() {
                held.clear();
            }
            self.held = held;
            return head;
        }
        self.held = held;
        if done.moved { Err(Moved) } else { Ok(()) }
    }

    /// Ends the source: the held bytes are its last line, without a newline.
    ///
    /// # Errors
    /// [`Moved`], as [`Self::feed`].
    pub fn finish(&mut self, out: &mut Fed) -> Result<(), Moved> {
        if self.held.is_empty() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        let result = self.line(&held, out);
        if result.is_err() {
            self.held = held;
        }
        result
    }

    fn whole_lines(&mut self, data: &[u8], out: &mut Fed) -> Done {
        let mut taken = 0;
        for end in memchr::memchr_iter(b'\n', data) {
            if self.line(&data[taken..=end], out).is_err() {
                return Done { taken, moved: true };
            }
            taken = end + 1;
        }
        Done { taken, moved: false }
    }

    /// Takes the first or further bytes of a line that is too long to be held.
    fn head(&mut self, bytes: &[u8], out: &mut Fed) -> Result<(), Moved> {
        let mut text = bytes;
        if self.open.is_none() {
            let Some((time, behind)) = self.stamps.split(bytes) else { return Ok(()) };
            let hash = hash(bytes);
            let new = self.is_new(time, hash, out)?;
            self.open = Some(Open { time, hash, new, sent: 0 });
            text = behind;
        }
        self.more(text, out);
        Ok(())
    }

    /// Takes further bytes of the open line.
    fn more(&mut self, text: &[u8], out: &mut Fed) {
        let Some(open) = self.open.as_mut().filter(|open| open.new) else { return };
        open.sent += text.len() as u64;
        self.cursor.offset = self.cursor.offset.max(open.sent);
        self.emit(text, out);
    }

    fn emit(&mut self, text: &[u8], out: &mut Fed) {
        let known = usize::try_from(self.repeat).unwrap_or(usize::MAX).min(text.len());
        self.repeat -= known as u64;
        out.bytes.extend_from_slice(&text[known..]);
    }

    /// Takes one line, with its newline unless it is the last of a source.
    fn line(&mut self, line: &[u8], out: &mut Fed) -> Result<(), Moved> {
        let (time, hash_of, new) = if let Some(open) = self.open {
            self.more(line, out);
            self.open = None;
            (open.time, open.hash, open.new)
        } else {
            let Some((time, text)) = self.stamps.split(line) else {
                out.notes.push(String::from_utf8_lossy(line).trim_end().to_owned());
                return Ok(());
            };
            // The hash is needed once a second, and when a resumed stream is checked.
            let fresh = self.cursor.time.is_none_or(|newest| time.as_second() > newest.as_second());
            let wanted = fresh || matches!(self.phase, Phase::Check(_));
            let hash_of = if wanted { hash(line) } else { 0 };
            let new = self.phase == Phase::New || self.is_new(time, hash_of, out)?;
            if new {
                self.emit(text, out);
            }
            (time, hash_of, new)
        };
        if new {
            if line.ends_with(b"\n") {
                out.lines.push(LineEnd { end: out.bytes.len(), time: Some(time) });
            }
            self.cursor.offset = 0;
            self.repeat = 0;
            self.count(time, hash_of);
        }
        Ok(())
    }

    /// Returns whether a line of a resumed stream was not seen before.
    fn is_new(&mut self, time: Timestamp, hash: u64, out: &mut Fed) -> Result<bool, Moved> {
        let skip = |left: u64| if left == 0 { Phase::New } else { Phase::Skip(left) };
        match self.phase {
            Phase::New => Ok(true),
            Phase::Check(anchor) if anchor.first != hash => Err(Moved),
            Phase::Check(anchor) => {
                self.phase = skip(anchor.lines - 1);
                Ok(false)
            }
            Phase::Skip(left) => {
                self.phase = skip(left - 1);
                Ok(false)
            }
            Phase::ByTime { left, overlap } => Ok(self.is_newer(time, left, overlap, out)),
        }
    }

    fn is_newer(&mut self, time: Timestamp, left: u64, overlap: bool, out: &mut Fed) -> bool {
        let newest = self.cursor.time.unwrap_or(Timestamp::MIN);
        if time < newest || (time == newest && left > 0) {
            self.phase = Phase::ByTime { left: left - u64::from(time == newest), overlap: true };
            return false;
        }
        out.mark = Some(if overlap {
            Mark::Resumed { lost: Some(0), repeated: 0 }
        } else {
            // No line was recognised, so some may be gone with the rotated file, the torn one among them.
            self.repeat = 0;
            Mark::Gap {
                reason: format!("the log was rotated: lines between {newest} and {time} may be gone"),
            }
        });
        self.phase = Phase::New;
        true
    }

    /// Counts an emitted line.
    fn count(&mut self, time: Timestamp, hash: u64) {
        let second = time.as_second();
        for anchor in &mut self.anchors {
            anchor.lines += u64::from(second >= anchor.since.as_second());
        }
        let newest = self.cursor.time;
        match newest {
            Some(newest) if time == newest => self.cursor.count_at_time += 1,
            Some(newest) if time < newest => {}
            _ => {
                self.cursor.time = Some(time);
                self.cursor.count_at_time = 1;
            }
        }
        if newest.is_some_and(|newest| second <= newest.as_second()) {
            return;
        }
        let anchor = |since: i64| Anchor {
            since: Timestamp::from_second(since).unwrap_or(Timestamp::MIN),
            lines: 1,
            first: hash,
        };
        if newest.is_none() {
            // A stream that starts in the middle begins inside a second, whose first line is unknown.
            if !self.middle {
                self.anchors.extend([anchor(second - 1), anchor(second)]);
            }
            return;
        }
        self.anchors.push(anchor(second));
        self.anchors.drain(..self.anchors.len().saturating_sub(2));
    }
}

struct Done {
    taken: usize,
    moved: bool,
}

/// Returns the hash of the first bytes of a line. It must not change between versions, since cursors store it.
fn hash(line: &[u8]) -> u64 {
    fnv1a(&line[..line.len().min(256)])
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
