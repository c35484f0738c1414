//! Facts of a cluster, kept in a file for some minutes, so that the next command need not query them.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files;

/// How long an entry is valid. Before a job is refused because of an entry, the cluster is queried again.
const FRESH: Duration = Duration::from_mins(10);

/// The file.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
    of: String,
}

#[derive(Serialize, Deserialize)]
struct Kept<T> {
    /// The version of weftrun, and what was queried.
    of: String,
    at: Timestamp,
    facts: T,
}

impl Cache {
    /// Returns the cache in a file. `of` is all that the facts depend on: the file may hold those of something else.
    pub fn new(path: PathBuf, of: &str) -> Self {
        Self { path, of: format!("{} {of}", env!("CARGO_PKG_VERSION")) }
    }

    /// Returns the facts and their age, while they are fresh.
    pub fn read<T: DeserializeOwned>(&self) -> Option<(T, Duration)> {
        let kept: Kept<T> = serde_json::from_slice(&files::read(&self.path, files::MAX_STATE).ok()?).ok()?;
        let age = Duration::try_from(crate::clock::now().duration_since(kept.at)).ok()?;
        (kept.of == self.of && age < FRESH).then_some((kept.facts, age))
    }

    /// Keeps facts. A file that cannot be written is ignored.
    pub async fn write(&self, facts: &impl Serialize) {
        let kept = Kept { of: self.of.clone(), at: crate::clock::now(), facts };
        let Ok(text) = serde_json::to_vec(&kept) else { return };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || files::write_private(&path, &text)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            tracing::debug!(%error, "the facts of the cluster are not kept");
        }
    }

    /// Removes the file, if there is one.
    #[cfg(feature = "kubeflow")]
    pub async fn forget(&self) {
        let _ = tokio::fs::remove_file(&self.path).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn facts_are_kept_for_what_they_are_of_until_they_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("targets/pc/facts.json");
        let cache = |of: &str| Cache::new(file.clone(), of);
        let read = |of: &str| cache(of).read::<String>().map(|(text, _)| text);
        assert_eq!(read("a"), None);
        cache("a").write(&"one\n\u{1d}two\n").await;
        assert_eq!((read("a").as_deref(), read("b")), (Some("one\n\u{1d}two\n"), None));
        let mut kept: Kept<String> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        kept.at = crate::clock::now() - Duration::from_secs(601);
        std::fs::write(&file, serde_json::to_vec(&kept).unwrap()).unwrap();
        assert_eq!(read("a"), None);
        #[cfg(feature = "kubeflow")]
        {
            cache("a").forget().await;
            assert!(!file.exists());
        }
    }
}
