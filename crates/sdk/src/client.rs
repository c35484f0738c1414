//! The client: a registry of backends, a configuration, a journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use weftrun_core::backend::{Backend, ClusterFacts, PlannedJob, Registry, Scope, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::evidence::Form;
use weftrun_core::fabric::{FabricPlan, Profiles};
use weftrun_core::job::{JobFilter, JobHandle, JobSummary, SubmissionId};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::journal::{Journal, Record, RecordState};
use crate::{Config, Job, Plan, files};

/// Plans, submits and finds jobs. Cheap to clone (clones share connections); `Send` and `Sync`; no global state.
///
/// ```no_run
/// use weftrun::core::job::JobFilter;
/// use weftrun::prelude::*;
///
/// # async fn example() -> weftrun::Result<()> {
/// let client = Client::builder().config(Config::load()?).build()?;
/// for job in client.list("prod", &JobFilter::all()).await? {
///     println!("{} {} {}/{} nodes", job.handle, job.phase, job.ready.0, job.ready.1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    config: Config,
    catalogue: Catalogue,
    journal: Journal,
    connected: Mutex<HashMap<String, Arc<dyn Backend>>>,
}

/// Builds a [`Client`]. A program that links a backend of its own, or wants none of the linked ones, says so here:
///
/// ```
/// use weftrun::{Client, Registry};
/// let client = Client::builder().registry(Registry::empty()).build()?;
/// assert!(client.target("local").is_err());
/// # Ok::<(), weftrun::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ClientBuilder {
    registry: Option<Registry>,
    config: Option<Config>,
}

impl ClientBuilder {
    /// Uses these backends instead of those linked in.
    #[must_use]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Uses this configuration; without it, an empty one whose state is in a folder of the user's own under the
    /// system's temporary folder.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Ends the builder.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] where two backends have one name, or where no configuration was given and the
    /// temporary folder of this user belongs to somebody else.
    pub fn build(self) -> Result<Client> {
        crate::link();
        let registry = self.registry.unwrap_or_else(Registry::linked);
        registry.check()?;
        let config = match self.config {
            Some(config) => config,
            None => Config::empty(files::own_temporary_folder()?),
        };
        // Earlier versions left some of it open to others.
        weftrun_backends::files::tighten_state(&config.state_dir, &files::SUBFOLDERS);
        let journal = Journal::new(&config.state_dir);
        let catalogue = config.resolved.catalogue()?;
        let connected = Mutex::new(HashMap::new());
        Ok(Client { inner: Arc::new(Inner { registry, config, catalogue, journal, connected }) })
    }
}

