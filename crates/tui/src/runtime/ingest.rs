//! Reads the open job's logs: bytes into the store, NCCL's lines into the picture, each batch once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use weftrun::core::fabric::FabricPlan;
use weftrun::core::job::JobHandle;
use weftrun::core::log::{LogOptions, LogStore};
use weftrun::{Client, Result};

use super::survey::Survey;
use crate::model::logs::SharedStore;
use crate::msg::Msg;

/// Least time between two pictures; one that takes long to make comes less often.
const PICTURE: Duration = Duration::from_millis(100);

/// Reads a job's logs until they end or the task is dropped.
pub(super) async fn read(
    client: Client,
    handle: JobHandle,
    previous: bool,
    outbox: mpsc::Sender<Msg>,
    grew: Arc<Notify>,
) {
    let answer = follow(&client, &handle, previous, &outbox, &grew).await;
    let error = answer.err().map(|error| error.to_string());
    let _ = outbox.send(Msg::LogsEnded(handle, error)).await;
}

async fn follow(
    client: &Client,
    handle: &JobHandle,
    previous: bool,
    outbox: &mpsc::Sender<Msg>,
    grew: &Notify,
) -> Result<()> {
    let store = SharedStore::new(LogStore::default());
    let _ = outbox.send(Msg::LogsOpened(handle.clone(), store.clone())).await;
    let job = client.attach(handle).await?;
    let mut options = LogOptions::follow();
    options.previous = previous;
    let mut stream = job.logs(options);
    let mut pictures = Pictures::new(handle.clone(), job.plan().cloned(), store.clone(), outbox.clone());
    loop {
        let wait = pictures.due();
        let batch = tokio::select! {
            biased;
            batch = stream.next() => batch,
            () = sleep_until(wait) => {
                pictures.send().await;
                continue;
            }
        };
        match batch {
            None => break,
            Some(batch) => {
                let batch = batch?;
                // Before the store: what it drops has been looked at.
                pictures.survey.observe(&batch);
                pictures.touched = true;
                store.write(|store| store.ingest(&batch));
                grew.notify_one();
                if wait.is_some_and(|due| due <= Instant::now()) {
                    pictures.send().await;
                }
            }
        }
    }
    pictures.touched = true;
    pictures.send().await;
    Ok(())
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Makes pictures of what was read, not more often than is worth it.
struct Pictures {
    handle: JobHandle,
    plan: Option<FabricPlan>,
    store: SharedStore,
    survey: Survey,
    outbox: mpsc::Sender<Msg>,
    touched: bool,
    last: Instant,
    spacing: Duration,
}

impl Pictures {
    fn new(
        handle: JobHandle,
        plan: Option<FabricPlan>,
        store: SharedStore,
        outbox: mpsc::Sender<Msg>,
    ) -> Self {
        let survey = Survey::default();
        Self { handle, plan, store, survey, outbox, touched: false, last: Instant::now(), spacing: PICTURE }
    }

    fn due(&self) -> Option<Instant> {
        self.touched.then(|| self.last + self.spacing)
    }

    async fn send(&mut self) {
        if !self.touched {
            return;
        }
        let begun = Instant::now();
        let picture = self.survey.picture(self.plan.as_ref());
        self.store.write(|store| {
            for rank in &picture.ranks {
                if let Some(number) = rank.rank {
                    store.learn(&rank.host, rank.pid, number);
                }
            }
        });
        self.touched = false;
        self.last = Instant::now();
        self.spacing = PICTURE.max((self.last - begun) * 10);
        let _ = self.outbox.send(Msg::Picture(self.handle.clone(), Arc::new(picture))).await;
    }
}
