//! One watch each of the jobs, the pods and the events of a namespace, regardless of the number of jobs.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{StreamExt, TryStreamExt};
use kube::api::DynamicObject;
use tokio::time::{Instant, timeout, timeout_at};
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase};
use weftrun_core::{Error, ErrorKind, Result};

use super::client::{Client, about, message, pod_of};
use super::disruptions;
use super::gang;
use super::kinds::Kind;
use super::status::Job;
use crate::changes::{Look, Reported};
use crate::kubernetes::{Change, Cluster, Pod, PodEvent, Resource, changes, credentials, is_forbidden};

/// The merged changes of several watches.
type Changes = SelectAll<BoxStream<'static, (Of, Result<Change<Seen>>)>>;

/// The kind of objects of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Jobs(Kind),
    Pods,
    Events,
}

/// The kept part of a watched object.
#[derive(Debug)]
pub(super) enum Seen {
    Job(Job),
    Pod(Pod),
    Event(PodEvent),
}

impl Seen {
    pub(super) fn of(of: Of, mut object: DynamicObject) -> Self {
        match of {
            Of::Pods => Self::Pod(Pod::of(&object)),
            Of::Events => Self::Event(PodEvent::of(&object)),
            Of::Jobs(kind) => {
                // The field managers and the last applied configuration are half of a stored object.
                object.metadata.managed_fields = None;
                Self::Job(Job { kind, object: serde_json::to_value(&object).unwrap_or_default() })
            }
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::Job(job) => job.uid(),
            Self::Pod(pod) => &pod.uid,
            Self::Event(event) => &event.uid,
        }
    }
}

pub fn watch(client: Arc<Client>, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
    let opened = async move {
        let mut wanted = BTreeSet::new();
        let mut cluster = client.cluster().await?.clone();
        let mut kinds: Vec<Kind> = Vec::new();
        for handle in &filter.handles {
            let named = client.named(handle).await?;
            cluster = named.cluster.clone();
            kinds.push(named.kind);
            // A job that is already gone has no event to come.
            wanted.insert(client.job(&named).await?.uid().to_owned());
        }
        if kinds.is_empty() {
            kinds = client.served().await?.to_vec();
        }
        kinds.sort_unstable();
        kinds.dedup();
        let state = Watcher::new(client, &cluster, kinds, filter, wanted);
        Ok(stream::try_unfold(state, |mut state| async move {
            Ok(state.next().await?.map(|event| (event, state)))
        }))
    };
    stream::once(opened).try_flatten().boxed()
}

/// How long the end of a failed job waits for its pods to show how it failed: their watch may lag behind the
/// job's.
const PODS_BEHIND: Duration = Duration::from_secs(3);

/// How long after the end of a job whose master decides it the other ranks are waited for: one that fails then is an error of a
/// job that its operator calls succeeded. The agents of torchrun end together.
const RANKS_BEHIND: Duration = Duration::from_secs(15);

/// Number of pods from which changes are processed together.
const MANY: usize = 256;
/// They are processed once no further change came for this long.
const SETTLED: Duration = Duration::from_millis(250);
/// Longest delay of that processing.
const LONGEST_UNLOOKED: Duration = Duration::from_secs(1);

/// Largest number of events, and of deleted pods, that are kept.
const MOST_KEPT: usize = 4096;

pub(super) struct Watcher {
    client: Arc<Client>,
    target: String,
    filter: JobFilter,
    /// Uids of the jobs that the filter names by handle and that have not ended.
    wanted: BTreeSet<String>,
    by_handle: bool,
    changes: Changes,
    /// By uid.
    jobs: BTreeMap<String, Job>,
    pods: BTreeMap<String, Pod>,
    /// Pods that ended and are gone: those of a failed MPIJob or TrainJob are deleted before its condition
    /// shows that it failed.
    ghosts: BTreeMap<String, Pod>,
    events: BTreeMap<String, PodEvent>,
    /// What was reported of each job.
    reported: BTreeMap<String, Known>,
    /// Failed jobs whose pods do not show the cause yet, and the deadline for that.
    unexplained: BTreeMap<String, Instant>,
    ready: VecDeque<JobEvent>,
    /// Jobs of many pods that changed and are not processed yet.
    dirty: BTreeSet<String>,
    /// Time of the oldest such change.
    dirty_since: Option<Instant>,
    /// Watches that sent their first list.
    listed: Vec<Of>,
    watches: usize,
    /// Kinds of jobs whose watches were refused.
    refused_kinds: usize,
    lost: bool,
}

#[derive(Default)]
struct Known {
    reported: Reported,
    findings: BTreeSet<String>,
    /// By object, reason and message: the number of occurrences.
    events: BTreeMap<(String, String, String), u64>,
    tries: Tries,
}

