//! Edits a text so that its data change, and keeps every byte that need not change.
//!
//! The places are found by walking the tree of the text and the wanted data side by side. The result is
//! parsed again and compared with the wanted data, so that a text that cannot be changed in place is an
//! error and never a wrong text.

pub(super) mod emit;
mod quoted;
mod remove;

pub use emit::to_yaml;

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Map, Value as Json};

use crate::edit::emit::{Layout, is_filled, newline_of};
use weftrun_core::span::{Entry, NodeOrigin, SpanDocument, SpanTree, Style, SyntaxError, Value};

/// Why a text cannot be changed in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// JSON pointer of the value.
    pub path: String,
    /// The place of the value.
    pub span: Range<usize>,
    /// What prevents the change.
    pub why: String,
}

impl Blocked {
    fn new(path: String, span: &Range<usize>, why: impl Into<String>) -> Self {
        Self { path, span: span.clone(), why: why.into() }
    }
}

/// A changed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole text.
    pub text: String,
    /// JSON pointers of the values that an alias or a merge key showed, and that are written out now.
    pub written_out: Vec<String>,
}

const ALIAS: &str = "the value here is an alias; its text is elsewhere";
const MERGE_KEY: &str = "the value here comes from a merge key; its text is elsewhere";

/// What is done where aliases show an anchor's text at several places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shared {
    /// A change of it is an error.
    #[default]
    Refused,
    /// It is changed once, where it is written: correct if all places get the same value.
    Once,
    /// What differs from it is written out.
    WrittenOut,
    /// All that aliases and merge keys show is written out: the anchor itself changes.
    AllWrittenOut,
}

impl Shared {
    fn writes_out(self) -> bool {
        matches!(self, Self::WrittenOut | Self::AllWrittenOut)
    }
}

/// Changes a text so that its data become the wanted ones.
///
/// `says` parses the new text and compares it, so that the result is checked before it is returned.
pub fn edit(
    text: &str,
    document: &SpanDocument<'_>,
    wanted: &Json,
    says: impl Fn(&str, &Json) -> Result<bool, SyntaxError>,
) -> Result<Edited, Blocked> {
    let result = |keep_lines: bool, shared: Shared| {
        let mut editor = Editor::new(text, &document.root);
        (editor.keep_lines, editor.shared) = (keep_lines, shared);
        editor.node(&document.root, wanted, &EditTarget::default())?;
        let written_out = std::mem::take(&mut editor.written_out);
        Ok((editor.inside, Edited { text: editor.apply()?, written_out }))
    };
    let is_right = |edited: &Edited| matches!(says(&edited.text, wanted), Ok(true));
    let (inside, mut edited) = match result(true, Shared::Refused) {
        Ok(done) => done,
        Err(blocked) => {
            let others = [Shared::Once, Shared::WrittenOut, Shared::AllWrittenOut].into_iter();
            let done = others.filter_map(|shared| result(true, shared).ok());
            return done.map(|(_, edited)| edited).find(is_right).ok_or(blocked);
        }
    };
    // A change inside a multi-line scalar may parse differently; then that scalar is rewritten.
    if inside && !is_right(&edited) {
        (_, edited) = result(false, Shared::Refused)?;
    }
    let why = match says(&edited.text, wanted) {
        Ok(true) => return Ok(edited),
        Ok(false) => "the result would say something else than was meant".to_owned(),
        Err(error) => format!("the result could not be read: {error}"),
    };
    Err(Blocked::new(String::new(), &document.root.span, why))
}

