//! The logs of a workload, over the best available route: the cluster's own API, a kubeconfig, or, if neither
//! answers, an error with the exact commands that get them elsewhere.

mod cluster;
pub(super) mod cluster_api;
mod kubernetes;
mod view;

use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde_json::Value;
use weftrun_core::job::JobHandle;
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

use super::resolve::text;
use super::status::{self, Roles};
use super::{Shared, watch};
use crate::stream::{self, Feed};

/// Number of events that are quoted if no logs are available.
const EVENTS: usize = 3;

/// Returns the logs of a workload.
pub fn logs(
    shared: Arc<Shared>,
    handle: JobHandle,
    options: LogOptions,
) -> BoxStream<'static, Result<LogBatch>> {
    stream::fed(move |send| async move {
        let handle = shared.resolve(&handle).await?;
        Reader { shared, handle, options, send }.run().await
    })
}

/// Reads the logs of one workload for one consumer.
#[derive(Clone)]
struct Reader {
    shared: Arc<Shared>,
    handle: JobHandle,
    options: LogOptions,
    send: Feed<LogBatch>,
}

impl Reader {
    async fn run(&self) -> Result<()> {
        let workload = self.shared.typed(&self.handle).await?;
        let roles = Roles::of(&workload);
        let over = status::phase(text(&workload, "actualPhase").unwrap_or_default()).is_terminal();
        let kubeconfig = self.shared.has_kubeconfig();
        // The cluster's API returns the logs of workloads that have not ended (vendor's documentation);
        // Kubernetes keeps them as long as the pod exists.
        if (over || self.options.previous) && kubeconfig {
            return kubernetes::read(self, over, roles).await;
        }
        if self.options.previous {
            return Err(Error::unsupported("runai", "previous_logs").hint(
                "with `kubeconfig` in the target's table the log of the previous attempt is read from Kubernetes",
            ));
        }
        match cluster_api::base(&self.shared).await {
            Ok(base) => cluster::read(self, &base, &workload, roles).await,
            Err(error) if kubeconfig => {
                tracing::debug!(%error, "no cluster API: the kubeconfig is used");
                kubernetes::read(self, over, roles)
                    .await
                    .map_err(|second| second.with("cluster API", error.message()))
            }
            Err(error) => Err(self.other_routes(error, framework(&workload)).await),
        }
    }

    async fn give(&self, batch: LogBatch) -> Result<()> {
        let gone = |_| Error::new(ErrorKind::Interrupted, "the reader of the logs went away");
        self.send.send(Ok(batch)).await.map_err(gone)
    }

    /// Sends the reader a note that is not a line of a log.
    async fn note(&self, text: String) -> Result<()> {
        let source = Arc::new(SourceId::new(self.handle.name()));
        self.give(LogBatch::marked(source, Mark::Note { text }, Cursor::default())).await
    }

    /// Adds the other ways to get the logs, and the platform's last events.
    async fn other_routes(&self, error: Error, framework: &str) -> Error {
        let project = self.shared.target.project.clone().unwrap_or_default();
        let noun = match (self.handle.parts().get(1).map(String::as_str), framework) {
            (Some("workspaces"), _) => "workspace".to_owned(),
            (_, "runai") => "training".to_owned(),
            (_, framework) => format!("training {framework}"),
        };
        let name = self.handle.name();
        let mut error = error
            .hint("set `kubeconfig` in the target's table to read them over Kubernetes")
            .hint(format!("runai {noun} logs {name} -p {project} --follow"));
        if let Ok(base) = self.shared.settings.base(&self.shared.target) {
            error = error.hint(format!("or read them in the UI: {base}/workloads"));
        }
        for event in watch::events(&self.shared, &self.handle).await.unwrap_or_default().iter().take(EVENTS) {
            let (_, reason, said, _) = status::event(event);
            error = error.with("event", format!("{reason}: {said}"));
        }
        error
    }
}

/// Returns the name of a framework in the cluster's API and in the official command line.
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
