//! Splits the words of a script into pieces, before anything is expanded.

use crate::shell::is_variable;

/// Returns whether a text in double quotes is exactly one `${NAME[@]}`, which expands to no word if the list is empty.
pub(super) fn is_list_of_all(text: &str) -> bool {
    text.strip_prefix("${").and_then(|text| text.strip_suffix("[@]}")).is_some_and(is_variable)
        || text == "$@"
}

/// Returns the program of `$(which PROGRAM)`.
pub(super) fn located(piece: &str) -> Option<&str> {
    let inside = piece.strip_prefix("$(").and_then(|text| text.strip_suffix(')'));
    let inside = inside.or_else(|| piece.strip_prefix('`').and_then(|text| text.strip_suffix('`')))?;
    let words: Vec<&str> = inside.split_whitespace().collect();
    let (["which", program] | ["command", "-v", program]) = words[..] else { return None };
    program.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b)).then_some(program)
}

/// Returns the place of the parenthesis that closes the one at the start.
pub(super) fn matching(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the length of the quoted text, expansion or substitution at the start; of anything else one
/// character.
pub(super) fn end_of_piece(text: &str) -> usize {
    let bytes = text.as_bytes();
    let closing = |open: u8, close: u8, from: usize| {
        let (mut at, mut depth) = (from, 0_u32);
        while let Some(byte) = bytes.get(at) {
            match *byte {
                b'\\' => at += 1,
                b'\'' if close != b'"' => {
                    at += 1 + text.get(at + 1..).and_then(|rest| rest.find('\'')).unwrap_or(0);
                }
                b'"' if close != b'"' => at += end_of_piece(text.get(at..).unwrap_or_default()).max(1) - 1,
                b'$' if close == b'"' => at += end_of_piece(text.get(at..).unwrap_or_default()).max(1) - 1,
                byte if byte == close && depth <= 1 => return at + 1,
                byte if byte == close => depth -= 1,
                byte if byte == open => depth += 1,
                _ => {}
            }
            at += 1;
        }
        bytes.len()
    };
    match (bytes.first(), bytes.get(1)) {
        (Some(b'"'), _) => closing(0, b'"', 1),
        (Some(b'`'), _) => text.get(1..).and_then(|rest| rest.find('`')).map_or(bytes.len(), |at| at + 2),
        (Some(b'$'), Some(b'(')) => closing(b'(', b')', 1),
        (Some(b'$'), Some(b'{')) => closing(b'{', b'}', 1),
        (Some(b'$'), Some(b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' | b'0'..=b'9')) => 2,
        (Some(b'$'), Some(_)) => {
            let name = text.get(1..).unwrap_or_default();
            1 + name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len())
        }
        (first, _) => first.map_or(0, |_| text.chars().next().map_or(1, char::len_utf8)),
    }
}

/// Returns the words of a list or a line with their quotes, without comments. Stops at an operator of the
/// shell.
pub(super) fn raw_words(text: &str) -> Vec<&str> {
    let (mut words, mut at) = (Vec::new(), 0);
    let end_of_word = |from: usize| {
        let mut at = from;
        while let Some(byte) = text.as_bytes().get(at) {
            let rest = text.get(at..).unwrap_or_default();
            at += match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b')' => return at,
                b'\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
                b'\'' => 2 + rest.get(1..).and_then(|rest| rest.find('\'')).unwrap_or(rest.len()),
                b'(' => matching_list(rest),
                _ => end_of_piece(rest).max(1),
            };
        }
        at.min(text.len())
    };
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            b'\\' if text.as_bytes().get(at + 1) == Some(&b'\n') => at += 2,
            b'#' => at += text.get(at..).and_then(|rest| rest.find('\n')).unwrap_or(text.len() - at),
            _ => {
                let end = end_of_word(at);
                if end == at {
                    break;
                }
                words.push(text.get(at..end).unwrap_or_default());
                at = end;
            }
        }
    }
    words
}

/// Returns the length of `( … )` with words inside.
pub(super) fn matching_list(text: &str) -> usize {
    let mut at = 1;
    while let Some(byte) = text.as_bytes().get(at) {
        let rest = text.get(at..).unwrap_or_default();
        at += match byte {
            b')' => return at + 1,
            b'\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            b'\'' => 2 + rest.get(1..).and_then(|rest| rest.find('\'')).unwrap_or(rest.len()),
            b'#' if text.as_bytes().get(at - 1).is_some_and(u8::is_ascii_whitespace) => {
                rest.find('\n').unwrap_or(rest.len())
            }
            _ => end_of_piece(rest).max(1),
        };
    }
    text.len()
}
