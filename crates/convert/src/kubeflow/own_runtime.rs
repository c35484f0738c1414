//! A TrainJob with a TrainingRuntime of its own, copied from the one it names: for an MPI runtime with a
//! separate launcher, where the job's per-node request would go to the launcher; and for a change that a
//! TrainJob has no field for.

use serde_json::{Map, Value as Json, json};

use super::job::{implementation, metadata};
use super::object::{number, placeholder, text_at};
use super::trainjob::{self, Runtime, TrainerVersion};
use super::{apply, pod};
use weftrun_core::fabric::view::{ContainerView, JobKind, JobView, RoleView};
use weftrun_core::fabric::{Change, Op};

const JOBS: &str = "/spec/template/spec/replicatedJobs";

/// Applies operations to a TrainJob and to a copy of its TrainingRuntime, which is returned. The copy is used for
/// changes that a TrainJob has no field for, and for runtimes with a separate launcher. The operations name the role
/// `trainer`. The job stays unchanged if its runtime is not in `runtimes`.
pub fn apply_with_own_runtime(
    object: &mut Json,
    ops: &[Op],
    runtimes: &[Json],
    version: TrainerVersion,
) -> Option<Json> {
    let runtime = Runtime::find(object, runtimes);
    let Some(job) = view(object, &runtime) else {
        let job = trainjob::view(object, &runtime, version);
        return apply_rest(object, &job, ops, &runtime, version);
    };
    let worker = job.roles.iter().find(|role| role.worker)?;
    let ops: Vec<Op> = ops.iter().map(|op| op.clone().of_role(&worker.name)).collect();
    apply(object, &job, &ops, &runtime)
}

/// Reads such a job: its launcher overlaid by the job's trainer, and the nodes. None if the runtime is
/// another kind.
pub(super) fn view(object: &Json, runtime: &Runtime<'_>) -> Option<JobView> {
    let runtime = wanted(object, runtime)?;
    let roles: Vec<RoleView> = runtime
        .pointer(JOBS)?
        .as_array()?
        .iter()
        .enumerate()
        .filter(|(_, job)| is_launcher(job) || job["name"] == "node")
        .map(|(index, job)| role(object, &runtime, index, job))
        .collect();
    let mpi = Some(implementation(text_at(&runtime, "/spec/mlPolicy/mpi/mpiImplementation")));
    (roles.len() > 1).then(|| JobView { roles, mpi, ..metadata(object, JobKind::TrainJob) })
}

fn is_launcher(job: &Json) -> bool {
    text_at(job, trainjob::STEP) == Some("trainer") || job["name"] == "launcher"
}

fn role(object: &Json, runtime: &Json, index: usize, job: &Json) -> RoleView {
    let none = Json::Null;
    let at = format!("{JOBS}/{index}/template/spec/template");
    let is_node = |c: &Json| c["name"] == "node";
    let mut role = pod::role(job.pointer("/template/spec/template").unwrap_or(&none), &at, |containers| {
        containers.iter().position(is_node).unwrap_or(0)
    });
    role.name = text_at(job, "/name").unwrap_or_default().to_owned();
    role.launcher = is_launcher(job);
    role.worker = !role.launcher;
    let trainer = object.pointer("/spec/trainer").unwrap_or(&none);
    let policy = runtime.pointer("/spec/mlPolicy").unwrap_or(&none);
    role.replicas = if role.launcher {
        1
    } else {
        number(trainer, "numNodes").or(number(policy, "numNodes")).unwrap_or(1)
    };
    role.replicas_text = placeholder(trainer, "numNodes").filter(|_| role.worker);
    if role.launcher {
        trainjob::overlay_program(&mut role.container, &mut pod::container(trainer, "/spec/trainer"));
    }
    role
}

