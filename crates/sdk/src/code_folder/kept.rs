//! The archives of folders that were sent with jobs, so that an attempt after the first sends the same files, whatever became of
//! the folder.
//!
//! ```text
//! code/HASH.tar.gz    the newest 512 MiB; the hash is that of the files
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use weftrun_core::spec::{Archive, Code, CodeContent, JobSpec};
use weftrun_core::{Error, ErrorKind, Result};

use crate::files;

/// Size of all archives together from which on the oldest are removed.
const MOST: u64 = 512 << 20;
/// Largest archive that is read. A folder that is sent has at most 100 MiB, and text that cannot be compressed grows little.
const LARGEST: u64 = 160 << 20;

fn path_of(state: &Path, hash: &str) -> PathBuf {
    state.join("code").join(format!("{hash}.tar.gz"))
}

/// Keeps the files of a job's folder. A full disk loses them, and not the job: then no later process can submit it again.
pub(crate) fn keep(state: &Path, spec: &JobSpec) {
    let Some(content) = spec.code_content().filter(|content| !content.archive.bytes().is_empty()) else {
        return;
    };
    let path = path_of(state, &content.hash);
    // Written even if it is there, so that it is the newest.
    if let Err(error) = files::write_private(&path, content.archive.bytes()) {
        tracing::warn!(%error, "the files of the job's folder are not kept for a retry");
        return;
    }
    remove_oldest(&state.join("code"), MOST);
}

/// Removes the oldest archives until the others have at most so many bytes.
fn remove_oldest(folder: &Path, most: u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let archive = |entry: fs::DirEntry| {
        let found = entry.metadata().ok()?;
        Some((found.modified().ok()?, found.len(), entry.path()))
    };
    let mut archives: Vec<(SystemTime, u64, PathBuf)> = entries.filter_map(archive).collect();
    archives.sort_by(|one, other| other.cmp(one));
    let mut size = 0_u64;
    for (_, length, path) in archives {
        size = size.saturating_add(length);
        if size > most {
            // Another process may have removed it.
            drop(fs::remove_file(path));
        }
    }
}

/// Adds the files of its folder to a job that was read from the journal, which does not have them.
///
/// # Errors
/// [`ErrorKind::NotFound`] if they are not kept any more.
pub(crate) fn add(state: &Path, spec: &mut JobSpec) -> Result<()> {
    let Some(Code::Folder { dir, content: Some(content) }) = &mut spec.code else { return Ok(()) };
    if !content.archive.bytes().is_empty() {
        return Ok(());
    }
    let bytes = files::read(&path_of(state, &content.hash), LARGEST).ok();
    let bytes = bytes.filter(|bytes| is_of(content, bytes)).ok_or_else(|| {
        let short: String = content.hash.chars().take(12).collect();
        let message = format!(
            "the files that were sent with the job (sha256 {short}) are not kept any more, so it cannot be submitted again with them"
        );
        Error::new(ErrorKind::NotFound, message)
            .with("code.dir", &*dir)
            .hint("submit its job file again, with `--avoid NODE`: it sends the folder as it is now")
    })?;
    content.archive = Archive::new(bytes);
    Ok(())
}

/// Returns whether an archive has the files of that hash.
fn is_of(content: &CodeContent, archive: &[u8]) -> bool {
    super::tar::hash_of(archive).is_ok_and(|hash| hash == content.hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(dir: &Path) -> JobSpec {
        let mut spec = JobSpec::default();
        spec.code = Some(crate::code_folder(dir).unwrap());
        spec
    }

    #[test]
    fn an_attempt_has_the_files_of_the_first_submission() {
        let (state, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("train.py"), "print(1)\n").unwrap();
        let first = job(dir.path());
        keep(state.path(), &first);
        // The journal has no files, and the folder has changed since.
        fs::write(dir.path().join("train.py"), "print(2)\n").unwrap();
        let text = serde_json::to_string(&first).unwrap();
        let mut read: JobSpec = serde_json::from_str(&text).unwrap();
        assert!(read.code_archive().is_err());
        add(state.path(), &mut read).unwrap();
        assert_eq!(read, first);
        // What was changed behind its back is not sent.
        let path = path_of(state.path(), &first.code_content().unwrap().hash);
        keep(state.path(), &job(dir.path()));
        fs::copy(path_of(state.path(), &job(dir.path()).code_content().unwrap().hash), &path).unwrap();
        let mut changed: JobSpec = serde_json::from_str(&text).unwrap();
        assert!(add(state.path(), &mut changed).unwrap_err().message().contains("not kept any more"));
    }

    #[test]
    fn the_oldest_archives_go_first() {
        let folder = tempfile::tempdir().unwrap();
        for (name, age) in [("a", 30), ("b", 20), ("c", 10)] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_len(100).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age)).unwrap();
        }
        remove_oldest(folder.path(), 250);
        let left = |name: &str| folder.path().join(name).exists();
        assert_eq!((left("a"), left("b"), left("c")), (false, true, true));
    }
}
