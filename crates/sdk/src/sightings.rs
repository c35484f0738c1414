//! What was last seen to be wrong with a job, for lists, and for the time after it was cancelled or is gone. A rank that
//! hangs leaves nothing in its log.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::Finding;
use weftrun_core::job::JobHandle;
use weftrun_core::mask::mask;
use weftrun_core::text::fnv1a;
use weftrun_diagnose::cause::{Cause, CauseClass, Why};

use crate::files;

/// Largest file that is read.
const MAX_SIZE: u64 = 256 * 1024;
/// Largest number of jobs that are kept; above it, all but the newest half are removed.
const MAX_JOBS: usize = 256;

/// The causes that were seen, a file for each job.
#[derive(Clone, Debug)]
pub(crate) struct Sightings {
    folder: PathBuf,
}

/// A cause that was found.
#[derive(Debug, Serialize, Deserialize)]
struct Sighting {
    handle: JobHandle,
    at: Timestamp,
    cause: Cause,
    victims: Vec<u32>,
}

impl Sightings {
    /// Returns those of a state folder.
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join("seen") }
    }

    fn path(&self, handle: &JobHandle) -> PathBuf {
        self.folder.join(format!("{:016x}.json", fnv1a(handle.to_string().as_bytes())))
    }

    /// Keeps the cause that was found, where there is one. Failures are ignored: what is kept only helps later.
    pub fn keep(&self, handle: &JobHandle, why: &Why) {
        let Some(mut cause) = why.cause.clone() else { return };
        cause.what = mask(&cause.what).into();
        for evidence in &mut cause.evidence {
            evidence.text = mask(&evidence.text).into();
        }
        // One answer that a rank is behind says less than several before in which it stood at the same operation.
        let stands = |before: &Cause| {
            (before.class, &before.ranks) == (CauseClass::CollectiveTimeout, &cause.ranks)
                && before.evidence.first().map(|evidence| &evidence.text)
                    == cause.evidence.first().map(|evidence| &evidence.text)
        };
        if cause.class == CauseClass::Behind && self.read(handle).is_some_and(|seen| stands(&seen.cause)) {
            return;
        }
        let (victims, at) = (why.victims.clone(), weftrun_backends::clock::now());
        let sighting = Sighting { handle: handle.clone(), at, cause, victims };
        let Ok(text) = serde_json::to_string_pretty(&sighting) else { return };
        if files::write_private(&self.path(handle), text.as_bytes()).is_ok() {
            self.sweep();
        }
    }

    /// Forgets what was seen of a job that makes progress again.
    pub fn forget(&self, handle: &JobHandle) {
        let _ = files::remove(&self.path(handle));
    }

    /// Adds to the answer for a job that has ended what was seen before, where its logs show no cause of their own. Returns
    /// whether it did.
    pub fn recall(&self, handle: &JobHandle, why: &mut Why) -> bool {
        let Some(Sighting { at, cause, victims, .. }) = self.read(handle) else { return false };
        let ended = |cause: &Cause| {
            matches!(
                cause.class,
                CauseClass::Cancelled | CauseClass::TimeLimit | CauseClass::Preempted | CauseClass::Deleted
            )
        };
        let is_known = why.cause.as_ref().is_some_and(|known| known.class == cause.class);
        if is_known || !why.cause.as_ref().is_none_or(ended) {
            return false;
        }
        let message = format!("seen while the job ran, at {}", at.strftime("%F %T UTC"));
        why.findings.insert(0, Finding::info("WHY-SEEN", message));
        (why.cause, why.victims) = (Some(cause), victims);
        true
    }

    /// Returns what was last seen of a job in one line, and when.
    pub fn line(&self, handle: &JobHandle) -> Option<(String, Timestamp)> {
        let Sighting { cause, at, .. } = self.read(handle)?;
        Some((format!("{}: {}: {}", cause.class, cause.who(), cause.what), at))
    }

    fn read(&self, handle: &JobHandle) -> Option<Sighting> {
        let text = files::read_text(&self.path(handle), MAX_SIZE).ok()??;
        let seen: Sighting = serde_json::from_str(&text).ok()?;
        (seen.handle == *handle).then_some(seen)
    }

    fn sweep(&self) {
        let Ok(paths) = files::json_files(&self.folder) else { return };
        if paths.len() <= MAX_JOBS {
            return;
        }
        let age = |path: &PathBuf| std::fs::metadata(path).and_then(|found| found.modified());
        let mut paths: Vec<(SystemTime, PathBuf)> =
            paths.into_iter().map(|path| (age(&path).unwrap_or(SystemTime::UNIX_EPOCH), path)).collect();
        paths.sort_by_key(|(changed, _)| std::cmp::Reverse(*changed));
        for (_, path) in paths.into_iter().skip(MAX_JOBS / 2) {
            let _ = files::remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_diagnose::Sources;

    fn why(log: &[u8]) -> Why {
        let mut map = weftrun_core::nccl::TransportMap::new();
        let source = std::sync::Arc::new(weftrun_core::log::SourceId::new("log"));
        map.read(&source, log);
        map.end(&source);
        Sources::of_logs(&map).diagnose().why
    }

    /// A hang that was proved stays, while the rank stands where it stood.
    #[test]
    fn less_is_not_kept_over_more_of_the_same() {
        let state = tempfile::tempdir().unwrap();
        let (sightings, job) = (Sightings::new(state.path()), "slurm://c/1".parse().unwrap());
        let mut seen = why(b"[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n");
        let mut keep = |class, text: &str| {
            let cause = seen.cause.as_mut().unwrap();
            (cause.class, cause.evidence[0].text) = (class, text.to_owned());
            sightings.keep(&job, &seen);
            sightings.read(&job).unwrap().cause.class
        };
        let (hangs, behind) = (CauseClass::CollectiveTimeout, CauseClass::Behind);
        assert_eq!(keep(behind, "40 of 42"), behind);
        assert_eq!(keep(hangs, "40 of 42"), hangs);
        assert_eq!(keep(behind, "40 of 42"), hangs);
        assert_eq!(keep(behind, "50 of 52"), behind, "it has moved");
    }

    #[test]
    fn what_was_seen_is_told_of_its_job_alone() {
        let state = tempfile::tempdir().unwrap();
        let sightings = Sightings::new(state.path());
        let (one, other): (JobHandle, JobHandle) =
            ("slurm://c/1".parse().unwrap(), "slurm://c/2".parse().unwrap());
        let seen = why(b"[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in f\n[rank1]: ValueError: token=ghp_0123456789abcdefghijklmnopqrstuvwxyz\n");
        sightings.keep(&one, &seen);
        let mut told = Why::default();
        sightings.recall(&one, &mut told);
        let (cause, first) = (told.cause.unwrap(), seen.cause.unwrap());
        assert_eq!((cause.class, &cause.ranks), (first.class, &first.ranks));
        assert!(cause.what.contains("ValueError") && !cause.what.contains("ghp_0123"), "{}", cause.what);
        assert_eq!(cause.fix, first.fix);
        let mut nothing = Why::default();
        sightings.recall(&other, &mut nothing);
        assert_eq!(nothing, Why::default());
        // What its own logs prove stands.
        let mut proved = why(b"[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/job/t.py\", line 9, in g\n[rank0]: KeyError: 5\n");
        let before = proved.clone();
        sightings.recall(&one, &mut proved);
        assert_eq!(proved, before);
    }

    #[test]
    fn their_number_is_bounded() {
        let state = tempfile::tempdir().unwrap();
        let sightings = Sightings::new(state.path());
        let seen = why(b"[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in f\n[rank1]: ValueError: x\n");
        for job in 0..=MAX_JOBS {
            sightings.keep(&format!("slurm://c/{job}").parse().unwrap(), &seen);
        }
        assert_eq!(files::json_files(&sightings.folder).unwrap().len(), MAX_JOBS / 2);
    }
}
