//! Objects with pod templates that are no Kubeflow jobs: the supported kinds, and where their templates
//! are.

use serde_json::Value as Json;

use super::object::{list, number, placeholder, pointer, text_at};
use super::{job, pod};
use crate::edit::step;
use weftrun_core::fabric::view::{JobKind, JobView, Mpi, RoleView, Workload};
use weftrun_core::shell::is_mpirun;

/// Where the pod templates of a kind are.
struct Shape {
    kind: Workload,
    /// The group of its `apiVersion`, with the slash; the core group has none.
    group: &'static str,
    places: &'static [PodPath],
}

/// One template, or the templates of a list.
struct PodPath {
    /// Pointer of the list; none where the object has a single template.
    list: Option<&'static str>,
    /// Pointer of the template, in the object or in the list's item.
    template: &'static str,
    /// Pointers of numbers whose product is the number of pods; a missing one is 1.
    pods: &'static [&'static str],
    /// What is subtracted, since another template creates that pod.
    less: Option<&'static str>,
    /// Name of the role, where the item has none.
    role: &'static str,
}

/// How many pods a Job runs at once.
const PARALLELISM: &str = "/spec/parallelism";

const fn shape(kind: Workload, group: &'static str, places: &'static [PodPath]) -> Shape {
    Shape { kind, group, places }
}

const fn single(template: &'static str, pods: &'static [&'static str], role: &'static str) -> PodPath {
    PodPath { list: None, template, pods, less: None, role }
}

const fn each(list: &'static str, template: &'static str, pods: &'static [&'static str]) -> PodPath {
    PodPath { list: Some(list), template, pods, less: None, role: "group" }
}

const SHAPES: &[Shape] = &[
    shape(Workload::Job, "batch/", &[single("/spec/template", &[PARALLELISM], "job")]),
    shape(Workload::Pod, "", &[single("", &[], "pod")]),
    shape(Workload::Deployment, "apps/", &[single("/spec/template", &["/spec/replicas"], "deployment")]),
    shape(Workload::StatefulSet, "apps/", &[single("/spec/template", &["/spec/replicas"], "statefulset")]),
    shape(
        Workload::JobSet,
        "jobset.x-k8s.io/",
        &[each(
            "/spec/replicatedJobs",
            "/template/spec/template",
            &["/replicas", "/template/spec/parallelism"],
        )],
    ),
    shape(
        Workload::LeaderWorkerSet,
        "leaderworkerset.x-k8s.io/",
        &[
            single("/spec/leaderWorkerTemplate/leaderTemplate", &[], "leader"),
            PodPath {
                list: None,
                template: "/spec/leaderWorkerTemplate/workerTemplate",
                pods: &["/spec/leaderWorkerTemplate/size"],
                less: Some("/spec/leaderWorkerTemplate/leaderTemplate"),
                role: "worker",
            },
        ],
    ),
    shape(
        Workload::RayCluster,
        "ray.io/",
        &[
            single("/spec/headGroupSpec/template", &[], "head"),
            each("/spec/workerGroupSpecs", "/template", &["/replicas", "/numOfHosts"]),
        ],
    ),
    shape(
        Workload::RayJob,
        "ray.io/",
        &[
            single("/spec/rayClusterSpec/headGroupSpec/template", &[], "head"),
            each("/spec/rayClusterSpec/workerGroupSpecs", "/template", &["/replicas", "/numOfHosts"]),
        ],
    ),
    shape(Workload::VolcanoJob, "batch.volcano.sh/", &[each("/spec/tasks", "/template", &["/replicas"])]),
];

/// Returns the kind of an object by its `apiVersion` and `kind`.
pub(super) fn kind_of(version: &str, kind: &str) -> Option<Workload> {
    let fits = |shape: &&Shape| {
        shape.kind.as_str() == kind
            && if shape.group.is_empty() { version == "v1" } else { version.starts_with(shape.group) }
    };
    SHAPES.iter().find(fits).map(|shape| shape.kind)
}

/// Returns whether an object's pods request accelerators: other objects are no jobs.
pub(super) fn asks_accelerators(job: &JobView, accelerator: &str) -> bool {
    job.roles.iter().any(|role| has_accelerators(role, accelerator))
}

fn has_accelerators(role: &RoleView, accelerator: &str) -> bool {
    let is_one = |name: &String| {
        name == accelerator || name.ends_with("/gpu") || name.contains("neuron") || name.contains("gaudi")
    };
    std::iter::once(&role.container)
        .chain(&role.sidecars)
        // The pod does not show what a claim is for: nearly always a GPU or a channel between GPUs.
        .any(|container| {
            !container.claims.is_empty()
                || container.limits.keys().chain(container.requests.keys()).any(is_one)
        })
}

/// One pod template of an object.
pub(super) struct Template {
    /// Name of its role.
    pub name: String,
    /// JSON pointer of the template.
    pub at: String,
    /// How many pods it makes.
    pub pods: u32,
    /// The text in place of the number, if it is no number.
    placeholder: Option<String>,
    /// Whether nothing beside the template names the number.
    unknown: bool,
}

