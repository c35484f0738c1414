//! Converts one value of a tree to a type; returns none where it has another.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};

use crate::finding::Span;
use crate::request::Gid;
use crate::span::{SpanTree, Style, Value, finding_span};

/// The text that a tree was read from; a flag has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'s> {
    pub file: &'s str,
    pub text: &'s str,
}

impl<'s> Source<'s> {
    /// The source of values that are not from a file.
    pub const NONE: Source<'static> = Source { file: "", text: "" };

    /// Returns the place of bytes, as findings carry it.
    pub fn place(self, span: &Range<usize>) -> Option<Span> {
        (!self.file.is_empty()).then(|| finding_span(self.file, self.text, span))
    }

    /// Returns a bare scalar as written in the file.
    pub fn raw(self, node: &SpanTree<'_>) -> Option<&'s str> {
        let plain = node.style == Style::Plain && !self.text.is_empty();
        plain.then(|| self.text.get(node.span.clone())).flatten().map(str::trim)
    }
}

pub(super) fn text(node: &SpanTree<'_>) -> Option<String> {
    node.as_str().map(str::to_owned)
}

pub(super) fn bool(node: &SpanTree<'_>) -> Option<bool> {
    match node.value {
        Value::Bool(value) => Some(value),
        _ => None,
    }
}

/// Returns a string; or a whole number or boolean whose text is the same as its value. `0777`, `1e3` and
/// `yes` are not accepted: their text and their value differ.
pub(super) fn scalar(node: &SpanTree<'_>, source: Source<'_>) -> Option<String> {
    let canonical = match &node.value {
        Value::Str(text) => return Some(text.to_string()),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => return None,
    };
    (source.raw(node).is_none_or(|raw| raw == canonical || raw.starts_with('*'))).then_some(canonical)
}

pub(super) fn texts(node: &SpanTree<'_>) -> Option<Vec<String>> {
    match &node.value {
        Value::Str(one) => Some(vec![one.to_string()]),
        Value::Seq(items) => items.iter().map(text).collect(),
        _ => None,
    }
}

/// Returns the words of a command. The error names the syntax that only a shell can handle.
pub(super) fn command(node: &SpanTree<'_>, source: Source<'_>) -> Result<Option<Vec<String>>, String> {
    match &node.value {
        Value::Str(line) => words(line).map(Some),
        Value::Seq(items) => Ok(items.iter().map(|item| argument(item, source)).collect()),
        _ => Ok(None),
    }
}

/// Returns an argument as written in the file, since people write `["--lr", 1e-4, "--steps", 0100]`.
fn argument(node: &SpanTree<'_>, source: Source<'_>) -> Option<String> {
    match &node.value {
        Value::Str(text) => Some(text.to_string()),
        Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Bool(_) => {
            source.raw(node).filter(|raw| !raw.starts_with('*')).map(str::to_owned)
        }
        _ => None,
    }
}

/// Returns the items of a list as they are written in the file.
pub(super) fn values(node: &SpanTree<'_>, source: Source<'_>) -> Option<Vec<String>> {
    match &node.value {
        Value::Seq(items) => items.iter().map(|item| argument(item, source)).collect(),
        _ => None,
    }
}

/// Splits a line as a shell would; an error where a shell would do more than splitting.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut quote = None;
    let mut chars = line.trim().chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => {
                chars.next();
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (None | Some('"'), '$' | '`') => return Err(format!("has `{c}`, which only a shell expands")),
            (None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '\n' | '#') => {
                let shown = if c == '\n' { "a line break".to_owned() } else { format!("`{c}`") };
                return Err(format!("has {shown}, which only a shell understands"));
            }
            _ => {}
        }
    }
    shlex::split(line).ok_or_else(|| "has a quote that is not closed".to_owned())
}

/// Returns a quantity as written; it is not parsed yet.
pub(super) fn quantity(node: &SpanTree<'_>, source: Source<'_>) -> Option<String> {
    match &node.value {
        Value::Str(text) => Some(text.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        Value::Float(number) => {
            Some(source.raw(node).map_or_else(|| number.to_string(), |raw| raw.replace('_', "")))
        }
        _ => None,
    }
}

pub(super) fn duration_text(node: &SpanTree<'_>) -> Option<String> {
    match &node.value {
        Value::Str(text) => Some(text.to_string()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn count(node: &SpanTree<'_>) -> Option<u32> {
    match node.value {
        Value::Int(number) => u32::try_from(number).ok(),
        _ => None,
    }
}

pub(super) fn gid(node: &SpanTree<'_>) -> Option<Gid> {
    match &node.value {
        Value::Int(number) => u32::try_from(*number).ok().map(Gid::Index),
        _ => node.as_str()?.parse().ok(),
    }
}

/// Returns a word. In YAML, `off` and `yes` are booleans and `2.3` is a number; here they are the text of
/// the file.
pub(super) fn word_text<'n>(node: &'n SpanTree<'_>, source: Source<'n>) -> Option<Cow<'n, str>> {
    match &node.value {
        Value::Str(text) => Some(Cow::Borrowed(text)),
        Value::Bool(value) => {
            let raw = source.raw(node).filter(|raw| !raw.starts_with('*'));
            Some(
                raw.map_or_else(|| Cow::Owned(value.to_string()), |raw| Cow::Owned(raw.to_ascii_lowercase())),
            )
        }
        Value::Float(_) => source.raw(node).filter(|raw| !raw.starts_with('*')).map(Cow::Borrowed),
        _ => None,
    }
}

/// Returns the value of a word.
pub(super) fn word<T: DeserializeOwned>(node: &SpanTree<'_>, source: Source<'_>) -> Option<T> {
    let text = word_text(node, source)?;
    let deserializer: StrDeserializer<'_, WordError> = text.as_ref().into_deserializer();
    T::deserialize(deserializer).ok()
}

/// Returns rules by id. TOML's `efa.hugepages = "off"` without quotes is a nested table, and means the
/// same.
pub(super) fn rules<'n, 'a>(node: &'n SpanTree<'a>) -> Option<Vec<(String, &'n SpanTree<'a>)>> {
    if !matches!(node.value, Value::Map(_)) {
        return None;
    }
    let mut found = Vec::new();
    for entry in node.entries() {
        match rules(&entry.value) {
            Some(inner) => {
                found.extend(inner.into_iter().map(|(id, value)| (format!("{}.{id}", entry.key), value)));
            }
            None => found.push((entry.key.to_string(), &entry.value)),
        }
    }
    Some(found)
}
