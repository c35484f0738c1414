//! Converts a role to the fields of one kind of pod.

use serde_json::{Map, Value, json};
use weftrun_core::backend::{Inexpressible, PlannedJob};
use weftrun_core::fabric::{Change, Op, PROFILER_RULE};
use weftrun_core::spec::{Role, VolumeSource};
use weftrun_core::{Error, ErrorKind, Result};

use super::command;
use crate::kubernetes::escape::literal;

/// The label that carries the submission's id.
pub const MARKER: &str = "weftrun.dev/submission";
/// The label with the role's name in the job file.
pub const ROLE: &str = "weftrun.dev/role";
/// Longest name of a label or annotation (the document's `maxLength` since 2.19).
const LONGEST_NAME: usize = 63;
/// The resource for which the API has a separate field.
const GPUS: &str = "nvidia.com/gpu";

/// Returns the fields of one kind of pod, which runs these words.
pub fn pod(
    job: &PlannedJob,
    role: &Role,
    words: &[String],
    lost: &mut Vec<Inexpressible>,
) -> Result<Map<String, Value>> {
    let spec = &job.spec;
    let mut parts = Parts::default();
    for var in spec.env.iter().chain(&role.env) {
        set(&mut parts.env, &var.name, json!({"value": literal(&var.value)}));
    }
    for secret in &spec.secrets {
        set(&mut parts.env, &secret.env, json!({"secret": {"name": secret.secret, "key": secret.key}}));
    }
    parts.annotations = spec.annotations.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    for volume in &spec.volumes {
        parts.volume(&volume.name, &volume.mount, &volume.source, volume.read_only);
    }
    parts.resources = role.resources.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    for op in job.plan.ops.iter().filter(|op| op.role == role.name) {
        if matches!(op.change, Change::Wrap { .. }) && spec.starts_entrypoint(role) {
            let reason = "the image's entrypoint is started, and nothing can be put before it".to_owned();
            lost.push(Inexpressible { op: op.clone(), reason });
            continue;
        }
        parts.apply(op, lost);
    }
    let avoided: Vec<&str> = job.avoided().collect();
    if !avoided.is_empty() {
        parts
            .node_terms
            .push(json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": avoided}));
    }
    let mut pod = Map::new();
    if let Some(image) = role.image.as_ref().or(spec.image.as_ref()) {
        pod.insert("image".into(), json!(image));
    }
    command::write(words, &mut pod, &mut parts.env)?;
    parts.write(job, role, &mut pod)?;
    Ok(pod)
}

/// The parts of a pod, before they are converted to the API's form.
#[derive(Default)]
struct Parts {
    env: Vec<(String, Value)>,
    annotations: Vec<(String, String)>,
    resources: Vec<(String, String)>,
    storage: Map<String, Value>,
    capabilities: Vec<String>,
    node_terms: Vec<Value>,
    tolerations: Vec<Value>,
    affinity: Option<Value>,
}

impl Parts {
    fn volume(&mut self, name: &str, mount: &str, source: &VolumeSource, read_only: bool) {
        let (key, entry) = match source {
            // Descriptions and defaults disagree about `readOnly`, so it is always sent.
            VolumeSource::HostPath(path) => {
                ("hostPath", json!({"name": name, "path": path, "mountPath": mount, "readOnly": read_only}))
            }
            VolumeSource::Claim(claim) => (
                "pvc",
                json!({"name": name, "path": mount, "existingPvc": true, "claimName": claim, "readOnly": read_only}),
            ),
            VolumeSource::Memory { size } => {
                let mut entry = json!({"name": name, "path": mount, "medium": "Memory"});
                if let Some(size) = size {
                    entry["sizeLimit"] = json!(size);
                }
                ("emptyDirVolume", entry)
            }
            _ => return,
        };
        if let Value::Array(list) = self.storage.entry(key).or_insert_with(|| json!([])) {
            list.push(entry);
        }
    }

    fn apply(&mut self, op: &Op, lost: &mut Vec<Inexpressible>) {
        match &op.change {
            _ if op.rule == PROFILER_RULE => lost.push(Inexpressible {
                op: op.clone(),
                reason: "the API has no object that could hold a library: put it into the image (`weftrun bandwidth --write-library`)".to_owned(),
            }),
            Change::Env { name, value } if !op.change.needs_companion() => {
                set(&mut self.env, name, json!({"value": literal(value)}));
            }
            Change::Mount { name, host_path, mount_path, read_only } => {
                self.volume(name, mount_path, &VolumeSource::HostPath(host_path.clone()), *read_only);
            }
            Change::Resource { name, quantity } => set(&mut self.resources, name, quantity.clone()),
            Change::Annotation { key, value } => set(&mut self.annotations, key, value.clone()),
            Change::Capability { name } => self.capabilities.push(name.clone()),
            Change::NodeSelector { key, value } => {
                self.node_terms.push(json!({"key": key, "operator": "In", "values": [value]}));
            }
            Change::Colocate { topology_key } => {
                self.affinity = Some(json!({"type": "Required", "key": topology_key}));
            }
            Change::Toleration { key, value, effect } => {
                let mut toleration =
                    json!({"key": key, "operator": if value.is_some() { "Equal" } else { "Exists" }});
                if let Some(value) = value {
                    toleration["value"] = json!(value);
                }
                if let Some(effect) = effect {
                    toleration["effect"] = json!(effect);
                }
                self.tolerations.push(toleration);
            }
            // They are already in the command.
            Change::Command { .. } | Change::Wrap { .. } | Change::Mpirun { .. } => {}
            other => lost.push(Inexpressible {
                op: op.clone(),
                reason: format!("the API has no field for it ({})", other.target()),
            }),
        }
    }

    fn write(self, job: &PlannedJob, role: &Role, pod: &mut Map<String, Value>) -> Result<()> {
        let spec = &job.spec;
        // One in the job's folder exists once that is unpacked.
        if let Some(dir) = spec.workdir.as_ref().filter(|_| spec.workdir_in_code().is_none()) {
            pod.insert("workingDir".into(), json!(dir));
        }
        put(pod, "environmentVariables", self.env.into_iter().map(named).collect());
        let mut labels: Vec<(String, String)> =
            spec.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        labels.push((MARKER.to_owned(), job.submission.to_string()));
        labels.push((ROLE.to_owned(), role.name.clone()));
        put(pod, "annotations", texts("annotation", self.annotations)?);
        put(pod, "labels", texts("label", labels)?);
        let large_shm = role.shm.is_some() && !spec.volumes.iter().any(|volume| is_shm(&volume.mount));
        let compute = compute(role, self.resources, large_shm)?;
        if !compute.is_empty() {
            pod.insert("compute".into(), Value::Object(compute));
        }
        if !self.storage.is_empty() {
            pod.insert("storage".into(), Value::Object(self.storage));
        }
        if !self.capabilities.is_empty() {
            pod.insert("security".into(), json!({"capabilities": self.capabilities}));
        }
        if let Some(queue) = &spec.queue {
            pod.insert("nodePools".into(), json!([queue]));
        }
        if !self.node_terms.is_empty() {
            let terms = json!({"nodeSelectorTerms": [{"matchExpressions": self.node_terms}]});
            pod.insert("nodeAffinityRequired".into(), terms);
        }
        put(pod, "tolerations", self.tolerations);
        if let Some(affinity) = self.affinity {
            pod.insert("podAffinity".into(), affinity);
        }
        // The launcher's field is deprecated: a workload has one priority.
        if let Some(priority) =
            spec.priority.as_ref().filter(|_| role.kind == weftrun_core::spec::RoleKind::Worker)
        {
            pod.insert("priorityClass".into(), json!(priority));
        }
        Ok(())
    }
}

fn named((name, value): (String, Value)) -> Value {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(name));
    if let Value::Object(value) = value {
        entry.extend(value);
    }
    Value::Object(entry)
}

