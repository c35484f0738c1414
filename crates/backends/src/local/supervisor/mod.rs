//! The parent of a job's processes: starts, waits for, restarts and ends them, and records their state.
//!
//! It is the only writer of the record, and holds the job's lock as long as it runs. Log bytes do not pass
//! through it: each process writes to its own file, so that ending the supervisor loses none.

mod after;
mod attempt;
mod code;
mod requests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use weftrun_core::job::{JobPhase, TIME_LIMIT_REACHED};
use weftrun_core::text::counted;
use weftrun_core::{Error, ErrorKind, Result, Severity};

pub(super) use requests::{Answer, PATIENCE, Request, ask, leave};

use super::document::ProcessList;
use super::folder::{self, Folder, RESERVE};
use super::record::{Origin, Record};
use super::{error, process};
use attempt::Outcome;

/// Time between two checks of requests, deadlines and the disk.
const TICK: Duration = Duration::from_millis(50);

/// Runs the job of a folder to its end. Called by the hidden `weftrun supervise DIR`, in a session of its
/// own; the processes inherit its environment.
///
/// Does nothing for a job that has or had a supervisor.
///
/// # Errors
/// [`ErrorKind::Io`] if the folder cannot be read or written. A failed job is not an error.
pub fn supervise(folder: &Path) -> Result<()> {
    run(&Folder::new(folder), None)
}

/// Runs the job of a folder to its end on this thread; the processes get the given environment, or inherit
/// this process's if there is none.
pub(super) fn run(folder: &Folder, environment: Option<BTreeMap<String, String>>) -> Result<()> {
    let detached = environment.is_none();
    if folder.of(folder::RECORD).exists() {
        return Ok(());
    }
    let Some(lock) = lock(folder)? else { return Ok(()) };
    if folder.of(folder::RECORD).exists() {
        return Ok(());
    }
    // tokio would panic.
    crate::files::spare_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| error::file("start a runtime for the job", folder.path(), e))?;
    let mut supervisor = Supervisor::open(folder.clone(), lock, environment)?;
    runtime.block_on(supervisor.run(detached))
}

