//! A job of many tasks on a backend that has no such jobs: each task is a job of its own, with labels that make a set of them,
//! and the set is listed, watched and acted on as one job.
//!
//! All state is in the cluster: the set's id is a label of its tasks, and the submission of each task follows from the set's and
//! the task's number, so that a submission that was interrupted can be continued and doubles no task.

mod fold;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use weftrun_core::backend::{
    Arrays, Backend, Capability, ClusterFacts, ExecRequest, ExecSink, PlannedJob, PortConnection, Prepared,
    Rendered, Scope, TargetConfig,
};
use weftrun_core::fabric::Change;
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, Lane, SET_LABEL, SubmissionId,
    TASK_LABEL, TASKS_LABEL,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::{JobSpec, MAX_TASKS};
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use fold::{Members, fold_sets};

use crate::runtime::on_runtime;

/// Most bytes of the documents of all tasks together.
const MAX_DOCUMENTS: usize = 64 << 20;
/// Tasks that are acted on, or whose logs are followed, at once.
const AT_ONCE: usize = 16;
/// Tasks whose logs are followed at once.
const FOLLOWED: usize = 64;
/// How often a submission of many tasks is asked whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// How often it is looked whether another client has cancelled the set that is being submitted.
const CANCELLED_LOOK: Duration = Duration::from_secs(1);
/// How often tasks that were submitted meanwhile are cancelled, too.
const ROUNDS: usize = 5;

/// A backend on which a job of many tasks is a set of jobs, where it has no such jobs itself.
#[derive(Clone, Debug)]
pub(crate) struct TaskSets(pub Arc<dyn Backend>);

/// The rendered tasks of a set.
struct RenderedTasks {
    /// Each with its number, in order.
    tasks: Vec<(u32, Rendered)>,
    /// Whether no more of them are to be submitted.
    stopped: AtomicBool,
}

/// Submits a job. A set is stopped after the task that is being submitted when `stop` returns true.
pub(crate) async fn submit_unless(
    backend: &dyn Backend,
    rendered: &Rendered,
    stop: impl Fn() -> bool + Send,
) -> Result<JobHandle> {
    let Some(set) = rendered.prepared.get::<RenderedTasks>() else { return backend.submit(rendered).await };
    let submitting = async move {
        let mut submitting = backend.submit(rendered);
        loop {
            match tokio::time::timeout(STOP_LOOK, &mut submitting).await {
                Ok(done) => return done,
                Err(_) if stop() => set.stopped.store(true, Ordering::Relaxed),
                Err(_) => {}
            }
        }
    };
    on_runtime(submitting).await
}

/// Returns the handle of the set of which some tasks were submitted before an error.
pub(crate) fn made_before(error: &Error) -> Option<JobHandle> {
    let (_, set) = error.context().iter().find(|(key, _)| *key == "set")?;
    set.parse().ok().filter(is_set)
}

/// Returns whether all tasks of a job were submitted, or no more are to be: a set that was cancelled stays as it is. Other jobs are
/// always whole.
///
/// # Errors
/// Those of a description of the job.
pub(crate) async fn is_whole(backend: &dyn Backend, job: &JobHandle, spec: Option<&JobSpec>) -> Result<bool> {
    if !is_set(job) {
        return Ok(true);
    }
    let detail = backend.describe(job).await?;
    let last = spec.and_then(JobSpec::tasks).and_then(|tasks| tasks.few()?.last().copied());
    let has_last = detail.replicas.iter().any(|replica| Some(replica.index) == last);
    let phases = || detail.replicas.iter().map(|replica| replica.phase);
    let is_cancelled =
        phases().all(JobPhase::is_terminal) && phases().any(|phase| phase == JobPhase::Cancelled);
    let missing = detail.summary.tasks.map_or(0, |counts| counts.missing());
    Ok(missing == 0 || has_last || is_cancelled)
}

/// Returns the id of the set of a submission: short enough to type.
fn id_of(submission: &SubmissionId) -> String {
    submission.as_str().chars().take(12).collect()
}

/// Returns whether a handle names a set of jobs.
pub(crate) fn is_set(handle: &JobHandle) -> bool {
    handle.set().is_some()
}

