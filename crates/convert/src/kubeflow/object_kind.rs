//! Decides which Kubernetes objects are jobs.

use serde_json::Value as Json;

use super::workload;
use weftrun_core::fabric::view::JobKind;
use weftrun_core::span::SpanTree;

/// The kind of a document, or of an item of a List.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Job(JobKind),
    /// A `List` (or `PyTorchJobList` and the like) with items of its own.
    List,
    /// A job of a version that is not mutated.
    OtherVersion,
    /// Anything else passes through.
    Other,
}

pub(super) fn kind_of(api_version: Option<&str>, kind: Option<&str>) -> ObjectKind {
    let (api_version, kind) = (api_version.unwrap_or_default(), kind.unwrap_or_default());
    match (api_version, kind) {
        ("kubeflow.org/v1", "PyTorchJob") => ObjectKind::Job(JobKind::PyTorchJob),
        ("kubeflow.org/v1", "MPIJob") => ObjectKind::Job(JobKind::MpiJobV1),
        ("kubeflow.org/v2beta1", "MPIJob") => ObjectKind::Job(JobKind::MpiJobV2),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob") => ObjectKind::Job(JobKind::TrainJob),
        (version, "PyTorchJob" | "MPIJob" | "TrainJob") if version.contains("kubeflow.org/") => {
            ObjectKind::OtherVersion
        }
        (_, kind) if kind.ends_with("List") => ObjectKind::List,
        _ => workload::kind_of(api_version, kind)
            .map_or(ObjectKind::Other, |kind| ObjectKind::Job(JobKind::Workload(kind))),
    }
}

pub(super) fn kind_of_tree(node: &SpanTree<'_>) -> ObjectKind {
    let text = |key: &str| node.get(key).and_then(SpanTree::as_str);
    kind_of(text("apiVersion"), text("kind"))
}

pub(super) fn kind_of_json(object: &Json) -> ObjectKind {
    let text = |key: &str| object.get(key).and_then(Json::as_str);
    kind_of(text("apiVersion"), text("kind"))
}
