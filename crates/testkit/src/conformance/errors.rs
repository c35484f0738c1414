//! Errors have the right kind, and hints.

use futures_util::StreamExt;
use weftrun_core::job::{Action, JobFilter, JobHandle};
use weftrun_core::log::LogOptions;
use weftrun_core::{Error, ErrorKind};

use super::bench::{Bench, must, said};
use super::{Checked, Verdict};

fn is_not_found(what: &str, error: Option<Error>) -> Result<(), String> {
    let error = error.ok_or_else(|| format!("{what} of a job that is not there is no error"))?;
    must(error.kind() == ErrorKind::NotFound, || format!("{what} is of kind {:?}: {error}", error.kind()))?;
    must(!error.is_retryable(), || format!("{what}: a job that is not there does not come by trying again"))?;
    must(!error.message().is_empty(), || format!("{what}: the error has no message"))
}

/// Every operation on an unknown job fails at once with the right kind.
pub(super) async fn an_unknown_job_is_not_found(bench: Bench<'_>) -> Checked {
    let job = bench.submit("true").await?;
    let backend = job.backend.clone();
    let missing = missing_like(&job.handle);
    let described = backend.describe(&missing).await.err();
    let hinted = described.as_ref().is_some_and(|error| !error.hints().is_empty());
    is_not_found("describe", described)?;
    must(hinted, || "the error of a job that is not there does not say what to try".to_owned())?;
    is_not_found("cancel", backend.act(&missing, Action::Cancel).await.err())?;
    let read = backend.logs(&missing, LogOptions::follow()).next().await;
    is_not_found("logs", read.and_then(Result::err))?;
    let watched = backend.watch(JobFilter::one(&missing)).next().await;
    is_not_found("watch", watched.and_then(Result::err))?;
    job.done().await
}

/// Returns a handle of the same form for a job that never existed: the last part is changed, or increased if
/// it is a number.
fn missing_like(handle: &JobHandle) -> JobHandle {
    let mut parts = handle.parts().to_vec();
    if let Some(last) = parts.last_mut() {
        *last = match last.parse::<u64>() {
            Ok(number) => (number + 7_000_000).to_string(),
            Err(_) => format!("never-was-{:06x}", fastrand::u32(..0x00ff_ffff)),
        };
    }
    JobHandle::new(handle.backend(), handle.target(), parts)
}

/// An unknown submission id is not an error: it finds nothing.
pub(super) async fn an_unknown_id_finds_nothing(bench: Bench<'_>) -> Checked {
    let found = bench.connect().await?.find(&crate::random_submission()).await.map_err(said("find"))?;
    must(found.is_none(), || format!("an id nobody submitted finds {found:?}"))?;
    Ok(Verdict::Passed)
}

/// A handle of another backend is an error, not another job.
pub(super) async fn a_foreign_handle_is_refused(bench: Bench<'_>) -> Checked {
    let foreign = JobHandle::new("elsewhere", "nowhere", ["job"]);
    match bench.connect().await?.describe(&foreign).await {
        Ok(detail) => Err(format!("{foreign} describes {}", detail.summary.handle)),
        Err(error) if matches!(error.kind(), ErrorKind::Usage | ErrorKind::NotFound) => Ok(Verdict::Passed),
        Err(error) => Err(format!("a foreign handle is of kind {:?}: {error}", error.kind())),
    }
}
