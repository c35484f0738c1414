//! The filter language of the TUI's log pane and of `weftrun logs`.
//!
//! `rank:32-39 !rank:0 node:ip-1-16 role:worker level:>=warn since:5m until:12:04 /regex/ !/regex/ word`. All parts
//! must hold. A word or regular expression without capitals ignores case.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use regex::bytes::{Regex, RegexBuilder};

use super::entry::Entry;
use super::stream::LogStream;
use super::{Level, LogStore};
use crate::{Error, ErrorKind, Result};

/// The lines to show.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    terms: Vec<(bool, Term)>,
    text: String,
}

#[derive(Clone, Debug)]
enum Term {
    Ranks(Vec<(u32, u32)>),
    Node(String),
    Role(String),
    AtLeast(Level),
    Since(Timestamp),
    Until(Timestamp),
    Text(Pattern),
}

/// A text to search for in lines.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Takes a text literally.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it is too long.
    pub fn literal(text: &str) -> Result<Self> {
        Self::regex(&regex::escape(text))
    }

    /// Takes a regular expression.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it is not one.
    pub fn regex(text: &str) -> Result<Self> {
        RegexBuilder::new(text)
            .case_insensitive(!text.chars().any(char::is_uppercase))
            // A search runs over many lines at once.
            .multi_line(true)
            .size_limit(1 << 22)
            .build()
            .map(Self)
            .map_err(|error| {
                let reason = error.to_string();
                let reason =
                    reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Error::new(ErrorKind::Usage, format!("`{text}` is not a regular expression: {reason}"))
                    .hint("without slashes the text is taken literally")
            })
    }

    /// Returns the first match, in bytes.
    pub fn find(&self, text: &[u8]) -> Option<std::ops::Range<usize>> {
        self.0.find(text).map(|found| found.range())
    }

    /// Returns whether bytes of any number of lines contain it.
    pub(super) fn is_in(&self, lines: &[u8]) -> bool {
        self.0.is_match(lines)
    }

    /// Returns whether an entry contains it, as it is drawn.
    pub fn matches(&self, entry: &Entry) -> bool {
        if entry.is_plain() {
            self.find(entry.raw()).is_some()
        } else {
            self.find(entry.clean().text.as_bytes()).is_some()
        }
    }
}

impl Filter {
    /// Reads a filter. `since:5m` counts back from `now`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] naming the part that cannot be read.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self> {
        let mut terms = Vec::new();
        for word in words(text) {
            let (positive, body) = match word.strip_prefix('!') {
                Some(rest) if !rest.is_empty() => (false, rest),
                _ => (true, word),
            };
            let (negated_value, term) = term(body, now)?;
            terms.push((positive ^ negated_value, term));
        }
        Ok(Self { terms, text: text.trim().to_owned() })
    }

    /// Returns the names before a `:` that are none of a filter: such a word is searched as it is.
    pub fn unknown_names(&self) -> Vec<&str> {
        let name = |word: &'_ str| -> Option<usize> {
            let (key, value) = word.split_once(':')?;
            let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase());
            (plain && !value.is_empty() && !value.starts_with(['/', ':']) && !NAMES.contains(&key))
                .then_some(key.len())
        };
        let bodies = words(&self.text).map(|word| word.strip_prefix('!').unwrap_or(word));
        bodies.filter_map(|body| name(body).and_then(|end| body.get(..end))).collect()
    }

    /// Restricts the filter to some ranks.
    #[must_use]
    pub fn with_ranks(mut self, ranks: impl IntoIterator<Item = u32>) -> Self {
        let ranges: Vec<_> = ranks.into_iter().map(|rank| (rank, rank)).collect();
        if !ranges.is_empty() {
            self.terms.push((true, Term::Ranks(ranges)));
        }
        self
    }

    /// Restricts the filter to lines of at least this level.
    #[must_use]
    pub fn with_level(mut self, level: Level) -> Self {
        if level > Level::Debug {
            self.terms.push((true, Term::AtLeast(level)));
        }
        self
    }

    /// Returns whether it accepts everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a line is shown. Marks (gaps, resumes) are shown with any text filter.
    pub fn shows(&self, store: &LogStore, entry: &Entry) -> bool {
        let Some(stream) = store.streams().get(entry.stream as usize) else { return false };
        self.terms.iter().all(|(positive, term)| match term {
            Term::Text(_) | Term::AtLeast(_) if entry.mark => true,
            term => term.holds(stream, entry) == *positive,
        })
    }
}

