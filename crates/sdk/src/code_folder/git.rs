//! What git knows of a folder: its commit, whether it differs from it, and its files.

use std::io::{BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use weftrun_core::log::clean_text;
use weftrun_core::{Error, ErrorKind, Result};

use super::path_of;

/// Deepest nesting of repositories in one another.
const MAX_DEPTH: usize = 16;
/// Longest path that is read.
const LONGEST_PATH: u64 = 64 << 10;

/// What git knows of a folder.
pub struct State {
    /// Whether the folder is in a repository.
    pub is_repository: bool,
    /// The commit that is checked out.
    pub commit: Option<String>,
    /// Whether the folder differs from the commit.
    pub dirty: bool,
}

/// Returns the state of a folder.
pub fn state(folder: &Path) -> Result<State> {
    let inside = run(git(folder, None).args(["rev-parse", "--is-inside-work-tree"]))?;
    if !inside.success {
        if inside.complaint.contains("not a git repository") {
            return Ok(State { is_repository: false, commit: None, dirty: false });
        }
        return Err(refused(folder, &inside.complaint));
    }
    if inside.out.trim() != "true" {
        return Err(refused(folder, "it is inside of a `.git` folder"));
    }
    // Before the first commit there is none.
    let head = run(git(folder, None).args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]))?;
    let commit = Some(head.out.trim().to_owned()).filter(|commit| head.success && !commit.is_empty());
    let dirty = commit.is_some() && is_dirty(folder)?;
    Ok(State { is_repository: true, dirty, commit })
}

/// Returns whether a folder differs from the commit that is checked out; repositories in it are not looked into.
pub fn is_dirty(folder: &Path) -> Result<bool> {
    // A filter of the repository's own configuration is a program that git would run. Those of the user's are not touched.
    let own = [
        "config",
        "--local",
        "--includes",
        "--name-only",
        "-z",
        "--get-regexp",
        r"^filter\..*\.(clean|process)$",
    ];
    let filters = run(git(folder, None).args(own))?;
    let mut command = git(folder, None);
    for name in filters.out.split('\0').filter(|name| !name.is_empty()) {
        command.arg("-c").arg(format!("{name}="));
    }
    command.args([
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
        "--",
        ".",
    ]);
    let status = run(&mut command)?;
    if !status.success {
        return Err(refused(folder, &status.complaint));
    }
    Ok(!status.out.is_empty())
}

/// Calls `add` with each file that git would commit, relative to the folder, and with each repository in it. Where `add`
/// returns true, the files of that repository follow.
pub fn list(root: &Path, is_repository: bool, add: &mut dyn FnMut(&Path) -> Result<bool>) -> Result<()> {
    let mut open = vec![(PathBuf::new(), is_repository, 0)];
    while let Some((folder, is_repository, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} Git repositories are inside of one another");
            return Err(Error::new(ErrorKind::InvalidSpec, message).with("code.dir", super::shown(&folder)));
        }
        let mut each = |name: &Path| {
            let path = folder.join(name);
            if add(&path)? {
                open.push((path, true, depth + 1));
            }
            Ok(())
        };
        list_one(&root.join(&folder), is_repository, &mut each)?;
    }
    Ok(())
}

