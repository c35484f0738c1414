//! The conformance suite finds faults: the local backend is broken in ten ways, and each fails the check that
//! is there for it, for its reason. Unbroken, it passes the same checks.
#![cfg(feature = "local")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use tempfile::TempDir;
use weftrun_backends::local;
use weftrun_core::backend::{
    Backend, Capability, ClusterFacts, ExecRequest, ExecSink, PlannedJob, Rendered, Scope, TargetConfig,
};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId,
};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark};
use weftrun_core::{Finding, Result};
use weftrun_testkit::child;
use weftrun_testkit::conformance::{self, Fixture, Verdict};
use weftrun_testkit::random_submission;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The last bytes before a cursor come again.
    RepeatsAfterResume,
    /// A source is read line by line, and what follows the last newline is dropped.
    DropsOpenLine,
    /// A submit creates a second job.
    SubmitsTwice,
    /// A job is not found by its submission.
    ForgetsSubmissions,
    /// A code above 128 is taken for a signal.
    ChangesExitCodes,
    /// Bytes are made UTF-8.
    CleansBytes,
    /// A deleted job disappears without an end.
    HidesTheEnd,
    /// Times are claimed, and lines have none.
    ClaimsTimes,
    /// An impossible action is accepted, and nothing is done.
    AcceptsAnyAction,
    /// Labels are claimed, and select nothing.
    IgnoresLabels,
}

#[derive(Debug)]
struct Broken {
    inner: Arc<dyn Backend>,
    fault: Option<Fault>,
    rendered: Mutex<Option<PlannedJob>>,
}

impl Broken {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn summary(&self, mut job: JobSummary) -> JobSummary {
        if self.has(Fault::ChangesExitCodes) {
            job.exit_code = job.exit_code.map(|code| if code > 128 { code - 128 } else { code });
        }
        job
    }
}

#[async_trait]
impl Backend for Broken {
    fn capability(&self) -> Capability {
        let capability = self.inner.capability();
        Capability { log_times: capability.log_times || self.has(Fault::ClaimsTimes), ..capability }
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        self.inner.discover(scope).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        *self.rendered.lock().unwrap() = Some(job.clone());
        self.inner.render(job)
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        self.inner.check(rendered).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let handle = self.inner.submit(rendered).await?;
        let again = self.rendered.lock().unwrap().take().filter(|_| self.has(Fault::SubmitsTwice));
        if let Some(mut job) = again {
            job.spec.name.push_str("-again");
            job.submission = random_submission();
            self.inner.submit(&self.inner.render(&job)?).await?;
        }
        Ok(handle)
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        Ok(self.inner.find(id).await?.filter(|_| !self.has(Fault::ForgetsSubmissions)))
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let mut filter = filter.clone();
        if self.has(Fault::IgnoresLabels) {
            filter.labels.clear();
        }
        Ok(self.inner.list(&filter).await?.into_iter().map(|job| self.summary(job)).collect())
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        let mut detail = self.inner.describe(job).await?;
        detail.summary = self.summary(detail.summary);
        Ok(detail)
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        match self.inner.act(job, action).await {
            Err(_) if self.has(Fault::AcceptsAnyAction) => Ok(()),
            answer => answer,
        }
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let hides = self.has(Fault::HidesTheEnd) && filter.handles.is_empty();
        let this = Self { inner: self.inner.clone(), fault: self.fault, rendered: Mutex::default() };
        let events = self.inner.watch(filter).map(move |event| match event {
            Ok(JobEvent::Status { job }) => Ok(JobEvent::Status { job: this.summary(job) }),
            event => event,
        });
        let end = |event: &Result<JobEvent>| {
            event.as_ref().is_ok_and(|event| event.phase().is_some_and(JobPhase::is_terminal))
        };
        events.filter(move |event| std::future::ready(!hides || !end(event))).boxed()
    }

