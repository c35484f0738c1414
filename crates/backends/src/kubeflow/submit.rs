//! Submits a job: first a dry run, then exactly one create.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use weftrun_core::backend::Rendered;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, PATIENCE};
use super::companions;
use super::object::JobObject;
use super::pod::SUBMISSION;
use super::status::Job;
use crate::kubernetes::{Cluster, Resource, Write, is_conflict, is_not_found, is_unsent};
use crate::submit_once::{Created, Policy, SearchResult, Submission, prepared, submit_once};

/// How long the creation of a job with a new runtime is repeated while Trainer refuses it.
const RUNTIME_SEEN: Duration = Duration::from_secs(5);

impl Client {
    /// Creates the job once. After a lost answer the name is looked up before anything is sent again; in the
    /// API server a name belongs to one object only, so nothing can exist twice.
    ///
    /// ConfigMaps, claim templates and runtimes are created before the job that refers to them, so that
    /// an interruption in between leaves no job whose pods wait forever.
    pub async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let base = self.cluster().await?;
        let objects: &Vec<JobObject> = prepared(rendered)?;
        let (jobs, beside): (Vec<_>, Vec<_>) = objects.iter().partition(|object| object.kind.is_some());
        let [job_object] = jobs.as_slice() else {
            return Err(Error::new(ErrorKind::Unexpected, "a submission has exactly one job"));
        };
        let kind = job_object.kind.ok_or_else(|| Error::new(ErrorKind::Unexpected, "there is no job"))?;
        let cluster = job_object.in_namespace(base);
        let mut made = Vec::new();
        for companion in &beside {
            match companions::make(base, companion, job_object, rendered).await {
                Ok(true) => made.push((companion.resource, companion.name())),
                Ok(false) => {}
                Err(error) => {
                    self.cache().await?.forget().await;
                    return Err(companions::remove(&cluster, &made, &rendered.submission, error).await);
                }
            }
        }
        let new_runtime = made.iter().any(|(resource, _)| *resource == Resource::TRAINING_RUNTIMES);
        let object = match create_job(base, job_object, rendered, new_runtime).await {
            Ok(object) => object,
            Err(error) => {
                self.cache().await?.forget().await;
                // After a lost answer the job may exist, and need it.
                let made = if is_unsent(&error) { Vec::new() } else { made };
                return Err(companions::remove(&cluster, &made, &rendered.submission, error).await);
            }
        };
        let job = Job { kind, object };
        for companion in &beside {
            companions::adopt(&cluster, &job, &companion.resource, &companion.name()).await;
        }
        Ok(job.handle(&self.target))
    }
}

/// One object of a submission. In the API server a name belongs to one object only: a second request can
/// never create a second object.
struct Creating<'a> {
    cluster: Cluster,
    object: &'a JobObject,
    submission: &'a SubmissionId,
}

#[async_trait]
impl Submission for Creating<'_> {
    type Made = Value;

    async fn create(&self) -> Result<Created<Value>> {
        match self.cluster.create(&self.object.resource, &self.object.object, Write::Real).await {
            Ok(made) => Ok(Created::Made(made)),
            Err(error) if is_conflict(&error) => Ok(Created::Taken(error)),
            Err(error) if is_unsent(&error) => Ok(Created::Unknown(error)),
            Err(error) => Err(error),
        }
    }

    async fn search(&self) -> Result<SearchResult<Value>> {
        let name = self.object.name();
        match self.cluster.get(&self.object.resource, &name).await {
            Ok(object) if object["metadata"]["labels"][SUBMISSION] == self.submission.as_str() => {
                Ok(SearchResult::Ours(object))
            }
            Ok(_) => Ok(SearchResult::Other(
                Error::new(ErrorKind::AlreadyExists, format!("the name `{name}` is taken"))
                    .hint("choose another name, or `--name-suffix` to make a new one"),
            )),
            Err(error) if is_not_found(&error) => Ok(SearchResult::Absent),
            Err(error) => Err(error),
        }
    }
}

/// Creates the job. Trainer refuses a TrainJob whose runtime it has not observed, and observes a new runtime a moment
/// after its creation, so the request is repeated for a short time.
async fn create_job(
    base: &Cluster,
    object: &JobObject,
    rendered: &Rendered,
    new_runtime: bool,
) -> Result<Value> {
    let began = Instant::now();
    loop {
        let made = create_once(base, object, rendered).await;
        let refused = made
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::Refused | ErrorKind::InvalidSpec));
        if !(refused && new_runtime && began.elapsed() < RUNTIME_SEEN) {
            return made;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Creates an object of a submission once.
pub(super) async fn create_once(base: &Cluster, object: &JobObject, rendered: &Rendered) -> Result<Value> {
    let cluster = object.in_namespace(base);
    let policy = Policy {
        absence: Duration::ZERO,
        requests: u32::MAX,
        sends: 1,
        blind: false,
        patience: PATIENCE,
        pause: Duration::from_millis(200),
    };
    submit_once(&Creating { cluster, object, submission: &rendered.submission }, policy).await
}
