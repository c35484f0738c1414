//! A block of stored lines, in memory or in the spill.

use std::sync::Arc;

use jiff::Timestamp;

use super::stream::StreamId;
use super::{Level, Spill};

/// Size at which a segment is closed: the unit that is moved out of memory.
pub(super) const SEGMENT_BYTES: usize = 256 * 1024;

/// Metadata of one stored line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    /// Where it begins in the segment's bytes; it ends where the next begins.
    pub start: u32,
    /// Its number, minus the segment's first.
    pub delta: u32,
    pub stream: StreamId,
    /// Length of the launcher's prefix.
    pub prefix: u8,
    /// Level in the lowest two bits, then the flags below.
    pub bits: u8,
    /// Microseconds since 1970, or [`NO_TIME`].
    pub time: i64,
}

pub(super) const NO_TIME: i64 = i64::MIN;
pub(super) const PLAIN: u8 = 4;
pub(super) const MARK: u8 = 8;
/// It has a note: bytes were cut, or a progress bar was collapsed.
pub(super) const NOTED: u8 = 16;
/// Its time is a stamp in its own text: of a clock and a time zone that are not known, so only for the order.
pub(super) const STAMPED: u8 = 32;

/// Bytes of a [`Meta`] in the spill.
const PACKED: usize = 22;

impl Meta {
    pub(super) fn level(self) -> Level {
        Level::from_bits(self.bits)
    }

    pub(super) fn time(self) -> Option<Timestamp> {
        (self.time != NO_TIME && self.bits & STAMPED == 0)
            .then(|| Timestamp::from_microsecond(self.time).ok())
            .flatten()
    }

    /// Returns the microseconds by which it is ordered among the lines of other sources.
    pub(super) fn order(self) -> Option<i64> {
        (self.time != NO_TIME).then_some(self.time)
    }

    fn pack(self, out: &mut Vec<u8>) {
        for word in [self.start, self.delta, self.stream] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&[self.prefix, self.bits]);
        out.extend_from_slice(&self.time.to_le_bytes());
    }

    #[allow(
        clippy::many_single_char_names,
        reason = "bytes, taken apart without an index that could be wrong"
    )]
    fn unpack(bytes: &[u8; PACKED]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, prefix, bits, time @ ..] = *bytes;
        Self {
            start: u32::from_le_bytes([a, b, c, d]),
            delta: u32::from_le_bytes([e, f, g, h]),
            stream: StreamId::from_le_bytes([i, j, k, l]),
            prefix,
            bits,
            time: i64::from_le_bytes(time),
        }
    }
}

/// The lines of a segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    /// The lines' bytes, each followed by a newline, so that a search can run over all at once.
    pub bytes: Vec<u8>,
    pub lines: Vec<Meta>,
}

impl Body {
    /// Returns the bytes of the line at an index.
    pub(super) fn raw(&self, index: usize) -> &[u8] {
        let end = self.lines.get(index + 1).map_or(self.bytes.len(), |next| next.start as usize);
        let start = self.lines.get(index).map_or(end, |meta| meta.start as usize);
        self.bytes.get(start..end.saturating_sub(1).max(start)).unwrap_or_default()
    }

    /// Returns the index of the line that contains the byte at an offset.
    pub(super) fn index_at(&self, offset: usize) -> usize {
        self.lines.partition_point(|meta| meta.start as usize <= offset).saturating_sub(1)
    }

    fn size(&self) -> usize {
        self.bytes.capacity() + self.lines.capacity() * size_of::<Meta>()
    }
}

#[derive(Debug)]
enum Storage {
    Here(Arc<Body>),
    Away(u64),
}

/// A block of lines in their order.
#[derive(Debug)]
pub(super) struct Segment {
    /// Number of its first line.
    pub first: u64,
    /// Number of its last line; its first, if it has none.
    pub last: u64,
    /// How many lines it has.
    pub count: usize,
    /// Bytes of its lines.
    pub length: usize,
    /// Whether every line is printable ASCII, so that searching the bytes is searching the text.
    pub plain: bool,
    /// Whether it holds lines that eviction kept from older segments.
    pub kept: bool,
    place: Storage,
}

