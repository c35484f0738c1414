//! Reads YAML as kubectl does, but marks the values that come from aliases and merge keys.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle, Tag};

use super::scalar::{key_text, resolve_plain};
use super::tree::{
    Duplicate, Entry, NodeOrigin, SpanDocument, SpanTree, Style, SyntaxError, Value, note_duplicates,
};

/// Most values that aliases and merge keys may add to one document: far above any manifest, far below an
/// attack.
const MAX_ALIASED: usize = 100_000;

/// Reads a text that holds one document.
pub fn yaml(text: &str) -> Result<SpanDocument<'_>, SyntaxError> {
    let mut documents = yaml_documents(text)?;
    if documents.len() > 1 {
        let second = documents.swap_remove(1).root.span;
        return Err(SyntaxError::new("a second document starts here, where only one is expected", second));
    }
    Ok(documents.pop().unwrap_or_else(|| empty(text.len())))
}

/// Returns the text of each document. Together they are the whole text, byte for byte.
pub fn yaml_texts(text: &str) -> Result<Vec<&str>, SyntaxError> {
    let mut parser = parser(text);
    let (mut texts, mut from) = (Vec::new(), 0);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| syntax_error(text, &error))?;
        if matches!(event, Event::DocumentEnd) {
            let end = span.byte_range().map_or(from, |range| range.end);
            // The line of a `...` belongs to the document that it ends.
            let is_line_start = text.get(..end).is_none_or(|before| before.ends_with('\n'));
            let rest = text.get(end..).unwrap_or_default();
            let line_end = memchr::memchr(b'\n', rest.as_bytes()).map_or(text.len(), |at| end + at + 1);
            let end = if is_line_start { end } else { line_end };
            texts.extend(text.get(from..end));
            from = end;
        }
    }
    match (texts.last_mut(), text.get(from..)) {
        (Some(last), Some(rest)) if !rest.is_empty() => *last = &text[from - last.len()..],
        _ => {}
    }
    Ok(texts)
}

fn parser(text: &str) -> Parser<'_, StrInput<'_>> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    Parser::new_from_str_with_options(text, options)
}

fn syntax_error(text: &str, error: &ScanError) -> SyntaxError {
    let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
    let mut message = error.info().clone();
    message.get_mut(..1).into_iter().for_each(str::make_ascii_lowercase);
    SyntaxError::new(message, at..at)
}

/// Reads all documents of a text.
pub fn yaml_documents(text: &str) -> Result<Vec<SpanDocument<'_>>, SyntaxError> {
    let mut parser = parser(text);
    let mut documents = Vec::new();
    let mut builder = Builder::new(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| syntax_error(text, &error))?;
        if let Some(document) = builder.event(event, &span)? {
            documents.push(document);
        }
    }
    Ok(documents)
}

fn empty(at: usize) -> SpanDocument<'static> {
    SpanDocument { root: SpanTree::new(Value::Null, at..at, Style::Plain), duplicates: Vec::new() }
}

/// An unfinished list or map.
struct Open<'a> {
    node: SpanTree<'a>,
    anchor: usize,
    /// The key of a map whose value comes next.
    key: Option<Key<'a>>,
    /// The keys of the map's merge key, and which of them are written too, if it has a merge key.
    merged: Option<Merged<'a>>,
}

#[derive(Default)]
struct Merged<'a> {
    keys: HashSet<Cow<'a, str>>,
    overridden: HashSet<Cow<'a, str>>,
}

struct Key<'a> {
    text: Cow<'a, str>,
    span: Range<usize>,
    merge: bool,
}

