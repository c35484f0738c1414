//! Removes lines, members between brackets, and entries from a text.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::Value as Json;

use super::Editor;
use weftrun_core::span::{Entry, SpanTree};

impl Editor<'_> {
    /// Removes the lines of the bytes from `start` to `end`, with the line break before them: text added
    /// after them goes before the following break.
    pub(super) fn remove_lines(&mut self, start: usize, end: usize) {
        let start = start - self.column(start);
        let before = &self.text[..start];
        let newline = |text: &str| if text.ends_with("\r\n") { 2 } else { usize::from(text.ends_with('\n')) };
        let own = newline(&self.text[..end]);
        let end = if own > 0 { end - own } else { self.line_end(end) };
        if start > 0 {
            self.splice(start - newline(before)..end, "");
        } else {
            let rest = &self.text[end..];
            let newline = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
            self.splice(start..end + newline, "");
        }
    }

    pub(super) fn replace_entries(&mut self, entries: &[Entry<'_>], new: &[(&String, &Json)], flow: bool) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let (start, end) = (first.key_span.start, self.end_of(last));
        let indent = self.column(start);
        let text = |(key, value): &(&String, &Json)| {
            if flow { self.layout.flow_entry(key, value) } else { self.layout.entry(key, value, indent) }
        };
        let texts: Vec<String> = new.iter().map(text).collect();
        let separator = if flow { ", ".to_owned() } else { self.layout.line(indent) };
        let tail = if self.text[..end].ends_with('\n') { self.layout.newline } else { "" };
        self.splice(start..end, texts.join(&separator) + tail);
    }

    /// Removes members from between brackets, each with its comma.
    pub(super) fn remove_flow(&mut self, spans: &[Range<usize>], gone: &[bool]) {
        let last_kept = gone.iter().rposition(|gone| !gone);
        for (index, span) in spans.iter().enumerate().filter(|(index, _)| gone[*index]) {
            match (spans.get(index + 1), last_kept) {
                (Some(next), Some(last)) if index < last => self.splice(span.start..next.start, ""),
                _ => break,
            }
        }
        let (Some(end), Some(first)) = (spans.last(), spans.first()) else { return };
        let start = last_kept.map_or(first.start, |last| spans[last].end);
        if last_kept.is_none_or(|last| last + 1 < spans.len()) {
            self.splice(start..end.end, "");
        }
    }

    /// Removes an entry from its map, which has lines of its own.
    pub(super) fn remove_entry(&mut self, entries: &[Entry<'_>], index: usize) -> Option<()> {
        let entry = &entries[index];
        let (start, end) = (entry.key_span.start, self.end_of(entry));
        let next = entries.get(index + 1).map(|next| next.key_span.start);
        let line_start = start - self.column(start);
        if self.text[line_start..start].trim().is_empty() && entries.len() > 1 {
            self.remove_lines(start, end);
        } else {
            self.splice(start..next?, "");
        }
        Some(())
    }
}

/// Returns which items have a name that no wanted item has; an item with another new name in its place is
/// renamed. The path of a mount is its name, since a volume may be mounted several times.
pub(super) fn gone(items: &[SpanTree<'_>], wanted: &[Json]) -> Vec<bool> {
    const KEYS: [&str; 2] = ["mountPath", "name"];
    fn named(value: &Json) -> impl Iterator<Item = (&'static str, &str)> {
        KEYS.into_iter().filter_map(|key| Some((key, value[key].as_str()?)))
    }
    let name = |item| KEYS.into_iter().find_map(|key| Some((key, SpanTree::get(item, key)?.as_str()?)));
    let names: Vec<_> = items.iter().map(name).collect();
    let old: HashSet<_> = names.iter().flatten().copied().collect();
    let new: HashSet<_> = wanted.iter().flat_map(named).collect();
    let mut removed = 0;
    let of = |(index, own): (usize, &Option<(&'static str, &str)>)| {
        let Some(own) = own.filter(|own| !new.contains(own)) else { return false };
        let known = |other: &Json| named(other).any(|name| name != own && old.contains(&name));
        let gone = wanted.get(index - removed).is_none_or(known);
        removed += usize::from(gone);
        gone
    };
    names.iter().enumerate().map(of).collect()
}
