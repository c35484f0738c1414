//! Renders a planned job as one object. Pure.
//!
//! The object is built from the job file as if there were no fabric; then the plan's ops are applied to it by
//! the same code that `weftrun mutate` uses on manifests, so that both produce the same pods.

use serde_json::{Map, Value, json};
use weftrun_convert::{TrainerVersion, apply_ops, apply_with_own_runtime};
use weftrun_core::backend::{Inexpressible, PlannedJob, Prepared, Rendered};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::{CodeContent, Launch, RoleKind};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::config::{Gang, JobSettings, KubeflowTarget};
use super::kinds::{Kind, trainer_version};
use super::object::JobObject;
use super::pod::{CODE, FABRIC, SUBMISSION};
use super::render_input::RenderInput;
use super::{mpi_job, preflight, profiler, pytorch_job, train_job};
use crate::kubernetes::code::Delivery;
use crate::kubernetes::pod_name::too_long;

/// The annotation of a TrainingRuntime that names the runtime that it was copied from.
pub const COPIED_FROM: &str = "weftrun.dev/copied-from";

pub fn render(job: &PlannedJob, target: &KubeflowTarget, namespace: Option<&str>) -> Result<Rendered> {
    let spec = &job.spec;
    spec.refuse_nul()?;
    spec.refuse_once("kubeflow")?;
    let settings = target.for_job(spec)?;
    let (with_library, without_library) = profiler::bring(job, namespace);
    let job = &*with_library;
    let kind = choose(job, &settings)?;
    let may_make_maps = job.facts.extra.get("may-create-configmaps").and_then(Value::as_bool);
    let mut delivery = Delivery::of(spec, settings.scripts, may_make_maps)?;
    if let Some(name) = delivery.map_name() {
        // A ConfigMap that an interrupted submission left behind never conflicts with the next one.
        let own: String = job.submission.as_str().chars().take(8).collect();
        *name = format!("{name}-{own}");
    }
    let known = job.facts.extra.get("trainer-version").and_then(Value::as_str);
    let trainer_assumed = settings.trainer_version.is_none() && known.is_none();
    let trainer = match settings.trainer_version.as_deref().or(known) {
        Some(text) => trainer_version(text)?,
        None => TrainerVersion::default(),
    };
    let told = job.facts.extra.get("runtimes").and_then(Value::as_array);
    let runtimes = settings.runtimes.iter().chain(told.into_iter().flatten()).cloned().collect();
    let mut labels = spec.labels.clone();
    labels.insert(SUBMISSION.into(), job.submission.to_string());
    let draft = RenderInput { job, spec, settings, kind, delivery, labels, trainer, runtimes };
    check_name(&draft)?;

    let mut object = json!({
        "apiVersion": kind.resource().api_version(), "kind": kind.resource().kind,
        "metadata": draft.metadata(namespace),
    });
    object["spec"] = match kind {
        Kind::PyTorchJob => pytorch_job::spec(&draft)?,
        Kind::MpiJobV2 | Kind::MpiJobV1 => mpi_job::spec(&draft)?,
        Kind::TrainJob => train_job::spec(&draft)?,
    };
    let plain = object.clone();
    let (mut applied, mut inexpressible) = draft.apply(&mut object);
    let own_runtime = draft.own_runtime(&plain, &mut object, &mut applied, &mut inexpressible);
    let map = draft.delivery.object(&object["metadata"]);
    let findings = preflight::findings(&draft, &object);
    let job_object = JobObject::job(kind, object);
    let mut rendered = Rendered::new(&spec.name, job.submission.clone(), job_object.document());
    let mut objects = vec![job_object];
    for object in map.into_iter().chain(own_runtime).chain(draft.companions(&applied)) {
        let companion = JobObject::companion(object)?;
        rendered.documents.push(companion.document());
        objects.push(companion);
    }
    rendered.prepared = Prepared::new(objects);
    rendered.applied = applied;
    rendered.inexpressible = inexpressible;
    rendered.inexpressible.extend(without_library);
    rendered.findings.extend(findings);
    rendered.findings.extend(missing_image(&draft));
    if kind == Kind::TrainJob {
        rendered.findings.extend(train_job::restarts(&draft));
        if trainer_assumed {
            rendered.findings.push(draft.trainer.assumed());
        }
    }
    Ok(rendered)
}

