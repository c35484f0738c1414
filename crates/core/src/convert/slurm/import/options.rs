//! The options of the `#SBATCH` lines, each taken once; and what their values mean.

use std::collections::BTreeMap;
use std::time::Duration;

/// Options that were not taken yet.
pub(super) struct Options(BTreeMap<String, String>);

impl Options {
    pub fn new(options: &BTreeMap<String, String>) -> Self {
        Self(options.clone())
    }

    /// Takes the first of these names that is there.
    pub fn take(&mut self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.0.remove(*name))
    }

    /// Takes a whole number; of a range (`4-8`) the first.
    pub fn number(&mut self, names: &[&str]) -> Option<u32> {
        let text = names.iter().find_map(|name| self.0.get(*name))?;
        let number = text.split(['-', ':']).next()?.trim().parse().ok()?;
        self.take(names);
        Some(number)
    }

    /// GPUs of a node, however they were asked.
    pub fn gpus(&mut self, nodes: u32, tasks: u32) -> u32 {
        let count = |text: &str| text.rsplit(':').next().and_then(|count| count.parse::<u32>().ok());
        if let Some(text) = self.take(&["gpus-per-node"]) {
            return count(&text).unwrap_or(0);
        }
        let gres = self.0.get("gres").filter(|gres| !gres.contains(',') && gres.starts_with("gpu")).cloned();
        if let Some(gres) = gres {
            self.0.remove("gres");
            return count(&gres).unwrap_or(1);
        }
        if let Some(text) = self.take(&["gpus", "G"]) {
            return count(&text).unwrap_or(0) / nodes.max(1);
        }
        self.take(&["gpus-per-task"]).and_then(|text| count(&text)).unwrap_or(0).saturating_mul(tasks)
    }

    /// What is left: `--name=value` for `[backend.slurm] sbatch`, and short options nobody knows.
    pub fn rest(&mut self) -> (Vec<String>, Vec<String>) {
        let all = std::mem::take(&mut self.0);
        let (long, short): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name.len() > 1);
        let option = |(name, value): (String, String)| {
            if value.is_empty() { format!("--{name}") } else { format!("--{name}={value}") }
        };
        (long.into_iter().map(option).collect(), short.into_iter().map(|(name, _)| name).collect())
    }
}

/// `64G`, `512000` (MiB) as a Kubernetes quantity; `0` is all of the node and nothing to ask.
pub(super) fn memory(text: &str) -> Option<String> {
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

/// A time limit as Slurm writes it: `2-00:00:00`, `12:00:00`, `30:00`, `30` (minutes); `UNLIMITED` is none.
pub fn slurm_duration(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().ok()?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match (days.is_some(), parts.as_slice()) {
        (true, [hours]) => hours.checked_mul(3600)?,
        (true, [hours, minutes]) => hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?,
        (false, [minutes]) => minutes.checked_mul(60)?,
        (false, [minutes, seconds]) => minutes.checked_mul(60)?.checked_add(*seconds)?,
        (_, [hours, minutes, seconds]) => {
            hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(*seconds)?
        }
        _ => return None,
    };
    let all = days.unwrap_or(0).checked_mul(86_400)?.checked_add(seconds)?;
    Some(Duration::from_secs(all)).filter(|limit| !limit.is_zero())
}
