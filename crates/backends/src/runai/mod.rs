//! NVIDIA Run:ai through its REST API, control planes 2.18 to 2.24.
#![doc = include_str!("docs.md")]

mod act;
mod auth;
mod certificate;
mod check;
mod cli_login;
mod client;
mod config;
mod discover;
mod doctor;
mod error;
mod exec;
#[cfg(fuzzing)]
pub mod fuzzing;
mod logs;
mod quote;
mod render;
mod resolve;
mod status;
mod submit;
mod trust_anchor;
mod version;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::Value;
use tokio::sync::OnceCell;
use weftrun_core::backend::{
    Backend, Capability, ClusterFacts, ExecRequest, ExecSink, FoundTarget, PlannedJob, PortConnection,
    Rendered, Scope, TargetConfig,
};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::spec::JobSpec;
use weftrun_core::{Error, ErrorKind, Finding, Result, register_backend};

use cli_login::Official;
use client::ControlPlane;
use config::RunaiTarget;
use resolve::{Project, text};
use version::Version;

register_backend!("runai", "NVIDIA Run:ai, control planes 2.18 to 2.24, over REST", connect, find: find);

/// Finds the control plane of the environment, or that of the official command line's login.
fn find(target: &TargetConfig) -> Vec<FoundTarget> {
    let named = target
        .env
        .get("RUNAI_URL")
        .filter(|url| !url.is_empty())
        .map(|_| "the variable RUNAI_URL".to_owned());
    let login = || {
        let official = Official::of(target).filter(Official::logged_in)?;
        Some(format!("the login of `runai` at {}", official.url()?))
    };
    named.or_else(login).map(|sign| FoundTarget::new("runai", sign)).into_iter().collect()
}

async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    let settings = RunaiTarget::of(&target)?;
    Ok(Arc::new(RunAi {
        shared: Arc::new(Shared { target, settings, plane: OnceCell::new(), project: OnceCell::new() }),
    }))
}

/// A project of a Run:ai control plane.
#[derive(Clone, Debug)]
pub struct RunAi {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    target: TargetConfig,
    settings: RunaiTarget,
    plane: OnceCell<ControlPlane>,
    project: OnceCell<Project>,
}

