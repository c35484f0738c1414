//! The stamp that Kubernetes puts before each line (`2026-11-21T02:13:44.077312376Z text`), read at memory speed.

use jiff::Timestamp;

/// Splits stamps off lines. Caches the last second, which neighbouring lines share.
#[derive(Debug, Default)]
pub struct Stamps {
    prefix: [u8; 19],
    second: i64,
}

impl Stamps {
    /// Returns the stamp and the text after it; none if the line does not start with one.
    pub fn split<'a>(&mut self, line: &'a [u8]) -> Option<(Timestamp, &'a [u8])> {
        let head = line.get(..19)?;
        if head[4] != b'-' || head[10] != b'T' {
            return None;
        }
        // RFC 3339 with nanoseconds is at most 35 bytes long.
        let end = memchr::memchr(b' ', &line[..line.len().min(40)]).unwrap_or_else(|| {
            // An empty line may lose its space: the newline follows the stamp.
            line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len())
        });
        let text = &line[(end + usize::from(line.get(end) == Some(&b' '))).min(line.len())..];
        let behind = line.get(19..end)?;
        if let Some(nanos) = nanos(behind) {
            if head != self.prefix {
                let stamp = std::str::from_utf8(&line[..19]).ok()?;
                self.second = format!("{stamp}Z").parse::<Timestamp>().ok()?.as_second();
                self.prefix.copy_from_slice(head);
            }
            return Some((Timestamp::new(self.second, nanos).ok()?, text));
        }
        // Another offset than UTC.
        let stamp = std::str::from_utf8(&line[..end]).ok()?;
        Some((stamp.parse().ok()?, text))
    }
}

/// Converts the time that a logger wrote before a line to microseconds since 1970, as if it were UTC: `2026-11-22 03:12:16,385`.
/// Its time zone need not be known, so it only orders lines.
pub(super) fn stamp(time: &[u8]) -> Option<i64> {
    let (head, fraction) = time.split_at_checked(19)?;
    let seconds: jiff::civil::DateTime = std::str::from_utf8(head).ok()?.parse().ok()?;
    let seconds = seconds.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    let digits = fraction.iter().skip(1).take(6).take_while(|byte| byte.is_ascii_digit());
    let (micros, missing) =
        digits.fold((0, 6), |(sum, left), byte| (sum * 10 + i64::from(byte - b'0'), left - 1));
    Some(seconds * 1_000_000 + micros * 10_i64.pow(missing))
}

/// Reads the nanoseconds of `.077312376Z`, or of `Z`.
fn nanos(text: &[u8]) -> Option<i32> {
    let digits = text.strip_suffix(b"Z")?;
    if digits.is_empty() {
        return Some(0);
    }
    let digits = digits.strip_prefix(b".")?;
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |value, digit| value * 10 + i32::from(digit - b'0'));
    (digits.len()..9).try_fold(value, |value, _| value.checked_mul(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<(String, String)> {
        let (time, text) = Stamps::default().split(line.as_bytes())?;
        Some((time.to_string(), String::from_utf8_lossy(text).into_owned()))
    }

    #[test]
    fn reads_what_kubelets_write() {
        let ok = |line: &str, time: &str, text: &str| {
            assert_eq!(split(line), Some((time.to_owned(), text.to_owned())), "{line}");
        };
        ok("2026-11-21T02:13:44.077312376Z step 1\n", "2026-11-21T02:13:44.077312376Z", "step 1\n");
        ok("2026-11-21T02:13:44.5Z  two spaces", "2026-11-21T02:13:44.5Z", " two spaces");
        ok("2026-11-21T02:13:44Z a", "2026-11-21T02:13:44Z", "a");
        ok("2026-11-21T04:13:44.077312376+02:00 a", "2026-11-21T02:13:44.077312376Z", "a");
        ok("2026-11-21T02:13:44.077312376Z \n", "2026-11-21T02:13:44.077312376Z", "\n");
        ok("2026-11-21T02:13:44.077312376Z\n", "2026-11-21T02:13:44.077312376Z", "\n");
    }

    #[test]
    fn stamps_of_loggers_order_lines() {
        let time = |text: &str| stamp(weftrun_nccl::launcher::prefix(text.as_bytes()).time?);
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_microsecond();
        for (text, wanted) in [
            ("2026-11-22 03:12:16,385 - INFO - x", "2026-11-22T03:12:16.385Z"),
            ("[2026-11-22 03:12:16] vm:1:1 [0] NCCL INFO x", "2026-11-22T03:12:16Z"),
            ("2026-11-22T03:12:16.385123999Z x", "2026-11-22T03:12:16.385123Z"),
        ] {
            assert_eq!(time(text), Some(at(wanted)), "{text}");
        }
        for text in
            ["", "2026-11-22", "2026-13-22 03:12:16", "2026-11-22 25:12:16", "step 1 2026-11-22 03:12:16"]
        {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn anything_else_is_not_a_stamp() {
        for line in [
            "",
            "unable to retrieve container logs for containerd://3b8f",
            "2026-13-41T99:99:99Z a",
            "2026-11-21T02:13:44.Z a",
            "2026-11-21T02:13:44.0123456789Z a",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
