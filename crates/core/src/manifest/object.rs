//! Which Kubernetes objects are jobs.

use serde_json::Value as Json;

use crate::mutation::view::JobKind;
use crate::span::SpanTree;

/// What a document or an item of a List is to the mutation.
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

/// Tells by `apiVersion` and `kind`.
pub(super) fn kind_of(api_version: Option<&str>, kind: Option<&str>) -> ObjectKind {
    match (api_version.unwrap_or_default(), kind.unwrap_or_default()) {
        ("kubeflow.org/v1", "PyTorchJob") => ObjectKind::Job(JobKind::PyTorchJob),
        ("kubeflow.org/v1", "MPIJob") => ObjectKind::Job(JobKind::MpiJobV1),
        ("kubeflow.org/v2beta1", "MPIJob") => ObjectKind::Job(JobKind::MpiJobV2),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob") => ObjectKind::Job(JobKind::TrainJob),
        (version, "PyTorchJob" | "MPIJob" | "TrainJob") if version.contains("kubeflow.org/") => {
            ObjectKind::OtherVersion
        }
        (_, "List" | "PyTorchJobList" | "MPIJobList" | "TrainJobList") => ObjectKind::List,
        _ => ObjectKind::Other,
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

/// The text at a JSON pointer.
pub(super) fn text_at<'j>(object: &'j Json, pointer: &str) -> Option<&'j str> {
    object.pointer(pointer).and_then(Json::as_str)
}

/// The members of a list at a key; none if there is no list.
pub(super) fn list<'j>(object: &'j Json, key: &str) -> &'j [Json] {
    object.get(key).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// A whole number at a key that fits; one in quotes counts too, though the API server refuses it.
pub(super) fn number(object: &Json, key: &str) -> Option<u32> {
    let value = object.get(key)?;
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

/// What stands where a number should, if it is none (`$NUM_NODES`).
pub(super) fn placeholder(object: &Json, key: &str) -> Option<String> {
    let text = object.get(key).and_then(Json::as_str)?;
    text.parse::<u64>().is_err().then(|| text.to_owned())
}
