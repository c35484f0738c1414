//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sufficient for every use: a job of a thousand ranks has a thousand logs, and a shell allows 1024 files or
/// fewer.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit towards the hard one. If that is refused, the operation that runs out of files
/// reports it.
pub fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < most) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
}
