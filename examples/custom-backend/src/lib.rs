//! A backend for a shared folder, written by somebody who is not weftrun.
//!
//! A job is a folder: a script, one log a node, and a few small files that say how it went. It is the smallest thing
//! that is really a cluster (jobs outlive the program that sent them, logs are followed, a lost answer makes no second
//! job), and so a good start for one of your own: `docs/adding-a-backend.md` walks through it.
//!
//! ```toml
//! [target.shed]
//! backend = "spool"
//! folder = "/shared/jobs"
//! ```

mod folder;
mod logs;
mod render;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::Deserialize;
use weftrun_core::backend::{Backend, Capability, ClusterFacts, PlannedJob, Rendered, Scope, TargetConfig};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobSummary, SubmissionId, ordered,
};
use weftrun_core::log::{LogBatch, LogOptions};
use weftrun_core::{Error, Finding, Result};

use folder::Spool;

/// The name after `-b`.
pub const NAME: &str = "spool";

weftrun_core::register_backend!("spool", "jobs as folders of a shared disk", connect);

/// The settings of a target, as they stand in the user's file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Where jobs lie; the target's own state folder where it is not set.
    folder: Option<PathBuf>,
}

/// Connects: reads the settings, and touches nothing, since `render` must work without a cluster.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`](weftrun_core::ErrorKind::InvalidConfig) for a setting that is unknown or wrong.
pub async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>> {
    let settings: Settings = target.settings()?;
    let root = settings.folder.unwrap_or_else(|| target.state_dir.join("spool"));
    Ok(Arc::new(SpoolBackend { spool: Spool::new(target.name, root) }))
}

#[derive(Debug)]
struct SpoolBackend {
    spool: Spool,
}

#[async_trait]
impl Backend for SpoolBackend {
    /// The conformance suite is chosen by this: what is claimed is tried, what is not claimed must be refused.
    fn capability(&self) -> Capability {
        Capability {
            backend: NAME.to_owned(),
            detach: true,
            delete: true,
            exact_resume: true,
            max_name: 63,
            max_args_bytes: 1 << 20,
            ..Capability::default()
        }
    }

    async fn discover(&self, _scope: &Scope) -> Result<ClusterFacts> {
        let mut facts = ClusterFacts::default();
        facts.online = true;
        Ok(facts)
    }

    fn render(&self, job: &PlannedJob) -> Result<Rendered> {
        render::render(job)
    }

    async fn check(&self, rendered: &Rendered) -> Result<Vec<Finding>> {
        self.spool.check(rendered)
    }

    async fn submit(&self, rendered: &Rendered) -> Result<JobHandle> {
        self.spool.submit(rendered)
    }

    async fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        Ok(self.spool.find(id)?.map(|job| job.handle))
    }

    async fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        self.spool.list(filter)
    }

    async fn describe(&self, job: &JobHandle) -> Result<JobDetail> {
        let job = self.spool.get(job)?;
        let mut detail = JobDetail::new(job.summary()?);
        detail.replicas = job.replicas()?;
        detail.facts.push(("folder".to_owned(), job.path.display().to_string()));
        Ok(detail)
    }

    async fn act(&self, job: &JobHandle, action: Action) -> Result<()> {
        let job = self.spool.get(job)?;
        match action {
            Action::Cancel => job.cancel(),
            Action::Delete => {
                job.cancel()?;
                while !job.summary()?.phase.is_terminal() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                job.remove()
            }
            Action::Suspend | Action::Resume => Err(Error::unsupported(NAME, "suspend")),
            Action::Hold | Action::Release => Err(Error::unsupported(NAME, "hold")),
            Action::Requeue => Err(Error::unsupported(NAME, "requeue")),
            _ => Err(Error::unsupported(NAME, "signal")),
        }
    }

    fn watch(&self, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        // The status first, and the end before the disappearance: every watch promises that.
        ordered(watch::watch(self.spool.clone(), filter))
    }

    fn logs(&self, job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        logs::logs(&self.spool, job, options)
    }
}
