//! What others ask of a supervisor: files in the job's folder, which survive whoever wrote them.

use std::fs;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use weftrun_core::Result;

use crate::local::folder::{self, Folder};
use crate::local::process::Identity;

/// Something asked of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// End the job.
    Cancel,
    /// Stop the processes (SIGSTOP).
    Suspend,
    /// Let them go on (SIGCONT).
    Resume,
    /// Send them a signal.
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

/// Asks, and waits until the supervisor took it. False if it does not, or ends first.
pub(crate) fn ask(folder: &Folder, request: Request, supervisor: &Identity) -> Result<bool> {
    folder::make(&folder.requests())?;
    let now = jiff::Timestamp::now().as_nanosecond();
    let name = format!("{now:020}-{}-{}", std::process::id(), request.word());
    let file = folder.requests().join(name);
    folder::write_new(&file, b"")?;
    for _ in 0..250 {
        if !file.exists() {
            return Ok(true);
        }
        if !supervisor.is_alive() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // Whoever withdraws it knows that nobody will act on it later.
    Ok(fs::remove_file(&file).is_err())
}

/// The ways a supervisor is told something.
pub(super) struct Told {
    signals: Vec<Signal>,
}

impl Told {
    /// Listens; a supervisor that is a thread of somebody leaves that program's signals alone.
    pub fn new(detached: bool) -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = if detached {
            kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
        } else {
            Vec::new()
        };
        Self { signals }
    }

    /// Waits until this process is told to end.
    pub async fn terminated(&mut self) {
        let waits = self.signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            std::future::pending::<()>().await;
        }
        futures_util::future::select_all(waits).await;
    }

    /// Takes the requests that are there, oldest first.
    #[allow(clippy::unused_self, reason = "both ways of being told belong together")]
    pub fn requests(&self, folder: &Folder) -> Vec<Request> {
        let Ok(entries) = fs::read_dir(folder.requests()) else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        let taken = names.into_iter().filter(|name| fs::remove_file(folder.requests().join(name)).is_ok());
        taken.filter_map(|name| Request::read(&name)).collect()
    }
}
