//! Parses the values of options.

use std::time::Duration;

/// Converts `64G`, `512000` (MiB) to a Kubernetes quantity; `0` is all of the node and needs no request.
pub(in crate::slurm) fn memory(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    let unit = match text.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "" | "M" | "MB" => "Mi",
        "K" | "KB" => "Ki",
        "G" | "GB" => "Gi",
        "T" | "TB" => "Ti",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Reads a time limit of Slurm: `2-00:00:00`, `12:00:00`, `30:00`, `30` (minutes); `UNLIMITED` is none.
pub fn slurm_duration(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().ok()?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let units: &[u64] = match (days.is_some(), parts.len()) {
        (true, 1) => &[3600],
        (true, 2) => &[3600, 60],
        (false, 1) => &[60],
        (false, 2) => &[60, 1],
        (_, 3) => &[3600, 60, 1],
        _ => return None,
    };
    let all =
        parts.iter().zip(units).try_fold(days.unwrap_or(0).checked_mul(86_400)?, |sum, (part, unit)| {
            sum.checked_add(part.checked_mul(*unit)?)
        })?;
    Some(Duration::from_secs(all)).filter(|limit| !limit.is_zero())
}
