//! The lines and columns of many places in one text.

use std::ops::Range;
use std::sync::OnceLock;

use super::tree::floor;
use crate::finding::Span;

/// Bytes between two marks.
const STEP: usize = 1024;

/// A text in which many places are looked up. The first look-up marks every kilobyte of it, so that each
/// takes the same time, however long the text or the line is.
#[derive(Debug)]
pub struct Lines<'t> {
    text: &'t str,
    marks: OnceLock<Vec<Mark>>,
}

/// A place in a text: the newlines before it, and the characters between the last of them and it.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    newlines: usize,
    column: usize,
}

impl Mark {
    /// Returns the place after some more bytes.
    fn after(mut self, bytes: &[u8]) -> Self {
        let mut line = bytes;
        if let Some(last) = memchr::memrchr(b'\n', bytes) {
            self.newlines += memchr::memchr_iter(b'\n', bytes).count();
            self.column = 0;
            line = &bytes[last + 1..];
        }
        // Every byte but those that continue a character.
        self.column += line.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        self
    }
}

impl<'t> Lines<'t> {
    /// Reads the lines of a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, marks: OnceLock::new() }
    }

    /// Returns the line and column of a byte offset, as [`position`](super::position) does.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let before = floor(self.text, offset.min(self.text.len())).as_bytes();
        let (index, from) = (before.len() / STEP, before.len() / STEP * STEP);
        let mark = self.marks().get(index).copied().unwrap_or_default().after(&before[from..]);
        (mark.newlines + 1, mark.column + 1)
    }

    /// Returns the place of bytes of a file as findings carry it.
    pub fn span(&self, file: &str, range: &Range<usize>) -> Span {
        let (line, column) = self.position(range.start);
        Span { file: file.to_owned(), start: range.start, end: range.end, line, column }
    }

    fn marks(&self) -> &[Mark] {
        self.marks.get_or_init(|| {
            let mut at = Mark::default();
            let mut marks = vec![at];
            for bytes in self.text.as_bytes().chunks(STEP) {
                at = at.after(bytes);
                marks.push(at);
            }
            marks
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::position;

    #[test]
    fn every_place_is_the_one_that_counting_finds() {
        let text = format!("{}\n{}\nü€😀\r\n\n{}x", "é".repeat(700), "a\n".repeat(900), "€".repeat(2000));
        let lines = Lines::new(&text);
        for offset in 0..text.len() + 2 {
            assert_eq!(lines.position(offset), position(&text, offset), "{offset}");
        }
        assert_eq!(Lines::new("").position(0), (1, 1));
        let whole = "a".repeat(2 * STEP);
        assert_eq!(Lines::new(&whole).position(2 * STEP), (1, 2 * STEP + 1));
    }
}