impl Client {
    /// Starts a builder.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The backends it knows.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The instance types it knows.
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.catalogue
    }

    /// Its journal of submissions.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// The target of a name: a configured one, else the default target of the backend of that name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is neither, naming what there is.
    pub fn target(&self, name: &str) -> Result<TargetConfig> {
        let target = self.inner.config.target(name);
        self.inner.registry.get(&target.backend).map_err(|error| {
            let targets: Vec<&str> = self.inner.config.targets.keys().map(String::as_str).collect();
            if targets.is_empty() { error } else { error.with("targets", targets.join(", ")) }
        })?;
        Ok(target)
    }

    /// The backend of a target, made on first use and kept. Nothing is sent yet: an unreachable cluster shows at the first
    /// operation.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a setting that is wrong or unknown, [`ErrorKind::Credentials`] where there are none.
    pub async fn connect(&self, target: &TargetConfig) -> Result<Arc<dyn Backend>> {
        let key = format!("{}\n{:?}\n{:?}", target.name, target.namespace, target.project);
        let cache = || self.inner.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = cache().get(&key) {
            return Ok(backend.clone());
        }
        let entry = self.inner.registry.get(&target.backend)?;
        let backend = (entry.connect)(target.clone()).await?;
        Ok(cache().entry(key).or_insert(backend).clone())
    }

    /// Decides what a job needs, with what the cluster says of itself. Nothing is submitted, and what may not be read there
    /// (nodes, quotas) is a note of the plan, not an error.
    ///
    /// # Errors
    /// As [`Client::connect`]; [`ErrorKind::Unreachable`] without an answer. Mistakes of the job are findings of the plan.
    pub async fn plan(&self, target: &str, spec: &JobSpec) -> Result<Plan> {
        self.plan_for(self.target(target)?, spec).await
    }

    /// Like [`Client::plan`], for a target that was changed after it was looked up.
    pub async fn plan_for(&self, target: TargetConfig, spec: &JobSpec) -> Result<Plan> {
        let mut scope = Scope::default();
        scope.instance_types = spec.roles.iter().filter_map(|role| role.instance_type.clone()).collect();
        scope.queue.clone_from(&spec.queue);
        let facts = self.connect(&target).await?.discover(&scope).await?;
        self.decide(target, spec, facts)
    }

    /// Decides without any I/O: assumed facts stand in, and every decision that rests on one says so.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a target or profile that there is not.
    pub fn plan_offline(&self, target: &str, spec: &JobSpec) -> Result<Plan> {
        self.decide(self.target(target)?, spec, ClusterFacts::default())
    }

    /// Like [`Client::plan_offline`], for a target that was changed after it was looked up.
    pub fn plan_offline_for(&self, target: TargetConfig, spec: &JobSpec) -> Result<Plan> {
        self.decide(target, spec, ClusterFacts::default())
    }

    fn decide(&self, target: TargetConfig, spec: &JobSpec, facts: ClusterFacts) -> Result<Plan> {
        let (catalogue, profiles) = (&self.inner.catalogue, self.profiles());
        let (plan, profile) = match spec.profile.as_deref().or(target.profile.as_deref()) {
            Some(name) => {
                let profile = profiles.get(name)?.named();
                (FabricPlan::new(spec, catalogue, &facts, &profile), profile)
            }
            None => {
                let form = if matches!(target.backend.as_str(), "slurm" | "local") {
                    Form::Script
                } else {
                    Form::Made
                };
                FabricPlan::by_evidence(spec, catalogue, &facts, &profiles, form)?
            }
        };
        let submission = SubmissionId::from_random(fastrand::u128(..));
        let planned = PlannedJob::new(spec.clone(), plan, profile, facts, submission);
        Ok(Plan::new(self.clone(), target, planned))
    }

    /// The profiles there are: those shipped, and the user's own.
    pub fn profiles(&self) -> Profiles {
        self.inner.config.profiles()
    }

    /// Binds a handle that another process printed; nothing is asked of the cluster. What was planned for the job is known
    /// where it was submitted from this machine.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the handle's target is not configured here, or is of another backend.
    pub async fn attach(&self, handle: &JobHandle) -> Result<Job> {
        let target = self.target(handle.target())?;
        if target.backend != handle.backend() {
            let message = format!("target `{}` is of backend `{}`", target.name, target.backend);
            return Err(Error::new(ErrorKind::NotFound, message).with("handle", handle));
        }
        let backend = self.connect(&target).await?;
        let record = self.inner.journal.find(handle)?;
        Ok(Job::new(backend, handle.clone(), record))
    }

    /// Takes what earlier answers of the backends went on without and why, such as a daemon that did not answer.
    pub fn take_notes(&self) -> Vec<Finding> {
        let connected = self.inner.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.values().flat_map(|backend| backend.take_notes()).collect()
    }

    /// Lists the jobs of a target, newest first where the cluster says when they were made.
    ///
    /// # Errors
    /// As [`Client::connect`], and what the cluster answers.
    pub async fn list(&self, target: &str, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.list_on(&self.target(target)?, filter).await
    }

    /// The same for a target that is at hand. Where the cluster has no place for a job's fabric, it comes from the journal
    /// of jobs submitted here.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_on(&self, target: &TargetConfig, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let mut jobs = self.connect(target).await?.list(filter).await?;
        for job in jobs.iter_mut().filter(|job| job.fabric.is_none()) {
            let record = self.inner.journal.find(&job.handle).ok().flatten();
            job.fabric = record.map(|record| record.plan.fabric);
        }
        Ok(jobs)
    }

    /// Looks up the submissions to a target that were begun here and whose end is not known: the answer was lost, or weftrun
    /// was killed. One the cluster has is a job from now on; one that was submitted again since is forgotten. Those that are
    /// being sent right now, or may still arrive, are left out: [`Client::unresolved_on`] names them, too.
    ///
    /// ```no_run
    /// # async fn example(client: weftrun::Client) -> weftrun::Result<()> {
    /// for (record, handle) in client.pending_on(&client.target("prod")?).await? {
    ///     match handle {
    ///         Some(handle) => println!("{} is {handle}", record.name),
    ///         None => println!("{} never arrived: submit it again", record.name),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] and the like, where the cluster cannot be asked; [`ErrorKind::Io`] for the journal.
    pub async fn pending_on(&self, target: &TargetConfig) -> Result<Vec<(Record, Option<JobHandle>)>> {
        let all = self.unresolved_on(target).await?;
        Ok(all
            .into_iter()
            .filter_map(|(record, outcome)| match outcome {
                Outcome::Found(handle) => Some((record, Some(handle))),
                Outcome::Absent => Some((record, None)),
                Outcome::InFlight | Outcome::MayArrive => None,
            })
            .collect())
    }

    /// Looks up the submissions to a target that were begun here and whose end is not known, each with what became of it.
    /// Nothing is decided about a submission that another process is sending: its record is left alone.
    ///
    /// # Errors
    /// As [`Client::pending_on`].
    pub async fn unresolved_on(&self, target: &TargetConfig) -> Result<Vec<(Record, Outcome)>> {
        self.unresolved(target, |_| true).await
    }

    /// [`Client::unresolved_on`] for the records that `wanted` selects: the cluster is asked for these only.
    pub(crate) async fn unresolved(
        &self,
        target: &TargetConfig,
        wanted: impl Fn(&Record) -> bool,
    ) -> Result<Vec<(Record, Outcome)>> {
        let journal = &self.inner.journal;
        let mut found = Vec::new();
        let heads = journal.recent()?;
        for head in heads.iter().filter(|head| head.state.is_unresolved() && head.target == target.name) {
            let Some(record) = journal.read(&head.submission)?.filter(&wanted) else { continue };
            if journal.is_being_sent(&record) {
                found.push((record, Outcome::InFlight));
                continue;
            }
            // Its process may have come to an end between the first look and the lock.
            let Some(mut record) = journal.read(&head.submission)?.filter(|now| now.state.is_unresolved())
            else {
                continue;
            };
            let backend = self.connect(target).await?;
            let looked = match backend.find(&record.submission).await {
                // The backend can be asked, and cannot yet say that there is none.
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    found.push((record, Outcome::MayArrive));
                    continue;
                }
                answer => answer?,
            };
            let outcome = match looked {
                Some(handle) => {
                    record.state = RecordState::Submitted;
                    record.handle = Some(handle.clone());
                    // Only a note of our own: on a full disk the list is still true without it.
                    let _ = journal.write(&record);
                    Outcome::Found(handle)
                }
                None if age(&record) < backend.arrives_within() => Outcome::MayArrive,
                None if heads.iter().any(|later| later.makes_up_for(&record)) => {
                    let _ = journal.forget(&record.submission);
                    continue;
                }
                None => Outcome::Absent,
            };
            found.push((record, outcome));
        }
        Ok(found)
    }

    /// Forgets a submission that was begun here: no later list looks it up on the cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn forget(&self, submission: &SubmissionId) -> Result<()> {
        self.inner.journal.forget(submission)
    }
}

/// What became of a submission whose end was not known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The cluster has it.
    Found(JobHandle),
    /// A process is sending it now; [`Record::owner`] says which.
    InFlight,
    /// The cluster does not have it yet, and may still get it.
    MayArrive,
    /// The cluster does not have it, and will not get it any more.
    Absent,
}

/// How long ago a submission was begun; nothing for one of a clock that is ahead of ours.
fn age(record: &Record) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(record.created)).unwrap_or_default()
}