/// Returns the tasks of a set that the cluster has, by number: all of them, or the one with that number.
///
/// # Errors
/// Those of the list of jobs.
pub(crate) async fn tasks_in_set(
    backend: &dyn Backend,
    set: &JobHandle,
    task: Option<u32>,
) -> Result<BTreeMap<u32, JobHandle>> {
    let Some(id) = set.set() else { return Ok(BTreeMap::new()) };
    let mut filter = JobFilter::all().tasks(true).label(SET_LABEL, id);
    if let Some(task) = task {
        filter = filter.label(TASK_LABEL, task.to_string());
    }
    let found = Members::of(backend.list(&filter).await?);
    Ok(found.into_tasks().into_iter().map(|(task, job)| (task, job.handle)).collect())
}

/// Returns the id of the set of which a job is a task, and its number there.
pub(crate) fn task_by_labels(job: &JobSummary) -> Option<(String, u32)> {
    Some((job.labels.get(SET_LABEL)?.clone(), job.labels.get(TASK_LABEL)?.parse().ok()?))
}

/// Returns the target with the namespace or the project of a set's handle, in which its tasks are listed.
pub(crate) fn in_scope(mut target: TargetConfig, handle: &JobHandle) -> TargetConfig {
    if let [scope, _, _] = handle.parts()
        && is_set(handle)
    {
        (target.namespace, target.project) = (Some(scope.clone()), Some(scope.clone()));
    }
    target
}

/// Returns one task of a planned job, without the tasks that it follows.
fn task_of(job: &PlannedJob, task: u32, count: usize) -> PlannedJob {
    let mut one = job.clone();
    one.spec = job.spec.task(task);
    one.submission = job.submission.of_task(task);
    for (key, value) in [
        (SET_LABEL, id_of(&job.submission)),
        (TASK_LABEL, task.to_string()),
        (TASKS_LABEL, count.to_string()),
    ] {
        one.spec.labels.insert(key.to_owned(), value);
    }
    for op in &mut one.plan.ops {
        if let Change::Command { before, after, .. } = &mut op.change {
            before.iter_mut().chain(after).for_each(|word| *word = job.spec.filled(word, task));
        }
    }
    one
}

/// Returns the lane of the task at a place: every `lanes`th task before it; none for the first of each lane.
fn lane_of(set: &SubmissionId, tasks: &[u32], place: usize, lanes: usize) -> Option<Lane> {
    let before: Vec<u32> = tasks.get(..place)?.iter().copied().skip(place % lanes).step_by(lanes).collect();
    (!before.is_empty()).then(|| Lane { set: set.clone(), before })
}

impl TaskSets {
    /// Returns whether jobs of many tasks are sets here.
    fn makes_sets(&self) -> bool {
        self.0.capability().arrays == Arrays::Jobs
    }

    fn render_all(&self, job: &PlannedJob, can: &Capability) -> Result<Option<Vec<(u32, Rendered)>>> {
        let Some(tasks) = job.spec.tasks() else { return Ok(None) };
        match can.arrays {
            Arrays::Native => return Ok(None),
            Arrays::None => return Err(no_tasks(can)),
            Arrays::Jobs => {}
        }
        let numbers = tasks.few().ok_or_else(|| too_many(tasks.count()))?;
        let parallel = tasks.parallel.and_then(|most| usize::try_from(most).ok());
        let lanes = parallel.filter(|most| *most < numbers.len());
        if lanes.is_some() && !can.dependencies {
            return Err(unbounded(can));
        }
        let (mut rendered, mut bytes) = (Vec::new(), 0_usize);
        let all: Vec<u32> = numbers.iter().copied().collect();
        for (place, number) in numbers.iter().enumerate() {
            let mut one = task_of(job, *number, numbers.len());
            one.lane = lanes.and_then(|lanes| lane_of(&job.submission, &all, place, lanes));
            let one = self.0.render(&one)?;
            bytes += one.documents.iter().map(|document| document.text.len()).sum::<usize>();
            if bytes > MAX_DOCUMENTS {
                return Err(Error::new(
                    ErrorKind::InvalidSpec,
                    "the documents of all tasks have more than 64 MiB",
                )
                .with("tasks", numbers.len())
                .hint("submit fewer tasks at a time, or put the code into the image or a volume"));
            }
            rendered.push((*number, one));
        }
        Ok(Some(rendered))
    }

