//! One task per target: its jobs, then its events, again and again. A target that hangs, dies or sends
//! garbage shows that in its badge; the others are unaffected.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use weftrun::core::job::{JobEvent, JobFilter};
use weftrun::{Attempts, Client, Error, ErrorKind, Result};

use crate::msg::Msg;

/// How long a target may take to answer a question.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// Longest time between two attempts.
const SLOWEST: Duration = Duration::from_secs(30);
/// How long after an event of a job the journal is read for attempts.
const AGAIN: Duration = Duration::from_secs(5);
/// Largest number of jobs requested.
const MOST_JOBS: usize = 1000;

/// Watches a target for as long as the UI runs.
pub(super) async fn watch(
    client: Client,
    name: String,
    outbox: mpsc::Sender<Msg>,
    again: Arc<Notify>,
    patience: Duration,
) {
    let mut pause = Duration::from_secs(1);
    loop {
        // A backend that panics takes its own task down, not this one.
        let once =
            tokio::spawn(follow(client.clone(), name.clone(), outbox.clone(), again.clone(), patience));
        let answered = match once.await {
            Ok(Ok(())) => {
                pause = Duration::from_secs(1);
                continue;
            }
            Ok(Err((answered, error))) => {
                let _ = outbox.send(Msg::Lost(name.clone(), error.to_string())).await;
                answered
            }
            Err(_) => {
                let _ = outbox.send(Msg::Lost(name.clone(), "the backend failed inside".to_owned())).await;
                false
            }
        };
        pause = if answered { Duration::from_secs(1) } else { (pause * 2).min(SLOWEST) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = again.notified() => {}
        }
    }
}

async fn follow(
    client: Client,
    name: String,
    outbox: mpsc::Sender<Msg>,
    again: Arc<Notify>,
    patience: Duration,
) -> Result<(), (bool, Error)> {
    let connect = async { client.connect(&client.target(&name)?).await };
    let backend = patient(patience, connect).await.map_err(|e| (false, e))?;
    let _ = outbox.send(Msg::Connected(name.clone(), backend.capability())).await;
    let mut filter = JobFilter::all();
    filter.limit = Some(MOST_JOBS);
    let jobs = patient(patience, backend.list(&filter)).await.map_err(|e| (false, e))?;
    let _ = outbox.send(Msg::Listed(name.clone(), Ok(jobs))).await;
    let mut events = backend.watch(filter);
    let mut attempts = Attempts::default();
    let mut read_again = Some(Instant::now());
    loop {
        let due = read_again.unwrap_or_else(Instant::now);
        let event = tokio::select! {
            event = events.next() => event,
            () = tokio::time::sleep_until(due), if read_again.is_some() => {
                read_again = None;
                tell_attempts(&client, &outbox, &mut attempts).await;
                continue;
            }
            () = again.notified() => return Ok(()),
        };
        match event {
            Some(Ok(JobEvent::Disconnected { lost: true, reason })) => {
                let _ = outbox.send(Msg::Lost(name.clone(), reason)).await;
            }
            Some(Ok(event)) => {
                let _ = outbox.send(Msg::Event(name.clone(), event)).await;
                // Another process may submit an attempt at any time; its record follows its job.
                read_again = read_again.or(Instant::now().checked_add(AGAIN));
            }
            Some(Err(error)) => return Err((true, error)),
            None => return Err((true, Error::new(ErrorKind::Unreachable, "the events ended"))),
        }
    }
}

/// Tells which jobs are attempts of others, if that has changed.
async fn tell_attempts(client: &Client, outbox: &mpsc::Sender<Msg>, known: &mut Attempts) {
    let client = client.clone();
    let read = tokio::task::spawn_blocking(move || client.attempts()).await;
    if let Ok(Ok(attempts)) = read
        && attempts != *known
    {
        known.clone_from(&attempts);
        let _ = outbox.send(Msg::Attempts(attempts)).await;
    }
}

/// Runs a query with a time limit.
pub(super) async fn patient<T>(patience: Duration, question: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(patience, question).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("no answer for {} s", patience.as_secs())))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::LazyLock;

    use weftrun::core::backend::{Backend, BackendEntry};
    use weftrun::core::job::JobPhase;
    use weftrun::{Config, Registry};
    use weftrun_testkit::fake::Fake;

    use super::*;

    static FINE: LazyLock<Fake> = LazyLock::new(|| Fake::new("fine"));
    static HANGS: LazyLock<Fake> = LazyLock::new(|| Fake::new("hangs"));
    static DIES: LazyLock<Fake> = LazyLock::new(|| Fake::new("dies"));

    fn client() -> Client {
        let entry = |name, connect| BackendEntry::new(name, "", "here", connect);
        let registry = Registry::empty()
            .with(entry("fine", |_| Box::pin(async { Ok(Arc::new(FINE.clone()) as Arc<dyn Backend>) })))
            .with(entry("hangs", |_| Box::pin(async { Ok(Arc::new(HANGS.clone()) as Arc<dyn Backend>) })))
            .with(entry("dies", |_| Box::pin(async { Ok(Arc::new(DIES.clone()) as Arc<dyn Backend>) })))
            .with(entry("panics", |_| Box::pin(async { panic!("a bug of a backend") })));
        Client::builder().registry(registry).config(Config::empty("/nowhere")).build().unwrap()
    }

    /// Waits until the last status of each target is as expected.
    async fn until(
        inbox: &mut mpsc::Receiver<Msg>,
        said: &mut BTreeMap<String, String>,
        wanted: impl Fn(&BTreeMap<String, String>) -> bool,
    ) {
        let wait = async {
            while !wanted(said) {
                let (name, text) = match inbox.recv().await.expect("targets are watched for ever") {
                    Msg::Listed(name, Ok(jobs)) => (name, format!("{} jobs", jobs.len())),
                    Msg::Lost(name, why) => (name, why),
                    Msg::Event(name, JobEvent::Status { job }) => {
                        (name, format!("{} {}", job.name, job.phase))
                    }
                    _ => continue,
                };
                said.insert(name, text);
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), wait).await;
        assert!(waited.is_ok(), "{said:?}");
    }

    #[tokio::test]
    async fn a_backend_that_hangs_dies_or_panics_says_so_and_the_others_go_on() {
        let (outbox, mut inbox) = mpsc::channel(64);
        HANGS.hang(true);
        DIES.die(true);
        for name in ["fine", "hangs", "dies", "panics"] {
            let patience = Duration::from_millis(200);
            tokio::spawn(watch(client(), name.to_owned(), outbox.clone(), Arc::default(), patience));
        }
        let mut said = BTreeMap::new();
        let holds = |said: &BTreeMap<String, String>, name: &str, text: &str| {
            said.get(name).is_some_and(|known| known.contains(text))
        };
        until(&mut inbox, &mut said, |said| {
            holds(said, "fine", "0 jobs")
                && holds(said, "hangs", "no answer")
                && holds(said, "dies", "dead")
                && holds(said, "panics", "failed inside")
        })
        .await;
        let job = FINE.add("llama", 1, 1);
        FINE.phase(&job, JobPhase::Running, "");
        until(&mut inbox, &mut said, |said| holds(said, "fine", "llama running")).await;
        // Both come back by themselves.
        HANGS.hang(false);
        DIES.die(false);
        until(&mut inbox, &mut said, |said| holds(said, "hangs", "0 jobs") && holds(said, "dies", "0 jobs"))
            .await;
    }
}
