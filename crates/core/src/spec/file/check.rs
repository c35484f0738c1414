//! Checks a tree against the table of keys, and reports every mistake.

use std::ops::Range;

use super::keys::{CODE, FABRIC_TABLE, ROLE};
use super::shape::{Shape, Table, Word};
use super::value::{self, Source};
use crate::Finding;
use crate::request::{FabricRule, RULES};
use crate::span::{SpanTree, Value};
use crate::text::quantity::Quantity;

/// Most findings that are reported: more are not read, and a hostile file could have many.
const MAX_FINDINGS: usize = 100;

/// What was found so far.
pub(crate) struct Check<'s> {
    source: Source<'s>,
    /// The name of the document, for messages.
    whole: &'static str,
    findings: Vec<Finding>,
    /// Paths of the keys that misspelt ones probably meant: they are not missing.
    meant: Vec<String>,
}

impl<'s> Check<'s> {
    pub fn new(source: Source<'s>, whole: &'static str) -> Self {
        Self { source, whole, findings: Vec::new(), meant: Vec::new() }
    }

    /// Returns the findings, and the paths of the keys that were probably meant.
    pub fn into_parts(self) -> (Vec<Finding>, Vec<String>) {
        (self.findings, self.meant)
    }

    /// Checks a table.
    pub fn table(&mut self, node: &SpanTree<'_>, table: &'static Table, path: &str) {
        if !matches!(node.value, Value::Map(_)) {
            return self.wrong_kind(node, "a table", path);
        }
        for entry in node.entries() {
            if self.findings.len() >= MAX_FINDINGS {
                return;
            }
            match table.key(&entry.key) {
                Some(key) => self.shape(&entry.value, &key.shape, &join(path, key.name)),
                None => self.unknown(&entry.key, &entry.key_span, table, path),
            }
        }
        for key in table.keys.iter().filter(|key| !key.aliases.is_empty()) {
            let mut found = node.entries().iter().filter(|entry| key.is(&entry.key));
            if let (Some(first), Some(second)) = (found.next(), found.next())
                && first.key != second.key
            {
                let message = format!("`{}` and `{}` are the same key, set twice", first.key, second.key);
                self.push("SPEC-DUPLICATE-KEY", message, path, &second.key_span, None);
            }
        }
        if table.name == CODE.name {
            self.code(node, path);
        }
        // The file's own required keys are checked after flags and defaults are applied.
        for key in table.keys.iter().filter(|key| key.required && !table.name.is_empty()) {
            if !node.entries().iter().any(|entry| key.is(&entry.key)) {
                let message = format!("`{path}` needs `{}`: {}", key.name, lower_first(key.doc));
                let fix = (!key.example.is_empty())
                    .then(|| format!("for example `{} = {}`", key.name, key.example));
                self.push("SPEC-MISSING", message, path, &node.span, fix);
            }
        }
    }

    /// Checks `code`, which is a script, a repository or a folder: parts of another one would be dropped.
    fn code(&mut self, node: &SpanTree<'_>, path: &str) {
        let has = |key: &str| node.get(key).is_some();
        let kinds = ["script", "git", "dir"].into_iter().filter(|key| has(key)).count();
        let message = match kinds {
            0 if has("text") => "`text` belongs to a script, which `script` names",
            0 if has("ref") => "`ref` belongs to a repository, which `git` names",
            0 => "none of `script`, `git` and `dir` is set",
            1 if has("text") && !has("script") => "`text` belongs to a script, which `script` names",
            1 if has("ref") && !has("git") => "`ref` belongs to a repository, which `git` names",
            1 => return,
            _ => "a job has one of a script, a repository and a folder",
        };
        let fix = "set `script`, with `text` if it is not a file, or `git`, with `ref` if it is not the default branch, or `dir`";
        self.push("SPEC-CODE", format!("`{path}`: {message}"), path, &node.span, Some(fix.to_owned()));
    }

    fn unknown(&mut self, name: &str, span: &Range<usize>, table: &'static Table, path: &str) {
        let place = if path.is_empty() { self.whole.to_owned() } else { format!("`{path}`") };
        let fix = match table.meant(name) {
            Some(key) => {
                self.meant.push(join(path, key));
                format!("did you mean `{key}`?")
            }
            None if path.is_empty() && FABRIC_TABLE.key(name).is_some() => {
                format!("did you mean `fabric.{name}`?")
            }
            None if ROLE.key(name).is_some() => format!("`{name}` belongs to a role: `[roles.NAME]`"),
            None => {
                let known: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
                format!("known are {}", known.join(", "))
            }
        };
        let message = format!("{place} has no key `{}`", shown(name));
        self.push("SPEC-UNKNOWN-KEY", message, &join(path, name), span, Some(fix));
    }

