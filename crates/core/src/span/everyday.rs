//! A fast parser for the part of YAML that manifests are written in.
//!
//! Block maps and lists, scalars and brackets on one line, `|` blocks, comments, in ASCII: what `kubectl`
//! and people nearly always write. A text with anything else is left as a whole to the full parser, which
//! is several times slower. Both return the same tree: with debug assertions, each text that is read here
//! is read by both.

use std::borrow::Cow;
use std::ops::Range;

use super::scalar::{key_text, resolve_plain};
use super::tree::{Duplicate, Entry, SpanDocument, SpanTree, Style, Value, note_duplicates};

/// Deepest nesting that is read here.
const MAX_DEPTH: usize = 64;
/// Longest key that is read here; YAML itself allows 1024 characters on one line.
const MAX_KEY: usize = 256;

/// Parses a text that holds one document; none if some of it needs the full parser.
pub(super) fn everyday(text: &str) -> Option<SpanDocument<'_>> {
    // Whole blocks without an early exit, so that the compiler can compare many bytes at once.
    let is_known = |byte: &u8| (*byte == b'\n') | (b' '..=b'~').contains(byte);
    let all_known = |block: &[u8]| block.iter().fold(true, |known, byte| known & is_known(byte));
    if !text.as_bytes().chunks(128).all(all_known) {
        return None;
    }
    let mut reader =
        Reader { text, bytes: text.as_bytes(), at: 0, column: 0, depth: 0, duplicates: Vec::new() };
    reader.content_from(0);
    if reader.is_border() {
        reader.at += 3;
        reader.end_line()?;
    }
    if reader.is_at_end() || reader.column > 0 {
        return None;
    }
    let root = reader.map()?;
    reader.is_at_end().then_some(SpanDocument { root, duplicates: reader.duplicates })
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// Where the next value starts, or the length of the text.
    at: usize,
    /// Column of the first value of the line.
    column: usize,
    depth: usize,
    duplicates: Vec<Duplicate>,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn is_blank(&self, at: usize) -> bool {
        matches!(self.bytes.get(at), None | Some(b' ' | b'\n'))
    }

    /// Moves to the first line at or after a line's start that holds more than blanks and a comment.
    fn content_from(&mut self, mut line: usize) {
        loop {
            let mut at = line;
            while self.bytes.get(at) == Some(&b' ') {
                at += 1;
            }
            (self.at, self.column) = (at, at - line);
            match self.bytes.get(at) {
                None => return,
                Some(b'\n') => line = at + 1,
                Some(b'#') => line = self.line_end(at) + 1,
                Some(_) => return,
            }
            if line >= self.bytes.len() {
                self.at = self.bytes.len();
                return;
            }
        }
    }

    fn line_end(&self, from: usize) -> usize {
        memchr::memchr(b'\n', &self.bytes[from..]).map_or(self.bytes.len(), |found| from + found)
    }

    /// Moves to the next value after a line whose rest is blanks and a comment.
    fn end_line(&mut self) -> Option<()> {
        let start = self.at;
        self.blanks();
        match self.peek(0) {
            None => {}
            Some(b'\n') => self.content_from(self.at + 1),
            Some(b'#') if self.at > start => {
                let end = self.line_end(self.at);
                self.content_from((end + 1).min(self.bytes.len()));
            }
            Some(_) => return None,
        }
        Some(())
    }

    /// Returns whether `---` or `...` is at the start of a line, which ends or begins a document.
    fn is_border(&self) -> bool {
        self.column == 0
            && matches!(self.bytes.get(self.at..self.at + 3), Some(b"---" | b"..."))
            && self.is_blank(self.at + 3)
    }

    fn is_item(&self) -> bool {
        self.peek(0) == Some(b'-') && self.is_blank(self.at + 1)
    }

    /// Parses the list or map whose first line this is.
    fn block(&mut self) -> Option<SpanTree<'a>> {
        if self.is_item() { self.list() } else { self.map() }
    }

    fn deeper(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    fn map(&mut self) -> Option<SpanTree<'a>> {
        self.deeper()?;
        let (start, column) = (self.at, self.column);
        let mut entries: Vec<Entry<'a>> = Vec::with_capacity(4);
        let mut end = start;
        loop {
            if self.is_border() {
                return None;
            }
            let (key, key_span) = self.key(b"")?;
            let value = self.value_of(column)?;
            end = end.max(value.span.end);
            entries.push(Entry { key, key_span, value });
            if self.is_at_end() || self.column < column {
                break;
            }
            if self.column > column {
                return None;
            }
        }
        self.depth -= 1;
        note_duplicates(&entries, &mut self.duplicates);
        Some(SpanTree::new(Value::Map(entries), start..end, Style::Block))
    }

    /// Parses the value after a key of a map at a column: on its line, or below.
    fn value_of(&mut self, column: usize) -> Option<SpanTree<'a>> {
        self.blanks();
        if !matches!(self.peek(0)?, b'\n' | b'#') {
            return self.inline(column);
        }
        self.end_line_behind_blank()?;
        // A key without a value is null: rare, and left to the full parser.
        let below = !self.is_at_end() && (self.column > column || (self.column == column && self.is_item()));
        below.then(|| self.block()).flatten()
    }

    /// Does the same as [`Self::end_line`], after a blank or a colon.
    fn end_line_behind_blank(&mut self) -> Option<()> {
        if self.peek(0) == Some(b'#') && self.bytes[self.at - 1] != b' ' {
            return None;
        }
        let end = self.line_end(self.at);
        self.content_from((end + 1).min(self.bytes.len()));
        Some(())
    }

    fn list(&mut self) -> Option<SpanTree<'a>> {
        self.deeper()?;
        let (start, column) = (self.at, self.column);
        let mut items: Vec<SpanTree<'a>> = Vec::with_capacity(4);
        while !self.is_at_end() && self.column == column && self.is_item() {
            let dash = self.at;
            self.at += 1;
            self.blanks();
            if matches!(self.peek(0)?, b'\n' | b'#') || self.is_item() {
                return None;
            }
            if self.is_key() {
                self.column = column + (self.at - dash);
                items.push(self.map()?);
            } else {
                items.push(self.inline(column)?);
            }
        }
        if !self.is_at_end() && self.column > column {
            return None;
        }
        self.depth -= 1;
        let end = items.last()?.span.end;
        Some(SpanTree::new(Value::Seq(items), start..end, Style::Block))
    }

    /// Returns whether a key of a map starts here.
    fn is_key(&self) -> bool {
        let mut probe = Reader { duplicates: Vec::new(), ..*self };
        probe.key(b"").is_some()
    }

    /// Parses a key with its colon; inside brackets it also ends before one of the bytes `stop`.
    fn key(&mut self, stop: &[u8]) -> Option<(Cow<'a, str>, Range<usize>)> {
        let start = self.at;
        let text = match self.peek(0)? {
            b'\'' | b'"' => self.quoted()?.0,
            _ => {
                if !self.starts_plain() {
                    return None;
                }
                let line = &self.bytes[start..self.bytes.len().min(start + MAX_KEY)];
                let ends = |at: &usize| match line[*at] {
                    b':' => self.is_blank(start + at + 1),
                    b'\n' => true,
                    b'#' => line[at - 1] == b' ',
                    byte => stop.contains(&byte),
                };
                let end = start + (1..line.len()).find(ends)?;
                let text = &self.text[start..end];
                if text == "<<" || text.ends_with(' ') {
                    return None;
                }
                self.at = end;
                key_text(resolve_plain(text))?
            }
        };
        let span = start..self.at;
        if self.peek(0) != Some(b':') || !self.is_blank(self.at + 1) || span.len() > MAX_KEY {
            return None;
        }
        self.at += 1;
        Some((text, span))
    }

    /// Parses a value on one line, or a `|` block below it, of a map or list at a column; moves to the next
    /// line.
    fn inline(&mut self, column: usize) -> Option<SpanTree<'a>> {
        if self.peek(0)? == b'|' {
            return self.literal(column);
        }
        let node = self.on_line(b"")?;
        self.end_line()?;
        // A more indented line would continue the value.
        (self.is_at_end() || self.column <= column).then_some(node)
    }

    fn starts_plain(&self) -> bool {
        match self.peek(0) {
            Some(b'-') => {
                !self.is_blank(self.at + 1) && !matches!(self.peek(1), Some(b',' | b'[' | b']' | b'{' | b'}'))
            }
            Some(byte) => {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'_' | b'/' | b'.' | b'$' | b'(' | b'~' | b'+' | b'<')
            }
            None => false,
        }
    }

    /// Parses a bare scalar; inside brackets it also ends before one of the bytes `stop`.
    fn plain(&mut self, stop: &[u8]) -> Option<SpanTree<'a>> {
        if !self.starts_plain() {
            return None;
        }
        let start = self.at;
        let mut end = start + 1;
        loop {
            match self.bytes.get(end) {
                None | Some(b'\n') => break,
                Some(b'#') if self.bytes[end - 1] == b' ' => break,
                Some(b':')
                    if self.is_blank(end + 1)
                        || self.bytes.get(end + 1).is_some_and(|b| stop.contains(b)) =>
                {
                    return None;
                }
                Some(byte) if stop.contains(byte) => break,
                Some(_) => end += 1,
            }
        }
        let text = self.text[start..end].trim_end_matches(' ');
        // A comment's `#` needs a blank before it, which `end_line` checks.
        self.at = start + text.len();
        let value = resolve_plain(text);
        if matches!(value, Value::Float(number) if !number.is_finite()) || text == "<<" {
            return None;
        }
        Some(SpanTree::new(value, start..self.at, Style::Plain))
    }

    /// Parses quoted text on one line.
    fn quoted(&mut self) -> Option<(Cow<'a, str>, Style)> {
        let quote = self.peek(0)?;
        let start = self.at + 1;
        let mut owned: Option<String> = None;
        let mut from = start;
        let mut at = start;
        loop {
            let byte = *self.bytes.get(at)?;
            let written = match byte {
                b'\n' => return None,
                b'\'' if quote == b'\'' && self.bytes.get(at + 1) == Some(&b'\'') => '\'',
                b'\\' if quote == b'"' => match self.bytes.get(at + 1)? {
                    b'n' => '\n',
                    b't' => '\t',
                    b'"' => '"',
                    b'\\' => '\\',
                    _ => return None,
                },
                byte if byte == quote => break,
                _ => {
                    at += 1;
                    continue;
                }
            };
            let text = owned.get_or_insert_default();
            text.push_str(&self.text[from..at]);
            text.push(written);
            at += 2;
            from = at;
        }
        self.at = at + 1;
        let rest = &self.text[from..at];
        let text = match owned {
            None => Cow::Borrowed(rest),
            Some(mut text) => {
                text.push_str(rest);
                Cow::Owned(text)
            }
        };
        Some((text, if quote == b'"' { Style::DoubleQuoted } else { Style::SingleQuoted }))
    }

    /// Parses a list or map in brackets, on one line.
    fn brackets(&mut self) -> Option<SpanTree<'a>> {
        const STOP: &[u8] = b",[]{}";
        self.deeper()?;
        let start = self.at;
        let close = if self.peek(0)? == b'[' { b']' } else { b'}' };
        let (mut items, mut entries) = (Vec::new(), Vec::new());
        self.at += 1;
        self.blanks();
        while self.peek(0)? != close {
            if close == b'}' {
                let (key, key_span) = self.key(STOP)?;
                self.blanks();
                entries.push(Entry { key, key_span, value: self.on_line(STOP)? });
            } else {
                items.push(self.on_line(STOP)?);
            }
            self.blanks();
            if self.peek(0)? == b',' {
                self.at += 1;
                self.blanks();
                if self.peek(0)? == close {
                    return None;
                }
            } else if self.peek(0)? != close {
                return None;
            }
        }
        self.at += 1;
        self.depth -= 1;
        let value = if close == b']' {
            Value::Seq(items)
        } else {
            note_duplicates(&entries, &mut self.duplicates);
            Value::Map(entries)
        };
        Some(SpanTree::new(value, start..self.at, Style::Flow))
    }

    /// Parses a value on one line; inside brackets a bare scalar also ends before one of the bytes `stop`.
    fn on_line(&mut self, stop: &[u8]) -> Option<SpanTree<'a>> {
        let start = self.at;
        match self.peek(0)? {
            b'[' | b'{' => self.brackets(),
            b'\'' | b'"' => {
                let (text, style) = self.quoted()?;
                Some(SpanTree::new(Value::Str(text), start..self.at, style))
            }
            _ => self.plain(stop),
        }
    }

    fn blanks(&mut self) {
        while self.peek(0) == Some(b' ') {
            self.at += 1;
        }
    }

    /// Parses a `|` or `|-` block below a key or dash at a column.
    fn literal(&mut self, column: usize) -> Option<SpanTree<'a>> {
        let start = self.at;
        let strip = self.peek(1) == Some(b'-');
        let header = start + 1 + usize::from(strip);
        if self.bytes.get(header) != Some(&b'\n') {
            return None;
        }
        let first = header + 1;
        let indent = self.bytes[first..].iter().position(|byte| *byte != b' ')?;
        if indent <= column || self.bytes.get(first + indent) == Some(&b'\n') {
            return None;
        }
        let mut text = String::new();
        let (mut line, mut blanks) = (first, 0);
        while line < self.bytes.len() {
            let end = self.line_end(line);
            // Without a final line break, or with lines of only blanks, it is left to the full parser.
            if end == self.bytes.len() {
                return None;
            }
            if end == line {
                blanks += 1;
            } else {
                let depth = self.bytes[line..end].iter().position(|byte| *byte != b' ')?;
                if depth < indent {
                    break;
                }
                text.extend(std::iter::repeat_n('\n', std::mem::take(&mut blanks)));
                text.push_str(&self.text[line + indent..=end]);
            }
            line = end + 1;
        }
        if strip {
            text.pop();
        }
        self.content_from(line);
        if !self.is_at_end() && self.column > column {
            return None;
        }
        Some(SpanTree::new(Value::Str(Cow::Owned(text)), start..line, Style::Literal))
    }
}