impl Segment {
    pub(super) fn new(first: u64, kept: bool) -> Self {
        let place = Storage::Here(Arc::default());
        Self { first, last: first, count: 0, length: 0, plain: true, kept, place }
    }

    /// Returns its size in memory.
    pub(super) fn size(&self) -> usize {
        match &self.place {
            Storage::Here(body) => body.size(),
            Storage::Away(_) => 0,
        }
    }

    pub(super) fn is_here(&self) -> bool {
        matches!(self.place, Storage::Here(_))
    }

    pub(super) fn is_full(&self) -> bool {
        self.length >= SEGMENT_BYTES || !self.is_here()
    }

    pub(super) fn push(&mut self, seq: u64, meta: Meta, bytes: &[u8]) {
        let Storage::Here(body) = &mut self.place else { return };
        let body = Arc::make_mut(body);
        let start = u32::try_from(body.bytes.len()).unwrap_or(u32::MAX);
        let delta = u32::try_from(seq - self.first).unwrap_or(u32::MAX);
        body.lines.push(Meta { start, delta, ..meta });
        body.bytes.extend_from_slice(bytes);
        body.bytes.push(b'\n');
        (self.last, self.count, self.length) = (seq, self.count + 1, body.bytes.len());
        self.plain &= meta.bits & (PLAIN | MARK) != 0;
        if self.length >= SEGMENT_BYTES {
            body.bytes.shrink_to_fit();
            body.lines.shrink_to_fit();
        }
    }

    /// Moves the lines to the spill; returns false if it is full.
    pub(super) fn put_away(&mut self, spill: &mut dyn Spill) -> bool {
        let Storage::Here(body) = &self.place else { return true };
        let mut packed = Vec::with_capacity(body.bytes.len() + body.lines.len() * PACKED);
        packed.extend_from_slice(&body.bytes);
        body.lines.iter().for_each(|meta| meta.pack(&mut packed));
        match spill.put(&packed) {
            Some(at) => {
                self.place = Storage::Away(at);
                true
            }
            None => false,
        }
    }

    /// Returns the lines. Lines that cannot be read back from the spill are empty: their numbers stay.
    pub(super) fn body(&self, spill: Option<&dyn Spill>) -> Arc<Body> {
        let at = match &self.place {
            Storage::Here(body) => return body.clone(),
            Storage::Away(at) => *at,
        };
        let mut bytes = vec![0; self.length + self.count * PACKED];
        if !spill.is_some_and(|spill| spill.get(at, &mut bytes)) {
            let blank = |delta| Meta { start: 0, delta, stream: 0, prefix: 0, bits: PLAIN, time: NO_TIME };
            let count = u32::try_from(self.count).unwrap_or(u32::MAX);
            return Arc::new(Body { bytes: Vec::new(), lines: (0..count).map(blank).collect() });
        }
        let packed = bytes.split_off(self.length);
        let lines = packed.as_chunks::<PACKED>().0.iter().map(Meta::unpack).collect();
        Arc::new(Body { bytes, lines })
    }

    /// Runs over the bytes of all lines, without caching bytes read from the spill.
    pub(super) fn scan<T>(
        &self,
        spill: Option<&dyn Spill>,
        buffer: &mut Vec<u8>,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        match &self.place {
            Storage::Here(body) => Some(look(&body.bytes)),
            Storage::Away(at) => {
                buffer.resize(self.length, 0);
                spill?.get(*at, buffer).then(|| look(buffer))
            }
        }
    }

    /// Returns the index of the first line whose number is at least `seq`.
    pub(super) fn at_or_after(&self, body: &Body, seq: u64) -> usize {
        let delta = seq.saturating_sub(self.first);
        body.lines.partition_point(|meta| u64::from(meta.delta) < delta)
    }
}
