//! Hides secrets in text that leaves this machine: reports, errors, messages, JSON. What a secret is, is said by its form
//! (`hf_…`), by the name of the setting that holds it (`GH_PAT=…`, `--token=…`), or by its place in a URL.

mod forms;
mod json;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::{Captures, Regex};
use serde_json::Value;

pub use json::mask_json;

use forms::{NAMES, PARSERS, TOKENIZER, TOKENS};

/// What stands for a secret.
pub(crate) const HIDDEN: &str = "…";

/// Returns whether what was found at a place is a secret.
type Holds = fn(&str) -> bool;

/// A place where a secret may be.
struct Rule {
    hint: Hint,
    text: Regex,
    holds: Holds,
}

/// What a text has in which a rule can find something; most texts have none of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hint {
    /// A word as long as a token.
    LongWord,
    /// A part of the name of a secret.
    Name,
    Url,
    Header,
    Key,
}

/// The words of each hint, in any case.
const HINTS: [(Hint, &[&str]); 4] = [
    (
        Hint::Name,
        &[
            "token",
            "secret",
            "passw",
            "passphrase",
            "pwd",
            "key",
            "credential",
            "\"auth",
            "_cred",
            "-cred",
            "_pat",
            "-pat",
            "_jwt",
            "-jwt",
        ],
    ),
    (Hint::Url, &["://"]),
    (Hint::Header, &["bearer", "basic"]),
    (Hint::Key, &["-----begin"]),
];
/// The length of the shortest token with a known form.
const SHORTEST: usize = 16;

static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = HINTS.iter().flat_map(|(_, words)| *words);
    AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok()
});

/// Returns the hints of a text.
fn hints(text: &str) -> Vec<Hint> {
    let of = HINTS.iter().flat_map(|(hint, words)| words.iter().map(|_| *hint)).collect::<Vec<_>>();
    let mut hints = Vec::new();
    let found = WORDS.iter().flat_map(|words| words.find_iter(text));
    for hint in found.filter_map(|word| of.get(word.pattern().as_usize()).copied()) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.~+=".contains(byte);
    if text.as_bytes().split(|byte| !in_word(byte)).any(|word| word.len() >= SHORTEST) {
        hints.push(Hint::LongWord);
    }
    hints
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // The beginning of a value in quotes, or of a word: a search that fails at one name must not run to the end of the
    // text at each. What is hidden goes to the end of the value.
    let value = r#"(?:"([^"\n]{1,256})|'([^'\n]{1,256})|([^\s"'`,;&|)\]}]{1,256}))"#;
    let rules: [(Hint, String, Holds); 10] = [
        (
            Hint::Key,
            r"(-----BEGIN[ A-Z0-9]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END[ A-Z0-9]*-----|\z))"
                .to_owned(),
            |_| true,
        ),
        (Hint::LongWord, format!(r"(?-u)\b({})", TOKENS.join("|")), is_mixed),
        (Hint::Url, r#"(?i)\b[a-z][a-z0-9+.-]*://[^\s/@:"'<>]*:([^\s@"'<>/]+)@"#.to_owned(), is_value),
        (Hint::Url, r#"(?i)\bhttps?://([^\s/@:"'<>]+)(?::[^\s@"'<>/]*)?@"#.to_owned(), |user| {
            is_value(user) && !is_user(user)
        }),
        (
            Hint::Header,
            r#"(?i)(?:\bbearer|authorization["']?[ \t]*[:=][ \t]*["']?basic)\s+([a-z0-9._~+/=-]{8,})"#
                .to_owned(),
            is_mixed,
        ),
        // A registry's login in docker's configuration.
        (Hint::Name, r#"\\?"auth\\?"\s*:\s*\\?"([0-9A-Za-z+/=]{8,})"#.to_owned(), is_value),
        // `--token=x`, and the words `--token x` of a list or a line.
        (Hint::Name, format!(r#"(?i)(?:^|[^\w-])--?[\w.-]*{NAMES}(?:=|["']\s*,\s*){value}"#), is_value),
        (Hint::Name, format!(r"(?i)(?:^|[^\w-])--?[\w.-]*{NAMES}[ \t]+{value}"), is_likely),
        // `NAME=x`, `"name": "x"`, and the two lines of a variable in a manifest.
        (
            Hint::Name,
            format!(
                r#"(?i)[\w.-]*{NAMES}(?:["']?[ \t]*=[ \t]*|["'][ \t]*:[ \t]*|["']?\s*,?\s*["']?value["']?[ \t]*:[ \t]*){value}"#
            ),
            is_value,
        ),
        (Hint::Name, format!(r"(?i)[\w.-]*{NAMES}:[ \t]+{value}"), is_likely),
    ];
    let rule = |(hint, text, holds): (Hint, String, Holds)| {
        let text = Regex::new(&text).ok()?;
        Some(Rule { hint, text, holds })
    };
    rules.into_iter().filter_map(rule).collect()
});

static NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("(?i)(?:^|[_.-]|[a-z]){NAMES}$|^(?:pat|jwt)$")).ok());

