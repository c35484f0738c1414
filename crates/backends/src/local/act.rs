//! Cancel, delete, suspend, resume and signal.

use std::fs;
use std::time::{Duration, Instant};

use weftrun_core::job::{Action, JobHandle, JobPhase};
use weftrun_core::{Error, ErrorKind, Result};

use super::record::Record;
use super::store::{Job, Store};
use super::supervisor::{self, Request};
use super::{NAME, error, folder, process};

impl Store {
    pub fn act(&self, handle: &JobHandle, action: Action) -> Result<()> {
        let job = self.get(handle)?;
        match action {
            Action::Cancel => self.cancel(&job),
            Action::Delete => self.delete(&job),
            Action::Suspend => self.request(&job, Request::Suspend),
            Action::Resume => self.request(&job, Request::Resume),
            Action::Signal(number) if process::by_number(number).is_none() => {
                Err(Error::new(ErrorKind::Usage, format!("there is no signal {number}")))
            }
            Action::Signal(number) => self.request(&job, Request::Signal(number)),
            Action::Hold | Action::Release => Err(Error::unsupported(NAME, "hold")),
            Action::Requeue => Err(Error::unsupported(NAME, "requeue")),
            _ => Err(Error::unsupported(NAME, "action")),
        }
    }

    fn cancel(&self, job: &Job) -> Result<()> {
        let now = Self::snapshot(job)?;
        if now.phase.is_terminal() && now.orphans.is_empty() {
            return Ok(());
        }
        self.request(job, Request::Cancel)
    }

    /// Passes a request to the supervisor, or executes it itself if the supervisor is gone.
    fn request(&self, job: &Job, request: Request) -> Result<()> {
        let now = Self::snapshot(job)?;
        error::refuse_ended(&job.handle, now.phase)?;
        if let Some(record) = &now.record
            && supervisor::ask(&job.folder, request, &record.supervisor)?
        {
            return Ok(());
        }
        let now = Self::snapshot(job)?;
        if now.phase.is_terminal() && request == Request::Cancel {
            return Ok(());
        }
        let Some(_lock) = job.folder.try_lock()? else {
            return Err(Error::new(ErrorKind::Timeout, "the job's supervisor does not answer")
                .with("handle", &job.handle)
                .retryable());
        };
        let number = match request {
            Request::Cancel => return self.end_orphans(job, now.record),
            Request::Suspend => 19,
            Request::Resume => 18,
            Request::Signal(number) => number,
        };
        for pid in process::marked(&job.submission) {
            process::signal(pid, number);
        }
        Ok(())
    }

    /// Ends processes whose supervisor is gone; the caller holds the lock, so it may write the record.
    fn end_orphans(&self, job: &Job, record: Option<Record>) -> Result<()> {
        let began = Instant::now();
        while process::end(&job.submission, if began.elapsed() < self.grace { 15 } else { 9 }) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut record = record.unwrap_or_else(|| Record::starting(0));
        record.end(JobPhase::Cancelled, "cancelled; its supervisor had ended before", None);
        folder::replace(&job.folder.record(), &record)
    }

    fn delete(&self, job: &Job) -> Result<()> {
        // A folder that cannot be read must still be removable.
        if Self::snapshot(job).is_ok() {
            self.cancel(job)?;
            let patience = self.grace + Duration::from_secs(10);
            let began = Instant::now();
            while Self::snapshot(job).is_ok_and(|now| !now.phase.is_terminal()) {
                if began.elapsed() > patience {
                    return Err(Error::new(ErrorKind::Timeout, "the job does not end; nothing was removed")
                        .with("handle", &job.handle)
                        .retryable());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        // The job disappears at once, even if the removal is interrupted.
        let trash = self.jobs().join(format!(".new-deleted-{}", job.submission));
        let moved = fs::rename(job.folder.path(), &trash).and_then(|()| fs::remove_dir_all(&trash));
        moved.map_err(|e| error::file("remove the job's folder", job.folder.path(), e))
    }
}
