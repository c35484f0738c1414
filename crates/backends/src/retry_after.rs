//! The `Retry-After` header (RFC 9110, 10.2.3): seconds or a date.

use std::time::{Duration, SystemTime};

/// Returns the pause that a server requests; none for a header that is neither a number nor a date. A date in
/// the past is a pause of zero.
pub fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = httpdate::parse_http_date("Sun, 22 Nov 2026 12:00:00 GMT").unwrap();
        let read = |value: &str| parse(value, now).map(|pause| pause.as_secs());
        assert_eq!(read(" 7 "), Some(7));
        assert_eq!(read("Sun, 22 Nov 2026 12:01:30 GMT"), Some(90));
        assert_eq!(read("Sunday, 22-Nov-26 12:00:05 GMT"), Some(5));
        assert_eq!(read("Sun Nov 22 11:00:00 2026"), Some(0), "a date in the past");
        assert_eq!(read("soon"), None);
        assert_eq!(read("-1"), None);
    }
}
