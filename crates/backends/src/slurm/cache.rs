//! Cluster facts, cached in the target's state folder, so that a submission costs only a test and an
//! `sbatch`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::config::Settings;
use crate::files;

/// How long an entry is valid. Before a job is refused because of an entry, the cluster is queried again.
const FRESH: Duration = Duration::from_mins(10);

/// The cache file: one line that identifies the target, one line with the time, then the output.
#[derive(Clone, Debug)]
pub struct Cache {
    path: PathBuf,
    of: String,
}

impl Cache {
    /// Returns the cache for a target's settings and the folder in which `submit` is called.
    pub fn new(state: &Path, settings: &Settings, folder: Option<&str>) -> Self {
        let Settings { ssh, ssh_config, ssh_args, bin_dir, cluster, .. } = settings;
        let of = format!(
            "{} {ssh:?} {ssh_config:?} {ssh_args:?} {bin_dir:?} {cluster:?} {folder:?}",
            env!("CARGO_PKG_VERSION")
        );
        // One file per target: another folder or host only invalidates it.
        Self { path: state.join("cluster.txt"), of }
    }

    /// Returns the cached output and its age, while it is fresh.
    pub fn read(&self) -> Option<(String, Duration)> {
        let text = files::read_text(&self.path, files::MAX_STATE).ok()?;
        let (of, rest) = text.split_once('\n')?;
        let (at, answer) = rest.split_once('\n')?;
        let at = Timestamp::from_second(at.parse().ok()?).ok()?;
        let age = Duration::try_from(Timestamp::now().duration_since(at)).ok()?;
        (of == self.of && age < FRESH).then(|| (answer.to_owned(), age))
    }

    /// Writes the output. A cache that cannot be written is ignored.
    pub fn write(&self, answer: &str) {
        let text = format!("{}\n{}\n{answer}", self.of, Timestamp::now().as_second());
        if let Err(error) = files::write_private(&self.path, text.as_bytes()) {
            tracing::debug!(%error, "the facts of the cluster are not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use weftrun_core::backend::TargetConfig;

    use super::*;

    #[test]
    fn an_answer_is_kept_for_its_settings_and_folder_until_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("targets/pc");
        let settings = |host: &str| {
            Settings::of(&TargetConfig::new("pc", "slurm", dir.path()).with("ssh", host)).unwrap()
        };
        let cache = |host: &str, folder| Cache::new(&state, &settings(host), folder);
        let read = |cache: &Cache| cache.read().map(|(text, _)| text);
        assert_eq!(read(&cache("a", None)), None);
        cache("a", None).write("one\n\u{1d}two\n");
        assert_eq!(read(&cache("a", None)).as_deref(), Some("one\n\u{1d}two\n"));
        assert_eq!((read(&cache("b", None)), read(&cache("a", Some("/fsx")))), (None, None));
        let old = Timestamp::now().as_second() - 601;
        let text = std::fs::read_to_string(state.join("cluster.txt")).unwrap();
        let lines: Vec<&str> = text.splitn(3, '\n').collect();
        std::fs::write(state.join("cluster.txt"), format!("{}\n{old}\n{}", lines[0], lines[2])).unwrap();
        assert_eq!(read(&cache("a", None)), None);
    }
}
