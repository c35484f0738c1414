//! A planned job becomes the body of one create request. Only what the user or a rule set is in it.

use serde_json::{Map, Value, json};
use weftrun_core::backend::{Document, Hole, Inexpressible, Language, PlannedJob, Rendered};
use weftrun_core::mutation::{Change, Op};
use weftrun_core::spec::{Launch, Rendezvous, RestartPolicy, Role, RoleKind, VolumeSource, node_command};
use weftrun_core::{Error, ErrorKind, Result};

use super::quote;
use super::version::{self, Version};
use crate::kubernetes::expansion::{self, literal};

/// The label that carries the submission's id.
pub const MARKER: &str = "weftrun.dev/submission";

/// Where a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Several nodes.
    Distributed,
    /// One node.
    Trainings,
    /// An interactive workspace, where the job file's `[backend.runai] workspace = true` asks for one.
    Workspaces,
}

impl Kind {
    /// The word in the path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Distributed => "distributed",
            Self::Trainings => "trainings",
            Self::Workspaces => "workspaces",
        }
    }
}

/// Renders a planned job.
pub fn render(job: &PlannedJob, project: &str, version: Option<Version>) -> Result<Rendered> {
    let kind = kind(job);
    let mut lost = Vec::new();
    let mut body = body(job, project, kind, &mut lost)?;
    let mut rendered_fields = Vec::new();
    if let Some(version) = version {
        rendered_fields = version::strip(kind.path(), version, &mut body);
    }
    let mut inexpressible = lost;
    let mut applied: Vec<Op> = Vec::new();
    for op in &job.plan.ops {
        let gone = inexpressible.iter().any(|lost| &lost.op == op);
        let stripped = rendered_fields
            .iter()
            .find(|(field, _)| field_of(&op.change).is_some_and(|f| field.ends_with(f)));
        match stripped {
            _ if gone => {}
            Some((field, first)) => inexpressible.push(Inexpressible {
                op: op.clone(),
                reason: format!("`{field}` is a field of {first}, and this control plane is older"),
            }),
            None => applied.push(op.clone()),
        }
    }
    refuse_lost_user_fields(&rendered_fields)?;
    let text = serde_json::to_string_pretty(&body).map_err(|error| {
        Error::new(ErrorKind::Unexpected, "a body cannot be written as JSON").source(error)
    })?;
    let title = format!("POST /api/v1/workloads/{}", kind.path());
    let document = Document { title, language: Language::Json, text };
    let mut rendered = Rendered::new(&job.spec.name, job.submission.clone(), document);
    rendered.applied = applied;
    rendered.inexpressible = inexpressible;
    rendered.holes = holes(&body);
    Ok(rendered)
}

/// Which kind of workload a job becomes.
pub fn kind(job: &PlannedJob) -> Kind {
    let settings = job.spec.backend.get("runai");
    if settings.and_then(|s| s.get("workspace")).and_then(Value::as_bool) == Some(true) {
        Kind::Workspaces
    } else if job.spec.nodes() > 1 || job.spec.launch == Launch::Mpi {
        Kind::Distributed
    } else {
        Kind::Trainings
    }
}

/// Fields the user set by name must not vanish; defaults of ours may.
fn refuse_lost_user_fields(lost: &[(String, Version)]) -> Result<()> {
    let ours = ["cleanPodPolicy", "mpiLauncherCreationPolicy", "restartPolicy", "nodeAffinityRequired"];
    match lost.iter().find(|(field, _)| !ours.iter().any(|known| field.contains(known))) {
        None => Ok(()),
        Some((field, first)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("`{field}` needs control plane {first} or newer"),
        )
        .hint("take the setting out of the job, or set `version` in the target's table if the version was read wrong")),
    }
}

fn field_of(change: &Change) -> Option<&'static str> {
    match change {
        Change::NodeSelector { .. } => Some("nodeAffinityRequired"),
        Change::Toleration { .. } => Some("tolerations"),
        _ => None,
    }
}

fn holes(body: &Value) -> Vec<Hole> {
    let mut holes = Vec::new();
    for (key, what) in [
        ("projectId", "the project's id, looked up by name when the job is submitted"),
        ("clusterId", "the id of the project's cluster, looked up when the job is submitted"),
    ] {
        let value = body.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(name) = value.strip_prefix('<').and_then(|v| v.strip_suffix('>')) {
            holes.push(Hole { name: name.to_owned(), what: what.to_owned() });
        }
    }
    holes
}

