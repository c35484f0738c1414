//! What a job used, from the steps that accounting gathered.

use weftrun_core::text::{Quantity, rounded_size};

use super::client::Client;
use super::ids::JobId;

/// The columns for `sacct --format`.
const COLUMNS: [&str; 5] = ["JobID", "MaxRSS", "TotalCPU", "CPUTimeRAW", "TRESUsageInMax"];

/// Returns facts of what a job used; none where accounting does not gather them.
pub async fn facts(client: &Client, id: &JobId) -> Vec<(String, String)> {
    let answer = client.accounting_text(&format!("-j {id}"), &COLUMNS.join(",")).await;
    answer.ok().flatten().map_or_else(Vec::new, |text| read(&text))
}

/// Reads the rows of a job and its steps.
fn read(text: &str) -> Vec<(String, String)> {
    let (mut memory, mut gpu_memory, mut gpu) = (0, 0, None::<u64>);
    let (mut busy, mut allocated) = (0.0, 0.0);
    for line in text.lines() {
        let fields: Vec<&str> = line.split(super::records::FIELD).collect();
        let [job, rss, cpu, raw, used] = fields.as_slice() else { continue };
        memory = memory.max(size(rss).unwrap_or(0));
        // Rows of steps have a point in their id; their times are part of the job's.
        if !job.contains('.') {
            busy += seconds(cpu).unwrap_or(0.0);
            allocated += raw.parse::<f64>().unwrap_or(0.0);
        }
        for (name, value) in used.split(',').filter_map(|pair| pair.split_once('=')) {
            match name {
                "gres/gpumem" => gpu_memory = gpu_memory.max(size(value).unwrap_or(0)),
                "gres/gpuutil" => gpu = gpu.max(value.parse().ok()),
                _ => {}
            }
        }
    }
    let mut facts = Vec::new();
    let mut add = |key: &str, value: String| facts.push((key.to_owned(), value));
    if memory > 0 {
        add("memory", format!("{} at most in a task", rounded_size(memory)));
    }
    if busy > 0.0 && allocated > 0.0 {
        add("cpus", format!("{:.0} % of their time used", (100.0 * busy / allocated).min(100.0)));
    }
    if gpu_memory > 0 {
        add("gpu mem", format!("{} at most in a task", rounded_size(gpu_memory)));
    }
    if let Some(share) = gpu {
        add("gpus", format!("{share} % used at most by a task"));
    }
    facts
}

/// Reads `12345K`, `1.5G` or a number of bytes. Slurm's suffixes are binary.
fn size(text: &str) -> Option<u64> {
    let suffix = if text.ends_with(['K', 'M', 'G', 'T']) { "i" } else { "" };
    Quantity::parse(&format!("{text}{suffix}")).map(Quantity::whole)
}

/// Reads `[DAYS-][HOURS:]MINUTES:SECONDS`.
fn seconds(text: &str) -> Option<f64> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let parts = rest.split(':').map(|part| part.parse::<f64>().ok());
    let time = parts.collect::<Option<Vec<f64>>>()?.into_iter().fold(0.0, |sum, part| sum * 60.0 + part);
    Some(days.parse::<f64>().ok()? * 86_400.0 + time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_steps_used_is_summed_for_the_job() {
        let rows = "7||01:00:00|14400|\n7.batch|2048K|10:00.500|14400|cpu=00:10:00,gres/gpumem=0\n\
                    7.0|1.5G|50:00|14400|cpu=00:50:00,gres/gpumem=70000M,gres/gpuutil=93,mem=1.5G\n";
        let facts = read(&rows.replace('|', "\u{1f}"));
        let facts: Vec<String> = facts.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        assert_eq!(
            facts,
            [
                "memory: 1.5 GiB at most in a task",
                "cpus: 25 % of their time used",
                "gpu mem: 68.4 GiB at most in a task",
                "gpus: 93 % used at most by a task"
            ]
        );
        for nothing in ["", "7|||0|", "7||00:00:00|0|\n7.0|||0|", "x|1Z|a:b|-|=,,gres/gpumem=", "1-2|9"] {
            assert_eq!(read(&nothing.replace('|', "\u{1f}")), [], "{nothing}");
        }
        assert_eq!(seconds("2-01:00:00"), Some(176_400.0));
    }
}
