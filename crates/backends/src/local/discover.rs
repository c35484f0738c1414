//! Facts about this machine as a cluster with one node.

use std::path::Path;

use weftrun_core::backend::{ClusterFacts, NodeGroup};

use super::config::Config;

impl Config {
    /// Returns the facts about this machine as a cluster with one node.
    pub fn facts(&self) -> ClusterFacts {
        let mut node = NodeGroup::default();
        node.count = 1;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        node.allocatable.insert("cpu".to_owned(), cpus.to_string());
        let gpus = gpus(Path::new("/dev"));
        if gpus > 0 {
            node.allocatable.insert("nvidia.com/gpu".to_owned(), gpus.to_string());
        }
        let mut facts = ClusterFacts::default();
        facts.online = true;
        facts.efa_webhook = Some(false);
        facts.nodes.push(node);
        for (name, found) in [("torchrun", &self.torchrun), ("mpirun", &self.mpirun)] {
            if let Some(path) = found {
                facts.serves.push(name.to_owned());
                facts.extra.insert(name.to_owned(), path.display().to_string().into());
            }
        }
        facts
    }
}

/// Counts NVIDIA's device files, one of which every driver creates for each GPU.
fn gpus(dev: &Path) -> usize {
    let Ok(entries) = dev.read_dir() else { return 0 };
    entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
            number.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        })
        .count()
}