/// Chooses the kind: the configured one, else one that fits the launch mode among those the cluster serves.
fn choose(job: &PlannedJob, settings: &JobSettings) -> Result<Kind> {
    let served: Vec<Kind> = job.facts.serves.iter().filter_map(|entry| Kind::of_served(entry)).collect();
    let by_mpi =
        job.spec.launch == Launch::Mpi || job.spec.roles.iter().any(|role| role.kind == RoleKind::Launcher);
    let fitting: &[Kind] =
        if by_mpi { &[Kind::MpiJobV2, Kind::MpiJobV1] } else { &[Kind::PyTorchJob, Kind::TrainJob] };
    let missing = |kinds: &[Kind]| {
        let mut names: Vec<_> = kinds.iter().map(|kind| kind.resource().kind).collect();
        names.dedup();
        let operators: Vec<_> = kinds.iter().map(|kind| kind.operator()).collect();
        Error::new(ErrorKind::Unsupported, format!("the cluster serves no {}", names.join(" and no ")))
            .with(
                "serves",
                if served.is_empty() { "no kind of job".to_owned() } else { job.facts.serves.join(", ") },
            )
            .hint(format!("have an administrator install {}", operators.join(", or ")))
    };
    if let Some(kind) = settings.kind {
        if by_mpi && kind == Kind::PyTorchJob {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                "`launch = \"mpi\"` needs an MPIJob, not a PyTorchJob",
            )
            .hint("leave `kind` out, or choose another launch"));
        }
        if job.facts.online && !served.contains(&kind) {
            let error = missing(&[kind]);
            let same = served.iter().find(|other| other.resource().kind == kind.resource().kind);
            return Err(match same {
                Some(other) => {
                    error.hint(format!("or take the version it serves: `kind = \"{}\"`", other.word()))
                }
                None => error,
            });
        }
        return Ok(kind);
    }
    if !job.facts.online {
        return Ok(fitting[0]);
    }
    fitting.iter().copied().find(|kind| served.contains(kind)).ok_or_else(|| missing(fitting))
}

/// Reports a job in which no part names an image: the API server accepts it, and the operator creates no pod
/// of it. The image of a TrainJob may come from its runtime.
fn missing_image(draft: &RenderInput<'_>) -> Option<Finding> {
    let spec = draft.spec;
    let role = spec.workers().find(|role| role.image.is_none() && spec.image.is_none())?;
    let message = format!("role `{}` names no container image, so no pod can be created", role.name);
    let finding = Finding::error("K8S-NO-IMAGE", message).at("image");
    (draft.kind != Kind::TrainJob).then(|| finding.fix("set `image` in the job file, or give `--image`"))
}

/// Checks the name: pods and services are named after the job, and each name must be a DNS label.
fn check_name(draft: &RenderInput<'_>) -> Result<()> {
    let name = &draft.spec.name;
    let nodes = draft.spec.nodes().max(1);
    let longest = match draft.kind {
        Kind::PyTorchJob | Kind::MpiJobV2 | Kind::MpiJobV1 => format!("{name}-worker-{}", nodes - 1),
        Kind::TrainJob => format!("{name}-node-0-{}", nodes - 1),
    };
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let finding = if let Some(finding) = too_long(name, &longest) {
        finding
    } else if !starts || !plain || name.ends_with('-') {
        Finding::error(
            "K8S-NAME",
            format!("`{name}` makes no host name: the operators want a DNS-1035 label"),
        )
        .fix("use lower-case letters, digits and `-`, a letter first")
    } else {
        return Ok(());
    };
    Err(Error::from_findings(ErrorKind::InvalidSpec, finding.message.clone(), vec![finding.at("name")]))
}

