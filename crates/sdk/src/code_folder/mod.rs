//! The folder that is sent with a job: which files git would commit, and their bytes as one archive.
//!
//! Git itself lists the files, so that ignore files, excludes and tracked files that match them mean here what they
//! mean to git. Nothing outside the folder is read: a symbolic link is sent as a link.

mod git;
pub(crate) mod kept;
mod tar;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use weftrun_core::log::clean_text;
use weftrun_core::spec::{Code, CodeContent, MAX_CODE_BYTES, MAX_CODE_FILES};
use weftrun_core::text::{counted, rounded_size};
use weftrun_core::{Error, ErrorKind, Finding, Result};

/// How often a file that changes while it is read is read.
const TRIES: u32 = 3;
/// How many files or folders an error names.
const NAMED: usize = 3;

/// Reads a folder as the code of a job: the files that git would commit, tracked or not, and not the ignored ones.
///
/// ```no_run
/// use weftrun::prelude::*;
/// let role = Role::worker().command(["python", "train.py"]);
/// let spec = JobSpec::builder("demo").role(role).code(weftrun::code_folder(".")?).build()?;
/// # Ok::<(), weftrun::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a folder that is too large, has no files, or changes while it is read, and where git
/// cannot list it; [`ErrorKind::NotFound`] and [`ErrorKind::Io`] naming the file.
pub fn code_folder(dir: impl AsRef<Path>) -> Result<Code> {
    let dir = dir.as_ref();
    let (content, _) = read(dir)?;
    Ok(Code::Folder { dir: dir.display().to_string(), content: Some(content) })
}

/// Reads a folder, and returns what was left out of it.
pub(crate) fn read(dir: &Path) -> Result<(CodeContent, Vec<Finding>)> {
    let root = std::fs::canonicalize(dir).map_err(|error| failed("read the folder", dir, &error))?;
    if !root.is_dir() {
        return Err(Error::new(ErrorKind::InvalidSpec, format!("{} is not a folder", shown(dir)))
            .hint("`code.script` sends a single file"));
    }
    let state = git::state(&root)?;
    let mut entries = Entries::new(&root);
    let mut dirty = state.dirty;
    git::list(&root, state.is_repository, &mut |path| {
        let is_repository = entries.add(path)?;
        dirty |= is_repository && state.commit.is_some() && git::is_dirty(&root.join(path))?;
        Ok(is_repository)
    })?;
    entries.refuse_excess(dir)?;
    let Entries { found, left_out, bytes, .. } = entries;
    let mut archive = tar::Archive::new();
    let mut left = MAX_CODE_BYTES;
    for (path, kind) in &found {
        let full = root.join(path);
        match kind {
            Kind::Link(target) => archive.link(path, target),
            Kind::File { executable } => {
                let content = read_file(&full, left)?;
                left = left.saturating_sub(content.len() as u64);
                archive.file(path, *executable, &content)
            }
        }
        .map_err(|error| failed("pack the file", &full, &error))?;
    }
    let (hash, archive) = archive.finish().map_err(|error| failed("pack the folder", dir, &error))?;
    let files = found.len() as u64;
    let commit = state.commit;
    let content =
        CodeContent { hash, commit, dirty, files, bytes, archive: weftrun_core::spec::Archive::new(archive) };
    Ok((content, left_out))
}

/// A path as text for a message.
fn shown(path: &Path) -> String {
    clean_text(&path.display().to_string()).into_owned()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    let kind = if error.kind() == io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
    Error::new(kind, format!("cannot {what} {}: {error}", shown(path)))
}

/// What is sent of a path.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    File { executable: bool },
    Link(PathBuf),
}

/// The paths that git listed.
struct Entries<'a> {
    root: &'a Path,
    found: BTreeMap<PathBuf, Kind>,
    bytes: u64,
    files: u64,
    /// The number of files in each folder at the top.
    folders: BTreeMap<PathBuf, u64>,
    /// The largest files, the largest last.
    largest: BTreeSet<(u64, PathBuf)>,
    left_out: Vec<Finding>,
    /// The folder that was checked last: files come in the order of their folders.
    checked: Option<(PathBuf, bool)>,
}

