//! Percent-encoding of everything but RFC 3986's unreserved characters: for parts of handles, URLs and forms.

/// Encodes a text as one part of an address.
///
/// ```
/// use weftrun_core::text::percent;
/// assert_eq!(percent::encode("team/a b"), "team%2Fa%20b");
/// assert_eq!(percent::decode("team%2Fa%20b").as_deref(), Some("team/a b"));
/// ```
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Decodes a part; none if a `%` is not followed by two hexadecimal digits, or the bytes are no UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            bytes.push(digit(rest.next()?)? << 4 | digit(rest.next()?)?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
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
