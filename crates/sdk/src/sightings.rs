//! What was last seen to be wrong with a job, for lists, and for the time after it was cancelled or is gone. A rank that
//! hangs leaves nothing in its log.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::job::JobHandle;
use weftrun_core::mask::mask;
use weftrun_core::text::fnv1a;
use weftrun_core::{Confidence, Finding};
use weftrun_diagnose::cause::{Cause, CauseClass, Why, WhyState};

use crate::files;

/// Largest file that is read.
const MAX_SIZE: u64 = 256 * 1024;
/// Largest number of jobs that are kept; above it, all but the newest half are removed.
const MAX_JOBS: usize = 256;

/// Least seconds between two answers by which a rank hangs that did not move: a step takes less.
const STOOD: i64 = 10;

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
    /// When a rank that is behind was first seen where it stands.
    #[serde(default)]
    since: Option<Timestamp>,
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
        let before = self.read(handle);
        // A job that is being cancelled says so in its log while it still counts as running.
        if is_end_from_outside(&cause) && before.is_some() {
            return;
        }
        cause.what = mask(&cause.what).into();
        for evidence in &mut cause.evidence {
            evidence.text = mask(&evidence.text).into();
        }
        let stands = before.as_ref().filter(|seen| stands_still(&seen.cause, &cause));
        // One answer that a rank is behind says less than several before in which it stood at the same operation.
        let is_proved = stands.is_some_and(|seen| seen.cause.class == CauseClass::CollectiveTimeout);
        if cause.class == CauseClass::Behind && is_proved {
            return;
        }
        let (victims, at) = (why.victims.clone(), weftrun_backends::clock::now());
        let since = Some(stands.map_or(at, |seen| seen.since.unwrap_or(seen.at)));
        let sighting = Sighting { handle: handle.clone(), at, since, cause, victims };
        let Ok(text) = serde_json::to_string_pretty(&sighting) else { return };
        if files::write_private(&self.path(handle), text.as_bytes()).is_ok() {
            self.sweep();
        }
    }

    /// Says that a rank hangs which is behind by one answer, and stood at the same operation when it was asked before.
    pub fn compare(&self, handle: &JobHandle, why: &mut Why) {
        let Some(cause) = why.cause.as_mut().filter(|cause| cause.class == CauseClass::Behind) else {
            return;
        };
        let Some(seen) = self.read(handle).filter(|seen| stands_still(&seen.cause, cause)) else { return };
        let stood = weftrun_backends::clock::now().duration_since(seen.since.unwrap_or(seen.at)).as_secs();
        if stood < STOOD {
            return;
        }
        let operation = cause.what.split("; ").next().unwrap_or_default();
        cause.what = format!("{operation}; it did not move for {stood} s, by the answers at both times");
        cause.class = CauseClass::CollectiveTimeout;
        cause.confidence = Confidence::Medium;
        why.state = WhyState::Hanging;
    }

    /// Forgets what was seen of a job that makes progress again.
    pub fn forget(&self, handle: &JobHandle) {
        let _ = files::remove(&self.path(handle));
    }

    /// Adds to the answer for a job that has ended what was seen before, where its logs show no cause of their own. Returns
    /// whether it did.
    pub fn recall(&self, handle: &JobHandle, why: &mut Why) -> bool {
        let Some(Sighting { at, cause, victims, .. }) = self.read(handle) else { return false };
        let is_known = why.cause.as_ref().is_some_and(|known| known.class == cause.class);
        if is_known || !why.cause.as_ref().is_none_or(is_end_from_outside) {
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

/// Returns whether a rank that is behind stands at the operation at which it stood before.
fn stands_still(before: &Cause, now: &Cause) -> bool {
    matches!(before.class, CauseClass::Behind | CauseClass::CollectiveTimeout)
        && before.ranks == now.ranks
        && before.evidence.first().map(|line| &line.text) == now.evidence.first().map(|line| &line.text)
}

/// Returns whether a job was ended from outside, which says nothing of what was wrong with it before.
pub(crate) fn is_end_from_outside(cause: &Cause) -> bool {
    matches!(
        cause.class,
        CauseClass::Cancelled | CauseClass::TimeLimit | CauseClass::Preempted | CauseClass::Deleted
    )
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
        // A job that is being cancelled still counts as running, and its log says so.
        assert_eq!(keep(CauseClass::Cancelled, "got signal: 15"), behind);
    }

    /// Versions of NCCL that are asked once at a time prove a hang by two looks.
    #[test]
    fn a_rank_that_stands_where_it_stood_hangs() {
        let state = tempfile::tempdir().unwrap();
        let (sightings, job) = (Sightings::new(state.path()), "slurm://c/1".parse().unwrap());
        let mut seen = why(b"[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n");
        let cause = seen.cause.as_mut().unwrap();
        (cause.class, cause.what) =
            (CauseClass::Behind, "launched 40 of 42 operations; in one answer".to_owned());
        cause.evidence[0].text = "rank 1: launched 40 of 42 operations".to_owned();
        sightings.keep(&job, &seen);
        let mut now = seen.clone();
        sightings.compare(&job, &mut now);
        assert_eq!(now, seen, "it was asked a moment ago");
        let mut before = sightings.read(&job).unwrap();
        before.since = Some(before.at - jiff::SignedDuration::from_secs(40));
        let text = serde_json::to_string(&before).unwrap();
        std::fs::write(sightings.path(&job), text).unwrap();
        sightings.compare(&job, &mut now);
        let cause = now.cause.as_ref().unwrap();
        assert_eq!((now.state, cause.class), (WhyState::Hanging, CauseClass::CollectiveTimeout));
        assert!(
            cause.what.starts_with("launched 40 of 42 operations; it did not move for 4"),
            "{}",
            cause.what
        );
        let mut moved = seen.clone();
        moved.cause.as_mut().unwrap().evidence[0].text = "rank 1: launched 50 of 52 operations".to_owned();
        let before = moved.clone();
        sightings.compare(&job, &mut moved);
        assert_eq!(moved, before);
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
