//! Parses answers of a control plane as the backend does, only for the fuzz target `runai_answer`.

use reqwest::StatusCode;
use serde_json::Value;
use weftrun_core::job::{JobHandle, JobSummary};

use super::{discover, error, status, version::Version};

/// Parses an answer as each possible type; returns every text of it that would be printed.
pub fn printed(status: u16, answer: &str) -> Vec<String> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let refused = error::of_answer("cannot read", status, answer);
    let mut texts = vec![refused.to_string()];
    texts.extend(
        refused.findings().iter().flat_map(|finding| [finding.message.clone(), finding.code.clone()]),
    );
    texts.extend(Version::parse(answer).map(|version| version.to_string()));
    match serde_json::from_str::<Value>(answer) {
        Ok(value) => of_value(&value, &mut texts),
        Err(error) => texts.push(error::of_shape("cannot read", answer, &error).to_string()),
    }
    texts
}

fn of_value(value: &Value, texts: &mut Vec<String>) {
    let handle = JobHandle::new("runai", "fuzz", ["project", "distributed", "workload"]);
    let each: Vec<&Value> = value.as_array().map_or_else(|| vec![value], |items| items.iter().collect());
    for value in &each {
        of_summary(status::of_typed(handle.clone(), value), texts);
        of_summary(status::of_listed(handle.clone(), value), texts);
        let pod = status::replica(value, 0);
        texts.extend([pod.name, pod.role]);
        texts.extend(pod.node);
        let (_, word, said, _) = status::event(value);
        texts.extend([word, said]);
        if let Some((word, said, _)) = status::phase_update(value) {
            texts.extend([word, said]);
        }
    }
    discover::groups(&each.into_iter().cloned().collect::<Vec<_>>());
}

fn of_summary(job: JobSummary, texts: &mut Vec<String>) {
    texts.extend([job.name, job.reason, job.kind]);
    texts.extend(job.queue);
}