/// Calls `each` with the paths that git lists in one repository.
fn list_one(folder: &Path, is_repository: bool, each: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    // Outside of a repository, an empty one is the folder's: ignore files mean the same in both.
    let (empty, mut command) = if is_repository {
        (None, git(folder, None))
    } else {
        let empty = tempfile::tempdir().map_err(|error| no_folder(&error))?;
        let made = run(git(empty.path(), None).args(["init", "--quiet", "--template="]))?;
        if !made.success {
            return Err(refused(folder, &made.complaint));
        }
        let command = git(folder, Some(&empty.path().join(".git")));
        (Some(empty), command)
    };
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut result = Ok(());
    let mut read = |out: ChildStdout| {
        let mut out = BufReader::new(out);
        let mut name = Vec::new();
        while result.is_ok() {
            name.clear();
            result = match out.by_ref().take(LONGEST_PATH).read_until(0, &mut name) {
                Ok(0) => break,
                // A repository in the folder ends with `/`.
                Ok(_) if name.pop() == Some(0) => each(&path_of(name.strip_suffix(b"/").unwrap_or(&name))),
                Ok(_) => Err(refused(folder, "it printed an incomplete path")),
                Err(error) => {
                    Err(Error::new(ErrorKind::Io, format!("cannot read the output of git: {error}")))
                }
            };
        }
    };
    let (success, complaint) = start(&mut command, &mut read)?;
    drop(empty);
    result?;
    // It lists the rest then, and the job would run without these files.
    let unreadable = complaint.lines().find(|line| line.contains("could not open directory"));
    match (success, unreadable) {
        (true, None) => Ok(()),
        (_, line) => Err(refused(folder, line.unwrap_or(&complaint))),
    }
}

/// The variables that a hook of git sets: with them, git would list another repository.
const OF_A_REPOSITORY: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
];

/// Returns git in a folder, with an explicit repository if one is given. A program that watches files could be started by
/// the repository's configuration, and is not needed.
pub(super) fn git(folder: &Path, repository: Option<&Path>) -> Command {
    let mut command = Command::new("git");
    for name in OF_A_REPOSITORY {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("GIT_OPTIONAL_LOCKS", "0").current_dir(folder);
    command.args(["-c", "core.fsmonitor=false"]);
    if let Some(repository) = repository {
        command.arg("--git-dir").arg(repository).arg("--work-tree").arg(folder);
    }
    command
}

/// The output of a command.
struct Output {
    success: bool,
    /// The first part of what it printed.
    out: String,
    complaint: String,
}

/// Runs git, and returns the first part of its output.
fn run(command: &mut Command) -> Result<Output> {
    const MOST: u64 = 4096;
    let (mut out, mut cut) = (Vec::new(), false);
    let (success, complaint) = start(command, &mut |from| {
        // Git ends when nobody reads the rest.
        let mut from = from.take(MOST);
        let _ = from.read_to_end(&mut out);
        cut = from.limit() == 0;
    })?;
    Ok(Output { success: success || cut, out: String::from_utf8_lossy(&out).into_owned(), complaint })
}

/// Starts git, reads its output, and returns whether it succeeded, and its messages.
fn start(command: &mut Command, read: &mut dyn FnMut(ChildStdout)) -> Result<(bool, String)> {
    // A file, since a pipe that nobody reads would block git.
    let mut messages = tempfile::tempfile().map_err(|error| no_folder(&error))?;
    let err = messages.try_clone().map_err(|error| no_folder(&error))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(err);
    let mut child = command.spawn().map_err(|error| no_git(&error))?;
    if let Some(out) = child.stdout.take() {
        read(out);
    }
    let ended = child.wait().map_err(|error| no_git(&error))?;
    let mut complaint = Vec::new();
    let _ = messages.rewind();
    let _ = messages.take(64 << 10).read_to_end(&mut complaint);
    Ok((ended.success(), String::from_utf8_lossy(&complaint).into_owned()))
}

fn no_folder(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write to the temporary folder: {error}"))
}

fn no_git(error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::InvalidSpec,
        format!("git, which lists the files of the job's folder, cannot be run: {error}"),
    )
    .hint("install git, or send a single file with `code.script`")
}

fn refused(folder: &Path, complaint: &str) -> Error {
    let said = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message").trim();
    let error =
        Error::new(ErrorKind::InvalidSpec, format!("git cannot list the folder: {}", clean_text(said)))
            .with("code.dir", super::shown(folder));
    if complaint.contains("dubious ownership") {
        return error.hint(
            "the folder belongs to another user; `git config --global --add safe.directory FOLDER` allows it",
        );
    }
    error
}