struct Builder<'a> {
    text: &'a str,
    open: Vec<Open<'a>>,
    root: Option<SpanTree<'a>>,
    duplicates: Vec<Duplicate>,
    anchored: HashMap<usize, SpanTree<'a>>,
    aliased: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            open: Vec::new(),
            root: None,
            duplicates: Vec::new(),
            anchored: HashMap::new(),
            aliased: 0,
        }
    }

    /// Takes one event; returns the document that it ends.
    fn event(&mut self, event: Event<'a>, span: &Span) -> Result<Option<SpanDocument<'a>>, SyntaxError> {
        let range = span.byte_range().unwrap_or(0..0);
        match event {
            Event::DocumentEnd => {
                self.anchored.clear();
                self.aliased = 0;
                let duplicates = std::mem::take(&mut self.duplicates);
                let root = self.root.take().unwrap_or_else(|| empty(range.start).root);
                return Ok(Some(SpanDocument { root, duplicates }));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let merge = style == ScalarStyle::Plain && text == "<<";
                let node = self.scalar(text, style, tag.as_deref(), range)?;
                self.complete(node, anchor, merge)?;
            }
            Event::SequenceStart(style, anchor, _) => {
                self.start(Value::Seq(Vec::new()), style, anchor, range);
            }
            Event::MappingStart(style, anchor, _) => self.start(Value::Map(Vec::new()), style, anchor, range),
            Event::SequenceEnd | Event::MappingEnd => self.end(&range)?,
            Event::Alias(id) => {
                let node = self.alias(id, range)?;
                self.complete(node, 0, false)?;
            }
            _ => {}
        }
        Ok(None)
    }

    fn scalar(
        &self,
        text: Cow<'a, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        mut range: Range<usize>,
    ) -> Result<SpanTree<'a>, SyntaxError> {
        let tag = tag.and_then(Tag::core_suffix);
        let value = match (style, tag) {
            (ScalarStyle::Plain, None) | (_, Some("int" | "float" | "bool" | "null")) => match text {
                Cow::Borrowed(text) => resolve_plain(text),
                Cow::Owned(text) => match resolve_plain(&text) {
                    Value::Null => Value::Null,
                    Value::Bool(value) => Value::Bool(value),
                    Value::Int(number) => Value::Int(number),
                    Value::UInt(number) => Value::UInt(number),
                    Value::Float(number) => Value::Float(number),
                    _ => Value::Str(Cow::Owned(text)),
                },
            },
            _ => Value::Str(text),
        };
        if let Value::Float(number) = value
            && !number.is_finite()
        {
            return Err(SyntaxError::new("infinity and NaN cannot be sent to Kubernetes", range));
        }
        let style = match style {
            ScalarStyle::SingleQuoted => Style::SingleQuoted,
            ScalarStyle::DoubleQuoted => Style::DoubleQuoted,
            ScalarStyle::Literal => Style::Literal,
            ScalarStyle::Folded => Style::Folded,
            ScalarStyle::Plain => Style::Plain,
        };
        if matches!(style, Style::Literal | Style::Folded) {
            range.start = block_start(self.text, range.start).unwrap_or(range.start);
            range.end = block_end(self.text, &range);
        }
        Ok(SpanTree::new(value, range, style))
    }

    fn start(&mut self, value: Value<'a>, style: StructureStyle, anchor: usize, range: Range<usize>) {
        let style = if style == StructureStyle::Flow { Style::Flow } else { Style::Block };
        self.open.push(Open { node: SpanTree::new(value, range, style), anchor, key: None, merged: None });
    }

    fn end(&mut self, range: &Range<usize>) -> Result<(), SyntaxError> {
        let Some(Open { mut node, anchor, merged, .. }) = self.open.pop() else { return Ok(()) };
        if let Value::Map(entries) = &mut node.value {
            let overridden = merged.map(|merged| merged.overridden).filter(|keys| !keys.is_empty());
            if let Some(keys) = overridden {
                let is_merged = |entry: &Entry<'_>| entry.value.origin == NodeOrigin::Merged;
                entries.retain(|entry| !(is_merged(entry) && keys.contains(&entry.key)));
            }
            note_duplicates(entries, &mut self.duplicates);
        }
        if node.style == Style::Block
            && let Some(first) = node.items().first()
        {
            node.span.start = dash_before(self.text, first.span.start).unwrap_or(node.span.start);
        }
        node.span.end = match (node.style, &node.value) {
            (Style::Flow, _) => range.end,
            (_, Value::Seq(items)) => items.last().map_or(node.span.end, |item| item.span.end),
            (_, Value::Map(entries)) => written_end(entries).unwrap_or(node.span.end),
            _ => range.end,
        };
        node.span.end = node.span.end.max(node.span.start);
        self.complete(node, anchor, false)
    }

    fn alias(&mut self, id: usize, range: Range<usize>) -> Result<SpanTree<'a>, SyntaxError> {
        let Some(target) = self.anchored.get(&id) else {
            return Err(SyntaxError::new("an alias to a value that contains it", range));
        };
        self.aliased += target.count();
        if self.aliased > MAX_ALIASED {
            return Err(SyntaxError::new(format!("aliases add more than {MAX_ALIASED} values"), range));
        }
        let mut node = target.clone();
        node.mark(NodeOrigin::Alias);
        node.span = range;
        Ok(node)
    }

    /// Adds a finished value to its parent.
    fn complete(&mut self, mut node: SpanTree<'a>, anchor: usize, merge: bool) -> Result<(), SyntaxError> {
        if anchor > 0 {
            node.mark(NodeOrigin::Anchored);
            self.anchored.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut parent.node.value {
            Value::Seq(items) => items.push(node),
            Value::Map(entries) => match parent.key.take() {
                None => {
                    let span = node.span.clone();
                    let text = key_text(node.value)
                        .ok_or_else(|| SyntaxError::new("a list or map cannot be a key", span.clone()))?;
                    parent.key = Some(Key { text, span, merge });
                }
                Some(key) if key.merge => {
                    if parent.merged.is_some() {
                        return Err(SyntaxError::new("a second merge key in one map", key.span));
                    }
                    let keys = merge_into(entries, node, &key.span)?;
                    parent.merged = Some(Merged { keys, ..Merged::default() });
                }
                Some(key) => {
                    if let Some(merged) = &mut parent.merged
                        && let Some(text) = merged.keys.take(&key.text)
                    {
                        merged.overridden.insert(text);
                    }
                    entries.push(Entry { key: key.text, key_span: key.span, value: node });
                }
            },
            _ => {}
        }
        Ok(())
    }
}

