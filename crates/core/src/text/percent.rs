//! Percent-encoding of everything but RFC 3986's unreserved characters: for parts of handles, URLs and forms.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a text as one part of an address.
///
/// ```
/// use weftrun_core::text::percent;
/// assert_eq!(percent::encode("team/a b"), "team%2Fa%20b");
/// assert_eq!(percent::decode("team%2Fa%20b").as_deref(), Some("team/a b"));
/// ```
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Decodes a part; none if a `%` is not followed by two hexadecimal digits, or the bytes are no UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let mut codes = text.split('%').skip(1).map(|code| code.as_bytes().get(..2));
    if !codes.all(|code| code.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_code_is_refused() {
        for text in ["%", "%4", "%+f", "%zz", "%ff"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
