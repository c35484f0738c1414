//! The project's configuration file, in the working directory.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weftrun_backends::files;

/// The result of looking for a project's file.
#[derive(Debug, PartialEq)]
pub(crate) enum Project {
    /// No file.
    Absent,
    /// A file that is not read.
    Refused { why: String, fix: String },
    /// Its text, which may or may not be trusted.
    Text(String),
}

/// Reads a project's file, unless a user other than the owner and root could have written or replaced it, or
/// it is not a regular file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Project {
    let refused = |why: String, fix: &str| Project::Refused { why, fix: fix.to_owned() };
    let unreadable =
        |error: &io::Error| refused(format!("it cannot be read: {error}"), "check the file, or remove it");
    let link = match fs::symlink_metadata(path) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Project::Absent,
        Err(error) => return unreadable(&error),
    };
    let file = match files::open(path) {
        Ok(file) => file,
        Err(error) => return unreadable(&error),
    };
    let (found, whole) = match (file.metadata(), fs::canonicalize(path)) {
        (Ok(found), Ok(whole)) => (found, whole),
        (Err(error), _) | (_, Err(error)) => return unreadable(&error),
    };
    // A link can be replaced by users with write access to its folder, the file by those with write access to
    // its own folder.
    let above = |path: &Path| match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => fs::metadata(folder),
        None => fs::metadata("."),
    };
    let folders = [above(path), above(&whole)];
    let mut looked_at = vec![("it", found)];
    if link.is_symlink() {
        looked_at.push(("the link", link));
    }
    for folder in folders {
        match folder {
            Ok(folder) => looked_at.push(("its folder", folder)),
            Err(error) => return unreadable(&error),
        }
    }
    for (what, found) in looked_at {
        if let Some((why, fix)) = distrusted(what, &found) {
            return refused(why, fix);
        }
    }
    match files::bounded(file, limit).map(String::from_utf8) {
        Ok(Ok(text)) => Project::Text(text),
        Ok(Err(_)) => refused("it is not UTF-8 text".to_owned(), "rewrite it, or remove it"),
        Err(error) => unreadable(&error),
    }
}

/// Returns why another user may have written a file or folder; none if only the user and root can have.
fn distrusted(what: &str, found: &Metadata) -> Option<(String, &'static str)> {
    let (user, owner) = (rustix::process::geteuid().as_raw(), found.uid());
    if owner != user && owner != 0 {
        return Some((
            format!("{what} belongs to another user (uid {owner})"),
            "copy it into a folder of yours",
        ));
    }
    let mode = found.mode() & 0o7777;
    // In a sticky folder others can create files, but not replace those of other owners. The mode of a link
    // is irrelevant.
    let sticky = found.is_dir() && mode & 0o1000 != 0;
    let writable = mode & 0o022 != 0 && !sticky && !found.is_symlink();
    writable.then(|| (format!("{what} can be written by others (mode {mode:04o})"), "`chmod go-w` it"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why(project: Project) -> String {
        match project {
            Project::Refused { why, .. } => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn only_a_file_that_nobody_else_can_have_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".weftrun.toml");
        assert_eq!(read(&path, 10), Project::Absent);
        fs::write(&path, "a = 1").unwrap();
        mode(&path, 0o644);
        assert_eq!(read(&path, 10), Project::Text("a = 1".to_owned()));
        assert!(why(read(&path, 4)).contains("more than 4 bytes"));
        for open in [0o664, 0o646] {
            mode(&path, open);
            assert!(why(read(&path, 10)).contains("written by others"), "{open:o}");
        }
        mode(&path, 0o600);
        for (open, fine) in [(0o775, false), (0o757, false), (0o1777, true)] {
            mode(folder.path(), open);
            assert_eq!(matches!(read(&path, 10), Project::Text(_)), fine, "{open:o}");
        }
        mode(folder.path(), 0o755);
        // Only root may change the owner of files.
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(12345), None).unwrap();
            assert!(why(read(&path, 10)).contains("uid 12345"));
            chown(&path, Some(0), None).unwrap();
            chown(folder.path(), Some(12345), None).unwrap();
            assert!(why(read(&path, 10)).contains("its folder belongs"));
            chown(folder.path(), Some(0), None).unwrap();
        }
    }

    #[test]
    fn a_link_leads_only_to_a_file_that_would_be_read_itself() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join(".weftrun.toml");
        let target = other.path().join("real");
        fs::write(&target, "a = 1").unwrap();
        mode(&target, 0o600);
        symlink(&target, &path).unwrap();
        assert!(matches!(read(&path, 10), Project::Text(_)));
        mode(other.path(), 0o777);
        assert!(why(read(&path, 10)).contains("its folder can be written"));
        for special in ["/dev/zero", "/dev/null", "/dev/tty", "/", "/no/such/file"] {
            fs::remove_file(&path).unwrap();
            symlink(special, &path).unwrap();
            assert!(matches!(read(&path, 10), Project::Refused { .. }), "{special}");
        }
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(why(read(&path, 10)).contains("not a regular file"));
    }
}
