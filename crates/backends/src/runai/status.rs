//! Converts the platform's phases and events to weftrun's.

use jiff::Timestamp;
use serde_json::Value;
use weftrun_core::Severity;
use weftrun_core::job::{JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId};
use weftrun_core::log::clean_text;

use super::render::{MARKER, ROLE};
use super::resolve::text;

/// Converts a phase of the platform. `Degraded` and phases of later versions are not terminal: a workload can
/// recover from them.
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

/// Converts a workload from a typed read.
pub fn of_typed(handle: JobHandle, workload: &Value) -> JobSummary {
    let word = text(workload, "actualPhase").unwrap_or("Unknown");
    let mut job = JobSummary::new(handle, phase(word));
    if text(workload, "name").is_some() {
        job.name = shown(workload, "name");
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
    job.ready.1 = u32::try_from(workers.saturating_add(u64::from(master))).unwrap_or(u32::MAX);
    job
}

/// Converts a workload from the list.
pub fn of_listed(handle: JobHandle, workload: &Value) -> JobSummary {
    let mut job = JobSummary::new(handle, phase(text(workload, "phase").unwrap_or("Unknown")));
    if text(workload, "name").is_some() {
        job.name = shown(workload, "name");
    }
    job.reason = shown(workload, "phaseMessage");
    job.kind = shown(workload, "type");
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

/// Returns the submission in a workload's label.
pub fn marker(workload: &Value) -> Option<SubmissionId> {
    let labels = workload.pointer("/spec/labels")?.as_array()?;
    let ours = labels.iter().find(|label| text(label, "name") == Some(MARKER))?;
    SubmissionId::parse(text(ours, "value")?)
}

/// The names of a workload's roles in the job file.
///
/// The API has a master, workers and a launcher. If the master is the first node of the workers' role, it
/// counts as node 0 of that role, as in the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    master: Option<String>,
    worker: Option<String>,
}

impl Roles {
    /// Reads the roles from the rendered labels; a workload of another client has none.
    pub fn of(workload: &Value) -> Self {
        let role = |pod: &str| {
            let labels = workload.get(pod)?.get("labels")?.as_array()?;
            let label = labels.iter().find(|label| text(label, "name") == Some(ROLE))?;
            Some(clean_text(text(label, "value")?).into_owned())
        };
        let worker = role("spec");
        let same = workload.get("masterSpecSameAsWorker").and_then(Value::as_bool) == Some(true);
        let master = if same { worker.clone() } else { role("masterSpec") };
        Self { master, worker }
    }

    /// Returns the role of a pod, and its number in it.
    pub fn of_pod(&self, pod: &str) -> (String, Option<u32>) {
        let (role, number) = role(pod);
        let shared = self.master.is_some() && self.master == self.worker;
        let (name, number) = match role {
            "worker" if shared => (&self.worker, number.map(|number| number.saturating_add(1))),
            "worker" => (&self.worker, number),
            _ => (&self.master, number),
        };
        (name.clone().unwrap_or_else(|| role.to_owned()), number)
    }

    /// Returns whether a pod belongs to one of the given roles, by the job file's or the platform's names.
    pub fn is_wanted(&self, pod: &str, wanted: &[String]) -> bool {
        wanted.is_empty()
            || wanted.contains(&self.of_pod(pod).0)
            || wanted.iter().any(|name| name == role(pod).0)
    }

    /// Converts a pod of a workload.
    pub fn replica(&self, pod: &Value, index: u32) -> ReplicaStatus {
        let mut replica = replica(pod, index);
        let (role, number) = self.of_pod(&replica.name);
        replica.role = role;
        replica.index = number.unwrap_or(index);
        replica
    }
}

/// Returns the addresses of a workload from the list.
pub fn addresses(listed: &Value) -> Vec<String> {
    let list = |key: &str| listed.get(key).and_then(Value::as_array).into_iter().flatten();
    let connections = list("externalConnections").filter_map(|connection| {
        let url = text(connection, "url").filter(|url| !url.is_empty())?;
        Some(match text(connection, "name").filter(|name| !name.is_empty()) {
            Some(name) => format!("{url} ({name})"),
            None => url.to_owned(),
        })
    });
    let mut found: Vec<String> = connections.map(|shown| clean_text(&shown).into_owned()).collect();
    for url in list("urls").filter_map(Value::as_str) {
        if !found.iter().any(|known| known.starts_with(url)) {
            found.push(clean_text(url).into_owned());
        }
    }
    found
}

/// Returns the role of a pod and its number, from its name (`NAME-master-0`, `NAME-worker-3`,
/// `NAME-launcher-x7k2p`).
pub fn role(pod: &str) -> (&'static str, Option<u32>) {
    let mut words = pod.rsplit('-');
    let last = words.next().unwrap_or_default();
    let number = last.parse().ok();
    match words.next() {
        _ if last == "launcher" => ("launcher", None),
        Some("launcher") => ("launcher", None),
        Some("master") => ("master", number),
        _ => ("worker", number),
    }
}

/// Converts a pod of a workload.
pub fn replica(pod: &Value, index: u32) -> ReplicaStatus {
    let name = shown(pod, "name");
    let (role, number) = role(&name);
    let phase = match text(pod, "k8sPhase").unwrap_or_default().to_lowercase().as_str() {
        "pending" => JobPhase::Pending,
        "running" => JobPhase::Running,
        "succeeded" => JobPhase::Succeeded,
        "failed" => JobPhase::Failed,
        _ => JobPhase::Unknown,
    };
    let mut replica = ReplicaStatus::new(&name, role, number.unwrap_or(index), phase);
    replica.node = text(pod, "nodeName").map(|node| clean_text(node).into_owned());
    replica
}

/// Returns the phase in a history record, with its message and time.
pub fn phase_update(record: &Value) -> Option<(String, String, Option<Timestamp>)> {
    let update = record.pointer("/spec/phaseUpdate").filter(|update| update.is_object())?;
    let word = clean_text(text(update, "phase")?).into_owned();
    let said = shown(update, "phaseMessage");
    Some((word, said, record.get("meta").and_then(|meta| time(meta, "creationTimestamp"))))
}

/// Returns what a change of phase means if it starts another attempt.
pub fn new_attempt(before: JobPhase, now: JobPhase) -> Option<&'static str> {
    use JobPhase::{Pending, Restarting, Running, Starting, Stopping, Submitted, Suspended};
    match (before, now) {
        (Suspended, Submitted | Pending | Starting | Running) => Some("resumed after a suspend"),
        // A workload that stops because of a suspend was not preempted.
        (Stopping, _) => None,
        (Running | Restarting, Pending) => Some("preempted: waits for nodes again"),
        _ => None,
    }
}

/// Converts an event: severity, the platform's word, its text, its time.
pub fn event(event: &Value) -> (Severity, String, String, Option<Timestamp>) {
    let severity = if text(event, "type") == Some("Warning") { Severity::Warning } else { Severity::Info };
    let word = clean_text(text(event, "reason").unwrap_or("Event")).into_owned();
    let said = shown(event, "message");
    (severity, word, said, time(event, "createdAt"))
}

/// Returns a text field of an answer, cleaned; empty if there is none.
fn shown(value: &Value, key: &str) -> String {
    clean_text(text(value, key).unwrap_or_default()).into_owned()
}

/// Returns a time field of an answer.
pub fn time(value: &Value, key: &str) -> Option<Timestamp> {
    text(value, key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_says_what_it_is_by_its_name() {
        assert_eq!(role("master-plan-worker-12"), ("worker", Some(12)));
        assert_eq!(role("llama-master-0"), ("master", Some(0)));
        assert_eq!(role("nccl-launcher-x7k2p"), ("launcher", None));
        assert_eq!(role("nccl-launcher"), ("launcher", None));
        assert_eq!(role("single-0-0"), ("worker", Some(0)));
    }

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