/// Omits the target's environment, which contains secrets.
impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("target", &self.target.name).finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the control plane; credentials are read on first use, so that rendering needs none.
    async fn plane(&self) -> Result<&ControlPlane> {
        self.plane.get_or_try_init(|| async { ControlPlane::new(&self.target, &self.settings) }).await
    }

    fn project_name(&self) -> Result<&str> {
        self.target.project.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidConfig, format!("target `{}` names no project", self.target.name))
                .hint("give `-p PROJECT`, or set `project` in the target's table")
        })
    }

    async fn project(&self) -> Result<&Project> {
        let name = self.project_name()?;
        let plane = self.plane().await?;
        self.project
            .get_or_try_init(|| {
                resolve::project(
                    plane,
                    &self.settings,
                    name,
                    Official::of(&self.target).and_then(|login| login.cluster()),
                )
            })
            .await
    }

    fn handle(&self, kind: &str, name: &str, uuid: &str) -> Result<JobHandle> {
        let project = self.project_name()?;
        Ok(JobHandle::new("runai", &self.target.name, [project, kind, name]).with_uid(uuid))
    }

    /// Returns the handle with the id of the workload; a name alone is looked up.
    async fn resolve(&self, handle: &JobHandle) -> Result<JobHandle> {
        if handle.uid().is_some() {
            return Ok(handle.clone());
        }
        for workload in self.listed(Some(handle.name()), Some(LOOKED_AT)).await? {
            if let Some(found) =
                self.listed_handle(&workload)?.filter(|found| found.parts() == handle.parts())
            {
                return Ok(found);
            }
        }
        Err(Error::new(ErrorKind::NotFound, format!("there is no workload `{}`", handle.name()))
            .with("project", self.project_name()?)
            .hint("`weftrun list -a` prints the handles"))
    }

    /// Returns the file that marks a workload as cancelled by weftrun: the platform only reports it as
    /// stopped.
    fn cancelled(&self, handle: &JobHandle) -> std::path::PathBuf {
        self.target.state_dir.join("cancelled").join(handle.uid().unwrap_or("-"))
    }

    /// Returns the summary of a typed read; a stopped workload that was cancelled by weftrun is cancelled.
    fn summary(&self, handle: &JobHandle, workload: &Value) -> JobSummary {
        self.known_here(status::of_typed(handle.clone(), workload))
    }

    /// Returns a job with this machine's notes applied: the platform reports a cancelled one as suspended.
    fn known_here(&self, mut job: JobSummary) -> JobSummary {
        if job.phase == JobPhase::Suspended && self.cancelled(&job.handle).exists() {
            job.phase = JobPhase::Cancelled;
            job.reason = "cancelled from here; `weftrun resume` starts it again".into();
        }
        job
    }

    /// Reads a workload over its typed path: the generic one is refused to tokens that may read this one
    /// (NeMo-Run pull request 458, 2026-03). A workload that was created a moment ago is waited for.
    async fn typed(&self, handle: &JobHandle) -> Result<Value> {
        loop {
            match self.typed_now(handle).await {
                Err(error) if error.kind() == ErrorKind::NotFound && self.may_appear(handle).await => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Ok(workload) => {
                    self.forget_created(handle);
                    return Ok(workload);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a workload once, without waiting.
    async fn typed_now(&self, handle: &JobHandle) -> Result<Value> {
        const WHAT: &str = "cannot read the workload";
        let workload = self.plane().await?.get(WHAT, &typed_path(handle)?, &[]).await?;
        if text(&workload, "actualPhase").is_none() && text(&workload, "name").is_none() {
            return Err(error::without(WHAT, &workload.to_string(), "actualPhase"));
        }
        Ok(workload)
    }

    /// Returns the file that marks a workload as created by weftrun and not read since.
    fn created(&self, handle: &JobHandle) -> std::path::PathBuf {
        self.target.state_dir.join("created").join(handle.uid().unwrap_or("-"))
    }

    /// Records that a workload was just created, so that a 404 of the next command does not count as its
    /// absence.
    fn note_created(&self, handle: &JobHandle) {
        let path = self.created(handle);
        for entry in
            path.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten()
        {
            if !is_recent(&entry.path()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        // Without the file, only the wait after a 404 is shorter.
        let _ = crate::files::private_file(&path);
    }

    /// Removes the file of [`Self::note_created`].
    fn forget_created(&self, handle: &JobHandle) {
        let _ = std::fs::remove_file(self.created(handle));
    }

    /// Returns whether a workload that a read does not find was created a moment ago: according to this
    /// machine's file, or to the list, which may be ahead of the reads.
    async fn may_appear(&self, handle: &JobHandle) -> bool {
        if is_recent(&self.created(handle)) {
            return true;
        }
        let entry = self.listed_entry(handle).await;
        entry.as_ref().is_some_and(|workload| {
            let created = status::time(workload, "createdAt");
            let age = created.map(|then| crate::clock::now().duration_since(then).unsigned_abs());
            text(workload, "deletedAt").is_none_or(str::is_empty) && age.is_some_and(|age| age < GRACE)
        })
    }

    /// Returns a workload's entry in the list, which has its reason and its addresses; the typed read has no
    /// field for them.
    async fn listed_entry(&self, handle: &JobHandle) -> Option<Value> {
        let listed = self.listed(Some(handle.name()), Some(LOOKED_AT)).await.unwrap_or_default();
        listed.into_iter().find(|workload| text(workload, "id") == handle.uid())
    }

    /// Returns the workload of a submission among those of a name; a name alone proves nothing.
    async fn find_named(&self, name: Option<&str>, id: &SubmissionId) -> Result<Option<JobHandle>> {
        for workload in self.listed(name, Some(LOOKED_AT)).await? {
            let Some(handle) = self.listed_handle(&workload)? else { continue };
            match self.typed(&handle).await {
                Ok(typed) if status::marker(&typed).as_ref() == Some(id) => return Ok(Some(handle)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn listed(&self, name: Option<&str>, limit: Option<usize>) -> Result<Vec<Value>> {
        let project = self.project().await?;
        let mut filter = format!("projectId=={}", project.id);
        // A value cannot contain a comma; a name with one cannot exist.
        if let Some(name) = name.filter(|name| !name.contains(',')) {
            filter = format!("name=={name},{filter}");
        }
        let query =
            [("filterBy", filter), ("sortBy", "createdAt".to_owned()), ("sortOrder", "desc".to_owned())];
        let plane = self.plane().await?;
        let mut all =
            plane.pages("cannot list workloads", "/api/v1/workloads", &query, "workloads", limit).await?;
        all.retain(|workload| name.is_none_or(|name| text(workload, "name") == Some(name)));
        // Pages shift while workloads are created and deleted.
        let mut seen = std::collections::HashSet::new();
        all.retain(|workload| text(workload, "id").is_some_and(|id| seen.insert(id.to_owned())));
        Ok(all)
    }

    /// Returns the newest jobs of the project, as the list has them.
    async fn jobs(&self, limit: Option<usize>) -> Result<Vec<JobSummary>> {
        let mut jobs = Vec::new();
        for workload in self.listed(None, limit).await? {
            if let Some(handle) = self.listed_handle(&workload)? {
                jobs.push(self.known_here(status::of_listed(handle, &workload)));
            }
        }
        Ok(jobs)
    }

    fn listed_handle(&self, workload: &Value) -> Result<Option<JobHandle>> {
        let kind = match text(workload, "type").unwrap_or_default().to_lowercase().as_str() {
            "distributed" => "distributed",
            "training" => "trainings",
            "workspace" => "workspaces",
            _ => return Ok(None),
        };
        let (Some(name), Some(id)) = (text(workload, "name"), text(workload, "id")) else { return Ok(None) };
        self.handle(kind, name, id).map(Some)
    }
}

/// How long a workload that was just created may be missing in reads (NeMo-Run pull request 458, 2026-03).
const GRACE: Duration = Duration::from_secs(60);
/// Pause between two reads of a workload that was just created.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Returns whether a file was created within [`GRACE`].
fn is_recent(path: &std::path::Path) -> bool {
    let made = std::fs::metadata(path).and_then(|meta| meta.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < GRACE))
}

/// How many of the newest workloads are searched for a submission without a known name.
const LOOKED_AT: usize = 50;

/// Returns the path of a workload: its kind and its id.
fn typed_path(handle: &JobHandle) -> Result<String> {
    let wrong = || {
        Error::new(ErrorKind::Usage, format!("`{handle}` does not name a workload")).hint(
            "handles look like `runai://TARGET/PROJECT/distributed/NAME#ID`; `weftrun list` prints them",
        )
    };
    let [_, kind, _] = handle.parts() else { return Err(wrong()) };
    let id = handle.uid().ok_or_else(wrong)?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !matches!(kind.as_str(), "distributed" | "trainings" | "workspaces") || !plain(id) {
        return Err(wrong());
    }
    Ok(format!("/api/v1/workloads/{kind}/{id}"))
}

#[async_trait]
impl Backend for RunAi {
    fn capability(&self) -> Capability {
        Capability {
            backend: "runai".into(),
            detach: true,
            suspend: true,
            delete: true,
            containers: true,
            mpi: true,
            exec: self.shared.has_kubeconfig(),
            ports: self.shared.has_kubeconfig(),
            log_times: true,
            exact_resume: true,
            // Requested by `backoffLimit`; the API does not report their number.
            restarts: false,
            max_name: check::LONGEST_NAME,
            max_args_bytes: 100_000,
            ..Capability::default()
        }
    }

    async fn discover(&self, scope: &Scope) -> Result<ClusterFacts> {
        discover::facts(&self.shared, scope).await
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        let project = self.shared.target.project.as_deref().unwrap_or("PROJECT");
        let said = job.facts.version.as_deref().or(self.shared.settings.version.as_deref());
        render::render(job, project, said.and_then(Version::parse))
    }

    fn pin(&self, _job: &mut JobSpec, _nodes: &[String]) -> Result<()> {
        let message = "backend `runai` cannot run a job on named nodes: Run:ai places jobs on node pools";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        check::check(&self.shared, rendered).await
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        submit::submit(&self.shared, rendered).await
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        self.shared.find_named(None, id).await
    }

    fn arrives_within(&self) -> Duration {
        // A request may still be in flight after its sender ended.
        Duration::from_mins(1)
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        if !filter.handles.is_empty() {
            let mut jobs = Vec::new();
            for handle in &filter.handles {
                let workload = self.shared.typed(handle).await?;
                jobs.push(watch::detailed(&self.shared, handle, &workload).await);
            }
            return Ok(jobs);
        }
        let mut jobs = self.shared.jobs(filter.limit).await?;
        jobs.retain(|job| filter.ended || !job.phase.is_terminal());
        Ok(jobs)
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        watch::describe(&self.shared, &self.shared.resolve(job).await?).await
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        act::act(&self.shared, job, action).await
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        ordered(watch::watch(self.shared.clone(), filter))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        logs::logs(self.shared.clone(), job.clone(), options)
    }

    async fn exec(&self, job: &JobHandle, request: &ExecRequest, sink: &mut ExecSink<'_>) -> Result<i32> {
        self.shared.exec(job, request, sink).await
    }

    async fn attach(&self, job: &JobHandle, request: &ExecRequest) -> Result<i32> {
        self.shared.attach(job, request).await
    }

    async fn open_port(
        &self,
        job: &JobHandle,
        rank: Option<u32>,
        port: u16,
    ) -> Result<Box<dyn PortConnection>> {
        self.shared.open_port(job, rank, port).await
    }
}
