//! The platform's phases and events as ours.

use jiff::Timestamp;
use serde_json::Value;
use weftrun_core::Severity;
use weftrun_core::job::{JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId};
use weftrun_core::log::clean_text;

use super::lookup::text;
use super::render::MARKER;

/// One phase of the platform as ours. `Degraded` and words of later versions are not terminal: a workload comes back
/// from them.
pub fn phase(word: &str) -> JobPhase {
    match word {
        "Creating" => JobPhase::Submitted,
        "Pending" => JobPhase::Pending,
        "Initializing" | "Resuming" => JobPhase::Starting,
        "Running" | "Updating" => JobPhase::Running,
        "Degraded" => JobPhase::Restarting,
        "Stopped" => JobPhase::Suspended,
        "Stopping" | "Deleting" | "Terminating" => JobPhase::Stopping,
        "Completed" => JobPhase::Succeeded,
        "Failed" => JobPhase::Failed,
        _ => JobPhase::Unknown,
    }
}

/// A workload as the typed read gives it.
pub fn of_typed(handle: JobHandle, workload: &Value) -> JobSummary {
    let word = text(workload, "actualPhase").unwrap_or("Unknown");
    let mut job = JobSummary::new(handle, phase(word));
    if let Some(name) = text(workload, "name") {
        clean_text(name).into_owned().clone_into(&mut job.name);
    }
    job.kind =
        if workload.pointer("/spec/distributedFramework").is_some() { "Distributed" } else { "Training" }
            .into();
    job.created = time(workload, "createdAt");
    job.submission = marker(workload);
    if job.phase == JobPhase::Unknown {
        job.reason = format!("the platform says `{}`", clean_text(word));
    }
    let workers = workload.pointer("/spec/numWorkers").and_then(Value::as_u64).unwrap_or(1);
    let master = workload.get("masterSpecSameAsWorker").and_then(Value::as_bool) == Some(true);
    job.ready.1 = u32::try_from(workers + u64::from(master)).unwrap_or(u32::MAX);
    job
}

/// A workload as the list gives it.
pub fn of_listed(handle: JobHandle, workload: &Value) -> JobSummary {
    let mut job = JobSummary::new(handle, phase(text(workload, "phase").unwrap_or("Unknown")));
    if let Some(name) = text(workload, "name") {
        clean_text(name).into_owned().clone_into(&mut job.name);
    }
    job.reason = clean_text(text(workload, "phaseMessage").unwrap_or_default()).into_owned();
    job.kind = clean_text(text(workload, "type").unwrap_or_default()).into_owned();
    job.created = time(workload, "createdAt");
    job.ended = time(workload, "completedAt");
    let count = |value: Option<&Value>| {
        value.and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
    };
    job.ready = (count(workload.get("runningPods")), count(workload.pointer("/requestedPods/number")));
    job.queue = workload
        .pointer("/currentNodePools/0")
        .and_then(Value::as_str)
        .map(|pool| clean_text(pool).into_owned());
    job
}

/// The submission a workload carries.
pub fn marker(workload: &Value) -> Option<SubmissionId> {
    let labels = workload.pointer("/spec/labels")?.as_array()?;
    let ours = labels.iter().find(|label| text(label, "name") == Some(MARKER))?;
    SubmissionId::parse(text(ours, "value")?)
}

/// A pod of a workload.
pub fn replica(pod: &Value, index: u32) -> ReplicaStatus {
    let name = clean_text(text(pod, "name").unwrap_or_default()).into_owned();
    let role = if name.contains("-launcher") {
        "launcher"
    } else if name.contains("-master") {
        "master"
    } else {
        "worker"
    };
    let number = name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(index);
    let phase = match text(pod, "k8sPhase").unwrap_or_default().to_lowercase().as_str() {
        "pending" => JobPhase::Pending,
        "running" => JobPhase::Running,
        "succeeded" => JobPhase::Succeeded,
        "failed" => JobPhase::Failed,
        _ => JobPhase::Unknown,
    };
    let mut replica = ReplicaStatus::new(name, role, number, phase);
    replica.node = text(pod, "nodeName").map(|node| clean_text(node).into_owned());
    replica
}

/// An event: how bad, the platform's word, its text, when.
pub fn event(event: &Value) -> (Severity, String, String, Option<Timestamp>) {
    let severity = if text(event, "type") == Some("Warning") { Severity::Warning } else { Severity::Info };
    let word = clean_text(text(event, "reason").unwrap_or("Event")).into_owned();
    let said = clean_text(text(event, "message").unwrap_or_default()).into_owned();
    (severity, word, said, time(event, "createdAt"))
}

fn time(value: &Value, key: &str) -> Option<Timestamp> {
    text(value, key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_completed_and_failed_are_the_end() {
        let words = [
            "Creating",
            "Initializing",
            "Resuming",
            "Pending",
            "Deleting",
            "Running",
            "Updating",
            "Stopped",
            "Stopping",
            "Degraded",
            "Failed",
            "Completed",
            "Terminating",
            "Unknown",
            "SomethingOfVersion4",
        ];
        let terminal: Vec<_> = words.into_iter().filter(|word| phase(word).is_terminal()).collect();
        assert_eq!(terminal, ["Failed", "Completed"]);
    }
}
