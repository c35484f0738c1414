#![doc = include_str!("docs.md")]

mod act;
mod allocation;
mod capacity;
mod check;
mod client;
mod config;
mod discover;
mod engine;
mod error;
mod exec;
mod logs;
mod look;
mod render;
mod ssh_config;
mod status;
mod submit;
mod unreachable;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use weftrun_core::backend::{
    Backend, Capability, ClusterFacts, ExecRequest, ExecSink, PlannedJob, PortConnection, Rendered, Scope,
    TargetConfig,
};
use weftrun_core::fabric::evidence::Form;
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Finding, Result};

use crate::attach::{PipedPort, attach, connect_request};
use crate::{stream, submit_once};
use client::Client;

/// The backend's name.
const BACKEND: &str = "hosts";

weftrun_core::register_backend!(
    BACKEND,
    "machines without a scheduler, over ssh",
    connect,
    form: Form::Script,
    find: ssh_config::find
);

/// The hosts of one target.
#[derive(Clone, Debug)]
pub struct Hosts {
    client: Arc<Client>,
}

async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Hosts::new(&target)?))
}

impl Hosts {
    /// Creates the backend of a target; runs nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`](weftrun_core::ErrorKind::InvalidConfig) naming the setting.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        Ok(Self { client: Arc::new(Client::new(target)?) })
    }
}

#[async_trait]
impl Backend for Hosts {
    fn capability(&self) -> Capability {
        Capability {
            backend: BACKEND.to_owned(),
            detach: true,
            dry_run: true,
            suspend: true,
            signal: true,
            delete: true,
            containers: true,
            mpi: true,
            exec: true,
            labels: true,
            own_jobs: true,
            ports: true,
            previous_logs: true,
            rank_logs: true,
            exact_resume: true,
            restarts: true,
            time_limit: true,
            max_name: 63,
            max_args_bytes: 1 << 20,
            ..Capability::default()
        }
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        discover::discover(&self.client, scope).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        let mut rendered = render::render(&self.client.settings, job)?;
        // Without hosts, `check` reports that the target has none.
        if self.client.names().next().is_some()
            && let Err(too_few) =
                capacity::candidates(&self.client, submit_once::prepared::<render::PreparedJob>(&rendered)?)
        {
            rendered.findings.push(capacity::finding(&too_few));
        }
        Ok(rendered)
    }

    fn pin(&self, job: &mut JobSpec, nodes: &[String]) -> Result<()> {
        job.set_backend(BACKEND, "nodelist", nodes.join(","));
        Ok(())
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        check::check(&self.client, rendered).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        submit::submit(&self.client, rendered).await
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        submit::find(&self.client, id).await
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        watch::list(&self.client, filter).await
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        let found = self.client.job(job).await?;
        self.client.conclude([&found]).await;
        Ok(found.detail(&self.client.target, self.client.settings.folder()))
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        act::act(&self.client, job, action).await
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let client = Arc::clone(&self.client);
        ordered(stream::fed(move |feed| watch::watch(client, filter, feed)))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let (client, job) = (Arc::clone(&self.client), job.clone());
        stream::fed(move |feed| logs::read(client, job, options, feed))
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        exec::exec(&self.client, job, request, sink).await
    }

    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        attach(exec::interactive(&self.client, job, request).await?).await
    }

    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        let request = connect_request(rank, port);
        PipedPort::start(exec::interactive(&self.client, job, &request).await?, port)
    }
}
