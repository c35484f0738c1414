//! A submitted job, bound to the backend that runs it.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weftrun_core::backend::Backend;
use weftrun_core::diagnose::{Diagnosis, diagnose};
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::nccl::TransportMap;
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Result};

use crate::journal::Record;

/// A submitted job, bound to the backend that runs it. It holds no connection of its own and no state: asking twice asks
/// the cluster twice. Dropping it does nothing to the job.
#[derive(Clone, Debug)]
pub struct Job {
    backend: Arc<dyn Backend>,
    handle: JobHandle,
    record: Option<Record>,
}

impl Job {
    pub(crate) fn new(backend: Arc<dyn Backend>, handle: JobHandle, record: Option<Record>) -> Self {
        Self { backend, handle, record }
    }

    /// Its name for scripts and other processes.
    pub fn handle(&self) -> &JobHandle {
        &self.handle
    }

    /// What was decided when it was submitted; none for a job submitted elsewhere.
    pub fn plan(&self) -> Option<&FabricPlan> {
        self.record.as_ref().map(|record| &record.plan)
    }

    /// The job as it was submitted; none for one submitted elsewhere.
    pub fn spec(&self) -> Option<&JobSpec> {
        self.record.as_ref()?.spec.as_ref()
    }

    /// The backend that runs it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// What happens to it: its status as it is now first, then each change of job and replicas, until it has ended. An item
    /// is an error where the cluster cannot be asked any more; interruptions that are mended are events.
    pub fn watch(&self) -> BoxStream<'static, Result<JobEvent>> {
        self.backend.watch(JobFilter::one(&self.handle))
    }

    /// Its logs, in batches of bytes as the ranks wrote them, each with a cursor to go on from. With
    /// [`LogOptions::follow`] the stream ends after the job has ended and every byte was given.
    pub fn logs(&self, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        self.backend.logs(&self.handle, options)
    }

    /// What the transports its logs prove mean for what was planned.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job, map: weftrun::core::nccl::TransportMap) -> weftrun::Result<()> {
    /// job.diagnose(&map).into_result()?; // an error when planned EFA ran on sockets
    /// # Ok(())
    /// # }
    /// ```
    pub fn diagnose(&self, map: &TransportMap) -> Diagnosis {
        diagnose(self.plan(), map)
    }

    /// Everything known of it: replicas, history, what the backend tells of its own.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the cluster has forgotten it.
    pub async fn describe(&self) -> Result<JobDetail> {
        self.backend.describe(&self.handle).await
    }

    /// Waits until it has ended; whether it ended well is in [`JobSummary::phase`]. There is no limit of time: wrap it in
    /// your runtime's.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where it vanished before it was seen to end.
    pub async fn wait(&self) -> Result<JobSummary> {
        let mut events = self.watch();
        let mut last = None;
        while let Some(event) = events.next().await {
            match event? {
                JobEvent::Status { job } if job.phase.is_terminal() => return Ok(job),
                JobEvent::Status { job } => last = Some(job),
                JobEvent::Gone { .. } => break,
                _ => {}
            }
        }
        last.filter(|job| job.phase.is_terminal()).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "the job is no longer in the cluster, and how it ended is not known",
            )
            .with("job", &self.handle)
        })
    }

    /// Acts on it. Asking for what is already so is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] naming the capability that the backend lacks.
    pub async fn act(&self, action: Action) -> Result<()> {
        self.backend.act(&self.handle, action).await
    }

    /// Stops it; its record and logs stay. Returns when the cluster has taken the order: [`Job::wait`] waits for the end.
    ///
    /// # Errors
    /// As [`Job::act`].
    pub async fn cancel(&self) -> Result<()> {
        self.act(Action::Cancel).await
    }
}
