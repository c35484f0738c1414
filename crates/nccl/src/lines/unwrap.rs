//! Reverses what log shippers, terminals and launchers do to a line: JSON strings, colours, redrawn lines, joined lines.

use std::borrow::Cow;

use super::LINE_CAP;
use super::escape::measure_escape;
use crate::launcher;

/// Returns the line as it was printed, without JSON strings and colours. It may be several lines then.
pub fn unwrap(line: &[u8]) -> Cow<'_, [u8]> {
    let from_json = if line.trim_ascii_start().first() == Some(&b'{') { json_strings(line) } else { None };
    let plain = from_json.as_deref().unwrap_or(line);
    if memchr::memchr(0x1b, plain).is_some() {
        return Cow::Owned(without_escapes(plain));
    }
    from_json.map_or(Cow::Borrowed(line), Cow::Owned)
}

/// Returns the pieces of an unwrapped line that are lines by themselves: progress bars redraw one line, and other messages may be
/// between; and `mpirun` joins the lines of several ranks.
pub fn pieces(unwrapped: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(unwrapped);
    let parts = std::iter::from_fn(move || {
        let part = rest.take()?;
        let Some(end) = memchr::memchr2(b'\n', b'\r', part) else { return Some(part) };
        rest = Some(&part[end + 1..]);
        Some(&part[..end])
    });
    parts.filter(|part| !part.is_empty()).flat_map(launcher::pieces)
}

/// Returns the strings of a JSON object, one per line, so that the message is found in any of them.
fn json_strings(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    let mut strings = 0;
    while let Some(open) = memchr::memchr(b'"', rest) {
        rest = &rest[open + 1..];
        let end = json_string(rest, &mut out);
        strings += 1;
        out.push(b'\n');
        rest = &rest[end.min(rest.len())..];
        if out.len() > LINE_CAP {
            break;
        }
    }
    (strings > 1).then_some(out)
}

/// Decodes the string that begins at `rest`; returns the offset after its closing quote.
fn json_string(rest: &[u8], out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'"' => return at + 1,
            b'\\' => {
                let escaped = rest.get(at + 1).copied().unwrap_or(b'\\');
                at += 2;
                match escaped {
                    b'n' => out.push(b'\n'),
                    b'r' => out.push(b'\r'),
                    b't' => out.push(b'\t'),
                    b'u' => {
                        let digits = rest.get(at..at + 4).and_then(|four| std::str::from_utf8(four).ok());
                        let code = digits.and_then(|four| u32::from_str_radix(four, 16).ok());
                        let character = code.and_then(char::from_u32).unwrap_or('\u{fffd}');
                        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                        at += 4;
                    }
                    other => out.push(other),
                }
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    rest.len()
}

/// Removes escape sequences of terminals.
fn without_escapes(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let mut out = Vec::with_capacity(line.len());
    let mut rest = &*text;
    while let Some((before, _)) = rest.split_once('\x1b') {
        out.extend_from_slice(before.as_bytes());
        let sequence = &rest[before.len()..];
        rest = &sequence[measure_escape(sequence).len()..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
