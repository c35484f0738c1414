//! Talking to the cluster about jobs.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::sleep;
use weftrun_core::backend::{ClusterFacts, Rendered, TargetConfig};
use weftrun_core::job::{Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId};
use weftrun_core::{Error, ErrorKind, Finding, Result, Severity};

use super::cache::Cache;
use super::config::Settings;
use super::error;
use super::kinds::Kind;
use super::pod::SUBMISSION;
use super::status::{CANCELLED, Job};
use crate::kubernetes::{
    Cluster, ClusterConfig, Pod, PodEvent, Resource, Right, Write, is_conflict, is_not_found, is_unsent,
    namespace_facts, rights,
};

/// How long a submit looks for the API server again after a lost answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most pods that are gone and yet remembered.
const MOST_REMEMBERED: usize = 4096;

/// A target's connection.
#[derive(Debug)]
pub struct Client {
    pub target: String,
    pub settings: Settings,
    pub config: ClusterConfig,
    state: PathBuf,
    cluster: OnceCell<Cluster>,
    served: OnceCell<Vec<Kind>>,
    /// Pods that this process saw end and go, newest last.
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
    /// Makes a client; nothing is read or sent yet.
    pub fn new(target: &TargetConfig) -> Result<Self> {
        let settings = Settings::of(target)?;
        let config = settings.cluster(target);
        let (cluster, served) = (OnceCell::new(), OnceCell::new());
        let gone = Mutex::new(VecDeque::new());
        let (target, state) = (target.name.clone(), target.state_dir.clone());
        Ok(Self { target, settings, config, state, cluster, served, gone })
    }

