//! Findings shown with their line in the file, and a caret under the position.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use weftrun::core::finding::Span;
use weftrun::core::mask;
use weftrun::{Finding, Severity};

/// Texts of the files that were read, so that a line can be shown without reading the file again: it may be
/// stdin, or have changed. The process reads only a few small files.
static TEXTS: Mutex<BTreeMap<String, Text>> = Mutex::new(BTreeMap::new());

/// The text of a file.
struct Text {
    text: String,
    /// Whether its secrets are hidden, which is done when a line of it is first shown.
    hidden: bool,
}

impl Text {
    /// Returns the text with its secrets hidden; every byte stays where it was.
    fn shown(&mut self) -> &str {
        if !std::mem::replace(&mut self.hidden, true) {
            for span in mask::spans(&self.text) {
                let stars = "*".repeat(span.len());
                self.text.replace_range(span, &stars);
            }
        }
        &self.text
    }
}

/// Lines longer than this are not shown.
const MAX_LINE: usize = 400;

/// Stores the text of a file under its name in findings.
pub fn remember(file: &str, bytes: &[u8]) {
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        texts().insert(file.to_owned(), Text { text: text.to_owned(), hidden: false });
    }
}

fn texts() -> std::sync::MutexGuard<'static, BTreeMap<String, Text>> {
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the finding with its line and a caret; none if its file was not read, or the line cannot be shown.
pub fn shown(finding: &Finding) -> Option<String> {
    let span = finding.span.as_ref()?;
    let mut texts = texts();
    let (line, at) = line_of(texts.get_mut(&span.file)?.shown(), span)?;
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Info => Level::NOTE,
    };
    let (line, at) = plain_line(line, at);
    let snippet = Snippet::source(&line)
        .path(clean(&span.file))
        .line_start(span.line)
        .annotation(AnnotationKind::Primary.span(at));
    let message = clean(&finding.message);
    let mut group = level.primary_title(message).id(finding.code.clone()).element(snippet);
    if let Some(fix) = &finding.fix {
        group = group.element(Level::HELP.message(clean(&fix.text)));
    }
    Some(Renderer::styled().render(&[group]))
}

/// Returns the line in which a span begins, and its part of that line.
fn line_of<'t>(text: &'t str, span: &Span) -> Option<(&'t str, std::ops::Range<usize>)> {
    // A long line is not searched for its ends, which would take long for each of many findings in it.
    let before = text.get(..span.start)?.as_bytes();
    let near = before.len().saturating_sub(MAX_LINE + 1);
    let from = match memchr::memrchr(b'\n', &before[near..]) {
        Some(at) => near + at + 1,
        None if near == 0 => 0,
        None => return None,
    };
    let rest = &text.as_bytes()[from..];
    let end = memchr::memchr(b'\n', &rest[..rest.len().min(MAX_LINE + 2)]);
    let line = text.get(from..from + end.unwrap_or(rest.len()))?;
    let line = line.strip_suffix('\r').filter(|_| end.is_some()).unwrap_or(line);
    if line.len() > MAX_LINE {
        return None;
    }
    let start = (span.start - from).min(line.len());
    let end = span.end.saturating_sub(from).clamp(start, line.len());
    Some((line, start..if line.is_char_boundary(end) { end } else { line.len() }))
}

/// Returns a line with a symbol in place of each control character, and the adjusted range.
fn plain_line(line: &str, at: std::ops::Range<usize>) -> (String, std::ops::Range<usize>) {
    let mut plain = String::with_capacity(line.len());
    let (mut start, mut end) = (None, None);
    for (index, c) in line.char_indices() {
        start = start.or((index >= at.start).then_some(plain.len()));
        end = end.or((index >= at.end).then_some(plain.len()));
        let obeyed = c != '\t' && c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        plain.push(if obeyed { '\u{fffd}' } else { c });
    }
    let whole = plain.len();
    (plain, start.unwrap_or(whole)..end.unwrap_or(whole))
}

/// Returns text of a file without control characters.
fn clean(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => {
                let _ = write!(out, "{}", c.escape_unicode());
            }
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(file: &str, text: &str, part: &str) -> Finding {
        let start = text.find(part).unwrap();
        let line = text[..start].matches('\n').count() + 1;
        let span = Span { file: file.to_owned(), start, end: start + part.len(), line, column: 1 };
        Finding::error("SPEC-QUANTITY", "`memory`: `64GB` is not a quantity")
            .fix("did you mean `64Gi`?")
            .span(span)
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_finding_is_drawn_under_its_line() {
        let text = "name = \"a\"\nmemory = \"64GB\" # all of it\n";
        remember("draw.toml", text.as_bytes());
        insta::assert_snapshot!(plain(&shown(&finding("draw.toml", text, "\"64GB\"")).unwrap()));
    }

    #[test]
    fn hostile_lines_reach_no_terminal() {
        let text = "a: \"\u{1b}]52;c;AAAA\u{7}\u{202e}x\"\n";
        remember("hostile.yaml", text.as_bytes());
        let drawn = plain(&shown(&finding("hostile.yaml", text, "a:")).unwrap());
        assert!(!drawn.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{drawn:?}");
        let long = format!("k: {}\n", "x".repeat(10_000));
        remember("long.yaml", long.as_bytes());
        assert_eq!(shown(&finding("long.yaml", &long, "k:")), None);
        assert_eq!(shown(&finding("unread.yaml", "k: 1", "k")), None);
    }
}
