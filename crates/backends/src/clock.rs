//! The time of this machine, which is not checked by anyone: it may be set to before 1970 or to the year 287,000.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};

/// Distance from the ends of what [`Timestamp`] holds, so that hours and days can be added to any time.
const MARGIN: SignedDuration = SignedDuration::from_hours(2 * 366 * 24);

/// Returns the current time; the nearest one that can be calculated with, if the clock is outside of the years
/// that [`Timestamp`] holds. `Timestamp::now` panics there.
pub fn now() -> Timestamp {
    of(SystemTime::now())
}

/// Returns a time of a file or of this machine, or the nearest one that can be calculated with.
pub(crate) fn of(time: SystemTime) -> Timestamp {
    let first = Timestamp::MIN.saturating_add(MARGIN).unwrap_or(Timestamp::MIN);
    let last = Timestamp::MAX.saturating_sub(MARGIN).unwrap_or(Timestamp::MAX);
    let nearest = if time < SystemTime::UNIX_EPOCH { first } else { last };
    Timestamp::try_from(time).map_or(nearest, |time| time.clamp(first, last))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_outside_of_what_is_held_gives_a_time_that_can_be_calculated_with() {
        let epoch = SystemTime::UNIX_EPOCH;
        let years = |count: u64| Duration::from_secs(count * 31_556_952);
        for time in
            [epoch + years(285_000), epoch + years(8_029), epoch - years(1970), epoch - years(280_000)]
        {
            let time = of(time);
            assert!(time.checked_add(SignedDuration::from_hours(366 * 24)).is_ok(), "{time}");
            assert!(time.checked_sub(SignedDuration::from_hours(366 * 24)).is_ok(), "{time}");
        }
        let second = Duration::new(1_700_000_000, 5);
        assert_eq!(of(epoch + second).as_nanosecond(), 1_700_000_000_000_000_005);
    }
}