/// Returns the pod templates of an object.
pub(super) fn templates(object: &Json, kind: Workload) -> Vec<Template> {
    let mut found: Vec<Template> = Vec::new();
    let Some(shape) = SHAPES.iter().find(|shape| shape.kind == kind) else {
        by_shape(object, "", &Json::Null, &mut found);
        return found;
    };
    for place in shape.places {
        match place.list {
            None if pointer(object, place.template).is_some_and(Json::is_object) => {
                found.push(template(object, object, "", place, place.role.to_owned()));
            }
            None => {}
            Some(at) => {
                let (parent, key) = at.rsplit_once('/').unwrap_or(("", at));
                let members = pointer(object, parent).map_or(&[][..], |parent| list(parent, key));
                for (index, member) in members.iter().enumerate() {
                    let named = ["/name", "/groupName"].iter().find_map(|key| text_at(member, key));
                    let mut name = named.map_or_else(|| format!("{}-{index}", place.role), str::to_owned);
                    if found.iter().any(|one| one.name == name) {
                        name = format!("{name}-{index}");
                    }
                    found.push(template(object, member, &format!("{at}/{index}"), place, name));
                }
            }
        }
    }
    found
}

fn template(object: &Json, member: &Json, at: &str, place: &PodPath, name: String) -> Template {
    let base = if place.list.is_some() { member } else { object };
    let split = |at: &'static str| at.rsplit_once('/').unwrap_or(("", at));
    let of = |at: &'static str| {
        let (parent, key) = split(at);
        pointer(base, parent).and_then(|parent| number(parent, key)).unwrap_or(1)
    };
    let pods = place.pods.iter().map(|at| of(at)).fold(1, u32::saturating_mul);
    // A Job runs no more pods at once than it has completions left.
    let most = place.pods.contains(&PARALLELISM).then(|| number(pointer(object, "/spec")?, "completions"));
    let pods = most.flatten().map_or(pods, |most| pods.min(most));
    let less = u32::from(place.less.is_some_and(|at| pointer(object, at).is_some_and(Json::is_object)));
    let placeholder = place.pods.iter().find_map(|at| {
        let (parent, key) = split(at);
        pointer(base, parent).and_then(|parent| placeholder(parent, key))
    });
    let at = format!("{at}{}", place.template);
    Template { name, at, pods: pods.saturating_sub(less), placeholder, unknown: false }
}

/// Deepest place of a pod template in an object of an unknown kind.
const DEEPEST: usize = 12;

/// Finds pod templates by their shape, `spec.containers`. What holds a template may have `replicas` and a `name`
/// beside it, as in all operators' own kinds.
fn by_shape(value: &Json, at: &str, holder: &Json, found: &mut Vec<Template>) {
    let containers = pointer(value, "/spec/containers").and_then(Json::as_array);
    if containers.is_some_and(|list| !list.is_empty() && list.iter().all(|one| one.get("image").is_some())) {
        let named = ["name", "groupName"].iter().find_map(|key| holder.get(*key)?.as_str());
        let mut name = named.unwrap_or("pod").to_owned();
        if found.iter().any(|one| one.name == name) {
            name = format!("{name}-{}", found.len());
        }
        found.push(Template {
            name,
            at: at.to_owned(),
            pods: number(holder, "replicas").unwrap_or(1),
            placeholder: placeholder(holder, "replicas"),
            unknown: holder.get("replicas").is_none(),
        });
        return;
    }
    if at.matches('/').count() >= DEEPEST {
        return;
    }
    match value {
        Json::Object(map) => {
            for (key, below) in map {
                by_shape(below, &format!("{at}/{}", step(key)), value, found);
            }
        }
        Json::Array(items) => {
            for (index, below) in items.iter().enumerate() {
                by_shape(below, &format!("{at}/{index}"), value, found);
            }
        }
        _ => {}
    }
}

/// Reads such an object. Roles whose pods request accelerators have the ranks; one that calls `mpirun`
/// starts them.
pub(super) fn view(object: &Json, kind: Workload) -> JobView {
    // The nodes of a TrainJob's runtime.
    let of_policy = object.pointer("/spec/mlPolicy/numNodes").and_then(Json::as_u64);
    let of_policy = of_policy.and_then(|nodes| u32::try_from(nodes).ok());
    let mut roles: Vec<RoleView> = templates(object, kind)
        .into_iter()
        .map(|template| {
            let none = Json::Null;
            let mut role = pod::role(pointer(object, &template.at).unwrap_or(&none), &template.at, |_| 0);
            role.name = template.name;
            role.replicas = template.pods;
            role.replicas_text = template.placeholder;
            role.replicas_unknown = template.unknown;
            role.worker = has_accelerators(&role, "nvidia.com/gpu");
            if let Some(nodes) = of_policy.filter(|_| role.replicas_unknown && role.worker) {
                (role.replicas, role.replicas_unknown) = (nodes, false);
            }
            role.launcher = role.container.argv().any(calls_mpirun);
            role
        })
        .collect();
    if !roles.iter().any(|role| role.worker) {
        roles.iter_mut().for_each(|role| role.worker = true);
    }
    let mpi = roles.iter().any(|role| role.launcher).then_some(Mpi::OpenMpi);
    let mut job = JobView { roles, mpi, ..job::metadata(object, JobKind::Workload(kind)) };
    if job.name.is_empty() {
        text_at(object, "/metadata/generateName").unwrap_or_default().clone_into(&mut job.name);
    }
    match kind {
        Workload::VolcanoJob => job.queue = text_at(object, "/spec/queue").map(str::to_owned),
        // Where the object is a pod, its annotations are the pod's.
        Workload::Pod => job.annotations.clear(),
        _ => {}
    }
    job
}

fn calls_mpirun(text: &str) -> bool {
    let words = text.split(|c: char| c.is_whitespace() || ";&|()".contains(c));
    words.into_iter().any(is_mpirun)
}