/// How often each place in a job was filled again. Container restarts are counted by the kubelet; pods that
/// are created again (restart policy `ExitCode`, an eviction, a Job's next try) are not counted anywhere
/// else.
#[derive(Default)]
struct Tries {
    /// By role and number: the present pod, and the number of earlier ones.
    places: BTreeMap<(String, u32), (String, u32)>,
}

impl Tries {
    /// Returns the attempt number of these pods.
    fn attempt(&mut self, job: &Job, pods: &[&Pod]) -> u32 {
        // A pod that ended or is terminating may exist beside the next one of its place.
        let here = pods.iter().filter(|pod| !pod.ended() && !pod.deleting);
        let tries = here.map(|pod| {
            let place = job.kind.place(pod);
            let (uid, before) =
                self.places.entry((place.role, place.replica)).or_insert_with(|| (pod.uid.clone(), 0));
            if *uid != pod.uid {
                uid.clone_from(&pod.uid);
                *before += 1;
            }
            before.saturating_add(pod.restarts())
        });
        tries.max().unwrap_or(0)
    }

    /// Forgets the places: pods that are created after a suspension are not a new attempt.
    fn forget(&mut self) {
        self.places.clear();
    }
}

impl Watcher {
    fn new(
        client: Arc<Client>,
        cluster: &Cluster,
        kinds: Vec<Kind>,
        filter: JobFilter,
        wanted: BTreeSet<String>,
    ) -> Self {
        let mut all = SelectAll::new();
        let mut of: Vec<(Of, Resource)> =
            kinds.into_iter().map(|kind| (Of::Jobs(kind), kind.resource())).collect();
        of.extend([(Of::Pods, Resource::PODS), (Of::Events, Resource::EVENTS)]);
        let watches = of.len();
        for (of, resource) in of {
            let seen = changes(cluster, &resource, "", move |object| Seen::of(of, object));
            all.push(seen.map(move |change| (of, change)).boxed());
        }
        all.push(credentials(cluster).map(|change| (Of::Pods, change)).boxed());
        Self::over(client, all, watches, filter, wanted)
    }

    /// Creates a watcher over the given watches.
    pub(super) fn over(
        client: Arc<Client>,
        changes: Changes,
        watches: usize,
        filter: JobFilter,
        wanted: BTreeSet<String>,
    ) -> Self {
        Self {
            target: client.target.clone(),
            client,
            by_handle: !filter.handles.is_empty(),
            filter,
            wanted,
            changes,
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            events: BTreeMap::new(),
            reported: BTreeMap::new(),
            unexplained: BTreeMap::new(),
            ready: VecDeque::new(),
            dirty: BTreeSet::new(),
            dirty_since: None,
            listed: Vec::new(),
            watches,
            refused_kinds: 0,
            lost: false,
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<JobEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.by_handle && self.wanted.is_empty() {
                return Ok(None);
            }
            let next = match self.unexplained.values().min() {
                _ if self.dirty_since.is_some() => {
                    let late = self.dirty_since.is_some_and(|since| since.elapsed() > LONGEST_UNLOOKED);
                    let next = match late {
                        true => None,
                        false => timeout(SETTLED, self.changes.next()).await.ok(),
                    };
                    let Some(next) = next else {
                        self.look_at_dirty();
                        continue;
                    };
                    next
                }
                None => self.changes.next().await,
                Some(until) => {
                    let Ok(next) = timeout_at(*until, self.changes.next()).await else {
                        self.look_at_all();
                        continue;
                    };
                    next
                }
            };
            let Some((of, change)) = next else { return Ok(None) };
            match change {
                Ok(change) => self.change(of, change),
                Err(error) => self.refused(of, error)?,
            }
        }
    }

    /// Handles a refused watch: events may be hidden, and jobs of one kind may be; pods may not.
    fn refused(&mut self, of: Of, error: Error) -> Result<()> {
        let hidden = is_forbidden(&error);
        let others = self.watches > 3 || !self.by_handle;
        match of {
            Of::Events if hidden => {}
            // Without the right to any kind there is nothing to watch.
            Of::Jobs(_)
                if others
                    && (hidden || error.kind() == ErrorKind::Unsupported)
                    && self.refused_kinds + 3 < self.watches =>
            {
                self.refused_kinds += 1;
            }
            _ => return Err(error),
        }
        self.listed.push(of);
        self.look_at_all();
        Ok(())
    }

