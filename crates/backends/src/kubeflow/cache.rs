//! Cluster facts, cached in the target's state folder, so that the next submit need not query them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::backend::ClusterFacts;
use weftrun_core::text::fnv1a;

use crate::files;
use crate::kubernetes::Cluster;

/// How long an entry is valid. It is removed at once if the cluster refuses a request.
const FRESH: Duration = Duration::from_mins(10);

/// The file.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
    of: String,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    /// The connection that was queried, and the version of weftrun.
    of: String,
    at: Timestamp,
    facts: ClusterFacts,
}

impl Cache {
    /// Returns the cache of a connection: of a server, a namespace, and the identity in the kubeconfig.
    pub fn new(state: &Path, cluster: &Cluster, kubeconfig: &str) -> Self {
        let Cluster { server, context, namespace, .. } = cluster;
        let of = format!("{} {server} {context} {namespace} {kubeconfig}", env!("CARGO_PKG_VERSION"));
        // The hash only separates file names: the file's contents identify the connection.
        let hash = fnv1a(of.as_bytes());
        Self { path: state.join(format!("facts-{hash:016x}.json")), of }
    }

    /// Returns the cached facts while they are fresh.
    pub fn read(&self) -> Option<ClusterFacts> {
        let kept: Kept = serde_json::from_slice(&files::read(&self.path, files::MAX_STATE).ok()?).ok()?;
        let age = Duration::try_from(Timestamp::now().duration_since(kept.at)).ok()?;
        (kept.of == self.of && age < FRESH).then_some(kept.facts)
    }

    /// Writes the facts. A cache that cannot be written is ignored.
    pub async fn write(&self, facts: &ClusterFacts) {
        let kept = Kept { of: self.of.clone(), at: Timestamp::now(), facts: facts.clone() };
        let Ok(text) = serde_json::to_vec(&kept) else { return };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || files::write_private(&path, &text)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            tracing::debug!(%error, "the facts are not kept");
        }
    }

    /// Removes the entry.
    pub async fn forget(&self) {
        // The file may not exist.
        let _ = tokio::fs::remove_file(&self.path).await;
    }
}
