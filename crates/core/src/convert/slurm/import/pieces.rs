//! Splits the words of a script into pieces, before anything is expanded.

use crate::shell::{is_variable, piece_length, words};

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

/// Returns the length of the quoted text, expansion or substitution at the start; of anything else one
/// character.
pub(super) fn end_of_piece(text: &str) -> usize {
    match (text.as_bytes().first(), text.as_bytes().get(1)) {
        (Some(b'$'), Some(b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' | b'0'..=b'9')) => 2,
        (Some(b'$'), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_')) => {
            let name = text.get(1..).unwrap_or_default();
            1 + name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len())
        }
        _ => piece_length(text).unwrap_or(text.len()),
    }
}

/// Returns the words of a list or a line with their quotes, without comments. Stops at an operator of the
/// shell.
pub(super) fn raw_words(text: &str) -> Vec<&str> {
    let words = words(text).into_iter().filter_map(|place| text.get(place));
    words.take_while(|word| !matches!(*word, ";" | "&" | "|" | "<" | ">" | "(" | ")")).collect()
}
