//! The tree itself, independent of any syntax.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::finding::Span;

/// A value, its place in the text, and whether those bytes belong to it alone.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanTree<'a> {
    /// The value.
    pub value: Value<'a>,
    /// Bytes of the text it was read from. For an alias, the alias itself (`*name`), not its target.
    pub span: Range<usize>,
    /// How it was written.
    pub style: Style,
    /// Whether these bytes belong to this value alone.
    pub origin: NodeOrigin,
}

/// A value of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `null`, `~`, or nothing after the colon.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// Text; TOML's dates too.
    Str(Cow<'a, str>),
    /// A list.
    Seq(Vec<SpanTree<'a>>),
    /// A map, in the order of the file, duplicate keys included.
    Map(Vec<Entry<'a>>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    /// The key as text. As for kubectl, `1:` and `on:` are the texts `1` and `true`.
    pub key: Cow<'a, str>,
    /// The place of the key.
    pub key_span: Range<usize>,
    /// The value.
    pub value: SpanTree<'a>,
}

/// How a value was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// A bare scalar.
    #[default]
    Plain,
    /// `'text'`.
    SingleQuoted,
    /// `"text"`.
    DoubleQuoted,
    /// A `|` block.
    Literal,
    /// A `>` block.
    Folded,
    /// An indented list or map, or a TOML table.
    Block,
    /// A list or map in brackets.
    Flow,
}

/// Whether a value's bytes belong to it alone, that is, whether they can be edited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrigin {
    /// Written here, for here.
    #[default]
    Written,
    /// Written here under an anchor (`&name`); aliases may show it elsewhere.
    Anchored,
    /// Shown here by an alias (`*name`).
    Alias,
    /// Shown here by a merge key (`<<`).
    Merged,
}

/// One document.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanDocument<'a> {
    /// Its value; null if it is empty.
    pub root: SpanTree<'a>,
    /// Keys that occur twice in one map: the place of each one overridden by a later one.
    pub duplicates: Vec<Duplicate>,
}

/// A key that a later one in the same map overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The key.
    pub key: String,
    /// The place of the overridden one.
    pub span: Range<usize>,
}

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// A lowercase fragment.
    pub message: String,
    /// Where.
    pub span: Range<usize>,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// Returns the line and column of a byte offset, both from 1, the column in characters.
///
/// ```
/// assert_eq!(weftrun_core::span::position("a: 1\nä: 2\n", 8), (2, 3));
/// ```
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = floor(text, offset.min(text.len()));
    let line = memchr::memchr_iter(b'\n', before.as_bytes()).count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].chars().count() + 1)
}

pub(super) fn floor(text: &str, mut offset: usize) -> &str {
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    &text[..offset]
}

/// Returns the place of bytes of a file as findings carry it. For many places of one text there is
/// [`Lines`](super::Lines).
pub(crate) fn finding_span(file: &str, text: &str, range: &Range<usize>) -> Span {
    let (line, column) = position(text, range.start);
    Span { file: file.to_owned(), start: range.start, end: range.end, line, column }
}

impl SyntaxError {
    /// Makes an error at a place.
    pub fn new(message: impl Into<String>, span: Range<usize>) -> Self {
        Self { message: message.into(), span }
    }

    /// Returns the place as findings carry it.
    pub fn place(&self, file: &str, text: &str) -> Span {
        finding_span(file, text, &self.span)
    }
}

impl<'a> SpanTree<'a> {
    /// Makes a value at a place.
    pub fn new(value: Value<'a>, span: Range<usize>, style: Style) -> Self {
        Self { value, span, style, origin: NodeOrigin::Written }
    }

    /// Returns the value under a key of a map; of a duplicate key the last, as in Kubernetes.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Returns the last entry of a key of a map.
    pub fn entry(&self, key: &str) -> Option<&Entry<'a>> {
        self.entries().iter().rev().find(|entry| entry.key == key)
    }

    /// Returns the value at a path of keys and list indices.
    pub fn at<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Option<&Self> {
        path.into_iter().try_fold(self, |node, step| match &node.value {
            Value::Seq(items) => items.get(step.parse::<usize>().ok()?),
            _ => node.get(step),
        })
    }

    /// Returns the entries of a map; of anything else none.
    pub fn entries(&self) -> &[Entry<'a>] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list; of anything else none.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::Seq(items) => items,
            _ => &[],
        }
    }

    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether the value is null.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// Returns the kind of value as users call it: `a string`, `a list`, ….
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::UInt(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Str(_) => "a string",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Returns the data without places; of a duplicate key the last.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(n) => Json::from(*n),
            Value::UInt(n) => Json::from(*n),
            Value::Float(n) => Json::from(*n),
            Value::Str(text) => Json::String(text.to_string()),
            Value::Seq(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_json())).collect(),
            ),
        }
    }

    /// Visits the value and all below it, parents first.
    pub fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        self.items().iter().for_each(|item| item.walk(visit));
        self.entries().iter().for_each(|entry| entry.value.walk(visit));
    }

    /// Sets where the bytes of the value and all below it come from.
    pub(crate) fn mark(&mut self, origin: NodeOrigin) {
        self.origin = origin;
        match &mut self.value {
            Value::Seq(items) => items.iter_mut().for_each(|item| item.mark(origin)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| entry.value.mark(origin)),
            _ => {}
        }
    }

    /// Returns the number of values in the tree.
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        self.walk(&mut |_| count += 1);
        count
    }
}

/// Collects the keys of a map that a later one overrides.
pub(crate) fn note_duplicates(entries: &[Entry<'_>], found: &mut Vec<Duplicate>) {
    const FEW: usize = 24;
    if entries.len() < 2 {
        return;
    }
    if entries.len() <= FEW {
        for (index, entry) in entries.iter().enumerate() {
            if entries[index + 1..].iter().any(|later| later.key == entry.key) {
                found.push(Duplicate { key: entry.key.to_string(), span: entry.key_span.clone() });
            }
        }
        return;
    }
    let mut seen = std::collections::HashSet::with_capacity(entries.len());
    let start = found.len();
    for entry in entries.iter().rev() {
        if !seen.insert(entry.key.as_ref()) {
            found.push(Duplicate { key: entry.key.to_string(), span: entry.key_span.clone() });
        }
    }
    found[start..].reverse();
}
