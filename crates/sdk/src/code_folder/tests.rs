use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use weftrun_core::ErrorKind;
use weftrun_core::spec::CodeContent;
use weftrun_testkit::child;

use super::*;

/// Runs git in a folder, without the configuration of the user.
fn git_in(folder: &Path, arguments: &[&str]) {
    let own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
    let done = child::command("git").args(own).args(arguments).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    git_in(dir.path(), &["init", "--quiet"]);
    dir
}

fn write(folder: &Path, name: impl AsRef<Path>, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn content(folder: &Path) -> CodeContent {
    super::read(folder).unwrap().0
}

/// Unpacks an archive with the system's tar.
fn unpacked(content: &CodeContent) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("code.tar.gz");
    fs::write(&archive, content.archive.bytes()).unwrap();
    let folder = dir.path().join("code");
    fs::create_dir(&folder).unwrap();
    let done = child::command("tar").arg("-xzf").arg(&archive).arg("-C").arg(&folder).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::remove_file(archive).unwrap();
    dir
}

/// Returns the files below a folder, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn tracked_and_untracked_files_are_sent_and_ignored_ones_are_not() {
    let dir = repository();
    write(dir.path(), ".gitignore", "*.log\ndata/\n");
    write(dir.path(), "train.py", "print(1)\n");
    write(dir.path(), "kept.log", "tracked though it is ignored\n");
    write(dir.path(), "gone.py", "removed without git\n");
    git_in(dir.path(), &["add", ".gitignore", "train.py", "gone.py"]);
    git_in(dir.path(), &["add", "--force", "kept.log"]);
    git_in(dir.path(), &["commit", "--quiet", "-m", "first"]);
    assert!(!content(dir.path()).dirty, "{:?}", content(dir.path()));
    fs::remove_file(dir.path().join("gone.py")).unwrap();
    write(dir.path(), "pkg/new.py", "untracked\n");
    write(dir.path(), "run.log", "ignored\n");
    write(dir.path(), "data/big.bin", "ignored\n");
    let read = content(dir.path());
    assert_eq!((read.files, read.dirty), (4, true), "{read:?}");
    assert_eq!(read.commit.as_ref().map(String::len), Some(40));
    assert!(read.line().contains("with uncommitted changes, 4 files, "), "{}", read.line());
    let there = unpacked(&read);
    let sent = files(&there.path().join("code"));
    assert_eq!(sent, [".gitignore", "kept.log", "pkg/new.py", "train.py"]);
    // A folder of the repository alone.
    assert_eq!(files(&unpacked(&content(&dir.path().join("pkg"))).path().join("code")), ["new.py"]);
}

#[test]
fn a_folder_without_a_repository_has_the_same_ignore_files() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), ".gitignore", "*.bin\n");
    write(dir.path(), "a/b.py", "1\n");
    write(dir.path(), "a/c.bin", "2\n");
    let read = content(dir.path());
    assert_eq!((read.commit.as_deref(), read.dirty), (None, false));
    assert_eq!(files(&unpacked(&read).path().join("code")), [".gitignore", "a/b.py"]);
    assert!(!dir.path().join(".git").exists());
}