fn body(job: &PlannedJob, project: &str, kind: Kind, lost: &mut Vec<Inexpressible>) -> Result<Value> {
    let spec = &job.spec;
    let id = |name: &str| job.facts.ids.get(name).cloned().unwrap_or_else(|| format!("<{name}:{project}>"));
    let mut body = Map::new();
    body.insert("name".into(), json!(spec.name));
    body.insert("projectId".into(), json!(id("project-id")));
    body.insert("clusterId".into(), json!(id("cluster-id")));
    let workers: Vec<&Role> = spec.workers().collect();
    let [worker] = workers.as_slice() else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "Run:ai has one kind of worker, and this job has several roles of workers",
        )
        .with("roles", workers.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(", "))
        .hint("give all nodes one role; the master is made of it"));
    };
    let mpi = spec.launch == Launch::Mpi;
    let mut of_worker = pod(job, worker, !mpi, lost)?;
    if kind == Kind::Distributed {
        of_worker.insert("distributedFramework".into(), json!(if mpi { "MPI" } else { "PyTorch" }));
        of_worker.insert(
            "numWorkers".into(),
            json!(if mpi { worker.nodes } else { worker.nodes.saturating_sub(1).max(1) }),
        );
        of_worker.insert("cleanPodPolicy".into(), json!("Running"));
        if mpi {
            of_worker.insert("slotsPerWorker".into(), json!(worker.procs_per_node()));
            // The launcher must not start before the workers can be reached: with AtStartup half of the runs failed
            // on the mpi-operator this platform uses (seen 2026-11-21 on our own test bed).
            of_worker.insert("mpiLauncherCreationPolicy".into(), json!("WaitForWorkersReady"));
        }
    }
    body.insert("spec".into(), Value::Object(of_worker));
    if kind == Kind::Distributed && mpi {
        let explicit = spec.roles.iter().find(|role| role.kind == RoleKind::Launcher);
        let mut launcher =
            explicit.cloned().unwrap_or_else(|| Role::launcher().command(worker.command.clone()));
        if launcher.command.is_empty() {
            launcher.command.clone_from(&worker.command);
        }
        if explicit.is_none() {
            launcher.cpus = Some("1".into());
            launcher.memory = Some("2Gi".into());
        }
        body.insert("masterSpec".into(), Value::Object(pod(job, &launcher, true, lost)?));
    } else if kind == Kind::Distributed {
        body.insert("masterSpecSameAsWorker".into(), json!(true));
    }
    Ok(Value::Object(body))
}

/// The fields of one kind of pod.
fn pod(
    job: &PlannedJob,
    role: &Role,
    with_command: bool,
    lost: &mut Vec<Inexpressible>,
) -> Result<Map<String, Value>> {
    let spec = &job.spec;
    let mut pod = Map::new();
    if let Some(image) = role.image.as_ref().or(spec.image.as_ref()) {
        pod.insert("image".into(), json!(image));
    }
    let mut parts = Parts::default();
    if with_command {
        let at =
            Rendezvous { node_rank: "$(RANK)", master_addr: "$(MASTER_ADDR)", master_port: "$(MASTER_PORT)" };
        parts.argv = expansion::words(&at, |at| node_command(spec, role, at));
    }
    let value = |text: &str| json!({"value": literal(text)});
    parts.env = spec.env.iter().chain(&role.env).map(|var| (var.name.clone(), value(&var.value))).collect();
    for secret in &spec.secrets {
        parts.env.push((secret.env.clone(), json!({"secret": {"name": secret.secret, "key": secret.key}})));
    }
    parts.annotations = spec.annotations.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    for volume in &spec.volumes {
        parts.volume(&volume.name, &volume.mount, &volume.source, volume.read_only);
    }
    parts.resources = role.resources.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    for op in job.plan.ops.iter().filter(|op| op.role == role.name) {
        parts.apply(op, lost);
    }
    parts.write(job, role, &mut pod)?;
    Ok(pod)
}

