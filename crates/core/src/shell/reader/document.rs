//! Here-documents.

use super::{Read, Reader, ends_word};

/// A here-document whose text follows.
pub(super) struct Document {
    delimiter: Vec<u8>,
    /// `<<-`: tabs before a line are ignored.
    strip: bool,
    /// A quote in the delimiter: the text is not expanded.
    literal: bool,
}

impl Reader<'_> {
    /// Reads the word after `<<`. Quotes are removed, and nothing is expanded.
    pub(super) fn delimiter(&mut self, strip: bool) -> Read {
        let (start, mut delimiter, mut literal) = (self.at, Vec::new(), false);
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => {
                    literal = true;
                    delimiter.extend(self.quoted_delimiter(byte)?);
                }
                b'\\' if self.peek_at(1).is_some_and(|next| next != b'\n') => {
                    literal = true;
                    delimiter.extend(self.peek_at(1));
                    self.skip(2);
                }
                b'$' | b'`' | b'(' => break,
                // A `\r` is part of it, as in the line that ends the text.
                _ if byte != b'\r' && ends_word(Some(byte), self.peek_at(1)) => break,
                _ => {
                    delimiter.push(byte);
                    self.at += 1;
                }
            }
        }
        if self.at == start || matches!(self.peek(), Some(b'$' | b'`' | b'(')) {
            return self.not_understood("a here-document's delimiter is not a plain word");
        }
        self.waiting.push(Document { delimiter, strip, literal });
        Ok(())
    }

    fn quoted_delimiter(&mut self, quote: u8) -> Read<Vec<u8>> {
        let rest = &self.bytes[self.at + 1..self.end];
        let inside = rest.iter().position(|byte| *byte == quote).map(|length| rest[..length].to_vec());
        match inside {
            Some(inside) if !inside.iter().any(|byte| b"\n\\$`".contains(byte)) => {
                self.at += inside.len() + 2;
                Ok(inside)
            }
            _ => self.not_understood("a here-document's delimiter is not a plain word"),
        }
    }

    /// Skips the texts of the here-documents of the line that has just ended.
    pub(super) fn documents(&mut self) -> Read {
        if self.waits_outside {
            return self
                .not_understood("a here-document's line continues in a substitution of several lines");
        }
        for document in std::mem::take(&mut self.waiting) {
            let start = self.at;
            loop {
                if self.at >= self.end {
                    return self.fail("a here-document has no end");
                }
                let line = self.at;
                if self.line(&document) == document.delimiter {
                    self.contents.documents.push(start..line);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns a line of a document, with those that a `\` joins to it.
    fn line(&mut self, document: &Document) -> Vec<u8> {
        let mut whole = Vec::new();
        loop {
            let rest = &self.bytes[self.at..self.end];
            let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let mut line = &rest[..length];
            self.skip(length + 1);
            while document.strip && line.first() == Some(&b'\t') {
                line = &line[1..];
            }
            whole.extend_from_slice(line);
            let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
            if document.literal || backslashes % 2 == 0 || self.at >= self.end {
                return whole;
            }
            whole.pop();
        }
    }

    /// Refuses text since a place if it has several lines while a here-document is pending: shells do not
    /// agree on where its text begins.
    pub(super) fn on_one_line(&self, start: usize) -> Read {
        let waits = self.waits_outside || !self.waiting.is_empty();
        if waits && self.bytes[start..self.at].contains(&b'\n') {
            return self.not_understood("a here-document's line continues in a word of several lines");
        }
        Ok(())
    }
}
