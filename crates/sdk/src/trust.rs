//! The projects' config files that the user trusts: a copy of each at the time it was trusted. After a
//! change, a file must be trusted again.

use std::path::{Path, PathBuf};

use weftrun_core::text::fnv1a;
use weftrun_core::{Error, ErrorKind, Result};

use crate::files;

/// Largest copy that is read.
const MAX: u64 = 1 << 20;

pub(crate) struct Trust {
    folder: PathBuf,
}

impl Trust {
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join("trusted") }
    }

    /// Returns whether a file is trusted with this text. A state folder of another user trusts nothing.
    pub fn holds(&self, file: &Path, text: &str) -> Result<bool> {
        let mut folders = self.folder.ancestors().take(2);
        if !folders.all(|folder| files::refuse_foreign(folder).is_ok()) {
            return Ok(false);
        }
        Ok(files::read_text(&self.copy(file)?, MAX)?.is_some_and(|copy| copy == text))
    }

    /// Trusts a file with this text.
    pub fn give(&self, file: &Path, text: &str) -> Result<()> {
        files::write_private(&self.copy(file)?, text.as_bytes())
    }

    /// Revokes the trust in a file.
    pub fn take(&self, file: &Path) -> Result<()> {
        files::remove(&self.copy(file)?)
    }

    /// Returns the path of a file's copy: its whole path as one name.
    fn copy(&self, file: &Path) -> Result<PathBuf> {
        let whole = std::path::absolute(file).and_then(std::fs::canonicalize).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot find {}: {error}", file.display())).with_source(error)
        })?;
        let mut name = String::new();
        for byte in whole.as_os_str().as_encoded_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => name.push(char::from(*byte)),
                other => name.push_str(&format!("%{other:02X}")),
            }
        }
        // File names are limited to 255 bytes on every common file system; the end of a path is more specific
        // than its beginning.
        if name.len() > 240 {
            let hash = fnv1a(name.as_bytes());
            name = format!("{hash:016x}-{}", &name[name.len() - 200..]);
        }
        Ok(self.folder.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_in_a_text_and_not_in_a_name() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("x.toml");
        std::fs::write(&file, "a").unwrap();
        let trust = Trust::new(state.path());
        assert!(!trust.holds(&file, "a").unwrap());
        trust.give(&file, "a").unwrap();
        assert!(trust.holds(&file, "a").unwrap());
        assert!(!trust.holds(&file, "b").unwrap());
        trust.take(&file).unwrap();
        assert!(!trust.holds(&file, "a").unwrap());
        trust.take(&file).unwrap();
    }

    /// Only root can make a folder of another user.
    #[test]
    fn a_state_folder_of_another_user_trusts_nothing() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("x.toml");
        std::fs::write(&file, "a").unwrap();
        let trust = Trust::new(state.path());
        trust.give(&file, "a").unwrap();
        for folder in [state.path(), &trust.folder] {
            if std::os::unix::fs::chown(folder, Some(12345), None).is_err() {
                return;
            }
            assert!(!trust.holds(&file, "a").unwrap(), "{}", folder.display());
            std::os::unix::fs::chown(folder, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        assert!(trust.holds(&file, "a").unwrap());
    }

    #[test]
    fn long_paths_have_short_names_apart() {
        let state = tempfile::tempdir().unwrap();
        let deep = (0..6).fold(state.path().to_owned(), |path, n| path.join(format!("{n}").repeat(80)));
        std::fs::create_dir_all(&deep).unwrap();
        let trust = Trust::new(state.path());
        for name in ["a.toml", "b.toml"] {
            std::fs::write(deep.join(name), "x").unwrap();
        }
        trust.give(&deep.join("a.toml"), "x").unwrap();
        assert!(trust.holds(&deep.join("a.toml"), "x").unwrap());
        assert!(!trust.holds(&deep.join("b.toml"), "x").unwrap());
    }
}
