//! Reads times before a message, and what stands only behind one.

use super::{Prefix, name};
use crate::text::text;

/// Reads a time, the stream of a kubelet's file, and the host of the kernel's messages; returns the length.
pub(super) fn time<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let length = iso(rest);
    if length == 0 {
        return 0;
    }
    found.time = found.time.or(Some(&rest[..length]));
    let mut taken = length + usize::from(rest.get(length) == Some(&b' '));
    let streams = [&b"stdout F "[..], b"stderr F ", b"stdout P ", b"stderr P "];
    let stream = streams.iter().find(|stream| rest[taken..].starts_with(stream));
    taken += stream.map_or(0, |stream| stream.len());
    taken + kernel(&rest[taken..], found)
}

/// Reads `n1 kernel: `, which stands behind a time; returns the length.
fn kernel<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let (host, behind) = name(rest);
    if host.is_empty() || !behind.starts_with(b" kernel: ") {
        return 0;
    }
    found.host = Some(text(host));
    host.len() + " kernel: ".len()
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

/// Reads `Nov 22 03:12:16 n1 kernel: `; returns the length.
pub(super) fn syslog<'a>(rest: &'a [u8], found: &mut Prefix<'a>) -> usize {
    let taken = 16;
    if !has_shape(rest, b"TTT 00 00:00:00 ") {
        return 0;
    }
    match kernel(&rest[taken..], found) {
        0 => 0,
        host => {
            found.time = found.time.or(Some(&rest[..taken - 1]));
            taken + host
        }
    }
}
