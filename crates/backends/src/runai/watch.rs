//! Looking again: the control plane has no watch, so typed reads are compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use serde_json::Value;
use tokio::sync::mpsc;
use weftrun_core::job::{JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::{ErrorKind, Finding, Result, Severity};

use super::{Shared, status, typed_path};
use crate::runai::lookup::text;

/// Seconds between two looks, unless the target says otherwise: what the official clients do (5 to 15).
const POLL: u64 = 5;
/// How long a workload that was just made may be unknown or answer 404 (NeMo-Run pull request 458, 2026-03).
const GRACE: Duration = Duration::from_secs(60);
/// Events that are read.
const EVENTS: usize = 50;

/// Everything known of one workload.
pub async fn describe(shared: &Shared, handle: &JobHandle) -> Result<JobDetail> {
    let workload = shared.typed(handle).await?;
    let mut detail = JobDetail::new(shared.summary(handle, &workload));
    if let Ok(pods) = pods(shared, handle).await {
        detail.replicas = (0..).zip(&pods).map(|(index, pod)| status::replica(pod, index)).collect();
        detail.summary.ready.0 = ready(&detail);
        if detail.summary.phase == JobPhase::Failed {
            detail.summary.reason = failed_pods(&pods);
        }
    }
    for event in events(shared, handle).await.unwrap_or_default().iter().rev() {
        let (severity, reason, text, time) = status::event(event);
        detail.history.push(JobEvent::Message { job: handle.clone(), severity, reason, text, time });
    }
    explain(&mut detail);
    let link = format!("{}/workloads", shared.plane().await?.base());
    detail.facts.push(("ui".into(), link));
    Ok(detail)
}

/// Which pods failed: all the API says; exit codes are in the logs at best.
fn failed_pods(pods: &[Value]) -> String {
    let failed = pods
        .iter()
        .filter(|pod| text(pod, "k8sPhase").is_some_and(|phase| phase.eq_ignore_ascii_case("failed")));
    let names: Vec<&str> = failed.filter_map(|pod| text(pod, "name")).take(5).collect();
    if names.is_empty() {
        return "the platform says that it failed, and of no pod why".to_owned();
    }
    weftrun_core::log::clean_text(&format!("failed: {}", names.join(", "))).into_owned()
}

/// A pending workload says why in its events only.
fn explain(detail: &mut JobDetail) {
    let waiting =
        matches!(detail.summary.phase, JobPhase::Pending | JobPhase::Starting | JobPhase::Submitted);
    let last = detail.history.iter().rev().find_map(|event| match event {
        JobEvent::Message { severity: Severity::Warning, reason, text, .. } => Some((reason, text)),
        _ => None,
    });
    if let (true, Some((reason, text))) = (waiting, last) {
        detail.summary.reason = format!("{reason}: {text}");
        detail.findings.push(Finding::warning("RUNAI-PENDING", format!("{reason}: {text}")));
    }
}

fn ready(detail: &JobDetail) -> u32 {
    let running = detail.replicas.iter().filter(|replica| replica.phase == JobPhase::Running).count();
    u32::try_from(running).unwrap_or(u32::MAX)
}

/// The pods of a workload.
pub async fn pods(shared: &Shared, handle: &JobHandle) -> Result<Vec<Value>> {
    typed_path(handle)?;
    let path = format!("/api/v1/workloads/{}/pods", handle.uid().unwrap_or_default());
    shared.plane().await?.pages("cannot list the pods", &path, &[], "pods", None).await
}

async fn events(shared: &Shared, handle: &JobHandle) -> Result<Vec<Value>> {
    let path = format!("/api/v1/workloads/{}/events", handle.uid().unwrap_or_default());
    let query = [("sortOrder", "desc".to_owned())];
    shared.plane().await?.pages("cannot list the events", &path, &query, "events", Some(EVENTS)).await
}

/// Seconds between two looks.
pub fn interval(shared: &Shared) -> Duration {
    Duration::from_secs(shared.settings.poll_seconds.unwrap_or(POLL).max(1))
}

/// Watches the workloads of a filter.
pub fn watch(shared: Arc<Shared>, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
    let (send, receive) = mpsc::channel(64);
    tokio::spawn(async move {
        let _ = Watch { shared, filter, send, known: HashMap::new(), lost: false }.run().await;
    });
    Box::pin(futures_util::stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|event| (event, receive))
    }))
}

struct Watch {
    shared: Arc<Shared>,
    filter: JobFilter,
    send: mpsc::Sender<Result<JobEvent>>,
    known: HashMap<JobHandle, JobSummary>,
    lost: bool,
}

/// The reader went away.
struct Closed;

