//! The operating system's errors become [`weftrun_core::Error`].

use std::io;
use std::path::Path;

use weftrun_core::{Error, ErrorKind, Result};

/// Makes the error of a file that could not be used: what was tried, on which path, and what to try for the usual
/// reasons.
pub(super) fn file(did: &str, path: &Path, source: io::Error) -> Error {
    let error =
        Error::new(ErrorKind::Io, format!("cannot {did}: {}", plain(&source))).with("path", path.display());
    let error = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error.hint("free some space, or set WEFTRUN_STATE_DIR to another disk").retryable()
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            error.hint("set `state_dir` of the target to a folder you may write to")
        }
        _ => error,
    };
    error.source(source)
}

/// The system's words without Rust's `(os error 28)`.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text.to_lowercase(),
    }
}

/// Makes the error of a job that is not there.
pub(super) fn no_job(handle: &impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no job {handle}"))
        .hint("`weftrun list -b local` shows those there are")
}

/// Runs something that may block on the disk where it holds up nobody.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(join) => {
            Err(Error::new(ErrorKind::Unexpected, "a task of the local backend was ended").source(join))
        }
    }
}
