//! Reading bytes from left to right.

/// Returns the longest valid UTF-8 prefix. Names in NCCL's lines are ASCII; anything else is damage.
pub fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// Returns the first place of `needle`. To prepare a search of `memmem` costs more than to search a line.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    const LINE: usize = 1024;
    let last = haystack.len().checked_sub(needle.len())?;
    if haystack.len() > LINE || needle.is_empty() {
        return memchr::memmem::find(haystack, needle);
    }
    // Lower-case letters and blanks are the most frequent bytes of a log.
    let rare = needle.iter().position(|byte| !byte.is_ascii_lowercase() && *byte != b' ').unwrap_or(0);
    memchr::memchr_iter(needle[rare], &haystack[rare..=last + rare])
        .find(|at| &haystack[*at..*at + needle.len()] == needle)
}

/// Returns whether `needle` occurs.
pub fn contains(haystack: &[u8], needle: &str) -> bool {
    find(haystack, needle.as_bytes()).is_some()
}

/// Returns the bytes after the first `needle`.
pub fn behind<'a>(haystack: &'a [u8], needle: &str) -> Option<&'a [u8]> {
    find(haystack, needle.as_bytes()).map(|at| &haystack[at + needle.len()..])
}

/// Reads a slice from left to right.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the beginning of `rest`.
    #[inline]
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Returns the unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Skips `n` bytes.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        self.rest = &self.rest[n.min(self.rest.len())..];
    }

    /// Skips blanks.
    #[inline]
    pub fn blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Skips `what` if it comes next; returns whether it did.
    #[inline]
    pub fn eat(&mut self, what: &[u8]) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes bytes while they fit.
    #[inline]
    pub fn take_while(&mut self, mut fits: impl FnMut(u8) -> bool) -> &'a [u8] {
        let mut end = 0;
        while self.rest.get(end).is_some_and(|byte| fits(*byte)) {
            end += 1;
        }
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Takes ASCII letters.
    #[inline]
    pub fn word(&mut self) -> &'a [u8] {
        self.take_while(|byte| byte.is_ascii_alphabetic())
    }

    /// Takes up to the next blank or slash.
    #[inline]
    pub fn token(&mut self) -> &'a [u8] {
        self.take_while(|byte| byte > b' ' && byte != b'/' && byte < 0x7f)
    }

    /// Takes up to the next blank.
    #[inline]
    pub fn token_with_slashes(&mut self) -> &'a [u8] {
        self.take_while(|byte| byte > b' ' && byte < 0x7f)
    }

    /// Takes a decimal number; none if there is none or it does not fit.
    #[inline]
    pub fn number(&mut self) -> Option<u32> {
        self.long().and_then(|number| u32::try_from(number).ok())
    }

    /// Takes a decimal number of up to 19 digits.
    #[inline]
    pub fn long(&mut self) -> Option<u64> {
        let mut number = 0u64;
        let mut length = 0;
        while let Some(digit) = self.rest.get(length).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
            length += 1;
        }
        self.rest = &self.rest[length..];
        (1..=19).contains(&length).then_some(number)
    }

    /// Takes a hexadecimal number, without `0x`.
    #[inline]
    pub fn hex(&mut self) -> Option<u64> {
        let digits = self.take_while(|byte| byte.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() > 16 {
            return None;
        }
        Some(digits.iter().fold(0, |number, digit| {
            number * 16
                + u64::from(match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => digit - b'A' + 10,
                })
        }))
    }

    /// Takes `[1c000]`.
    #[inline]
    pub fn bracketed_hex(&mut self) -> Option<u64> {
        // A device number: one digit.
        if let [b'[', digit @ b'0'..=b'9', b']', rest @ ..] = self.rest {
            self.rest = rest;
            return Some(u64::from(digit - b'0'));
        }
        let mut ahead = *self;
        if !ahead.eat(b"[") {
            return None;
        }
        let number = ahead.hex()?;
        if !ahead.eat(b"]") {
            return None;
        }
        *self = ahead;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_short_search_finds_what_a_long_one_does() {
        let haystacks =
            ["", "a", "ab", "Error: x", "xError: Error: x", "aab aab aaab", "=b", "b=b=", "  a  aa "];
        for haystack in haystacks.map(str::as_bytes) {
            for needle in
                ["", "a", "aab", "Error: ", "b=", "=b", " aa", "longer than any of them"].map(str::as_bytes)
            {
                assert_eq!(
                    find(haystack, needle),
                    memchr::memmem::find(haystack, needle),
                    "{haystack:?} {needle:?}"
                );
            }
        }
    }
}
