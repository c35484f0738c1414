//! A submitted job, bound to the backend that runs it.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weftrun_core::backend::{Backend, ExecRequest, ExecSink, PortConnection};
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Result};

use crate::JobHistory;
use crate::attempts::Attempt;
use crate::journal::Record;
use crate::sightings::Sightings;

/// A submitted job, bound to the backend that runs it. It holds no connection of its own and no state: every
/// call queries the cluster again. Dropping it has no effect on the job.
///
/// ```no_run
/// use weftrun::prelude::*;
///
/// # async fn example(client: Client) -> weftrun::Result<()> {
/// let job = client.attach(&"slurm://prod/184223".parse()?).await?;
/// let end = job.wait().await?;
/// println!("{}: {} {}", job.handle(), end.phase, end.reason);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    backend: Arc<dyn Backend>,
    handle: JobHandle,
    record: Option<Record>,
    sightings: Sightings,
    history: Option<JobHistory>,
}

impl Job {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        handle: JobHandle,
        record: Option<Record>,
        sightings: Sightings,
        history: Option<JobHistory>,
    ) -> Self {
        Self { backend, handle, record, sightings, history }
    }

    pub(crate) fn sightings(&self) -> &Sightings {
        &self.sightings
    }

    pub(crate) fn history(&self) -> Option<&JobHistory> {
        self.history.as_ref()
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// Returns which attempt of an earlier job it is; none for a first submission, and for a job submitted elsewhere.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.record.as_ref()?.attempt.as_ref()
    }

    /// Returns a task of it, whose handle is known.
    pub(crate) fn with_handle(&self, handle: JobHandle, task: u32) -> Self {
        let record = self.record.clone().map(|mut record| {
            record.spec = record.spec.map(|spec| spec.task(task));
            record
        });
        Self { handle, record, ..self.clone() }
    }

    /// Returns its handle, which identifies it in scripts and other processes.
    pub fn handle(&self) -> &JobHandle {
        &self.handle
    }

    /// Returns its plan; none for a job submitted elsewhere.
    pub fn plan(&self) -> Option<&FabricPlan> {
        self.record.as_ref().map(|record| &record.plan)
    }

    /// Returns the job as it was submitted; none for one submitted elsewhere.
    pub fn spec(&self) -> Option<&JobSpec> {
        self.record.as_ref()?.spec.as_ref()
    }

    /// Returns the backend that runs it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Returns its events: first its present status, then each change of job and replicas, until it has
    /// ended. An item is an error if the cluster can no longer be queried; recovered interruptions are
    /// events.
    pub fn watch(&self) -> BoxStream<'static, Result<JobEvent>> {
        self.backend.watch(JobFilter::one(&self.handle))
    }

    /// Returns its logs, in batches of bytes as the ranks wrote them, each with a cursor to resume from. With
    /// [`LogOptions::follow`] the stream ends after the job has ended and every byte was returned.
    pub fn logs(&self, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        self.backend.logs(&self.handle, options)
    }

    /// Returns its details: replicas, history, and backend-specific rows.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the cluster has forgotten it.
    pub async fn describe(&self) -> Result<JobDetail> {
        let mut detail = self.backend.describe(&self.handle).await?;
        let code = self.spec().and_then(JobSpec::code_content);
        // The cluster's own record comes first: the job may have been submitted elsewhere.
        if let Some(content) = code.filter(|_| detail.facts.iter().all(|(key, _)| key != "code")) {
            detail.facts.push(("code".to_owned(), content.line()));
        }
        if let Some(attempt) = self.attempt() {
            let facts = [attempt.count()].into_iter().chain(attempt.earlier_lines());
            let keys = ["attempt"].into_iter().chain(std::iter::repeat("before"));
            detail.facts.extend(keys.map(str::to_owned).zip(facts));
        }
        self.add_values(&mut detail);
        Ok(detail)
    }

    /// Waits until it has ended; [`JobSummary::phase`] contains the result. There is no time limit: use your
    /// runtime's. A job that disappears before its end was seen is [`Cancelled`](weftrun_core::job::JobPhase::Cancelled), and
    /// [`JobSummary::reason`] reports it. A job of many tasks has succeeded only if every task has; if the results of some are not
    /// known any more, its phase is [`Unknown`](JobPhase::Unknown).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the cluster does not have it.
    pub async fn wait(&self) -> Result<JobSummary> {
        /// How often the failure of an attempt is kept.
        const LOOKS: u32 = 3;
        let mut events = self.watch();
        let (mut last, mut looks) = (None, 0);
        while let Some(event) = events.next().await {
            match event? {
                JobEvent::Status { mut job } if job.phase.is_terminal() => {
                    self.judge(&mut job);
                    return Ok(job);
                }
                JobEvent::Status { job } => {
                    // The log of an attempt may be gone with its container when the job has ended.
                    if job.phase == JobPhase::Restarting && looks < LOOKS {
                        looks += 1;
                        self.keep_trouble().await;
                    }
                    last = Some(job);
                }
                JobEvent::Gone { .. } => break,
                _ => {}
            }
        }
        last.filter(|job| job.phase.is_terminal()).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "the job is no longer in the cluster, and its exit status is unknown",
            )
            .with("job", &self.handle)
        })
    }

    /// Runs a command beside one of its ranks, forwards the output to the sink as it arrives, and returns the
    /// exit code.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// use weftrun::core::backend::ExecRequest;
    /// let mut output = Vec::new();
    /// let request = ExecRequest::new(["nvidia-smi", "-L"]).on_rank(8);
    /// let code = job.exec(&request, &mut |_, bytes| Ok(output.extend_from_slice(bytes))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend does not support it; [`ErrorKind::NotFound`] for a rank that
    /// the job does not have; [`ErrorKind::Refused`] if the job is not running.
    pub async fn exec(&self, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        self.backend.exec(&self.handle, request, sink).await
    }

    /// Runs a command beside one of its ranks with this process's own standard input and output, in a terminal with
    /// [`ExecRequest::terminal`], and returns the exit code.
    ///
    /// # Errors
    /// As [`Job::exec`].
    pub async fn attach(&self, request: &ExecRequest) -> Result<i32> {
        self.backend.attach(&self.handle, request).await
    }

    /// Connects to a port of localhost beside a rank, or in its first node, pod or process if no rank is
    /// given.
    ///
    /// # Errors
    /// As [`Job::exec`]; [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if nothing listens on the
    /// port.
    pub async fn open_port(&self, rank: Option<u32>, port: u16) -> Result<Box<dyn PortConnection>> {
        self.backend.open_port(&self.handle, rank, port).await
    }

    /// Acts on it. Requesting the present state is not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] naming the capability that the backend lacks.
    pub async fn act(&self, action: Action) -> Result<()> {
        self.backend.act(&self.handle, action).await
    }

    /// Stops it; its record and logs stay. Returns when the cluster has accepted the request: [`Job::wait`]
    /// waits for the end.
    ///
    /// # Errors
    /// As [`Job::act`].
    pub async fn cancel(&self) -> Result<()> {
        self.act(Action::Cancel).await
    }
}
