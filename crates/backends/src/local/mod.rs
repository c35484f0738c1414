#![doc = include_str!("docs.md")]

mod act;
mod after;
mod check;
mod config;
mod discover;
mod document;
mod error;
mod exec;
mod folder;
mod logs;
mod process;
mod record;
mod render;
mod status;
mod store;
mod submit;
mod supervisor;
mod watch;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::process::Command;
use weftrun_core::backend::{
    Arrays, Backend, Capability, ClusterFacts, ExecRequest, ExecSink, ExecStream, PlannedJob, PortConnection,
    Rendered, Scope, TargetConfig,
};
use weftrun_core::fabric::evidence::Form;
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use config::Config;
pub use document::{Dependency, Process, ProcessList};
use store::Store;
pub use supervisor::supervise;

use crate::attach::{PipedPort, attach, connect_request};
use crate::{stream, submit_once};

weftrun_core::register_backend!(
    NAME,
    "processes on this machine: no cluster, no container",
    connect,
    form: Form::Script,
    ignores_images: true
);

/// The registered name of this backend.
pub const NAME: &str = "local";

/// Connects to this machine: reads the target's settings and searches its `PATH` for `torchrun` and `mpirun`.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] for a setting that is unknown or wrong.
#[allow(clippy::unused_async, reason = "the signature every backend's connect has")]
pub async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    let config = Config::of(&target)?;
    Ok(Arc::new(Local { store: Store::new(&target, &config), config }))
}

/// This machine as a cluster.
#[derive(Debug)]
struct Local {
    config: Config,
    store: Store,
}

impl Local {
    /// Returns a command beside a rank, with the folder and environment of the rank's process.
    async fn command(&self, job: &JobHandle, request: &ExecRequest) -> Result<Command> {
        let (store, job, request) = (self.store.clone(), job.clone(), request.clone());
        error::blocking(move || store.exec(&job, &request)).await
    }
}

#[async_trait]
impl Backend for Local {
    fn capability(&self) -> Capability {
        Capability {
            backend: NAME.to_owned(),
            detach: self.store.detaches(),
            dry_run: true,
            suspend: true,
            signal: true,
            delete: true,
            mpi: true,
            exec: true,
            ports: true,
            previous_logs: true,
            rank_logs: true,
            exact_resume: true,
            log_offsets: true,
            restarts: true,
            labels: true,
            arrays: Arrays::Jobs,
            dependencies: true,
            own_jobs: true,
            time_limit: true,
            max_name: 63,
            max_args_bytes: 1 << 20,
            ..Capability::default()
        }
    }

    async fn discover(&self, _scope: &Scope) -> Result<ClusterFacts> {
        let config = self.config.clone();
        error::blocking(move || Ok(config.facts())).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        render::render(job, &self.config)
    }

    fn pin(&self, _job: &mut JobSpec, _nodes: &[String]) -> Result<()> {
        let message =
            "backend `local` cannot run a job on named nodes: its nodes are processes of this machine";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let (list, store) =
            (submit_once::prepared::<Arc<ProcessList>>(rendered)?.clone(), self.store.clone());
        error::blocking(move || store.check(&list)).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        submit::submit(&self.store, rendered).await
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        let (store, id) = (self.store.clone(), id.clone());
        error::blocking(move || store.find(&id)).await
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let (store, filter) = (self.store.clone(), filter.clone());
        error::blocking(move || store.list(&filter)).await
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        let (store, job) = (self.store.clone(), job.clone());
        error::blocking(move || store.describe(&job)).await
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        let (store, job) = (self.store.clone(), job.clone());
        error::blocking(move || store.act(&job, action)).await
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        ordered(watch::watch(self.store.clone(), filter))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let (store, job) = (self.store.clone(), job.clone());
        stream::fed(move |feed| logs::logs(store, job, options, feed))
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        let command = self.command(job, request).await?;
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let status = match crate::relay::relay(command, None, sink).await {
            // As a shell reports it: this is the command's own failure.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                sink(ExecStream::Stderr, format!("weftrun: {program}: command not found\n").as_bytes())?;
                return Ok(127);
            }
            status => status?,
        };
        Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        let command = self.command(job, request).await?;
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        match attach(command).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let _ = writeln!(std::io::stderr(), "weftrun: {program}: command not found");
                Ok(127)
            }
            code => code,
        }
    }

    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        let request = connect_request(rank, port);
        PipedPort::start(self.command(job, &request).await?, port)
    }
}
