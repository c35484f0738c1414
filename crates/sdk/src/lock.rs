//! File locks, which the kernel releases however their holder ends.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weftrun_backends::files::open_private;
use weftrun_core::{Error, ErrorKind, Result};

use crate::files::config_error;

/// How long to wait for a lock that protects a few system calls.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the lock file of a file that is replaced atomically, and so cannot be locked itself.
pub(crate) fn beside(file: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".lock");
    file.with_file_name(name)
}

/// Waits for a lock and takes it. On a file system without locks it returns none, and the protected operation
/// runs without one.
pub(crate) fn exclusive(path: &Path) -> Result<Option<File>> {
    hold(open_private(path).map_err(|error| config_error("cannot open", path, error))?, path, PATIENCE)
}

/// Waits so long for the lock of an open file and takes it; none on a file system without locks.
pub(crate) fn hold(file: File, path: &Path, patience: Duration) -> Result<Option<File>> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if began.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                let message =
                    format!("another process has held {} for {} s", path.display(), patience.as_secs());
                return Err(Error::new(ErrorKind::Timeout, message).retryable());
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, path = %path.display(), "no lock");
                return Ok(None);
            }
        }
    }
}
