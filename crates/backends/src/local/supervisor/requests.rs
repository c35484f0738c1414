//! Requests to a supervisor: files in the job's folder, which persist when their writer ends.
//!
//! A supervisor renames a request when it takes it, and removes it when it has executed it and updated its
//! record, so that a status read after the answer shows the effect. A request that was not taken can be
//! withdrawn.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use weftrun_core::Result;

use crate::local::error;
use crate::local::folder::{self, Folder};
use crate::process::Identity;

/// A request to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End the job.
    Cancel,
    /// Stop the processes (SIGSTOP).
    Suspend,
    /// Continue them (SIGCONT).
    Resume,
    /// Send a signal to them.
    Signal(i32),
}

impl Request {
    fn word(self) -> String {
        match self {
            Self::Cancel => "cancel".to_owned(),
            Self::Suspend => "suspend".to_owned(),
            Self::Resume => "resume".to_owned(),
            Self::Signal(number) => format!("signal{number}"),
        }
    }

    fn read(name: &str) -> Option<Self> {
        match name.rsplit_once('-')?.1 {
            "cancel" => Some(Self::Cancel),
            "suspend" => Some(Self::Suspend),
            "resume" => Some(Self::Resume),
            word => word.strip_prefix("signal")?.parse().ok().map(Self::Signal),
        }
    }
}

/// Prefix of the name of a request after it was taken.
const TAKEN: &str = ".taken-";

/// How long to wait for a supervisor, which answers within milliseconds on a machine that is not overloaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was executed.
    Done,
    /// The supervisor ended first. It was not executed, and will not be.
    Gone,
    /// The supervisor runs and does not answer. A cancel stays for it, any other request was withdrawn.
    Silent,
}

/// Writes a request for the supervisor; returns its name.
pub(crate) fn leave(folder: &Folder, request: Request) -> Result<String> {
    let requests = folder.of(folder::REQUESTS);
    match fs::DirBuilder::new().mode(0o700).create(&requests) {
        // The job's folder itself is not created: it may have been removed.
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error::file("make a folder", &requests, e));
        }
        _ => {}
    }
    let now = crate::clock::now().as_nanosecond();
    let name = format!("{now:020}-{}-{}", std::process::id(), request.word());
    folder::write_new(&requests.join(&name), b"")?;
    Ok(name)
}

/// Sends a request, and waits until the supervisor has executed it.
pub(crate) fn ask(folder: &Folder, request: Request, supervisor: &Identity) -> Result<Answer> {
    let name = leave(folder, request)?;
    let file = folder.of(folder::REQUESTS).join(&name);
    let taken = folder.of(folder::REQUESTS).join(format!("{TAKEN}{name}"));
    let began = Instant::now();
    let mut over = false;
    while !over && began.elapsed() < PATIENCE {
        // In this order: it is renamed from the first to the second.
        if !file.exists() && !taken.exists() {
            return Ok(Answer::Done);
        }
        std::thread::sleep(Duration::from_millis(20));
        // One that is a thread of another program ends before its process.
        over = !supervisor.is_alive() || matches!(folder.try_lock(), Ok(Some(_)));
    }
    if request == Request::Cancel && !over {
        return Ok(Answer::Silent);
    }
    // After a successful withdrawal it is certain that the request is not executed later.
    if fs::remove_file(&file).is_ok() {
        return Ok(if over { Answer::Gone } else { Answer::Silent });
    }
    // A supervisor that was killed before it executed the request leaves the file; a slow one still executes
    // it.
    let done = !over || fs::remove_file(&taken).is_err();
    Ok(if done { Answer::Done } else { Answer::Gone })
}

/// The sources of requests to a supervisor.
pub(super) struct Requests {
    signals: Vec<Signal>,
}

