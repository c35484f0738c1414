//! Converts the operating system's errors to [`weftrun_core::Error`].

use std::io;
use std::path::Path;

use weftrun_core::{Error, ErrorKind, Result};

/// Returns the error of a failed file operation: the operation, the path, and hints for the usual reasons.
pub(super) fn file(did: &str, path: &Path, source: io::Error) -> Error {
    of_kind(ErrorKind::Io, did, path, source)
}

/// Returns the same error of another kind.
pub(super) fn of_kind(kind: ErrorKind, did: &str, path: &Path, source: io::Error) -> Error {
    let error = Error::new(kind, format!("cannot {did}: {}", plain(&source))).with("path", path.display());
    let error = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error.hint("free some space, or set WEFTRUN_STATE_DIR to another disk").retryable()
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            error.hint("set `state_dir` of the target to a folder you may write to")
        }
        _ if source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            error.hint("raise the limit of open files: `ulimit -n 4096`")
        }
        _ => error,
    };
    error.with_source(source)
}

/// Returns the system's message without Rust's `(os error 28)`.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text.to_lowercase(),
    }
}

/// Runs an operation that may block on the disk in a thread where it delays nothing else.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(join) => {
            Err(Error::new(ErrorKind::Unexpected, "a task of the local backend was ended").with_source(join))
        }
    }
}
