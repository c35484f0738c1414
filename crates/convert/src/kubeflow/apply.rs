//! Applies ops to the data of an object.

use serde_json::{Map, Value as Json, json};

use super::job;
use super::object::{pointer_mut, steps};
use super::object_kind::{ObjectKind, kind_of_json};
use super::trainjob::{self, Runtime, TrainerVersion};
use super::workload;
use weftrun_core::Finding;
use weftrun_core::fabric::view::{JobKind, JobView, RoleView};
use weftrun_core::fabric::{Change, Op, PodList, Removed};

/// The label by which JobSet marks the pods of a TrainJob.
const TRAINJOB_LABEL: &str = "jobset.sigs.k8s.io/jobset-name";

/// Makes the changes of ops on a whole job object, as [`mutate`](crate::mutate) does on its text,
/// so that backends render what `weftrun mutate` writes. Ops name the object's own roles (`Worker`,
/// `trainer`).
///
/// The error is a finding of code `E-TRAINJOB-VERSION`: this version of Kubeflow Trainer has no field for a change.
pub fn apply_ops(
    object: &mut Json,
    ops: &[Op],
    runtimes: &[Json],
    version: TrainerVersion,
) -> Result<(), Finding> {
    let runtime = Runtime::find(object, runtimes);
    let job = match kind_of_json(object) {
        ObjectKind::Job(JobKind::TrainJob) => trainjob::view(object, &runtime, version),
        ObjectKind::Job(JobKind::Workload(kind)) => workload::view(object, kind),
        ObjectKind::Job(kind) => job::view(object, kind),
        ObjectKind::List | ObjectKind::OtherVersion | ObjectKind::Other => return Ok(()),
    };
    apply(object, &job, ops, &runtime, version)
}

/// Makes the changes of all ops on an object.
pub(super) fn apply(
    object: &mut Json,
    job: &JobView,
    ops: &[Op],
    runtime: &Runtime<'_>,
    version: TrainerVersion,
) -> Result<(), Finding> {
    for op in ops {
        let Some(role) = job.roles.iter().find(|role| role.name == op.role) else { continue };
        if job.kind == JobKind::TrainJob {
            train_job(object, job, op, runtime, version)?;
        } else {
            pod_op(object, job, role, op);
        }
    }
    Ok(())
}

/// Makes the changes that a TrainJob has fields for, and returns the ops that it has none for.
pub(super) fn fields_of_train_job<'o>(
    object: &mut Json,
    job: &JobView,
    ops: &'o [Op],
    runtime: &Runtime<'_>,
    version: TrainerVersion,
) -> Vec<&'o Op> {
    let mut rest = Vec::new();
    for op in ops.iter().filter(|op| job.roles.iter().any(|role| role.name == op.role)) {
        // A change that fails half-way leaves an empty override.
        let before = object.clone();
        if train_job(object, job, op, runtime, version).is_err() {
            *object = before;
            rest.push(op);
        }
    }
    rest
}

/// Makes one op on an object whose role has a pod template.
pub(super) fn pod_op(object: &mut Json, job: &JobView, role: &RoleView, op: &Op) {
    let at = role.container.at.as_str();
    let Some((template, _)) = at.split_once("/spec/containers/") else { return };
    // Where pods have no label of their job, the plan never colocates them.
    let label = match job.kind {
        JobKind::Workload(kind) => kind.pods_label().unwrap_or_default(),
        JobKind::TrainJob => TRAINJOB_LABEL,
        _ => "training.kubeflow.org/job-name",
    };
    match &op.change {
        Change::Annotation { key, value } => {
            let Some(template) = pointer_mut(object, template) else { return };
            set(template, &["metadata", "annotations"], key, json!(value));
        }
        Change::NodeSelector { .. } | Change::Colocate { .. } | Change::Toleration { .. } => {
            let Some(spec) = pointer_mut(object, &format!("{template}/spec")) else { return };
            placement(spec, &op.change, label, &job.name);
        }
        Change::Mount { name, host_path, .. } => {
            if let Some(spec) = pointer_mut(object, &format!("{template}/spec")) {
                volume(spec, name, host_path);
            }
            let Some(container) = pointer_mut(object, at) else { return };
            container_op(container, "resources", &op.change);
        }
        Change::Member { list, value, .. } if list.is_of_pod() => {
            let Some(spec) = pointer_mut(object, &format!("{template}/spec")) else { return };
            push(spec, list.field(), value.clone());
        }
        Change::PodField { key, value } => {
            let Some(spec) = pointer_mut(object, &format!("{template}/spec")) else { return };
            set(spec, &[], key, value.clone());
        }
        Change::JobField { pointer, value } => job_field(object, pointer, value),
        change => {
            let Some(container) = pointer_mut(object, at) else { return };
            container_op(container, "resources", change);
        }
    }
}

