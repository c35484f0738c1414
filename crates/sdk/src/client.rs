//! The client: a registry of backends, a configuration and a journal.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::BoxStream;
use serde_json::Value;
use weftrun_core::backend::{Backend, ClusterFacts, PlannedJob, Registry, Scope, TargetConfig};
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::evidence::Form;
use weftrun_core::fabric::{FabricPlan, Profiles, fits};
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId};
use weftrun_core::spec::JobSpec;
use weftrun_core::text::{did_you_mean, suggestion};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use crate::array_end::judge;
use crate::journal::{Damaged, Journal, Record, RecordState};
use crate::runtime::{OnRuntime, on_runtime};
use crate::sightings::Sightings;
use crate::task_sets::{self, TaskSets, in_scope};
use crate::{Config, Job, JobHistory, Plan, files};
use jiff::Timestamp;

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
    damaged: Mutex<DamagedNotes>,
}

/// The notes about records of the journal that are not readable.
#[derive(Debug, Default)]
struct DamagedNotes {
    /// Those that were reported; each is reported once.
    reported: HashSet<PathBuf>,
    notes: Vec<Finding>,
}

/// Builds a [`Client`], for programs that link their own backend, or use none of the linked ones:
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
    /// Uses these backends instead of the linked ones.
    #[must_use]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Uses this configuration; the default is an empty one with its state in a private folder below the
    /// system's temporary folder.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] if two backends have the same name, or if the state folder is owned by another user.
    pub fn build(self) -> Result<Client> {
        crate::link();
        let registry = self.registry.unwrap_or_else(Registry::linked);
        registry.check()?;
        let config = match self.config {
            Some(config) => config,
            None => Config::empty(files::own_temporary_folder()?),
        };
        // Earlier versions left some of it readable by other users.
        weftrun_backends::files::tighten_state(&config.state_dir, &files::SUBFOLDERS)
            .map_err(files::refused)?;
        let journal = Journal::new(&config.state_dir);
        let catalogue = config.resolved.catalogue()?;
        let (connected, damaged) = (Mutex::default(), Mutex::default());
        Ok(Client { inner: Arc::new(Inner { registry, config, catalogue, journal, connected, damaged }) })
    }
}

