//! Hosts that did not answer, remembered for some seconds beside the sockets of `ssh`: one that is down would delay every
//! program that only looks, by the time that it takes to give it up.

use std::hash::{Hash as _, Hasher as _};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use crate::remote::error::clean;
use crate::remote::ssh;

/// How long a host is taken for down.
const FOR: Duration = Duration::from_secs(15);
/// An answer that fails sooner delays nothing.
const SOON: Duration = Duration::from_secs(1);

/// What is remembered of one host.
#[derive(Clone, Debug)]
pub struct Unreachable {
    /// The file with the reason; its time is that of the failure. None where no such file can be.
    file: Option<PathBuf>,
}

impl Unreachable {
    /// Returns what is remembered of a host that is reached in one way.
    pub fn of(host: &str, options: &ssh::Options) -> Self {
        let mut way = std::hash::DefaultHasher::new();
        (host, &options.config, &options.user, &options.jump, &options.args).hash(&mut way);
        Self { file: ssh::control_dir().map(|dir| dir.join(format!("down-{:016x}", way.finish()))) }
    }

    /// Returns why the host did not answer a moment ago.
    pub fn reason(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        let written =
            std::fs::symlink_metadata(file).ok().filter(std::fs::Metadata::is_file)?.modified().ok()?;
        // One from the future is of a clock that was changed.
        if written.elapsed().is_ok_and(|age| age < FOR) {
            let mut text = String::new();
            std::fs::File::open(file).ok()?.take(4096).read_to_string(&mut text).ok()?;
            return Some(clean(&text)).filter(|text| !text.is_empty());
        }
        self.forget();
        None
    }

    /// Remembers that the host did not answer for a while, and why.
    pub fn remember(&self, waited: Duration, reason: &str) {
        let Some(file) = self.file.as_ref().filter(|_| waited > SOON) else { return };
        let Ok(bits) = crate::random::bits() else { return };
        let new = file.with_extension(format!("{bits:x}"));
        let written = std::fs::OpenOptions::new().write(true).create_new(true).open(&new);
        let written = written.and_then(|mut file| file.write_all(clean(reason).as_bytes()));
        // Without it the host is only asked again.
        if written.and_then(|()| std::fs::rename(&new, file)).is_err() {
            let _ = std::fs::remove_file(&new);
        }
    }

    /// Forgets it: the host answered.
    pub fn forget(&self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_taken_for_down_for_some_seconds_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("down-1");
        let unreachable = Unreachable { file: Some(file.clone()) };
        unreachable.remember(Duration::from_millis(10), "it refused at once");
        assert_eq!(unreachable.reason(), None);
        unreachable.remember(Duration::from_secs(5), "no route\u{1b}[2J");
        assert_eq!(unreachable.reason().as_deref(), Some("no route[2J"));
        unreachable.forget();
        assert_eq!(unreachable.reason(), None);
        for time in [std::time::SystemTime::now() - FOR, std::time::SystemTime::now() + 2 * FOR] {
            unreachable.remember(Duration::from_secs(5), "no route");
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
            assert_eq!(unreachable.reason(), None);
            assert!(!file.exists(), "it is removed");
        }
        std::fs::create_dir(&file).unwrap();
        assert_eq!(unreachable.reason(), None);
    }
}