/// Makes a change inside a container, or inside a TrainJob's `trainer`, whose resources have another name.
pub(super) fn container_op(container: &mut Json, resources: &str, change: &Change) {
    match change {
        Change::Env { name, value } => env(container, name, value),
        Change::Mount { name, mount_path, read_only, .. } => {
            let mut mount = json!({ "name": name, "mountPath": mount_path });
            if *read_only {
                mount["readOnly"] = json!(true);
            }
            push(container, "volumeMounts", mount);
        }
        Change::Resource { name, quantity } => resource(container, resources, name, quantity),
        Change::Capability { name } => {
            if let Some(capabilities) = map_at(container, &["securityContext", "capabilities"]) {
                push(capabilities, "add", json!(name));
            }
        }
        Change::Command { after, command_words, .. } => command(container, after, *command_words),
        Change::Member { list: PodList::VolumeMounts, value, .. } => {
            push(container, "volumeMounts", value.clone());
        }
        Change::Member { list: PodList::ContainerClaims, value, .. } => {
            if let Some(resources) = map_at(container, &[resources]) {
                push(resources, "claims", value.clone());
            }
        }
        Change::Remove { what, name } => remove(container, resources, *what, name),
        _ => {}
    }
}

/// Removes every member of a name, and the list if it becomes empty.
fn remove(container: &mut Json, resources: &str, what: Removed, name: &str) {
    let Some(map) = container.as_object_mut() else { return };
    let (list, key) = match what {
        Removed::Env => ("env", "name"),
        Removed::Mount => ("volumeMounts", "mountPath"),
        Removed::Resource => {
            let Some(all) = map.get_mut(resources).and_then(Json::as_object_mut) else { return };
            for side in ["limits", "requests"] {
                let Some(amounts) = all.get_mut(side).and_then(Json::as_object_mut) else { continue };
                if amounts.shift_remove(name).is_some() && amounts.is_empty() {
                    all.shift_remove(side);
                }
            }
            if all.is_empty() {
                map.shift_remove(resources);
            }
            return;
        }
    };
    let Some(members) = map.get_mut(list).and_then(Json::as_array_mut) else { return };
    members.retain(|member| member[key] != name);
    if members.is_empty() {
        map.shift_remove(list);
    }
}

/// Sets a field of the object itself, and makes the maps above it.
fn job_field(object: &mut Json, pointer: &str, value: &str) {
    let steps: Vec<_> = steps(pointer).collect();
    let Some((last, above)) = steps.split_last() else { return };
    let above: Vec<&str> = above.iter().map(AsRef::as_ref).collect();
    set(object, &above, last, json!(value));
}

/// Returns the objects that ops add beside a job.
pub(super) fn companions(ops: &[Op]) -> impl Iterator<Item = &Json> {
    ops.iter().filter_map(|op| match &op.change {
        Change::Companion { object } => Some(object),
        _ => None,
    })
}

/// Sets the last variable of a name, or adds a new one.
fn env(container: &mut Json, name: &str, value: &str) {
    let vars = container.get_mut("env").and_then(Json::as_array_mut);
    if let Some(var) = vars.and_then(|vars| vars.iter_mut().rev().find(|var| var["name"] == name)) {
        var["value"] = json!(value);
        return;
    }
    push(container, "env", json!({ "name": name, "value": value }));
}

fn resource(container: &mut Json, resources: &str, name: &str, quantity: &str) {
    let written = ["limits", "requests"].iter().find_map(|side| {
        container.get(resources)?.get(side)?.get(name).filter(|value| !value.is_null()).cloned()
    });
    let value = written.unwrap_or_else(|| json!(quantity));
    for side in ["limits", "requests"] {
        let Some(map) = object_at(container, &[resources, side]) else { continue };
        if map.get(name).is_none_or(Json::is_null) {
            map.insert(name.to_owned(), value.clone());
        }
    }
}

fn command(container: &mut Json, after: &[String], command_words: usize) {
    let (command, args) = after.split_at(command_words.min(after.len()));
    for (key, words) in [("command", command), ("args", args)] {
        let empty = container.get(key).and_then(Json::as_array).is_none_or(Vec::is_empty);
        if let Some(map) = container.as_object_mut()
            && !(words.is_empty() && empty)
        {
            map.insert(key.to_owned(), json!(words));
        }
    }
}

