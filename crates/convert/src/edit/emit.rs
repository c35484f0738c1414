//! Writes values as YAML or JSON text in the style of the surrounding text.

use std::borrow::Cow;

use serde_json::Value as Json;

use weftrun_core::span::{Style, Value, resolve_plain};

/// How new text is written: line ends and list indentation of the document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// `\n` or `\r\n`.
    pub newline: &'static str,
    /// Spaces between a key's column and the dash of its list: 0 or 2.
    pub list_indent: usize,
    /// Whether the document is JSON, so that all is quoted.
    pub json: bool,
}

/// Returns whether a value is a non-empty map or list.
pub(super) fn is_filled(value: &Json) -> bool {
    match value {
        Json::Object(map) => !map.is_empty(),
        Json::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// Returns the line break of a text: that of its first line, so that appended text does not change the
/// answer.
pub(crate) fn newline_of(text: &str) -> &'static str {
    match text.split_inclusive('\n').next() {
        Some(line) if line.ends_with("\r\n") => "\r\n",
        _ => "\n",
    }
}

/// Returns an object as YAML that every reader of Kubernetes parses to the same data (`on`, `0o17` and the
/// like are quoted).
pub fn to_yaml(object: &Json) -> String {
    document(object)
}

impl Layout {
    /// Returns a line break and the given number of spaces.
    pub fn line(self, indent: usize) -> String {
        format!("{}{}", self.newline, " ".repeat(indent))
    }

    /// Returns `key: value` of a block map at a column; the first line without its indentation.
    pub fn entry(self, key: &str, value: &Json, indent: usize) -> String {
        let mut out = String::with_capacity(64);
        self.put_entry(&mut out, key, value, indent);
        out
    }

    /// Returns the lines of a map or list below a key at a column.
    pub fn block(self, value: &Json, indent: usize) -> String {
        let mut out = String::with_capacity(64);
        self.put_block(&mut out, value, indent);
        out
    }

    /// Returns `- value` of a block list at a column; the first line without its indentation.
    pub fn item(self, value: &Json, dash: usize) -> String {
        let mut out = String::with_capacity(64);
        self.put_item(&mut out, value, dash);
        out
    }

    pub fn put_line(self, out: &mut String, indent: usize) {
        out.push_str(self.newline);
        out.extend(std::iter::repeat_n(' ', indent));
    }

    pub fn put_entry(self, out: &mut String, key: &str, value: &Json, indent: usize) {
        out.push_str(&self.inline_text(key));
        out.push(':');
        if is_filled(value) {
            self.put_block(out, value, indent);
        } else {
            out.push(' ');
            out.push_str(&self.scalar(value, indent + 2));
        }
    }

    fn put_block(self, out: &mut String, value: &Json, indent: usize) {
        match value {
            Json::Object(map) => {
                for (key, value) in map {
                    self.put_line(out, indent + 2);
                    self.put_entry(out, key, value, indent + 2);
                }
            }
            Json::Array(items) => {
                let dash = indent + self.list_indent;
                for item in items {
                    self.put_line(out, dash);
                    self.put_item(out, item, dash);
                }
            }
            scalar => {
                out.push(' ');
                out.push_str(&self.scalar(scalar, indent + 2));
            }
        }
    }

    pub fn put_item(self, out: &mut String, value: &Json, dash: usize) {
        let inside = dash + 2;
        out.push_str("- ");
        match value {
            Json::Object(map) if !map.is_empty() => {
                for (index, (key, value)) in map.iter().enumerate() {
                    if index > 0 {
                        self.put_line(out, inside);
                    }
                    self.put_entry(out, key, value, inside);
                }
            }
            Json::Array(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.put_line(out, inside);
                    }
                    self.put_item(out, item, inside);
                }
            }
            _ => out.push_str(&self.scalar(value, inside)),
        }
    }

    /// Returns a value on one line, in brackets if it is a map or list.
    pub fn flow(self, value: &Json) -> String {
        match value {
            Json::Object(map) => {
                let entries: Vec<String> =
                    map.iter().map(|(key, value)| self.flow_entry(key, value)).collect();
                format!("{{{}}}", entries.join(", "))
            }
            Json::Array(items) => {
                format!("[{}]", items.iter().map(|item| self.flow(item)).collect::<Vec<_>>().join(", "))
            }
            Json::String(text) => self.inline_text(text).into_owned(),
            scalar => scalar.to_string(),
        }
    }

    /// Returns `key: value` in brackets.
    pub fn flow_entry(self, key: &str, value: &Json) -> String {
        format!("{}: {}", self.inline_text(key), self.flow(value))
    }

    /// Returns a scalar in block context; text of several lines as a `|` block at a column.
    fn scalar(self, value: &Json, indent: usize) -> Cow<'_, str> {
        match value {
            Json::String(text) => {
                self.literal(text, indent).map_or_else(|| self.block_text(text), Cow::Owned)
            }
            other => Cow::Owned(self.flow(other)),
        }
    }

    fn block_text(self, text: &str) -> Cow<'_, str> {
        if !self.json && is_plain(text) { Cow::Borrowed(text) } else { Cow::Owned(quoted(text)) }
    }

    fn inline_text(self, text: &str) -> Cow<'_, str> {
        if self.json {
            return Cow::Owned(double_quoted(text));
        }
        if is_plain(text) && !text.bytes().any(|byte| matches!(byte, b',' | b'[' | b']' | b'{' | b'}')) {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(quoted(text))
        }
    }

    /// Returns text of several lines as a block, if it can be one.
    pub fn literal(self, text: &str, indent: usize) -> Option<String> {
        let fits = !self.json
            && text.contains('\n')
            && !text.starts_with([' ', '\n', '\t'])
            && text.chars().all(|c| c == '\n' || c == '\t' || is_printable(c));
        if !fits {
            return None;
        }
        let body = text.trim_end_matches('\n');
        let chomp = match text.len() - body.len() {
            0 => "-",
            1 => "",
            // A `|+` block would include blank lines that follow it.
            _ => return None,
        };
        let lines: String = body
            .split('\n')
            .map(|line| if line.is_empty() { self.newline.to_owned() } else { self.line(indent) + line })
            .collect();
        Some(format!("|{chomp}{lines}"))
    }

    /// Returns a scalar that replaces one of a given style.
    pub fn like(self, style: Style, value: &Json, in_flow: bool) -> String {
        match (style, value) {
            (Style::DoubleQuoted, Json::String(text)) => double_quoted(text),
            (Style::SingleQuoted, Json::String(text)) if is_one_line(text) => single_quoted(text),
            (_, Json::String(text)) if !in_flow => self.block_text(text).into_owned(),
            _ => self.flow(value),
        }
    }
}

