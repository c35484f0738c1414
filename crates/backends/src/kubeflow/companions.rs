//! The objects created with a job: ConfigMaps with its scripts, claim templates, compute domains, and the copied
//! runtime of a TrainJob. They are created before the job, owned by it, and deleted with it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use weftrun_core::backend::Rendered;
use weftrun_core::job::SubmissionId;
use weftrun_core::{Error, ErrorKind, Result};

use super::client::PATIENCE;
use super::object::JobObject;
use super::pod::SUBMISSION;
use super::profiler;
use super::status::Job;
use super::submit::create_once;
use crate::kubernetes::code::VOLUME;
use crate::kubernetes::{Cluster, Resource, is_changed, is_conflict, is_not_found};

/// Removes the companions of a job that was not made. One that stays is named in the error; one that another submission has taken
/// over meanwhile is that one's.
pub async fn remove(
    cluster: &Cluster,
    made: &[(Resource, String)],
    submission: &SubmissionId,
    error: Error,
) -> Error {
    let mut error = error;
    for (resource, name) in made {
        let removed = match cluster.get(resource, name).await {
            Ok(there) if there["metadata"]["labels"][SUBMISSION] != submission.as_str() => continue,
            Ok(there) => cluster.delete_unchanged(resource, &there).await,
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => {}
            Err(removal) if is_not_found(&removal) || is_changed(&removal) => {}
            Err(removal) => {
                error = error
                    .with("left behind", format!("the {} {name}: {}", resource.kind, removal.message()))
                    .hint(remove_hint(resource.kind, name));
            }
        }
    }
    error
}

fn remove_hint(kind: &str, name: &str) -> String {
    format!("`kubectl delete {} {name}` removes it", kind.to_lowercase())
}

/// Creates a companion, or adopts one that an interrupted submission of the same job left behind. Returns
/// whether it was created here, and must be removed if the job is refused.
///
/// The name of a ConfigMap contains its submission; the others are named after the job, since its pods refer
/// to them.
pub async fn make(
    base: &Cluster,
    companion: &JobObject,
    job: &JobObject,
    rendered: &Rendered,
) -> Result<bool> {
    let (cluster, name, began) = (companion.in_namespace(base), companion.name(), Instant::now());
    loop {
        let error = match create_once(base, companion, rendered).await {
            Ok(_) => return Ok(true),
            Err(error) if is_conflict(&error) => error.with("kind", companion.resource.kind),
            Err(error) => return Err(error),
        };
        match cluster.get(&companion.resource, &name).await {
            Ok(there) if is_left_behind(&there) => {
                if !["spec", "data", "binaryData"]
                    .iter()
                    .all(|part| holds(&there[*part], &companion.object[*part]))
                {
                    let kind = companion.resource.kind;
                    let message = format!(
                        "the {kind} {name} of an interrupted submission differs from what this job needs"
                    );
                    return Err(Error::new(ErrorKind::AlreadyExists, message).hint(remove_hint(kind, &name)));
                }
                // With the version that was read: of two submissions at once, one takes it over.
                let version = &there["metadata"]["resourceVersion"];
                let labels = json!({SUBMISSION: rendered.submission.as_str()});
                let ours = json!({"metadata": {"resourceVersion": version, "labels": labels}});
                match cluster.patch(&companion.resource, &name, &ours).await {
                    Err(error) if is_changed(&error) && began.elapsed() <= PATIENCE => continue,
                    taken => return taken.map(|_| false),
                }
            }
            Ok(_) => {}
            Err(gone) if is_not_found(&gone) => continue,
            Err(error) => return Err(error),
        }
        // The companion of a job that was just deleted disappears shortly after it.
        let of_a_job = match cluster.get(&job.resource, &job.name()).await {
            Ok(_) => true,
            Err(gone) => !is_not_found(&gone),
        };
        if of_a_job || began.elapsed() > PATIENCE {
            return Err(error);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Returns whether an object belongs to a submission that never set its job as the owner.
fn is_left_behind(object: &Value) -> bool {
    let meta = &object["metadata"];
    let owned = meta["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    meta["labels"][SUBMISSION].is_string() && !owned && !meta["deletionTimestamp"].is_string()
}

/// Returns whether the existing object contains everything of the desired one; the API server adds defaults.
fn holds(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key).is_some_and(|there| holds(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there.iter().zip(wanted).all(|(there, wanted)| holds(there, wanted))
        }
        _ => there == wanted,
    }
}

/// Sets a job as the owner of the objects that were created for it, if the submitting process ended before
/// that. The job runs without it too: an object without an owner merely stays when the job is deleted.
pub async fn adopt_left(cluster: &Cluster, job: &Job) {
    let code = format!("{}-code", job.name());
    let whole = FILES.map(|file| format!("{}-{file}", job.name()));
    let own = |name: &&String| name.starts_with(&code) || whole.contains(name);
    for name in mounted_maps(&job.object).iter().filter(own) {
        adopt(cluster, job, &Resource::CONFIG_MAPS, name).await;
    }
    let own_runtime = job.object["spec"]["runtimeRef"]["kind"] == Resource::TRAINING_RUNTIMES.kind;
    let Some(submission) = job.submission().filter(|_| own_runtime || has_claims(&job.object)) else {
        return;
    };
    for resource in Resource::COMPANIONS.iter().filter(|resource| **resource != Resource::CONFIG_MAPS) {
        // A cluster without the driver does not serve this kind.
        let objects = cluster.list(resource, &format!("{SUBMISSION}={submission}")).await.unwrap_or_default();
        for object in objects.iter().filter(|object| is_left_behind(object)) {
            adopt(cluster, job, resource, object["metadata"]["name"].as_str().unwrap_or_default()).await;
        }
    }
}

/// Returns whether pods of a job claim resources; the place of the pod template depends on the kind.
fn has_claims(object: &Value) -> bool {
    match object {
        Value::Array(items) => items.iter().any(has_claims),
        Value::Object(fields) => fields.contains_key("resourceClaims") || fields.values().any(has_claims),
        _ => false,
    }
}

/// Sets a job as the owner of an object.
pub async fn adopt(cluster: &Cluster, job: &Job, companion: &Resource, name: &str) {
    let resource = job.kind.resource();
    let owner = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "name": job.name(), "uid": job.uid(),
        "controller": false, "blockOwnerDeletion": false,
    });
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    if let Err(error) = cluster.patch(companion, name, &patch).await {
        tracing::warn!("the {} {name} stays when the job is deleted: {error}", companion.kind);
    }
}

/// The volumes of ConfigMaps with one file, which are named after the job and the volume.
const FILES: [&str; 2] = ["nccl-topology", profiler::VOLUME];

/// Returns the ConfigMaps with code, a topology file or weftrun's library that a job mounts. The path of the volumes depends on
/// the kind.
fn mounted_maps(object: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![object];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                let name = fields.get("name").and_then(Value::as_str);
                let code = name.is_some_and(|name| name == VOLUME || FILES.contains(&name));
                let map = fields.get("configMap").and_then(|map| map["name"].as_str());
                found.extend(map.filter(|_| code).map(str::to_owned));
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_added_makes_no_difference() {
        let wanted =
            json!({"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "a"}}, "list": [{"a": 1}]});
        let mut there = wanted.clone();
        there["channel"]["allocationMode"] = json!("Single");
        there["list"][0]["b"] = json!(2);
        assert!(holds(&there, &wanted));
        there["numNodes"] = json!(4);
        assert!(!holds(&there, &wanted));
        assert!(!holds(&json!({"list": []}), &json!({"list": [1]})));
    }
}