fn volume(spec: &mut Json, name: &str, host_path: &str) {
    let there =
        spec.get("volumes").and_then(Json::as_array).is_some_and(|all| all.iter().any(|v| v["name"] == name));
    if !there {
        push(
            spec,
            "volumes",
            json!({ "name": name, "hostPath": { "path": host_path, "type": "Directory" } }),
        );
    }
}

/// Restricts where the pods may run.
fn placement(spec: &mut Json, change: &Change, label: &str, job: &str) {
    match change {
        Change::NodeSelector { key, value } => set(spec, &["nodeSelector"], key, json!(value)),
        Change::Toleration { key, value, effect } => {
            let mut toleration =
                json!({ "key": key, "operator": if value.is_some() { "Equal" } else { "Exists" } });
            if let Some(value) = value {
                toleration["value"] = json!(value);
            }
            if let Some(effect) = effect {
                toleration["effect"] = json!(effect);
            }
            push(spec, "tolerations", toleration);
        }
        Change::Colocate { topology_key } => {
            let term = json!({
                "labelSelector": { "matchLabels": { label: job } },
                "topologyKey": topology_key,
            });
            if let Some(affinity) = map_at(spec, &["affinity", "podAffinity"]) {
                push(affinity, "requiredDuringSchedulingIgnoredDuringExecution", term);
            }
        }
        _ => {}
    }
}

/// Changes a TrainJob, which has no pod of its own: environment, devices and command go to `spec.trainer`,
/// the rest to the overrides that its version has.
fn train_job(
    object: &mut Json,
    job: &JobView,
    op: &Op,
    runtime: &Runtime<'_>,
    version: TrainerVersion,
) -> Result<(), Finding> {
    let has = |what: Removed, name: &str| {
        let trainer = object.pointer("/spec/trainer").unwrap_or(&Json::Null);
        match what {
            Removed::Env => {
                trainer["env"].as_array().is_some_and(|env| env.iter().any(|v| v["name"] == name))
            }
            Removed::Mount => false,
            Removed::Resource => {
                let asks = |side: &str| !trainer["resourcesPerNode"][side][name].is_null();
                asks("limits") || asks("requests")
            }
        }
    };
    match &op.change {
        Change::Companion { .. } => {}
        Change::JobField { pointer, value } => job_field(object, pointer, value),
        Change::Remove { what, name } if !has(*what, name) => {
            return Err(missing(op, version, &format!("taking out {name}, which its runtime sets")));
        }
        Change::Member { list: PodList::InitContainers, .. } => {
            return Err(missing(op, version, "a sidecar"));
        }
        Change::Member { list: PodList::ResourceClaims, .. } => {
            return Err(missing(op, version, "resource claims of its pods"));
        }
        Change::PodField { key, .. } => return Err(missing(op, version, key)),
        Change::Env { .. }
        | Change::Command { .. }
        | Change::Remove { .. }
        | Change::Member { list: PodList::ContainerClaims, .. } => {
            let Some(trainer) = map_at(object, &["spec", "trainer"]) else { return Ok(()) };
            container_op(trainer, "resourcesPerNode", &op.change);
        }
        Change::Resource { .. } => {
            let Some(trainer) = map_at(object, &["spec", "trainer"]) else { return Ok(()) };
            // Before 2.3, resources written here replace the runtime's, so those are copied.
            let unset = trainer.get("resourcesPerNode").is_none_or(Json::is_null);
            if let (true, true, Some(resources)) =
                (unset, version < TrainerVersion::V2_3, runtime.resources())
            {
                trainer["resourcesPerNode"] = resources.clone();
            }
            container_op(trainer, "resourcesPerNode", &op.change);
        }
        change => {
            for (replicated, container) in runtime.patched() {
                let missing = |what: &str| missing(op, version, what);
                let patch =
                    override_of(object, op, &replicated, version).ok_or_else(|| missing("such overrides"))?;
                match change {
                    Change::Annotation { key, value } if version > TrainerVersion::V2_0 => {
                        set(patch.template, &["metadata", "annotations"], key, json!(value));
                    }
                    Change::Annotation { .. } => return Err(missing("pod annotations")),
                    Change::Colocate { .. } if version == TrainerVersion::V2_0 => {
                        return Err(missing("pod affinity"));
                    }
                    Change::Capability { .. } if version < TrainerVersion::V2_2 => {
                        return Err(missing("a container's capabilities"));
                    }
                    _ => {
                        let Some(spec) = map_at(patch.template, patch.spec) else { continue };
                        pod_patch(spec, &container, change, &job.name);
                    }
                }
            }
        }
    }
    Ok(())
}

