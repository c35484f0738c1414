//! One line of a store, with what is known of it.

use std::sync::Arc;

use jiff::Timestamp;
use weftrun_nccl::launcher::prefix;

use super::Level;
use super::mark::Note;
use super::sanitise::{CleanLine, clean_line};
use super::segment::{Body, Meta};
use super::severity::nccl;
use super::stream::StreamId;

/// One entry of a store: a line, or a mark between lines.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its number: lines are numbered as they come, from 0.
    pub seq: u64,
    /// Its stream.
    pub stream: StreamId,
    /// When it was written, where the cluster reports it.
    pub time: Option<Timestamp>,
    /// How bad it is.
    pub level: Level,
    /// Microseconds by which it is ordered: its time, else a stamp in its text.
    pub(super) order: Option<i64>,
    /// Whether it is not a line but a notice for the reader (a gap, a resume).
    pub mark: bool,
    /// What was left out of it.
    pub note: Note,
    pub(super) body: Arc<Body>,
    pub(super) index: usize,
    pub(super) prefix: usize,
    pub(super) plain: bool,
}

impl Entry {
    /// Returns the original bytes, including the launcher's prefix. For export and search; never for a
    /// terminal.
    pub fn raw(&self) -> &[u8] {
        self.body.raw(self.index)
    }

    pub(super) fn meta(&self) -> Meta {
        self.body.lines[self.index]
    }

    fn text(&self) -> &[u8] {
        let raw = self.raw();
        &raw[self.prefix.min(raw.len())..]
    }

    /// Returns the line without its launcher's prefix, safe to draw.
    pub fn clean(&self) -> CleanLine {
        CleanLine { cut: self.note.cut, updates: self.note.updates, ..clean_line(self.text()) }
    }

    /// Returns the message without its writer: equal for all ranks that log the same text.
    pub fn message(&self) -> &[u8] {
        let text = &self.raw()[prefix(self.raw()).body..];
        nccl(&text[..text.len().min(160)]).map_or(text, |at| &text[at..])
    }

    /// Returns whether its bytes are printable ASCII, so that searching the bytes is searching the text.
    pub fn is_plain(&self) -> bool {
        self.plain
    }
}
