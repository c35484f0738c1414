//! The job folders of a target.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use weftrun_core::Result;
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobDetail, JobFilter, JobHandle, JobPhase, JobSummary, SubmissionId};

use super::config::Config;
use super::document::ProcessList;
use super::folder::{self, Folder};
use super::record::Origin;
use super::status::Snapshot;
use super::watch::{Ended, Look};
use super::{NAME, error};
use crate::refusals;

/// The job folders of a target, and the settings for starting supervisors.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) target: String,
    pub(super) root: PathBuf,
    pub(super) binary: Option<PathBuf>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) grace: Duration,
}

/// Omits the environment, which contains secrets.
impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Store");
        shown.field("target", &self.target).field("root", &self.root).finish_non_exhaustive()
    }
}

/// A job of this target.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub handle: JobHandle,
    pub submission: String,
    pub folder: Folder,
}

impl Store {
    /// Creates the store of a target; creates no folder before the first submit.
    pub fn new(target: &TargetConfig, config: &Config) -> Self {
        Self {
            target: target.name.clone(),
            root: target.state_dir.clone(),
            binary: target.binary.clone(),
            environment: target.env.clone(),
            grace: config.grace,
        }
    }

    /// Returns whether jobs continue when this program ends.
    pub fn detaches(&self) -> bool {
        self.binary.is_some()
    }

    pub(super) fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    pub(super) fn job(&self, submission: &str, name: &str) -> Job {
        let uid: String = submission.chars().take(8).collect();
        Job {
            handle: JobHandle::new(NAME, &self.target, [name]).with_uid(uid),
            submission: submission.to_owned(),
            folder: Folder::new(self.jobs().join(submission)),
        }
    }

    pub fn find(&self, id: &SubmissionId) -> Result<Option<JobHandle>> {
        let job = self.job(id.as_str(), "");
        let Some(origin) = folder::read::<Origin>(&job.folder.of(folder::ORIGIN))? else { return Ok(None) };
        // A claim that was never started is no job: its submitter has told nobody of it.
        if !job.folder.of(folder::RECORD).exists() && origin.is_abandoned() && self.withdraw(&job)? {
            return Ok(None);
        }
        Ok(Some(self.job(id.as_str(), &origin.name).handle))
    }

    /// Removes what killed processes left: claims without a supervisor, and partially written files. A claim that cannot be
    /// removed is reported and skipped: it must not block other submissions.
    pub(super) fn tidy(&self) -> Result<()> {
        for job in self.all()? {
            crate::files::sweep(job.folder.path());
            if Self::snapshot(&job).is_ok_and(|now| now.is_void)
                && let Err(error) = self.withdraw(&job)
            {
                tracing::warn!("a job that was never started is not removed: {error}");
            }
        }
        Ok(())
    }

