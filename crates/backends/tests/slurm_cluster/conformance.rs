//! The suite every backend passes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weftrun_backends::slurm::Slurm;
use weftrun_core::Result;
use weftrun_core::backend::Backend;
use weftrun_core::job::JobHandle;
use weftrun_testkit::conformance::{self, Fixture};

use crate::cluster::{TestCluster, Way};
use crate::rest;

struct OnCluster(TestCluster, Way);

#[async_trait]
impl Fixture for OnCluster {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.0.connect(self.1))
    }

    /// The check of the time limit takes more than a minute: it runs once, over ssh.
    fn patience(&self) -> Duration {
        Duration::from_secs(if self.1 == Way::Ssh { 150 } else { 90 })
    }

    /// Slurm counts minutes.
    fn time_limit(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn lose_logs(&self, job: &JobHandle) -> bool {
        let id = job.name();
        self.0.sh(&format!(
            "rm -f $CLUSTER/shared/fsx/logs/*-{id}-????????.log $CLUSTER/home/researcher/weftrun/*-{id}-????????.log"
        ));
        true
    }

    async fn losing_answers(&self) -> Option<Arc<dyn Backend>> {
        if self.1 == Way::Rest {
            let target =
                self.0.target(self.1).with("rest", rest::losing_submissions(self.0.rest_port()).await);
            return Slurm::new(&target).ok().map(|backend| Arc::new(backend) as Arc<dyn Backend>);
        }
        let target = self.0.wrapped(self.1, "sbatch", "\"$real\" \"$@\" > /dev/null; exit 1");
        Slurm::new(&target).ok().map(|backend| Arc::new(backend) as Arc<dyn Backend>)
    }
}

async fn run(way: Way) {
    let Some(cluster) = TestCluster::find() else { return };
    let only = std::env::var("WEFTRUN_TEST_ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|word| !word.is_empty()).collect();
    let report = conformance::run_some(&OnCluster(cluster, way), &only).await;
    eprintln!("{way:?}: {report}");
    report.assert();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_commands_conform() {
    run(Way::Here).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ssh_conforms() {
    run(Way::Ssh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slurmrestd_conforms() {
    run(Way::Rest).await;
}