/// Returns a text with `…` in the place of each secret.
///
/// ```
/// use weftrun_core::mask::mask;
/// assert_eq!(mask("train --token=abc123 https://me:pw@host/x"), "train --token=… https://me:…@host/x");
/// let digest = "image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// assert_eq!(mask(digest), digest);
/// ```
pub fn mask(text: &str) -> Cow<'_, str> {
    let spans = spans(text);
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    for span in spans {
        shown.push_str(text.get(from..span.start).unwrap_or_default());
        shown.push_str(HIDDEN);
        from = span.end;
    }
    shown.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(shown)
}

/// Returns where the secrets of a text are, in order and apart.
pub fn spans(text: &str) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    let hints = hints(text);
    if hints.is_empty() {
        return all;
    }
    for rule in RULES.iter().filter(|rule| hints.contains(&rule.hint)) {
        let mut from = 0;
        // After a value, so that the value of one name may be the name of the next (`--password --token=x`).
        while let Some(found) = rule.text.captures_at(text, from) {
            let whole = found.get(0).map_or(text.len(), |whole| whole.end());
            let (Some(value), true) = (secret(&found), whole > from) else { break };
            let start = found.get(0).map_or(value.start(), |all| all.start());
            let name = text.get(start..value.start()).unwrap_or_default();
            let named = rule.hint == Hint::Name;
            let holds = !(named && is_ordinary(text.get(..start).unwrap_or_default(), name))
                && (rule.holds)(value.as_str());
            let end = if holds && named { end_of_value(text, &value) } else { value.end() };
            // Only a name may stand in the value of another.
            from = if holds || !named { whole.max(end) } else { value.start().max(from + 1) };
            while !text.is_char_boundary(from) {
                from += 1;
            }
            if holds {
                all.push(value.start()..end);
            }
        }
    }
    all.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    all.dedup_by(|next, kept| {
        let overlaps = next.start < kept.end;
        kept.end = if overlaps { kept.end.max(next.end) } else { kept.end };
        overlaps
    });
    all
}

/// Returns whether what stands before a value is no name of a secret: a secret of the cluster (`secrets.HF_TOKEN`), a token
/// of a tokenizer, or the message of a parser (`unexpected token: `).
fn is_ordinary(before: &str, name: &str) -> bool {
    let name = name.trim_start();
    let word = name.trim_end_matches(|end: char| !end.is_ascii_alphanumeric());
    let parser = || {
        let last = before.trim_end().rsplit(|of: char| !of.is_ascii_alphabetic()).next().unwrap_or_default();
        PARSERS.iter().any(|word| last.eq_ignore_ascii_case(word))
    };
    name.starts_with("secrets.") || is_of_tokenizer(word) || name.contains(':') && parser()
}

/// Returns whether a name is that of a tokenizer's token: `--pad_token`, `IMAGE_TOKEN`.
fn is_of_tokenizer(name: &str) -> bool {
    let Some(at) = name.len().checked_sub("token".len()) else { return false };
    let (Some(head), Some(tail)) = (name.get(..at), name.get(at..)) else { return false };
    let head = head.trim_end_matches(['_', '-']);
    let word = head.rsplit(|of: char| !of.is_ascii_alphanumeric()).next().unwrap_or_default();
    tail.eq_ignore_ascii_case("token") && TOKENIZER.iter().any(|of| word.eq_ignore_ascii_case(of))
}

/// Returns the end of a value, of which only the beginning may have been matched.
fn end_of_value(text: &str, value: &regex::Match<'_>) -> usize {
    let quote = text.get(..value.start()).and_then(|before| before.chars().next_back());
    let rest = text.get(value.end()..).unwrap_or_default();
    let ends = |of: char| match quote {
        Some(quote @ ('"' | '\'')) => of == quote || of == '\n',
        _ => of.is_whitespace() || "\"'`,;&|)]}".contains(of),
    };
    value.end() + rest.find(ends).unwrap_or(rest.len())
}

/// Returns the group of a match that holds the value.
fn secret<'t>(found: &Captures<'t>) -> Option<regex::Match<'t>> {
    found.iter().skip(1).flatten().next()
}

/// Returns whether a text holds a secret.
pub fn holds_secret(text: &str) -> bool {
    !spans(text).is_empty()
}

/// Returns whether the value of a setting of this name is a secret by convention (`HF_TOKEN`, `GH_PAT`, `--api-key`).
pub fn is_secret_name(name: &str) -> bool {
    NAME.as_ref().is_some_and(|names| names.is_match(name)) && !is_of_tokenizer(name)
}

