//! Slurm, through its commands: on this host, or over the system's `ssh`.
#![doc = include_str!("docs.md")]

mod act;
mod check;
mod client;
mod cluster;
mod config;
mod describe;
mod discover;
mod error;
mod exec;
mod findings;
#[cfg(fuzzing)]
pub mod fuzzing;
mod ids;
mod logs;
mod lookup;
mod preamble;
mod records;
mod render;
mod rest;
mod state;
mod status;
mod submit;
mod task_files;
mod usage;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use weftrun_core::backend::{
    Arrays, Backend, Capability, ClusterFacts, ExecRequest, ExecSink, FoundTarget, PlannedJob,
    PortConnection, Rendered, Scope, TargetConfig,
};
use weftrun_core::fabric::evidence::Form;
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::text::nodelist;
use weftrun_core::{Finding, Result};

use crate::attach::{PipedPort, attach, connect_request};
use crate::remote::quote;
use crate::{files, refusals, stream};
use client::Client;

pub use weftrun_convert::NoCounterpart;

/// The backend's name.
const BACKEND: &str = "slurm";

weftrun_core::register_backend!(
    BACKEND,
    "Slurm clusters, by their commands here or over ssh",
    connect,
    form: Form::Script,
    find: find
);

/// Finds the cluster whose `sbatch` is in the PATH.
fn find(target: &TargetConfig) -> Vec<FoundTarget> {
    let sbatch = target.env.get("PATH").and_then(|path| files::find_program("sbatch", path));
    sbatch.map(|file| FoundTarget::new(BACKEND, format!("`{}`", file.display()))).into_iter().collect()
}

/// One Slurm cluster.
#[derive(Clone, Debug)]
pub struct Slurm {
    client: Arc<Client>,
}

async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Slurm::new(&target)?))
}

impl Slurm {
    /// Creates the backend of a target; runs nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`](weftrun_core::ErrorKind::InvalidConfig) naming the setting.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        Ok(Self { client: Arc::new(Client::new(target)?) })
    }

    fn own(&self, handle: &JobHandle) -> Result<()> {
        refusals::other_target(handle, BACKEND, &self.client.target)
    }
}

#[async_trait]
impl Backend for Slurm {
    fn capability(&self) -> Capability {
        Capability {
            backend: BACKEND.to_owned(),
            detach: true,
            dry_run: true,
            hold: true,
            // No version of slurmrestd can requeue a job.
            requeue: !self.client.access.is_rest(),
            signal: true,
            containers: true,
            mpi: true,
            labels: true,
            arrays: Arrays::Native,
            dependencies: true,
            own_jobs: true,
            exec: !self.client.access.is_rest(),
            ports: !self.client.access.is_rest(),
            previous_logs: true,
            rank_logs: true,
            exact_resume: true,
            restarts: true,
            time_limit: true,
            max_name: 200,
            // sbatch takes a script of 4 MiB (MaxScriptSize), which contains the arguments, but Linux starts no
            // program with more than a quarter of the stack's limit, 2 MiB by default, of arguments and
            // environment together (execve(2), read 2026-11-23).
            max_args_bytes: 1 << 20,
            ..Capability::default()
        }
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        discover::discover(&self.client, scope).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        render::refuse_other_target(&job.spec, &self.client.target)?;
        render::render(&self.client.settings, job)
    }

    fn pin(&self, job: &mut JobSpec, nodes: &[String]) -> Result<()> {
        job.set_backend("slurm", "nodelist", nodes.join(","));
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

    fn arrives_within(&self) -> std::time::Duration {
        // With access to files, `find` itself reads when sbatch started, and reports when absence is not
        // certain yet. Without, slurmctld may queue a job long after the wait for its answer ended
        // (MessageTimeout, a busy controller).
        if self.client.has_files() {
            return std::time::Duration::ZERO;
        }
        std::time::Duration::from_secs(self.client.settings.absence_seconds.unwrap_or(120))
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        if !filter.handles.is_empty() {
            let mut jobs = Vec::new();
            for handle in &filter.handles {
                self.own(handle)?;
                let (_, found) = lookup::must_find(&self.client, handle).await?;
                jobs.push(found.summary(handle.clone()));
            }
            return Ok(jobs);
        }
        let rows = lookup::list(&self.client, filter.ended).await?;
        let mut jobs = lookup::grouped(&self.client, &rows);
        lookup::drop_copies(&self.client, &mut jobs).await?;
        if filter.tasks {
            jobs = lookup::with_tasks(&self.client, jobs, &rows);
        }
        jobs.retain(|job| {
            (filter.foreign || job.submission.is_some())
                && (filter.ended || !job.phase.is_terminal())
                && filter.fits(&job.labels)
        });
        jobs.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(jobs)
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        self.own(job)?;
        describe::describe(&self.client, job).await
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        self.own(job)?;
        act::act(&self.client, job, action).await
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let this = self.clone();
        ordered(stream::fed(move |feed| async move {
            filter.handles.iter().try_for_each(|handle| this.own(handle))?;
            watch::watch(this.client, filter, feed).await
        }))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let (this, job) = (self.clone(), job.clone());
        stream::fed(move |feed| async move {
            this.own(&job)?;
            logs::read(this.client, job, options, feed).await
        })
    }

    fn take_notes(&self) -> Vec<Finding> {
        self.client.take_notes()
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        self.own(job)?;
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
