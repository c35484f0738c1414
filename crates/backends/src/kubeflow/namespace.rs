//! A namespace that is deleted, with the jobs and the Roles in it.

use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::kubernetes::{Cluster, NAMESPACE_DELETED, NAMESPACE_FIX, Resource, is_forbidden, is_not_found};

/// Returns the deletion of the cluster's namespace, if the user may see it.
pub async fn deletion(cluster: &Cluster) -> Result<Option<Finding>> {
    let name = &cluster.namespace;
    let what = match cluster.get(&Resource::NAMESPACES, name).await {
        Ok(object) if object["metadata"]["deletionTimestamp"].is_string() => {
            format!("the namespace `{name}` is being deleted, and all jobs in it")
        }
        Ok(_) => return Ok(None),
        Err(error) if is_not_found(&error) => {
            format!("the namespace `{name}` does not exist: its jobs were deleted with it")
        }
        Err(error) => return Err(error),
    };
    Ok(Some(Finding::error(NAMESPACE_DELETED, what).at(name).fix(NAMESPACE_FIX)))
}

/// Explains why an object of the namespace is gone, or may not be read, by the namespace's own state.
pub async fn explained(cluster: &Cluster, error: Error) -> Error {
    if !(is_not_found(&error) || is_forbidden(&error)) {
        return error;
    }
    match deletion(cluster).await {
        Ok(Some(finding)) => {
            Error::from_findings(ErrorKind::NotFound, finding.message.clone(), vec![finding])
        }
        Err(hidden) if is_forbidden(&error) && is_forbidden(&hidden) => {
            let name = &cluster.namespace;
            error.hint(format!(
                "ask whether the namespace `{name}` still exists: one that is deleted takes its Roles along"
            ))
        }
        _ => error,
    }
}
