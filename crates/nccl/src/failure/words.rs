//! Searches the bytes of one line for words and numbers.

use crate::map::printable;
use crate::text::{Cursor, behind, contains};

/// Bytes that are searched.
#[derive(Clone, Copy)]
pub(super) struct Text<'a>(pub &'a [u8]);

impl<'a> Text<'a> {
    pub fn has(self, needle: &str) -> bool {
        contains(self.0, needle)
    }

    pub fn from(self, needle: &str) -> Option<Self> {
        crate::text::find(self.0, needle.as_bytes()).and_then(|at| self.0.get(at..)).map(Text)
    }

    pub fn after(self, needle: &str) -> Option<Self> {
        behind(self.0, needle).map(Text)
    }

    pub fn strip(self, word: &str) -> Option<Self> {
        self.0.strip_prefix(word.as_bytes()).map(Text)
    }

    pub fn number(self) -> Option<u64> {
        Cursor::new(self.0).long()
    }

    pub fn small(self) -> Option<u32> {
        self.number().and_then(|number| u32::try_from(number).ok())
    }

    pub fn long(self) -> Option<i64> {
        let (sign, digits) = self.strip("-").map_or((1, self), |rest| (-1, rest));
        Some(sign * i64::try_from(digits.number()?).ok()?)
    }

    pub fn signed(self) -> Option<i32> {
        self.long().and_then(|number| i32::try_from(number).ok())
    }

    /// Reads up to a comma, a blank or a bracket.
    pub fn word(self) -> String {
        let name = self.name();
        printable(name.get(..60).unwrap_or(name), 60)
    }

    /// Reads the name of a host.
    pub fn name(self) -> &'a [u8] {
        self.leading(255, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    }

    /// Reads the name of a C++ class: `gloo::IoException`.
    pub fn class(self) -> Vec<u8> {
        self.leading(120, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':')).to_vec()
    }

    /// Returns the first bytes of a kind, at most so many.
    pub fn leading(self, most: usize, is_of_kind: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.0.iter().take(most).take_while(|byte| is_of_kind(**byte)).count();
        self.0.get(..length).unwrap_or_default()
    }

    /// Reads `[7, 3]`.
    pub fn bracketed(self) -> String {
        let end = memchr::memchr(b']', self.0.get(..self.0.len().min(120)).unwrap_or_default())
            .map_or(0, |at| at + 1);
        printable(self.0.get(..end).unwrap_or_default(), 120)
    }

    /// Reads `1-3,7` as single numbers, a bounded number of them.
    pub fn ranges(self) -> Vec<Option<u32>> {
        const MOST: usize = 4096;
        let list = self.leading(2000, |byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-'));
        let list = std::str::from_utf8(list).unwrap_or_default();
        let mut found = Vec::new();
        for part in list.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
                found.extend((from..=to).take(MOST.saturating_sub(found.len())).map(Some));
            }
        }
        found
    }

    /// Returns a launcher's prefix of a table row, and the row.
    pub fn columns(self) -> (&'a [u8], &'a [u8]) {
        let at = ["rank ", "exitcode ", "host ", "time "].iter().find_map(|word| {
            let at = crate::text::find(self.0, word.as_bytes())?;
            self.0.get(at..)?.get(word.len()..)?.trim_ascii_start().starts_with(b": ").then_some(at)
        });
        at.map(|at| self.0.split_at(at)).unwrap_or_default()
    }

    pub fn before(self, needle: &str) -> Option<&'a [u8]> {
        crate::text::find(self.0, needle.as_bytes()).and_then(|at| self.0.get(..at))
    }

    /// Returns whether words are in quotes, or in a comment of a script that the log shows.
    pub fn is_quoted(self, words: &str) -> bool {
        let before = self.before(words).unwrap_or_default();
        let comment = before.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'+')) == Some(&b'#');
        comment || matches!(before.last(), Some(b'"' | b'\'' | b'`'))
    }

    /// Returns whether the line is source code in a traceback, or a log's quote of it.
    pub fn begins_like_source(self) -> bool {
        // C++ indents the message of an exception that nothing caught: `  what():  CUDA error: …`.
        self.0.first().is_none_or(|first| matches!(first, b' ' | b'\t')) && !self.has("what():")
            || self.has("raise ")
            || self.has("\"CUDA error")
    }
}