    /// Returns the tasks of a set that the cluster has, by number.
    async fn members(&self, id: &str) -> Result<Members> {
        let mut filter = JobFilter::all().label(SET_LABEL, id);
        filter.foreign = false;
        Ok(Members::of(self.0.list(&filter).await?))
    }

    /// Returns the tasks of a set, of which there is at least one.
    async fn of_set(&self, handle: &JobHandle, id: &str) -> Result<Members> {
        let members = self.members(id).await?;
        if members.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "the cluster has no task of this set")
                .with("set", handle)
                .hint("`weftrun list --all` prints the jobs and sets that it has"));
        }
        Ok(members)
    }

    /// Returns the handles of a filter, with the tasks of its sets in place of these.
    async fn expanded(&self, filter: &JobFilter) -> Result<(JobFilter, Vec<Members>)> {
        let (mut expanded, mut sets) = (filter.clone(), Vec::new());
        expanded.handles.clear();
        for handle in &filter.handles {
            match handle.set() {
                None => expanded.handles.push(handle.clone()),
                Some(id) => {
                    let members = self.of_set(handle, id).await?;
                    expanded.handles.extend(members.handles());
                    sets.push(members);
                }
            }
        }
        Ok((expanded, sets))
    }

    /// Acts on all tasks of a set. Tasks that were submitted while others were cancelled are cancelled, too.
    async fn act_on_set(&self, handle: &JobHandle, id: &str, action: Action) -> Result<()> {
        let mut members = self.of_set(handle, id).await?;
        if !matches!(action, Action::Cancel | Action::Delete) {
            let phase = JobPhase::of_many(members.clone().into_jobs().into_iter().map(|job| job.phase));
            if phase.is_terminal() {
                let message = format!("all tasks of the set have ended ({phase})");
                return Err(Error::new(ErrorKind::Refused, message).with("set", handle));
            }
        }
        self.act_on_all(members.clone().into_jobs(), action).await?;
        if action != Action::Cancel {
            return Ok(());
        }
        for _ in 0..ROUNDS {
            if !members.lacks_some() {
                break;
            }
            // The client that submits them looks for cancelled ones as often.
            tokio::time::sleep(CANCELLED_LOOK * 2).await;
            let found = self.members(id).await?;
            let new = members.add_new(found.clone());
            if new.is_empty() {
                break;
            }
            let new = found.into_jobs().into_iter().filter(|job| new.contains(&job.handle)).collect();
            self.act_on_all(new, action).await?;
        }
        Ok(())
    }

    /// Submits the tasks of a set that were not submitted before, one after another. The last one of those is sent again, since it
    /// may be there without having been started.
    async fn submit_set(&self, rendered: &Rendered, set: &RenderedTasks) -> Result<JobHandle> {
        let (name, id) = (&rendered.name, id_of(&rendered.submission));
        // Those of the same submission that was interrupted.
        let known = self.members(&id).await?;
        let (last, mut first) = (known.last(), known.handles().next());
        let stop = |first: Option<&JobHandle>, task: u32, why: &str| {
            partial(Error::new(ErrorKind::Interrupted, why), first, name, &id, set, task)
        };
        let (mut looked, mut seen, mut sent) = (Instant::now(), Vec::new(), Vec::new());
        for (task, one) in set.tasks.iter().filter(|(task, _)| last.is_none_or(|last| *task >= last)) {
            if looked.elapsed() >= CANCELLED_LOOK {
                if self.members(&id).await.is_ok_and(|now| now.were_stopped(&seen)) {
                    return Err(stop(
                        first.as_ref(),
                        *task,
                        "the set was cancelled while its tasks were submitted",
                    ));
                }
                looked = Instant::now();
                seen.clone_from(&sent);
            }
            if set.stopped.load(Ordering::Relaxed) {
                return Err(stop(first.as_ref(), *task, "interrupted before all tasks were submitted"));
            }
            let made = self.0.submit(one).await;
            let made = made.map_err(|error| partial(error, first.as_ref(), name, &id, set, *task))?;
            first.get_or_insert(made);
            sent.push(*task);
        }
        first.map(|first| first.of_set(name, &id)).ok_or_else(|| too_many(0))
    }

    /// Acts on jobs, the last first: none then starts because one before it has ended. An error counts the others.
    async fn act_on_all(&self, mut jobs: Vec<JobSummary>, action: Action) -> Result<()> {
        if action != Action::Delete {
            jobs.retain(|job| !job.phase.is_terminal());
        }
        let waits = |job: &JobSummary| job.phase == JobPhase::Pending;
        // The others of a lane wait until the one before them has ended.
        if matches!(action, Action::Suspend | Action::Resume | Action::Signal(_))
            && self.0.capability().dependencies
            && !jobs.iter().all(waits)
        {
            jobs.retain(|job| !waits(job));
        }
        jobs.reverse();
        let total = jobs.len();
        let acting = stream::iter(jobs).map(|job| async move { self.0.act(&job.handle, action).await });
        let failed: Vec<Error> =
            acting.buffered(AT_ONCE).filter_map(|done| async { done.err() }).collect().await;
        let count = failed.len();
        let mut failed = failed.into_iter().filter(|error| error.kind() != ErrorKind::NotFound);
        failed.next().map_or(Ok(()), |error| {
            Err(error
                .with("tasks", format!("{count} of {total} failed"))
                .hint("the same command tries these again"))
        })
    }

    fn refuse_set(&self, handle: &JobHandle) -> Result<()> {
        if !is_set(handle) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Usage, "this is a set of tasks, and one task is needed")
            .with("set", handle)
            .hint("`weftrun list --all-tasks` prints the handles of the tasks"))
    }
}

