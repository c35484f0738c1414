//! The dry run: the API server's verdict on a job before it is created.

use weftrun_core::backend::Rendered;
use weftrun_core::{ErrorKind, Finding, Result};

use super::client::Client;
use super::error;
use super::object::JobObject;
use super::pod::SUBMISSION;
use super::render::COPIED_FROM;
use crate::kubernetes::{
    Cluster, Resource, Write, is_conflict, is_unauthenticated, is_unsent, is_webhook_down,
};
use crate::submit_once::prepared;

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
        let objects: &Vec<JobObject> = prepared(rendered)?;
        let runtime = objects.iter().find(|one| one.resource == Resource::TRAINING_RUNTIMES);
        let sent =
            objects.iter().filter(|one| one.kind.is_some() || one.resource == Resource::TRAINING_RUNTIMES);
        for one in sent {
            let mut one = one.clone();
            if let Some(runtime) = runtime.filter(|_| one.kind.is_some()) {
                with_original_runtime(&mut one, runtime);
            }
            let cluster = one.in_namespace(cluster);
            match cluster.create(&one.resource, &one.object, Write::DryRun).await {
                Ok(_) => {}
                Err(error) if is_unsent(&error) || is_webhook_down(&error) || is_unauthenticated(&error) => {
                    return Err(error);
                }
                Err(error) if is_conflict(&error) && self.is_ours(&cluster, &one, rendered).await => {}
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
    async fn is_ours(&self, cluster: &Cluster, object: &JobObject, rendered: &Rendered) -> bool {
        let Ok(there) = cluster.get(&object.resource, &object.name()).await else { return false };
        there["metadata"]["labels"][SUBMISSION] == rendered.submission.as_str()
    }
}

/// Makes a TrainJob refer to the runtime that its own runtime was copied from. The copy does not exist before the
/// submission, and Trainer refuses a job whose runtime does not exist.
fn with_original_runtime(job: &mut JobObject, own: &JobObject) {
    let copied = own.object["metadata"]["annotations"][COPIED_FROM].as_str();
    if let Some((kind, name)) = copied.and_then(|copied| copied.split_once('/')) {
        job.object["spec"]["runtimeRef"]["kind"] = kind.into();
        job.object["spec"]["runtimeRef"]["name"] = name.into();
    }
}