/// Returns whether a tree holds exactly these data.
pub fn same(node: &SpanTree<'_>, wanted: &Json) -> bool {
    match (&node.value, wanted) {
        (Value::Null, Json::Null) => true,
        (Value::Bool(a), Json::Bool(b)) => a == b,
        (Value::Int(a), Json::Number(b)) => b.as_i64() == Some(*a),
        (Value::UInt(a), Json::Number(b)) => b.as_u64() == Some(*a),
        (Value::Float(a), Json::Number(b)) => b.is_f64() && b.as_f64() == Some(*a),
        (Value::Str(a), Json::String(b)) => a == b,
        (Value::Seq(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Map(entries), Json::Object(map)) => {
            // Mostly they are in the same order, and then no lookup is needed.
            let in_order = entries.len() == map.len()
                && entries.iter().zip(map).all(|(entry, (key, _))| entry.key.as_ref() == key);
            if in_order {
                return entries.iter().zip(map.values()).all(|(entry, value)| same(&entry.value, value));
            }
            let last = last_of_each(entries);
            entries.iter().all(|entry| map.contains_key(entry.key.as_ref()))
                && map
                    .iter()
                    .all(|(key, value)| last.get(key.as_str()).is_some_and(|node| same(node.0, value)))
        }
        _ => false,
    }
}

/// Returns the last value of each key, which is the one that counts, and how many the key has.
fn last_of_each<'e, 'a>(entries: &'e [Entry<'a>]) -> HashMap<&'e str, (&'e SpanTree<'a>, usize)> {
    let mut found = HashMap::with_capacity(entries.len());
    for entry in entries {
        let (last, count) = found.entry(entry.key.as_ref()).or_insert((&entry.value, 0));
        (*last, *count) = (&entry.value, *count + 1);
    }
    found
}

/// The place of a value among its neighbours.
#[derive(Clone, Copy, Default)]
struct EditTarget<'p> {
    /// Its parent, and its step from there.
    above: Option<(&'p EditTarget<'p>, Step<'p>)>,
    /// Column of the key it belongs to, and the byte after the key's colon; none in a list or at the root.
    key: Option<(usize, usize)>,
    /// Whether it is inside brackets.
    in_flow: bool,
}

/// One step down.
#[derive(Clone, Copy)]
enum Step<'p> {
    Key(&'p str),
    Item(usize),
}

impl EditTarget<'_> {
    /// Returns its JSON pointer, which only errors need.
    fn path(&self) -> String {
        match self.above {
            None => String::new(),
            Some((above, Step::Key(key))) => above.below(key),
            Some((above, Step::Item(index))) => format!("{}/{index}", above.path()),
        }
    }

    fn below(&self, key: &str) -> String {
        format!("{}/{}", self.path(), step(key))
    }
}

/// Returns a key as a step of a JSON pointer.
pub(crate) fn step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

struct Editor<'t> {
    text: &'t str,
    /// The place of each line break.
    breaks: Vec<usize>,
    layout: Layout,
    splices: Vec<(Range<usize>, String)>,
    /// Whether scalars of several lines are changed inside where that is possible.
    keep_lines: bool,
    /// Whether one was.
    inside: bool,
    /// What is done with text that is shown at several places.
    shared: Shared,
    /// Pointers of what was written out.
    written_out: Vec<String>,
}

impl<'t> Editor<'t> {
    fn new(text: &'t str, root: &SpanTree<'_>) -> Self {
        let newline = newline_of(text);
        let json = root.style == Style::Flow && text[root.span.clone()].starts_with('{');
        let list_indent = list_indent(text, root).unwrap_or(0);
        Self {
            text,
            breaks: memchr::memchr_iter(b'\n', text.as_bytes()).collect(),
            layout: Layout { newline, list_indent, json },
            splices: Vec::new(),
            keep_lines: true,
            inside: false,
            shared: Shared::default(),
            written_out: Vec::new(),
        }
    }

    fn splice(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.splices.push((range, text.into()));
    }

    fn apply(self) -> Result<String, Blocked> {
        weftrun_core::text::splice(self.text, self.splices)
            .map_err(|place| Blocked::new(String::new(), &place, "two changes overlap"))
    }

