//! One task for each target: its jobs, then its events, again and again. One that hangs, dies or answers garbage says
//! so in its badge; the others go on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use weftrun::core::job::{JobEvent, JobFilter};
use weftrun::{Client, Error, ErrorKind, Result};

use crate::msg::Msg;

/// How long a target may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest time between two attempts.
const SLOWEST: Duration = Duration::from_secs(30);
/// Most jobs asked for.
const MOST_JOBS: usize = 1000;

/// Watches a target for as long as the UI runs.
pub(super) async fn watch(client: Client, name: String, outbox: mpsc::Sender<Msg>, again: Arc<Notify>) {
    let mut pause = Duration::from_secs(1);
    loop {
        // A backend that panics takes its own task down, not this one.
        let once = tokio::spawn(follow(client.clone(), name.clone(), outbox.clone(), again.clone()));
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
) -> Result<(), (bool, Error)> {
    let backend =
        patient(async { client.connect(&client.target(&name)?).await }).await.map_err(|e| (false, e))?;
    let _ = outbox.send(Msg::Connected(name.clone(), backend.capability())).await;
    let mut filter = JobFilter::all();
    filter.limit = Some(MOST_JOBS);
    let jobs = patient(backend.list(&filter)).await.map_err(|e| (false, e))?;
    let _ = outbox.send(Msg::Listed(name.clone(), Ok(jobs))).await;
    let mut events = backend.watch(filter);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = again.notified() => return Ok(()),
        };
        match event {
            Some(Ok(JobEvent::Disconnected { lost: true, reason })) => {
                let _ = outbox.send(Msg::Lost(name.clone(), reason)).await;
            }
            Some(Ok(event)) => {
                let _ = outbox.send(Msg::Event(name.clone(), event)).await;
            }
            Some(Err(error)) => return Err((true, error)),
            None => return Err((true, Error::new(ErrorKind::Unreachable, "the events ended"))),
        }
    }
}

async fn patient<T>(question: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, question).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, format!("no answer for {} s", PATIENCE.as_secs())))
    })
}
