//! How many files may be open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as are ever needed: a job of a thousand ranks has a thousand logs, and a shell allows 1024 files or less.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit towards the hard one. Where that is refused, what runs out of files says so.
pub fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
}
