//! The logs of all pods of a workload, merged as they come, each resumed exactly.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weftrun_core::job::JobHandle;
use weftrun_core::log::{Cursor, Fed, LogBatch, LogOptions, Mark, Resume, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

use super::cluster_api::{self, Ask, Next};
use super::lookup::text;
use super::{Shared, status, watch};

/// Times a stream of a pod that has ended may break before the rest is called lost.
const TRIES_AFTER_END: u32 = 5;

type Sender = mpsc::Sender<Result<LogBatch>>;

/// The logs of a workload.
pub fn logs(
    shared: Arc<Shared>,
    handle: JobHandle,
    options: LogOptions,
) -> BoxStream<'static, Result<LogBatch>> {
    let (send, receive) = mpsc::channel(64);
    tokio::spawn(async move {
        let read = async {
            let handle = shared.resolve(&handle).await?;
            Reader { shared: shared.clone(), handle, options, send: send.clone() }.run().await
        };
        tokio::select! {
            result = read => {
                if let Err(error) = result {
                    let _ = send.send(Err(error)).await;
                }
            }
            () = send.closed() => {}
        }
    });
    Box::pin(futures_util::stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|batch| (batch, receive))
    }))
}

#[derive(Clone)]
struct Reader {
    shared: Arc<Shared>,
    handle: JobHandle,
    options: LogOptions,
    send: Sender,
}

