//! `runPolicy` and restart policies.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::Reading;
use super::rest::whole as whole_number;
use weftrun_core::spec::{RestartPolicy, RoleKind};

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
        job.spec.queue = job.rest.text(&format!("{group}/queue")).or(job.spec.queue.take());
        job.spec.priority = job.rest.text(&format!("{group}/priorityClass")).or(job.spec.priority.take());
    }
}

/// Reads a restart policy. One that never restarts overrides an unused limit.
pub(super) fn restart(job: &mut Reading, at: &str) {
    let Some(policy) = job.rest.peek(at).and_then(Json::as_str).map(str::to_owned) else { return };
    // A job restarts as its launcher or its Worker says: another role's policy must be the same.
    let deciding = at.replace("/mpiReplicaSpecs/Worker/", "/mpiReplicaSpecs/Launcher/");
    let deciding = deciding.replace("/pytorchReplicaSpecs/Master/", "/pytorchReplicaSpecs/Worker/");
    let decides = deciding == at || job.rest.before().pointer(&deciding).is_none();
    if !decides {
        let is_worker_of_mpi = at.contains("/mpiReplicaSpecs/") && policy == "Never";
        if is_worker_of_mpi || job.rest.before().pointer(&deciding).and_then(Json::as_str) == Some(&policy) {
            job.rest.take(at);
        }
        return;
    }
    match policy.as_str() {
        "Never" => job.spec.restart = RestartPolicy::Never,
        "OnFailure" | "ExitCode" if job.spec.restart == RestartPolicy::Never => {
            job.spec.restart = RestartPolicy::OnFailure { max: RESTARTS };
        }
        "OnFailure" | "ExitCode" => {}
        _ => return,
    }
    job.rest.take(at);
}

/// Removes how many pods must start together, if these are all pods or all workers of the job: a rendered
/// job asks for all at once.
pub(super) fn gang(job: &mut Reading) {
    let of = |launcher: bool| {
        let roles = job.spec.roles.iter().filter(|role| launcher || role.kind == RoleKind::Worker);
        roles.map(|role| role.nodes).fold(0, u32::saturating_add)
    };
    let whole = [of(false), of(true)];
    for at in ["/spec/runPolicy/schedulingPolicy", "/spec/schedulingPolicy", "/spec"] {
        let at = format!("{at}/minAvailable");
        if job.rest.peek(&at).and_then(whole_number).is_some_and(|pods| whole.contains(&pods)) {
            job.rest.take(&at);
        }
    }
}