fn no_tasks(can: &Capability) -> Error {
    let message = format!("backend `{}` does not run jobs of many tasks (`array`, `sweep`)", can.backend);
    Error::new(ErrorKind::Unsupported, message)
        .hint("submit each task as a job of its own, in a loop with `weftrun submit --wait`")
}

fn too_many(count: u32) -> Error {
    let message = format!("the array has {count} tasks, and at most {MAX_TASKS} jobs are submitted for one");
    Error::new(ErrorKind::InvalidSpec, message).hint("split it into several arrays")
}

/// Kubernetes has nothing that starts one job when another ends, and a client that does it must not end.
fn unbounded(can: &Capability) -> Error {
    let message = format!(
        "backend `{}` cannot limit how many tasks run at once: nothing in the cluster starts a job when another has ended",
        can.backend
    );
    Error::new(ErrorKind::Unsupported, message)
        .hint("leave `parallel` out and set `queue` to a queue with a quota (Kueue): it admits as many tasks as fit")
        .hint("or leave both out: all tasks start as soon as nodes are free")
}

fn refuse_dependencies(spec: &JobSpec, can: &Capability) -> Result<()> {
    let Some(job) = spec.after.first().filter(|_| !can.dependencies) else { return Ok(()) };
    let message = format!("backend `{}` cannot start a job after another one", can.backend);
    Err(Error::new(ErrorKind::Unsupported, message)
        .with("after", job)
        .hint("wait for it on this side: `weftrun wait HANDLE && weftrun submit …`"))
}

/// Adds to an error that ends a submission before a task how many tasks were submitted.
fn partial(
    error: Error,
    first: Option<&JobHandle>,
    name: &str,
    id: &str,
    set: &RenderedTasks,
    task: u32,
) -> Error {
    let error = error.with("task", task);
    let Some(first) = first else { return error };
    let handle = first.of_set(name, id);
    let before = set.tasks.iter().filter(|(number, _)| *number < task).count();
    error
        .with("set", &handle)
        .with("submitted", format!("{before} of {}", counted(set.tasks.len(), "task")))
        .hint(format!(
            "the same command submits the rest; `weftrun cancel '{handle}'` stops those that were submitted"
        ))
}

#[async_trait]
impl Backend for TaskSets {
    fn capability(&self) -> Capability {
        self.0.capability()
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        self.0.discover(scope).await
    }

