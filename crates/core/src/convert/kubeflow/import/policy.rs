//! `runPolicy` and restart policies.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::Reading;
use crate::spec::RestartPolicy;

/// How often a job restarts if its manifest allows restarts without a number.
const RESTARTS: u32 = 3;

/// Reads a `runPolicy`.
pub(super) fn run(job: &mut Reading, at: &str) {
    for (from, to) in [("cleanPodPolicy", "clean-pod-policy"), ("ttlSecondsAfterFinished", "ttl-seconds")] {
        let value = job.rest.take(&format!("{at}/{from}"));
        job.set(to, value);
    }
    let suspend = job.rest.take(&format!("{at}/suspend")).filter(|value| *value == json!(true));
    job.set("suspend", suspend);
    if let Some(seconds) = job.rest.number(&format!("{at}/activeDeadlineSeconds")) {
        job.spec.time_limit = Some(Duration::from_secs(seconds.into()));
    }
    if let Some(max) = job.rest.number(&format!("{at}/backoffLimit"))
        && max > 0
    {
        job.spec.restart = RestartPolicy::OnFailure { max };
    }
    let group = format!("{at}/schedulingPolicy");
    if job.rest.has(&group) {
        job.own.insert("gang".to_owned(), json!("volcano"));
        // The renderer also requests all nodes at once.
        job.rest.take(&format!("{group}/minAvailable"));
        job.spec.queue = job.rest.text(&format!("{group}/queue")).or(job.spec.queue.take());
        job.spec.priority = job.rest.text(&format!("{group}/priorityClass")).or(job.spec.priority.take());
    }
}

/// Reads a restart policy. One that never restarts overrides an unused limit.
pub(super) fn restart(job: &mut Reading, at: &str) {
    let Some(policy) = job.rest.peek(at).and_then(Json::as_str).map(str::to_owned) else { return };
    let is_worker_of_mpi = at.contains("/mpiReplicaSpecs/Worker/");
    match policy.as_str() {
        "Never" if !is_worker_of_mpi => job.spec.restart = RestartPolicy::Never,
        "OnFailure" | "ExitCode" if job.spec.restart == RestartPolicy::Never => {
            job.spec.restart = RestartPolicy::OnFailure { max: RESTARTS };
        }
        "Never" | "OnFailure" | "ExitCode" => {}
        _ => return,
    }
    job.rest.take(at);
}
