//! Creates a workload exactly once: its submission is in a label, and a name is unique in a project.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use weftrun_core::backend::Rendered;
use weftrun_core::job::JobHandle;
use weftrun_core::{Error, ErrorKind, Result};

use super::resolve::{self, text};
use super::{Shared, render};
use crate::submit_once::{Created, Found, Policy, Submission, submit_once};

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
    body: String,
}

pub async fn submit(shared: &Shared, rendered: &Rendered) -> Result<JobHandle> {
    let document = rendered
        .documents
        .first()
        .ok_or_else(|| Error::new(ErrorKind::Unexpected, "nothing was rendered"))?;
    let mut body: Value = serde_json::from_str(&document.text).map_err(|error| {
        Error::new(ErrorKind::InvalidSpec, "the rendered body is not JSON").with_source(error)
    })?;
    fill_placeholders(shared, render::kind_of(rendered), &mut body).await?;
    let handle = submit_once(&Creating { shared, rendered, body: body.to_string() }, POLICY).await?;
    shared.note_created(&handle);
    Ok(handle)
}

#[async_trait]
impl Submission for Creating<'_> {
    type Made = JobHandle;

    async fn create(&self) -> Result<Created<JobHandle>> {
        let kind = render::kind_of(self.rendered);
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

    async fn search(&self) -> Result<Found<JobHandle>> {
        let found = self.shared.find_named(Some(&self.rendered.name), &self.rendered.submission).await?;
        Ok(found.map_or(Found::Absent, Found::Ours))
    }
}

/// Inserts the ids for the names in a body.
async fn fill_placeholders(shared: &Shared, kind: &str, body: &mut Value) -> Result<()> {
    let project = shared.project().await?;
    for (key, id) in [("projectId", &project.id), ("clusterId", &project.cluster)] {
        if text(body, key).is_some_and(|value| value.starts_with('<')) {
            body[key] = Value::String(id.clone());
        }
    }
    if let Some(name) = render::template_of(body) {
        body["templateId"] = Value::String(resolve::template(shared.plane().await?, kind, name).await?);
    }
    Ok(())
}
