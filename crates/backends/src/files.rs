//! Bounded reads and private, atomic writes. This module alone opens the files of a configuration, of a state
//! folder and of credentials.
//!
//! A file at a well-known path may be a link that another user created: to an endless device, or to a FIFO
//! without a writer. [`read`] therefore accepts only regular files of a limited size. A path that the user
//! typed may be a pipe (`/dev/stdin`, process substitution) and is read by [`read_named`], with a limit too.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use weftrun_core::{Error, ErrorKind};

/// Largest certificate, token or key file that is read.
pub const MAX_CREDENTIAL: u64 = 4 << 20;
/// Largest state file of a backend that is read.
pub const MAX_STATE: u64 = 64 << 20;

/// Opens a regular file for reading. Never blocks: a FIFO, device, socket or folder is an error, also behind
/// links.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is not a regular file, and errors of the system.
pub fn open(path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO waits for a writer; without NOCTTY, a terminal could become the
    // controlling one.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; [`io::ErrorKind::FileTooLarge`] for a longer one.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, limit)
}

/// Reads a regular file of at most `limit` bytes as UTF-8.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::InvalidData`] for other bytes.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read(path, limit)?)
}

/// Returns the program of a name, as a shell finds it: the name itself if it has a slash, else the first
/// executable in the path.
pub(crate) fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.contains('/') {
        return is_executable(Path::new(name)).then(|| PathBuf::from(name));
    }
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Reads a path that the user named, which may be a pipe or a terminal, up to `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] for more bytes, and errors of the system.
pub fn read_named(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    bounded(File::open(path)?, limit)
}

/// Reads a path that the user named as UTF-8.
///
/// # Errors
/// As [`read_named`]; [`io::ErrorKind::InvalidData`] for other bytes.
pub fn read_named_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read_named(path, limit)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))
}

/// Reads an open file, up to `limit` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] for a longer one.
pub fn bounded(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {limit} bytes, the limit for this file"),
        )
    };
    // The size of a pipe or a device is 0; for a file, the check avoids reading what is refused anyway.
    let size = file.metadata()?.len();
    if size > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Writes a file atomically with mode 0600, in a folder of mode 0700 that is created if necessary. When it
/// returns, the file is on disk.
///
/// # Errors
/// Errors of the system.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    make_private_dir(folder)?;
    sweep(folder);
    replace(path, bytes)?;
    // Without it, a file that was just created may be missing after a power failure.
    File::open(folder)?.sync_all()
}

/// Replaces a file atomically with mode 0600; its folder must exist and is not changed. After a power failure
/// the file is the old or the new one.
///
/// # Errors
/// Errors of the system.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_as(path, bytes, 0o600)
}

/// Replaces a file like [`replace`], with another mode: for a file that several users share.
///
/// # Errors
/// Errors of the system.
pub fn replace_as(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let folder = folder_of(path);
    let mut tries = 0;
    loop {
        // tempfile creates it with mode 0600 under any umask.
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
        // The lock shows `sweep` that the file has a writer. A sweep between the two calls removes it all the same.
        let _ = file.as_file().try_lock();
        file.write_all(bytes)?;
        if mode != 0o600 {
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        file.as_file().sync_all()?;
        match file.persist(path) {
            Ok(_) => return Ok(()),
            Err(failed) if failed.error.kind() == io::ErrorKind::NotFound && tries < 3 => tries += 1,
            Err(failed) => return Err(failed.error),
        }
    }
}

/// Prefix of the files that [`replace`] writes.
const TEMPORARY: &str = ".tmp-";
/// Age at which such a file is removed on a file system without locks.
const LEFT_OVER: Duration = Duration::from_hours(24);

/// Removes the partially written files that killed processes left in a folder.
pub fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        sweep_entry(&entry);
    }
}

fn sweep_entry(entry: &fs::DirEntry) {
    if !entry.file_name().to_string_lossy().starts_with(TEMPORARY)
        || !entry.file_type().is_ok_and(|kind| kind.is_file())
    {
        return;
    }
    let path = entry.path();
    let old = |file: &File| {
        let modified = file.metadata().and_then(|found| found.modified());
        modified.is_ok_and(|then| then.elapsed().is_ok_and(|age| age > LEFT_OVER))
    };
    let left = open(&path).is_ok_and(|file| match file.try_lock() {
        Ok(()) => true,
        Err(fs::TryLockError::WouldBlock) => false,
        Err(fs::TryLockError::Error(_)) => old(&file),
    });
    if left {
        let _ = fs::remove_file(path);
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a folder with mode 0700, and the missing ones above it. Other users lose access to an existing one
/// that the user owns.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for an existing folder of another user, and errors of the system.
pub fn make_private_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    close(folder)
}

/// Opens a file of a state folder for writing with mode 0600, and creates it if necessary. Existing contents
/// are kept.
///
/// # Errors
/// Errors of the system.
pub fn private_file(path: &Path) -> io::Result<File> {
    make_private_dir(folder_of(path))?;
    open_private(path)
}

/// Opens a file like [`private_file`], in a folder that must exist and is not changed.
///
/// # Errors
/// Errors of the system.
pub fn open_private(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Opens a regular file for reading and appending, and creates it if necessary, with a mode under any umask and the group of
/// its folder, which must exist.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is not a regular file, and errors of the system.
pub fn open_append(path: &Path, mode: u32) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).append(true).custom_flags(flags);
    match options.clone().create_new(true).mode(0o600).open(path) {
        Ok(file) => {
            // Who is not of that group keeps a group of their own.
            let _ = fchown(&file, None, Some(fs::metadata(folder_of(path))?.gid()));
            file.set_permissions(Permissions::from_mode(mode))?;
            return Ok(file);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // Another process may have removed it meanwhile.
    let file = options.create(true).mode(mode).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Refuses a folder of another user. One that all may write to (sticky, as `/tmp`) and a missing one are no error.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for a folder, or a link, of another user.
pub fn refuse_foreign(folder: &Path) -> io::Result<()> {
    owned(folder).map(drop)
}

/// Returns the folder behind a path, if there is one that is not sticky; refuses one of another user.
fn owned(folder: &Path) -> io::Result<Option<fs::Metadata>> {
    let user = rustix::process::geteuid().as_raw();
    let Ok(link) = fs::symlink_metadata(folder) else { return Ok(None) };
    let found = fs::metadata(folder).ok();
    let of = |file: &fs::Metadata| (file.mode(), file.uid());
    match owner(user, of(&link), found.as_ref().map(of)) {
        Owner::You => Ok(found),
        Owner::All => Ok(None),
        Owner::Other(id) => {
            let message =
                format!("{} belongs to the user with the id {id}, and not to you", folder.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
        }
    }
}

/// The owner of a state folder.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    You,
    /// It is sticky, or no folder.
    All,
    /// The user with this id.
    Other(u32),
}

/// Returns the owner of a path for a user. The path and what is behind it, if it exists, are given by mode and user id.
fn owner(user: u32, path: (u32, u32), behind: Option<(u32, u32)>) -> Owner {
    let is = |mode: u32, kind: FileType| FileType::from_raw_mode(mode) == kind;
    match (path, behind) {
        // Root's links are part of the system, as `/home` on many machines.
        ((mode, id), _) if is(mode, FileType::Symlink) && id != user && id != 0 => Owner::Other(id),
        (_, Some((mode, id))) if is(mode, FileType::Directory) && mode & 0o1000 == 0 => {
            if id == user {
                Owner::You
            } else {
                Owner::Other(id)
            }
        }
        _ => Owner::All,
    }
}

/// Restricts a folder to mode 0700, also one behind links of the user. A folder that all may write to (sticky, as `/tmp`) and
/// the home folder are not changed: they are shared with other programs, even if one of them was configured
/// as a state folder.
///
/// # Errors
/// As [`refuse_foreign`].
fn close(folder: &Path) -> io::Result<()> {
    let Some(found) = owned(folder)? else { return Ok(()) };
    let is_home = || {
        let home = std::env::home_dir().and_then(|home| fs::metadata(home).ok());
        home.is_some_and(|home| (home.dev(), home.ino()) == (found.dev(), found.ino()))
    };
    if found.mode() & 0o077 != 0 && !is_home() {
        let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
    }
    Ok(())
}

/// Restricts access to state that an earlier version, or a permissive umask, left open to others: the folder,
/// and below the named subfolders everything that the user owns (folders 0700, files without rights of
/// others). The state folder and the named subfolders may be links; other links are not followed. If nothing is open, only
/// the folders of the first two levels are read. Removes the partially written files of killed processes there.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if one of these folders belongs to another user: what it contains could be that user's.
pub fn tighten_state(state: &Path, subfolders: &[&str]) -> io::Result<()> {
    close(state)?;
    for name in subfolders {
        let Ok(folder) = fs::canonicalize(state.join(name)) else { continue };
        // It may be open until it is read: `tighten` decides by its mode what to read.
        tighten(&folder, 2);
        close(&state.join(name))?;
    }
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        sweep_entry(&entry);
        let name = entry.file_name();
        if ["tui.json", "copied.txt"].iter().any(|own| name == *own) {
            close_file(&entry);
        }
    }
    Ok(())
}

fn close_file(entry: &fs::DirEntry) {
    if let Ok(found) = entry.metadata()
        && found.is_file()
        && found.mode() & 0o077 != 0
    {
        let _ = fs::set_permissions(entry.path(), Permissions::from_mode(found.mode() & 0o7700));
    }
}

fn tighten(folder: &Path, look_into: u32) {
    let Ok(found) = fs::symlink_metadata(folder) else { return };
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return;
    }
    let open = found.mode() & 0o077 != 0;
    let _ = close(folder);
    if !open && look_into == 0 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        sweep_entry(&entry);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => tighten(&entry.path(), look_into.saturating_sub(1)),
            Ok(kind) if kind.is_file() && open => close_file(&entry),
            _ => {}
        }
    }
}

/// File descriptors that an async runtime opens when it starts: tokio's poller, its waker and its pair of sockets
/// for signals, with a copy of two of them, and some to work with.
const OF_RUNTIME: usize = 10;

/// Refuses to start an async runtime that would panic for want of file descriptors.
///
/// # Errors
/// [`ErrorKind::Io`] with the limit.
pub fn spare_descriptors() -> weftrun_core::Result<()> {
    // Sockets, since a machine without `/dev/null` (an empty root) has those.
    let opened: io::Result<Vec<_>> =
        (0..OF_RUNTIME).map(|_| std::os::unix::net::UnixDatagram::unbound()).collect();
    let Err(error) = opened else { return Ok(()) };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or_else(String::new, |limit| format!("; the limit is {limit} (`ulimit -n`)"));
    let message = format!("cannot open the files that every job needs: {error}{limit}");
    Err(Error::new(ErrorKind::Io, message)
        .with_source(error)
        .hint("raise the limit of open files: `ulimit -n 4096`"))
}

/// Returns the path in an environment variable, if it is absolute. The XDG base directory specification
/// requires ignoring all others: an empty or relative one would refer to the working directory, which may
/// belong to another user.
pub fn absolute(value: Option<&String>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("small"), "1234").unwrap();
        std::os::unix::fs::symlink(path("small"), path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("endless")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert_eq!(read(&path("link"), 4).unwrap(), b"1234");
        assert_eq!(read(&path("small"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        for name in ["endless", "fifo", "."] {
            assert_eq!(read(&path(name), 1 << 20).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(read_named(&path("endless"), 1 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_written_is_private_and_what_was_open_is_closed() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        let inner = state.join("targets/prod");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("old"), "x").unwrap();
        for folder in [&state, &state.join("targets"), &inner] {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }
        fs::set_permissions(inner.join("old"), Permissions::from_mode(0o754)).unwrap();
        write_private(&inner.join("new"), b"y").unwrap();
        assert_eq!((mode(&inner), mode(&inner.join("new"))), (0o700, 0o600));
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(state.join("elsewhere")).unwrap();
        fs::set_permissions(state.join("elsewhere"), Permissions::from_mode(0o755)).unwrap();
        tighten_state(&state, &["targets"]).unwrap();
        for folder in [&state, &state.join("targets"), &inner, &inner.join("old")] {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
        assert_eq!(mode(&state.join("elsewhere")), 0o755, "what weftrun did not make stays as it is");
    }

    #[test]
    fn a_folder_behind_a_link_is_closed_and_the_home_is_not() {
        let root = tempfile::tempdir().unwrap();
        let (disk, state) = (root.path().join("disk"), root.path().join("state"));
        for folder in [&disk.join("state"), &disk.join("journal")] {
            fs::create_dir_all(folder).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(disk.join("state"), &state).unwrap();
        std::os::unix::fs::symlink(disk.join("journal"), state.join("journal")).unwrap();
        fs::write(disk.join("journal/open"), "x").unwrap();
        tighten_state(&state, &["journal", "targets"]).unwrap();
        assert_eq!((mode(&disk.join("state")), mode(&disk.join("journal"))), (0o700, 0o700));
        assert_eq!(mode(&disk.join("journal/open")) & 0o077, 0);
        fs::set_permissions(disk.join("journal"), Permissions::from_mode(0o750)).unwrap();
        write_private(&state.join("journal/new"), b"x").unwrap();
        assert_eq!(mode(&disk.join("journal")), 0o700);
    }

    #[test]
    fn a_folder_is_yours_or_anothers_by_its_owner_and_that_of_a_link_to_it() {
        const DIR: u32 = 0o040_755;
        const STICKY: u32 = 0o041_777;
        const FILE: u32 = 0o100_644;
        const LINK: u32 = 0o120_777;
        let (you, other, root) = (1000, 12345, 0);
        for (path, behind, wanted) in [
            ((DIR, you), Some((DIR, you)), Owner::You),
            ((DIR, other), Some((DIR, other)), Owner::Other(other)),
            ((DIR, root), Some((DIR, root)), Owner::Other(root)),
            ((STICKY, root), Some((STICKY, root)), Owner::All),
            ((STICKY, other), Some((STICKY, other)), Owner::All),
            ((FILE, other), Some((FILE, other)), Owner::All),
            ((LINK, you), Some((DIR, you)), Owner::You),
            ((LINK, you), Some((DIR, other)), Owner::Other(other)),
            ((LINK, you), None, Owner::All),
            ((LINK, root), Some((DIR, you)), Owner::You),
            ((LINK, root), Some((DIR, other)), Owner::Other(other)),
            ((LINK, other), Some((DIR, you)), Owner::Other(other)),
            ((LINK, other), Some((STICKY, root)), Owner::Other(other)),
            ((LINK, other), None, Owner::Other(other)),
        ] {
            assert_eq!(owner(you, path, behind), wanted, "{path:?} {behind:?}");
        }
        assert_eq!(owner(root, (DIR, you), Some((DIR, you))), Owner::Other(you), "root's state is root's");
    }

    /// Only root can make a folder of another user; the decision is tested above by any user.
    #[test]
    fn a_folder_of_another_user_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("state");
        fs::create_dir(&folder).unwrap();
        if std::os::unix::fs::chown(&folder, Some(12345), None).is_err() {
            weftrun_testkit::skipped("only root can make a folder of another user");
            return;
        }
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        for path in [&folder, &link] {
            let refused = [
                make_private_dir(path),
                write_private(&path.join("file"), b"x"),
                tighten_state(path, &[]),
                tighten_state(root.path(), &["state"]),
            ];
            for result in refused {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                assert!(error.to_string().contains("12345"), "{error}");
            }
        }
        // As `/tmp`.
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        tighten_state(&folder, &[]).unwrap();
    }

    #[test]
    fn files_of_killed_writers_are_removed_and_those_of_live_ones_stay() {
        let state = tempfile::tempdir().unwrap();
        let journal = state.path().join("journal");
        fs::create_dir(&journal).unwrap();
        let (dead, live, other) =
            (journal.join(".tmp-dead"), journal.join(".tmp-live"), journal.join("tmp-x"));
        for path in [&dead, &live, &other, &state.path().join(".tmp-above")] {
            fs::write(path, "half").unwrap();
        }
        let writer = File::open(&live).unwrap();
        writer.lock().unwrap();
        tighten_state(state.path(), &["journal"]).unwrap();
        assert!(!dead.exists() && live.exists() && other.exists());
        assert!(!state.path().join(".tmp-above").exists());
        drop(writer);
        write_private(&journal.join("record"), b"x").unwrap();
        assert!(!live.exists());
    }

    #[test]
    fn empty_and_relative_folders_are_none() {
        for value in ["", ".", "state", "./x", "~/x"] {
            assert_eq!(absolute(Some(&value.to_owned())), None, "{value}");
        }
        assert_eq!(absolute(Some(&"/x".to_owned())), Some(PathBuf::from("/x")));
    }
}