/// Takes the lock. Readers hold it for a moment, so one refusal does not yet mean a supervisor; on a busy
/// machine that may take longer.
fn lock(folder: &Folder) -> Result<Option<File>> {
    for _ in 0..400 {
        if let Some(lock) = folder.try_lock()? {
            return Ok(Some(lock));
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    Ok(None)
}

/// Why a job is ended before its processes end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stop {
    /// It was cancelled; the reason is empty where a user asked for it.
    Cancelled(Cow<'static, str>),
    /// It reached its time limit.
    TimeLimit,
}

/// A running job.
struct Supervisor {
    folder: Folder,
    list: ProcessList,
    origin: Origin,
    record: Record,
    environment: Option<BTreeMap<String, String>>,
    /// Its deadline, on a monotonic clock, so that changing the machine's time has no effect.
    deadline: Option<Instant>,
    unwritten: bool,
    reserve: Option<std::path::PathBuf>,
    disk_full: bool,
    /// Whether this process becomes the parent of the processes that outlive theirs.
    adopts: bool,
    /// Processes that could not be ended.
    unended: Option<String>,
    _lock: File,
}

/// Largest number of adopted processes in the record.
const MOST_ADOPTED: usize = 256;

impl Supervisor {
    fn open(folder: Folder, lock: File, environment: Option<BTreeMap<String, String>>) -> Result<Self> {
        let detached = environment.is_none();
        let path = folder.of(folder::JOB);
        let text = crate::files::read_text(&path, crate::files::MAX_STATE)
            .map_err(|e| error::file("read the process list", &path, e))?;
        let list = ProcessList::parse(&text)?;
        let origin = folder::read(&folder.of(folder::ORIGIN))?.ok_or_else(|| {
            Error::new(ErrorKind::Io, "not a job's folder").with("path", folder.path().display())
        })?;
        let reserve = folder.path().join("reserve");
        folder::write_new(&reserve, &vec![0; RESERVE])?;
        let record = Record::starting(list.processes.len());
        folder::replace(&folder.of(folder::RECORD), &record)?;
        Ok(Self {
            folder,
            list,
            origin,
            record,
            environment,
            deadline: None,
            unwritten: false,
            reserve: Some(reserve),
            disk_full: false,
            // In a thread of another program, its other children would be taken for the job's.
            adopts: detached && process::adopt_orphans(),
            unended: None,
            _lock: lock,
        })
    }

    async fn run(&mut self, detached: bool) -> Result<()> {
        let mut requests = requests::Requests::new(detached);
        let begun = match after::wait(self, &mut requests).await {
            Ok(()) => code::bring(self, &mut requests).await,
            Err(stop) => Err(code::Failed::Stopped(stop)),
        };
        match begun {
            Ok(()) => self.attempts(&mut requests).await,
            Err(code::Failed::Error(error)) => self.record.end(JobPhase::Failed, error.to_string(), None),
            Err(code::Failed::Stopped(stop)) => {
                self.sweep().await;
                self.end_stopped(stop);
            }
        }
        self.last_word().await
    }

    async fn attempts(&mut self, requests: &mut requests::Requests) {
        loop {
            let outcome = self.attempt(requests).await;
            self.sweep().await;
            let attempt = self.record.attempt;
            match outcome {
                Outcome::Ended => return self.record.end(JobPhase::Succeeded, "", Some(0)),
                Outcome::Stopped(stop) => return self.end_stopped(stop),
                Outcome::Failed { reason, code } if attempt >= self.list.restarts => {
                    let reason = match attempt {
                        0 => reason,
                        n => format!("{reason}, after {n} of {} restarts", self.list.restarts),
                    };
                    return self.record.end(JobPhase::Failed, reason, Some(code));
                }
                Outcome::Failed { reason, .. } => {
                    self.record.attempt += 1;
                    self.record.phase = JobPhase::Restarting;
                    let text = format!("{reason}; restart {} of {}", self.record.attempt, self.list.restarts);
                    self.record.note(Severity::Warning, "restarted", text.clone());
                    self.record.reason = text;
                    self.record.processes.fill(super::record::ProcessRecord::waiting());
                    self.unwritten = true;
                }
            }
        }
    }

    /// Completes the record of a job that was stopped.
    fn end_stopped(&mut self, stop: Stop) {
        match stop {
            Stop::Cancelled(by) => self.record.end(JobPhase::Cancelled, by, None),
            Stop::TimeLimit => {
                let limit = self.list.time_limit.unwrap_or_default();
                self.record.end(JobPhase::Failed, format!("{TIME_LIMIT_REACHED} ({limit} s)"), None);
            }
        }
    }

    /// Waits until a job without processes is stopped: by a cancel, its time limit, or a signal to this
    /// process. Other requests are for processes: they wait until there are some, or are withdrawn.
    async fn stopped(&mut self, requests: &mut requests::Requests) -> Stop {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = requests.terminated() => return Stop::Cancelled("a signal ended its supervisor".into()),
                _ = tick.tick() => {
                    let taken = requests.requests(&self.folder, |request| request == Request::Cancel);
                    if !taken.requests.is_empty() {
                        self.record.phase = JobPhase::Stopping;
                        self.unwritten = true;
                        self.write();
                        return Stop::Cancelled("".into());
                    }
                    if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Stop::TimeLimit;
                    }
                }
            }
        }
    }

    /// Ends remaining descendants of the processes, even if they moved to another group or session, or cleared their
    /// environment. Reports those that cannot be ended.
    async fn sweep(&mut self) {
        let mut left = self.remaining();
        if left.is_empty() {
            return;
        }
        let text = format!("weftrun ended {} that outlived the ranks", counted(left.len(), "process"));
        let grace = Duration::from_millis(self.list.grace_ms);
        let began = Instant::now();
        while !left.is_empty() {
            let Some(number) = process::next_signal(began.elapsed(), grace) else { break };
            process::end(&left, number);
            tokio::time::sleep(TICK).await;
            self.adopt(&[]);
            left = self.remaining();
        }
        self.unended = (!left.is_empty()).then(|| {
            let count = counted(left.len(), "process");
            format!("{count} could not be ended and may still run: {}", process::names(&left))
        });
        let text = self.unended.clone().unwrap_or(text);
        self.record.note(Severity::Warning, "left-behind", text);
    }

    /// Returns the living processes of the job.
    fn remaining(&self) -> Vec<i32> {
        let mut left = process::marked(self.list.submission.as_str());
        if self.adopts {
            left.extend(process::descendants());
            left.sort_unstable();
            left.dedup();
        }
        left
    }

    /// Records which processes this one adopted, so that they are found if it is killed. `known` are those that it started.
    fn adopt(&mut self, known: &[i32]) {
        if !self.adopts {
            return;
        }
        let mut adopted = process::adopted(known);
        adopted.truncate(MOST_ADOPTED);
        if self.record.adopted != adopted {
            self.record.adopted = adopted;
            self.unwritten = true;
        }
    }

    /// Writes the record if something changed. A failure is retried at the next tick: it must not end the
    /// job.
    fn write(&mut self) {
        if !self.unwritten {
            return;
        }
        match folder::replace(&self.folder.of(folder::RECORD), &self.record) {
            Ok(()) => self.unwritten = false,
            Err(_) => {
                if let Some(reserve) = self.reserve.take() {
                    let _ = std::fs::remove_file(reserve);
                }
            }
        }
    }

    /// Reports once that the disk is full: the processes' logs may be truncated, which only the supervisor
    /// can detect.
    fn look_at_the_disk(&mut self) {
        if self.disk_full {
            return;
        }
        if folder::free(self.folder.path()).is_some_and(|free| free < RESERVE as u64) {
            self.disk_full = true;
            let text = "the disk is full: what processes write to their logs may be lost";
            self.record.note(Severity::Error, "disk-full", text);
            self.unwritten = true;
        }
    }

    /// Writes the last record, for up to a minute if the disk is full.
    async fn last_word(&mut self) -> Result<()> {
        self.look_at_the_disk();
        if let Some(unended) = self.unended.take() {
            let reason = &mut self.record.reason;
            *reason = if reason.is_empty() { unended } else { format!("{reason}; {unended}") };
        }
        self.unwritten = true;
        for _ in 0..1200 {
            self.write();
            if !self.unwritten {
                if let Some(reserve) = self.reserve.take() {
                    let _ = std::fs::remove_file(reserve);
                }
                return Ok(());
            }
            tokio::time::sleep(TICK).await;
        }
        folder::replace(&self.folder.of(folder::RECORD), &self.record)
    }
}
