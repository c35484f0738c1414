//! Follows a job until it has ended: its events, its logs, its transport map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt, stream};
use weftrun::core::exit_codes;
use weftrun::core::fabric::{Fabric, FabricPlan};
use weftrun::core::job::{Action, JobDetail, JobEvent, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun::core::log::{LogBatch, LogOptions, clean_text};
use weftrun::core::nccl::{FabricSeen, TransportMap};
use weftrun::diagnose::cause::RANK_FAILED;
use weftrun::diagnose::{Diagnosis, Sources};
use weftrun::report::{EventLine, OwnEvent, TransportReport, WhyReport};
use weftrun::{Error, ErrorKind, Finding, Job, Plan, Result, Severity};

use crate::context::Context;
use crate::interrupt::interrupted;
use crate::live_map::{LOOK, LiveMap};
use crate::log_print::{LogPrinter, PrintOptions};
use crate::map_view;
use crate::output::{Output, because, finding_text, style};
use crate::progress::{Progress, is_waiting};

/// The end of a followed job.
#[derive(Debug)]
pub struct Followed {
    /// The last status of it and of its replicas from the cluster.
    pub detail: Option<JobDetail>,
    pub map: TransportMap,
}

/// Returns the exit code for an ended job. A job that its cluster calls succeeded has another code than 0 if a rank failed, or if
/// the results of some of its tasks are not known.
pub fn exit_code_of(job: &JobSummary) -> u8 {
    let is_whole = job.tasks.as_ref().is_none_or(|tasks| tasks.missing() == 0);
    let well = job.phase == JobPhase::Succeeded && job.exit_code.unwrap_or(0) == 0 && is_whole;
    if well { exit_codes::OK } else { exit_codes::JOB_FAILED }
}

/// What to show while a job is followed.
#[derive(Clone, Copy, Debug)]
pub struct Watching {
    /// Whether the map is printed from time to time without a terminal, where it cannot be redrawn.
    pub snapshots: bool,
    /// Whether the ranks' lines are printed.
    pub logs: bool,
}

/// Follows a job to its end: events, log lines and transports as they come.
pub async fn follow(context: &Context, job: &Job) -> Result<Followed> {
    follow_with(context, job, Watching { snapshots: false, logs: true }).await
}

/// The output of a job that is followed: its events, its ranks' lines, and the map of its transports.
#[derive(Debug)]
pub struct Screen {
    out: Output,
    printer: LogPrinter,
    live: LiveMap,
    watching: Watching,
    progress: Progress,
    /// Whether the job has ended, after which the cause is printed once, with its result.
    ended: bool,
}

impl Screen {
    /// Creates the output of one job, for whose ranks a fabric was planned.
    pub fn new(out: Output, planned: Fabric, watching: Watching) -> Self {
        let live = LiveMap::new(out, planned, watching.snapshots);
        let (printer, progress) = (LogPrinter::new(PrintOptions::default()), Progress::default());
        Self { out, printer, live, watching, progress, ended: false }
    }

    /// Shows what the ranks printed.
    pub fn logs(&mut self, batch: &LogBatch) -> Result<()> {
        self.live.clear();
        if self.watching.logs {
            self.printer.print(&self.out, batch)?;
        }
        self.live.observe(batch)?;
        self.live.draw();
        Ok(())
    }

    pub fn event(&mut self, event: &JobEvent) -> Result<()> {
        self.ended |= matches!(event, JobEvent::Status { job } if job.phase.is_terminal());
        let line = match event {
            JobEvent::Status { job } => self.progress.status(job, Instant::now()),
            JobEvent::Replica { replica, .. } => self.progress.replica(replica),
            event => {
                if matches!(event, JobEvent::Attempt { .. }) {
                    self.progress.attempt();
                    self.live.forget();
                }
                Some(event_text(event))
            }
        };
        if self.out.is_data() {
            return self.out.item(&EventLine::from(event));
        }
        self.say(line);
        Ok(())
    }

    fn say(&mut self, line: Option<String>) {
        if let Some(line) = line {
            self.live.clear();
            self.out.say(line);
            self.live.draw();
        }
    }

    /// Shows how many replicas have come how far, and the cause of a failure once it is known. A rank that failed may
    /// leave the others waiting for minutes before the job ends.
    pub fn look(&mut self) {
        if !self.out.is_data() {
            let line = self.progress.due(Instant::now());
            self.say(line);
        }
        if self.progress.waits_again() {
            return self.live.forget();
        }
        let Some(why) = self.live.trouble().filter(|_| !(self.ended || self.out.is_data())) else { return };
        self.live.clear();
        crate::commands::why::say(&self.out, &why);
        self.live.draw();
    }

    /// Ends the output, and returns what was seen.
    pub fn finish(mut self) -> Result<Followed> {
        self.live.clear();
        self.printer.finish(&self.out)?;
        Ok(Followed { detail: self.progress.into_detail(), map: self.live.into_map() })
    }
}

/// Follows a job to its end, showing what was requested.
pub async fn follow_with(context: &Context, job: &Job, watching: Watching) -> Result<Followed> {
    let planned = job.plan().map_or(Fabric::Auto, |plan| plan.fabric);
    let mut screen = Screen::new(context.out, planned, watching);
    let mut events = job.watch().fuse();
    let mut logs = job.logs(LogOptions::follow()).fuse();
    let mut looks =
        Box::pin(stream::unfold((), |()| async { Some((tokio::time::sleep(LOOK).await, ())) })).fuse();
    while !(logs.is_done() && events.is_done()) {
        futures_util::select_biased! {
            batch = logs.select_next_some() => match batch {
                // The job runs all the same, and its end is seen.
                Err(error) if error.kind() == ErrorKind::Unsupported => screen.event(&no_logs(job, &error))?,
                batch => screen.logs(&batch?)?,
            },
            event = events.select_next_some() => screen.event(&event?)?,
            () = looks.select_next_some() => screen.look(),
        }
    }
    let mut followed = screen.finish()?;
    // The events do not have all that the cluster reports of the end.
    if let Some(detail) = &mut followed.detail {
        match job.describe().await {
            Ok(described) if described.summary.phase == detail.summary.phase => *detail = described,
            Ok(_) => {}
            // What the cluster says of its absence: its namespace was deleted.
            Err(error) => detail.findings.extend_from_slice(error.findings()),
        }
    }
    Ok(followed)
}

/// Returns the message in place of the lines that a backend cannot give.
fn no_logs(job: &Job, error: &Error) -> JobEvent {
    JobEvent::Message {
        job: job.handle().clone(),
        severity: Severity::Warning,
        reason: "no logs".to_owned(),
        text: error.one_line(),
        time: None,
    }
}

/// Reports how a followed job ended, and which transports its ranks used; returns the exit code.
pub async fn conclude(context: &Context, job: &Job, followed: &Followed, strict: bool) -> Result<u8> {
    let out = &context.out;
    let planned = job.plan().map_or(Fabric::Auto, |plan| plan.fabric);
    let diagnosis = Sources::of_logs(&followed.map).plan(job.plan()).job(followed.detail.as_ref()).diagnose();
    let why = diagnosis.why.is_failure().then(|| diagnosis.why.clone());
    let note = match &followed.detail {
        Some(detail) => job.keep_end(detail, Some(&diagnosis.why), diagnosis.verdict.fabric).await,
        None => None,
    };
    out.findings(note.as_slice());
    if out.is_data() {
        let transport = TransportReport::of(diagnosis.clone(), &followed.map);
        out.item(&EventLine::from(OwnEvent::Ended {
            handle: job.handle(),
            job: followed.detail.as_ref().map(|detail| &detail.summary),
            planned,
            transport: &transport,
            why: why.map(WhyReport::from).map(Box::new),
        }))?;
    } else {
        if let Some(why) = &why {
            crate::commands::why::say(out, why);
        }
        out.say(map_view::draw(&followed.map, diagnosis.judge()).trim_end_matches('\n'));
        out.findings(&diagnosis.findings);
        out.findings(&contradictions(&diagnosis));
        // A job without GPUs needs no transport.
        if job.plan().is_none_or(FabricPlan::runs_nccl) || diagnosis.verdict.fabric != FabricSeen::Unknown {
            out.say(map_view::verdict(&diagnosis));
        }
    }
    let Some(JobDetail { summary, .. }) = &followed.detail else {
        out.say(format!("{}: how it ended is not known", job.handle()));
        return Ok(exit_codes::JOB_FAILED);
    };
    if let Some(tasks) = summary.tasks.as_ref().filter(|tasks| tasks.missing() > 0) {
        out.say(format!("{}: not all of its tasks are known to have succeeded: {tasks}", job.handle()));
    }
    let code = match exit_code_of(summary) {
        exit_codes::OK if !contradictions(&diagnosis).is_empty() => exit_codes::JOB_FAILED,
        code => code,
    };
    let fabric = if strict { diagnosis.into_strict_result() } else { diagnosis.into_result() };
    Ok(if code == exit_codes::OK && fabric.is_err() { exit_codes::FABRIC_NOT_AS_PLANNED } else { code })
}

/// Returns the ranks that failed in a job that its cluster calls succeeded.
fn contradictions(diagnosis: &Diagnosis) -> Vec<Finding> {
    let failed = |finding: &&Finding| matches!(finding.code.as_str(), RANK_FAILED | "K8S-RANK-FAILED");
    diagnosis.why.findings.iter().filter(failed).cloned().collect()
}

pub fn event_text(event: &JobEvent) -> String {
    match event {
        JobEvent::Status { job } => status_text(job, ""),
        JobEvent::Replica { replica, .. } => replica_text(replica),
        JobEvent::Message { reason, text, .. } => format!("  {}: {}", clean_text(reason), clean_text(text)),
        JobEvent::Stuck { finding, .. } => finding_text(finding),
        JobEvent::Attempt { attempt, reason, .. } => {
            // People count from 1, as the lines of the logs do.
            format!("  attempt {} begins{}", attempt.saturating_add(1), because(&clean_text(reason)))
        }
        JobEvent::Gone { job } => format!("{job} is no longer in the cluster"),
        JobEvent::Disconnected { lost: true, reason } => format!("  connection lost: {}", clean_text(reason)),
        JobEvent::Disconnected { lost: false, .. } => "  connected again".to_owned(),
        _ => String::new(),
    }
}

/// Formats the status of a job as one line; `replicas` says more about what runs where.
pub fn status_text(job: &JobSummary, replicas: &str) -> String {
    let bold = style::BOLD;
    let (name, (ready, all)) = (clean_text(&job.name), job.ready);
    let reason = clean_text(&job.reason);
    let more: Vec<&str> = [&*reason, replicas].into_iter().filter(|text| !text.is_empty()).collect();
    let more = because(&more.join("; "));
    format!("{bold}{name}{bold:#} {} {ready}/{all} ready{more}", job.phase)
}

pub fn replica_text(replica: &ReplicaStatus) -> String {
    let (name, reason) = (clean_text(&replica.name), clean_text(&replica.reason));
    let reason = reason.strip_prefix(&*name).unwrap_or(&reason).trim();
    format!("  {name} {}{}", replica.phase, because(reason))
}

/// Adds to an error that the job continues, and how to follow it.
fn goes_on(error: Error, handle: &JobHandle) -> Error {
    let what = match handle.set() {
        Some(_) => "its tasks keep running, and those that wait start later",
        None => "the job keeps running",
    };
    error
        .with("job", handle)
        .hint(format!("{what}; `weftrun logs -f '{handle}'` follows it again"))
        .hint(format!("`weftrun cancel '{handle}'` stops it"))
}

/// Submits a plan. After Ctrl-C the cluster's answer is awaited, so that the handle of a created job is
/// known; a second Ctrl-C stops that too.
///
/// # Errors
/// Those of [`Plan::submit`]. The second value is the error to end with where the user interrupted a submission that went through.
pub async fn submit(context: &Context, planned: &Plan) -> Result<(Job, Option<Error>)> {
    let stopped = AtomicBool::new(false);
    let mut sending = std::pin::pin!(planned.submit_unless(|| stopped.load(Ordering::Relaxed)));
    tokio::select! {
        done = &mut sending => return done.map(|job| (job, None)),
        () = interrupted() => {}
    }
    stopped.store(true, Ordering::Relaxed);
    context.out.say("interrupted: waiting for the cluster's answer, to know the job's handle (Ctrl-C again stops waiting)");
    tokio::select! {
        done = sending => done.map(|job| {
            let error = goes_on(Error::new(ErrorKind::Interrupted, "interrupted"), job.handle());
            (job, Some(error))
        }),
        () = interrupted() => {
            let message = "interrupted; it is not known whether the job was made";
            Err(Error::new(ErrorKind::Interrupted, message)
                .with("submission", &planned.planned().submission)
                .hint("`weftrun list` shows it with its state; no entry means that it was not submitted"))
        }
    }
}

/// Ends when all nodes of a job run, or any of its tasks does, or it has ended.
pub async fn started(job: &Job) -> Result<()> {
    let mut events = job.watch();
    while let Some(event) = events.next().await {
        let JobEvent::Status { job } = event? else { continue };
        // Of a job that runs, some nodes may still wait.
        let began = |(phase, count): (&JobPhase, &u32)| {
            *count > 0 && (*phase == JobPhase::Running || phase.is_terminal())
        };
        let waits = match job.phase {
            _ if job.tasks.as_ref().is_some_and(|tasks| tasks.phases.iter().any(began)) => false,
            JobPhase::Running => job.ready.0 < job.ready.1,
            phase => is_waiting(phase) || matches!(phase, JobPhase::Suspended | JobPhase::Unknown),
        };
        if !waits {
            break;
        }
    }
    Ok(())
}

/// Runs a future, unless the job has not started after a time: then the job is cancelled, and the error says why it did not.
pub async fn if_started<T>(
    context: &Context,
    job: &Job,
    limit: Option<Duration>,
    future: impl Future<Output = T>,
) -> Result<T> {
    let mut future = Box::pin(future);
    let Some(limit) = limit else { return Ok(future.await) };
    tokio::select! {
        done = &mut future => return Ok(done),
        in_time = Box::pin(tokio::time::timeout(limit, started(job))) => if in_time.is_ok() {
            return Ok(future.await);
        }
    }
    // The future ends by the cancellation, too, and is not polled any more.
    Err(Box::pin(give_up(context, job, limit)).await)
}

async fn give_up(context: &Context, job: &Job, limit: Duration) -> Error {
    let mut error = Error::new(
        ErrorKind::Timeout,
        format!("the job did not start within {} s, and was cancelled", limit.as_secs()),
    )
    .with("job", job.handle());
    if let Ok(detail) = job.describe().await {
        crate::commands::why::say(&context.out, &job.why_with(&detail).await);
        let reason = clean_text(&detail.summary.reason);
        if !reason.is_empty() {
            error = error.with("reason", reason);
        }
    }
    match job.act(Action::Cancel).await {
        Ok(()) => error,
        Err(failed) => Error::new(
            ErrorKind::Timeout,
            format!(
                "the job did not start within {} s, and could not be cancelled: {failed}",
                limit.as_secs()
            ),
        )
        .with("job", job.handle())
        .hint(format!("`weftrun cancel '{}'` tries it again", job.handle())),
    }
}

/// Returns the job if it has ended, where an error is a time limit that passed while its logs or its pods
/// were still being read.
pub async fn ended_meanwhile(job: &Job, error: &Error) -> Option<JobSummary> {
    if error.kind() != ErrorKind::Timeout {
        return None;
    }
    let summary = job.describe().await.ok()?.summary;
    summary.phase.is_terminal().then_some(summary)
}

/// Runs a future until it ends, the time limit passes, or the user interrupts; reports that the job
/// continues.
pub async fn with_limits<T>(
    future: impl Future<Output = Result<T>>,
    timeout: Option<Duration>,
    handle: &JobHandle,
) -> Result<T> {
    match limited(future, timeout).await {
        Ok(done) => done,
        Err(stopped) => Err(goes_on(stopped, handle)),
    }
}

/// Runs a future until it ends. An error is the reason why it was stopped before.
pub async fn limited<T>(
    future: impl Future<Output = Result<T>>,
    timeout: Option<Duration>,
) -> Result<Result<T>> {
    let expired = async {
        match timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    futures_util::select_biased! {
        done = Box::pin(future).fuse() => Ok(done),
        () = Box::pin(interrupted()).fuse() => Err(Error::new(ErrorKind::Interrupted, "interrupted")),
        () = Box::pin(expired).fuse() => Err(Error::new(ErrorKind::Timeout, "the time limit was reached")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the first line of the attempt's log says (`weftrun_core::log::LogStore`).
    #[test]
    fn an_event_and_a_log_count_attempts_alike() {
        let job = JobHandle::new("local", "here", ["train"]);
        let event = JobEvent::Attempt { job, attempt: 1, reason: "exit code 1".to_owned() };
        assert_eq!(event_text(&event), "  attempt 2 begins: exit code 1");
    }
}