impl Reader {
    async fn run(&self) -> Result<()> {
        let base = cluster_api::base(&self.shared).await.map_err(|error| self.other_routes(error))?;
        let mut followed = HashSet::new();
        let mut readers = JoinSet::new();
        loop {
            let workload = self.shared.typed(&self.handle).await;
            let ended = match &workload {
                Ok(workload) => {
                    status::phase(text(workload, "actualPhase").unwrap_or_default()).is_terminal()
                }
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) if error.is_retryable() => false,
                Err(_) => return workload.map(|_| ()),
            };
            let framework = workload.as_ref().map_or("runai", framework);
            for pod in watch::pods(&self.shared, &self.handle).await.unwrap_or_default() {
                let (Some(id), Some(name)) = (text(&pod, "id"), text(&pod, "name")) else { continue };
                if !has_log(&pod) || !followed.insert(id.to_owned()) {
                    continue;
                }
                let replica = status::replica(&pod, 0);
                if !self.options.roles.is_empty() && !self.options.roles.contains(&replica.role) {
                    continue;
                }
                let mut source = SourceId::new(name);
                source.uid = id.to_owned();
                (source.role, source.replica) = (replica.role, replica.index);
                let (reader, base, framework) = (self.clone(), base.clone(), framework.to_owned());
                readers.spawn(async move { reader.pod(&base, &framework, Arc::new(source)).await });
            }
            if ended || !self.options.follow {
                break;
            }
            tokio::time::sleep(watch::interval(&self.shared)).await;
        }
        while let Some(done) = readers.join_next().await {
            done.map_err(|error| Error::new(ErrorKind::Unexpected, "a log reader stopped").source(error))??;
        }
        Ok(())
    }

    /// Reads one pod to its end, over as many connections as it takes.
    async fn pod(&self, base: &str, framework: &str, source: Arc<SourceId>) -> Result<()> {
        let stored = self.options.from.iter().find(|cursor| cursor.uid == source.uid).cloned();
        let mut resume = match stored {
            Some(cursor) => Resume::from_cursor(cursor),
            None if self.options.tail.is_some() || self.options.since.is_some() => {
                Resume::new(&source.uid, 0).in_the_middle()
            }
            None => Resume::new(&source.uid, 0),
        };
        let mut breaks = 0;
        let mut tail = self.options.tail;
        loop {
            let ask = Ask {
                pod: source.name.clone(),
                follow: self.options.follow,
                since: resume.since().or(self.options.since),
                tail: tail.take(),
                previous: self.options.previous,
            };
            let why = match cluster_api::open(&self.shared, base, &self.handle, framework, &ask).await {
                Ok(mut socket) => {
                    resume.opened();
                    loop {
                        let mut fed = Fed::default();
                        let next = cluster_api::next(&mut socket).await;
                        let moved = match &next {
                            Next::Bytes(bytes) => resume.feed(bytes, &mut fed),
                            Next::Closed => resume.finish(&mut fed),
                            Next::Broken(_) => Ok(()),
                        };
                        if moved.is_err() {
                            resume.rotated();
                            let _ = resume.feed(&[], &mut fed);
                        }
                        self.give(&source, fed, resume.cursor()).await?;
                        match next {
                            Next::Bytes(_) => {}
                            Next::Closed => break "the stream was closed".to_owned(),
                            Next::Broken(why) => break why,
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound || error.is_retryable() => {
                    error.to_string()
                }
                Err(error) => return Err(error),
            };
            let ended = !self.options.follow || self.pod_ended(&source).await;
            let clean = why == "the stream was closed";
            if ended && clean {
                return self.mark(&source, Mark::Ended { exit_code: None }, resume.cursor()).await;
            }
            breaks = if ended { breaks + 1 } else { 0 };
            if breaks >= TRIES_AFTER_END {
                let reason = format!("the pod has ended and the rest of its log cannot be read: {why}");
                return self.mark(&source, Mark::Gap { reason }, resume.cursor()).await;
            }
            tokio::time::sleep(Duration::from_millis(500) * (breaks + 1)).await;
        }
    }

    async fn pod_ended(&self, source: &SourceId) -> bool {
        match watch::pods(&self.shared, &self.handle).await {
            Ok(pods) => pods
                .iter()
                .find(|pod| text(pod, "id") == Some(&source.uid))
                .is_none_or(|pod| status::replica(pod, 0).phase.is_terminal()),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    async fn give(&self, source: &Arc<SourceId>, fed: Fed, cursor: Cursor) -> Result<()> {
        if fed.is_empty() {
            return Ok(());
        }
        let mut batch = LogBatch::new(source.clone(), fed.bytes, cursor.clone());
        batch.lines = fed.lines;
        batch.mark = fed.mark;
        self.deliver(batch).await?;
        for note in fed.notes {
            let reason = weftrun_core::log::clean_text(&note).into_owned();
            self.mark(source, Mark::Gap { reason }, cursor.clone()).await?;
        }
        Ok(())
    }

    async fn mark(&self, source: &Arc<SourceId>, mark: Mark, cursor: Cursor) -> Result<()> {
        self.deliver(LogBatch::marked(source.clone(), mark, cursor)).await
    }

    async fn deliver(&self, batch: LogBatch) -> Result<()> {
        let gone = |_| Error::new(ErrorKind::Interrupted, "the reader of the logs went away");
        self.send.send(Ok(batch)).await.map_err(gone)
    }

    /// Where else the logs can be had, when the cluster's API cannot be reached.
    fn other_routes(&self, error: Error) -> Error {
        let project = self.shared.target.project.clone().unwrap_or_default();
        let error = error.hint(format!("runai training logs {} -p {project} --follow", self.handle.name()));
        match self.shared.settings.base(&self.shared.target) {
            Ok(base) => error.hint(format!("or read them in the UI: {base}/workloads")),
            Err(_) => error,
        }
    }
}

fn framework(workload: &Value) -> &'static str {
    match workload.pointer("/spec/distributedFramework").and_then(Value::as_str) {
        Some("MPI") => "mpi",
        Some("TF") => "tensorflow",
        Some("XGBoost") => "xgboost",
        Some("JAX") => "jax",
        Some(_) => "pytorch",
        None => "runai",
    }
}

fn has_log(pod: &Value) -> bool {
    let phase = text(pod, "k8sPhase").unwrap_or_default().to_lowercase();
    matches!(phase.as_str(), "running" | "succeeded" | "failed")
}
