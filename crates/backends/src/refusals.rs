//! What several backends refuse, in the same words.

use std::collections::BTreeMap;

use weftrun_core::job::{JobHandle, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::{Error, ErrorKind, Result};

/// Returns the error of a rank that a job of `world` ranks does not have.
pub fn no_rank(kind: ErrorKind, rank: u32, world: u32) -> Error {
    Error::new(kind, format!("the job has no rank {rank}"))
        .with("ranks", format!("0 to {}", world.saturating_sub(1)))
}

/// Refuses to read the log of a rank that a job of `world` ranks does not have.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn missing_rank(options: &LogOptions, world: u32) -> Result<()> {
    let missing = options.ranks.iter().find(|rank| **rank >= world);
    missing.map_or(Ok(()), |rank| Err(no_rank(ErrorKind::Usage, *rank, world)))
}

/// Refuses to select lines by their time, where processes write their own files.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub fn log_times(options: &LogOptions, backend: &str) -> Result<()> {
    match options.since {
        None => Ok(()),
        Some(_) => Err(Error::unsupported(backend, "log_times")
            .hint("processes write their own files, without times: use `--tail` instead of `--since`")),
    }
}

/// Refuses what only a job that has not ended can do.
///
/// # Errors
/// [`ErrorKind::Refused`].
pub fn ended(handle: &JobHandle, phase: JobPhase) -> Result<()> {
    if !phase.is_terminal() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Refused, format!("the job has ended ({phase})")).with("handle", handle))
}

/// Returns the error of an action on the processes of a job that waits for another one.
pub fn waiting(handle: &JobHandle, why: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("the job has no processes yet: it {why}"))
        .with("handle", handle)
        .hint(format!(
            "`weftrun cancel '{handle}'` ends it; suspended, the job that it waits for keeps it waiting"
        ))
}

/// Refuses the handle of a job of another target.
///
/// # Errors
/// [`ErrorKind::Usage`].
pub fn other_target(handle: &JobHandle, backend: &str, target: &str) -> Result<()> {
    if handle.backend() == backend && handle.target() == target {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Usage, format!("`{handle}` is not a job of this target"))
        .with("target", format!("{backend}://{target}")))
}

/// Returns the error of a job that does not exist.
pub fn no_job(handle: &JobHandle) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no job {handle}"))
        .hint(format!("`weftrun list --all -b {}` shows the jobs of this target", handle.target()))
}

/// Returns the error of a job whose name another job with these labels has that runs. Of a task, the whole set is named.
pub fn taken_name(other: &JobHandle, labels: &BTreeMap<String, String>) -> Error {
    let whole = other.set_of_task(labels).unwrap_or_else(|| other.clone());
    Error::new(ErrorKind::AlreadyExists, format!("a job named `{}` still runs", other.name()))
        .with("handle", &whole)
        .hint("`--name-suffix` makes a new name")
        .hint(format!("`weftrun cancel {whole}` ends the other"))
}
