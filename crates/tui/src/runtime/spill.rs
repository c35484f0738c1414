//! Stores lines that do not fit into memory in an unnamed file, which disappears with the program however it
//! ends.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use weftrun::core::log::Spill;

/// Most bytes in the file; beyond, the oldest lines are dropped and counted.
const MOST: u64 = 16 << 30;

/// The file, made when it is first needed.
#[derive(Debug, Default)]
pub struct TempFile {
    file: Option<File>,
    end: u64,
    full: bool,
}

impl Spill for TempFile {
    fn put(&mut self, bytes: &[u8]) -> Option<u64> {
        if self.full || self.end + bytes.len() as u64 > MOST {
            return None;
        }
        if self.file.is_none() {
            self.file = open().ok();
        }
        let at = self.end;
        if let Some(Ok(())) = self.file.as_ref().map(|file| file.write_all_at(bytes, at)) {
            self.end += bytes.len() as u64;
            return Some(at);
        }
        // No file, or a full disk: it is not tried again.
        self.full = true;
        None
    }

    fn get(&self, at: u64, into: &mut [u8]) -> bool {
        self.file.as_ref().is_some_and(|file| file.read_exact_at(into, at).is_ok())
    }
}

/// Preferably on a disk: `/tmp` is in memory on many machines.
fn open() -> std::io::Result<File> {
    let disk = Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && disk.is_dir() {
        return tempfile::tempfile_in(disk).or_else(|_| tempfile::tempfile());
    }
    tempfile::tempfile()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_it_was_given() {
        let mut spill = TempFile::default();
        let at: Vec<u64> = [&b"one"[..], b"", b"three"].iter().map(|b| spill.put(b).unwrap()).collect();
        let mut three = [0; 5];
        assert!(spill.get(at[2], &mut three) && &three == b"three");
        assert!(!spill.get(at[2] + 1, &mut three), "behind the end");
    }
}