    fn logs(&self, job: &JobHandle, mut options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        if self.has(Fault::RepeatsAfterResume) {
            let rewind = |cursor: &mut Cursor| cursor.offset = cursor.offset.saturating_sub(10);
            options.from.iter_mut().for_each(rewind);
        }
        let fault = self.fault;
        let mut open: HashMap<String, Vec<u8>> = HashMap::new();
        let batches = self.inner.logs(job, options);
        batches.map(move |batch| batch.map(|batch| damaged(batch, fault, &mut open))).boxed()
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        self.inner.exec(job, request, sink).await
    }
}

/// Returns what a fault makes of a batch; `open` are the bytes of each source after its last newline.
fn damaged(batch: LogBatch, fault: Option<Fault>, open: &mut HashMap<String, Vec<u8>>) -> LogBatch {
    let bytes = match fault {
        Some(Fault::CleansBytes) => String::from_utf8_lossy(&batch.bytes).into_owned().into_bytes(),
        Some(Fault::DropsOpenLine) => {
            let held = open.entry(batch.source.uid.clone()).or_default();
            held.extend_from_slice(&batch.bytes);
            let end = held.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            held.drain(..end).collect()
        }
        _ => return batch,
    };
    let mut made = LogBatch::new(batch.source, bytes, batch.cursor);
    made.mark = batch.mark.filter(|mark| !matches!(mark, Mark::Truncated));
    made
}

struct Case {
    state: TempDir,
    fault: Option<Fault>,
}

#[async_trait]
impl Fixture for Case {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let mut target = TargetConfig::new("test", "local", self.state.path()).with("grace", 1.0);
        target.env = child::environment();
        let inner = local::connect(target).await?;
        Ok(Arc::new(Broken { inner, fault: self.fault, rendered: Mutex::default() }))
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn shared_folder(&self) -> Option<std::path::PathBuf> {
        Some(self.state.path().to_owned())
    }
}

/// Each fault, the check that is there for it, and a part of the reason.
const FAULTS: [(Fault, &str, &str); 10] = [
    (Fault::RepeatsAfterResume, "logs::exact_wherever_it_is_cut", "twice"),
    (Fault::DropsOpenLine, "logs::a_last_line_without_newline_is_read", "0 of 4 last lines"),
    (Fault::SubmitsTwice, "submit::runs_once_however_often_it_is_sent", "one submission ran the ranks"),
    (Fault::ForgetsSubmissions, "submit::submits_once_when_the_answer_is_lost", "is not found"),
    (Fault::ChangesExitCodes, "submit::exit_codes_are_as_they_were", "exit 137 is reported as Some(9)"),
    (Fault::CleansBytes, "logs::bytes_are_kept", "as they were written"),
    (Fault::HidesTheEnd, "watch::the_end_comes_before_the_disappearance", "its last phase was"),
    (Fault::ClaimsTimes, "claims::lines_have_times_as_claimed", "`log_times` is true"),
    (Fault::AcceptsAnyAction, "actions::hold_and_release", "yet was no error"),
    (Fault::IgnoresLabels, "claims::labels_are_listed_if_claimed", "its label selects"),
];

async fn run(fault: Option<Fault>, check: &str) -> Verdict {
    let case = Case { state: tempfile::tempdir().unwrap(), fault };
    let report = conformance::run_some(&case, &[check]).await;
    let [(_, verdict, _)] = report.checks.as_slice() else { panic!("one check: {report}") };
    verdict.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_fails_for_its_reason() {
    for (fault, check, reason) in FAULTS {
        match run(Some(fault), check).await {
            Verdict::Failed(why) => assert!(why.contains(reason), "{fault:?} fails {check} because {why}"),
            verdict => panic!("{fault:?} is not found by {check}: {verdict:?}"),
        }
        let verdict = run(None, check).await;
        assert_eq!(verdict, Verdict::Passed, "{check} of the unbroken backend");
    }
}
