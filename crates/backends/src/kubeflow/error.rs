//! The errors and findings of a Kubeflow cluster.

use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Finding};

/// Converts a refusal to findings: the fields it names, else its message with a hint.
pub fn findings(error: &Error) -> Vec<Finding> {
    if !error.findings().is_empty() {
        return error.findings().to_vec();
    }
    let finding = Finding::error("K8S-REFUSED", error.message());
    vec![match error.hints().first() {
        Some(hint) => finding.fix(hint),
        None => finding,
    }]
}

/// Returns the error for a handle of another backend.
pub fn foreign(handle: &JobHandle) -> Error {
    Error::new(ErrorKind::Usage, format!("`{handle}` is not the handle of a Kubeflow job"))
        .hint("Kubeflow handles look like kubeflow://TARGET/NAMESPACE/KIND/NAME")
}
