//! What a cluster said of itself, kept for a while beside the target's state, so that the next submit need not ask again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::backend::ClusterFacts;

use crate::files;
use crate::kubernetes::Cluster;

/// How long it is believed. Whatever the cluster refuses makes it forgotten at once.
const FRESH: Duration = Duration::from_mins(10);

/// The file.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
    of: String,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    /// Who asked what, in which version of weftrun.
    of: String,
    at: Timestamp,
    facts: ClusterFacts,
}

impl Cache {
    /// The cache of a connection: of a server, a namespace, and whoever the kubeconfig says one is.
    pub fn new(state: &Path, cluster: &Cluster, kubeconfig: &str) -> Self {
        let Cluster { server, context, namespace, .. } = cluster;
        let of = format!("{} {server} {context} {namespace} {kubeconfig}", env!("CARGO_PKG_VERSION"));
        // FNV-1a, only to give each its own file: what is in it says whose it is.
        let hash = of.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { path: state.join(format!("facts-{hash:016x}.json")), of }
    }

    /// What is known and still fresh.
    pub fn read(&self) -> Option<ClusterFacts> {
        let kept: Kept = serde_json::from_slice(&files::read(&self.path, files::MAX_STATE).ok()?).ok()?;
        let age = Duration::try_from(Timestamp::now().duration_since(kept.at)).ok()?;
        (kept.of == self.of && age < FRESH).then_some(kept.facts)
    }

    /// Keeps it; a cache that cannot be written is none.
    pub async fn write(&self, facts: &ClusterFacts) {
        let kept = Kept { of: self.of.clone(), at: Timestamp::now(), facts: facts.clone() };
        let Ok(text) = serde_json::to_vec(&kept) else { return };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || files::write_private(&path, &text)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            tracing::debug!(%error, "the facts are not kept");
        }
    }

    /// Forgets it.
    pub async fn forget(&self) {
        // Where there is none, there is nothing to forget.
        let _ = tokio::fs::remove_file(&self.path).await;
    }
}