/// Returns whether a text, unquoted, is read as this very string by YAML 1.1 and 1.2 readers alike.
fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let indicator = match first {
        '-' => text.len() == 1 || text.starts_with("- ") || text.starts_with("---"),
        '.' => text.starts_with("..."),
        _ => "?:,[]{}#&*!|>'\"%@`=<~".contains(first),
    };
    !indicator
        && matches!(resolve_plain(text), Value::Str(_))
        && !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'_' | b'+' | b'-' | b','))
        && !is_old_word(text)
        && is_one_line(text)
        && !matches!(text.as_bytes().last(), Some(b' ' | b':'))
        && first != ' '
        && !text.as_bytes().windows(2).any(|pair| pair == b": " || pair == b" #")
}

/// Returns whether some YAML 1.1 reader parses the word as another type, in any case; dates too.
fn is_old_word(text: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || (text.len() >= 8
            && text.as_bytes()[..4].iter().all(u8::is_ascii_digit)
            && text.as_bytes()[4] == b'-')
        || text.starts_with("0x")
        || text.starts_with("0o")
}

fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{7f}')
}

fn is_one_line(text: &str) -> bool {
    let is_ascii = text.bytes().fold(true, |all, byte| all & (b' '..=b'~').contains(&byte));
    is_ascii || text.chars().all(is_printable)
}

fn quoted(text: &str) -> String {
    if is_one_line(text) { single_quoted(text) } else { double_quoted(text) }
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns a JSON string, with the characters escaped that YAML would not print.
fn double_quoted(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

/// Returns a whole document in block style; comments and quoting of the old text are lost.
pub(crate) fn document(value: &Json) -> String {
    let layout = Layout { newline: "\n", list_indent: 0, json: false };
    let text = match value {
        Json::Object(map) if !map.is_empty() => {
            map.iter().map(|(key, value)| layout.entry(key, value, 0)).collect::<Vec<_>>().join("\n")
        }
        Json::Array(items) if !items.is_empty() => {
            items.iter().map(|item| layout.item(item, 0)).collect::<Vec<_>>().join("\n")
        }
        other => layout.scalar(other, 2).into_owned(),
    };
    text.trim_end_matches('\n').to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weftrun_core::span::yaml;

    const HOSTILE: [&str; 48] = [
        "",
        " ",
        "a",
        "yes",
        "no",
        "on",
        "y",
        "N",
        "~",
        "null",
        "true",
        "1",
        "0777",
        "1_000",
        "12:30:45",
        "1e3",
        ".5",
        "0x1F",
        "2001-01-01",
        "a: b",
        "a #b",
        "#a",
        "- a",
        "-a",
        "-",
        "--",
        "---",
        "...",
        "? x",
        ": x",
        "a:",
        "[a]",
        "{a}",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "'a'",
        "\"a\"",
        "%a",
        "@a",
        "`a`",
        "a\u{85}b",
        "a\u{1b}b",
        "a\tb",
        "a\nb\n\n",
        " a\nb",
    ];

    #[test]
    fn every_string_is_read_back() {
        for newline in ["\n", "\r\n"] {
            let layout = Layout { newline, list_indent: 0, json: false };
            for text in HOSTILE {
                let value = json!({ "k": text, "l": [text, {"m": text}], "n": text });
                let block = layout.block(&value, 0);
                assert_eq!(
                    yaml(&format!("x:{block}\n")).unwrap().root.to_json()["x"],
                    value,
                    "{text:?}\n{block}"
                );
                let flow = layout.flow(&value);
                assert_eq!(yaml(&flow).unwrap().root.to_json(), value, "{flow}");
                assert_eq!(yaml(&document(&value)).unwrap().root.to_json(), value);
                let strict = Layout { json: true, ..layout }.flow(&value);
                assert_eq!(serde_json::from_str::<serde_json::Value>(&strict).unwrap(), value);
            }
        }
    }
}
