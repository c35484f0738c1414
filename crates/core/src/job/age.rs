//! The age of something, for display.

use jiff::Timestamp;

/// Returns the time since then, in the largest unit: `40s`, `6m`, `5h`, `3d`.
///
/// ```
/// let now: jiff::Timestamp = "2026-11-21T12:00:00Z".parse()?;
/// assert_eq!(weftrun_core::job::age(now, "2026-11-21T11:54:10Z".parse()?), "5m");
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