impl Watch {
    async fn run(mut self) -> std::result::Result<(), Closed> {
        let began = tokio::time::Instant::now();
        loop {
            match self.look(began.elapsed() < GRACE).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Stop::Closed) => return Err(Closed),
                Err(Stop::Failed(error)) if error.is_retryable() => {
                    if !std::mem::replace(&mut self.lost, true) {
                        let reason = error.to_string();
                        self.tell(JobEvent::Disconnected { lost: true, reason }).await?;
                    }
                }
                Err(Stop::Failed(error)) => {
                    let _ = self.send.send(Err(error)).await;
                    return Ok(());
                }
            }
            tokio::select! {
                () = tokio::time::sleep(interval(&self.shared)) => {}
                () = self.send.closed() => return Err(Closed),
            }
        }
    }

    async fn tell(&self, event: JobEvent) -> std::result::Result<(), Closed> {
        self.send.send(Ok(event)).await.map_err(|_| Closed)
    }

    /// One look; true when every workload that was asked for has ended.
    async fn look(&mut self, young: bool) -> std::result::Result<bool, Stop> {
        let now = self.summaries(young).await?;
        if std::mem::take(&mut self.lost) {
            self.tell(JobEvent::Disconnected { lost: false, reason: String::new() }).await?;
        }
        for job in now {
            let before = self.known.insert(job.handle.clone(), job.clone());
            if before.as_ref() == Some(&job) {
                continue;
            }
            let back = before.is_some_and(|b| b.phase == JobPhase::Running) && job.phase == JobPhase::Pending;
            if back {
                let reason = "preempted: waits for nodes again".to_owned();
                self.tell(JobEvent::Attempt { job: job.handle.clone(), attempt: 1, reason }).await?;
            }
            self.tell(JobEvent::Status { job }).await?;
        }
        let asked = &self.filter.handles;
        Ok(!asked.is_empty()
            && asked.iter().all(|handle| self.known.get(handle).is_some_and(|j| j.phase.is_terminal())))
    }

    async fn summaries(&mut self, young: bool) -> std::result::Result<Vec<JobSummary>, Stop> {
        if self.filter.handles.is_empty() {
            let mut jobs = Vec::new();
            for workload in self.shared.listed(None, self.filter.limit).await? {
                if let Some(handle) = self.shared.listed_handle(&workload)? {
                    jobs.push(status::of_listed(handle, &workload));
                }
            }
            return Ok(jobs);
        }
        let mut jobs = Vec::new();
        for handle in self.filter.handles.clone() {
            if handle.uid().is_none() {
                let known = self.shared.resolve(&handle).await?;
                self.filter
                    .handles
                    .iter_mut()
                    .filter(|asked| **asked == handle)
                    .for_each(|asked| *asked = known.clone());
                continue;
            }
            if self.known.get(&handle).is_some_and(|job| job.phase.is_terminal()) {
                continue;
            }
            match self.shared.typed(&handle).await {
                Ok(workload) => jobs.push(self.detailed(&handle, &workload).await),
                Err(error)
                    if error.kind() == ErrorKind::NotFound && young && !self.known.contains_key(&handle) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.tell(JobEvent::Gone { job: handle.clone() }).await?;
                    let mut gone = JobSummary::new(handle.clone(), JobPhase::Cancelled);
                    gone.reason = "deleted".into();
                    self.known.insert(handle, gone);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(jobs)
    }

    async fn detailed(&self, handle: &JobHandle, workload: &Value) -> JobSummary {
        let mut detail = JobDetail::new(self.shared.summary(handle, workload));
        if let Ok(pods) = pods(&self.shared, handle).await {
            let running = pods
                .iter()
                .filter(|pod| text(pod, "k8sPhase").is_some_and(|p| p.eq_ignore_ascii_case("running")));
            detail.summary.ready.0 = u32::try_from(running.count()).unwrap_or(u32::MAX);
        }
        if detail.summary.phase == JobPhase::Failed {
            detail.summary.reason = failed_pods(&pods(&self.shared, handle).await.unwrap_or_default());
        }
        if detail.summary.phase == JobPhase::Pending {
            for event in events(&self.shared, handle).await.unwrap_or_default().iter().rev() {
                let (severity, reason, text, time) = status::event(event);
                detail.history.push(JobEvent::Message { job: handle.clone(), severity, reason, text, time });
            }
            explain(&mut detail);
        }
        detail.summary
    }
}

enum Stop {
    Closed,
    Failed(weftrun_core::Error),
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<weftrun_core::Error> for Stop {
    fn from(error: weftrun_core::Error) -> Self {
        Self::Failed(error)
    }
}
