//! Searches a store: over the bytes of whole segments, at memory speed, then over the lines that hit.

use super::entry::Entry;
use super::segment::{Body, MARK, PLAIN, Segment};
use super::{LogStore, Pattern};

impl LogStore {
    /// Returns the first line from a number on, in order, that contains a text and is accepted by `wanted`.
    pub fn search(&self, pattern: &Pattern, from: u64, wanted: impl Fn(&Entry) -> bool) -> Option<u64> {
        let first = self.segments.partition_point(|s| s.last < from);
        let mut buffer = Vec::new();
        self.segments.iter().skip(first).find_map(|segment| {
            self.hits(segment, pattern, &mut buffer)
                .into_iter()
                .find(|entry| entry.seq >= from && wanted(entry))
                .map(|entry| entry.seq)
        })
    }

    /// Returns the nearest line before a number that contains a text and is accepted by `wanted`.
    pub fn search_back(
        &self,
        pattern: &Pattern,
        before: u64,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Option<u64> {
        let mut buffer = Vec::new();
        self.segments.iter().rev().skip_while(|s| s.first >= before).find_map(|segment| {
            self.hits(segment, pattern, &mut buffer)
                .into_iter()
                .rev()
                .find(|entry| entry.seq < before && wanted(entry))
                .map(|entry| entry.seq)
        })
    }

    /// Returns the numbers of all lines that contain a text, in order.
    pub fn search_all(&self, pattern: &Pattern) -> Vec<u64> {
        let mut buffer = Vec::new();
        let hits = |segment| self.hits(segment, pattern, &mut buffer);
        self.segments.iter().flat_map(hits).map(|entry| entry.seq).collect()
    }

    /// Returns the first lines of parts of the store that can be searched apart from each other, in order.
    pub fn parts(&self) -> Vec<u64> {
        const SEGMENTS: usize = 32;
        self.segments.iter().step_by(SEGMENTS).map(|segment| segment.first).collect()
    }

    /// Returns the numbers of the lines with a text, from a line up to another one, which is not included.
    pub fn search_between(&self, pattern: &Pattern, from: u64, to: u64) -> Vec<u64> {
        let first = self.segments.partition_point(|s| s.last < from);
        let mut buffer = Vec::new();
        let parts = self.segments.iter().skip(first).take_while(|segment| segment.first < to);
        let hits = parts.flat_map(|segment| self.hits(segment, pattern, &mut buffer));
        hits.map(|entry| entry.seq).filter(|seq| (from..to).contains(seq)).collect()
    }

    fn hits(&self, segment: &Segment, pattern: &Pattern, buffer: &mut Vec<u8>) -> Vec<Entry> {
        let spill = self.spill.as_deref();
        if segment.count == 0 {
            return Vec::new();
        }
        // Escapes may be inside words, so every line that is not plain is checked separately.
        if segment.plain && segment.scan(spill, buffer, |bytes| !pattern.is_in(bytes)).unwrap_or(true) {
            return Vec::new();
        }
        let body = segment.body(spill);
        lines_with(&body, pattern)
            .into_iter()
            .map(|index| self.entry(segment, &body, index))
            .filter(|entry| pattern.matches(entry))
            .collect()
    }
}

/// Returns the indices of the lines that may contain a text.
fn lines_with(body: &Body, pattern: &Pattern) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(hit) = body.bytes.get(at..).and_then(|rest| pattern.find(rest)) {
        let index = body.index_at(at + hit.start);
        found.push(index);
        let Some(next) = body.lines.get(index + 1) else { break };
        at = next.start as usize;
    }
    let odd = |index: &usize| body.lines[*index].bits & (PLAIN | MARK) == 0;
    if body.lines.iter().any(|meta| meta.bits & (PLAIN | MARK) == 0) {
        found.extend((0..body.lines.len()).filter(odd));
        found.sort_unstable();
        found.dedup();
    }
    found
}
