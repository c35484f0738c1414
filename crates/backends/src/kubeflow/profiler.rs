//! weftrun's library for NCCL's profiler interface, in a ConfigMap beside the job.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weftrun_core::backend::{Inexpressible, PlannedJob};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::{Change, Op, PROFILER_PATH, PROFILER_RULE, PodList};

/// The volume with the library, by which it is found after an interrupted submission.
pub const VOLUME: &str = "nccl-profiler";

/// Adds the ConfigMap and its mounts to the operations of a job that brings the library, or takes out what cannot be
/// brought.
pub fn bring<'a>(job: &'a PlannedJob, namespace: Option<&str>) -> (Cow<'a, PlannedJob>, Vec<Inexpressible>) {
    if !job.plan.ops.iter().any(|op| op.change.needs_library()) {
        return (Cow::Borrowed(job), Vec::new());
    }
    let mut own = job.clone();
    let ops = std::mem::take(&mut own.plan.ops);
    let bytes = match library(job) {
        Ok(bytes) => bytes,
        // Nothing of the rule makes sense without it.
        Err(reason) => {
            let (lost, kept): (Vec<Op>, _) = ops.into_iter().partition(|op| op.rule == PROFILER_RULE);
            own.plan.ops = kept;
            let lost = lost.into_iter().map(|op| Inexpressible { op, reason: reason.clone() });
            return (Cow::Owned(own), lost.collect());
        }
    };
    let (folder, file) = PROFILER_PATH.rsplit_once('/').unwrap_or_default();
    let map = format!("{}-{VOLUME}", job.spec.name);
    let mut made = false;
    for op in ops {
        if op.change.needs_library() {
            let with = |change| {
                let mut op: Op = op.clone();
                op.change = change;
                op
            };
            if !std::mem::replace(&mut made, true) {
                let mut metadata = json!({"name": map});
                if let Some(namespace) = namespace {
                    metadata["namespace"] = json!(namespace);
                }
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                    "binaryData": {file: STANDARD.encode(bytes)}});
                own.plan.ops.push(with(Change::Companion { object }));
            }
            let member = |list, name: &str, value| Change::Member { list, name: name.to_owned(), value };
            let volume = json!({"name": VOLUME, "configMap": {"name": map}});
            let mount = json!({"name": VOLUME, "mountPath": folder, "readOnly": true});
            own.plan.ops.push(with(member(PodList::Volumes, VOLUME, volume)));
            own.plan.ops.push(with(member(PodList::VolumeMounts, folder, mount)));
        }
        own.plan.ops.push(op);
    }
    (Cow::Owned(own), Vec::new())
}

/// Returns the library for the job's nodes, or why there is none.
fn library(job: &PlannedJob) -> Result<&'static [u8], String> {
    if job.facts.extra.get("may-create-configmaps").and_then(Value::as_bool) == Some(false) {
        return Err("you may not create ConfigMaps in this namespace".to_owned());
    }
    let catalogue = Catalogue::builtin();
    let named = job.plan.instance_type.as_deref().and_then(|name| catalogue.get(name)?.arch.as_deref());
    let nodes =
        job.facts.nodes.iter().filter(|group| group.allocatable.keys().any(|key| key.ends_with("/gpu")));
    let told: BTreeSet<&str> =
        nodes.filter_map(|group| group.labels.get("kubernetes.io/arch").map(String::as_str)).collect();
    let only = told.first().copied().filter(|_| told.len() == 1);
    let machine = match named.or(only) {
        Some("amd64") => "x86_64",
        Some("arm64") => "aarch64",
        Some(other) => other,
        None => {
            return Err("the architecture of the nodes is not known: name their `instance_type`".to_owned());
        }
    };
    weftrun_profiler::library(machine)
        .ok_or_else(|| format!("this build of weftrun has no NCCL profiler library for {machine}"))
}
