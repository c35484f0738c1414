//! The suite that every backend must pass.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use weftrun_core::Result;
use weftrun_core::backend::Backend;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::conformance::{self, Fixture};

use crate::cluster::{IMAGE, TestCluster, cluster};
use crate::losing::Losing;

struct OnCluster {
    cluster: TestCluster,
    losing: Losing,
}

#[async_trait]
impl Fixture for OnCluster {
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.cluster.connect().await)
    }

    fn job(&self, name: &str, nodes: u32, ranks_per_node: u32, script: &str) -> JobSpec {
        let role = Role::worker().nodes(nodes).ranks_per_node(ranks_per_node).command(["sh", "-c", script]);
        JobSpec::builder(name).image(IMAGE).launch(Launch::PerRank).role(role).build().unwrap()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(180)
    }

    fn time_limit(&self) -> Duration {
        Duration::from_secs(3)
    }

    async fn losing_answers(&self) -> Option<Arc<dyn Backend>> {
        self.cluster.connect_to(self.cluster.target(&self.losing.proxy.kubeconfig)).await.ok()
    }
}

/// `WEFTRUN_TEST_ONLY=logs,submit` runs the checks whose names hold a word.
#[tokio::test(flavor = "multi_thread")]
async fn passes_the_suite() {
    let Some(cluster) = cluster() else { return };
    let losing = Losing::start(&cluster).await;
    let only = std::env::var("WEFTRUN_TEST_ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|word| !word.is_empty()).collect();
    let report = conformance::run_some(&OnCluster { cluster, losing }, &only).await;
    eprintln!("{report}");
    report.assert();
}
