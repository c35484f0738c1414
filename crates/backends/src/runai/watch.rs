//! Watches workloads by polling: the control plane has no watch, so typed reads are compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use serde_json::Value;
use weftrun_core::job::{JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::{ErrorKind, Finding, Result, Severity};

use super::status::{self, Roles};
use super::{Shared, typed_path};
use crate::changes::{Look, Reported};
use crate::outage::Link;
use crate::runai::resolve::text;
use crate::stream::{self, Feed, put};

/// Default seconds between two polls, as in the official clients (5 to 15).
const POLL: u64 = 5;
/// Number of events that are read.
const EVENTS: usize = 50;
/// Number of history records that are read.
const RECORDS: usize = 200;

/// Returns the details of one workload.
pub async fn describe(shared: &Shared, handle: &JobHandle) -> Result<JobDetail> {
    let workload = shared.typed(handle).await?;
    let mut detail = JobDetail::new(shared.summary(handle, &workload));
    let roles = Roles::of(&workload);
    if let Ok(pods) = pods(shared, handle).await {
        detail.replicas = (0..).zip(&pods).map(|(index, pod)| roles.replica(pod, index)).collect();
        detail.summary.ready.0 = ready(&detail);
        if detail.summary.phase == JobPhase::Failed {
            detail.summary.reason = failed_pods(&pods);
        }
    }
    detail.history = history(shared, handle).await;
    explain(&mut detail);
    let listed = shared.listed_entry(handle).await;
    add_reason(&mut detail.summary, listed.as_ref());
    let link = format!("{}/workloads", shared.plane().await?.base());
    detail.facts.push(("ui".into(), link));
    detail.facts.extend(listed.iter().flat_map(status::addresses).map(|url| ("address".to_owned(), url)));
    Ok(detail)
}

/// Returns the history, oldest first: events and phases, with the start of each new attempt.
async fn history(shared: &Shared, handle: &JobHandle) -> Vec<JobEvent> {
    let path = format!("/api/v1/workloads/{}/history", handle.uid().unwrap_or_default());
    let records = match shared.plane().await {
        Ok(plane) => plane.pages("cannot read the history", &path, &[], "records", Some(RECORDS)).await,
        Err(error) => Err(error),
    };
    let message = |(severity, reason, text, time)| JobEvent::Message {
        job: handle.clone(),
        severity,
        reason,
        text,
        time,
    };
    let mut found: Vec<(Option<jiff::Timestamp>, JobEvent)> = Vec::new();
    let events = events(shared, handle).await.unwrap_or_default();
    let recorded = records.as_deref().unwrap_or_default().iter();
    for event in events.iter().chain(recorded.clone().filter_map(|record| record.pointer("/spec/event"))) {
        let told = status::event(event);
        // The history contains the events too.
        if !found.iter().any(|(time, known)| {
            *time == told.3 && matches!(known, JobEvent::Message { text, .. } if *text == told.2)
        }) {
            found.push((told.3, message(told)));
        }
    }
    let mut phases: Vec<_> = recorded.filter_map(status::phase_update).collect();
    phases.sort_by_key(|(.., time)| *time);
    let (mut before, mut attempt) = (JobPhase::Unknown, 0);
    for (word, said, time) in phases {
        let now = status::phase(&word);
        if let Some(why) = status::new_attempt(before, now) {
            attempt += 1;
            found.push((time, JobEvent::Attempt { job: handle.clone(), attempt, reason: why.to_owned() }));
        }
        let said = if said.is_empty() && now == JobPhase::Suspended { "suspended".to_owned() } else { said };
        found.push((time, message((Severity::Info, word, said, time))));
        before = now;
    }
    found.sort_by_key(|(time, _)| *time);
    found.into_iter().map(|(_, event)| event).collect()
}

/// Describes which pods failed, which is all the API reports; exit codes are at best in the logs.
fn failed_pods(pods: &[Value]) -> String {
    let failed = pods
        .iter()
        .filter(|pod| text(pod, "k8sPhase").is_some_and(|phase| phase.eq_ignore_ascii_case("failed")));
    let names: Vec<&str> = failed.filter_map(|pod| text(pod, "name")).take(5).collect();
    if names.is_empty() {
        return String::new();
    }
    weftrun_core::log::clean_text(&format!("failed: {}", names.join(", "))).into_owned()
}

/// Adds the list's message to the reason of a workload, so that every verb shows what `list` shows.
fn add_reason(summary: &mut JobSummary, listed: Option<&Value>) {
    let said =
        listed.map(|entry| status::of_listed(summary.handle.clone(), entry).reason).unwrap_or_default();
    if summary.phase == JobPhase::Cancelled || summary.reason.contains(&said) {
        // It is already included, or there is none.
    } else if summary.reason.is_empty() || summary.phase == JobPhase::Unknown {
        summary.reason = said;
    } else {
        summary.reason = format!("{said}; {}", summary.reason);
    }
    if summary.phase == JobPhase::Failed && summary.reason.is_empty() {
        summary.reason = "the control plane reports a failure without a reason, and no failed pod".into();
    }
}

/// Adds why a workload is pending, which is only in its events.
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

/// Returns the pods of a workload.
pub async fn pods(shared: &Shared, handle: &JobHandle) -> Result<Vec<Value>> {
    typed_path(handle)?;
    let path = format!("/api/v1/workloads/{}/pods", handle.uid().unwrap_or_default());
    shared.plane().await?.pages("cannot list the pods", &path, &[], "pods", None).await
}

/// Returns the newest events of a workload, newest first.
pub async fn events(shared: &Shared, handle: &JobHandle) -> Result<Vec<Value>> {
    let path = format!("/api/v1/workloads/{}/events", handle.uid().unwrap_or_default());
    let query = [("sortOrder", "desc".to_owned())];
    shared.plane().await?.pages("cannot list the events", &path, &query, "events", Some(EVENTS)).await
}

/// Returns the seconds between two polls.
pub fn interval(shared: &Shared) -> Duration {
    Duration::from_secs(shared.settings.poll_seconds.unwrap_or(POLL).max(1))
}

/// Watches the workloads of a filter.
pub fn watch(shared: Arc<Shared>, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
    stream::fed(move |feed| {
        Watch { shared, filter, feed, known: HashMap::new(), link: Link::default() }.run()
    })
}

struct Watch {
    shared: Arc<Shared>,
    filter: JobFilter,
    feed: Feed<JobEvent>,
    known: HashMap<JobHandle, Reported>,
    link: Link,
}

impl Watch {
    async fn run(mut self) -> Result<()> {
        loop {
            match self.look().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.is_retryable() => self.link.is_lost(&error, &self.feed).await,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(interval(&self.shared)).await;
        }
    }

    async fn tell(&self, event: JobEvent) {
        put(&self.feed, event).await;
    }

    /// Polls once; returns true when every requested workload has ended.
    async fn look(&mut self) -> Result<bool> {
        let now = self.summaries().await?;
        self.link.is_back(&self.feed).await;
        // A limited list leaves out jobs that are still there.
        if self.filter.handles.is_empty() && self.filter.limit.is_none() {
            let here = |handle: &JobHandle| now.iter().any(|job| job.handle == *handle);
            let gone: Vec<_> = self.known.keys().filter(|handle| !here(handle)).cloned().collect();
            for job in gone {
                self.known.remove(&job);
                self.tell(JobEvent::Gone { job }).await;
            }
        }
        for job in now {
            let reported = self.known.entry(job.handle.clone()).or_default();
            let before = reported.summary.as_ref();
            let again = before.and_then(|before| status::new_attempt(before.phase, job.phase));
            let attempt = reported.attempt + u32::from(again.is_some());
            let look = Look { attempt, why: again.unwrap_or_default().to_owned(), ..Look::of(job) };
            for event in reported.changes(look) {
                put(&self.feed, event).await;
            }
        }
        let asked = &self.filter.handles;
        Ok(!asked.is_empty()
            && asked.iter().all(|handle| self.known.get(handle).is_some_and(Reported::has_ended)))
    }

    async fn summaries(&mut self) -> Result<Vec<JobSummary>> {
        if self.filter.handles.is_empty() {
            return self.shared.jobs(self.filter.limit).await;
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
            if self.known.get(&handle).is_some_and(Reported::has_ended) {
                continue;
            }
            match self.shared.typed_now(&handle).await {
                Ok(workload) => {
                    self.shared.forget_created(&handle);
                    jobs.push(detailed(&self.shared, &handle, &workload).await);
                }
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && !self.known.contains_key(&handle)
                        && self.shared.may_appear(&handle).await => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.tell(JobEvent::Gone { job: handle.clone() }).await;
                    let mut gone = JobSummary::new(handle.clone(), JobPhase::Cancelled);
                    gone.reason = "deleted".into();
                    self.known.entry(handle).or_default().summary = Some(gone);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(jobs)
    }
}

/// Returns the summary of a typed read, with its reason and the running pods.
pub async fn detailed(shared: &Shared, handle: &JobHandle, workload: &Value) -> JobSummary {
    let mut detail = JobDetail::new(shared.summary(handle, workload));
    let pods = pods(shared, handle).await.unwrap_or_default();
    let running =
        pods.iter().filter(|pod| text(pod, "k8sPhase").is_some_and(|p| p.eq_ignore_ascii_case("running")));
    detail.summary.ready.0 = u32::try_from(running.count()).unwrap_or(u32::MAX);
    if detail.summary.phase == JobPhase::Failed {
        detail.summary.reason = failed_pods(&pods);
    }
    if detail.summary.phase == JobPhase::Pending {
        for event in events(shared, handle).await.unwrap_or_default().iter().rev() {
            let (severity, reason, text, time) = status::event(event);
            detail.history.push(JobEvent::Message { job: handle.clone(), severity, reason, text, time });
        }
        explain(&mut detail);
    }
    add_reason(&mut detail.summary, shared.listed_entry(handle).await.as_ref());
    detail.summary
}