impl Client {
    /// Returns a builder.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns its backends.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Returns its configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns its instance types.
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.catalogue
    }

    /// Returns its journal of submissions.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// Returns what was last found to be wrong with a job, in one line, and when; none if nothing was, or nobody asked on this
    /// machine. Sends no request.
    pub fn last_seen(&self, handle: &JobHandle) -> Option<(String, Timestamp)> {
        self.sightings().line(handle)
    }

    pub(crate) fn sightings(&self) -> Sightings {
        Sightings::new(&self.inner.config.state_dir)
    }

    /// Returns the target of a name: a configured one, else the default target of the backend of that name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if neither exists, listing the available ones.
    pub fn target(&self, name: &str) -> Result<TargetConfig> {
        let target = self.inner.config.target(name);
        let Err(error) = self.inner.registry.get(&target.backend) else { return Ok(target) };
        let targets: Vec<&str> = self.inner.config.targets.keys().map(String::as_str).collect();
        if targets.contains(&name) {
            return Err(error.with("target", name));
        }
        let backends = self.inner.registry.names();
        let mut error = Error::new(ErrorKind::NotFound, format!("there is no target or backend `{name}`"));
        if !targets.is_empty() {
            error = error.with("targets", targets.join(", "));
        }
        error = error.with("backends", backends.join(", "));
        Err(suggestion(name, targets.into_iter().chain(backends)).into_iter().fold(error, Error::hint))
    }

    /// Returns the backend of a target, created on first use and cached. Nothing is sent yet: an unreachable
    /// cluster is reported by the first operation.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for a wrong or unknown setting, [`ErrorKind::Credentials`] if there are
    /// none, and [`ErrorKind::Usage`] outside a tokio runtime.
    pub async fn connect(&self, target: &TargetConfig) -> Result<Arc<dyn Backend>> {
        let key = format!("{}\n{:?}\n{:?}", target.name, target.namespace, target.project);
        let cache = || self.inner.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = cache().get(&key) {
            return Ok(backend.clone());
        }
        let entry = self.inner.registry.get(&target.backend)?;
        let backend = on_runtime((entry.connect)(target.clone())).await?;
        let backend: Arc<dyn Backend> = Arc::new(OnRuntime(Arc::new(TaskSets(backend))));
        Ok(cache().entry(key).or_insert(backend).clone())
    }

    /// Plans a job with the facts of its cluster. Nothing is submitted; facts that the user may not read
    /// (nodes, quotas) become a note of the plan, not an error.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] for a job that [`JobSpec::validate`] finds an error in; as
    /// [`Client::connect`]; [`ErrorKind::Unreachable`] without an answer. Errors of the fabric are findings of
    /// the plan.
    pub async fn plan(&self, target: &str, spec: &JobSpec) -> Result<Plan> {
        self.plan_for(self.target(target)?, spec).await
    }

    /// Plans a job like [`Client::plan`], for a target that was modified after it was looked up.
    pub async fn plan_for(&self, target: TargetConfig, spec: &JobSpec) -> Result<Plan> {
        spec.refuse_invalid(&self.inner.catalogue)?;
        let mut scope = Scope::default();
        scope.instance_types = spec.roles.iter().filter_map(|role| role.instance_type.clone()).collect();
        scope.queue.clone_from(&spec.queue);
        let backend = self.connect(&target).await?;
        let spec = &*crate::predecessors::with_handles(backend.as_ref(), spec).await?;
        let mut facts = backend.discover(&scope).await?;
        let mut plan = self.decide(target.clone(), spec, facts.clone())?;
        let queue = queue_of(&target, spec);
        let lacks =
            |facts: &ClusterFacts, plan: &Plan| fits::findings(spec, plan.fabric().fabric, facts, queue);
        let mut lacking = lacks(&facts, &plan);
        if lacking.iter().any(Finding::is_error) {
            // A job is refused only because of fresh facts.
            scope.fresh = true;
            facts = backend.discover(&scope).await?;
            plan = self.decide(target.clone(), spec, facts.clone())?;
            lacking = lacks(&facts, &plan);
        }
        plan.add_notes(lacking);
        Ok(plan)
    }

    /// Plans without any I/O: assumed facts replace the cluster's, and every decision that depends on one is
    /// marked.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] as in [`Client::plan`]; [`ErrorKind::NotFound`] for an unknown target or
    /// profile.
    pub fn plan_offline(&self, target: &str, spec: &JobSpec) -> Result<Plan> {
        self.decide(self.target(target)?, spec, ClusterFacts::default())
    }

    /// Plans a job like [`Client::plan_offline`], for a target that was modified after it was looked up.
    pub fn plan_offline_for(&self, target: TargetConfig, spec: &JobSpec) -> Result<Plan> {
        self.decide(target, spec, ClusterFacts::default())
    }

    fn decide(&self, target: TargetConfig, spec: &JobSpec, facts: ClusterFacts) -> Result<Plan> {
        let (catalogue, profiles) = (&self.inner.catalogue, self.profiles());
        spec.refuse_invalid(catalogue)?;
        let entry = self.inner.registry.get(&target.backend).ok();
        let form = entry.map_or(Form::Made, |entry| entry.form);
        let (mut plan, profile) = match spec.profile.as_deref().or(target.profile.as_deref()) {
            Some(name) => {
                let profile = profiles.get(name)?.named();
                (FabricPlan::new(spec, catalogue, &facts, &profile), profile)
            }
            None => FabricPlan::by_evidence(spec, catalogue, &facts, &profiles, form)?,
        };
        // In a container the plan's path replaces that of the image.
        let has_image = spec.image.is_some() || spec.roles.iter().any(|role| role.image.is_some());
        if form == Form::Script && (!has_image || entry.is_some_and(|entry| entry.ignores_images)) {
            plan.keep_library_path();
        }
        plan.findings.extend(self.unknown_tables(&target, spec));
        let submission = SubmissionId::from_random(weftrun_backends::random::bits()?);
        let mut planned = PlannedJob::new(spec.clone(), plan, profile, facts, submission);
        self.leave_out(&target, &mut planned);
        Ok(Plan::new(self.clone(), target, planned))
    }

    /// Returns a warning for each `[backend.NAME]` of a job that nothing here is called: a backend that is not linked in, or a
    /// misspelt one, whose settings would be lost.
    fn unknown_tables(&self, target: &TargetConfig, spec: &JobSpec) -> Vec<Finding> {
        let names = self.inner.registry.names();
        let is_known = |name: &str| {
            names.contains(&name) || name == target.backend || self.inner.config.targets.contains_key(name)
        };
        let warn = |name: &String| {
            let text = format!("`[backend.{name}]` is not used: no backend or target is called `{name}`");
            let near = did_you_mean(name, names.iter().copied());
            let fix = near.map_or_else(
                || format!("the backends are {}", names.join(", ")),
                |near| format!("did you mean `[backend.{near}]`?"),
            );
            Finding::warning("SPEC-BACKEND", text).fix(fix)
        };
        let mut findings: Vec<Finding> =
            spec.backend.keys().filter(|name| !is_known(name)).map(warn).collect();
        let is_used = |name: &String| *name == target.backend || *name == target.name;
        if let Some(name) = spec.backend.keys().next().filter(|_| !spec.backend.keys().any(is_used)) {
            let text = format!(
                "`[backend.{name}]` of the job is not used: the target `{}` is of backend `{}`",
                target.name, target.backend
            );
            findings.push(Finding::info("SPEC-BACKEND", text).fix(format!("pass `-b {name}` to use it")));
        }
        findings
    }

    /// Returns the available profiles: the built-in ones, and the user's own.
    pub fn profiles(&self) -> Profiles {
        self.inner.config.profiles()
    }

    /// Binds a handle that another process printed; sends no request to the cluster. The plan is known if the
    /// job was submitted from this machine.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the handle's target is not configured here, or uses another backend.
    pub async fn attach(&self, handle: &JobHandle) -> Result<Job> {
        let target = in_scope(self.target(handle.target())?, handle);
        if target.backend != handle.backend() {
            let message = format!("target `{}` is of backend `{}`", target.name, target.backend);
            return Err(Error::new(ErrorKind::NotFound, message).with("handle", handle));
        }
        let backend = self.connect(&target).await?;
        let record = self.inner.journal.find(handle)?;
        Ok(self.bind(backend, handle.clone(), record))
    }

    pub(crate) fn bind(&self, backend: Arc<dyn Backend>, handle: JobHandle, record: Option<Record>) -> Job {
        let target = self.inner.config.target(handle.target());
        Job::new(backend, handle, record, self.sightings(), self.job_history(&target))
    }

    /// Returns the history of the jobs of a target; none if it is switched off, and for this machine, whose nodes are simulated.
    pub fn job_history(&self, target: &TargetConfig) -> Option<JobHistory> {
        let is_kept = target.backend != crate::job_history::SIMULATED;
        JobHistory::of(&self.inner.config, target).filter(|_| is_kept)
    }

    /// Takes the notes about incomplete results: of the backends, such as a daemon that did not answer, and about records of
    /// the journal that are not readable.
    pub fn take_notes(&self) -> Vec<Finding> {
        let mut damaged = self.inner.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = std::mem::take(&mut damaged.notes);
        let connected = self.inner.connected.lock().unwrap_or_else(PoisonError::into_inner);
        notes.extend(connected.values().flat_map(|backend| backend.take_notes()));
        notes
    }

    /// Adds a note for each damaged record that was not reported yet.
    fn note_damaged(&self, found: Vec<Damaged>) {
        let mut damaged = self.inner.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        for Damaged { path, reason } in found {
            let message = format!(
                "the record of a submission cannot be read, and its job is not searched for: {}: {reason}",
                path.display()
            );
            if damaged.reported.insert(path) {
                damaged.notes.push(
                    Finding::warning("JOURNAL-DAMAGED", message)
                        .fix("check `weftrun list --all` for the job, then remove the file"),
                );
            }
        }
    }

    /// Records that the user, or the program, has seen the handle of a submitted job. Until then the next submission of the
    /// same job is told of it ([`Plan::earlier`]). A set of which some tasks were not submitted stays as it is then.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn delivered(&self, handle: &JobHandle) -> Result<()> {
        self.inner.journal.deliver(handle)
    }

    /// Lists the jobs of a target, newest first if the cluster reports when they were created.
    ///
    /// # Errors
    /// As [`Client::connect`], and the errors of the cluster.
    pub async fn list(&self, target: &str, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.list_on(&self.target(target)?, filter).await
    }

    /// Like [`Client::list`], for a given target. If the cluster does not store a job's fabric, it is read
    /// from the journal of jobs submitted here.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_on(&self, target: &TargetConfig, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let backend = self.connect(target).await?;
        let by_record = filter.mine && !backend.capability().own_jobs;
        let mut asked = filter.clone();
        // Jobs of others do not count for the limit.
        asked.limit = filter.limit.filter(|_| !by_record);
        let mut jobs = backend.list(&asked).await?;
        // Read at most once, and only where it is asked.
        let recent = LazyCell::new(|| self.inner.journal.recent().unwrap_or_default());
        if by_record {
            let record =
                |job: &JobSummary| self.inner.journal.find_among(&recent, &job.handle).ok().flatten();
            jobs.retain(|job| record(job).is_some());
            jobs.truncate(filter.limit.unwrap_or(usize::MAX));
        }
        for job in jobs.iter_mut().filter(|job| job.fabric.is_none()) {
            let record = self.inner.journal.find_among(&recent, &job.handle).ok().flatten();
            job.fabric = record.map(|record| record.plan.fabric);
        }
        // An array's own list does not say how many tasks it had.
        for job in &mut jobs {
            let handle = job.handle.clone();
            judge(job, || {
                let record = self.inner.journal.find_among(&recent, &handle).ok().flatten()?;
                Some(record.spec?.tasks()?.different())
            });
        }
        Ok(jobs)
    }

    /// Watches the jobs of a filter over one connection: of each job first its present status, then every
    /// change; a terminal status comes before [`JobEvent::Gone`]. The stream ends when every job that the
    /// filter names has ended; without names it never ends.
    ///
    /// ```no_run
    /// use futures_util::TryStreamExt;
    /// use weftrun::prelude::*;
    ///
    /// # async fn example(client: Client) -> weftrun::Result<()> {
    /// let mut events = client.watch("prod", JobFilter::all()).await?;
    /// while let Some(event) = events.try_next().await? {
    ///     if let JobEvent::Status { job } = event {
    ///         println!("{} {}", job.handle, job.phase);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`]. An item is an error if the cluster can no longer be queried.
    pub async fn watch(
        &self,
        target: &str,
        filter: JobFilter,
    ) -> Result<BoxStream<'static, Result<JobEvent>>> {
        Ok(self.connect(&self.target(target)?).await?.watch(filter))
    }

    /// Resolves the submissions to a target that were begun here and whose outcome is unknown: the answer was
    /// lost, or weftrun was killed. If the cluster has the job, the record becomes that job (that of a set of which some tasks were
    /// not submitted stays unresolved, with its handle); if it was
    /// submitted again since, the record is removed. A submission that another process is sending is left
    /// unchanged.
    ///
    /// ```no_run
    /// # async fn example(client: weftrun::Client) -> weftrun::Result<()> {
    /// for (record, outcome) in client.unresolved_on(&client.target("prod")?).await? {
    ///     match outcome {
    ///         weftrun::Outcome::Found(handle) => println!("{} is {handle}", record.name),
    ///         weftrun::Outcome::Absent => println!("{} never arrived: submit it again", record.name),
    ///         _ => println!("{} may still arrive", record.name),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] and similar, if the cluster cannot be queried; [`ErrorKind::Io`] for the
    /// journal.
    pub async fn unresolved_on(&self, target: &TargetConfig) -> Result<Vec<(Record, Outcome)>> {
        self.unresolved(target, |_| true).await
    }

    /// Like [`Client::unresolved_on`], for the records that `wanted` selects: the cluster is queried only for
    /// these.
    pub(crate) async fn unresolved(
        &self,
        target: &TargetConfig,
        wanted: impl Fn(&Record) -> bool,
    ) -> Result<Vec<(Record, Outcome)>> {
        let journal = &self.inner.journal;
        let mut found = Vec::new();
        let (heads, damaged) = journal.recent_and_damaged()?;
        self.note_damaged(damaged);
        for head in heads.iter().filter(|head| head.state.is_unresolved() && head.target == target.name) {
            let Some(record) = journal.look_at(&head.submission)?.filter(&wanted) else { continue };
            if journal.is_being_sent(&record) {
                found.push((record, Outcome::InFlight));
                continue;
            }
            // Its process may have ended between the first read and the lock.
            let Some(mut record) = journal.look_at(&head.submission)?.filter(|now| now.state.is_unresolved())
            else {
                continue;
            };
            let backend = self.connect(target).await?;
            let looked = match backend.find(&record.submission).await {
                // The backend can be queried, but cannot exclude yet that the job exists.
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    found.push((record, Outcome::MayArrive));
                    continue;
                }
                answer => answer?,
            };
            let outcome = match looked {
                Some(handle) => {
                    let is_whole =
                        task_sets::is_whole(backend.as_ref(), &handle, record.spec.as_ref()).await?;
                    // A set of which some tasks were not submitted can be continued.
                    record.state = if is_whole { RecordState::Submitted } else { RecordState::Unknown };
                    record.handle = Some(handle.clone());
                    record.undelivered = true;
                    // This only updates the journal: on a full disk the list is still correct without it.
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

    /// Removes the record of a submission: later lists no longer search for it on the cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn forget(&self, submission: &SubmissionId) -> Result<()> {
        self.inner.journal.forget(submission)
    }
}

/// Returns the queue or partition that a job or its target names.
pub(crate) fn queue_of<'s>(target: &'s TargetConfig, spec: &'s JobSpec) -> Option<&'s str> {
    let own = spec.backend.get(&target.backend).and_then(|own| own.get("partition")).and_then(Value::as_str);
    let partition = own.or_else(|| target.settings.get("partition").and_then(Value::as_str));
    spec.queue.as_deref().or(partition)
}

/// The outcome of a submission that was unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The cluster has it.
    Found(JobHandle),
    /// A process is sending it now; [`Record::owner`] identifies it.
    InFlight,
    /// The cluster does not have it yet, and may still receive it.
    MayArrive,
    /// The cluster does not have it, and will not receive it any more.
    Absent,
}

/// Returns the age of a submission; zero if its clock was ahead of this machine's.
fn age(record: &Record) -> Duration {
    Duration::try_from(weftrun_backends::clock::now().duration_since(record.created)).unwrap_or_default()
}
