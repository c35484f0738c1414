//! Runs a benchmark of collectives on some nodes, and judges its bandwidth.

mod history;
mod result;
mod search;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::report::VerifyGroup;
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, StreamExt};
use weftrun_core::backend::TargetConfig;
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::{JobDetail, JobEvent, JobPhase, JobSummary};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::nccl::TransportMap;
use weftrun_core::spec::JobSpec;
use weftrun_core::{Confidence, Error, ErrorKind, Result};

use weftrun_diagnose::Sources;
use weftrun_diagnose::nodes::SlowNode;

use crate::{Client, Job, Plan};

pub use result::Verified;
pub use weftrun_verify::{
    Answer, Bisect, Collective, Device, Fact, Figures, Group, Judgement, KeptFigure, KeptRun, Logs,
    NodeHistory, Payload, Probes, Row, Run, Step, Subject, Traffic, Verdict, judge, nodes, probe_command,
    read, regressions,
};

/// Longest time for the cluster's answer after an interruption.
const AFTER_STOP: Duration = Duration::from_secs(30);

/// When slow nodes are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bisection {
    /// Never.
    Never,
    /// If the run is degraded.
    Degraded,
    /// Whatever the verdict is.
    Always,
}

/// What a running verification reports.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The job that runs the benchmark is planned.
    Planned {
        /// The job's plan.
        plan: &'a Plan,
        /// The fabric's plan, with the decisions that the job's documents contain.
        fabric: &'a FabricPlan,
    },
    /// It is submitted.
    Submitted(&'a Job),
    /// The job's status changed.
    Event(&'a JobEvent),
    /// The job printed something.
    Logs(&'a LogBatch),
    /// The job has ended and is judged.
    Judged(&'a Verified),
    /// A group of nodes was measured.
    Group(&'a VerifyGroup),
}

/// A benchmark of collectives, to be run as a job.
///
/// ```no_run
/// use weftrun::verify::{Collective, Verdict};
/// use weftrun::prelude::*;
/// use weftrun::verify::{Bisection, Verification};
///
/// # async fn example(client: Client) -> weftrun::Result<()> {
/// let spec = JobSpec::builder("check")
///     .image("nvcr.io/nvidia/pytorch:25.09-py3")
///     .role(Role::worker().nodes(4).gpus_per_node(8).instance_type("p5.48xlarge").command(["replaced"]))
///     .build()?;
/// let verified = Verification::new(&client, client.target("prod")?, spec)
///     .collectives([Collective::AllReduce, Collective::AllToAll])
///     .bisect(Bisection::Degraded)
///     .run()
///     .await?;
/// if verified.verdict() != Verdict::Pass {
///     for (run, judgement) in &verified.runs {
///         println!("{:?}: {} ({})", run.collective, judgement.verdict, judgement.reason);
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// The job's command is replaced; its nodes, image, environment, volumes and fabric are used. Logs of a benchmark
/// that is over are judged by [`Verified::of_logs`].
#[derive(Clone, Debug)]
pub struct Verification {
    client: Client,
    target: TargetConfig,
    spec: JobSpec,
    payload: Payload,
    bisect: Bisection,
    timeout: Duration,
    force: bool,
    /// The runs to compare with.
    earlier: Option<Vec<KeptRun>>,
}

/// A future that ends when the verification is to be stopped.
type Stop<'a> = Shared<BoxFuture<'a, ()>>;

impl Verification {
    /// Creates a verification with the nodes, image and fabric of a job: an all-reduce of 1 MiB to 8 GiB.
    pub fn new(client: &Client, target: TargetConfig, spec: JobSpec) -> Self {
        Self {
            client: client.clone(),
            target,
            spec,
            payload: Payload::default(),
            bisect: Bisection::Never,
            timeout: Duration::from_secs(30 * 60),
            force: false,
            earlier: None,
        }
    }

    /// Measures these collectives, one after another. Without any, only the probe of the nodes runs.
    #[must_use]
    pub fn collectives(mut self, collectives: impl IntoIterator<Item = Collective>) -> Self {
        self.payload.collectives = collectives.into_iter().collect();
        self
    }

    /// Measures sizes from the first to the second, bytes.
    #[must_use]
    pub fn sizes(mut self, low: u64, high: u64) -> Self {
        (self.payload.low, self.payload.high) = (low, high);
        self
    }

    /// Repeats the operation this many times for each size.
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.payload.rounds = rounds;
        self
    }

    /// Searches for slow nodes by measuring groups of them.
    #[must_use]
    pub fn bisect(mut self, bisect: Bisection) -> Self {
        self.bisect = bisect;
        self
    }

    /// Cancels a job that has not ended after this time, the time in the queue included.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Judges the figures even if other programs used the GPUs.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Returns what the benchmark of a plan runs on, by which its figures are judged.
    pub fn subject(&self, plan: &Plan) -> Subject {
        let role = plan.planned().spec.workers().next();
        let instance = role.and_then(|role| role.instance_type.clone());
        Subject {
            row: instance.as_ref().and_then(|name| self.client.catalogue().get(name)).cloned(),
            instance,
            nodes: role.map(|role| role.nodes),
            collective: None,
            force: self.force,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Those of [`Client::plan`] and [`Plan::submit`]; [`ErrorKind::Usage`] if the smallest size is larger than the
    /// largest; [`ErrorKind::Unsupported`] if slow nodes are to be searched for and the backend cannot place jobs on
    /// named nodes; [`ErrorKind::Timeout`]. The job was cancelled, or the error says that it could not be.
    pub async fn run(&self) -> Result<Verified> {
        self.run_until(std::future::pending(), |_| Ok(())).await
    }

    /// Runs it, reports its progress, and cancels all its jobs when `stop` ends.
    ///
    /// # Errors
    /// As [`Verification::run`], errors of `progress`, and [`ErrorKind::Interrupted`] if it was stopped. An error of the search
    /// for slow nodes is its [`reason`](crate::report::VerifySearch::reason): the result of the benchmark remains.
    pub async fn run_until(
        &self,
        stop: impl Future<Output = ()> + Send,
        mut progress: impl FnMut(Progress<'_>) -> Result<()>,
    ) -> Result<Verified> {
        if self.payload.low > self.payload.high {
            return Err(Error::new(ErrorKind::Usage, "the smallest size is larger than the largest"));
        }
        let stop = stop.boxed().shared();
        let mut spec = self.spec.clone();
        self.payload.apply(&mut spec);
        if self.bisect != Bisection::Never {
            // Before anything is submitted.
            let pinned = self.client.connect(&self.target).await?.pin(&mut spec.clone(), &[]);
            pinned.map_err(|error| error.hint("slow nodes cannot be searched for; omit --bisect"))?;
        }
        let plan = self.client.plan_for(self.target.clone(), &spec).await?;
        let fabric = plan.announced(&plan.render().await?);
        progress(Progress::Planned { plan: &plan, fabric: &fabric })?;
        let job = submit(&plan, stop.clone()).await?;
        let measured = measure(&job, self.timeout, stop.clone(), &mut progress).await;
        let mut verified = match measured {
            Ok(measured) => measured.judge(&job, &plan, &self.subject(&plan)),
            Err(error) => return Err(cancelled(&job, error).await),
        };
        if let Some(earlier) = &self.earlier {
            verified.compare(earlier);
        }
        progress(Progress::Judged(&verified))?;
        let wanted = match self.bisect {
            Bisection::Never => false,
            Bisection::Degraded => verified.verdict() == Verdict::Degraded,
            Bisection::Always => true,
        };
        if wanted {
            let searched = search::search(self, &spec, &job, &stop, &mut progress).await;
            verified.search = Some(search::or_why(searched)?);
        }
        Box::pin(keep(&job, &mut verified)).await;
        Ok(verified)
    }
}

/// Adds a benchmark to the history of its nodes: what it reached, and the nodes that the search found slow.
async fn keep(job: &Job, verified: &mut Verified) {
    let described = tokio::time::timeout(AFTER_STOP, job.describe()).await;
    let Ok(Ok(detail)) = described else { return };
    let slow: Vec<SlowNode> = verified
        .search
        .iter()
        .flat_map(|search| &search.slow_nodes)
        .map(|node| SlowNode::new(node, "slow beside a good node (`verify --bisect`)", Confidence::High))
        .collect();
    let (why, fabric) = (Some(&verified.transport.why), verified.transport.verdict.fabric);
    let Some(mut record) = job.record_of_end(&detail, why, fabric) else { return };
    record.slow = slow;
    record.bandwidth = history::bandwidth(&verified.kept());
    let note = job.keep_record(record).await;
    verified.regressions.extend(note);
}

/// What the job of a benchmark printed, and how it ended.
#[derive(Default)]
struct Measured {
    logs: Logs,
    map: TransportMap,
    last: Option<JobSummary>,
}

impl Measured {
    fn judge(self, job: &Job, plan: &Plan, subject: &Subject) -> Verified {
        let detail = self.last.clone().map(JobDetail::new);
        let transport = Sources::of_logs(&self.map).plan(job.plan()).job(detail.as_ref()).diagnose();
        let failed = self.last.filter(|job| job.phase != JobPhase::Succeeded);
        let failed = failed.map(|job| match job.reason.as_str() {
            "" => format!("the job ended as {}", job.phase),
            reason => format!("the job ended as {}: {reason}", job.phase),
        });
        let mut verified = Verified::judged(&self.logs, self.map, subject, failed);
        verified.transport = transport;
        verified.fabric = plan.fabric().fabric;
        verified.job = Some(job.handle().clone());
        verified
    }
}

/// Follows a job to its end.
async fn measure(
    job: &Job,
    timeout: Duration,
    mut stop: Stop<'_>,
    progress: &mut impl FnMut(Progress<'_>) -> Result<()>,
) -> Result<Measured> {
    progress(Progress::Submitted(job))?;
    let mut measured = Measured::default();
    let stopped = {
        let mut following = std::pin::pin!(follow(job, &mut measured, progress).fuse());
        let mut late = std::pin::pin!(tokio::time::sleep(timeout).fuse());
        futures_util::select_biased! {
            () = stop => Some(ErrorKind::Interrupted),
            () = late => Some(ErrorKind::Timeout),
            done = following => done.map(|()| None)?,
        }
    };
    match stopped {
        None => Ok(measured),
        Some(ErrorKind::Timeout) => Err(too_late(measured.last.as_ref(), timeout)),
        Some(kind) => Err(Error::new(kind, "interrupted")),
    }
}

async fn follow(
    job: &Job,
    measured: &mut Measured,
    progress: &mut impl FnMut(Progress<'_>) -> Result<()>,
) -> Result<()> {
    let mut events = job.watch().fuse();
    let mut logs = job.logs(LogOptions::follow()).fuse();
    loop {
        futures_util::select_biased! {
            batch = logs.select_next_some() => {
                let batch = batch?;
                batch.read_into(&mut measured.map);
                measured.logs.add(&batch.source, &batch.bytes);
                progress(Progress::Logs(&batch))?;
            }
            event = events.select_next_some() => {
                let event = event?;
                progress(Progress::Event(&event))?;
                if let JobEvent::Status { job } = event {
                    measured.last = Some(job);
                }
            }
            complete => break,
        }
    }
    if measured.last.as_ref().is_none_or(|job| !job.phase.is_terminal()) {
        let error = Error::new(ErrorKind::NotFound, "the job disappeared before it ended");
        return Err(error.with("job", job.handle()));
    }
    Ok(())
}

fn too_late(last: Option<&JobSummary>, timeout: Duration) -> Error {
    let started = last.is_some_and(|job| {
        matches!(job.phase, JobPhase::Running | JobPhase::Restarting | JobPhase::Stopping)
    });
    let what = if started { "ended" } else { "started" };
    let error = Error::new(ErrorKind::Timeout, format!("the job had not {what} after {timeout:?}"));
    match last {
        Some(job) if job.reason.is_empty() => error.with("phase", job.phase),
        Some(job) => error.with("phase", format!("{}: {}", job.phase, job.reason)),
        None => error,
    }
}

/// Submits a plan. After an interruption the cluster's answer is awaited for a while, so that a job that was created
/// can be cancelled.
async fn submit(plan: &Plan, mut stop: Stop<'_>) -> Result<Job> {
    let stopped = AtomicBool::new(false);
    let mut sending = std::pin::pin!(plan.submit_unless(|| stopped.load(Ordering::Relaxed)).fuse());
    futures_util::select_biased! {
        done = sending => return done.inspect(|job| plan.delivered(job)),
        () = stop => {}
    }
    stopped.store(true, Ordering::Relaxed);
    let interrupted = Error::new(ErrorKind::Interrupted, "interrupted");
    match tokio::time::timeout(AFTER_STOP, sending).await {
        Ok(Ok(job)) => {
            plan.delivered(&job);
            Err(cancelled(&job, interrupted).await)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(interrupted
            .with("submission", &plan.planned().submission)
            .hint("it is not known whether the job was created; `weftrun list` shows it with its state")),
    }
}

/// Cancels a job that is not waited for, and adds to the error whether that worked.
async fn cancelled(job: &Job, error: Error) -> Error {
    let failed = match tokio::time::timeout(AFTER_STOP, job.cancel()).await {
        Ok(Ok(())) => return error.with("cancelled", job.handle()),
        Ok(Err(failed)) => failed.to_string(),
        Err(_) => format!("no answer within {AFTER_STOP:?}"),
    };
    error.with("not cancelled", failed).hint(format!("`weftrun cancel '{}'` stops the job", job.handle()))
}
