//! The client for jobs of a cluster.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::OnceCell;
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId};
use weftrun_core::text::fnv1a;
use weftrun_core::{Error, ErrorKind, Result, Severity};

use super::companions::adopt_left;
use super::config::KubeflowTarget;
use super::disruptions;
use super::error;
use super::gang;
use super::kinds::Kind;
use super::namespace;
use super::nvlink_domain::{self, Domain};
use super::pod::{CODE, SUBMISSION};
use super::status::Job;
use super::usage;
use crate::cache::Cache;
use crate::kubernetes::{Cluster, ClusterConfig, Pod, PodEvent, Resource, is_forbidden};

/// How long the API server is tried again after a lost answer, and how long terminating pods are waited for.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Number of job names in one label selector, which is a part of a URL.
const NAMES: usize = 100;
/// Lists of pods that are asked for at once.
const LISTS_AT_ONCE: usize = 4;

/// Number of nodes from which only warnings of a job's pods are read, not their placement and start.
const MANY: u32 = 256;

/// Largest number of deleted pods that are remembered.
const MOST_REMEMBERED: usize = 4096;

/// A target's connection.
#[derive(Debug)]
pub struct Client {
    pub target: String,
    pub settings: KubeflowTarget,
    pub config: ClusterConfig,
    state: PathBuf,
    cluster: OnceCell<Cluster>,
    pub served: OnceCell<Vec<Kind>>,
    /// Pods that this process saw end and disappear, newest last.
    gone: Mutex<VecDeque<Pod>>,
}

/// A job that a handle names.
#[derive(Clone, Debug)]
pub struct Named {
    pub cluster: Cluster,
    pub kind: Kind,
    pub name: String,
    pub uid: Option<String>,
    pub handle: JobHandle,
}