    /// Removes a claimed job; returns false if a supervisor has begun. One that begins meanwhile waits for the lock, and then
    /// finds no folder.
    fn withdraw(&self, job: &Job) -> Result<bool> {
        // Others hold the lock for a moment.
        for _ in 0..20 {
            let lock = match job.folder.try_lock() {
                Err(_) if !job.folder.path().exists() => return Ok(true),
                lock => lock?,
            };
            if job.folder.of(folder::RECORD).exists() {
                return Ok(false);
            }
            if lock.is_some() {
                self.remove(job)?;
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }

    /// Removes a job's folder. The job disappears at once, even if the removal is interrupted.
    pub(super) fn remove(&self, job: &Job) -> Result<()> {
        let trash = self.jobs().join(format!(".new-deleted-{}", job.submission));
        let moved = fs::rename(job.folder.path(), &trash).and_then(|()| fs::remove_dir_all(&trash));
        moved.map_err(|e| error::file("remove the job's folder", job.folder.path(), e))
    }

    /// Returns all jobs, newest first. A folder with an unreadable origin is listed under its submission's
    /// name.
    pub fn all(&self) -> Result<Vec<Job>> {
        let entries = match fs::read_dir(self.jobs()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(error::file("read the target's jobs", &self.jobs(), e)),
        };
        let mut jobs = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if SubmissionId::parse(&name).is_none() {
                continue;
            }
            let path = Folder::new(entry.path()).of(folder::ORIGIN);
            let (created, title) = match folder::read::<Origin>(&path) {
                Ok(Some(origin)) => (origin.created, origin.name),
                _ => (jiff::Timestamp::UNIX_EPOCH, name.clone()),
            };
            jobs.push((created, self.job(&name, &title)));
        }
        jobs.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.submission.cmp(&b.1.submission)));
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }

    /// Returns the job of a handle: the newest of its name, or exactly the one with its uid.
    pub fn get(&self, handle: &JobHandle) -> Result<Job> {
        self.among(&self.all()?, handle)
    }

    fn among(&self, all: &[Job], handle: &JobHandle) -> Result<Job> {
        refusals::other_target(handle, NAME, &self.target)?;
        let fits = |job: &Job| {
            job.handle.name() == handle.name()
                && handle.uid().is_none_or(|uid| job.submission.starts_with(uid))
        };
        all.iter().find(|job| fits(job)).cloned().ok_or_else(|| refusals::no_job(handle))
    }

    /// Returns a job's process list.
    pub fn list_of(job: &Job) -> Result<ProcessList> {
        let path = job.folder.of(folder::JOB);
        let text = crate::files::read_text(&path, crate::files::MAX_STATE).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => refusals::no_job(&job.handle),
            _ => error::file("read the process list", &path, e),
        })?;
        ProcessList::parse(&text)
    }

    /// Returns the present contents of a job's folder.
    pub fn snapshot(job: &Job) -> Result<Snapshot> {
        Snapshot::read(&job.folder, &job.submission)?.ok_or_else(|| refusals::no_job(&job.handle))
    }

    fn chosen(&self, filter: &JobFilter) -> Result<Vec<Job>> {
        if filter.handles.is_empty() {
            self.all()
        } else {
            let all = self.all()?;
            filter.handles.iter().map(|handle| self.among(&all, handle)).collect()
        }
    }

    /// Lists jobs. An unreadable one is listed with the reason.
    pub fn list(&self, filter: &JobFilter) -> Result<Vec<JobSummary>> {
        let read = |job: Job| match Self::snapshot(&job) {
            Ok(snapshot) => snapshot.summary(job.handle, &job.submission),
            Err(error) => {
                let mut summary = JobSummary::new(job.handle, JobPhase::Unknown);
                summary.reason = error.to_string();
                summary
            }
        };
        let jobs = self.chosen(filter)?.into_iter().map(read);
        let wanted = jobs
            .filter(|job| filter.ended || !filter.handles.is_empty() || !job.phase.is_terminal())
            .filter(|job| filter.fits(&job.labels));
        Ok(wanted.take(filter.limit.unwrap_or(usize::MAX)).collect())
    }

    /// Returns one poll of a watch. A job that does not exist is an error only in the first poll; later it is
    /// gone.
    pub fn look(&self, filter: &JobFilter, first: bool, ended: &mut Ended) -> Result<Vec<Look>> {
        let jobs = if first || filter.handles.is_empty() {
            self.chosen(filter)?
        } else {
            let all = self.all()?;
            filter.handles.iter().filter_map(|handle| self.among(&all, handle).ok()).collect()
        };
        let mut looks = Vec::new();
        for job in jobs {
            let record = modified(&job.folder.of(folder::RECORD));
            if let Some(look) = ended.get(job.folder.path(), record) {
                if filter.ended || !filter.handles.is_empty() {
                    looks.push(look);
                }
                continue;
            }
            let (Ok(snapshot), Ok(list)) = (Self::snapshot(&job), Self::list_of(&job)) else { continue };
            if !filter.fits(&list.labels) {
                continue;
            }
            if snapshot.phase.is_terminal() && !filter.ended && filter.handles.is_empty() {
                continue;
            }
            let look = Look {
                replicas: snapshot.replicas(&list),
                attempt: snapshot.attempt(),
                ..Look::of(snapshot.summary(job.handle, &job.submission))
            };
            if look.summary.phase.is_terminal() && look.summary.ended.is_some() && snapshot.orphans.is_empty()
            {
                ended.put(job.folder.path(), record, &look);
            }
            looks.push(look);
        }
        Ok(looks)
    }

    /// Returns when a job was last added or removed.
    pub fn changed(&self) -> Option<SystemTime> {
        modified(&self.jobs())
    }

    pub fn describe(&self, handle: &JobHandle) -> Result<JobDetail> {
        let job = self.get(handle)?;
        Ok(Self::snapshot(&job)?.detail(&job.handle, &job.submission, &Self::list_of(&job)?, &job.folder))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
