//! Cancel, delete, suspend and resume.

use reqwest::Method;
use weftrun_core::job::{Action, JobHandle};
use weftrun_core::{Error, ErrorKind, Result};

use super::{Shared, typed_path};

/// Acts on a workload.
pub async fn act(shared: &Shared, job: &JobHandle, action: Action) -> Result<()> {
    let job = shared.resolve(job).await?;
    let path = typed_path(&job)?;
    match action {
        Action::Suspend => suspend(shared, &job, "suspend").await,
        Action::Cancel => {
            suspend(shared, &job, "suspend").await?;
            remember(&shared.cancelled(&job))
        }
        Action::Resume => {
            let _ = std::fs::remove_file(shared.cancelled(&job));
            suspend(shared, &job, "resume").await
        }
        Action::Delete => {
            let plane = shared.plane().await?;
            let delete = || plane.act("cannot delete the workload", Method::DELETE, &path);
            match delete().await {
                // It may have been created a moment ago.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    shared.typed(&job).await.map_err(|_| error)?;
                    delete().await?;
                }
                done => done?,
            }
            shared.forget_created(&job);
            Ok(())
        }
        Action::Hold | Action::Release => Err(Error::unsupported("runai", "hold")),
        Action::Requeue => Err(Error::unsupported("runai", "requeue")),
        _ => Err(Error::unsupported("runai", "signal")),
    }
}

/// Suspends or resumes. Supported for distributed workloads since 2.20; before, the path does not exist.
async fn suspend(shared: &Shared, job: &JobHandle, verb: &'static str) -> Result<()> {
    let what = if verb == "resume" { "cannot resume the workload" } else { "cannot suspend the workload" };
    let path = format!("{}/{verb}", typed_path(job)?);
    let plane = shared.plane().await?;
    match plane.act(what, Method::POST, &path).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // It may have been created a moment ago; only if it exists by now, the path is what is missing.
            shared.typed(job).await.map_err(|_| error)?;
            match plane.act(what, Method::POST, &path).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                done => return done,
            }
            Err(Error::new(
                ErrorKind::Unsupported,
                format!("{what}: this control plane has no {verb} for it"),
            )
            .with("workload", job)
            .hint(
                "distributed workloads can be suspended from 2.20; `weftrun delete` ends them on older ones",
            ))
        }
        other => other,
    }
}

/// Creates an empty file that only the user can read, and its folder.
fn remember(path: &std::path::Path) -> Result<()> {
    let made = crate::files::private_file(path);
    made.map(drop).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write {}: {error}", path.display())).with_source(error)
    })
}