/// Returns the runtime's copy before the ops, with the job's per-node request on `node`.
fn wanted(object: &Json, runtime: &Runtime<'_>) -> Option<Json> {
    let mut copy = runtime.launcher_apart()?.clone();
    let asked = object.pointer("/spec/trainer/resourcesPerNode").and_then(Json::as_object);
    for job in copy.pointer_mut(JOBS)?.as_array_mut()? {
        let node =
            (job["name"] == "node").then(|| job.pointer_mut("/template/spec/template/spec/containers/0"));
        let (Some(asked), Some(Some(container))) = (asked, node) else { continue };
        for (side, values) in asked {
            for (name, value) in values.as_object().into_iter().flatten() {
                apply::set(container, &["resources", side], name, value.clone());
            }
        }
    }
    Some(copy)
}

/// Applies the ops: the job refers to its own runtime, which is returned. A runtime that already belongs to
/// the job is changed only where it is defined, so no copy is made.
pub(super) fn apply(object: &mut Json, job: &JobView, ops: &[Op], runtime: &Runtime<'_>) -> Option<Json> {
    let mut copy = wanted(object, runtime)?;
    for op in ops {
        let Some(role) = job.roles.iter().find(|role| role.name == op.role) else { continue };
        let trainer =
            object.pointer_mut("/spec/trainer").filter(|trainer| role.launcher && says(trainer, &op.change));
        match trainer {
            Some(trainer) => apply::container_op(trainer, "resourcesPerNode", &op.change),
            None => apply::pod_op(&mut copy, job, role, op),
        }
    }
    if let Some(trainer) = object.pointer_mut("/spec/trainer").and_then(Json::as_object_mut) {
        trainer.shift_remove("resourcesPerNode");
    }
    point_to(object, &mut copy, job);
    Some(copy)
}

/// Applies the ops that the job has fields for to the job, and the others to the pods of a copy of its
/// runtime, which is returned. None if the runtime is unknown.
pub(super) fn apply_rest(
    object: &mut Json,
    job: &JobView,
    ops: &[Op],
    runtime: &Runtime<'_>,
    version: TrainerVersion,
) -> Option<Json> {
    let mut copy = runtime.object()?.clone();
    let rest = apply::fields_of_train_job(object, job, ops, runtime, version);
    for (replicated, container) in runtime.patched() {
        let at = place(&copy, &replicated, &container)?;
        let container = ContainerView { at, ..ContainerView::default() };
        let role = RoleView { container, ..RoleView::default() };
        rest.iter().for_each(|op| apply::pod_op(&mut copy, job, &role, op));
    }
    point_to(object, &mut copy, job);
    Some(copy)
}

/// Returns the pointer of a container of a replicated job.
fn place(runtime: &Json, replicated: &str, container: &str) -> Option<String> {
    let jobs = runtime.pointer(JOBS)?.as_array()?;
    let job = jobs.iter().position(|job| job["name"] == replicated)?;
    let containers = jobs[job].pointer("/template/spec/template/spec/containers")?.as_array()?;
    let container = containers.iter().position(|one| one["name"] == container)?;
    Some(format!("{JOBS}/{job}/template/spec/template/spec/containers/{container}"))
}

/// Makes the copy a TrainingRuntime of the job's own, and sets the job's reference to it.
fn point_to(object: &mut Json, copy: &mut Json, job: &JobView) {
    let name = format!("{}-{}", text_at(copy, "/metadata/name").unwrap_or("runtime"), job.name);
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    if let Some(namespace) = &job.namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    for key in ["labels", "annotations"] {
        let kept = copy.pointer(&format!("/metadata/{key}")).filter(|value| !value.is_null()).cloned();
        metadata.extend(kept.map(|value| (key.to_owned(), value)));
    }
    copy["kind"] = json!("TrainingRuntime");
    copy["metadata"] = Json::Object(metadata);
    if let Some(map) = copy.as_object_mut() {
        map.shift_remove("status");
    }
    object["spec"]["runtimeRef"] =
        json!({ "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": name });
}

/// Returns whether the job's trainer sets the value that is to be changed, and so overrides its runtime.
fn says(trainer: &Json, change: &Change) -> bool {
    match change {
        Change::Env { name, .. } => {
            trainer["env"].as_array().is_some_and(|vars| vars.iter().any(|var| var["name"] == name.as_str()))
        }
        Change::Command { .. } => !trainer["command"].is_null() || !trainer["args"].is_null(),
        _ => false,
    }
}