fn missing(op: &Op, version: TrainerVersion, what: &str) -> Finding {
    Finding::error(
        "E-TRAINJOB-VERSION",
        format!("a TrainJob of Kubeflow Trainer {version} has no field for {what}"),
    )
    .at(op.role.clone())
    .fix(format!(
        "pass the runtime with --runtime, so that the job gets a copy of it with this; or switch `{}` off",
        op.rule
    ))
    .cite("https://github.com/kubeflow/trainer/tree/master/pkg/apis/trainer/v1alpha1")
}

fn pod_patch(spec: &mut Json, container: &str, change: &Change, job: &str) {
    match change {
        Change::Member { list: PodList::Volumes, value, .. } => push(spec, "volumes", value.clone()),
        Change::Mount { .. } | Change::Capability { .. } | Change::Member { .. } => {
            if let Change::Mount { name, host_path, .. } = change {
                volume(spec, name, host_path);
            }
            if let Some(container) = with_key(spec, "containers", "name", container) {
                container_op(container, "resources", change);
            }
        }
        change => placement(spec, change, TRAINJOB_LABEL, job),
    }
}

/// The place in a TrainJob for overrides of one replicated job's pods.
struct Override<'j> {
    /// The value with `metadata`, and with `spec` below the path.
    template: &'j mut Json,
    spec: &'static [&'static str],
}

fn override_of<'j>(
    object: &'j mut Json,
    op: &Op,
    replicated: &str,
    version: TrainerVersion,
) -> Option<Override<'j>> {
    let spec = map_at(object, &["spec"])?;
    match version {
        TrainerVersion::V2_2 | TrainerVersion::V2_3 => {
            let manager = format!("weftrun.dev/{}", op.rule.split('.').next().unwrap_or("fabric"));
            let patch = with_key(spec, "runtimePatches", "manager", manager)?;
            let jobset = map_at(patch, &["trainingRuntimeSpec", "template", "spec"])?;
            let job = with_key(jobset, "replicatedJobs", "name", replicated)?;
            Some(Override { template: map_at(job, &["template", "spec", "template"])?, spec: &["spec"] })
        }
        TrainerVersion::V2_1 => {
            Some(Override { template: for_job(spec, "podTemplateOverrides", replicated)?, spec: &["spec"] })
        }
        TrainerVersion::V2_0 => {
            Some(Override { template: for_job(spec, "podSpecOverrides", replicated)?, spec: &[] })
        }
    }
}

/// Returns the override of exactly one replicated job, added if there is none.
fn for_job<'j>(spec: &'j mut Json, key: &str, replicated: &str) -> Option<&'j mut Json> {
    with_key(spec, key, "targetJobs", json!([{ "name": replicated }]))
}

/// Returns the member of a list with a key's value, added if there is none.
fn with_key<'j>(object: &'j mut Json, list: &str, key: &str, value: impl Into<Json>) -> Option<&'j mut Json> {
    let (list, value) = (list_at(object, list)?, value.into());
    let index = list.iter().position(|one| one[key] == value).unwrap_or_else(|| {
        list.push(json!({ key: value }));
        list.len() - 1
    });
    list.get_mut(index)
}

fn list_at<'j>(object: &'j mut Json, key: &str) -> Option<&'j mut Vec<Json>> {
    slot(object, key, || json!([]))?.as_array_mut()
}

/// Returns the value of a key, added if there is none.
fn slot<'j>(object: &'j mut Json, key: &str, new: impl Fn() -> Json) -> Option<&'j mut Json> {
    let map = object.as_object_mut()?;
    // `entry` would need an owned key every time; mostly the key exists.
    if map.get(key).is_none_or(Json::is_null) {
        map.insert(key.to_owned(), new());
    }
    map.get_mut(key)
}

/// Returns the map at a path, added if there is none.
fn map_at<'j>(object: &'j mut Json, path: &[&str]) -> Option<&'j mut Json> {
    path.iter().try_fold(object, |node, step| slot(node, step, || Json::Object(Map::new())))
}

fn object_at<'j>(object: &'j mut Json, path: &[&str]) -> Option<&'j mut Map<String, Json>> {
    map_at(object, path)?.as_object_mut()
}

/// Sets a key of the map at a path.
pub(super) fn set(object: &mut Json, path: &[&str], key: &str, value: Json) {
    if let Some(map) = object_at(object, path) {
        map.insert(key.to_owned(), value);
    }
}

fn push(object: &mut Json, key: &str, value: Json) {
    if let Some(list) = list_at(object, key) {
        list.push(value);
    }
}
