#![doc = include_str!("docs.md")]

mod act;
mod check;
mod client;
mod companions;
mod config;
mod discover;
mod disruptions;
mod error;
mod exec;
mod gang;
mod kinds;
mod logs;
mod mpi_job;
mod namespace;
mod nvlink_domain;
mod object;
mod pod;
mod preflight;
mod profiler;
mod pytorch_job;
mod render;
mod render_input;
#[cfg(test)]
mod rights_tests;
mod status;
#[cfg(test)]
mod status_tests;
mod submit;
mod train_job;
mod unanswered;
mod usage;
mod watch;
#[cfg(test)]
mod watch_tests;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use weftrun_core::backend::{
    Arrays, Backend, Capability, ClusterFacts, ExecRequest, ExecSink, FoundTarget, PlannedJob,
    PortConnection, Rendered, Scope, TargetConfig,
};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Finding, Result, register_backend};

use crate::kubernetes::ClusterConfig;
use client::Client;

register_backend!(
    "kubeflow",
    "Kubeflow: PyTorchJob, MPIJob and TrainJob on Kubernetes",
    connect,
    find: find
);

/// Most contexts of a kubeconfig that are found.
const MOST_CONTEXTS: usize = 32;

/// Finds the contexts of the user's kubeconfig.
fn find(target: &TargetConfig) -> Vec<FoundTarget> {
    let Some(config) = ClusterConfig::of(target) else { return Vec::new() };
    let contexts = config.contexts().unwrap_or_default();
    let found = |name: String| {
        FoundTarget::new(&name, format!("context `{name}` of {}", config.files())).with("context", name)
    };
    contexts.into_iter().take(MOST_CONTEXTS).map(found).collect()
}

/// A namespace of a Kubernetes cluster with Kubeflow's training operators.
#[derive(Debug)]
struct Kubeflow {
    client: Arc<Client>,
}

async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Kubeflow { client: Arc::new(Client::new(&target)?) }))
}

#[async_trait]
impl Backend for Kubeflow {
    fn capability(&self) -> Capability {
        Capability {
            backend: "kubeflow".into(),
            detach: true,
            dry_run: true,
            suspend: true,
            delete: true,
            containers: true,
            mpi: true,
            // They exist as long as the pod does; the pods of a failed job are removed, which frees its GPUs.
            exec: true,
            ports: true,
            log_times: true,
            exact_resume: true,
            replica_logs: true,
            restarts: true,
            labels: true,
            arrays: Arrays::Jobs,
            time_limit: true,
            // `NAME-worker-NNN` must be a DNS label of 63 characters.
            max_name: 52,
            max_args_bytes: 128 * 1024,
            ..Capability::default()
        }
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        Box::pin(self.client.discover(scope)).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        let known = job.facts.ids.get("namespace").cloned().or_else(|| self.client.config.known_namespace());
        render::render(job, &self.client.settings, known.as_deref())
    }

    fn pin(&self, job: &mut JobSpec, nodes: &[String]) -> Result<()> {
        job.set_backend("kubeflow", "node-names", nodes);
        Ok(())
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        self.client.check(rendered).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        self.client.submit(rendered).await
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        self.client.find(id).await
    }

    fn arrives_within(&self) -> std::time::Duration {
        // A request may still be in flight after its sender ended.
        std::time::Duration::from_secs(30)
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.client.list(filter).await
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        self.client.describe(job).await
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        self.client.act(job, action).await
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        ordered(watch::watch(Arc::clone(&self.client), filter))
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        self.client.exec(job, request, sink).await
    }

    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        self.client.attach(job, request).await
    }

    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        self.client.open_port(job, rank, port).await
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let client = Arc::clone(&self.client);
        let job = job.clone();
        let named = {
            let client = Arc::clone(&client);
            async move { client.named(&job).await }
        };
        logs::logs(client, named, options)
    }
}
