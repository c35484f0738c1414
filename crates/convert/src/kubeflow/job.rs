//! PyTorchJob and MPIJob as the rules see them.

use serde_json::Value as Json;

use super::object::{number, placeholder, pointer, text_at};
use super::pod;
use crate::edit::step;
use weftrun_core::fabric::view::{JobKind, JobView, Mpi, RoleView};

/// Reads a job object that has pod templates of its own.
pub(super) fn view(object: &Json, kind: JobKind) -> JobView {
    let replicas = if kind == JobKind::PyTorchJob { "pytorchReplicaSpecs" } else { "mpiReplicaSpecs" };
    let specs = pointer(object, &format!("/spec/{replicas}")).and_then(Json::as_object);
    // A view is large: allocate exactly as many as needed.
    let mut roles = Vec::with_capacity(specs.map_or(0, serde_json::Map::len));
    roles.extend(specs.into_iter().flatten().map(|(name, spec)| role(object, kind, replicas, name, spec)));
    JobView {
        queue: text_at(object, "/spec/runPolicy/schedulingPolicy/queue").map(str::to_owned),
        roles,
        mpi: (kind != JobKind::PyTorchJob)
            .then(|| implementation(text_at(object, "/spec/mpiImplementation"))),
        ..metadata(object, kind)
    }
}

/// Returns a view with the metadata of an object only.
pub(super) fn metadata(object: &Json, kind: JobKind) -> JobView {
    JobView {
        kind,
        name: text_at(object, "/metadata/name").unwrap_or_default().to_owned(),
        namespace: text_at(object, "/metadata/namespace").map(str::to_owned),
        labels: pod::texts(pointer(object, "/metadata/labels")),
        annotations: pod::annotations(pointer(object, "/metadata/annotations")),
        ..JobView::default()
    }
}

pub(super) fn implementation(name: Option<&str>) -> Mpi {
    match name {
        Some("Intel") => Mpi::Intel,
        Some("MPICH") => Mpi::Mpich,
        _ => Mpi::OpenMpi,
    }
}

fn role(object: &Json, kind: JobKind, replicas: &str, name: &str, spec: &Json) -> RoleView {
    let none = Json::Null;
    let template = spec.get("template").unwrap_or(&none);
    let at = format!("/spec/{replicas}/{}/template", step(name));
    let wanted = match kind {
        JobKind::PyTorchJob => Some("pytorch"),
        JobKind::MpiJobV1 => text_at(object, "/spec/mainContainer"),
        _ => None,
    };
    let main = |containers: &[Json]| {
        let named =
            |container: &Json| wanted.is_some() && container.get("name").and_then(Json::as_str) == wanted;
        containers.iter().position(named).unwrap_or(0)
    };
    let mut role = pod::role(template, &at, main);
    name.clone_into(&mut role.name);
    role.replicas = number(spec, "replicas").unwrap_or(1);
    role.replicas_text = placeholder(spec, "replicas");
    role.launcher = kind != JobKind::PyTorchJob && name.eq_ignore_ascii_case("launcher");
    role.worker = !role.launcher || launcher_works(object, kind, &role);
    role
}

/// Returns whether a launcher has ranks: mpi-operator has a field for it; with training-operator it has, if
/// its limits name a GPU.
fn launcher_works(object: &Json, kind: JobKind, launcher: &RoleView) -> bool {
    if kind == JobKind::MpiJobV2 {
        return pointer(object, "/spec/runLauncherAsWorker").and_then(Json::as_bool).unwrap_or(false);
    }
    let containers = std::iter::once(&launcher.container).chain(&launcher.sidecars);
    let mut limits = containers.flat_map(|container| container.limits.keys());
    limits.any(|name| name.ends_with(".com/gpu") || name.contains("gpu"))
}
