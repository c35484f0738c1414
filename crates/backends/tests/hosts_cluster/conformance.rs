//! The suite every backend passes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use weftrun_core::Result;
use weftrun_core::backend::Backend;
use weftrun_core::job::JobHandle;
use weftrun_testkit::conformance::{self, Fixture};

use crate::cluster::{TestCluster, connect};

struct OnHosts {
    cluster: TestCluster,
    /// The folders of the programs that lose answers.
    kept: Mutex<Vec<tempfile::TempDir>>,
}

#[async_trait]
impl Fixture for OnHosts {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.cluster.connect())
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn lose_logs(&self, job: &JobHandle) -> bool {
        for host in ["a", "b", "c", "d"] {
            let uid = job.uid().expect("a uid");
            self.cluster.on(host, &format!("rm -f ~/.weftrun/hosts/*/jobs/{uid}*/logs/*/*.log"));
        }
        true
    }

    async fn losing_answers(&self) -> Option<Arc<dyn Backend>> {
        let script = "if grep -q '^weftrun_go ' \"$program\"; then real < \"$program\" > /dev/null 2>&1; exit 255; fi\nreal < \"$program\"";
        let (dir, target) = self.cluster.ssh(script);
        self.kept.lock().unwrap().push(dir);
        Some(connect(&target))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_hosts_conform() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let only = std::env::var("WEFTRUN_TEST_ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|word| !word.is_empty()).collect();
    let report = conformance::run_some(&OnHosts { cluster, kept: Mutex::default() }, &only).await;
    eprintln!("{report}");
    report.assert();
}