impl Requests {
    /// Starts to listen; a supervisor that is a thread of another program does not handle that program's
    /// signals.
    pub fn new(detached: bool) -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = if detached {
            kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
        } else {
            Vec::new()
        };
        Self { signals }
    }

    /// Waits until this process is terminated by a signal.
    pub async fn terminated(&mut self) {
        let waits = self.signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            std::future::pending::<()>().await;
        }
        futures_util::future::select_all(waits).await;
    }

    /// Takes the selected pending requests, oldest first.
    #[allow(clippy::unused_self, reason = "both sources of requests belong together")]
    pub fn requests(&self, folder: &Folder, wanted: impl Fn(Request) -> bool) -> Taken {
        let mut taken = Taken { requests: Vec::new(), files: Vec::new() };
        let Ok(entries) = fs::read_dir(folder.of(folder::REQUESTS)) else { return taken };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        for name in names {
            let request = Request::read(&name);
            if request.is_some_and(|request| !wanted(request)) {
                continue;
            }
            let file = folder.of(folder::REQUESTS).join(format!("{TAKEN}{name}"));
            if fs::rename(folder.of(folder::REQUESTS).join(&name), &file).is_ok() {
                taken.requests.extend(request);
                taken.files.push(file);
            }
        }
        taken
    }
}

/// Requests that were taken. Dropping them notifies the requesters that they were executed.
pub(super) struct Taken {
    pub requests: Vec<Request>,
    files: Vec<PathBuf>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    fn job() -> ((tempfile::TempDir, fs::File), Folder, Requests) {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path());
        folder::make(&folder.of(folder::REQUESTS)).unwrap();
        let lock = folder.try_lock().unwrap().unwrap();
        ((place, lock), folder, Requests { signals: Vec::new() })
    }

    fn this() -> Identity {
        Identity::of(std::process::id().cast_signed())
    }

    fn taken(requests: &Requests, folder: &Folder) -> Taken {
        loop {
            let taken = requests.requests(folder, |_| true);
            if !taken.requests.is_empty() {
                return taken;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_request_is_answered_after_it_was_acted_on() {
        let (_place, folder, requests) = job();
        for request in [Request::Suspend, Request::Resume, Request::Signal(10), Request::Cancel] {
            let asked = folder.clone();
            let asking = std::thread::spawn(move || ask(&asked, request, &this()).unwrap());
            let taken = taken(&requests, &folder);
            assert_eq!(taken.requests, [request]);
            std::thread::sleep(Duration::from_millis(200));
            assert!(!asking.is_finished(), "{request:?} was answered before it was acted on");
            assert!(requests.requests(&folder, |_| true).requests.is_empty(), "{request:?} was taken twice");
            drop(taken);
            assert_eq!(asking.join().unwrap(), Answer::Done);
        }
    }

    #[test]
    fn a_request_that_was_taken_by_a_supervisor_that_was_killed_was_not_acted_on() {
        let (_place, folder, requests) = job();
        let mut supervisor = child::command("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(supervisor.id().cast_signed());
        let asked = folder.clone();
        let asking = std::thread::spawn(move || ask(&asked, Request::Cancel, &identity).unwrap());
        std::mem::forget(taken(&requests, &folder));
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        assert_eq!(asking.join().unwrap(), Answer::Gone);
        assert_eq!(fs::read_dir(folder.of(folder::REQUESTS)).unwrap().count(), 0);
    }

    #[test]
    fn a_supervisor_that_ended_in_a_process_that_lives_on_is_gone() {
        let ((_place, lock), folder, _requests) = job();
        drop(lock);
        assert_eq!(ask(&folder, Request::Cancel, &this()).unwrap(), Answer::Gone);
        assert_eq!(fs::read_dir(folder.of(folder::REQUESTS)).unwrap().count(), 0);
    }

    #[test]
    fn requests_for_processes_wait_until_there_are_some() {
        let (_place, folder, requests) = job();
        for word in ["0-1-suspend", "1-1-cancel"] {
            fs::write(folder.of(folder::REQUESTS).join(word), "").unwrap();
        }
        assert_eq!(
            requests.requests(&folder, |request| request == Request::Cancel).requests,
            [Request::Cancel]
        );
        assert_eq!(requests.requests(&folder, |_| true).requests, [Request::Suspend]);
    }
}
