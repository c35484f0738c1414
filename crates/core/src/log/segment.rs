//! A block of stored lines.

use jiff::Timestamp;

use super::Level;
use super::lane::LaneId;

/// Bytes at which a segment is closed: what is dropped at once when memory is short.
pub(super) const SEGMENT_BYTES: usize = 256 * 1024;

/// What is known of one stored line, beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    /// Where it begins in the segment's bytes; it ends where the next begins.
    pub start: u32,
    /// Its number, less the segment's first.
    pub delta: u32,
    /// Its lane.
    pub lane: LaneId,
    /// Bytes of launcher's prefix.
    pub prefix: u8,
    /// Level in the lowest two bits, then the flags below.
    pub bits: u8,
    /// Microseconds since 1970, or [`NO_TIME`].
    pub time: i64,
}

pub(super) const NO_TIME: i64 = i64::MIN;
pub(super) const PLAIN: u8 = 4;
pub(super) const MARK: u8 = 8;
/// It has a note: bytes were cut, or a bar was collapsed.
pub(super) const NOTED: u8 = 16;

impl Meta {
    pub(super) fn level(self) -> Level {
        Level::from_bits(self.bits)
    }

    pub(super) fn time(self) -> Option<Timestamp> {
        (self.time != NO_TIME).then(|| Timestamp::from_microsecond(self.time).ok()).flatten()
    }
}

/// A block of lines in the order they came.
#[derive(Debug)]
pub(super) struct Segment {
    /// Number of its first line.
    pub first: u64,
    /// The lines' bytes, one behind the other with a newline behind each, so that a search can run over all at once.
    pub bytes: Vec<u8>,
    /// The lines.
    pub lines: Vec<Meta>,
    /// Whether it holds what eviction left of older segments.
    pub kept: bool,
}

impl Segment {
    pub(super) fn new(first: u64, kept: bool) -> Self {
        Self { first, bytes: Vec::new(), lines: Vec::new(), kept }
    }

    /// Bytes it takes in memory.
    pub(super) fn size(&self) -> usize {
        self.bytes.capacity() + self.lines.capacity() * size_of::<Meta>()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= SEGMENT_BYTES
    }

    pub(super) fn push(&mut self, seq: u64, meta: Meta, bytes: &[u8]) {
        let start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let delta = u32::try_from(seq - self.first).unwrap_or(u32::MAX);
        self.lines.push(Meta { start, delta, ..meta });
        self.bytes.extend_from_slice(bytes);
        self.bytes.push(b'\n');
    }

    /// Number of the line at an index.
    pub(super) fn seq(&self, index: usize) -> u64 {
        self.first + u64::from(self.lines[index].delta)
    }

    /// Number of its last line; its first, if it has none.
    pub(super) fn last(&self) -> u64 {
        self.lines.last().map_or(self.first, |meta| self.first + u64::from(meta.delta))
    }

    /// Index of the first line whose number is at least `seq`.
    pub(super) fn at_or_after(&self, seq: u64) -> usize {
        let delta = seq.saturating_sub(self.first);
        self.lines.partition_point(|meta| u64::from(meta.delta) < delta)
    }

    /// Index of the line that the byte at an offset is part of.
    pub(super) fn index_at(&self, offset: usize) -> usize {
        self.lines.partition_point(|meta| meta.start as usize <= offset).saturating_sub(1)
    }

    /// The bytes of the line at an index.
    pub(super) fn raw(&self, index: usize) -> &[u8] {
        let end = self.lines.get(index + 1).map_or(self.bytes.len(), |next| next.start as usize);
        &self.bytes[self.lines[index].start as usize..end.saturating_sub(1)]
    }
}
