//! Changes inside a multi-line quoted or plain scalar that keep the lines that need not change.

use std::ops::Range;

use weftrun_core::span::Style;

/// Most words of a scalar that are compared.
const MOST_WORDS: usize = 4000;

/// Returns the replacements, in the scalar's source, that give it the wanted value; none if they cannot be
/// found, and the scalar must be rewritten.
pub(super) fn changes(
    source: &str,
    style: Style,
    old: &str,
    new: &str,
) -> Option<Vec<(Range<usize>, String)>> {
    if !source.contains('\n') {
        return None;
    }
    let places = places(source, style, old)?;
    let (old_words, new_words) = (words(old), words(new));
    if old_words.len().max(new_words.len()) > MOST_WORDS {
        return None;
    }
    let mut found = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < old_words.len() || b < new_words.len() {
        if old_words.get(a).map(|word| word.1) == new_words.get(b).map(|word| word.1) {
            (a, b) = (a + 1, b + 1);
            continue;
        }
        let (gone, come) = resync(old_words.get(a..)?, new_words.get(b..)?);
        let start = old_words.get(a).map_or(old.len(), |word| word.0);
        let end = old_words.get(a + gone).map_or(old.len(), |word| word.0);
        let text: String = new_words.get(b..b + come)?.iter().map(|word| word.1).collect();
        let range = places.get(start)?.start..places.get(end)?.start;
        found.push((range, encoded(&text, style)?));
        (a, b) = (a + gone, b + come);
    }
    Some(found)
}

/// Splits into words and the blanks between them, each with its place.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut blank: Option<bool> = None;
    for (at, char) in text.char_indices() {
        if blank.is_some_and(|blank| blank != char.is_whitespace()) {
            found.push((start, text.get(start..at).unwrap_or_default()));
            start = at;
        }
        blank = Some(char.is_whitespace());
    }
    if start < text.len() {
        found.push((start, text.get(start..).unwrap_or_default()));
    }
    found
}

/// Returns how many words were removed and how many were added before both lists have two equal words
/// again.
fn resync(old: &[(usize, &str)], new: &[(usize, &str)]) -> (usize, usize) {
    let alike = |gone: usize, come: usize| {
        (0..2)
            .all(|ahead| old.get(gone + ahead).map(|word| word.1) == new.get(come + ahead).map(|word| word.1))
    };
    for distance in 1..=(old.len() + new.len()).min(200) {
        for gone in 0..=distance.min(old.len()) {
            let come = distance - gone;
            if come <= new.len() && alike(gone, come) {
                return (gone, come);
            }
        }
    }
    (old.len(), new.len())
}

/// Returns the place in the source of each byte of the value, and of its end. None if the source uses
/// unsupported syntax: rare escapes, or a break that ends in a backslash.
fn places(source: &str, style: Style, value: &str) -> Option<Vec<Range<usize>>> {
    let quote = match style {
        Style::DoubleQuoted => Some('"'),
        Style::SingleQuoted => Some('\''),
        Style::Plain => None,
        _ => return None,
    };
    let inner = match quote {
        Some(quote) => 1..source.strip_suffix(quote)?.len(),
        None => 0..source.len(),
    };
    let mut places: Vec<Range<usize>> = Vec::with_capacity(value.len() + 1);
    let mut at = inner.start;
    while at < inner.end {
        let rest = source.get(at..inner.end)?;
        let char = rest.chars().next()?;
        let blanks = rest.len() - rest.trim_start().len();
        let breaks = rest.get(..blanks)?.matches('\n').count();
        let (taken, said) = if breaks > 0 {
            (blanks, if breaks == 1 { " ".to_owned() } else { "\n".repeat(breaks - 1) })
        } else {
            match (char, rest.chars().nth(1)) {
                ('\\', Some(next @ ('"' | '\\' | '/'))) if quote == Some('"') => (2, next.to_string()),
                ('\\', Some('n')) if quote == Some('"') => (2, "\n".to_owned()),
                ('\\', Some('t')) if quote == Some('"') => (2, "\t".to_owned()),
                ('\\', _) if quote == Some('"') => return None,
                ('\'', Some('\'')) if quote == Some('\'') => (2, "'".to_owned()),
                _ => (char.len_utf8(), char.to_string()),
            }
        };
        if !value.get(places.len()..)?.starts_with(&said) {
            return None;
        }
        places.extend(said.bytes().map(|_| at..at + taken));
        at += taken;
    }
    places.push(inner.end..inner.end);
    (places.len() == value.len() + 1).then_some(places)
}

/// Returns a text as it is written inside a scalar of a style.
fn encoded(text: &str, style: Style) -> Option<String> {
    if text.chars().any(char::is_control) {
        return None;
    }
    Some(match style {
        Style::DoubleQuoted => text.replace('\\', "\\\\").replace('"', "\\\""),
        Style::SingleQuoted => text.replace('\'', "''"),
        _ => text.to_owned(),
    })
}
