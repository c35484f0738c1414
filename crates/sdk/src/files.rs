//! Bounded reads and private, atomic writes, used for every file of the configuration and of the state
//! folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub use weftrun_backends::files::{
    absolute, make_private_dir, private_file, read, read_named, read_named_text, refuse_foreign,
    spare_descriptors,
};
pub use weftrun_backends::named_file::{NamedFile, Staged};
use weftrun_core::env_names::{CONFIG_DIR, STATE_DIR};
use weftrun_core::{Error, ErrorKind, Result};

/// The folders of weftrun below the state folder.
pub(crate) const SUBFOLDERS: [&str; 7] =
    ["journal", "targets", "trusted", "images", "config", "history", "code"];

/// Writes a file atomically with mode 0600 in a folder of mode 0700, which is created if necessary.
///
/// # Errors
/// [`ErrorKind::Io`] naming the file.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    weftrun_backends::files::write_private(path, bytes).map_err(|error| io_error("cannot write", path, error))
}

/// Returns a folder below the system's temporary one that only this user can enter, for users without a home.
/// Any user can create folders there, so an existing one that another user owns, or can access, is refused:
/// its contents are not trusted.
pub(crate) fn own_temporary_folder() -> Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    // A relative TMPDIR would refer to the working directory, where an unpacked archive may contain a folder
    // of this name.
    let temporary = Some(std::env::temp_dir()).filter(|folder| folder.is_absolute());
    let dir = temporary.unwrap_or_else(|| PathBuf::from("/tmp")).join(format!("weftrun-{user}"));
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    // If it cannot be created, nothing can be stored, and the first write reports that.
    if builder.create(&dir).is_err() && fs::symlink_metadata(&dir).is_err() {
        return Ok(dir);
    }
    let found = fs::symlink_metadata(&dir).map_err(|error| io_error("cannot look at", &dir, error))?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(dir);
    }
    let message = format!("{} is not a folder of yours alone", dir.display());
    Err(Error::new(ErrorKind::InvalidConfig, message)
        .hint("set HOME, or WEFTRUN_STATE_DIR to a folder of yours"))
}

/// Reads a regular file of at most `limit` bytes as text; none if it does not exist.
///
/// # Errors
/// [`ErrorKind::InvalidConfig`] for a longer file, a device or a FIFO; [`ErrorKind::Io`] for errors of the
/// system.
pub fn read_text(path: &Path, limit: u64) -> Result<Option<String>> {
    read_text_of(STATE_DIR, path, limit)
}

/// Does the same for a file of the configuration.
pub(crate) fn read_config(path: &Path, limit: u64) -> Result<Option<String>> {
    read_text_of(CONFIG_DIR, path, limit)
}

fn read_text_of(variable: &str, path: &Path, limit: u64) -> Result<Option<String>> {
    match weftrun_backends::files::read_text(path, limit) {
        Ok(text) => Ok(Some(text)),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => Ok(None),
            std::io::ErrorKind::FileTooLarge | std::io::ErrorKind::InvalidInput => {
                let message = format!("cannot read {}: {error}", path.display());
                Err(Error::new(ErrorKind::InvalidConfig, message).with_source(error))
            }
            _ => Err(failed(variable, "cannot read", path, error)),
        },
    }
}

/// Returns the files of a folder of the state whose names end in `.json`; none if there is no folder.
pub(crate) fn json_files(folder: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => {
            let paths = entries.flatten().map(|entry| entry.path());
            Ok(paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io_error("cannot read", folder, error)),
    }
}

/// Removes a file of the state; a missing one is not an error.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("cannot remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Returns the error of a state folder that is not the user's.
pub(crate) fn refused(error: std::io::Error) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("the state folder cannot be used: {error}"))
        .with_source(error)
        .hint(format!("set {STATE_DIR} to a folder of yours"))
}

/// Returns the error of a failed operation on a file of the state.
pub(crate) fn io_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    failed(STATE_DIR, what, path, error)
}

/// Returns the error of a failed operation on a file of the configuration.
pub(crate) fn config_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    failed(CONFIG_DIR, what, path, error)
}

/// Returns the error of a file whose folder a variable names.
fn failed(variable: &str, what: &str, path: &Path, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Some(format!("check the permissions, or set {variable} to a folder of yours"))
        }
        std::io::ErrorKind::StorageFull => {
            Some(format!("free some space, or set {variable} to a folder on another disk"))
        }
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::NotFound => {
            Some(format!("set {variable} to a folder that can be written"))
        }
        _ => None,
    };
    let made = Error::new(ErrorKind::Io, format!("{what} {}: {error}", path.display())).with_source(error);
    match hint {
        Some(hint) => made.hint(hint),
        None => made,
    }
}
