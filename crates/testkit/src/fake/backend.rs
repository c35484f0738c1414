//! The fake behind the seam.

use std::collections::{BTreeMap, VecDeque};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use weftrun_core::backend::{
    Backend, Capability, ClusterFacts, Document, Language, PlannedJob, Rendered, Scope,
};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId,
};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::state::Piece;
use super::{Fake, unreachable};

impl Fake {
    /// Every call comes through here: it is noted, hangs, or fails as prepared.
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
        let job: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorKind::InvalidSpec, "the fake job is no JSON").source(error))?;
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
        let watching = Watching {
            fake: self.clone(),
            changed: self.changed.subscribe(),
            filter,
            told: BTreeMap::new(),
            ready: VecDeque::new(),
            over: false,
        };
        stream::unfold(watching, Watching::next).boxed()
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let reading = Reading {
            fake: self.clone(),
            changed: self.changed.subscribe(),
            job: job.clone(),
            at: BTreeMap::new(),
            options,
            ready: VecDeque::new(),
            over: false,
        };
        stream::unfold(reading, Reading::next).boxed()
    }
}

struct Watching {
    fake: Fake,
    changed: watch::Receiver<u64>,
    filter: JobFilter,
    /// Events told of each job.
    told: BTreeMap<JobHandle, usize>,
    ready: VecDeque<Result<JobEvent>>,
    over: bool,
}

impl Watching {
    async fn next(mut self) -> Option<(Result<JobEvent>, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((event, self));
            }
            if self.over {
                return None;
            }
            self.changed.mark_unchanged();
            self.look();
            if self.ready.is_empty() && !self.over && self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    fn look(&mut self) {
        let (jobs, hangs, dead) = self.fake.see(|state| (state.jobs.clone(), state.hangs, state.dead));
        if dead {
            self.ready.push_back(Err(unreachable()));
            self.over = true;
        }
        if hangs || dead {
            return;
        }
        let asked = &self.filter.handles;
        for (handle, job) in jobs.iter().filter(|(handle, _)| asked.is_empty() || asked.contains(handle)) {
            let told = self.told.entry(handle.clone()).or_insert(0);
            self.ready.extend(job.events[*told..].iter().cloned().map(Ok));
            *told = job.events.len();
        }
        let gone: Vec<_> = self.told.keys().filter(|handle| !jobs.contains_key(*handle)).cloned().collect();
        for handle in gone {
            self.told.remove(&handle);
            self.ready.push_back(Ok(JobEvent::Gone { job: handle }));
        }
        for handle in self.filter.handles.iter().filter(|handle| !jobs.contains_key(*handle)) {
            if self.ready.is_empty() {
                let error = Error::new(ErrorKind::NotFound, format!("there is no job {handle}"));
                self.ready.push_back(Err(error));
            }
            self.over = true;
        }
        let ended = |handle: &JobHandle| jobs.get(handle).is_none_or(|job| job.summary.phase.is_terminal());
        self.over |= !self.filter.handles.is_empty() && self.filter.handles.iter().all(ended);
    }
}

struct Reading {
    fake: Fake,
    changed: watch::Receiver<u64>,
    job: JobHandle,
    options: LogOptions,
    /// Pieces given of each source, and its bytes so far.
    at: BTreeMap<String, (usize, u64)>,
    ready: VecDeque<Result<LogBatch>>,
    over: bool,
}

impl Reading {
    async fn next(mut self) -> Option<(Result<LogBatch>, Self)> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some((batch, self));
            }
            if self.over {
                return None;
            }
            self.changed.mark_unchanged();
            self.look();
            if self.ready.is_empty() && !self.over && self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    fn look(&mut self) {
        let (job, hangs, dead) =
            self.fake.see(|state| (state.job(&self.job).cloned(), state.hangs, state.dead));
        let job = match job {
            _ if dead => Err(unreachable()),
            job => job,
        };
        let job = match job {
            Ok(_) if hangs => return,
            Ok(job) => job,
            Err(error) => {
                self.ready.push_back(Err(error));
                self.over = true;
                return;
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
                            self.ready.push_back(Ok(batch));
                        }
                    }
                    Piece::Mark(mark) => {
                        cursor.offset = *offset;
                        let batch = LogBatch::marked(log.source.clone(), mark.clone(), cursor.clone());
                        self.ready.push_back(Ok(batch));
                    }
                }
            }
            if ended {
                cursor.offset = *offset;
                let mark = Mark::Ended { exit_code: job.summary.exit_code };
                self.ready.push_back(Ok(LogBatch::marked(log.source.clone(), mark, cursor)));
            }
        }
        self.over = ended || !self.options.follow;
    }
}