fn texts(what: &str, entries: Vec<(String, String)>) -> Result<Vec<Value>> {
    if let Some((name, _)) = entries.iter().find(|(name, _)| name.len() > LONGEST_NAME) {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("the {what} `{name}` has {} characters, and Run:ai takes {LONGEST_NAME}", name.len()),
        ));
    }
    Ok(entries.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect())
}

/// Returns whether a volume is mounted as the shared memory of a container.
pub fn is_shm(mount: &str) -> bool {
    mount.trim_end_matches('/') == "/dev/shm"
}

fn compute(role: &Role, resources: Vec<(String, String)>, large_shm: bool) -> Result<Map<String, Value>> {
    let mut compute = Map::new();
    if let Some(cpus) = &role.cpus {
        let cores = cores(cpus).ok_or_else(|| {
            Error::new(ErrorKind::InvalidSpec, format!("`{cpus}` is not a number of CPUs"))
                .with("role", &role.name)
                .hint("write `180` or `1500m`")
        })?;
        compute.insert("cpuCoreRequest".into(), json!(cores));
    }
    if let Some(memory) = &role.memory {
        compute.insert("cpuMemoryRequest".into(), json!(memory));
    }
    let gpus = resources.iter().find(|(resource, _)| resource == GPUS).map(|(_, count)| count.as_str());
    let gpus = gpus.and_then(|count| count.parse().ok()).unwrap_or(role.gpus_per_node);
    if gpus > 0 {
        // Whole GPUs need no other field.
        compute.insert("gpuDevicesRequest".into(), json!(gpus));
    }
    if large_shm {
        compute.insert("largeShmRequest".into(), json!(true));
    }
    let extended: Vec<Value> = resources
        .into_iter()
        .filter(|(resource, _)| resource != GPUS)
        .map(|(resource, quantity)| json!({"resource": resource, "quantity": quantity}))
        .collect();
    put(&mut compute, "extendedResources", extended);
    Ok(compute)
}

/// Converts `180` and `1500m` to the number of cores in the API: whole ones as integers.
fn cores(quantity: &str) -> Option<Value> {
    if let Ok(whole) = quantity.parse::<u64>() {
        return Some(json!(whole));
    }
    let number = match quantity.strip_suffix('m') {
        Some(milli) => milli.parse::<f64>().ok()? / 1000.0,
        None => quantity.parse().ok()?,
    };
    (number.is_finite() && number >= 0.0).then(|| json!(number))
}

fn put(map: &mut Map<String, Value>, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        map.insert(key.to_owned(), Value::Array(list));
    }
}

/// Replaces the entry with a name in place, or appends it.
fn set<T>(entries: &mut Vec<(String, T)>, name: &str, value: T) {
    match entries.iter_mut().find(|(known, _)| known == name) {
        Some(entry) => entry.1 = value,
        None => entries.push((name.to_owned(), value)),
    }
}
