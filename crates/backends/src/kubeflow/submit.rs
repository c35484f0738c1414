//! A job is tried, and then made exactly once.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use weftrun_core::backend::Rendered;
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::client::{Client, PATIENCE};
use super::error;
use super::pod::SUBMISSION;
use super::status::Job;
use crate::kubernetes::code::VOLUME;
use crate::kubernetes::{Cluster, Resource, Write, is_conflict, is_not_found, is_unsent};

/// Removes ConfigMaps of a job that was not made. One that stays is named in the error.
async fn remove_maps(cluster: &Cluster, names: &[String], error: Error) -> Error {
    let mut error = error;
    for name in names {
        match cluster.delete(&Resource::CONFIG_MAPS, name, None).await {
            Ok(()) => {}
            Err(removal) if is_not_found(&removal) => {}
            Err(removal) => {
                error = error
                    .with("left behind", format!("the ConfigMap {name}: {}", removal.message()))
                    .hint(format!("`kubectl delete configmap {name}` removes it"));
            }
        }
    }
    error
}

/// Makes a job the owner of the ConfigMaps it mounts, so that they go with it. The job runs without that too: where it is refused,
/// or this process ends before, the ConfigMap only stays when the job is deleted.
pub async fn adopt_maps(cluster: &Cluster, job: &Job) {
    let resource = job.kind.resource();
    let owner = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "name": job.name(), "uid": job.uid(),
        "controller": false, "blockOwnerDeletion": false,
    });
    let own = format!("{}-code", job.name());
    for name in mounted_maps(&job.object).iter().filter(|name| name.starts_with(&own)) {
        let patch = json!({"metadata": {"ownerReferences": [owner]}});
        if let Err(error) = cluster.patch(&Resource::CONFIG_MAPS, name, &patch).await {
            tracing::warn!(%error, name, "the ConfigMap stays when the job is deleted");
        }
    }
}

/// The ConfigMaps with code that a job mounts, wherever its kind has the volumes.
fn mounted_maps(object: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![object];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                let code = fields.get("name").is_some_and(|name| name == VOLUME);
                let map = fields.get("configMap").and_then(|map| map["name"].as_str());
                found.extend(map.filter(|_| code).map(str::to_owned));
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    found
}

impl Client {
    /// The cluster's own opinion of what would be sent. What it refuses may come of facts that are no longer so.
    pub async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let checked = self.dry_run(rendered).await;
        if !checked.as_ref().is_ok_and(Vec::is_empty) {
            self.cache().await?.forget().await;
        }
        checked
    }

    async fn dry_run(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let cluster = self.cluster().await?;
        let mut findings = Vec::new();
        // A ConfigMap is only made where the right to make one is known, and nothing else can be wrong with it.
        for document in error::documents(rendered)?.into_iter().filter(|document| document.kind.is_some()) {
            let resource = document.resource;
            let cluster = document.in_namespace(cluster);
            match cluster.create(&resource, &document.object, Write::DryRun).await {
                Ok(_) => {}
                Err(error)
                    if is_unsent(&error)
                        || (error.kind() == ErrorKind::Credentials
                            && error.message().contains("does not know")) =>
                {
                    return Err(error);
                }
                Err(error) if is_conflict(&error) && self.is_ours(&cluster, &document, rendered).await => {}
                Err(error)
                    if error.kind() == ErrorKind::Unsupported
                        || is_conflict(&error)
                        || error.kind() == ErrorKind::Credentials =>
                {
                    return Err(error);
                }
                Err(error) => findings.extend(error::findings(&error)),
            }
        }
        Ok(findings)
    }

    /// Whether the object that has the name is of this very submission.
    async fn is_ours(&self, cluster: &Cluster, document: &error::Sent, rendered: &Rendered) -> bool {
        let Ok(there) = cluster.get(&document.resource, &document.name()).await else { return false };
        there["metadata"]["labels"][SUBMISSION] == rendered.submission.as_str()
    }

    /// Creates the job once. After a lost answer the name is looked up before anything is sent again; the API server
    /// gives a name to one object only, so nothing can be there twice.
    ///
    /// A ConfigMap is made before the job that mounts it: whoever is killed in between leaves no job whose pods wait for ever.
    pub async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let base = self.cluster().await?;
        let documents = error::documents(rendered)?;
        let (jobs, maps): (Vec<_>, Vec<_>) = documents.iter().partition(|document| document.kind.is_some());
        let [document] = jobs.as_slice() else {
            return Err(Error::new(ErrorKind::Unexpected, "a submission has exactly one job"));
        };
        let kind = document.kind.ok_or_else(|| Error::new(ErrorKind::Unexpected, "there is no job"))?;
        let cluster = document.in_namespace(base);
        let mut made = Vec::new();
        for map in &maps {
            if let Err(error) = self.create_once(&map.in_namespace(base), map, &map.object, rendered).await {
                self.cache().await?.forget().await;
                return Err(remove_maps(&cluster, &made, error).await);
            }
            made.push(map.name());
        }
        let object = match self.create_once(&cluster, document, &document.object, rendered).await {
            Ok(object) => object,
            Err(error) => {
                self.cache().await?.forget().await;
                // After a lost answer the job may be there, and need it.
                let made = if is_unsent(&error) { Vec::new() } else { made };
                return Err(remove_maps(&cluster, &made, error).await);
            }
        };
        let job = Job { kind, object };
        adopt_maps(&cluster, &job).await;
        Ok(job.handle(&self.target))
    }

    async fn create_once(
        &self,
        cluster: &Cluster,
        document: &error::Sent,
        object: &Value,
        rendered: &Rendered,
    ) -> Result<Value> {
        let began = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(200);
        let mut lost = false;
        loop {
            let error = match cluster.create(&document.resource, object, Write::Real).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            // An API server that comes back knows no Roles for a moment.
            let waits = |error: &Error| is_unsent(error) || error.kind() == ErrorKind::Credentials;
            if !(is_conflict(&error) || is_unsent(&error) || lost && waits(&error)) {
                return Err(error);
            }
            lost |= is_unsent(&error);
            // Is the one that is there ours? Until the server answers, nothing is sent again.
            let known = loop {
                match cluster.get(&document.resource, &document.name()).await {
                    Ok(there) => break Some(there),
                    Err(error) if is_not_found(&error) => break None,
                    Err(error) if !(lost && waits(&error)) || began.elapsed() > PATIENCE => {
                        return Err(error);
                    }
                    Err(_) => sleep(pause).await,
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            };
            match known {
                Some(there) if there["metadata"]["labels"][SUBMISSION] == rendered.submission.as_str() => {
                    return Ok(there);
                }
                Some(_) if is_conflict(&error) => return Err(error),
                Some(_) => {
                    return Err(Error::new(
                        ErrorKind::AlreadyExists,
                        format!("the name `{}` is taken", document.name()),
                    )
                    .hint("choose another name, or `--name-suffix` to make a new one"));
                }
                None if began.elapsed() > PATIENCE => return Err(error),
                None => sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}