    fn change(&mut self, of: Of, change: Change<Seen>) {
        match change {
            Change::Lost(reason) => self.connection(true, reason),
            Change::Back => self.connection(false, String::new()),
            Change::All(list) => {
                let there: BTreeSet<String> = list.iter().map(|seen| seen.uid().to_owned()).collect();
                let gone: Vec<String> = match of {
                    Of::Jobs(kind) => {
                        let ours =
                            self.jobs.iter().filter(|(uid, job)| job.kind == kind && !there.contains(*uid));
                        ours.map(|(uid, _)| uid.clone()).collect()
                    }
                    Of::Pods => self.pods.keys().filter(|uid| !there.contains(*uid)).cloned().collect(),
                    Of::Events => Vec::new(),
                };
                gone.iter().for_each(|uid| self.gone(of, uid));
                list.into_iter().for_each(|seen| self.set(seen));
                if !self.listed.contains(&of) {
                    self.listed.push(of);
                }
                if let Of::Jobs(kind) = of {
                    self.missing(kind, &there);
                }
                self.look_at_all();
            }
            Change::Set(object) => {
                let jobs = self.concerned(&object);
                self.set(object);
                self.changed(jobs);
            }
            Change::Gone(object) => {
                let (jobs, uid) = (self.concerned(&object), object.uid().to_owned());
                // The last state of a deleted object may be the first that shows its end.
                if of != Of::Events {
                    self.set(object);
                }
                self.gone(of, &uid);
                self.changed(jobs);
            }
        }
    }

    fn connection(&mut self, lost: bool, reason: String) {
        // Several watches lose the same connection.
        if std::mem::replace(&mut self.lost, lost) != lost {
            self.ready.push_back(JobEvent::Disconnected { lost, reason });
        }
    }

    /// Handles jobs that the filter names by handle and that are missing in the first list: they are gone.
    fn missing(&mut self, kind: Kind, there: &BTreeSet<String>) {
        let handles: Vec<JobHandle> = self.filter.handles.clone();
        for handle in handles {
            let Some(uid) = handle.uid() else { continue };
            let ours = handle.parts().get(1).is_some_and(|word| word == kind.word());
            if ours && !there.contains(uid) && self.wanted.remove(uid) {
                self.ready.push_back(JobEvent::Gone { job: handle });
            }
        }
    }

    /// Processes changed jobs: at once, or, for jobs with so many pods that this is expensive, when no other
    /// change is waiting.
    fn changed(&mut self, jobs: Vec<String>) {
        if self.pods.len() < MANY {
            jobs.iter().for_each(|uid| self.look(uid));
        } else {
            self.dirty.extend(jobs);
            self.dirty_since.get_or_insert_with(Instant::now);
        }
    }

    /// Drops old events: they exist for an hour in the API server, and only the newest are kept here.
    fn drop_old_events(&mut self) {
        let mut times: Vec<_> = self.events.values().map(|event| event.time).collect();
        times.sort_unstable();
        if let Some(oldest) = times.get(times.len().saturating_sub(MOST_KEPT)).copied() {
            self.events.retain(|_, event| event.time >= oldest);
        }
    }

    fn look_at_dirty(&mut self) {
        self.dirty_since = None;
        let jobs = std::mem::take(&mut self.dirty);
        jobs.iter().for_each(|uid| self.look(uid));
    }

    fn set(&mut self, seen: Seen) {
        match seen {
            Seen::Pod(pod) => {
                self.pods.insert(pod.uid.clone(), pod);
            }
            Seen::Event(event) => {
                self.events.insert(event.uid.clone(), event);
                if self.events.len() > 2 * MOST_KEPT {
                    self.drop_old_events();
                }
            }
            Seen::Job(job) => {
                let uid = job.uid().to_owned();
                if self.by_handle && !self.wanted.contains(&uid) && !self.reported.contains_key(&uid) {
                    return;
                }
                if !self.filter.foreign && job.submission().is_none() {
                    return;
                }
                if !self.filter.fits(&job.labels()) {
                    // Labels of a job can change while it runs.
                    return self.gone(Of::Jobs(job.kind), &uid);
                }
                self.jobs.insert(uid, job);
            }
        }
    }

    fn gone(&mut self, of: Of, uid: &str) {
        match of {
            Of::Pods => {
                if let Some(pod) = self.pods.remove(uid).filter(|pod| pod.exit().is_some()) {
                    self.client.remember(pod.clone());
                    self.ghosts.insert(uid.to_owned(), pod);
                    if self.ghosts.len() > MOST_KEPT {
                        self.ghosts.pop_first();
                    }
                }
            }
            Of::Events => {}
            Of::Jobs(_) => {
                if let Some(job) = self.jobs.remove(uid) {
                    let reported = self.reported.remove(uid).unwrap_or_default();
                    self.unexplained.remove(uid);
                    let pods = self.pods.values().chain(self.ghosts.values());
                    let pods: Vec<&Pod> = pods.filter(|pod| pod_of(pod, &job)).collect();
                    let end = job.summary(&self.target, &pods);
                    if end.phase.is_terminal() && !reported.reported.has_ended() {
                        self.ready.push_back(JobEvent::Status { job: end });
                    }
                    self.ghosts.retain(|_, pod| !pod_of(pod, &job));
                    let ended = self.by_handle && !self.wanted.remove(uid);
                    if !ended {
                        self.ready.push_back(JobEvent::Gone { job: job.handle(&self.target) });
                    }
                }
            }
        }
    }