    /// Keeps what is known of a pod that is gone: of failed jobs the operators delete the pods, and with them how they ended.
    pub fn remember(&self, pod: Pod) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|known| known.uid != pod.uid);
        gone.push_back(pod);
        if gone.len() > MOST_REMEMBERED {
            gone.pop_front();
        }
    }

    /// The connection, made on first use: rendering needs none.
    pub async fn cluster(&self) -> Result<&Cluster> {
        self.cluster.get_or_try_init(|| self.config.connect()).await
    }

    /// The kinds the cluster serves.
    pub async fn served(&self) -> Result<&[Kind]> {
        let cluster = self.cluster().await?;
        let ask = || async {
            if let Some(facts) = self.cache().await?.read().await {
                return Ok(facts.serves.iter().filter_map(|entry| Kind::of_served(entry)).collect());
            }
            let groups: std::collections::BTreeSet<_> =
                Kind::ALL.map(|kind| kind.resource().api_version()).into();
            let mut served = Vec::new();
            for api_version in groups {
                let list = match cluster.raw(&format!("/apis/{api_version}")).await {
                    Ok(list) => list,
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => {
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let names: Vec<_> = list["resources"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|r| r["name"].as_str())
                    .collect();
                served.extend(Kind::ALL.into_iter().filter(|kind| {
                    kind.resource().api_version() == api_version && names.contains(&kind.resource().plural)
                }));
            }
            Ok(served)
        };
        self.served.get_or_try_init(ask).await.map(Vec::as_slice)
    }

    /// What a handle names.
    pub async fn named(&self, handle: &JobHandle) -> Result<Named> {
        let [namespace, kind, name] = handle.parts() else { return Err(error::foreign(handle)) };
        if handle.backend() != "kubeflow" {
            return Err(error::foreign(handle));
        }
        let cluster = Cluster { namespace: namespace.clone(), ..self.cluster().await?.clone() };
        let uid = handle.uid().map(str::to_owned);
        Ok(Named { cluster, kind: Kind::of_word(kind)?, name: name.clone(), uid, handle: handle.clone() })
    }

    /// Where the facts are kept.
    async fn cache(&self) -> Result<Cache> {
        Ok(Cache::new(&self.state, self.cluster().await?, &self.config.files()))
    }

    /// What is known of the cluster; it is asked if nothing fresh is known, or a fresh answer is wanted.
    pub async fn discover(&self, fresh: bool) -> Result<ClusterFacts> {
        let cache = self.cache().await?;
        if fresh {
            cache.forget().await;
        } else if let Some(facts) = cache.read().await {
            return Ok(facts);
        }
        let facts = self.ask().await?;
        cache.write(&facts).await;
        Ok(facts)
    }

    /// Asks the cluster for everything one may know.
    async fn ask(&self) -> Result<ClusterFacts> {
        let cluster = self.cluster().await?;
        let mut facts = ClusterFacts::default();
        let wanted = wanted_rights();
        let (base, served, allowed) =
            tokio::join!(namespace_facts(cluster, &mut facts), self.served(), rights(cluster, &wanted));
        base?;
        let served = served?;
        facts.serves.extend(served.iter().map(|kind| kind.served_as()));
        facts.ids.insert("namespace".into(), cluster.namespace.clone());
        for (right, allowed) in wanted.iter().zip(allowed) {
            self.note_right(&mut facts, right, allowed, served);
        }
        if served.contains(&Kind::TrainJob) {
            self.trainer(cluster, &mut facts).await;
        }
        Ok(facts)
    }

    fn note_right(&self, facts: &mut ClusterFacts, right: &Right, allowed: Option<bool>, served: &[Kind]) {
        if right.resource == Resource::CONFIG_MAPS {
            facts.extra.insert("may-create-configmaps".into(), json!(allowed));
            return;
        }
        let of_kind = Kind::ALL.into_iter().find(|kind| kind.resource() == right.resource);
        if allowed != Some(false) || of_kind.is_some_and(|kind| !served.contains(&kind)) {
            return;
        }
        let what = match right.subresource {
            "" => right.resource.plural.to_owned(),
            sub => format!("{}/{sub}", right.resource.plural),
        };
        facts.notes.push(
            Finding::warning("K8S-NO-RIGHT", format!("you may not {} {what} in this namespace", right.verb))
                .fix("ask for a Role in this namespace that allows it"),
        );
    }

    /// The Trainer's version by the fields its kind has, and the runtimes there are.
    async fn trainer(&self, cluster: &Cluster, facts: &mut ClusterFacts) {
        let schema = cluster.raw("/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").await;
        let spec = schema.as_ref().ok().and_then(|schema| {
            let schemas = schema["components"]["schemas"].as_object()?;
            schemas
                .iter()
                .find(|(name, _)| name.ends_with(".TrainJob"))?
                .1
                .pointer("/properties/spec/properties")
        });
        let has = |field: &str| spec.is_some_and(|spec| spec.get(field).is_some());
        let version = match () {
            // 2.2 and 2.3 have the same fields; the older one's way (copy the runtime's resources) is right for both.
            () if has("runtimePatches") => Some("2.2"),
            () if has("podTemplateOverrides") => Some("2.1"),
            () if has("podSpecOverrides") => Some("2.0"),
            () => None,
        };
        if let Some(version) = version {
            facts.extra.insert("trainer-version".into(), json!(version));
        }
        let mut runtimes = Vec::new();
        for (plural, kind, namespaced) in [
            ("clustertrainingruntimes", "ClusterTrainingRuntime", false),
            ("trainingruntimes", "TrainingRuntime", true),
        ] {
            let resource =
                Resource { namespaced, ..Resource::of("trainer.kubeflow.org", "v1alpha1", plural, kind) };
            for mut runtime in cluster.list(&resource, "").await.unwrap_or_default() {
                // Items of a list do not say their kind.
                runtime["kind"] = json!(kind);
                runtimes.push(runtime);
            }
        }
        facts.extra.insert("runtimes".into(), json!(runtimes));
    }

    /// The cluster's own opinion of what would be sent. What it refuses may come of facts that are no longer so.
    pub async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let checked = self.dry_run(rendered).await;
        if !checked.as_ref().is_ok_and(Vec::is_empty) {
            self.cache().await?.forget().await;
        }
        checked
    }

    async fn dry_run(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        let cluster = self.cluster().await?;
        let mut findings = Vec::new();
        // A ConfigMap is only made where the right to make one is known, and nothing else can be wrong with it.
        for document in error::documents(rendered)?.into_iter().filter(|document| document.kind.is_some()) {
            let resource = document.resource;
            let cluster = document.in_namespace(cluster);
            match cluster.create(&resource, &document.object, Write::DryRun).await {
                Ok(_) => {}
                Err(error)
                    if is_unsent(&error)
                        || (error.kind() == ErrorKind::Credentials
                            && error.message().contains("does not know")) =>
                {
                    return Err(error);
                }
                Err(error) if is_conflict(&error) && self.is_ours(&cluster, &document, rendered).await => {}
                Err(error)
                    if error.kind() == ErrorKind::Unsupported
                        || is_conflict(&error)
                        || error.kind() == ErrorKind::Credentials =>
                {
                    return Err(error);
                }
                Err(error) => findings.extend(error::findings(error)),
            }
        }
        Ok(findings)
    }

    /// Whether the object that has the name is of this very submission.
    async fn is_ours(&self, cluster: &Cluster, document: &error::Sent, rendered: &Rendered) -> bool {
        let Ok(there) = cluster.get(&document.resource, &document.name()).await else { return false };
        there["metadata"]["labels"][SUBMISSION] == rendered.submission.as_str()
    }

    /// Creates the job once. After a lost answer the name is looked up before anything is sent again; the API server
    /// gives a name to one object only, so nothing can be there twice.
    pub async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        let base = self.cluster().await?;
        let documents = error::documents(rendered)?;
        let mut owner: Option<Job> = None;
        for document in &documents {
            let cluster = document.in_namespace(base);
            let mut object = document.object.clone();
            if let Some(owner) = &owner {
                // The ConfigMap goes with the job; pods wait for it.
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": owner.kind.resource().api_version(), "kind": owner.kind.resource().kind,
                    "name": owner.name(), "uid": owner.uid(), "controller": false, "blockOwnerDeletion": false,
                }]);
            }
            let made = match self.create_once(&cluster, document, &object, rendered).await {
                Ok(made) => made,
                Err(error) => {
                    self.cache().await?.forget().await;
                    if let Some(owner) = owner.filter(|_| !is_unsent(&error)) {
                        // Its pods would wait for the rest for ever.
                        let resource = owner.kind.resource();
                        cluster.delete(&resource, owner.name(), Some(owner.uid())).await?;
                    }
                    return Err(error);
                }
            };
            if owner.is_none() {
                let kind = document
                    .kind
                    .ok_or_else(|| Error::new(ErrorKind::Unexpected, "the first document is no job"))?;
                owner = Some(Job { kind, object: made });
            }
        }
        owner
            .map(|job| job.handle(&self.target))
            .ok_or_else(|| Error::new(ErrorKind::Unexpected, "there is nothing to submit"))
    }

    async fn create_once(
        &self,
        cluster: &Cluster,
        document: &error::Sent,
        object: &Value,
        rendered: &Rendered,
    ) -> Result<Value> {
        let began = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(200);
        let mut lost = false;
        loop {
            let error = match cluster.create(&document.resource, object, Write::Real).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            // An API server that comes back knows no Roles for a moment.
            let waits = |error: &Error| is_unsent(error) || error.kind() == ErrorKind::Credentials;
            if !is_conflict(&error) && !is_unsent(&error) && !(lost && waits(&error)) {
                return Err(error);
            }
            lost |= is_unsent(&error);
            // Is the one that is there ours? Until the server answers, nothing is sent again.
            let known = loop {
                match cluster.get(&document.resource, &document.name()).await {
                    Ok(there) => break Some(there),
                    Err(error) if is_not_found(&error) => break None,
                    Err(error) if !(lost && waits(&error)) || began.elapsed() > PATIENCE => {
                        return Err(error);
                    }
                    Err(_) => sleep(pause).await,
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            };
            match known {
                Some(there) if there["metadata"]["labels"][SUBMISSION] == rendered.submission.as_str() => {
                    return Ok(there);
                }
                Some(_) if is_conflict(&error) => return Err(error),
                Some(_) => {
                    return Err(Error::new(
                        ErrorKind::AlreadyExists,
                        format!("the name `{}` is taken", document.name()),
                    )
                    .hint("choose another name, or `--name-suffix` to make a new one"));
                }
                None if began.elapsed() > PATIENCE => return Err(error),
                None => sleep(pause).await,
            }
        }
    }

    /// The job of a submission.
    pub async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        let selector = format!("{SUBMISSION}={id}");
        Ok(self.jobs(&selector).await?.first().map(|job| job.handle(&self.target)))
    }

    /// The jobs of a label selector in the namespace.
    pub async fn jobs(&self, selector: &str) -> Result<Vec<Job>> {
        let cluster = self.cluster().await?;
        let mut jobs = Vec::new();
        for kind in self.served().await? {
            match cluster.list(&kind.resource(), selector).await {
                Ok(objects) => jobs.extend(objects.into_iter().map(|object| Job { kind: *kind, object })),
                // One may have rights to one kind and not to another.
                Err(error)
                    if error.kind() == ErrorKind::Credentials
                        && !error.message().contains("does not know") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(jobs)
    }

    /// Jobs, newest first.
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
        let cluster = self.cluster().await?;
        let pods: Vec<Pod> = cluster.list(&Resource::PODS, "").await?.iter().map(Pod::of_json).collect();
        let mut summaries: Vec<_> =
            jobs.iter().map(|job| job.summary(&self.target, &pods_of(job, &pods))).collect();
        summaries.retain(|job| filter.ended || !job.phase.is_terminal());
        summaries.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| a.name.cmp(&b.name)));
        summaries.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(summaries)
    }

    /// The object a handle names: of its uid, if it has one.
    pub async fn job(&self, named: &Named) -> Result<Job> {
        let object = named.cluster.get(&named.kind.resource(), &named.name).await?;
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

    /// Everything known of one job.
    pub async fn describe(&self, handle: &JobHandle) -> Result<JobDetail> {
        let named = self.named(handle).await?;
        let job = self.job(&named).await?;
        let selector = named.kind.selector(&named.name);
        let (pods, events) = tokio::join!(
            named.cluster.list(&Resource::PODS, &selector),
            named.cluster.list(&Resource::EVENTS, "")
        );
        let mut pods: Vec<Pod> = pods?.iter().map(Pod::of_json).collect();
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for pod in gone.into_iter().rev().filter(|pod| pod_of(pod, &job)) {
            // Of pods of one name the newest counts; a name may have been another job's before.
            let since = pod.created >= job.created();
            if since && !pods.iter().any(|known| known.name == pod.name) {
                pods.push(pod);
            }
        }
        let pods: Vec<&Pod> = pods.iter().collect();
        let mut events: Vec<PodEvent> = events.unwrap_or_default().iter().map(PodEvent::of_json).collect();
        events.retain(|event| about(&job, &pods, event));
        events.sort_by_key(|event| event.time);
        let mut detail = JobDetail::new(job.summary(&self.target, &pods));
        detail.replicas = job.replicas(&pods);
        detail.replicas.sort_by(|a, b| (&a.role, a.index).cmp(&(&b.role, b.index)));
        detail.findings = job.findings(&pods, &events.iter().collect::<Vec<_>>());
        detail.history = events.iter().map(|event| message(&detail.summary.handle, event)).collect();
        detail.facts = vec![
            ("namespace".into(), named.cluster.namespace.clone()),
            ("kind".into(), named.kind.served_as()),
            ("context".into(), named.cluster.context.clone()),
        ];
        Ok(detail)
    }

    /// Acts on a job.
    pub async fn act(&self, handle: &JobHandle, action: Action) -> Result<()> {
        let named = self.named(handle).await?;
        let job = self.job(&named).await?;
        let resource = named.kind.resource();
        let suspend = |suspend: bool| match named.kind {
            Kind::TrainJob => json!({"spec": {"suspend": suspend}}),
            _ => json!({"spec": {"runPolicy": {"suspend": suspend}}}),
        };
        let patch = match action {
            Action::Delete => return named.cluster.delete(&resource, &named.name, Some(job.uid())).await,
            Action::Cancel => {
                let (phase, _) = job.phase(&[]);
                if phase.is_terminal() {
                    return Ok(());
                }
                // Suspended, its pods go and its record stays. Kueue would start a suspended job again, so there it goes.
                if job.object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_string() {
                    return named.cluster.delete(&resource, &named.name, Some(job.uid())).await;
                }
                let mut patch = suspend(true);
                patch["metadata"] = json!({"annotations": {CANCELLED: Timestamp::now().to_string()}});
                patch
            }
            Action::Suspend => suspend(true),
            Action::Resume => {
                self.pods_are_gone(&named).await?;
                let mut patch = suspend(false);
                patch["metadata"] = json!({"annotations": {CANCELLED: Value::Null}});
                patch
            }
            Action::Hold | Action::Release => return Err(Error::unsupported("kubeflow", "hold")),
            Action::Requeue => return Err(Error::unsupported("kubeflow", "requeue")),
            Action::Signal(_) => return Err(Error::unsupported("kubeflow", "signal")),
            _ => return Err(Error::unsupported("kubeflow", "this action")),
        };
        named.cluster.patch(&resource, &named.name, &patch).await.map(drop)
    }
}

