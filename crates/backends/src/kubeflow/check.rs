//! The dry run: the API server's verdict on a job before it is created.

use weftrun_core::backend::Rendered;
use weftrun_core::{ErrorKind, Finding, Result};

use super::client::Client;
use super::error;
use super::pod::SUBMISSION;
use crate::kubernetes::{Cluster, Write, is_conflict, is_unauthenticated, is_unsent};

impl Client {
    /// Sends the objects of a job as a dry run. A refusal may be due to cached facts that no longer hold.
    pub async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let checked = self.dry_run(rendered).await;
        if !checked.as_ref().is_ok_and(Vec::is_empty) {
            self.cache().await?.forget().await;
        }
        checked
    }

    async fn dry_run(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let cluster = self.cluster().await?;
        let mut findings: Vec<Finding> =
            rendered.findings.iter().filter(|finding| finding.is_error()).cloned().collect();
        // A ConfigMap is only rendered if the right to create one is known, and nothing else can be wrong
        // with it.
        for document in error::documents(rendered)?.into_iter().filter(|document| document.kind.is_some()) {
            let resource = document.resource;
            let cluster = document.in_namespace(cluster);
            match cluster.create(&resource, &document.object, Write::DryRun).await {
                Ok(_) => {}
                Err(error) if is_unsent(&error) || is_unauthenticated(&error) => return Err(error),
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

    /// Returns whether the object with this name belongs to this submission.
    async fn is_ours(&self, cluster: &Cluster, document: &error::Sent, rendered: &Rendered) -> bool {
        let Ok(there) = cluster.get(&document.resource, &document.name()).await else { return false };
        there["metadata"]["labels"][SUBMISSION] == rendered.submission.as_str()
    }
}