impl Term {
    fn holds(&self, stream: &LogStream, entry: &Entry) -> bool {
        match self {
            Self::Ranks(ranges) => {
                stream.rank.is_some_and(|rank| ranges.iter().any(|(a, b)| (*a..=*b).contains(&rank)))
            }
            Self::Node(node) => {
                stream.source.name.contains(node)
                    || stream.process.as_ref().is_some_and(|(host, _)| host.contains(node))
            }
            Self::Role(role) => stream.source.role == *role,
            Self::AtLeast(level) => entry.level >= *level,
            // It is unknown whether a line without a time is outside.
            Self::Since(since) => entry.time.is_none_or(|time| time >= *since),
            Self::Until(until) => entry.time.is_none_or(|time| time <= *until),
            Self::Text(pattern) => pattern.matches(entry),
        }
    }
}

/// What a filter can name.
const NAMES: [&str; 9] = ["rank", "ranks", "node", "host", "pod", "role", "level", "since", "until"];

/// Splits at blanks outside of slashes.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim();
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let body = rest.strip_prefix('!').unwrap_or(rest);
        let skipped = rest.len() - body.len();
        let end = match body.strip_prefix('/') {
            Some(inside) => closing_slash(inside).map_or(rest.len(), |at| skipped + 1 + at + 1),
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        let (word, behind) = rest.split_at(end);
        rest = behind;
        Some(word)
    })
}

fn closing_slash(inside: &str) -> Option<usize> {
    let bytes = inside.as_bytes();
    (0..bytes.len()).find(|&at| {
        let escaped = bytes[..at].iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1;
        let ends = bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace);
        bytes[at] == b'/' && !escaped && ends
    })
}

fn term(body: &str, now: Timestamp) -> Result<(bool, Term)> {
    if let Some(inside) = body.strip_prefix('/') {
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        return Ok((false, Term::Text(Pattern::regex(&inside.replace("\\/", "/"))?)));
    }
    let Some((key, value)) = body.split_once(':').filter(|(_, value)| !value.is_empty()) else {
        return Ok((false, Term::Text(Pattern::literal(body)?)));
    };
    let (negated, value) = match value.strip_prefix('!') {
        Some(value) => (true, value),
        None => (false, value),
    };
    let bad = |what: &str| Error::new(ErrorKind::Usage, format!("`{body}`: {what}"));
    let time = || parse_time(value, now).ok_or_else(|| bad("a time looks like `5m` or `12:04`"));
    let term = match key {
        "rank" | "ranks" => Term::Ranks(parse_ranks(value).ok_or_else(|| bad("ranks look like `0,8-15`"))?),
        "node" | "host" | "pod" => Term::Node(value.to_owned()),
        "role" => Term::Role(value.to_owned()),
        "level" => Term::AtLeast(
            Level::parse(value.trim_start_matches(">="))
                .ok_or_else(|| bad("levels are debug, info, warn, error"))?,
        ),
        "since" => Term::Since(time()?),
        "until" => Term::Until(time()?),
        _ => return Ok((false, Term::Text(Pattern::literal(body)?))),
    };
    Ok((negated, term))
}

/// Reads `0,8-15` as ranges, both ends included.
pub fn parse_ranks(text: &str) -> Option<Vec<(u32, u32)>> {
    text.split(',')
        .map(|part| match part.split_once('-') {
            Some((a, b)) => {
                let range = (a.trim().parse().ok()?, b.trim().parse().ok()?);
                (range.0 <= range.1).then_some(range)
            }
            None => part.trim().parse().ok().map(|rank| (rank, rank)),
        })
        .collect()
}

fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Ok(clock) = text.parse::<jiff::civil::Time>() {
        let today = now.to_zoned(TimeZone::UTC).date();
        return today.to_datetime(clock).to_zoned(TimeZone::UTC).ok().map(|z| z.timestamp());
    }
    let ago = crate::text::duration::parse(text)?;
    now.checked_sub(jiff::SignedDuration::try_from(ago).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Filter {
        Filter::parse(text, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn words_split_outside_of_slashes() {
        let found: Vec<_> = words(r"a rank:3 /b c\/d/ !/e f/ g").collect();
        assert_eq!(found, ["a", "rank:3", r"/b c\/d/", "!/e f/", "g"]);
    }

    #[test]
    fn mistakes_name_the_part() {
        for (text, part) in [("rank:x", "rank:x"), ("level:loud", "level:loud"), ("/(/", "(")] {
            let error = Filter::parse(text, Timestamp::UNIX_EPOCH).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn unknown_keys_are_text() {
        assert_eq!(parse("http://x").terms.len(), 1);
        assert!(parse("http://x level:warn NET/IB:1 a::b /x:y/").unknown_names().is_empty());
        assert_eq!(parse("leve:warn !rnak:3").unknown_names(), ["leve", "rnak"]);
        assert!(parse("  ").is_empty());
    }
}
