//! Measures one escape sequence.
//!
//! Not `vte`: a terminal's parser consumes everything after an unterminated `OSC` or `DCS`, so a rank could
//! hide the rest of its line. Here an unterminated sequence is not a sequence: its introducer is removed,
//! its text stays. The property tests check the remaining text with `vte`.

/// One escape sequence at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape<'a> {
    /// `CSI … m`: its parameters, and its length in bytes.
    Sgr(&'a str, usize),
    /// Anything else, and its length in bytes.
    Other(usize),
}

impl Escape<'_> {
    /// Returns the length in bytes; never 0.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(self) -> usize {
        match self {
            Self::Sgr(_, len) | Self::Other(len) => len,
        }
    }
}

/// Measures the sequence that `text` starts with: `ESC` or one of the C1 introducers.
#[allow(clippy::match_same_arms, reason = "the introducers of 7 bits, then those of 8")]
pub fn measure_escape(text: &str) -> Escape<'_> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some('\x1b'), Some('[')) => control_sequence(text, 2),
        (Some('\x1b'), Some(']')) => control_string(text, 2, true),
        (Some('\x1b'), Some('P' | 'X' | '^' | '_')) => control_string(text, 2, false),
        (Some('\x1b'), Some(' '..='/')) => intermediates(text),
        (Some('\x1b'), Some('0'..='~')) => Escape::Other(2),
        (Some('\u{9b}'), _) => control_sequence(text, 2),
        (Some('\u{9d}'), _) => control_string(text, 2, true),
        (Some('\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}'), _) => control_string(text, 2, false),
        (Some(first), _) => Escape::Other(first.len_utf8()),
        (None, _) => Escape::Other(1),
    }
}

fn control_sequence(text: &str, start: usize) -> Escape<'_> {
    let bytes = text.as_bytes();
    let end = bytes[start..].iter().position(|b| !(0x20..=0x3f).contains(b)).map(|at| start + at);
    match end.map(|end| (end, bytes[end])) {
        Some((end, b'm')) if bytes[start..end].iter().all(|b| b.is_ascii_digit() || b";:".contains(b)) => {
            Escape::Sgr(&text[start..end], end + 1)
        }
        Some((end, 0x40..=0x7e)) => Escape::Other(end + 1),
        // Interrupted by a control or by text: only the introducer is removed.
        _ => Escape::Other(start),
    }
}

fn control_string(text: &str, start: usize, bell_ends: bool) -> Escape<'_> {
    for (at, c) in text[start..].char_indices() {
        let at = start + at;
        match c {
            '\x07' if bell_ends => return Escape::Other(at + 1),
            '\u{9c}' => return Escape::Other(at + 2),
            '\x1b' if text[at + 1..].starts_with('\\') => return Escape::Other(at + 2),
            // Any other control ends what cannot be a title or a link any more. C1 introducers do so too;
            // otherwise a line of only introducers would be scanned to its end at each of them.
            '\x1b' | '\x18' | '\x1a' | '\u{80}'..='\u{9b}' | '\u{9d}'..='\u{9f}' => return Escape::Other(at),
            _ => {}
        }
    }
    Escape::Other(start)
}

fn intermediates(text: &str) -> Escape<'_> {
    let bytes = text.as_bytes();
    let end = bytes[1..].iter().position(|b| !(0x20..=0x2f).contains(b)).map(|at| at + 1);
    match end {
        Some(end) if (0x30..=0x7e).contains(&bytes[end]) => Escape::Other(end + 1),
        Some(end) => Escape::Other(end),
        None => Escape::Other(text.len()),
    }
}
