//! The objects to send, parsed from the rendered text, and the errors about them.

use serde_json::Value;
use weftrun_core::backend::Rendered;
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::kinds::Kind;
use crate::kubernetes::{Cluster, Resource};

/// One object to send.
#[derive(Clone, Debug)]
pub struct Sent {
    pub resource: Resource,
    /// The kind of job, if it is one.
    pub kind: Option<Kind>,
    pub object: Value,
}

impl Sent {
    pub fn name(&self) -> String {
        self.object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the cluster with the object's own namespace.
    pub fn in_namespace(&self, cluster: &Cluster) -> Cluster {
        match self.object["metadata"]["namespace"].as_str() {
            Some(namespace) => Cluster { namespace: namespace.to_owned(), ..cluster.clone() },
            None => cluster.clone(),
        }
    }
}

/// Returns the objects of a rendered job.
pub fn documents(rendered: &Rendered) -> Result<Vec<Sent>> {
    let one = |text: &str| {
        let object: Value = serde_saphyr::from_str(text).map_err(|error| {
            Error::new(ErrorKind::InvalidSpec, format!("what was rendered is not YAML: {error}"))
                .with("job", &rendered.name)
        })?;
        let kind = Kind::ALL.into_iter().find(|kind| {
            let resource = kind.resource();
            object["kind"] == resource.kind && object["apiVersion"] == resource.api_version().as_str()
        });
        let resource = match (kind, object["kind"].as_str()) {
            (Some(kind), _) => kind.resource(),
            (None, other) => {
                let known = Resource::COMPANIONS.into_iter().find(|known| Some(known.kind) == other);
                known.ok_or_else(|| {
                    Error::new(ErrorKind::InvalidSpec, "this object is not part of a Kubeflow job")
                        .with("kind", other.unwrap_or("none"))
                })?
            }
        };
        Ok(Sent { resource, kind, object })
    };
    rendered.documents.iter().map(|document| one(&document.text)).collect()
}

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