    fn node(&mut self, node: &SpanTree<'_>, wanted: &Json, place: &EditTarget<'_>) -> Result<(), Blocked> {
        let is_own = node.origin == NodeOrigin::Written
            || (node.origin == NodeOrigin::Anchored && self.shared != Shared::Refused);
        match (&node.value, wanted) {
            // Its members are compared one by one; equal ones make no splice.
            (Value::Map(entries), Json::Object(map)) if !entries.is_empty() && is_own => {
                return self.map(node, entries, map, place);
            }
            (Value::Seq(items), Json::Array(list)) if !items.is_empty() && is_own => {
                return self.seq(node, items, list, place);
            }
            _ if same(node, wanted)
                && !(node.origin == NodeOrigin::Alias && self.shared == Shared::AllWrittenOut) =>
            {
                return Ok(());
            }
            _ => {}
        }
        let (done, why) = match (node.origin, self.shared) {
            (_, Shared::Once) if !is_own => return Ok(()),
            (NodeOrigin::Alias, shared) if shared.writes_out() => {
                self.written_out.push(place.path());
                (self.write(node.span.clone(), Style::Plain, wanted, place), ALIAS)
            }
            _ if is_own => (self.replace(node, wanted, place), "its kind of value would change"),
            (NodeOrigin::Alias, _) => (None, ALIAS),
            (NodeOrigin::Merged, _) => (None, MERGE_KEY),
            _ => (None, "it carries an anchor, so that aliases may show it elsewhere"),
        };
        done.ok_or_else(|| Blocked::new(place.path(), &node.span, why))
    }

