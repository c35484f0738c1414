//! `bandwidth = true`: the library comes with the job, is loaded by its ranks, read while it runs, and goes with it.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::fabric::FabricPlan;
use weftrun_core::log::LogOptions;
use weftrun_core::nccl::TransportMap;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::{child, planned};

use crate::cluster::TestCluster;
use crate::jobs::delete;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_job_shows_which_rank_comes_last() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    // A program that calls the library as NCCL does, where every host sees it.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/tests/nccl_stub.c");
    let stub = cluster.dir.join("nccl_stub");
    let built = child::command("gcc").args(["-O1", "-o"]).args([&stub, &source]).output().expect("gcc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let role = Role::worker()
        .nodes(2)
        .gpus_per_node(1)
        .command([stub.display().to_string(), "120".to_owned()])
        .env("WEFTRUN_NCCL_MS", "200");
    let mut spec = JobSpec::builder("bw").launch(Launch::PerRank).role(role).build().expect("a valid job");
    spec.fabric.bandwidth = true;
    let mut planned = planned(spec);
    let facts = weftrun_core::backend::ClusterFacts::default();
    planned.plan = FabricPlan::new(&planned.spec, &Catalogue::builtin(), &facts, &planned.profile);
    let backend = cluster.connect();
    let rendered = backend.render(&planned).expect("renders");
    let job = backend.submit(&rendered).await.expect("is taken");
    let (mut batches, mut map) = (backend.logs(&job, LogOptions::follow()), TransportMap::new());
    let read = async {
        while let Some(batch) = batches.next().await {
            batch.expect("a batch").read_into(&mut map);
            let sentence = map.snapshot().speeds().map(|speeds| speeds.sentence).unwrap_or_default();
            if sentence.starts_with("rank 1 on ") {
                return sentence;
            }
        }
        "the log ended".to_owned()
    };
    let sentence = tokio::time::timeout(Duration::from_secs(90), read).await.expect("rank 1 is named");
    assert!(sentence.contains("reaches AllReduce last: the others waited "), "{sentence}");
    let brought = |host: &str| cluster.on(host, "find ~ -name libweftrun-nccl.so");
    assert!(brought("a").contains("nccl") && brought("b").contains("nccl"), "{}", brought("a"));
    delete(&backend, &job).await;
    assert_eq!((&*brought("a"), &*brought("b")), ("", ""), "it goes with the job");
}