impl Client {
    /// Creates a client; reads and sends nothing yet.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        let settings = KubeflowTarget::of(target)?;
        let config = settings.cluster(target);
        let (cluster, served) = (OnceCell::new(), OnceCell::new());
        let gone = Mutex::new(VecDeque::new());
        let (target, state) = (target.name.clone(), target.state_dir.clone());
        Ok(Self { target, settings, config, state, cluster, served, gone })
    }

    /// Keeps the state of a deleted pod: the operators delete the pods of failed jobs, and with them how they
    /// ended.
    pub fn remember(&self, pod: Pod) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|known| known.uid != pod.uid);
        gone.push_back(pod);
        if gone.len() > MOST_REMEMBERED {
            gone.pop_front();
        }
    }

    /// Returns the connection, created on first use: rendering needs none.
    pub async fn cluster(&self) -> Result<&Cluster> {
        self.cluster.get_or_try_init(|| self.config.connect()).await
    }

    /// Resolves a handle.
    pub async fn named(&self, handle: &JobHandle) -> Result<Named> {
        let [namespace, kind, name] = handle.parts() else { return Err(error::foreign(handle)) };
        if handle.backend() != "kubeflow" {
            return Err(error::foreign(handle));
        }
        let cluster = Cluster { namespace: namespace.clone(), ..self.cluster().await?.clone() };
        let uid = handle.uid().map(str::to_owned);
        Ok(Named { cluster, kind: Kind::of_word(kind)?, name: name.clone(), uid, handle: handle.clone() })
    }

    /// Returns the cache of the facts of a connection: of a server, a namespace, and the identity in the kubeconfig.
    pub async fn cache(&self) -> Result<Cache> {
        let Cluster { server, context, namespace, .. } = self.cluster().await?;
        let of = format!("{server} {context} {namespace} {}", self.config.files());
        let name = format!("facts-{:016x}.json", fnv1a(of.as_bytes()));
        Ok(Cache::new(self.state.join(name), &of))
    }

    pub async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        let selector = format!("{SUBMISSION}={id}");
        let jobs = self.jobs(&selector).await?;
        let Some(job) = jobs.first() else { return Ok(None) };
        // The submitting process may have been interrupted before this step.
        adopt_left(self.cluster().await?, job).await;
        Ok(Some(job.handle(&self.target)))
    }

    /// Returns the jobs of a label selector in the namespace.
    pub async fn jobs(&self, selector: &str) -> Result<Vec<Job>> {
        let cluster = self.cluster().await?;
        let (mut jobs, mut listed, mut forbidden) = (Vec::new(), false, None);
        let served = self.served().await?;
        let lists = served.iter().map(|kind| {
            let resource = kind.resource();
            async move { cluster.list(&resource, selector).await }
        });
        for (kind, list) in served.iter().zip(join_all(lists).await) {
            match list {
                Ok(objects) => {
                    listed = true;
                    jobs.extend(objects.into_iter().map(|object| Job { kind: *kind, object }));
                }
                // The user may have rights to one kind and not to another.
                Err(error) if is_forbidden(&error) => forbidden = Some(error),
                Err(error) => return Err(error),
            }
        }
        match forbidden {
            Some(error) if !listed => Err(error),
            Some(error) => {
                tracing::warn!("jobs may be missing from the list: {}", error.message());
                Ok(jobs)
            }
            None => Ok(jobs),
        }
    }

    /// Returns jobs, newest first.
    pub async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let jobs = if filter.handles.is_empty() {
            self.jobs(if filter.foreign { "" } else { SUBMISSION }).await?
        } else {
            let mut jobs = Vec::new();
            for handle in &filter.handles {
                jobs.push(self.job(&self.named(handle).await?).await?);
            }
            jobs
        };
        let (mut summaries, mut unclear) = (Vec::new(), Vec::new());
        for job in jobs.into_iter().filter(|job| filter.fits(&job.labels())) {
            match job.summary_without_pods(&self.target) {
                Some(summary) => summaries.push(summary),
                None => unclear.push(job),
            }
        }
        let pods = self.pods_for(&unclear).await?;
        for job in &unclear {
            let pods = pods_of(job, &pods);
            let mut summary = job.summary(&self.target, &pods);
            said_of_leftovers(&mut summary, job, &pods);
            // A job that has ended and holds GPUs still takes them from others.
            if filter.ended || !summary.phase.is_terminal() || job.holds_gpus_after_end(&pods) {
                summaries.push(summary);
            }
        }
        summaries.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| a.name.cmp(&b.name)));
        summaries.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(summaries)
    }

    /// Returns the pods that the summaries of these jobs need: of a job that has succeeded, only those that
    /// still run.
    async fn pods_for(&self, jobs: &[Job]) -> Result<Vec<Pod>> {
        let cluster = self.cluster().await?;
        let mut wanted: BTreeMap<(&str, bool), Vec<&str>> = BTreeMap::new();
        for job in jobs {
            let succeeded = job.phase(&[]).0 == JobPhase::Succeeded;
            // A longer name is not a valid label value: no pod can have it.
            if job.name().len() <= 63 {
                wanted.entry((job.kind.job_label(), succeeded)).or_default().push(job.name());
            }
        }
        let mut asked: Vec<(String, &'static str)> = Vec::new();
        for ((label, succeeded), names) in wanted {
            let fields = if succeeded { "status.phase!=Succeeded,status.phase!=Failed" } else { "" };
            let of_names = |names: &[&str]| (format!("{label} in ({})", names.join(",")), fields);
            asked.extend(names.chunks(NAMES).map(of_names));
        }
        let cluster = &cluster;
        let ask = |(labels, fields): (String, &'static str)| async move {
            let read = |object| Pod::of_json(&object);
            cluster.list_as(&Resource::PODS, &labels, fields, read).await
        };
        let answers: Vec<_> = asked.into_iter().map(ask).collect();
        stream::iter(answers).buffered(LISTS_AT_ONCE).try_concat().await
    }

    /// Returns the object that a handle names, with the handle's uid if it has one.
    pub async fn job(&self, named: &Named) -> Result<Job> {
        let object = match named.cluster.get(&named.kind.resource(), &named.name).await {
            Ok(object) => object,
            Err(error) => return Err(namespace::explained(&named.cluster, error).await),
        };
        let job = Job { kind: named.kind, object };
        if named.uid.as_deref().is_some_and(|uid| uid != job.uid()) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the job `{}` is gone; another one has its name now", named.name),
            )
            .with("handle", &named.handle));
        }
        Ok(job)
    }

    pub async fn describe(&self, handle: &JobHandle) -> Result<JobDetail> {
        let named = self.named(handle).await?;
        let job = self.job(&named).await?;
        let selector = named.kind.selector(&named.name);
        let (pods, events, used) = tokio::join!(
            named.cluster.list_as(&Resource::PODS, &selector, "", |object| Pod::of_json(&object)),
            events_of(&named.cluster, &job),
            // Most clusters serve no metrics of pods, and few say who may read them.
            named.cluster.list_as(&Resource::POD_METRICS, &selector, "", |object| usage::memory(&object))
        );
        let (mut pods, mut events) = (pods?, events?);
        pods.retain(|pod| pod_of(pod, &job));
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for pod in gone.into_iter().rev().filter(|pod| pod_of(pod, &job)) {
            // Of several pods with one name, the newest counts.
            if !pods.iter().any(|known| known.name == pod.name) {
                pods.push(pod);
            }
        }
        let uids: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        events.retain(|event| about(&job, &uids, event));
        events.sort_by_key(|event| event.time);
        let told: Vec<&PodEvent> = events.iter().collect();
        let mut gone = disruptions::complete(&job, &mut pods, &told);
        disruptions::name_preemptors(&named.cluster, &mut pods).await;
        disruptions::name_preemptors(&named.cluster, &mut gone).await;
        let pods: Vec<&Pod> = pods.iter().collect();
        let all: Vec<&Pod> = pods.iter().copied().chain(&gone).collect();
        let mut detail = JobDetail::new(job.summary_with(&self.target, &pods, &all));
        said_of_leftovers(&mut detail.summary, &job, &pods);
        detail.replicas = job.replicas(&all);
        detail.replicas.sort_by(|a, b| (&a.role, a.index).cmp(&(&b.role, b.index)));
        detail.findings = job.findings(&pods, &gone, &told);
        if job.is_deleted() || pods.iter().any(|pod| pod.deleting) {
            detail.findings.splice(0..0, namespace::deletion(&named.cluster).await.ok().flatten());
        }
        if gang::is_partial(&pods) {
            // Without the right to the pods of others, nothing is known of them.
            let others = named.cluster.list_as(&Resource::PODS, "", "", |object| Pod::of_json(&object)).await;
            detail.findings.splice(0..0, gang::finding(&job, &pods, &others.unwrap_or_default()));
        }
        if nvlink_domain::may_have(&pods) {
            // A cluster without the driver for NVLink domains has none, and nobody need have the right to them.
            let domains = named
                .cluster
                .list_as(&Resource::COMPUTE_DOMAINS, "", "", |object| Domain::of_json(&object))
                .await;
            detail.findings.extend(nvlink_domain::findings(&domains.unwrap_or_default(), &pods));
        }
        detail.history = events.iter().map(|event| message(&detail.summary.handle, event)).collect();
        detail.facts = vec![
            ("namespace".into(), named.cluster.namespace.clone()),
            ("kind".into(), named.kind.served_as()),
            ("context".into(), named.cluster.context.clone()),
        ];
        detail.facts.extend(usage::fact(&used.unwrap_or_default()));
        let code = job.object["metadata"]["annotations"][CODE].as_str();
        detail.facts.extend(code.map(|code| ("code".to_owned(), code.to_owned())));
        Ok(detail)
    }
}

