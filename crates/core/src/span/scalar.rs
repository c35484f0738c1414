//! Resolves a bare YAML scalar as kubectl does.
//!
//! kubectl reads YAML 1.1 as Go's yaml.v2 does (sigs.k8s.io/yaml, `goyaml.v2/resolve.go`, read 2026-11): `on` is
//! true, `0777` is 511, `1_000` is 1000, and a date is a string.

use std::borrow::Cow;

use super::Value;

/// Resolves a plain scalar.
///
/// ```
/// use weftrun_core::span::{Value, resolve_plain};
/// assert_eq!(resolve_plain("on"), Value::Bool(true));
/// assert_eq!(resolve_plain("0777"), Value::Int(511));
/// assert_eq!(resolve_plain("5Gi"), Value::Str("5Gi".into()));
/// ```
pub fn resolve_plain(text: &str) -> Value<'_> {
    let string = || Value::Str(Cow::Borrowed(text));
    match text.as_bytes().first() {
        None => Value::Null,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => {
            word(text).unwrap_or_else(string)
        }
        Some(b'.') => match text {
            ".inf" | ".Inf" | ".INF" => Value::Float(f64::INFINITY),
            ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
            _ => finite(text).map_or_else(string, Value::Float),
        },
        Some(b'+' | b'-' | b'0'..=b'9') => number(text).unwrap_or_else(string),
        Some(_) => string(),
    }
}

fn word(text: &str) -> Option<Value<'static>> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Value::Null,
        _ => return None,
    })
}

fn number(text: &str) -> Option<Value<'static>> {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Some(Value::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Value::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    // Fast path for the many scalars that only begin with a digit (`1800Gi`, `10.0.0.1`, `23:59`).
    let plausible =
        |b: u8| b.is_ascii_hexdigit() || matches!(b, b'+' | b'-' | b'_' | b'.' | b'x' | b'X' | b'o' | b'O');
    if !text.bytes().all(plausible) {
        return None;
    }
    let plain: Cow<'_, str> =
        if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    integer(&plain).or_else(|| is_yaml_float(&plain).then(|| finite(&plain)).flatten().map(Value::Float))
}

/// Parses as Go's `ParseInt(…, 0, 64)`, then `ParseUint`.
fn integer(text: &str) -> Option<Value<'static>> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0i64.checked_sub_unsigned(magnitude).map(Value::Int);
    }
    Some(i64::try_from(magnitude).map_or(Value::UInt(magnitude), Value::Int))
}

/// Matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, yaml.v2's own expression.
fn is_yaml_float(text: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    mantissa_ok && exponent.is_none_or(digits)
}

fn finite(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Returns a number as JSON's and Go's `strconv` write it when it becomes a map's key.
pub(super) fn key_text(value: Value<'_>) -> Option<Cow<'_, str>> {
    Some(match value {
        Value::Str(text) => text,
        Value::Bool(b) => Cow::Borrowed(if b { "true" } else { "false" }),
        Value::Int(n) => Cow::Owned(n.to_string()),
        Value::UInt(n) => Cow::Owned(n.to_string()),
        Value::Float(n) => Cow::Owned(n.to_string()),
        Value::Null => Cow::Borrowed("null"),
        Value::Seq(_) | Value::Map(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that a real kubectl read (`kubectl annotate --local -o json`), from the project's
    /// research notes.
    #[test]
    fn scalars_mean_what_kubectl_says() {
        let string = |s: &'static str| Value::Str(s.into());
        for (text, expected) in [
            ("yes", Value::Bool(true)),
            ("on", Value::Bool(true)),
            ("y", Value::Bool(true)),
            ("N", Value::Bool(false)),
            ("0777", Value::Int(511)),
            ("1_000", Value::Int(1000)),
            ("012345678", Value::Float(12_345_678.0)),
            ("08", Value::Float(8.0)),
            ("tRue", string("tRue")),
            ("1e-4", Value::Float(1e-4)),
            ("0o17", Value::Int(15)),
            ("0x1F", Value::Int(31)),
            ("0b11", Value::Int(3)),
            ("-0b11", Value::Int(-3)),
            ("12:30:45", string("12:30:45")),
            ("2001-01-01", string("2001-01-01")),
            ("~", Value::Null),
            ("", Value::Null),
            ("=", string("=")),
            (".5", Value::Float(0.5)),
            ("1.", Value::Float(1.0)),
            ("123456789012345678901", Value::Float(1.234_567_890_123_456_8e20)),
            ("18446744073709551615", Value::UInt(u64::MAX)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("1e400", string("1e400")),
            ("1800Gi", string("1800Gi")),
            ("-", string("-")),
            ("--5", string("--5")),
            ("0x", string("0x")),
            ("1.2.3", string("1.2.3")),
            ("null", Value::Null),
            ("Off", Value::Bool(false)),
            ("nO", string("nO")),
        ] {
            assert_eq!(resolve_plain(text), expected, "{text:?}");
        }
    }
}
