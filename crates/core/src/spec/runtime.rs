//! Training runtimes (Kubeflow Trainer) in a text.

use serde_json::Value as Json;

/// Returns the training runtimes in a text: a later TrainJob in the same stream may name them.
pub fn runtimes_in(text: &str) -> Vec<Json> {
    if memchr::memmem::find(text.as_bytes(), b"TrainingRuntime").is_none() {
        return Vec::new();
    }
    let documents = crate::span::yaml_documents(text).unwrap_or_default();
    let objects = documents.iter().map(|document| document.root.to_json());
    let all = objects.flat_map(|object| match object.get("items").and_then(Json::as_array) {
        Some(items) => items.clone(),
        None => vec![object],
    });
    all.filter(is_runtime).collect()
}

/// Returns whether an object is a training runtime.
pub fn is_runtime(object: &Json) -> bool {
    matches!(object["kind"].as_str(), Some("TrainingRuntime" | "ClusterTrainingRuntime"))
}