impl Client {
    /// Waits until the pods that a suspend ends are gone: training-operator takes one that is still there for a failure of the
    /// resumed job.
    async fn pods_are_gone(&self, named: &Named) -> Result<()> {
        let began = tokio::time::Instant::now();
        loop {
            let pods = named.cluster.list(&Resource::PODS, &named.kind.selector(&named.name)).await?;
            let ending = pods.iter().map(Pod::of_json).filter(|pod| pod.deleting).count();
            if ending == 0 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let message = format!("{ending} pods of the suspended job are still ending");
                return Err(Error::new(ErrorKind::Refused, message)
                    .hint("try again when they are gone")
                    .retryable());
            }
            sleep(Duration::from_millis(250)).await;
        }
    }
}

pub(super) fn wanted_rights() -> Vec<Right> {
    let of = |verb, resource, subresource| Right { verb, resource, subresource };
    let mut rights: Vec<_> = Kind::ALL.iter().map(|kind| of("create", kind.resource(), "")).collect();
    rights.extend([
        of("list", Resource::PODS, ""),
        of("watch", Resource::PODS, ""),
        of("get", Resource::PODS, "log"),
        of("list", Resource::EVENTS, ""),
        of("create", Resource::CONFIG_MAPS, ""),
    ]);
    rights
}

/// The pods of a job.
pub fn pods_of<'a>(job: &Job, pods: &'a [Pod]) -> Vec<&'a Pod> {
    pods.iter().filter(|pod| pod_of(pod, job)).collect()
}

/// Whether a pod is of a job.
pub fn pod_of(pod: &Pod, job: &Job) -> bool {
    pod.labels.get(job.kind.job_label()).is_some_and(|name| name == job.name())
}

/// Whether an event is about a job, one of its pods, or what an operator makes between.
pub fn about(job: &Job, pods: &[&Pod], event: &PodEvent) -> bool {
    let (kind, name, uid) = &event.about;
    if kind == "Pod" {
        return pods.iter().any(|pod| pod.uid == *uid);
    }
    if uid == job.uid() {
        return true;
    }
    let between = matches!(kind.as_str(), "Job" | "JobSet");
    between && name.strip_prefix(job.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// An event as what happened to a job.
pub fn message(job: &JobHandle, event: &PodEvent) -> JobEvent {
    JobEvent::Message {
        job: job.clone(),
        severity: if event.warning { Severity::Warning } else { Severity::Info },
        reason: event.reason.clone(),
        text: format!("{}: {}", event.about.1, event.message),
        time: event.time,
    }
}
