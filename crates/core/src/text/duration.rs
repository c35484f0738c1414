//! Durations as people write them: `90s`, `15m`, `4h`, `2d`, `1d12h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest accepted duration: a hundred years. Clusters overflow long before.
const MAX_SECONDS: u64 = 100 * 365 * 86_400;

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// Writes it as [`format()`] does.
#[allow(clippy::ref_option, reason = "serde's with calls it by reference")]
pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(format).serialize(serializer)
}

/// Reads what [`parse`] reads.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a duration")))
}

/// Reads `90s`, `15m`, `4h`, `2d`, `1d12h`, bare seconds, or Slurm's `HH:MM:SS` and `D-HH:MM:SS`.
///
/// ```
/// use std::time::Duration;
/// use weftrun_core::text::duration::parse;
/// assert_eq!(parse("1d12h"), Some(Duration::from_secs(36 * 3600)));
/// assert_eq!(parse("1-12:00:00"), parse("1d12h"));
/// assert_eq!(parse("4 hours"), None);
/// ```
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let seconds = if text.contains(':') { clock(text)? } else { units(text)? };
    (seconds <= MAX_SECONDS).then_some(Duration::from_secs(seconds))
}

fn units(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mut seconds: u64 = 0;
    let mut rest = text;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        let number: u64 = rest[..end].parse().ok()?;
        let unit = rest[end..].chars().next()?;
        // Each unit once, the larger first: `12h1d` is a mistake.
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        seconds = seconds.checked_add(number.checked_mul(*length)?)?;
        rest = &rest[end + unit.len_utf8()..];
    }
    (!text.is_empty()).then_some(seconds)
}

fn clock(text: &str) -> Option<u64> {
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (days.parse::<u64>().ok()?, time),
        None => (0, text),
    };
    let mut parts = time.split(':').map(|part| {
        (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
            .then(|| part.parse::<u64>().ok())
            .flatten()
    });
    let hours = parts.next()??;
    let minutes = parts.next()??;
    let seconds = parts.next()??;
    if parts.next().is_some() || minutes > 59 || seconds > 59 {
        return None;
    }
    days.checked_mul(86_400)?.checked_add(hours.checked_mul(3600)?)?.checked_add(minutes * 60 + seconds)
}

/// Writes a duration in the largest units that are exact: `1d12h`.
pub fn format(duration: Duration) -> String {
    let mut seconds = duration.as_secs();
    let mut text = String::new();
    for (unit, length) in UNITS {
        if seconds >= length {
            text.push_str(&format!("{}{unit}", seconds / length));
            seconds %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_and_slurm_write() {
        for (text, seconds) in [
            ("90s", 90),
            ("15m", 900),
            ("4h", 14_400),
            ("2d", 172_800),
            ("1d12h", 129_600),
            ("45", 45),
            ("04:00:00", 14_400),
            ("1-00:00:00", 86_400),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "h",
            "4 h",
            "4hours",
            "12h1d",
            "1h1h",
            "-1s",
            "1.5h",
            "1h30",
            "01:60:00",
            "99999999999d",
            "1:2",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(seconds in 0..MAX_SECONDS) {
            let duration = Duration::from_secs(seconds);
            proptest::prop_assert_eq!(parse(&format(duration)), Some(duration));
        }
    }
}