/// What a pod is made of, before it takes the API's shape.
#[derive(Default)]
struct Parts {
    argv: Vec<String>,
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
            Change::Env { name, value } => set(&mut self.env, name, json!({"value": literal(value)})),
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
            Change::Command { after, .. } => {
                self.argv = after.iter().map(|word| literal(word)).collect();
            }
            other => lost.push(Inexpressible {
                op: op.clone(),
                reason: format!("the API has no field for it ({other:?})"),
            }),
        }
    }

    fn write(self, job: &PlannedJob, role: &Role, pod: &mut Map<String, Value>) -> Result<()> {
        let spec = &job.spec;
        let mut env = self.env;
        if !self.argv.is_empty() {
            let (command, args) = command(&self.argv, &mut env)?;
            pod.insert("command".into(), json!(command));
            if let Some(args) = args {
                pod.insert("args".into(), json!(args));
            }
        }
        if let Some(dir) = &spec.workdir {
            pod.insert("workingDir".into(), json!(dir));
        }
        let named = |entries: Vec<(String, Value)>| -> Vec<Value> {
            entries
                .into_iter()
                .map(|(name, value)| {
                    let mut entry = json!({"name": name});
                    if let (Value::Object(entry), Value::Object(value)) = (&mut entry, value) {
                        entry.extend(value);
                    }
                    entry
                })
                .collect()
        };
        put(pod, "environmentVariables", named(env));
        let texts = |entries: Vec<(String, String)>| -> Vec<Value> {
            entries.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
        };
        put(pod, "annotations", texts(self.annotations));
        let mut labels: Vec<(String, String)> =
            spec.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        labels.push((MARKER.to_owned(), job.submission.to_string()));
        put(pod, "labels", texts(labels));
        pod.insert("compute".into(), compute(role, self.resources));
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
        if let Some(priority) = &spec.priority {
            pod.insert("priorityClass".into(), json!(priority));
        }
        if role.kind == RoleKind::Worker {
            match spec.restart {
                RestartPolicy::Never => pod.insert("backoffLimit".into(), json!(0)),
                RestartPolicy::OnFailure { max } => pod.insert("backoffLimit".into(), json!(max)),
            };
        }
        Ok(())
    }
}

/// The command, its words as Kubernetes wants them, as the API takes it: one string, or, where it is longer than the API is known to carry, a small shell
/// that reads the words from an environment variable.
fn command(argv: &[String], env: &mut Vec<(String, Value)>) -> Result<(String, Option<String>)> {
    let (program, arguments) = argv.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
    let joined = quote::join(arguments)?;
    let command = quote::join(&[program.to_owned()])?;
    if joined.len() + command.len() <= quote::LONGEST {
        return Ok((command, (!joined.is_empty()).then_some(joined)));
    }
    // Kubernetes fills names in in values of environment variables as it does in arguments.
    env.push(("WEFTRUN_ARGV".to_owned(), json!({"value": quote::join(argv)?})));
    Ok(("/bin/sh".to_owned(), Some(quote::join(&["-c".into(), "eval \"exec $WEFTRUN_ARGV\"".into()])?)))
}

fn compute(role: &Role, resources: Vec<(String, String)>) -> Value {
    let mut compute = Map::new();
    if let Some(cores) = role.cpus.as_deref().and_then(cores) {
        compute.insert("cpuCoreRequest".into(), json!(cores));
    }
    if let Some(memory) = &role.memory {
        compute.insert("cpuMemoryRequest".into(), json!(memory));
    }
    if role.gpus_per_node > 0 {
        compute.insert("gpuDevicesRequest".into(), json!(role.gpus_per_node));
    }
    if role.shm.is_some() {
        compute.insert("largeShmRequest".into(), json!(true));
    }
    let extended: Vec<Value> = resources
        .into_iter()
        .map(|(resource, quantity)| json!({"resource": resource, "quantity": quantity}))
        .collect();
    put(&mut compute, "extendedResources", extended);
    Value::Object(compute)
}

/// `180` and `1500m` as the number of cores the API takes.
fn cores(quantity: &str) -> Option<f64> {
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse::<f64>().ok().map(|milli| milli / 1000.0),
        None => quantity.parse().ok(),
    }
}

fn put(map: &mut Map<String, Value>, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        map.insert(key.to_owned(), Value::Array(list));
    }
}

/// Replaces the entry of a name in place, or appends it.
fn set<T>(entries: &mut Vec<(String, T)>, name: &str, value: T) {
    match entries.iter_mut().find(|(known, _)| known == name) {
        Some(entry) => entry.1 = value,
        None => entries.push((name.to_owned(), value)),
    }
}
