//! A job's folder: the paths in it, and writes after which a crash at any moment leaves either the old or the
//! new file.
//!
//! ```text
//! STATE/lock                  held while a name is claimed
//! STATE/jobs/SUBMISSION/      appears whole, by a rename: the claim
//!     job.toml  origin.json   what was submitted, from where; never changed
//!     lock                    held by the supervisor as long as it lives
//!     state.json              the supervisor's record, replaced whole
//!     given-up                its submitter could not start a supervisor
//!     requests/               what others ask of the supervisor
//!     logs/ATTEMPT/NAME.log   what each process wrote, by its own hand
//!     code/                   code brought along
//!     code.tar.gz             a folder of code, until it is unpacked
//!     libweftrun-nccl.so      weftrun's library for NCCL's profiler interface
//! STATE/jobs/.new-*           a claim that was cut off: nothing ran, it is swept away
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use weftrun_core::{Error, ErrorKind, Result};

use super::error;
use crate::files;

/// Space that a supervisor reserves so that its last record can be written on a full disk.
pub const RESERVE: usize = 64 << 10;

pub const JOB: &str = "job.toml";
pub const ORIGIN: &str = "origin.json";
pub const RECORD: &str = "state.json";
pub const GIVEN_UP: &str = "given-up";
pub const REQUESTS: &str = "requests";
pub const CODE: &str = "code";
pub const ARCHIVE: &str = "code.tar.gz";
pub const LIBRARY: &str = "libweftrun-nccl.so";
pub const SUPERVISOR_LOG: &str = "supervisor.log";

/// The folder of one job.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates a job's folder from its path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a file or folder in it.
    pub fn of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the log of a process in an attempt.
    pub fn log(&self, attempt: u32, name: &str) -> PathBuf {
        self.0.join("logs").join(attempt.to_string()).join(format!("{name}.log"))
    }

    /// Takes the supervisor's lock; none if it is held by another process. Its holder may write the record.
    pub fn try_lock(&self) -> Result<Option<File>> {
        let path = self.of("lock");
        let file = private_file().create(true).truncate(false).open(&path);
        let file = file.map_err(|e| error::file("open the job's lock", &path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(error::file("lock the job", &path, e)),
        }
    }
}

/// Returns the options of a file that only its owner can read.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Creates a folder that only its owner can enter, and those above it.
pub(super) fn make(path: &Path) -> Result<()> {
    files::make_private_dir(path).map_err(|e| error::file("make a folder", path, e))
}

/// Writes a new file, and waits until it is on the disk.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = private_file()
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|e| error::file("write a file", path, e))
}

/// Replaces a file atomically: a reader sees the old or the new one.
pub(super) fn replace(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(value).map_err(|e| {
        Error::new(ErrorKind::Unexpected, "a record cannot be written as JSON").with_source(e)
    })?;
    files::replace(path, &text).map_err(|e| error::file("write the job's record", path, e))
}

/// Reads a JSON file; none if it does not exist.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match files::read(path, files::MAX_STATE) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(error::file("read a file", path, e)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::new(ErrorKind::Io, format!("a job's record is damaged: {e}"))
            .with("path", path.display())
            .hint("`weftrun delete` removes the job with its record")
    })
}

/// Returns the number of free bytes on a folder's disk, if the system reports it.
pub fn free(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Refuses a disk without enough space for a job's records, so that a job is never accepted only partially.
pub fn has_room(folder: &Path) -> Result<()> {
    match free(folder) {
        Some(free) if free < 4 * RESERVE as u64 => {
            let full = std::io::Error::from(rustix::io::Errno::NOSPC);
            Err(error::file("take the job", folder, full).with("bytes free", free))
        }
        _ => Ok(()),
    }
}
