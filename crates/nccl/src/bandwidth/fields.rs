//! The fields of one line of JSON in their order, however deep they are: faster than a map, and in no more memory than the line.

use std::iter::Peekable;

use memchr::{Memchr, memchr_iter};

/// A value without its quotes; none where an object or a list begins, whose fields come next.
pub type Value<'a> = Option<&'a [u8]>;

/// Iterates over the fields of a line.
#[derive(Debug)]
pub struct Fields<'a> {
    line: &'a [u8],
    quotes: Peekable<Memchr<'a>>,
    /// Where the last object or list began.
    opened: usize,
}

impl<'a> Fields<'a> {
    pub fn of(line: &'a [u8]) -> Self {
        Self { line, quotes: memchr_iter(b'"', line).peekable(), opened: 0 }
    }

    /// Takes the next text, and returns it with the place behind its quote.
    fn text(&mut self) -> Option<(&'a [u8], usize)> {
        let start = self.quotes.next()? + 1;
        loop {
            let end = self.quotes.next()?;
            let escapes = self.line[start..end].iter().rev().take_while(|byte| **byte == b'\\').count();
            if escapes % 2 == 0 {
                return Some((&self.line[start..end], end + 1));
            }
        }
    }

    /// Returns the next byte that is no blank, and its place.
    fn solid(&self, from: usize) -> Option<(u8, usize)> {
        let blanks = self.line.get(from..)?.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        self.line.get(from + blanks).map(|byte| (*byte, from + blanks))
    }

    /// Returns where the last object or list began.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// Skips the object or list that began with the last field.
    pub fn skip_value(&mut self) {
        let (mut from, mut depth) = (self.opened, 0_usize);
        loop {
            let next = self.quotes.peek().copied().unwrap_or(self.line.len());
            for byte in self.line.get(from..next).unwrap_or(&[]) {
                match byte {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth <= 1 => return,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
            }
            let Some((_, end)) = self.text() else { return };
            from = end;
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (key, end) = self.text()?;
            let (colon, at) = self.solid(end)?;
            if colon != b':' {
                continue; // a text in a list
            }
            let (first, start) = self.solid(at + 1)?;
            let value = match first {
                b'"' => Some(self.text()?.0),
                b'{' | b'[' => {
                    self.opened = start;
                    None
                }
                _ => {
                    let rest = &self.line[start..];
                    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ');
                    Some(&rest[..rest.iter().position(ends).unwrap_or(rest.len())])
                }
            };
            return Some((key, value));
        }
    }
}

/// Reads a whole number.
pub fn whole(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| sum.checked_mul(10)?.checked_add(digit(byte)?))
}

/// Reads a number, which may have a fraction, in thousandths.
pub fn thousandths(number: &[u8]) -> Option<u64> {
    if let Some(whole) = whole(number) {
        return whole.checked_mul(1000);
    }
    let number: f64 = std::str::from_utf8(number).ok()?.trim().parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
    (number.is_finite() && (0.0..1e15).contains(&number)).then_some((number * 1000.0).round() as u64)
}

/// Reads a communicator's id: NCCL's hash in hexadecimal, or any other text by a hash of it.
pub fn id(text: &[u8]) -> u64 {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let number = std::str::from_utf8(digits).ok().filter(|digits| digits.len() <= 16);
    number.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_else(|| {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        text.iter().fold(0xcbf2_9ce4_8422_2325, step)
    })
}
