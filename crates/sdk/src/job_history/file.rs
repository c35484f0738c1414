//! The file of a history: lines that several processes append to, and that one of them makes shorter now and then.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::Duration;

use weftrun_backends::files::{open, open_append, replace_as};

use crate::lock;

/// Largest part of a file that is read, its end: without locks nobody makes it shorter.
const MOST_READ: u64 = 64 << 20;
/// Most bytes at the end of a file that are searched for an earlier line.
const TAIL: u64 = 256 << 10;

/// How long to wait for another process that writes a line.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file of lines that this process alone writes to, as long as the value lives.
pub(super) struct Locked {
    file: File,
    /// Whether the lock is held: some file systems have none.
    pub is_locked: bool,
}

impl Locked {
    /// Opens a file for appending, with its mode if it is new, and waits for the lock.
    pub fn open(path: &Path, mode: u32) -> weftrun_core::Result<Self> {
        const TRIES: u32 = 100;
        let failed = |error| crate::files::io_error("cannot write", path, error);
        for _ in 0..TRIES {
            let file = open_append(path, mode).map_err(failed)?;
            let Some(file) = lock::hold(file, path, PATIENCE)? else {
                let file = open_append(path, mode).map_err(failed)?;
                return Ok(Self { file, is_locked: false });
            };
            // Another process may have replaced it between the two calls.
            let of = |found: &std::fs::Metadata| (found.dev(), found.ino());
            let own = file.metadata().map_err(failed)?;
            if std::fs::symlink_metadata(path).is_ok_and(|now| of(&now) == of(&own)) {
                return Ok(Self { file, is_locked: true });
            }
        }
        Err(failed(io::Error::other("it is replaced again and again")))
    }

    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns the end of the file.
    pub fn tail(&mut self) -> io::Result<String> {
        let from = self.len()?.saturating_sub(TAIL);
        self.file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        (&self.file).take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Appends a line by one write, or leaves the file as it was.
    pub fn append(&mut self, line: &str, tail: &str) -> io::Result<()> {
        // A process may have been killed within a line.
        let before = if tail.is_empty() || tail.ends_with('\n') { "" } else { "\n" };
        let bytes = format!("{before}{line}\n");
        let length = self.len()?;
        match self.file.write(bytes.as_bytes()) {
            Ok(written) if written == bytes.len() => Ok(()),
            result => {
                if self.is_locked {
                    // On a full disk the file may not even be cut; the next line begins on its own all the same.
                    drop(self.file.set_len(length));
                }
                Err(result.err().unwrap_or_else(|| io::Error::from(io::ErrorKind::StorageFull)))
            }
        }
    }

    /// Replaces the whole file, with the mode and the group that it has.
    pub fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let before = self.file.metadata()?;
        replace_as(path, text.as_bytes(), before.mode() & 0o666)?;
        // Who is not of the group keeps the file all the same, with a group of their own.
        let _ = chown(path, None, Some(before.gid()));
        Ok(())
    }
}

/// Reads the lines of a file, or of the last 64 MiB of a longer one; none if there is no file.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let from = length.saturating_sub(MOST_READ);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::with_capacity(usize::try_from(length - from).unwrap_or(0));
    file.take(MOST_READ).read_to_end(&mut bytes)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    // The first line of a part is a part of a line.
    Ok(Some(match text.split_once('\n') {
        Some((_, rest)) if from > 0 => rest.to_owned(),
        _ => text,
    }))
}
