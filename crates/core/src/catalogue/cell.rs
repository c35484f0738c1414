//! One cell of the table, with its certainty.
//!
//! `~208` and `6400?` are unchecked values, `5120Mi (unsure)` is another spelling of that, `?` and an empty
//! cell are unknown, and `1000 (800 fabric)` has a remark: the marks are kept beside the value.

use std::str::FromStr;

/// A parsed cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell<'a> {
    /// The cell, unchanged.
    pub raw: &'a str,
    /// The value without marks and remarks; none if it is unknown or does not apply.
    pub value: Option<&'a str>,
    /// Whether it is marked as unchecked.
    pub unsure: bool,
    /// Whether it contains more than its value.
    pub remark: bool,
}

impl<'a> Cell<'a> {
    pub fn new(raw: &'a str) -> Self {
        let raw = raw.trim();
        let (rest, remark) = match raw.split_once('(') {
            Some((value, remark)) => (value.trim_end(), Some(remark.trim_end_matches(')'))),
            None => (raw, None),
        };
        let marked = rest.starts_with('~') || (rest.ends_with('?') && rest != "?");
        let value = rest.trim_start_matches('~').trim_end_matches('?').trim();
        let known = !value.is_empty() && !matches!(value, "n/a" | "unsure");
        Self {
            raw,
            value: known.then_some(value),
            unsure: marked || raw == "unsure" || remark == Some("unsure"),
            remark: remark.is_some_and(|text| text != "unsure"),
        }
    }

    /// Returns the number at the start of the cell; a word after it (`16 ports`) is a remark, another
    /// number (`100 or 200`) leaves it unknown.
    pub fn number<T: FromStr>(&mut self) -> Option<T> {
        let value = self.value?;
        let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
        let (number, rest) = value.split_at(end);
        self.remark |= !rest.is_empty();
        let ambiguous = rest.contains(|c: char| c.is_ascii_digit());
        if ambiguous { None } else { number.parse().ok() }
    }

    /// Reads `yes` or `no`.
    pub fn answer(self) -> Option<bool> {
        match self.value {
            Some("yes") => Some(true),
            Some("no") => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(raw: &str) -> (Option<u32>, bool, bool) {
        let mut cell = Cell::new(raw);
        let value = cell.number();
        (value, cell.unsure, cell.remark)
    }

    #[test]
    fn a_number_keeps_its_marks() {
        assert_eq!(number("32"), (Some(32), false, false));
        assert_eq!(number("~208"), (Some(208), true, false));
        assert_eq!(number("6400?"), (Some(6400), true, false));
        assert_eq!(number("1000 (800 fabric)"), (Some(1000), false, true));
        assert_eq!(number("16 ports (8 dual-port CX7)"), (Some(16), false, true));
        assert_eq!(number("1+"), (Some(1), false, true));
        assert_eq!(number("100 or 200"), (None, false, true));
        assert_eq!(number("?"), (None, false, false));
        assert_eq!(number(""), (None, false, false));
    }

    #[test]
    fn an_answer_is_never_guessed() {
        for (raw, expected) in [
            ("yes", Some(true)),
            ("no", Some(false)),
            ("yes?", Some(true)),
            ("yes (ATS + nv_peer_mem)", Some(true)),
            ("unsure", None),
            ("n/a (TCPX)", None),
            ("?", None),
            ("", None),
        ] {
            assert_eq!(Cell::new(raw).answer(), expected, "{raw}");
        }
        assert!(Cell::new("yes?").unsure);
        assert!(Cell::new("5120Mi (unsure)").unsure);
        assert_eq!(Cell::new("5120Mi (unsure)").value, Some("5120Mi"));
    }
}
