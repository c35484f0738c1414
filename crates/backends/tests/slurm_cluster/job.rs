//! A job of 4 nodes whose 32 ranks replay a real capture: every line arrives once, the map is right, also when the
//! connection is cut while it runs.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use weftrun_core::job::{JobEvent, JobFilter, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::nccl::TransportMap;
use weftrun_core::spec::{Code, JobSpec, Launch, Role};
use weftrun_replay::{Capture, Shape};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, WAYS, Way};
use crate::hostile::bounded;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_ranks_arrive_whole_over_a_cut_connection() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in WAYS {
        let wide = Capture::shipped("socket_2x2").expect("shipped").scale(Shape::new(4, 8)).expect("widens");
        let mut expected: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for rank in 0..wide.world() {
            wide.write_log(rank, expected.entry(rank).or_default()).expect("written");
        }
        let text = wide.script(0.3).expect("a script");
        if way == Way::Here {
            // For those who want to run it by hand: `command = ["sh", "replay.sh"]`.
            std::fs::write(cluster.dir.join("replay.sh"), &text).expect("written");
        }
        let role = Role::worker()
            .nodes(4)
            .gpus_per_node(8)
            .instance_type("p4de.24xlarge")
            .command(["sh", "replay.sh"]);
        let spec = JobSpec::builder("replay")
            .launch(Launch::PerRank)
            .role(role)
            .code(Code::Script { name: "replay.sh".into(), text });
        let backend = cluster.connect(way);
        let rendered = backend.render(&planned(spec.build().expect("valid"))).expect("renders");
        let job = backend.submit(&rendered).await.expect("is taken");
        let (mut map, mut got) = (TransportMap::new(), BTreeMap::<u32, Vec<u8>>::new());
        let (mut batches, mut cut) = (bounded(backend.logs(&job, LogOptions::follow())), false);
        while let Some(batch) = batches.next().await {
            let batch = batch.expect("a batch");
            batch.read_into(&mut map);
            if let Some(rank) = batch.source.rank {
                got.entry(rank).or_default().extend_from_slice(&batch.bytes);
            }
            if way == Way::Ssh && !cut && !batch.bytes.is_empty() {
                cut = true;
                // The shared connection and every session of the server: what a dead link looks like from both ends.
                cluster.cut_ssh();
            }
        }
        for (rank, bytes) in &expected {
            let wanted = String::from_utf8_lossy(bytes);
            let seen = String::from_utf8_lossy(got.get(rank).map_or(&[][..], Vec::as_slice)).into_owned();
            assert_eq!(seen, wanted, "{way:?}: rank {rank}");
        }
        assert_eq!(
            serde_json::to_value(map.snapshot().verdict().fabric).expect("a word"),
            wide.expected().verdict_fabric.as_str(),
            "{way:?}"
        );
        let mut events = bounded(backend.watch(JobFilter::one(&job)));
        let mut last = None;
        while let Some(event) = events.next().await {
            if let JobEvent::Status { job } = event.expect("an event") {
                last = Some(job);
            }
        }
        let last = last.expect("a status");
        assert_eq!((last.phase, last.exit_code), (JobPhase::Succeeded, Some(0)), "{way:?}");
    }
}