/// Adds the entries of a merge key's map or maps where no written key exists; earlier maps win.
/// Returns the keys of those entries.
fn merge_into<'a>(
    entries: &mut Vec<Entry<'a>>,
    node: SpanTree<'a>,
    at: &Range<usize>,
) -> Result<HashSet<Cow<'a, str>>, SyntaxError> {
    let maps = match node.value {
        Value::Map(_) => vec![node],
        Value::Seq(items) => items,
        _ => return Err(SyntaxError::new("a merge key needs a map", at.clone())),
    };
    let mut have: HashSet<Cow<'a, str>> = entries.iter().map(|entry| entry.key.clone()).collect();
    let mut added = HashSet::new();
    for map in maps {
        let Value::Map(shown) = map.value else {
            return Err(SyntaxError::new("a merge key needs a map", at.clone()));
        };
        for mut entry in shown {
            if have.insert(entry.key.clone()) {
                added.insert(entry.key.clone());
                entry.value.mark(NodeOrigin::Merged);
                entry.key_span = at.clone();
                entry.value.span = at.clone();
                entries.push(entry);
            }
        }
    }
    Ok(added)
}

/// Returns the end of a block map's own text; entries of a merge key end where the key does.
fn written_end(entries: &[Entry<'_>]) -> Option<usize> {
    entries.iter().map(|entry| entry.value.span.end.max(entry.key_span.end)).max()
}

/// Returns the `-` of the list item that starts at an offset. The parser does not report its place when a
/// list is indented no deeper than its key.
fn dash_before(text: &str, item: usize) -> Option<usize> {
    let mut end = item;
    loop {
        let line_start = text.get(..end)?.rfind('\n').map_or(0, |at| at + 1);
        let line = &text[line_start..end];
        // On the item's own line only blanks, an anchor or a tag may be between; on lines above, a comment.
        let code = if end == item { line } else { line.find(" #").map_or(line, |at| &line[..at]) };
        let code = if code.trim_start().starts_with('#') { "" } else { code.trim_end() };
        if let Some(dash) = code.rmatch_indices('-').map(|(at, _)| at).find(|&at| {
            let before = code[..at].chars().next_back();
            let behind = code[at + 1..].chars().next();
            before.is_none_or(char::is_whitespace) && behind.is_none_or(char::is_whitespace)
        }) {
            return Some(line_start + dash);
        }
        end = line_start.checked_sub(1)?;
    }
}

/// Returns the `|` or `>` of the block scalar whose text starts at an offset, where the parser reports its
/// start.
fn block_start(text: &str, content: usize) -> Option<usize> {
    let mut end = content;
    loop {
        let line_start = text.get(..end)?.rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..end].trim_end_matches('\r');
        if let Some((at, _)) = line.match_indices(['|', '>']).find(|&(at, _)| is_block_header(line, at)) {
            return Some(line_start + at);
        }
        if !line.trim().is_empty() {
            return None;
        }
        end = line_start.checked_sub(1)?;
    }
}