impl RenderInput<'_> {
    fn metadata(&self, namespace: Option<&str>) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".into(), json!(self.spec.name));
        if let Some(namespace) = namespace {
            metadata.insert("namespace".into(), json!(namespace));
        }
        let mut labels = self.labels.clone();
        if let Some(queue) = self.spec.queue.as_ref().filter(|_| self.settings.gang != Some(Gang::Volcano)) {
            labels.insert("kueue.x-k8s.io/queue-name".into(), queue.clone());
        }
        metadata.insert("labels".into(), json!(labels));
        let code = self.spec.code_content().map(CodeContent::line);
        let own = [(FABRIC, self.job.plan.fabric.named().map(|fabric| fabric.to_string())), (CODE, code)];
        let own: Map<String, Value> =
            own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))).collect();
        if !own.is_empty() {
            metadata.insert("annotations".into(), Value::Object(own));
        }
        Value::Object(metadata)
    }

    /// Returns the objects that the pods refer to, with the labels by which they are found after an
    /// interrupted submission.
    fn companions(&self, applied: &[Op]) -> Vec<Value> {
        let objects = applied.iter().filter_map(|op| match &op.change {
            Change::Companion { object } => Some(object.clone()),
            _ => None,
        });
        objects
            .map(|mut object| {
                object["metadata"]["labels"] = json!(self.labels);
                object
            })
            .collect()
    }

    /// Renders a TrainingRuntime for a TrainJob if some change has no field in a TrainJob. The runtime names
    /// the runtime that it was copied from, with which the API server's dry run checks the job.
    fn own_runtime(
        &self,
        plain: &Value,
        object: &mut Value,
        applied: &mut Vec<Op>,
        inexpressible: &mut Vec<Inexpressible>,
    ) -> Option<Value> {
        let possible = |op: &Op| {
            !matches!(op.change, Change::Wrap { .. } | Change::Mpirun { .. })
                && !self.roles_of(op, plain).is_empty()
        };
        if self.kind != Kind::TrainJob || !inexpressible.iter().any(|one| possible(&one.op)) {
            return None;
        }
        let ops: Vec<Op> =
            self.job.plan.ops.iter().filter(|op| possible(op)).map(|op| of_role(op, "trainer")).collect();
        let mut changed = plain.clone();
        let mut runtime = apply_with_own_runtime(&mut changed, &ops, &self.runtimes, self.trainer)?;
        let reference = &plain["spec"]["runtimeRef"];
        let kind = reference["kind"].as_str().unwrap_or("ClusterTrainingRuntime");
        let copied = format!("{kind}/{}", reference["name"].as_str().unwrap_or_default());
        runtime["metadata"]["annotations"][COPIED_FROM] = json!(copied);
        for (key, value) in &self.labels {
            runtime["metadata"]["labels"][key] = json!(value);
        }
        *object = changed;
        inexpressible.retain(|one| !possible(&one.op));
        let left: Vec<&Op> = inexpressible.iter().map(|one| &one.op).collect();
        *applied = self.job.plan.ops.iter().filter(|op| !left.contains(op)).cloned().collect();
        Some(runtime)
    }

    /// Applies the plan's ops to the object; returns those that cannot be expressed, with the reason. The ops
    /// of one rule on the pods of a role are applied together: a claim that cannot be created must not remove
    /// the devices' resource.
    fn apply(&self, object: &mut Value) -> (Vec<Op>, Vec<Inexpressible>) {
        let (mut tried, mut without) = (object.clone(), Vec::new());
        for op in &self.job.plan.ops {
            if let Err(reason) = self.apply_one(&mut tried, op) {
                without.push((op, reason));
            }
        }
        let (mut applied, mut not) = (Vec::new(), Vec::new());
        for op in &self.job.plan.ops {
            let together = |other: &Op| {
                other == op
                    || (op.rule.starts_with("pod.") && (&other.rule, &other.role) == (&op.rule, &op.role))
            };
            match without.iter().find(|(other, _)| together(other)) {
                Some((_, reason)) => not.push(Inexpressible { op: op.clone(), reason: reason.clone() }),
                None => match self.apply_one(object, op) {
                    Ok(()) => applied.push(op.clone()),
                    Err(reason) => not.push(Inexpressible { op: op.clone(), reason }),
                },
            }
        }
        (applied, not)
    }

    /// Applies one op to the object, or returns why it cannot be expressed.
    fn apply_one(&self, object: &mut Value, op: &Op) -> std::result::Result<(), String> {
        let entrypoint =
            self.spec.roles.iter().any(|role| role.name == op.role && self.spec.starts_entrypoint(role));
        if entrypoint && matches!(op.change, Change::Wrap { .. }) {
            return Err("the image's entrypoint is started, and nothing can be put before it".to_owned());
        }
        if matches!(op.change, Change::Wrap { .. } | Change::Mpirun { .. }) {
            // They are already in the command.
            return Ok(());
        }
        let roles = self.roles_of(op, object);
        if roles.is_empty() {
            return Err(format!("a {} has no pod for the role `{}`", self.kind.resource().kind, op.role));
        }
        let named: Vec<Op> = roles.iter().map(|role| of_role(op, role)).collect();
        let before = object.clone();
        apply_ops(object, &named, &self.runtimes, self.trainer).map_err(|finding| {
            *object = before;
            finding.message
        })
    }

    /// Returns the object's names for an op's role.
    fn roles_of(&self, op: &Op, object: &Value) -> Vec<&'static str> {
        let launcher = self.spec.roles.iter().find(|role| role.kind == RoleKind::Launcher);
        let is_launcher = launcher.map_or("launcher", |role| role.name.as_str()) == op.role;
        let is_worker = self.spec.workers().any(|role| role.name == op.role);
        let names: &[&'static str] = match self.kind {
            Kind::TrainJob if is_worker => return vec!["trainer"],
            Kind::PyTorchJob if is_worker => &["Master", "Worker"],
            Kind::MpiJobV2 | Kind::MpiJobV1 if is_worker => &["Worker"],
            Kind::MpiJobV2 | Kind::MpiJobV1 if is_launcher => &["Launcher"],
            _ => &[],
        };
        let specs = ["pytorchReplicaSpecs", "mpiReplicaSpecs"];
        let there = |name: &str| specs.iter().any(|specs| object["spec"][specs].get(name).is_some());
        names.iter().copied().filter(|name| there(name)).collect()
    }
}

/// Returns an op for another role.
fn of_role(op: &Op, role: &str) -> Op {
    let mut op = op.clone();
    role.clone_into(&mut op.role);
    op
}
