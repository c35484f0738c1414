//! A pod template without its container: placement, user, volumes.

use serde_json::json;

use super::Reading;
use crate::spec::Role;

const INSTANCE_TYPES: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];

pub(super) fn read(job: &mut Reading, template: &str, role: &mut Role) {
    let spec = format!("{template}/spec");
    let labels = job.rest.texts(&format!("{template}/metadata/labels"));
    job.spec.labels.extend(labels);
    let annotations = job.rest.texts(&format!("{template}/metadata/annotations"));
    job.spec.annotations.extend(annotations);
    job.rest.drop_all(&[&format!("{template}/metadata/creationTimestamp")]);
    selector(job, &spec, role);
    same_for_all(job, &format!("{spec}/tolerations"), "tolerations");
    for (from, to) in [("serviceAccountName", "service-account"), ("schedulerName", "scheduler")] {
        same_for_all(job, &format!("{spec}/{from}"), to);
    }
    if let Some(secrets) = job.rest.take(&format!("{spec}/imagePullSecrets")) {
        let names: Vec<_> = secrets.as_array().into_iter().flatten().map(|one| one["name"].clone()).collect();
        job.own.insert("image-pull-secrets".to_owned(), json!(names));
    }
    if let Some(priority) = job.rest.text(&format!("{spec}/priorityClassName")) {
        job.spec.priority = Some(priority);
    }
    // The operators set it from the policy of the replicas.
    job.rest.drop_all(&[&format!("{spec}/restartPolicy")]);
}

/// Reads a setting that is the same for all pods of the job: another role's stays in place if it differs.
fn same_for_all(job: &mut Reading, at: &str, key: &str) {
    let Some(value) = job.rest.peek(at).cloned() else { return };
    if job.own.get(key).is_none_or(|known| *known == value) {
        job.rest.take(at);
        job.own.insert(key.to_owned(), value);
    }
}

fn selector(job: &mut Reading, spec: &str, role: &mut Role) {
    let at = format!("{spec}/nodeSelector");
    let labels: Vec<(String, String)> = job.rest.texts(&at);
    let mut others = serde_json::Map::new();
    for (label, value) in labels {
        if INSTANCE_TYPES.contains(&label.as_str()) {
            role.instance_type = Some(value);
        } else {
            others.insert(label, json!(value));
        }
    }
    if let Some(known) = job.own.get_mut("node-selector").and_then(serde_json::Value::as_object_mut) {
        known.extend(others);
    } else if !others.is_empty() {
        job.own.insert("node-selector".to_owned(), json!(others));
    }
}