/// Returns the events of a job and, for its pods, all or only the warnings. The user may have no right to
/// them.
///
/// The API server cannot select events by a job's pods, and each pod that starts has four: of a large job only warnings are read.
async fn events_of(cluster: &Cluster, job: &Job) -> Result<Vec<PodEvent>> {
    let read = |object| PodEvent::of_json(&object);
    let fields: &[&str] = if job.nodes() <= MANY {
        &[""]
    } else {
        &["involvedObject.kind!=Pod", "involvedObject.kind=Pod,type!=Normal"]
    };
    let mut events = Vec::new();
    for fields in fields {
        match cluster.list_as(&Resource::EVENTS, "", fields, read).await {
            Ok(found) => events.extend(found),
            Err(error) if is_forbidden(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(events)
}

/// Adds to the reason of an ended job that some of its pods still run.
fn said_of_leftovers(summary: &mut JobSummary, job: &Job, pods: &[&Pod]) {
    let Some(finding) = job.left_over(pods) else { return };
    let before = std::mem::take(&mut summary.reason);
    let stop = if before.is_empty() { "" } else { "; " };
    summary.reason = format!("{before}{stop}{}", finding.message);
}

pub fn pods_of<'a>(job: &Job, pods: &'a [Pod]) -> Vec<&'a Pod> {
    pods.iter().filter(|pod| pod_of(pod, job)).collect()
}

/// Returns whether a pod belongs to a job. An older pod belonged to an earlier job of that name, and is still
/// terminating.
pub fn pod_of(pod: &Pod, job: &Job) -> bool {
    let named = pod.labels.get(job.kind.job_label()).is_some_and(|name| name == job.name());
    named && (pod.created.is_none() || pod.created >= job.created())
}

/// Returns whether an event is about a job, one of its pods (by uid, or by name where it is gone), or an object that an
/// operator creates between them.
pub fn about(job: &Job, pods: &HashSet<&str>, event: &PodEvent) -> bool {
    let (kind, name, uid) = &event.about;
    if kind == "Pod" {
        return pods.contains(uid.as_str()) || disruptions::is_of(job, event);
    }
    if uid == job.uid() {
        return true;
    }
    let between = matches!(kind.as_str(), "Job" | "JobSet");
    between && name.strip_prefix(job.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Converts an event to a job event.
pub fn message(job: &JobHandle, event: &PodEvent) -> JobEvent {
    JobEvent::Message {
        job: job.clone(),
        severity: if event.warning { Severity::Warning } else { Severity::Info },
        reason: event.reason.clone(),
        text: match event.count {
            0 | 1 => format!("{}: {}", event.about.1, event.message),
            count => format!("{}: {} ({count} times)", event.about.1, event.message),
        },
        time: event.time,
    }
}
