//! Cancel, delete, suspend, resume and signal.

use std::time::{Duration, Instant};

use weftrun_core::job::{Action, JobHandle, JobPhase};
use weftrun_core::{Error, ErrorKind, Result};

use super::record::Record;
use super::store::{Job, Store};
use super::supervisor::{self, Answer, Request};
use super::{NAME, folder, process};
use crate::process::Identity;
use crate::refusals;

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

    /// Passes a request to the supervisor, or executes it itself if the supervisor is gone. A supervisor that starts has the
    /// lock before it has a record: it is waited for.
    fn request(&self, job: &Job, request: Request) -> Result<()> {
        let now = Self::snapshot(job)?;
        refusals::ended(&job.handle, now.phase)?;
        if request != Request::Cancel && now.phase == JobPhase::Pending {
            return Err(refusals::waiting(&job.handle, &now.reason));
        }
        let began = Instant::now();
        loop {
            let now = Self::snapshot(job)?;
            if now.phase.is_terminal() && request == Request::Cancel {
                return Ok(());
            }
            if let Some(record) = &now.record {
                match supervisor::ask(&job.folder, request, &record.supervisor)? {
                    Answer::Done => return Ok(()),
                    Answer::Silent => return Err(silent(job, request)),
                    Answer::Gone => {}
                }
            }
            if let Some(_lock) = job.folder.try_lock()? {
                let now = Self::snapshot(job)?;
                if now.phase.is_terminal() && request == Request::Cancel {
                    return Ok(());
                }
                match (request, now.record) {
                    (Request::Cancel, record) => return self.end_orphans(job, record),
                    (request, Some(record)) => return Self::signal_orphans(job, &record, request),
                    // Its submitter is about to start it.
                    (_, None) => {}
                }
            }
            if began.elapsed() > supervisor::PATIENCE {
                if request == Request::Cancel {
                    supervisor::leave(&job.folder, request)?;
                }
                return Err(silent(job, request));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal_orphans(job: &Job, record: &Record, request: Request) -> Result<()> {
        let number = match request {
            Request::Cancel => 15,
            Request::Suspend => 19,
            Request::Resume => 18,
            Request::Signal(number) => number,
        };
        for pid in process::left(&job.submission, record) {
            process::signal(pid, number);
        }
        Ok(())
    }

    /// Ends processes whose supervisor is gone; the caller holds the lock, so it may write the record.
    fn end_orphans(&self, job: &Job, record: Option<Record>) -> Result<()> {
        let mut record = record.unwrap_or_else(|| Record::starting(0));
        let began = Instant::now();
        loop {
            let left = process::left(&job.submission, &record);
            if left.is_empty() {
                break;
            }
            // A process without the mark is not found by its parent once that has ended. On disk, the next cancel finds it too;
            // a full disk must not prevent this one.
            let known: Vec<_> = left.iter().map(|pid| Identity::of(*pid)).collect();
            if record.adopted != known {
                record.adopted = known;
                let _ = folder::replace(&job.folder.of(folder::RECORD), &record);
            }
            let Some(number) = process::next_signal(began.elapsed(), self.grace) else {
                let message = format!("processes of the job could not be ended: {}", process::names(&left));
                return Err(Error::new(ErrorKind::Timeout, message).with("handle", &job.handle));
            };
            process::end(&left, number);
            std::thread::sleep(Duration::from_millis(50));
        }
        record.adopted.clear();
        record.end(JobPhase::Cancelled, "cancelled; its supervisor had ended before", None);
        folder::replace(&job.folder.of(folder::RECORD), &record)
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
        self.remove(job)
    }
}

/// Returns the error of a supervisor that runs and does not answer.
fn silent(job: &Job, request: Request) -> Error {
    let seconds = supervisor::PATIENCE.as_secs();
    let message = format!("the job's supervisor has not answered for {seconds} s");
    let error = Error::new(ErrorKind::Timeout, message).with("handle", &job.handle).retryable();
    match request {
        Request::Cancel => error.hint("the request is recorded: the job ends once its supervisor reads it"),
        _ => error,
    }
}