    fn map(
        &mut self,
        node: &SpanTree<'_>,
        entries: &[Entry<'_>],
        wanted: &Map<String, Json>,
        place: &EditTarget<'_>,
    ) -> Result<(), Blocked> {
        let flow = node.style == Style::Flow;
        let merged = |entry: &Entry<'_>| entry.value.origin == NodeOrigin::Merged;
        // Mostly new keys follow the existing ones, and then no lookup is needed.
        let in_order = entries.len() <= wanted.len()
            && entries.iter().zip(wanted.keys()).all(|(entry, key)| entry.key.as_ref() == key);
        let last = if in_order { HashMap::new() } else { last_of_each(entries) };
        let mut new: Vec<(&String, &Json)> = if in_order {
            wanted.iter().skip(entries.len()).collect()
        } else {
            wanted.iter().filter(|(key, _)| !last.contains_key(key.as_str())).collect()
        };
        if self.shared.writes_out() {
            // A key of the map's own wins over the one that a merge key shows.
            for entry in entries.iter().filter(|entry| merged(entry)) {
                let own = wanted.get_key_value(entry.key.as_ref());
                let all = self.shared == Shared::AllWrittenOut;
                if let Some((key, value)) = own.filter(|(_, value)| all || !same(&entry.value, value)) {
                    self.written_out.push(place.below(key));
                    new.push((key, value));
                }
            }
        }
        let gone: Vec<bool> =
            entries.iter().map(|entry| !in_order && !wanted.contains_key(entry.key.as_ref())).collect();
        if gone.iter().all(|gone| *gone) && !new.is_empty() {
            self.replace_entries(entries, &new, flow);
            return Ok(());
        }
        if flow {
            let spans: Vec<Range<usize>> =
                entries.iter().map(|entry| entry.key_span.start..self.end_of(entry)).collect();
            self.remove_flow(&spans, &gone);
        }
        let mut values = wanted.values();
        for (index, entry) in entries.iter().enumerate() {
            let value = if in_order { values.next() } else { wanted.get(entry.key.as_ref()) };
            if merged(entry) && self.shared != Shared::Refused {
                continue;
            }
            let Some(value) = value else {
                let blocked = |why: &str| Blocked::new(place.below(&entry.key), &entry.key_span, why);
                if merged(entry) {
                    return Err(blocked(MERGE_KEY));
                }
                if !flow {
                    self.remove_entry(entries, index)
                        .ok_or_else(|| blocked("it cannot be taken out of its line"))?;
                }
                continue;
            };
            let twice = last.get(entry.key.as_ref()).filter(|(_, count)| *count > 1);
            if twice.is_some_and(|(last, _)| !same(last, value)) {
                let why = format!("the key `{}` is set twice in one map", entry.key);
                return Err(Blocked::new(place.below(&entry.key), &entry.key_span, why));
            }
            if twice.is_none() {
                let key = Some((self.column(entry.key_span.start), self.behind_colon(entry)));
                let above = Some((place, Step::Key(&entry.key)));
                self.node(&entry.value, value, &EditTarget { above, key, in_flow: place.in_flow || flow })?;
            }
        }
        let kept = entries.iter().zip(&gone).filter(|(entry, gone)| !**gone && !merged(entry));
        let kept = kept.map(|(entry, _)| entry);
        let Some(last) = kept.max_by_key(|entry| self.end_of(entry)) else { return Ok(()) };
        if new.is_empty() {
            return Ok(());
        }
        if flow {
            let texts: Vec<String> =
                new.iter().map(|(key, value)| self.layout.flow_entry(key, value)).collect();
            self.append_flow(node, last.key_span.start, self.end_of(last), &texts);
        } else {
            let indent = entries.first().map_or(0, |first| self.column(first.key_span.start));
            self.append_lines(self.end_of(last), indent, &new, |layout, out, (key, value)| {
                layout.put_entry(out, key, value, indent);
            });
        }
        Ok(())
    }

    /// Removes the items whose name is gone, and pairs the changed others between the unchanged ones before
    /// and after them; the remaining ones are new.
    fn seq(
        &mut self,
        node: &SpanTree<'_>,
        items: &[SpanTree<'_>],
        wanted: &[Json],
        place: &EditTarget<'_>,
    ) -> Result<(), Blocked> {
        let flow = node.style == Style::Flow;
        if wanted.is_empty() {
            return Err(Blocked::new(place.path(), &node.span, "all items would be taken out of the list"));
        }
        let front = items.iter().zip(wanted).take_while(|(a, b)| same(a, b)).count();
        let back = items[front..]
            .iter()
            .rev()
            .zip(wanted[front..].iter().rev())
            .take_while(|(a, b)| same(a, b))
            .count();
        let (old, new) = (&items[front..items.len() - back], &wanted[front..wanted.len() - back]);
        let gone = remove::gone(old, new);
        if flow && gone.contains(&true) {
            let is_gone = |index: usize| index.checked_sub(front).and_then(|at| gone.get(at)) == Some(&true);
            let gone: Vec<bool> = (0..items.len()).map(is_gone).collect();
            let spans: Vec<Range<usize>> = items.iter().map(|item| item.span.clone()).collect();
            self.remove_flow(&spans, &gone);
        }
        let mut old: Vec<(usize, &SpanTree<'_>)> = Vec::new();
        for (index, item) in items.iter().enumerate().take(items.len() - back).skip(front) {
            match gone[index - front] {
                true if !flow => self.remove_lines(item.span.start, item.span.end),
                true => {}
                false => old.push((index, item)),
            }
        }
        for ((index, item), value) in old.iter().zip(new) {
            let above = Some((place, Step::Item(*index)));
            self.node(item, value, &EditTarget { above, key: None, in_flow: place.in_flow || flow })?;
        }
        if new.len() < old.len() {
            let why = "items without a name would be taken out of the list";
            return Err(Blocked::new(place.path(), &node.span, why));
        }
        let added = &new[old.len()..];
        if added.is_empty() {
            return Ok(());
        }
        let dash = self.column(node.span.start);
        let texts = || -> Vec<String> {
            let text = |item| if flow { self.layout.flow(item) } else { self.layout.item(item, dash) };
            added.iter().map(text).collect()
        };
        let before = front.checked_sub(1).and_then(|index| items.get(index));
        match (old.last().map(|(_, last)| *last).or(before), flow) {
            (Some(last), true) => self.append_flow(node, last.span.start, last.span.end, &texts()),
            (Some(last), false) => self.append_lines(last.span.end, dash, added, |layout, out, item| {
                layout.put_item(out, item, dash);
            }),
            (None, true) => {
                let at = items.first().map_or(node.span.start + 1, |first| first.span.start);
                self.splice(at..at, texts().join(", ") + ", ");
            }
            (None, false) => {
                let line = self.layout.line(dash);
                self.splice(node.span.start..node.span.start, texts().join(&line) + &line);
            }
        }
        Ok(())
    }

    /// Replaces a scalar, nothing, or empty brackets with a value.
    fn replace(&mut self, node: &SpanTree<'_>, wanted: &Json, place: &EditTarget<'_>) -> Option<()> {
        let empty_brackets =
            node.style == Style::Flow && node.items().is_empty() && node.entries().is_empty();
        if matches!(node.value, Value::Map(_) | Value::Seq(_)) && !empty_brackets {
            return None;
        }
        if matches!(node.style, Style::Literal | Style::Folded) {
            return self.replace_block_text(node, wanted, place);
        }
        if let (true, Value::Str(old), Json::String(new)) = (self.keep_lines, &node.value, wanted)
            && let Some(source) = self.text.get(node.span.clone())
            && let Some(changes) = quoted::changes(source, node.style, old, new)
        {
            self.inside = true;
            for (range, text) in changes {
                self.splice(node.span.start + range.start..node.span.start + range.end, text);
            }
            return Some(());
        }
        self.write(node.span.clone(), node.style, wanted, place)
    }

    /// Writes a whole value in place of these bytes.
    fn write(
        &mut self,
        span: Range<usize>,
        style: Style,
        wanted: &Json,
        place: &EditTarget<'_>,
    ) -> Option<()> {
        let filled = is_filled(wanted);
        let span = match place.key {
            Some((_, colon)) if span.is_empty() => colon..colon,
            _ => span,
        };
        let gap = if span.is_empty() { " " } else { "" };
        if !filled || place.in_flow || self.layout.json {
            let text = if filled {
                self.layout.flow(wanted)
            } else {
                self.layout.like(style, wanted, place.in_flow)
            };
            self.splice(span, format!("{gap}{text}"));
            return Some(());
        }
        if let Some((column, colon)) = place.key {
            let block = self.layout.block(wanted, column);
            let end = self.line_end(span.end);
            self.splice(colon..span.end, "");
            self.splice(end..end, block);
        } else {
            let column = self.column(span.start).checked_sub(2)?;
            let item = self.layout.item(wanted, column);
            self.splice(span, item.strip_prefix("- ")?);
        }
        Some(())
    }

    /// Changes only the lines of a `|` block that differ.
    fn replace_block_text(
        &mut self,
        node: &SpanTree<'_>,
        wanted: &Json,
        place: &EditTarget<'_>,
    ) -> Option<()> {
        let (Value::Str(old), Json::String(new)) = (&node.value, wanted) else { return None };
        let source = &self.text[node.span.clone()];
        let (header, body) = source.split_once('\n')?;
        let (old_lines, new_lines): (Vec<&str>, Vec<&str>) =
            (old.split('\n').collect(), new.split('\n').collect());
        let lines: Vec<&str> = body.split_inclusive('\n').collect();
        let first = lines.iter().find(|line| !line.trim().is_empty())?;
        let indent = first.len() - first.trim_start_matches(' ').len();
        let explicit = header.bytes().any(|b| b.is_ascii_digit());
        if node.style == Style::Literal && old_lines.len() == new_lines.len() && !explicit {
            let mut at = node.span.start + header.len() + 1;
            for (index, line) in lines.iter().enumerate() {
                if let (Some(old), Some(new)) = (old_lines.get(index), new_lines.get(index))
                    && old != new
                {
                    let content = line.trim_end_matches(['\n', '\r']);
                    let start = at + indent.min(content.len());
                    self.splice(start..at + content.len(), *new);
                }
                at += line.len();
            }
            return Some(());
        }
        // A folded block has no line for each of its lines: it becomes a literal one.
        let column = place.key.map_or(indent, |(column, _)| column + 2);
        let text = self
            .layout
            .literal(new, column)
            .unwrap_or_else(|| self.layout.like(Style::DoubleQuoted, wanted, false));
        let tail = if source.ends_with('\n') { self.layout.newline } else { "" };
        self.splice(node.span.clone(), text.trim_end_matches(['\n', '\r']).to_owned() + tail);
        Some(())
    }

    /// Adds a line or more for each member below the value that ends at an offset.
    fn append_lines<T>(
        &mut self,
        end: usize,
        indent: usize,
        members: &[T],
        put: impl Fn(Layout, &mut String, &T),
    ) {
        let mut text = String::with_capacity(256);
        // A `|` block ends after its line break, everything else before one.
        if end > 0 && self.text[..end].ends_with('\n') {
            for member in members {
                text.extend(std::iter::repeat_n(' ', indent));
                put(self.layout, &mut text, member);
                text.push_str(self.layout.newline);
            }
            self.splice(end..end, text);
        } else {
            let at = self.line_end(end);
            for member in members {
                self.layout.put_line(&mut text, indent);
                put(self.layout, &mut text, member);
            }
            self.splice(at..at, text);
        }
    }

    /// Adds members after the one that spans these bytes, one to a line if the others are laid out so.
    fn append_flow(&mut self, node: &SpanTree<'_>, start: usize, end: usize, texts: &[String]) {
        let column = self.column(start);
        let line_start = start - column;
        let own_line = self.text[line_start..start].trim().is_empty() && line_start > node.span.start;
        let separator = if own_line {
            format!(",{}{}", self.layout.newline, &self.text[line_start..start])
        } else {
            ", ".to_owned()
        };
        let text: String = texts.iter().map(|text| format!("{separator}{text}")).collect();
        self.splice(end..end, text);
    }

    fn end_of(&self, entry: &Entry<'_>) -> usize {
        if entry.value.span.is_empty() {
            self.behind_colon(entry)
        } else {
            entry.value.span.end.max(entry.key_span.end)
        }
    }

    fn behind_colon(&self, entry: &Entry<'_>) -> usize {
        let end = entry.key_span.end;
        self.text[end..].find(':').map_or(end, |at| end + at + 1)
    }

    /// Returns the column in bytes; the text before it is blanks, dashes and the like.
    fn column(&self, at: usize) -> usize {
        let before = self.breaks.partition_point(|place| *place < at);
        at - before.checked_sub(1).and_then(|last| self.breaks.get(last)).map_or(0, |place| place + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        let next = self.breaks.partition_point(|place| *place < at);
        let end = self.breaks.get(next).copied().unwrap_or(self.text.len());
        if self.text[at..end].ends_with('\r') { end - 1 } else { end }
    }
}

/// Returns the column in bytes; the text before it is blanks, dashes and the like.
fn column(text: &str, at: usize) -> usize {
    at - text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Returns the indentation of the document's first list below a key.
fn list_indent(text: &str, node: &SpanTree<'_>) -> Option<usize> {
    for entry in node.entries() {
        let value = &entry.value;
        if value.style == Style::Block && !value.items().is_empty() && value.origin == NodeOrigin::Written {
            return Some(column(text, value.span.start).saturating_sub(column(text, entry.key_span.start)));
        }
        if let Some(found) = list_indent(text, value) {
            return Some(found);
        }
    }
    node.items().iter().find_map(|item| list_indent(text, item))
}

#[cfg(test)]
mod tests;