/// Returns whether a line ends in a block scalar's header that starts at an offset: `|2-  # comment`.
fn is_block_header(line: &str, at: usize) -> bool {
    let rest = line[at + 1..].trim_start_matches(|c: char| matches!(c, '+' | '-') || c.is_ascii_digit());
    let behind = rest.trim_start();
    line[..at].chars().next_back().is_none_or(char::is_whitespace)
        && (behind.is_empty() || (behind.starts_with('#') && rest.len() > behind.len()))
}

/// Returns the end of a block scalar. Its span may include the next line's indentation: the scalar ends
/// after its last line break, or at the end of the text.
fn block_end(text: &str, range: &Range<usize>) -> usize {
    if range.end >= text.len() && !text.ends_with([' ', '\t']) {
        return range.end.min(text.len());
    }
    text.get(range.clone()).and_then(|slice| slice.rfind('\n')).map_or(range.end, |at| range.start + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn data(text: &str) -> serde_json::Value {
        yaml(text).unwrap().root.to_json()
    }

    #[test]
    fn every_span_holds_the_text_of_its_value() {
        let text = "a: 1\nb:\n- x: 'q'\n  y: \"d\"\n-   z\nc: {k: [v, w]}\nd: |\n  one\n  two\ne: >-\n  folded\n  text\nf:\ng: ü\n";
        let document = yaml(text).unwrap();
        let slice = |path: &[&str]| &text[document.root.at(path.iter().copied()).unwrap().span.clone()];
        assert_eq!(slice(&["a"]), "1");
        assert_eq!(slice(&["b"]), "- x: 'q'\n  y: \"d\"\n-   z");
        assert_eq!(slice(&["b", "0"]), "x: 'q'\n  y: \"d\"");
        assert_eq!(slice(&["b", "0", "x"]), "'q'");
        assert_eq!(slice(&["b", "1"]), "z");
        assert_eq!(slice(&["c"]), "{k: [v, w]}");
        assert_eq!(slice(&["c", "k"]), "[v, w]");
        assert_eq!(slice(&["d"]), "|\n  one\n  two\n");
        assert_eq!(slice(&["e"]), ">-\n  folded\n  text\n");
        assert_eq!(slice(&["g"]), "ü");
        assert!(document.root.get("f").unwrap().is_null());
    }

    #[test]
    fn a_block_scalar_starts_at_its_header() {
        for (text, expected) in [
            ("d: |\n  x\n", "|\n  x\n"),
            ("d: |\n\n  x\n\n", "|\n\n  x\n\n"),
            ("d: >2- # a | b\n    x\ne: 1\n", ">2- # a | b\n    x\n"),
            ("d: |\ne: 1\n", "|\n"),
            ("d: |-\n  x", "|-\n  x"),
            ("d: |\n  x |\n  y\n", "|\n  x |\n  y\n"),
            ("d: &a !!str |\n  x | y\n  z\n", "|\n  x | y\n  z\n"),
            ("d: |\r\n  x\r\ne: 1\r\n", "|\r\n  x\r\n"),
        ] {
            let document = yaml(text).unwrap();
            assert_eq!(&text[document.root.get("d").unwrap().span.clone()], expected, "{text:?}");
        }
    }

    #[test]
    fn a_list_starts_at_its_dash() {
        for (text, start) in [
            ("a:\n- b\n", 3),
            ("a:\n  - b\n", 5),
            ("a:\n- - b\n", 3),
            ("a:\n-   &x b\n", 3),
            ("a:\n-   !!str b\n", 3),
            ("a:\n- # why - not\n  b: 1\n", 3),
            ("a:\n-\n\n  # - no\n  b: 1\n", 3),
            ("a:\n-\n- b\n", 3),
            ("- a\n- b\n", 0),
        ] {
            let document = yaml(text).unwrap();
            let list = document.root.get("a").unwrap_or(&document.root);
            assert_eq!(list.span.start, start, "{text:?} {list:?}");
        }
    }

    #[test]
    fn the_last_of_two_equal_keys_wins_and_the_first_is_noted() {
        let document = yaml("a: 1\nb: 2\na: 3\n").unwrap();
        assert_eq!(document.root.get("a").unwrap().value, Value::Int(3));
        assert_eq!(document.duplicates, [Duplicate { key: "a".into(), span: 0..1 }]);
        assert_eq!(document.root.to_json(), json!({"a": 3, "b": 2}));
    }

    #[test]
    fn aliases_and_merge_keys_are_shown_and_marked() {
        let text = "base: &b {x: 1, w: 2}\nuse: *b\nover:\n  w: 3\n  <<: *b\n  z: 4\n";
        let document = yaml(text).unwrap();
        assert_eq!(
            document.root.to_json(),
            json!({"base": {"x": 1, "w": 2}, "use": {"x": 1, "w": 2}, "over": {"w": 3, "x": 1, "z": 4}})
        );
        let origin = |path: &[&str]| document.root.at(path.iter().copied()).unwrap().origin;
        assert_eq!(origin(&["base", "x"]), NodeOrigin::Anchored);
        assert_eq!(origin(&["use", "x"]), NodeOrigin::Alias);
        assert_eq!(origin(&["over", "x"]), NodeOrigin::Merged);
        assert_eq!(origin(&["over", "z"]), NodeOrigin::Written);
    }

    #[test]
    fn a_written_key_behind_a_merge_key_wins() {
        assert_eq!(data("b: &b {x: 1}\nc:\n  <<: *b\n  x: 2\n")["c"], json!({"x": 2}));
    }

    #[test]
    fn keys_are_texts_as_kubectl_makes_them() {
        assert_eq!(data("1: a\non: b\n1.5: c\n"), json!({"1": "a", "true": "b", "1.5": "c"}));
    }

    #[test]
    fn bombs_are_refused_quickly() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(yaml(&bomb).unwrap_err().message.contains("aliases add"));
        assert!(yaml(&"[".repeat(100_000)).is_err());
        assert!(yaml(&"- ".repeat(100_000)).is_err());
        assert!(yaml("a: \0").is_err());
        assert!(yaml("a: &a [*a]").is_err());
        assert!(yaml("a: .inf").is_err());
    }

    #[test]
    fn each_document_has_a_text_of_its_own() {
        for text in [
            "a: 1\n...\nb: 2\n",
            "a: 1\n---\n# nothing\n---\nb: 2\n...\n---\nc: 3",
            "%YAML 1.2\n---\na: 1\n...\n# c\n%YAML 1.2\n---\nb: 1\n",
            "a: |\n  x\n...\n# before\n\nb: ü\n# end\n",
            "--- a\n--- b\n",
            "a: 1\r\n... # c\r\nb: 2\r\n...\r\n",
            "- x\n...\n\n- y\n...\n\n",
        ] {
            let texts = yaml_texts(text).unwrap();
            assert_eq!(texts.concat(), text);
            let own: Vec<_> = texts.iter().map(|text| yaml(text).unwrap().root.to_json()).collect();
            let all: Vec<_> = yaml_documents(text).unwrap().iter().map(|one| one.root.to_json()).collect();
            assert_eq!(own, all, "{text:?} {texts:?}");
        }
    }

    #[test]
    fn documents_are_told_apart() {
        let documents = yaml_documents("a: 1\n---\n# nothing\n---\nb: 2\n...\n---\nc: 3").unwrap();
        let all: Vec<_> = documents.iter().map(|d| d.root.to_json()).collect();
        assert_eq!(all, [json!({"a": 1}), json!(null), json!({"b": 2}), json!({"c": 3})]);
    }
}
