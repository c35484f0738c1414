//! Targets on a running test cluster.

use std::sync::Arc;

use weftrun_backends::slurm::Slurm;
use weftrun_core::backend::{Backend, TargetConfig};

#[path = "../../../../test-cluster/slurm/cluster.rs"]
mod running;

pub use running::{EVERY, TestCluster, WAYS, Way};

impl TestCluster {
    /// A target on it.
    pub fn target(&self, way: Way) -> TargetConfig {
        let mut target = TargetConfig::new("cluster", "slurm", self.dir.join("state"));
        for (key, value) in self.settings(way) {
            target = target.with(key, value);
        }
        target.env.extend(self.env(way).into_iter().map(|(name, value)| (name.to_owned(), value)));
        target
    }

    pub fn connect(&self, way: Way) -> Arc<dyn Backend> {
        Arc::new(Slurm::new(&self.target(way)).expect("the target is good"))
    }

    /// Returns a target where a program replaces one of Slurm's.
    pub fn wrapped(&self, way: Way, name: &str, script: &str) -> TargetConfig {
        self.target(way).with("bin-dir", self.wrapper(way, name, script).display().to_string())
    }
}
