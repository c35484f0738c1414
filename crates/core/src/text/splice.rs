//! Replacements of bytes.

use std::ops::Range;

/// Makes the replacements in a text, those at the front first. The error is the place of one that overlaps another.
pub fn splice(text: &str, mut changes: Vec<(Range<usize>, String)>) -> Result<String, Range<usize>> {
    // An insertion goes before a removal that starts at the same byte.
    changes.sort_by_key(|(place, _)| (place.start, place.end));
    let mut out = String::with_capacity(text.len() + 64 * changes.len());
    let mut at = 0;
    for (place, new) in changes {
        out.push_str(text.get(at..place.start).ok_or_else(|| place.clone())?);
        out.push_str(&new);
        at = place.end;
    }
    out.push_str(&text[at..]);
    Ok(out)
}