    fn shape(&mut self, node: &SpanTree<'_>, shape: &'static Shape, path: &str) {
        if self.findings.len() >= MAX_FINDINGS {
            return;
        }
        match shape {
            Shape::Any => self.any(node, path),
            Shape::Text => self.want(node, value::text(node).is_some(), shape, path),
            Shape::Scalar => self.scalar(node, path),
            Shape::Texts => self.want(node, value::texts(node).is_some(), shape, path),
            Shape::Values => self.want(node, value::values(node, self.source).is_some(), shape, path),
            Shape::Command => self.command(node, path),
            Shape::Bool => self.want(node, value::bool(node).is_some(), shape, path),
            Shape::Count { min } => self.count(node, *min, shape, path),
            Shape::Quantity => self.quantity(node, shape, path),
            Shape::Duration => self.duration(node, shape, path),
            Shape::Word(words) => self.word(node, words, shape, path),
            Shape::Gid => self.want(node, value::gid(node).is_some(), shape, path),
            Shape::Rules(words) => self.rules(node, words, path),
            Shape::Map(inner) => self.map(node, inner, path),
            Shape::Table(table) => self.table(node, table, path),
            Shape::Named(table) => self.named(node, table, path),
            Shape::OneOf(shapes) => self.one_of(node, shapes, shape, path),
        }
    }

    /// Refuses null: TOML and the builder have none, and passed-on values must not depend on the syntax
    /// they were written in.
    fn any(&mut self, node: &SpanTree<'_>, path: &str) {
        if node.is_null() {
            self.wrong_kind(node, "a value (TOML has no null)", path);
        }
        for entry in node.entries() {
            self.any(&entry.value, &join(path, &entry.key));
        }
        for (at, item) in node.items().iter().enumerate() {
            self.any(item, &join(path, &at.to_string()));
        }
    }

    fn want(&mut self, node: &SpanTree<'_>, good: bool, shape: &Shape, path: &str) {
        if !good {
            self.wrong_kind(node, &shape.expected(), path);
        }
    }

    fn wrong_kind(&mut self, node: &SpanTree<'_>, expected: &str, path: &str) {
        let name = if path.is_empty() { self.whole.to_owned() } else { format!("`{path}`") };
        let message = if node.is_null() {
            format!("{name} has no value; it must be {expected}")
        } else {
            let got = match &node.value {
                // Where a number is accepted, its value is more useful than its kind.
                Value::Int(number) if expected.contains("number") => number.to_string(),
                Value::UInt(number) if expected.contains("number") => number.to_string(),
                // Users do not choose the kind of a flag's text.
                Value::Str(text) if self.source.text.is_empty() => format!("`{}`", shown(text)),
                _ => node.kind().to_owned(),
            };
            format!("{name} must be {expected}, not {got}")
        };
        let quotable =
            matches!(node.value, Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Bool(_));
        let raw = self.source.raw(node).filter(|_| quotable && expected.contains("string"));
        let fix = raw.map(|raw| format!("put it in quotes: \"{raw}\""));
        self.push("SPEC-TYPE", message, path, &node.span, fix);
    }

    fn scalar(&mut self, node: &SpanTree<'_>, path: &str) {
        if value::scalar(node, self.source).is_some() {
            return;
        }
        let fix = match (&node.value, self.source.raw(node)) {
            (Value::Map(_) | Value::Seq(_) | Value::Null, _) | (_, None) => None,
            (_, Some(raw)) => Some(format!("put it in quotes, so that it reads one way only: \"{raw}\"")),
        };
        let message = format!("`{path}` must be a string, not {}", node.kind());
        self.push("SPEC-TYPE", message, path, &node.span, fix);
    }

    fn command(&mut self, node: &SpanTree<'_>, path: &str) {
        match value::command(node, self.source) {
            Ok(Some(_)) => {}
            Ok(None) => self.wrong_kind(node, "a list of strings, or one string", path),
            Err(why) => {
                let fix = "for a shell, write `[\"sh\", \"-c\", \"…\"]`".to_owned();
                self.push("SPEC-COMMAND", format!("`{path}` {why}"), path, &node.span, Some(fix));
            }
        }
    }

    fn count(&mut self, node: &SpanTree<'_>, min: u32, shape: &Shape, path: &str) {
        match node.value {
            Value::Int(number) if u32::try_from(number).is_ok_and(|n| n >= min) => {}
            Value::Int(number) => {
                let most = || format!("at most {}", u32::MAX);
                let wanted = if number > i64::from(u32::MAX) { most() } else { shape.expected() };
                let message = format!("`{path}` must be {wanted}, not {number}");
                self.push("SPEC-VALUE", message, path, &node.span, None);
            }
            _ => self.wrong_kind(node, &shape.expected(), path),
        }
    }

