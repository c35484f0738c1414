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
/// character. `quoted` text is inside double quotes.
pub(super) fn end_of_piece(text: &str, quoted: bool) -> usize {
    match (text.as_bytes().first(), text.as_bytes().get(1)) {
        (Some(b'$'), Some(b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' | b'0'..=b'9')) => 2,
        (Some(b'$'), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_')) => {
            let name = text.get(1..).unwrap_or_default();
            1 + name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len())
        }
        _ => piece_length(text, quoted).unwrap_or(text.len()),
    }
}

/// Returns a text with at most as many characters as a message quotes of a script.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the words of a list or a line with their quotes, without comments. Stops at an operator of the
/// shell.
pub(super) fn raw_words(text: &str) -> Vec<&str> {
    let words = words(text).into_iter().filter_map(|place| text.get(place));
    words.take_while(|word| !matches!(*word, ";" | "&" | "|" | "<" | ">" | "(" | ")")).collect()
}
