//! Searches a literal text in many lines at once, with or without regard to case.

use aho_corasick::packed;
use memchr::memmem;

/// Bytes of a text that the search compares first. Vector instructions compare four at once.
const WINDOW: usize = 4;

/// A text to search for. Only the case of ASCII letters can be ignored.
#[derive(Clone, Debug)]
pub(super) struct Literal {
    text: Box<[u8]>,
    ignore_case: bool,
    /// Where in the text the searched part begins.
    offset: usize,
    part: Part,
}

/// The searched part of a text.
#[derive(Clone, Debug)]
enum Part {
    One(Box<memmem::Finder<'static>>),
    /// All its spellings.
    Several(Box<packed::Searcher>),
}

impl Literal {
    /// Makes a case-sensitive search.
    pub fn exact(text: &str) -> Self {
        let part = Part::One(Box::new(memmem::Finder::new(text).into_owned()));
        Self { text: text.as_bytes().into(), ignore_case: false, offset: 0, part }
    }

    /// Makes a search that ignores case; none where non-ASCII letters would need folding, or the machine
    /// has no vector instructions.
    pub fn any_case(text: &str) -> Option<Self> {
        if !text.is_ascii() || text.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        let (offset, window) =
            bytes.windows(WINDOW.min(bytes.len())).enumerate().min_by_key(|(_, window)| cost(window))?;
        let part = if window.iter().any(u8::is_ascii_alphabetic) {
            Part::Several(Box::new(packed::Searcher::new(spellings(window))?))
        } else {
            Part::One(Box::new(memmem::Finder::new(window).into_owned()))
        };
        Some(Self { text: bytes.into(), ignore_case: true, offset, part })
    }

    /// Returns the first match, in bytes.
    pub fn find(&self, haystack: &[u8]) -> Option<std::ops::Range<usize>> {
        let mut from = self.offset;
        loop {
            let hit = from + self.part.find(haystack.get(from..)?)?;
            let start = hit - self.offset;
            let here = haystack.get(start..start + self.text.len())?;
            if !self.ignore_case || here.eq_ignore_ascii_case(&self.text) {
                return Some(start..start + self.text.len());
            }
            from = hit + 1;
        }
    }
}

impl Part {
    fn find(&self, haystack: &[u8]) -> Option<usize> {
        match self {
            Self::One(finder) => finder.find(haystack),
            Self::Several(searcher) => searcher.find(haystack).map(|found| found.start()),
        }
    }
}

/// Returns the cost of a search for a part: first its spellings, then how common its bytes are in logs.
fn cost(window: &[u8]) -> (usize, usize) {
    const COMMON: &[u8] = b" etaoinsrlETAOINSRL01.:-=";
    let letters = window.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    (letters, window.iter().filter(|byte| COMMON.contains(byte)).count())
}

/// Returns all spellings of a part in upper and lower case.
fn spellings(window: &[u8]) -> Vec<Vec<u8>> {
    window.iter().fold(vec![Vec::new()], |spelt, byte| {
        let mut cases = vec![byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
        cases.dedup();
        let with = |start: &Vec<u8>, case: &u8| start.iter().copied().chain([*case]).collect::<Vec<u8>>();
        spelt.iter().flat_map(|start| cases.iter().map(move |case| with(start, case))).collect()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_found_where_a_regular_expression_finds_it(
            needle in "[ab1 .]{1,7}", haystack in "[abAB1 .\n]{0,60}", long in "[abAB1 .]{0,200}",
        ) {
            let haystack = format!("{long}{haystack}");
            let range = |found: regex::Match<'_>| found.range();
            let exact = regex::Regex::new(&regex::escape(&needle)).unwrap();
            prop_assert_eq!(Literal::exact(&needle).find(haystack.as_bytes()), exact.find(&haystack).map(range));
            let folded = regex::RegexBuilder::new(&regex::escape(&needle)).case_insensitive(true).build().unwrap();
            if let Some(literal) = Literal::any_case(&needle) {
                prop_assert_eq!(literal.find(haystack.as_bytes()), folded.find(&haystack).map(range));
            }
        }
    }
}
