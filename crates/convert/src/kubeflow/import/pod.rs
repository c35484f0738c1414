//! A pod template without its container: placement, user, volumes.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Reading, Rest};
use weftrun_core::fabric::evidence::INSTANCE_LABELS;
use weftrun_core::spec::Role;

pub(super) fn read(job: &mut Reading, template: &str, role: &mut Role) {
    let spec = format!("{template}/spec");
    let metadata = format!("{template}/metadata");
    for_all_pods(&mut job.rest, &format!("{metadata}/labels"), &mut job.spec.labels);
    for_all_pods(&mut job.rest, &format!("{metadata}/annotations"), &mut job.spec.annotations);
    job.rest.drop_all(&[&format!("{template}/metadata/creationTimestamp")]);
    selector(job, &spec, role);
    same_for_all(job, &format!("{spec}/tolerations"), "tolerations");
    for (from, to) in [("serviceAccountName", "service-account"), ("schedulerName", "scheduler")] {
        same_for_all(job, &format!("{spec}/{from}"), to);
    }
    if let Some(secrets) = job.rest.take(&format!("{spec}/imagePullSecrets")) {
        let names = secrets.as_array().into_iter().flatten().map(|one| one["name"].clone());
        let known = job.own.entry("image-pull-secrets").or_insert_with(|| json!([]));
        if let Some(known) = known.as_array_mut() {
            names.for_each(|name| {
                if !known.contains(&name) {
                    known.push(name);
                }
            });
        }
    }
    let priority = format!("{spec}/priorityClassName");
    let differs = |known: &String| job.rest.peek(&priority).is_some_and(|class| class != known);
    if !job.spec.priority.as_ref().is_some_and(differs) {
        job.spec.priority = job.rest.text(&priority).or(job.spec.priority.take());
    }
    // The operators set it from the policy of the replicas.
    job.rest.drop_all(&[&format!("{spec}/restartPolicy")]);
}

/// Reads labels or annotations, which all pods of a job have: one that differs from another role's stays in
/// place.
fn for_all_pods(rest: &mut Rest, at: &str, known: &mut BTreeMap<String, String>) {
    let found = rest.texts_if(at, |name, value| known.get(name).is_none_or(|known| known == value));
    known.extend(found);
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
    let mut known = match job.own.remove("node-selector") {
        Some(serde_json::Value::Object(known)) => known,
        _ => serde_json::Map::new(),
    };
    let labels = job.rest.texts_if(&at, |label, value| known.get(label).is_none_or(|known| known == value));
    for (label, value) in labels {
        if INSTANCE_LABELS.contains(&label.as_str()) {
            role.instance_type = Some(value);
        } else {
            known.insert(label, json!(value));
        }
    }
    if !known.is_empty() {
        job.own.insert("node-selector".to_owned(), json!(known));
    }
}