#[test]
fn the_hash_is_that_of_names_modes_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.py", "1\n");
    write(dir.path(), "b.sh", "2\n");
    let first = content(dir.path());
    let other = tempfile::tempdir().unwrap();
    write(other.path(), "b.sh", "2\n");
    write(other.path(), "a.py", "1\n");
    assert_eq!(first, content(other.path()), "the same files elsewhere, made in another order");
    let mut hashes = vec![first.hash];
    fs::set_permissions(dir.path().join("b.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    hashes.push(content(dir.path()).hash);
    write(dir.path(), "a.py", "3\n");
    hashes.push(content(dir.path()).hash);
    fs::rename(dir.path().join("a.py"), dir.path().join("c.py")).unwrap();
    hashes.push(content(dir.path()).hash);
    fs::remove_file(dir.path().join("c.py")).unwrap();
    symlink("b.sh", dir.path().join("c.py")).unwrap();
    hashes.push(content(dir.path()).hash);
    hashes.dedup();
    assert_eq!(hashes.len(), 5, "{hashes:?}");
}

#[test]
fn odd_names_links_and_executable_files_arrive_as_they_are() {
    let dir = repository();
    let long = format!("{}/{}.py", "d".repeat(120), "n".repeat(120));
    let names = ["a\nb.py", "-rf", "with blank", "é\u{1}", "$(touch canary)", "'\"", long.as_str()];
    for name in names {
        write(dir.path(), name, name);
    }
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "not to be sent\n");
    let far = format!("{}/{}", outside.path().display(), "x".repeat(150));
    symlink(&far, dir.path().join("dangling")).unwrap();
    symlink(outside.path(), dir.path().join("away")).unwrap();
    symlink("with blank", dir.path().join("near")).unwrap();
    write(dir.path(), "run.sh", "#!/bin/sh\n");
    fs::set_permissions(dir.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let there = unpacked(&content(dir.path()));
    let code = there.path().join("code");
    for name in names {
        assert_eq!(fs::read_to_string(code.join(name)).unwrap(), name);
    }
    assert_eq!(fs::read_link(code.join("dangling")).unwrap(), Path::new(&far));
    assert_eq!(fs::read_link(code.join("away")).unwrap(), outside.path());
    assert_eq!(fs::read_to_string(code.join("near")).unwrap(), "with blank");
    assert_eq!(fs::metadata(code.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(code.join("-rf")).unwrap().permissions().mode() & 0o111, 0);
}

#[test]
fn a_tracked_folder_that_became_a_link_is_not_followed() {
    let dir = repository();
    write(dir.path(), "sub/secret", "mine\n");
    write(dir.path(), "a.py", "1\n");
    git_in(dir.path(), &["add", "."]);
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "not to be sent\n");
    fs::remove_dir_all(dir.path().join("sub")).unwrap();
    symlink(outside.path(), dir.path().join("sub")).unwrap();
    let there = unpacked(&content(dir.path()));
    let code = there.path().join("code");
    assert_eq!(files(&code), ["a.py", "sub"]);
    assert!(fs::symlink_metadata(code.join("sub")).unwrap().is_symlink());
}

#[test]
fn pipes_and_sockets_are_left_out_without_a_wait() {
    let dir = repository();
    write(dir.path(), "a.py", "1\n");
    write(dir.path(), "pipe", "a file when it was added\n");
    git_in(dir.path(), &["add", "."]);
    fs::remove_file(dir.path().join("pipe")).unwrap();
    assert!(child::command("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    assert!(child::command("mkfifo").arg(dir.path().join("untracked")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let (read, left_out) = super::read(dir.path()).unwrap();
    assert_eq!(files(&unpacked(&read).path().join("code")), ["a.py"]);
    assert!(left_out.iter().any(|finding| finding.message.contains("`pipe` is not sent")), "{left_out:?}");
}

#[test]
fn repositories_inside_are_sent_with_their_own_ignore_files() {
    let dir = repository();
    write(dir.path(), "a.py", "1\n");
    let inner = dir.path().join("third/party");
    fs::create_dir_all(&inner).unwrap();
    git_in(&inner, &["init", "--quiet"]);
    write(&inner, ".gitignore", "*.o\n");
    write(&inner, "x.c", "1\n");
    write(&inner, "x.o", "1\n");
    let sent = files(&unpacked(&content(dir.path())).path().join("code"));
    assert_eq!(sent, ["a.py", "third/party/.gitignore", "third/party/x.c"]);
}

#[test]
fn a_folder_that_is_too_large_is_refused_with_the_largest() {
    let dir = repository();
    write(dir.path(), "a.py", "1\n");
    for (name, size) in [("model/weights.bin", MAX_CODE_BYTES), ("small.bin", 10)] {
        write(dir.path(), name, "");
        fs::File::options().write(true).open(dir.path().join(name)).unwrap().set_len(size).unwrap();
    }
    let refused = super::read(dir.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidSpec);
    let text = refused.to_string();
    assert!(text.contains("100.0 MiB in 3 files") && text.contains("model/weights.bin (100 MiB)"), "{text}");
}

#[test]
fn a_folder_of_too_many_files_is_refused_with_the_fullest_folder() {
    let mut entries = Entries::new(Path::new("/nonexistent"));
    let found = fs::metadata(std::env::current_exe().unwrap()).unwrap();
    for number in 0..MAX_CODE_FILES {
        entries.count(Path::new(&format!("cache/{number}")), &found);
    }
    entries.bytes = 0;
    entries.refuse_excess(Path::new(".")).unwrap();
    entries.count(Path::new("train.py"), &found);
    let text = entries.refuse_excess(Path::new(".")).unwrap_err().to_string();
    assert!(text.contains("20001 files") && text.contains("cache (20000), . (1)"), "{text}");
}

#[test]
fn an_empty_or_wholly_ignored_folder_is_refused() {
    let dir = repository();
    write(dir.path(), ".git/info/exclude", "build\n");
    write(dir.path(), "build/a.py", "1\n");
    for folder in [dir.path().to_owned(), dir.path().join("build")] {
        let refused = super::read(&folder).unwrap_err();
        assert!(refused.to_string().contains("no files that git would commit"), "{refused}");
    }
    assert_eq!(super::read(&dir.path().join("absent")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(super::read(&dir.path().join("build/a.py")).unwrap_err().kind(), ErrorKind::InvalidSpec);
    let inside = super::read(&dir.path().join(".git")).unwrap_err();
    assert_eq!(inside.kind(), ErrorKind::InvalidSpec, "{inside}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "12345");
    let path = dir.path().join("a");
    let before = fs::metadata(&path).unwrap();
    let file = File::open(&path).unwrap();
    assert!(is_same(&before, &file, 5).unwrap());
    assert!(!is_same(&before, &file, 4).unwrap(), "a part was read");
    fs::write(&path, "123456").unwrap();
    assert!(!is_same(&before, &file, 5).unwrap(), "it grew");
    fs::write(&path, "54321").unwrap();
    let later = before.modified().unwrap() + std::time::Duration::from_secs(1);
    File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    assert!(!is_same(&before, &file, 5).unwrap(), "it was written again");
    assert_eq!(read_unchanged(&path, 5).unwrap().as_deref(), Some(b"54321".as_slice()));
    assert_eq!(read_unchanged(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn the_repository_of_a_hook_is_not_the_folders() {
    // A hook of git sets these for every program that it starts.
    let dir = repository();
    write(dir.path(), "a.py", "1\n");
    let mut command = git::git(dir.path(), None);
    let unset = |name: &str| command.get_envs().any(|(key, value)| key == name && value.is_none());
    assert!(unset("GIT_DIR") && unset("GIT_INDEX_FILE") && unset("GIT_WORK_TREE"));
    assert!(command.arg("--version").output().unwrap().status.success());
}
