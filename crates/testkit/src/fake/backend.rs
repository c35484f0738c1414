//! The fake's implementation of `Backend`.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use weftrun_core::backend::{
    Backend, Capability, ClusterFacts, Document, Language, PlannedJob, Rendered, Scope,
};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::state::Piece;
use super::{Fake, unreachable};

impl Fake {
    /// Handles every call: it is recorded, hangs, or fails as prepared.
    async fn call(&self, operation: &'static str, about: &str) -> Result<()> {
        self.edit(|state| state.calls.push(format!("{operation} {about}").trim_end().to_owned()));
        let mut changed = self.changed.subscribe();
        while self.see(|state| state.hangs) {
            if changed.changed().await.is_err() {
                return Err(unreachable());
            }
        }
        if self.see(|state| state.dead) {
            return Err(unreachable());
        }
        self.edit(|state| state.failure(operation))
    }

    fn allows(capability: &Capability, action: Action) -> Result<()> {
        let (can, name) = match action {
            Action::Suspend | Action::Resume => (capability.suspend, "suspend"),
            Action::Hold | Action::Release => (capability.hold, "hold"),
            Action::Requeue => (capability.requeue, "requeue"),
            Action::Signal(_) => (capability.signal, "signal"),
            Action::Delete => (capability.delete, "delete"),
            _ => (true, ""),
        };
        if can { Ok(()) } else { Err(Error::unsupported(&capability.backend, name)) }
    }
}

#[async_trait]
impl Backend for Fake {
    fn capability(&self) -> Capability {
        self.see(|state| state.capability.clone())
    }

    async fn discover(&self, _scope: &Scope) -> Result<ClusterFacts> {
        self.call("discover", "").await?;
        let mut facts = ClusterFacts::default();
        facts.online = true;
        Ok(facts)
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        let text = serde_json::json!({
            "name": job.spec.name, "submission": job.submission, "nodes": job.spec.nodes(),
            "ranks_per_node": job.spec.workers().next().map_or(1, weftrun_core::spec::Role::procs_per_node),
        });
        let document =
            Document { title: "fake job".to_owned(), language: Language::Json, text: text.to_string() };
        let mut rendered = Rendered::new(&job.spec.name, job.submission.clone(), document);
        rendered.applied.clone_from(&job.plan.ops);
        Ok(rendered)
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        self.call("check", &rendered.name).await?;
        Ok(Vec::new())
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        self.call("submit", &rendered.name).await?;
        if let Some(handle) = self.find(&rendered.submission).await? {
            return Ok(handle);
        }
        let text = rendered.documents.first().map_or("{}", |document| document.text.as_str());
        let job: serde_json::Value = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::InvalidSpec, "the fake job is no JSON").with_source(error)
        })?;
        let number = |key: &str| job[key].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        let (nodes, ranks) = (number("nodes"), number("ranks_per_node"));
        let (handle, lost) = self.edit(|state| {
            let handle = state.add(&rendered.name, rendered.submission.clone(), nodes, ranks);
            (handle, std::mem::take(&mut state.lose_answer))
        });
        if lost { Err(unreachable()) } else { Ok(handle) }
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        self.call("find", id.as_str()).await?;
        let found = |job: &&super::state::Job| job.summary.submission.as_ref() == Some(id);
        Ok(self.see(|state| state.jobs.values().find(found).map(|job| job.summary.handle.clone())))
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.call("list", "").await?;
        let all: Vec<_> = self.see(|state| state.jobs.values().map(|job| job.summary.clone()).collect());
        let wanted = |job: &JobSummary| {
            if filter.handles.is_empty() {
                filter.ended || !job.phase.is_terminal()
            } else {
                filter.handles.contains(&job.handle)
            }
        };
        Ok(all.into_iter().filter(wanted).take(filter.limit.unwrap_or(usize::MAX)).collect())
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        self.call("describe", &job.to_string()).await?;
        self.see(|state| {
            let job = state.job(job)?;
            let mut detail = JobDetail::new(job.summary.clone());
            detail.replicas.clone_from(&job.replicas);
            detail.history.clone_from(&job.events);
            Ok(detail)
        })
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        self.call("act", &format!("{action:?} {job}").to_lowercase()).await?;
        Self::allows(&self.capability(), action)?;
        self.see(|state| state.job(job).map(drop))?;
        match action {
            Action::Cancel => self.phase(job, JobPhase::Cancelled, "cancelled"),
            Action::Delete => self.remove(job),
            Action::Suspend | Action::Hold => self.phase(job, JobPhase::Suspended, ""),
            Action::Resume | Action::Release => self.phase(job, JobPhase::Running, ""),
            Action::Requeue => self.phase(job, JobPhase::Pending, "requeued"),
            _ => {}
        }
        Ok(())
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let watching = Watching { fake: self.clone(), filter, told: BTreeMap::new() };
        ordered(told(self.changed.subscribe(), watching))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let reading = Reading { fake: self.clone(), job: job.clone(), at: BTreeMap::new(), options };
        told(self.changed.subscribe(), reading)
    }
}

/// The result of one poll of the cluster.
struct Seen<T> {
    ready: VecDeque<Result<T>>,
    /// Whether nothing follows.
    over: bool,
}

