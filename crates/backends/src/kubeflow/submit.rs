//! A job is tried, and then made exactly once.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use weftrun_core::backend::Rendered;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, PATIENCE};
use super::error;
use super::pod::SUBMISSION;
use super::status::Job;
use crate::kubernetes::code::VOLUME;
use crate::kubernetes::{Cluster, Resource, Write, is_conflict, is_not_found, is_unsent};
use crate::submit_once::{Created, Found, Policy, Submission, submit_once};

/// Removes the companions of a job that was not made. One that stays is named in the error.
async fn remove_companions(cluster: &Cluster, made: &[(Resource, String)], error: Error) -> Error {
    let mut error = error;
    for (resource, name) in made {
        match cluster.delete(resource, name, None).await {
            Ok(()) => {}
            Err(removal) if is_not_found(&removal) => {}
            Err(removal) => {
                error = error
                    .with("left behind", format!("the {} {name}: {}", resource.kind, removal.message()))
                    .hint(format!("`kubectl delete {} {name}` removes it", resource.kind.to_lowercase()));
            }
        }
    }
    error
}

/// Makes a job the owner of the ConfigMaps it mounts, so that they go with it. The job runs without that too: where it is refused,
/// or this process ends before, the ConfigMap only stays when the job is deleted.
pub async fn adopt_maps(cluster: &Cluster, job: &Job) {
    let own = format!("{}-code", job.name());
    for name in mounted_maps(&job.object).iter().filter(|name| name.starts_with(&own)) {
        adopt(cluster, job, &Resource::CONFIG_MAPS, name).await;
    }
}

/// Makes a job the owner of an object.
async fn adopt(cluster: &Cluster, job: &Job, companion: &Resource, name: &str) {
    let resource = job.kind.resource();
    let owner = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "name": job.name(), "uid": job.uid(),
        "controller": false, "blockOwnerDeletion": false,
    });
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    if let Err(error) = cluster.patch(companion, name, &patch).await {
        tracing::warn!("the {} {name} stays when the job is deleted: {error}", companion.kind);
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
    /// Creates the job once. After a lost answer the name is looked up before anything is sent again; the API server
    /// gives a name to one object only, so nothing can be there twice.
    ///
    /// ConfigMaps and claim templates are made before the job that refers to them: an interruption in between leaves no job whose
    /// pods wait for ever.
    pub async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let base = self.cluster().await?;
        let documents = error::documents(rendered)?;
        let (jobs, companions): (Vec<_>, Vec<_>) =
            documents.iter().partition(|document| document.kind.is_some());
        let [document] = jobs.as_slice() else {
            return Err(Error::new(ErrorKind::Unexpected, "a submission has exactly one job"));
        };
        let kind = document.kind.ok_or_else(|| Error::new(ErrorKind::Unexpected, "there is no job"))?;
        let cluster = document.in_namespace(base);
        let mut made = Vec::new();
        for companion in &companions {
            if let Err(error) = create_once(base, companion, rendered).await {
                self.cache().await?.forget().await;
                return Err(remove_companions(&cluster, &made, error).await);
            }
            made.push((companion.resource, companion.name()));
        }
        let object = match create_once(base, document, rendered).await {
            Ok(object) => object,
            Err(error) => {
                self.cache().await?.forget().await;
                // After a lost answer the job may be there, and need it.
                let made = if is_unsent(&error) { Vec::new() } else { made };
                return Err(remove_companions(&cluster, &made, error).await);
            }
        };
        let job = Job { kind, object };
        adopt_maps(&cluster, &job).await;
        for (resource, name) in made.iter().filter(|(resource, _)| *resource != Resource::CONFIG_MAPS) {
            adopt(&cluster, &job, resource, name).await;
        }
        Ok(job.handle(&self.target))
    }
}

/// One object of a submission on its way to the API server, which gives a name to one object only: a second request can
/// never make a second object.
struct Creating<'a> {
    cluster: Cluster,
    document: &'a error::Sent,
    submission: &'a SubmissionId,
}

#[async_trait]
impl Submission for Creating<'_> {
    type Made = Value;

    async fn create(&self) -> Result<Created<Value>> {
        match self.cluster.create(&self.document.resource, &self.document.object, Write::Real).await {
            Ok(made) => Ok(Created::Made(made)),
            Err(error) if is_conflict(&error) => Ok(Created::Taken(error)),
            Err(error) if is_unsent(&error) => Ok(Created::Unknown(error)),
            Err(error) => Err(error),
        }
    }

    async fn search(&self) -> Result<Found<Value>> {
        let name = self.document.name();
        match self.cluster.get(&self.document.resource, &name).await {
            Ok(object) if object["metadata"]["labels"][SUBMISSION] == self.submission.as_str() => {
                Ok(Found::Ours(object))
            }
            Ok(_) => Ok(Found::Other(
                Error::new(ErrorKind::AlreadyExists, format!("the name `{name}` is taken"))
                    .hint("choose another name, or `--name-suffix` to make a new one"),
            )),
            Err(error) if is_not_found(&error) => Ok(Found::Absent),
            Err(error) => Err(error),
        }
    }
}

/// Creates an object of a submission once.
async fn create_once(base: &Cluster, document: &error::Sent, rendered: &Rendered) -> Result<Value> {
    let cluster = document.in_namespace(base);
    let policy = Policy {
        absence: Duration::ZERO,
        requests: u32::MAX,
        patience: PATIENCE,
        pause: Duration::from_millis(200),
    };
    submit_once(&Creating { cluster, document, submission: &rendered.submission }, policy).await
}