impl<'a> Entries<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            found: BTreeMap::new(),
            bytes: 0,
            files: 0,
            folders: BTreeMap::new(),
            largest: BTreeSet::new(),
            left_out: Vec::new(),
            checked: None,
        }
    }

    /// Adds a path that git listed. Returns whether it is a repository in the folder, whose files git lists separately.
    fn add(&mut self, path: &Path) -> Result<bool> {
        // The folder is refused: the rest is only counted, since looking at a million files takes minutes.
        if self.files > MAX_CODE_FILES {
            self.files += 1;
            *self.folders.entry(top(path)).or_default() += 1;
            return Ok(false);
        }
        if !self.is_inside(path) {
            return Ok(false);
        }
        let full = self.root.join(path);
        let found = match std::fs::symlink_metadata(&full) {
            Ok(found) => found,
            // Tracked, and removed without git.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed("read the file", &full, &error)),
        };
        let kind = found.file_type();
        if kind.is_dir() {
            let is_repository = full.join(".git").exists();
            if !is_repository {
                self.leave_out(
                    path,
                    "is a submodule that is not checked out: run `git submodule update --init`",
                );
            }
            return Ok(is_repository);
        }
        if !kind.is_file() && !kind.is_symlink() {
            self.leave_out(path, "is neither a file nor a link");
            return Ok(false);
        }
        self.count(path, &found);
        let kind = if kind.is_symlink() {
            Kind::Link(std::fs::read_link(&full).map_err(|error| failed("read the link", &full, &error))?)
        } else {
            Kind::File { executable: found.permissions().mode() & 0o100 != 0 }
        };
        self.found.insert(path.to_owned(), kind);
        Ok(false)
    }

    /// Returns whether no folder above a path is a link: git lists tracked files whose folder became one.
    fn is_inside(&mut self, path: &Path) -> bool {
        let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
            return path.file_name().is_some();
        };
        if self.checked.as_ref().is_none_or(|(known, _)| known != folder) {
            let full = self.root.join(folder);
            let inside = std::fs::canonicalize(&full).is_ok_and(|real| real == full);
            self.checked = Some((folder.to_owned(), inside));
        }
        self.checked.as_ref().is_some_and(|(_, inside)| *inside)
    }

    fn count(&mut self, path: &Path, found: &Metadata) {
        // In a repository with conflicts, git lists a path several times.
        if self.found.contains_key(path) {
            return;
        }
        self.files += 1;
        if found.is_file() {
            self.bytes = self.bytes.saturating_add(found.len());
            self.largest.insert((found.len(), path.to_owned()));
            if self.largest.len() > NAMED {
                self.largest.pop_first();
            }
        }
        *self.folders.entry(top(path)).or_default() += 1;
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        const MOST: usize = 20;
        if self.left_out.len() < MOST {
            let message = format!("`{}` is not sent with the job: it {why}", shown(path));
            self.left_out.push(Finding::warning("SPEC-CODE", message).at("code.dir"));
        }
    }

    /// Returns an error if the folder is too large to be sent, or has no files.
    fn refuse_excess(&self, dir: &Path) -> Result<()> {
        let refused =
            |message: String| Error::new(ErrorKind::InvalidSpec, message).with("code.dir", shown(dir));
        let hints = |error: Error| {
            error
                .hint("list what the job does not need in `.gitignore`, or name a smaller folder")
                .hint("put data into the image, on a shared volume or into a Git repository (`code.git`)")
        };
        if self.files > MAX_CODE_FILES {
            let mut folders: Vec<_> = self.folders.iter().map(|(path, count)| (*count, path)).collect();
            folders.sort_unstable_by(|one, other| other.cmp(one));
            let most = folders.iter().take(NAMED).map(|(count, path)| format!("{} ({count})", shown(path)));
            let message = format!(
                "the folder has {} files that git does not ignore, and at most {MAX_CODE_FILES} are sent",
                self.files
            );
            return Err(hints(refused(message).with("most files", most.collect::<Vec<_>>().join(", "))));
        }
        if self.bytes > MAX_CODE_BYTES {
            let largest = self
                .largest
                .iter()
                .rev()
                .map(|(size, path)| format!("{} ({})", shown(path), rounded_size(*size)));
            let message = format!(
                "the folder has {} in {} that git does not ignore, and at most {} are sent",
                rounded_size(self.bytes),
                counted(usize::try_from(self.files).unwrap_or(usize::MAX), "file"),
                rounded_size(MAX_CODE_BYTES)
            );
            return Err(hints(refused(message).with("largest", largest.collect::<Vec<_>>().join(", "))));
        }
        if self.files == 0 {
            let message = "the folder has no files that git would commit";
            return Err(refused(message.to_owned()).hint("`git status --ignored` shows what is ignored"));
        }
        Ok(())
    }
}

/// Returns the folder at the top that a path is in.
fn top(path: &Path) -> PathBuf {
    let mut parts = path.components();
    let first = parts.next().map(|part| PathBuf::from(part.as_os_str())).unwrap_or_default();
    if parts.next().is_some() { first } else { PathBuf::from(".") }
}

/// Reads a file of at most `most` bytes whole, as it was at one time: one that changes meanwhile is read again.
fn read_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    for _ in 0..TRIES {
        if let Some(bytes) =
            read_unchanged(path, most).map_err(|error| failed("read the file", path, &error))?
        {
            return Ok(bytes);
        }
    }
    let message = format!("{} changes while it is read", shown(path));
    Err(Error::new(ErrorKind::InvalidSpec, message)
        .hint("submit again when it is complete, or list it in `.gitignore`"))
}

/// Reads a file; none if it changed meanwhile.
fn read_unchanged(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    // A pipe that took the place of a file would block, and a link could lead out of the folder.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the folder grew beyond the limit while it was read",
        ));
    }
    Ok(is_same(&before, &file, bytes.len() as u64)?.then_some(bytes))
}

fn is_same(before: &Metadata, file: &File, length: u64) -> io::Result<bool> {
    let after = file.metadata()?;
    let time = |found: &Metadata| (found.mtime(), found.mtime_nsec());
    Ok(before.len() == length && after.len() == length && time(before) == time(&after))
}

/// Makes a path of bytes that git printed.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests;
