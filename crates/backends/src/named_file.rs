//! Files that the user named to be written: all are checked first, then written beside their places, then
//! renamed. A failure before the first rename changes none of them.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags};
use tempfile::NamedTempFile;
use weftrun_core::{Error, ErrorKind, Result};

use crate::files::folder_of;

/// A path that can be written: an ordinary file of the user, or a new one.
#[derive(Debug)]
pub struct NamedFile {
    /// As the user wrote it.
    named: PathBuf,
    /// Behind links: a link stays, and the file that it names is written.
    path: PathBuf,
    /// What is replaced; none for a new file.
    found: Option<Metadata>,
}

impl NamedFile {
    /// Checks that a path is an ordinary file of the user, perhaps behind links, or does not exist. Replacing
    /// a FIFO or a device would remove it, replacing one of several hard links would leave the others with the
    /// old text, and replacing another user's file would change its owner.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`] for anything else, with the reason and what to do.
    pub fn check(named: &Path) -> Result<Self> {
        let path = behind_links(named);
        let user = rustix::process::geteuid().as_raw();
        let belongs = |what: &str, owner: u32| {
            let why = format!("{what} belongs to the user with the id {owner}, and not to you");
            refuse(named, &why, "copy it to a file of yours")
        };
        match fs::symlink_metadata(named) {
            // Root's links are part of the system.
            Ok(link) if link.is_symlink() && link.uid() != user && link.uid() != 0 => {
                return Err(belongs("the link", link.uid()));
            }
            _ => {}
        }
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(named, error)),
        };
        let folder = folder_of(&path);
        if let Some(found) = &found {
            if !found.is_file() {
                let why = format!("it is {}, and not a regular file", kind(found));
                return Err(refuse(named, &why, "name a regular file, or redirect the output to it"));
            }
            if found.uid() != user {
                return Err(belongs("it", found.uid()));
            }
            if found.nlink() > 1 {
                let why =
                    format!("it has {} hard links, and the others would keep the old text", found.nlink());
                let fix = format!(
                    "copy it and rename the copy over it, which separates it: cp -p {0} {0}.new && mv {0}.new {0}",
                    named.display()
                );
                return Err(refuse(named, &why, &fix));
            }
            // Root may write to a file of any mode.
            if found.mode() & 0o200 == 0 {
                let why = format!("it is read-only (mode {:04o})", found.mode() & 0o7777);
                return Err(refuse(named, &why, &format!("chmod u+w {}", named.display())));
            }
            // Finds what modes do not tell: a read-only file system, an immutable file, a running program.
            let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
            if let Err(error) = OpenOptions::new().write(true).custom_flags(flags).open(&path) {
                let fix = "make it writable, or redirect the output to another file";
                return Err(refuse(named, &error.to_string(), fix));
            }
        }
        if folder.is_dir() && rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            let why = format!("no file can be created in its folder {}", folder.display());
            return Err(refuse(named, &why, &format!("chmod u+wx {}", folder.display())));
        }
        Ok(Self { named: named.to_owned(), path, found })
    }

    /// Returns whether a path names this file.
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == behind_links(path)
    }

    /// Writes the new text beside the file. A replaced file keeps its mode and its group.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn stage(self, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<Staged> {
        let fail = |error| failed(&self.named, error);
        // The umask reduces the mode of a new file.
        let mode = if self.found.is_some() { 0o600 } else { 0o666 };
        let mut new = tempfile::Builder::new()
            .prefix(".tmp-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder_of(&self.path))
            .map_err(fail)?;
        fill(new.as_file_mut())?;
        if let Some(found) = &self.found {
            // A group that the user is not in cannot be given.
            let _ = std::os::unix::fs::fchown(new.as_file(), None, Some(found.gid()));
            new.as_file().set_permissions(found.permissions()).map_err(fail)?;
        }
        new.as_file().sync_all().map_err(fail)?;
        Ok(Staged { file: self, new })
    }

    /// Writes a text.
    ///
    /// # Errors
    /// As [`NamedFile::stage`].
    pub fn write(self, text: &[u8]) -> Result<()> {
        let named = self.named.clone();
        self.stage(|file| io::Write::write_all(file, text).map_err(|error| failed(&named, error)))?.commit()
    }
}

/// A text that is on disk beside its file.
#[derive(Debug)]
pub struct Staged {
    file: NamedFile,
    new: NamedTempFile,
}

impl Staged {
    /// Renames it to its place.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file; also if a new file has appeared in the meantime.
    pub fn commit(self) -> Result<()> {
        let done = match self.file.found {
            Some(_) => self.new.persist(&self.file.path),
            None => self.new.persist_noclobber(&self.file.path),
        };
        done.map(drop).map_err(|error| failed(&self.file.named, error.error))
    }
}

/// Returns the path behind links, also of a link to a file that does not exist yet.
pub fn behind_links(path: &Path) -> PathBuf {
    if let Ok(whole) = fs::canonicalize(path) {
        return whole;
    }
    let target = fs::read_link(path).ok().map(|target| path.parent().unwrap_or(path).join(target));
    target.unwrap_or_else(|| path.to_owned())
}

fn kind(found: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_symlink() => "a link to a link that leads nowhere",
        () => "a device",
    }
}

fn refuse(path: &Path, why: &str, fix: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("{} is not written: {why}", path.display())).hint(fix)
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write {}: {error}", path.display())).with_source(error)
}
