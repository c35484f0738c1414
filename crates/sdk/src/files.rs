//! Files written whole or not at all, readable by their owner only.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weftrun_core::{Error, ErrorKind, Result};

/// Writes a file atomically with mode 0600 in a folder of mode 0700, which is made if it is not there.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let attempt = || -> std::io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        make_private_dir(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        fs::File::open(dir)?.sync_all()
    };
    attempt().map_err(|error| io_error("cannot write", path, error))
}

/// Makes a folder and its parents, readable by their owner only.
pub(crate) fn make_private_dir(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// A folder in the system's temporary one that only this user can enter; for those who have no home. Everybody may make
/// folders there, so one of our name that is another's, or open to others, is refused: what it says is not ours.
pub(crate) fn own_temporary_folder() -> Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let dir = std::env::temp_dir().join(format!("weftrun-{user}"));
    // Where it cannot be made nothing can be kept, and the first write says so.
    if make_private_dir(&dir).is_err() && fs::symlink_metadata(&dir).is_err() {
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

/// Reads a file of at most `limit` bytes; none if it is not there.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<Option<String>> {
    let size = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("cannot read", path, error)),
    };
    if size > limit {
        let message = format!("{} is {size} bytes; at most {limit} are read", path.display());
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    fs::read_to_string(path).map(Some).map_err(|error| io_error("cannot read", path, error))
}

/// Makes the error of a failed file operation.
pub(crate) fn io_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Some("check the permissions, or set WEFTRUN_STATE_DIR to a folder of yours")
        }
        std::io::ErrorKind::StorageFull => Some("free some space, or set WEFTRUN_STATE_DIR to another disk"),
        std::io::ErrorKind::ReadOnlyFilesystem => {
            Some("set WEFTRUN_STATE_DIR to a folder that can be written")
        }
        _ => None,
    };
    let made = Error::new(ErrorKind::Io, format!("{what} {}: {error}", path.display())).source(error);
    match hint {
        Some(hint) => made.hint(hint),
        None => made,
    }
}