/// Returns whether the user in the URL of a repository is a name and no token.
pub fn is_user(user: &str) -> bool {
    let plain = user.len() <= 20
        && user.bytes().all(|byte| byte.is_ascii_lowercase() || b"0123456789._-".contains(&byte));
    plain && user.bytes().filter(u8::is_ascii_digit).count() <= 3 && !holds_secret(user)
}

/// Hides the secrets in every text of a value, and the texts under the name of a secret.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = mask(text) {
                *text = shown;
            }
        }
        Value::Array(list) => {
            hide_after_flags(list.iter_mut().filter_map(|value| match value {
                Value::String(word) => Some(word),
                _ => None,
            }));
            list.iter_mut().for_each(mask_value);
        }
        Value::Object(fields) => {
            let named = |fields: &serde_json::Map<String, Value>| {
                let name = fields.get("name").or_else(|| fields.get("target")).and_then(Value::as_str);
                name.is_some_and(is_secret_name)
            };
            let is_variable = named(fields);
            for (key, value) in fields.iter_mut() {
                match value {
                    // The names of secrets in a store.
                    Value::Object(names) if key == "secrets" => names.values_mut().for_each(mask_value),
                    Value::String(text)
                        if is_secret_name(key) && key != "secret" || is_variable && key == "value" =>
                    {
                        if is_value(text) {
                            HIDDEN.clone_into(text);
                        }
                    }
                    value => mask_value(value),
                }
            }
        }
        _ => {}
    }
}

/// Returns where the first secret in the words of a command is: its option, or the number of its word.
pub fn secret_in_words(words: &[String]) -> Option<String> {
    let mut shown = words.to_vec();
    hide_after_flags(shown.iter_mut());
    let at = words.iter().zip(&shown).position(|(word, shown)| word != shown || holds_secret(word))?;
    let word = words.get(at)?;
    let before = at.checked_sub(1).and_then(|before| words.get(before)).filter(|word| is_secret_name(word));
    Some(match (word.split_once('='), before) {
        (Some((option, _)), _) if option.starts_with('-') && !holds_secret(option) => format!("`{option}`"),
        (_, Some(option)) if option.starts_with('-') => format!("`{option}`"),
        _ => format!("word {}", at + 1),
    })
}

/// Hides each word of a command line that follows an option for a secret (`--token`, `x`).
pub(crate) fn hide_after_flags<'w>(words: impl Iterator<Item = &'w mut String>) {
    let mut follows = false;
    for word in words {
        if follows && is_value(word) && !word.starts_with('-') {
            HIDDEN.clone_into(word);
        }
        follows = word.starts_with('-') && !word.contains(['=', ' ']) && is_secret_name(word);
    }
}

/// Returns whether the value under the name of a secret is one, and no reference, path, number or word of a program.
pub(crate) fn is_value(value: &str) -> bool {
    const WORDS: [&str; 8] = ["true", "false", "null", "none", "yes", "no", "auto", "(hidden)"];
    let refers = value.starts_with(['-', '$', '<', '{', '[', '(', '/', '~', '%', '@', '*', '.'])
        || value.contains(['(', '<', '…']);
    let number = value.len() < 6 && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    value.len() >= 2
        && !refers
        && !number
        && !WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
        && !is_placeholder(value)
}

/// Returns whether a value stands for one that a person is to fill in: `YOUR_API_KEY_HERE`, `PLACEHOLDER_HF_TOKEN`.
fn is_placeholder(value: &str) -> bool {
    const WHOLE: [&str; 4] = ["changeme", "change-me", "replaceme", "replace-me"];
    const FIRST: [&str; 5] = ["your", "placeholder", "replace", "insert", "add"];
    const LAST: [&str; 10] = [
        "here",
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "pat",
        "credentials",
        "value",
        "placeholder",
    ];
    let crosses = value.len() > 2 && value.bytes().all(|byte| matches!(byte, b'x' | b'X'));
    let plain = value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b' '));
    if !plain || crosses {
        return crosses;
    }
    let value = value.to_ascii_lowercase().replace(['_', ' '], "-");
    // The words between may be any; a phrase of a password begins and ends with others.
    let ends = value.split_once('-').map(|(first, rest)| (first, rest.rsplit('-').next().unwrap_or(rest)));
    value == "placeholder"
        || WHOLE.contains(&&*value)
        || ends.is_some_and(|(first, last)| FIRST.contains(&first) && LAST.contains(&last))
}

/// Returns whether a value is likely a secret where its name may be a word of a sentence.
fn is_likely(value: &str) -> bool {
    is_value(value) && value.len() >= 6 && is_mixed(value)
}

/// Returns whether a text has digits, or letters of both cases, as no ordinary word has.
fn is_mixed(text: &str) -> bool {
    let has = |is: fn(&u8) -> bool| text.bytes().any(|byte| is(&byte));
    let cases = text.len() >= 16 && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) || cases
}

#[cfg(test)]
mod tests;