impl<T> Seen<T> {
    fn nothing() -> Self {
        Self { ready: VecDeque::new(), over: false }
    }

    fn last(&mut self, item: Result<T>) {
        self.ready.push_back(item);
        self.over = true;
    }
}

trait Look: Send + 'static {
    type Item: Send + 'static;

    /// Returns what is new since the previous poll.
    fn look(&mut self) -> Seen<Self::Item>;
}

/// Returns a stream that polls whenever the cluster has changed.
fn told<L: Look>(changed: watch::Receiver<u64>, look: L) -> BoxStream<'static, Result<L::Item>> {
    let next = |(mut changed, mut look, mut seen): (watch::Receiver<u64>, L, Seen<L::Item>)| async move {
        loop {
            if let Some(item) = seen.ready.pop_front() {
                return Some((item, (changed, look, seen)));
            }
            if seen.over {
                return None;
            }
            changed.mark_unchanged();
            seen = look.look();
            if seen.ready.is_empty() && !seen.over && changed.changed().await.is_err() {
                return None;
            }
        }
    };
    stream::unfold((changed, look, Seen::nothing()), next).boxed()
}

struct Watching {
    fake: Fake,
    filter: JobFilter,
    /// Number of reported events of each job.
    told: BTreeMap<JobHandle, usize>,
}

impl Look for Watching {
    type Item = JobEvent;

    fn look(&mut self) -> Seen<JobEvent> {
        let mut seen = Seen::nothing();
        let (jobs, hangs, dead) = self.fake.see(|state| (state.jobs.clone(), state.hangs, state.dead));
        if dead {
            seen.last(Err(unreachable()));
        }
        if hangs || dead {
            return seen;
        }
        let asked = &self.filter.handles;
        for (handle, job) in jobs.iter().filter(|(handle, _)| asked.is_empty() || asked.contains(handle)) {
            let told = self.told.entry(handle.clone()).or_insert(0);
            seen.ready.extend(job.events[*told..].iter().cloned().map(Ok));
            *told = job.events.len();
        }
        let gone: Vec<_> = self.told.keys().filter(|handle| !jobs.contains_key(*handle)).cloned().collect();
        for handle in gone {
            self.told.remove(&handle);
            seen.ready.push_back(Ok(JobEvent::Gone { job: handle }));
        }
        for handle in self.filter.handles.iter().filter(|handle| !jobs.contains_key(*handle)) {
            if seen.ready.is_empty() {
                let error = super::no_job(handle);
                seen.ready.push_back(Err(error));
            }
            seen.over = true;
        }
        let ended = |handle: &JobHandle| jobs.get(handle).is_none_or(|job| job.summary.phase.is_terminal());
        seen.over |= !self.filter.handles.is_empty() && self.filter.handles.iter().all(ended);
        seen
    }
}

struct Reading {
    fake: Fake,
    job: JobHandle,
    options: LogOptions,
    /// Number of returned pieces of each source, and its bytes so far.
    at: BTreeMap<String, (usize, u64)>,
}

impl Look for Reading {
    type Item = LogBatch;

    fn look(&mut self) -> Seen<LogBatch> {
        let mut seen = Seen::nothing();
        let (job, hangs, dead) =
            self.fake.see(|state| (state.job(&self.job).cloned(), state.hangs, state.dead));
        let job = match job {
            _ if dead => Err(unreachable()),
            job => job,
        };
        let job = match job {
            Ok(_) if hangs => return seen,
            Ok(job) => job,
            Err(error) => {
                seen.last(Err(error));
                return seen;
            }
        };
        let ended = job.summary.phase.is_terminal();
        for log in &job.logs {
            let rank = log.source.rank.unwrap_or_default();
            if !self.options.ranks.is_empty() && !self.options.ranks.contains(&rank) {
                continue;
            }
            let uid = log.source.uid.clone();
            let resumed = self.options.from.iter().find(|cursor| cursor.uid == uid).map_or(0, |c| c.offset);
            let (piece, offset) = self.at.entry(uid).or_insert((0, 0));
            let mut cursor = Cursor::default();
            cursor.uid.clone_from(&log.source.uid);
            for written in &log.pieces[*piece..] {
                *piece += 1;
                match written {
                    Piece::Bytes(bytes) => {
                        let skip = usize::try_from(resumed.saturating_sub(*offset)).unwrap_or(usize::MAX);
                        *offset += bytes.len() as u64;
                        cursor.offset = *offset;
                        let rest = &bytes[skip.min(bytes.len())..];
                        if !rest.is_empty() {
                            let batch = LogBatch::new(log.source.clone(), rest.to_vec(), cursor.clone());
                            seen.ready.push_back(Ok(batch));
                        }
                    }
                    Piece::Mark(mark) => {
                        cursor.offset = *offset;
                        let batch = LogBatch::marked(log.source.clone(), mark.clone(), cursor.clone());
                        seen.ready.push_back(Ok(batch));
                    }
                }
            }
            if ended {
                cursor.offset = *offset;
                let mark = Mark::Ended { exit_code: job.summary.exit_code };
                seen.ready.push_back(Ok(LogBatch::marked(log.source.clone(), mark, cursor)));
            }
        }
        seen.over = ended || !self.options.follow;
        seen
    }
}