    fn quantity(&mut self, node: &SpanTree<'_>, shape: &Shape, path: &str) {
        let Some(text) = value::quantity(node, self.source) else {
            return self.wrong_kind(node, &shape.expected(), path);
        };
        if let Err(error) = Quantity::read(&text) {
            let meant: Vec<String> = error.meant().iter().map(|m| format!("`{m}`")).collect();
            let fix = match meant.as_slice() {
                [] => "a quantity is a number with a suffix such as `Mi`, `Gi`, `Ti`, `M`, `G` or none"
                    .to_owned(),
                [one] => format!("did you mean {one}?"),
                [decimal, binary, ..] => {
                    format!("did you mean {decimal} (powers of 1000) or {binary} (of 1024)?")
                }
            };
            self.push("SPEC-QUANTITY", format!("`{path}`: {error}"), path, &node.span, Some(fix));
        }
    }

    fn duration(&mut self, node: &SpanTree<'_>, shape: &Shape, path: &str) {
        let Some(text) = value::duration_text(node) else {
            return self.wrong_kind(node, &shape.expected(), path);
        };
        if crate::text::duration::parse(&text).is_none() {
            let message = format!("`{path}`: `{}` is not a duration", shown(&text));
            let fix = "write days, hours, minutes and seconds as `1d12h`, `90m`, `45s`".to_owned();
            self.push("SPEC-DURATION", message, path, &node.span, Some(fix));
        }
    }

    fn word(&mut self, node: &SpanTree<'_>, words: &'static [Word], all: &Shape, path: &str) {
        let expected = all.expected();
        let Some(text) = value::word_text(node, self.source) else {
            return self.wrong_kind(node, &expected, path);
        };
        if words.iter().any(|word| word.is(&text)) {
            return;
        }
        let near = match &*text {
            "false" => words.iter().map(|w| w.word).find(|w| matches!(*w, "off" | "no")),
            "true" => words.iter().map(|w| w.word).find(|w| matches!(*w, "on" | "yes")),
            text => crate::text::did_you_mean(text, words.iter().map(|w| w.word)),
        };
        let message = format!("`{path}` must be {expected}, not `{}`", shown(&text));
        let fix = near.map(|near| format!("did you mean `{near}`?"));
        self.push("SPEC-VALUE", message, path, &node.span, fix);
    }

    fn rules(&mut self, node: &SpanTree<'_>, words: &'static [Word], path: &str) {
        let Some(rules) = value::rules(node) else {
            return self.wrong_kind(node, "a table of rule ids, each `auto`, `on` or `off`", path);
        };
        for (id, value) in rules {
            let path = join(path, &id);
            self.word(value, words, &Shape::Word(words), &path);
            if FabricRule::get(&id).is_none() {
                let near = crate::text::suggestion(&id, RULES.iter().map(|rule| rule.id));
                let fix = near.unwrap_or_else(|| "`weftrun explain` lists the rules".to_owned());
                let message = format!("there is no rule `{}`", shown(&id));
                self.push("SPEC-RULE", message, &path, &value.span, Some(fix));
            }
        }
    }

    fn map(&mut self, node: &SpanTree<'_>, inner: &'static Shape, path: &str) {
        if !matches!(node.value, Value::Map(_)) {
            return self.wrong_kind(node, "a table", path);
        }
        for entry in node.entries() {
            self.shape(&entry.value, inner, &join(path, &entry.key));
        }
    }

    fn named(&mut self, node: &SpanTree<'_>, table: &'static Table, path: &str) {
        if !matches!(node.value, Value::Map(_)) {
            let expected = format!("a table of tables, `[{path}.NAME]`");
            return self.wrong_kind(node, &expected, path);
        }
        for entry in node.entries() {
            self.table(&entry.value, table, &join(path, &entry.key));
        }
    }

    /// Checks alternatives, which differ in kind (a word or a table), so the kind shows which one was
    /// meant.
    fn one_of(&mut self, node: &SpanTree<'_>, shapes: &'static [Shape], all: &Shape, path: &str) {
        let is_map = matches!(node.value, Value::Map(_));
        let fits = |shape: &&Shape| match shape {
            Shape::Table(_) => is_map,
            Shape::Bool => matches!(node.value, Value::Bool(_)),
            _ => !is_map && !matches!(node.value, Value::Seq(_) | Value::Null),
        };
        match shapes.iter().find(fits) {
            // The message of a wrong word names the other forms too.
            Some(Shape::Word(words)) => self.word(node, words, all, path),
            Some(shape) => self.shape(node, shape, path),
            None => self.wrong_kind(node, &all.expected(), path),
        }
    }

    fn push(&mut self, code: &str, message: String, path: &str, span: &Range<usize>, fix: Option<String>) {
        if self.findings.len() == MAX_FINDINGS {
            return;
        }
        let mut finding = Finding::error(code, message).at(path);
        finding.span = self.source.place(span);
        finding.fix = fix.map(|text| crate::finding::Fix { text, patch: Vec::new() });
        self.findings.push(finding);
    }
}

/// Returns a path with one more key, quoted where needed.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let key = if bare {
        shown(key)
    } else {
        format!("\"{}\"", shown(key).replace('\\', "\\\\").replace('"', "\\\""))
    };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// Returns a text of the user's, shortened for a message, without control characters.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut out: String =
        text.chars().take(MOST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