    /// Renders a job of many tasks as the documents of all its tasks.
    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        let can = self.0.capability();
        refuse_dependencies(&job.spec, &can)?;
        let Some(tasks) = self.render_all(job, &can)? else { return self.0.render(job) };
        let Some((_, first)) = tasks.first() else { return Err(too_many(0)) };
        let mut whole = first.clone();
        whole.name.clone_from(&job.spec.name);
        whole.submission = job.submission.clone();
        whole.documents = tasks.iter().flat_map(|(_, one)| one.documents.clone()).collect();
        whole.prepared = Prepared::new(RenderedTasks { tasks, stopped: AtomicBool::new(false) });
        Ok(whole)
    }

    fn pin(&self, job: &mut JobSpec, nodes: &[String]) -> Result<()> {
        self.0.pin(job, nodes)
    }

    /// Checks one task, whose name is taken if that of any is: the others differ by name and values.
    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let Some(set) = rendered.prepared.get::<RenderedTasks>() else { return self.0.check(rendered).await };
        let id = id_of(&rendered.submission);
        let mut others = self.0.list(&JobFilter::all().tasks(true)).await?;
        others.retain(|job| job.labels.get(SET_LABEL) != Some(&id));
        // Where a job that has ended still has its name, the backend says so.
        others.sort_by_key(|job| job.phase.is_terminal());
        let tasks: BTreeMap<&str, &Rendered> =
            set.tasks.iter().map(|(_, task)| (task.name.as_str(), task)).collect();
        let taken = others.iter().find_map(|job| tasks.get(job.name.as_str()).copied());
        let first = set.tasks.first().map(|(_, first)| first);
        self.0.check(taken.or(first).unwrap_or(rendered)).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        match rendered.prepared.get() {
            Some(set) => self.submit_set(rendered, set).await,
            None => self.0.submit(rendered).await,
        }
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        let found = self.0.find(id).await?;
        if found.is_some() || !self.makes_sets() {
            return Ok(found);
        }
        Ok(self.members(&id_of(id)).await?.whole().map(|set| set.handle))
    }

    fn arrives_within(&self) -> Duration {
        self.0.arrives_within()
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        if filter.handles.iter().any(is_set) {
            let (expanded, _) = self.expanded(filter).await?;
            let jobs = self.0.list(&expanded).await?;
            return Ok(if filter.tasks { jobs } else { fold_sets(jobs) });
        }
        let jobs = self.0.list(filter).await?;
        if filter.tasks || jobs.iter().all(|job| !job.labels.contains_key(SET_LABEL)) {
            return Ok(jobs);
        }
        // The line of a set counts all its tasks.
        let mut all = filter.clone();
        (all.ended, all.limit) = (true, None);
        let mut jobs = fold_sets(self.0.list(&all).await?);
        jobs.retain(|job| filter.ended || !job.phase.is_terminal());
        jobs.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(jobs)
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        let Some(id) = job.set() else { return self.0.describe(job).await };
        let members = self.of_set(job, id).await?;
        let summary = members.whole().ok_or_else(|| too_many(0))?;
        let mut detail = JobDetail::new(summary);
        detail.replicas = members.replicas();
        Ok(detail)
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        match job.set() {
            None => self.0.act(job, action).await,
            Some(id) => self.act_on_set(job, id, action).await,
        }
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        if filter.handles.iter().all(|handle| !is_set(handle)) {
            return self.0.watch(filter);
        }
        let own = self.clone();
        stream::once(async move {
            let (filter, sets) = own.expanded(&filter).await?;
            Ok::<_, Error>(watch::folded(own, filter, sets))
        })
        .try_flatten()
        .boxed()
    }

    /// Reads the logs of the tasks of a set, one after another; followed, those of some tasks at once.
    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let Some(id) = job.set().map(str::to_owned) else { return self.0.logs(job, options) };
        let (own, set, follows) = (self.clone(), job.clone(), options.follow);
        stream::once(async move {
            let members = own.of_set(&set, &id).await?;
            let logs = members
                .into_tasks()
                .into_iter()
                .map(move |(task, job)| fold::named(own.0.logs(&job.handle, options.clone()), task));
            Ok::<_, Error>(if follows {
                stream::iter(logs).flatten_unordered(FOLLOWED).boxed()
            } else {
                stream::iter(logs).flatten().boxed()
            })
        })
        .try_flatten()
        .boxed()
    }

    fn take_notes(&self) -> Vec<Finding> {
        self.0.take_notes()
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        self.refuse_set(job)?;
        self.0.exec(job, request, sink).await
    }

    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        self.refuse_set(job)?;
        self.0.attach(job, request).await
    }

    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        self.refuse_set(job)?;
        self.0.open_port(job, rank, port).await
    }
}

#[cfg(test)]
mod tests;
