//! Creates a workload exactly once: its submission is in a label, and a name is unique in a project.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use weftrun_core::backend::Rendered;
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Result};

use super::Shared;
use super::render::{CreateRequest, Kind, ServerId};
use super::resolve::{self, text};
use crate::submit_once::{Created, Policy, SearchResult, Submission, prepared, submit_once};

/// The request is sent once more if the workload has not appeared for a few seconds: lists lag behind.
const POLICY: Policy = Policy {
    absence: Duration::from_millis(3500),
    requests: 2,
    sends: 1,
    blind: false,
    patience: Duration::from_secs(20),
    pause: Duration::from_millis(500),
};

/// A workload that is being created.
struct Creating<'a> {
    shared: &'a Shared,
    rendered: &'a Rendered,
    kind: Kind,
    body: String,
}

pub async fn submit(shared: &Shared, rendered: &Rendered) -> Result<JobHandle> {
    let request: &CreateRequest = prepared(rendered)?;
    let body = with_ids(shared, request).await?.to_string();
    let handle = submit_once(&Creating { shared, rendered, kind: request.kind, body }, POLICY).await?;
    shared.note_created(&handle);
    Ok(handle)
}

#[async_trait]
impl Submission for Creating<'_> {
    type Made = JobHandle;

    async fn create(&self) -> Result<Created<JobHandle>> {
        let kind = self.kind.path();
        let path = format!("/api/v1/workloads/{kind}");
        let plane = self.shared.plane().await?;
        match plane.create("cannot create the workload", &path, &self.body).await {
            Ok(answer) => match text(&answer, "workloadId") {
                Some(id) => {
                    let name = text(&answer, "name").unwrap_or(&self.rendered.name);
                    self.shared.handle(kind, name, id).map(Created::Made)
                }
                None => Ok(Created::Unknown(Error::new(
                    ErrorKind::Protocol,
                    "the control plane took the job and named no workload id",
                ))),
            },
            Err(error) => match error.kind() {
                ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Protocol => {
                    Ok(Created::Unknown(error))
                }
                // Some versions answer a taken name with a plain 400 or 409.
                ErrorKind::AlreadyExists | ErrorKind::Refused => Ok(Created::Taken(error)),
                _ => Err(error),
            },
        }
    }

    async fn search(&self) -> Result<SearchResult<JobHandle>> {
        let found = self.shared.find_named(Some(&self.rendered.name), &self.rendered.submission).await?;
        Ok(found.map_or(SearchResult::Absent, SearchResult::Ours))
    }
}

/// Returns the body with the ids in place of the placeholders.
async fn with_ids(shared: &Shared, request: &CreateRequest) -> Result<Value> {
    let mut body = request.body.clone();
    let project = shared.project().await?;
    for id in &request.unknown_ids {
        body[id.field()] = match id {
            ServerId::Project => json!(project.id),
            ServerId::Cluster => json!(project.cluster),
            ServerId::Template(name) => {
                json!(resolve::template(shared.plane().await?, request.kind, name).await?)
            }
        };
    }
    Ok(body)
}