    /// Returns the jobs that a change may affect.
    fn concerned(&self, seen: &Seen) -> Vec<String> {
        let ours = |job: &Job| match seen {
            Seen::Job(own) => own.uid() == job.uid(),
            Seen::Pod(pod) => pod.labels.get(job.kind.job_label()).is_some_and(|name| name == job.name()),
            Seen::Event(event) if event.about.0 == "Pod" => {
                self.pods.get(&event.about.2).is_some_and(|pod| pod_of(pod, job))
                    || disruptions::is_of(job, event)
            }
            Seen::Event(event) => about(job, &HashSet::new(), event),
        };
        let known = self.jobs.iter().filter(|(_, job)| ours(job)).map(|(uid, _)| uid.clone());
        match seen {
            Seen::Job(job) => vec![job.uid().to_owned()],
            _ => known.collect(),
        }
    }

    fn look_at_all(&mut self) {
        let uids: Vec<String> = self.jobs.keys().cloned().collect();
        uids.iter().for_each(|uid| self.look(uid));
    }

    /// Reports what is new of a job.
    fn look(&mut self, uid: &str) {
        // Before the first list of the pods, a running job would appear to have none.
        let complete = self.listed.contains(&Of::Pods) && self.listed.len() >= self.watches;
        let Some(job) = self.jobs.get(uid).filter(|_| complete) else { return };
        let pods: Vec<&Pod> = self.pods.values().filter(|pod| pod_of(pod, job)).collect();
        let uids: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let events: Vec<&PodEvent> = self.events.values().filter(|event| about(job, &uids, event)).collect();
        let job_state = self.reported.entry(uid.to_owned()).or_default();
        let handle = job.handle(&self.target);
        let ghosts: Vec<&Pod> = self.ghosts.values().filter(|pod| pod_of(pod, job)).collect();
        // Of thousands of pods none is copied as long as they run.
        let (mut known, mut gone) = (Vec::new(), Vec::new());
        let mut all: Vec<&Pod> = pods.iter().copied().chain(ghosts).collect();
        if events.iter().any(|event| disruptions::may_disrupt(event)) {
            known.extend(all.into_iter().cloned());
            gone = disruptions::complete(job, &mut known, &events);
            all = known.iter().chain(&gone).collect();
        }
        let summary = job.summary_with(&self.target, &pods, &all);
        let behind = match summary.phase {
            JobPhase::Failed if summary.exit_code.is_none() => Some(PODS_BEHIND),
            JobPhase::Succeeded => job.ranks_end_within(RANKS_BEHIND),
            _ => None,
        };
        if let Some(behind) = behind.filter(|_| !job_state.reported.has_ended())
            && pods.iter().any(|pod| !pod.ended())
        {
            let now = Instant::now();
            let until = *self.unexplained.entry(uid.to_owned()).or_insert(now + behind);
            if now < until {
                return;
            }
        }
        self.unexplained.remove(uid);
        let is_over = summary.phase.is_terminal() && !job.holds_gpus_after_end(&pods);
        if !self.filter.ended && is_over && job_state.reported.summary.is_none() {
            return;
        }
        for event in &events {
            // Operators repeat that a job runs; only warnings are repeated, and less and less often.
            let what = (event.about.2.clone(), event.reason.clone(), event.message.clone());
            let before = job_state.events.get(&what).copied();
            if before.is_none_or(|count| event.warning && count.saturating_mul(2) <= event.count) {
                job_state.events.insert(what, event.count);
                self.ready.push_back(message(&handle, event));
            }
        }
        if matches!(summary.phase, JobPhase::Suspended | JobPhase::Cancelled) {
            job_state.tries.forget();
        }
        let attempt = job_state.tries.attempt(job, &pods);
        let gang = gang::finding(job, &pods, self.pods.values());
        for finding in gang.into_iter().chain(job.findings(&pods, &gone, &events)) {
            if job_state.findings.insert(finding.code.clone()) && !summary.phase.is_terminal() {
                self.ready.push_back(JobEvent::Stuck { job: handle.clone(), finding });
            }
        }
        if let Some((_, left)) = job.untaken_for(&pods).filter(|(_, left)| !left.is_zero()) {
            // Nothing may happen until then, so the job is processed again at that time.
            self.unexplained.insert(uid.to_owned(), Instant::now() + left + Duration::from_secs(1));
        }
        if summary.phase.is_terminal() {
            self.wanted.remove(uid);
        }
        let why = summary.reason.clone();
        let look = Look { replicas: job.replicas(&pods), attempt, why, ..Look::of(summary) };
        self.ready.extend(job_state.reported.changes(look));
    }
}
