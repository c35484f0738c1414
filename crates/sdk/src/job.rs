//! A submitted job, bound to the backend that runs it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use weftrun_core::backend::{Backend, ExecRequest, ExecSink, PortConnection};
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::nccl::TransportMap;
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::cause::{Why, WhyState};
use weftrun_diagnose::{Diagnosis, diagnose, why_of_job};

use crate::journal::Record;
use crate::runtime::on_runtime;

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
}

impl Job {
    pub(crate) fn new(backend: Arc<dyn Backend>, handle: JobHandle, record: Option<Record>) -> Self {
        Self { backend, handle, record }
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

    /// Compares the transports that its logs prove with the plan.
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

    /// Finds out why it failed or hangs: the first cause, from its logs and the cluster's reports.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// if let Some(cause) = job.why().await?.cause {
    ///     println!("{}: {}", cause.who(), cause.what);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// At most 1 GiB of logs is read.
    ///
    /// # Errors
    /// As [`Job::describe`]. Unreadable logs are not an error: the answer then relies on what was read.
    pub async fn why(&self) -> Result<Why> {
        let detail = self.describe().await?;
        Ok(self.why_with(&detail).await)
    }

    /// Diagnoses a job like [`Job::why`], from a description that is known.
    pub async fn why_with(&self, detail: &JobDetail) -> Why {
        let (map, unread) = self.read_logs(LogOptions::default()).await;
        let mut why = why_of_job(&map, detail);
        why.findings.extend(unread.map(|message| Finding::warning("WHY-LOGS-UNREAD", message)));
        let running = matches!(detail.summary.phase, JobPhase::Running | JobPhase::Restarting);
        if running && why.cause.is_none() {
            self.explain_by_ras(&mut why, &map).await;
        }
        why
    }

    /// What the last lines of a running job show of a failure or a hang; none if they show neither, or a rank that goes
    /// on training afterwards. The state stays that of a running job. It takes a few
    /// seconds at most, so jobs with more than 64 replicas are left out: [`Job::why_with`] reads any job whole.
    pub async fn trouble(&self, detail: &JobDetail) -> Option<Why> {
        const REPLICAS: usize = 64;
        const LINES: u64 = 2000;
        const TIME: Duration = Duration::from_secs(5);
        let running = matches!(detail.summary.phase, JobPhase::Running | JobPhase::Restarting);
        if !running || detail.replicas.len() > REPLICAS {
            return None;
        }
        let mut options = LogOptions::default();
        options.tail = Some(LINES);
        let reading = async { Ok(tokio::time::timeout(TIME, self.read_logs(options)).await.ok()) };
        let (map, _) = on_runtime(reading).await.ok()??;
        let mut why = why_of_job(&map, detail);
        let cause =
            why.cause.as_ref().filter(|_| matches!(why.state, WhyState::Failed | WhyState::Hanging))?;
        // A program that continues training has coped with it, for example with a smaller batch.
        let snapshot = map.snapshot();
        let goes_on = cause.evidence.iter().any(|evidence| {
            let mut series = snapshot.throughput();
            series.any(|(source, series)| source == evidence.source && series.last().line > evidence.line)
        });
        if goes_on {
            return None;
        }
        if why.state == WhyState::Failed {
            why.state = WhyState::Running;
        }
        Some(why)
    }

    /// Reads the present logs; returns the map, and why the logs were not read to their end.
    pub(crate) async fn read_logs(&self, options: LogOptions) -> (TransportMap, Option<String>) {
        const MOST: usize = 1 << 30;
        let mut map = TransportMap::new();
        let (mut read, mut unread) = (0usize, None);
        let mut logs = self.logs(options);
        while let Some(batch) = logs.next().await {
            match batch {
                Ok(batch) => {
                    read = read.saturating_add(batch.bytes.len());
                    batch.read_into(&mut map);
                }
                Err(error) => unread = Some(format!("the logs cannot be read to their end: {error}")),
            }
            if read > MOST {
                unread = Some("the logs are longer than 1 GiB; the rest was not read".to_owned());
            }
            if unread.is_some() {
                break;
            }
        }
        map.end_all();
        (map, unread)
    }

    /// Returns its details: replicas, history, and backend-specific rows.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the cluster has forgotten it.
    pub async fn describe(&self) -> Result<JobDetail> {
        self.backend.describe(&self.handle).await
    }

    /// Waits until it has ended; [`JobSummary::phase`] contains the result. There is no time limit: use your
    /// runtime's. A job that disappears before its end was seen is [`JobPhase::Cancelled`], and
    /// [`JobSummary::reason`] reports it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the cluster does not have it.
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
