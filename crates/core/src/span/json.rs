//! JSON, which kubectl reads with a separate parser: escapes and numbers differ slightly from YAML's.

use std::borrow::Cow;

use super::tree::{Duplicate, Entry, SpanDocument, SpanTree, Style, SyntaxError, Value, note_duplicates};

/// Deepest nesting; as for YAML.
const MAX_DEPTH: usize = 255;

/// Reads a text that holds one JSON value.
pub fn json(text: &str) -> Result<SpanDocument<'_>, SyntaxError> {
    let (document, end) = json_prefix(text, 0)?;
    let rest = text[end..].trim_start_matches([' ', '\t', '\r', '\n']);
    if rest.is_empty() {
        return Ok(document);
    }
    let at = text.len() - rest.len();
    Err(SyntaxError::new("something follows behind the value", at..at + 1))
}

/// Reads the JSON value that starts at or after a byte offset; also returns the offset after it.
pub fn json_prefix(text: &str, start: usize) -> Result<(SpanDocument<'_>, usize), SyntaxError> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: start, duplicates: Vec::new() };
    reader.blanks();
    let root = reader.value(0)?;
    Ok((SpanDocument { root, duplicates: reader.duplicates }, reader.at))
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    duplicates: Vec<Duplicate>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn error<T>(&self, message: &str) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(message, self.at..(self.at + 1).min(self.text.len()).max(self.at)))
    }

    fn value(&mut self, depth: usize) -> Result<SpanTree<'a>, SyntaxError> {
        if depth > MAX_DEPTH {
            return self.error("nested too deeply");
        }
        let start = self.at;
        let (value, style) = match self.peek() {
            Some(b'{') => (self.map(depth)?, Style::Flow),
            Some(b'[') => (self.seq(depth)?, Style::Flow),
            Some(b'"') => (Value::Str(self.string()?), Style::DoubleQuoted),
            Some(b't') => (self.word("true", Value::Bool(true))?, Style::Plain),
            Some(b'f') => (self.word("false", Value::Bool(false))?, Style::Plain),
            Some(b'n') => (self.word("null", Value::Null)?, Style::Plain),
            Some(b'-' | b'0'..=b'9') => (self.number()?, Style::Plain),
            _ => return self.error("a JSON value is expected here"),
        };
        Ok(SpanTree::new(value, start..self.at, style))
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, SyntaxError> {
        if !self.text[self.at..].starts_with(word) {
            return self.error("a JSON value is expected here");
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value<'a>, SyntaxError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let octal = digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
        if octal
            || !digits.starts_with(|c: char| c.is_ascii_digit())
            || digits.ends_with(['.', 'e', '+', '-'])
        {
            return Err(SyntaxError::new("not a JSON number", start..self.at));
        }
        if let Ok(number) = text.parse::<i64>() {
            return Ok(Value::Int(number));
        }
        if let Ok(number) = text.parse::<u64>() {
            return Ok(Value::UInt(number));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Float(number)),
            _ => Err(SyntaxError::new("not a JSON number", start..self.at)),
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let mut unescaped: Option<String> = None;
        loop {
            let Some(length) = self.bytes[self.at..].iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20))
            else {
                return Err(SyntaxError::new("the string has no end", start - 1..self.text.len()));
            };
            let piece = &self.text[self.at..self.at + length];
            self.at += length;
            match self.bytes[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(piece),
                        Some(mut text) => {
                            text.push_str(piece);
                            Cow::Owned(text)
                        }
                    });
                }
                b'\\' => {
                    let mut text = unescaped.take().unwrap_or_default();
                    text.push_str(piece);
                    text.push(self.escape()?);
                    unescaped = Some(text);
                }
                _ => return self.error("a control character in a string"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let code = self.bytes.get(self.at + 1).copied();
        self.at += 2;
        Ok(match code {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.unit()?;
                let pair = (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u");
                let code = if pair {
                    let before = self.at;
                    self.at += 2;
                    let second = self.unit()?;
                    if (0xdc00..0xe000).contains(&second) {
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    } else {
                        self.at = before;
                        first
                    }
                } else {
                    first
                };
                // Go writes the replacement character for half a pair.
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => {
                self.at = (self.at - 2).min(self.text.len());
                return self.error("an unknown escape");
            }
        })
    }

    fn unit(&mut self) -> Result<u32, SyntaxError> {
        let digits = self.text.get(self.at..self.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(unit) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return self.error("four hexadecimal digits are expected here");
        };
        self.at += 4;
        Ok(unit)
    }

    fn seq(&mut self, depth: usize) -> Result<Value<'a>, SyntaxError> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        while self.peek() != Some(b']') {
            items.push(self.value(depth + 1)?);
            self.separator(b']')?;
        }
        self.at += 1;
        Ok(Value::Seq(items))
    }

    fn map(&mut self, depth: usize) -> Result<Value<'a>, SyntaxError> {
        self.at += 1;
        let mut entries = Vec::new();
        self.blanks();
        while self.peek() != Some(b'}') {
            let start = self.at;
            if self.peek() != Some(b'"') {
                return self.error("a key in double quotes is expected here");
            }
            let key = self.string()?;
            let key_span = start..self.at;
            self.blanks();
            if self.peek() != Some(b':') {
                return self.error("a colon is expected here");
            }
            self.at += 1;
            self.blanks();
            entries.push(Entry { key, key_span, value: self.value(depth + 1)? });
            self.separator(b'}')?;
        }
        self.at += 1;
        note_duplicates(&entries, &mut self.duplicates);
        Ok(Value::Map(entries))
    }

    /// Skips a comma, or stays before the closing bracket.
    fn separator(&mut self, close: u8) -> Result<(), SyntaxError> {
        self.blanks();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.blanks();
                if self.peek() == Some(close) {
                    self.error("a value is expected behind the comma")
                } else {
                    Ok(())
                }
            }
            Some(b) if b == close => Ok(()),
            _ => self.error("a comma or the closing bracket is expected here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_serde_json_reads() {
        let text =
            r#" {"a":[1,-2,3.5,1e3],"b\u00e9\n\ud83d\ude00":{"x":null,"y":true,"z":"\/"},"c":[],"d":{}} "#;
        let expected: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(json(text).unwrap().root.to_json(), expected);
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\" 1}",
            "01",
            "-",
            "1.",
            "\"\\x\"",
            "\"a",
            "nul",
            "{} {}",
            "{a: 1}",
            "\"\\u12\"",
        ] {
            assert!(json(text).is_err(), "{text:?}");
        }
        assert!(json(&"[".repeat(100_000)).is_err());
    }
}
