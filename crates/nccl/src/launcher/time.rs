//! Reads times before a message.

use super::Prefix;

/// Reads a time, and the stream in a kubelet's file; returns the length.
pub(super) fn time<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let length = iso(rest);
    if length == 0 {
        return 0;
    }
    found.time = found.time.or(Some(&rest[..length]));
    let behind = &rest[length..];
    let behind = behind.strip_prefix(b" ").unwrap_or(behind);
    let stream = if behind.starts_with(b"std") {
        let streams = [&b"stdout F "[..], b"stderr F ", b"stdout P ", b"stderr P "];
        streams.into_iter().find(|stream| behind.starts_with(stream)).unwrap_or_default()
    } else {
        b""
    };
    rest.len() - behind.len() + stream.len()
}

/// Returns the length of `2026-11-22T03:12:16.385Z`, `2026-11-22 03:12:16,385` and the like at the beginning of a text.
pub(super) fn iso(rest: &[u8]) -> usize {
    if !has_shape(rest, b"9999-99-99T99:99:99") || !matches!(rest[10], b'T' | b' ') {
        return 0;
    }
    let digits = |at: usize| rest[at..].iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = 19;
    if matches!(rest.get(at), Some(b'.' | b',')) {
        at += 1 + digits(at + 1);
    }
    match rest.get(at) {
        Some(b'Z') => at + 1,
        Some(b'+' | b'-') if rest.get(at + 3) == Some(&b':') => (at + 6).min(rest.len()),
        Some(b'+' | b'-') if digits(at + 1) >= 4 => at + 5,
        _ => at,
    }
}

/// Returns whether a text begins with digits where a shape has `9`, with digits or blanks where it has `0`, with any byte where it has
/// `T`, and else with the same bytes.
fn has_shape(rest: &[u8], shape: &[u8]) -> bool {
    let fits = |(shape, byte): (&u8, &u8)| match shape {
        b'9' => byte.is_ascii_digit(),
        b'0' => byte.is_ascii_digit() || *byte == b' ',
        b'T' => true,
        _ => shape == byte,
    };
    rest.len() >= shape.len() && shape.iter().zip(rest).all(fits)
}

/// Reads `Nov 22 03:12:16 `; returns the length.
pub(super) fn syslog<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    if !has_shape(rest, b"TTT 00 00:00:00 ") {
        return 0;
    }
    found.time = found.time.or(Some(&rest[..15]));
    16
}

/// Counts the seconds of a time such as `2023-06-03_22:45:01` or `2026-11-22T03:12:16.385Z`, for comparison with others of the same
/// zone.
pub fn seconds(time: &[u8]) -> Option<u64> {
    let mut numbers = time
        .split(|byte| !byte.is_ascii_digit())
        .map(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let mut count = 0u64;
    for units in [1, 12, 31, 24, 60, 60] {
        count = count.checked_mul(units)?.checked_add(numbers.next()??)?;
    }
    Some(count)
}
