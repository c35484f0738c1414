//! A job is tried, and then made exactly once.

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
use crate::kubernetes::{Cluster, Write, is_conflict, is_not_found, is_unsent};

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
    pub async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let base = self.cluster().await?;
        let documents = error::documents(rendered)?;
        let mut owner: Option<Job> = None;
        for document in &documents {
            let cluster = document.in_namespace(base);
            let mut object = document.object.clone();
            if let Some(owner) = &owner {
                // The ConfigMap goes with the job; pods wait for it.
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": owner.kind.resource().api_version(), "kind": owner.kind.resource().kind,
                    "name": owner.name(), "uid": owner.uid(), "controller": false, "blockOwnerDeletion": false,
                }]);
            }
            let made = match self.create_once(&cluster, document, &object, rendered).await {
                Ok(made) => made,
                Err(error) => {
                    self.cache().await?.forget().await;
                    if let Some(owner) = owner.filter(|_| !is_unsent(&error)) {
                        // Its pods would wait for the rest for ever.
                        let resource = owner.kind.resource();
                        cluster.delete(&resource, owner.name(), Some(owner.uid())).await?;
                    }
                    return Err(error);
                }
            };
            if owner.is_none() {
                let kind = document
                    .kind
                    .ok_or_else(|| Error::new(ErrorKind::Unexpected, "the first document is no job"))?;
                owner = Some(Job { kind, object: made });
            }
        }
        owner
            .map(|job| job.handle(&self.target))
            .ok_or_else(|| Error::new(ErrorKind::Unexpected, "there is nothing to submit"))
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
        }
    }
}
