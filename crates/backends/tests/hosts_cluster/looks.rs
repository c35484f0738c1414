//! What a watch and a reader of logs see, and what they do for the job.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use weftrun_core::job::{JobEvent, JobFilter, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{Launch, RestartPolicy};

use crate::cluster::{TestCluster, connect};
use crate::jobs::{delete, ended, job, logs, submitted};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_logs_starts_a_failed_job_again_and_reads_the_next_attempt_whole() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    cluster.on("a", "rm -f ~/second");
    cluster.on("b", "rm -f ~/second");
    let script = "seq 5; [ -e ~/second ] && exit 0; touch ~/second; exit 1";
    let mut spec = job("reads", Launch::PerRank, 2, 1, script);
    spec.restart = RestartPolicy::OnFailure { max: 1 };
    let job = submitted(&backend, spec).await;
    let read = async {
        let mut batches = backend.logs(&job, LogOptions::follow().tail(1));
        let mut text: BTreeMap<(u32, Option<u32>), Vec<u8>> = BTreeMap::new();
        while let Some(batch) = batches.next().await {
            let batch = batch.expect("a batch");
            let key = (batch.source.attempt, batch.source.rank);
            text.entry(key).or_default().extend_from_slice(&batch.bytes);
        }
        text
    };
    let text = tokio::time::timeout(Duration::from_secs(60), read).await.expect("the job ends");
    for rank in [0, 1] {
        assert_eq!(text.get(&(1, Some(rank))).map(Vec::as_slice), Some(&b"1\n2\n3\n4\n5\n"[..]), "{text:?}");
    }
    assert_eq!(backend.describe(&job).await.expect("is there").summary.phase, JobPhase::Succeeded);
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_long_logs_of_one_host_come_in_parts_and_only_those_that_are_wanted() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo rank $RANK";
    let job = submitted(&backend, job("long", Launch::PerRank, 1, 12, script)).await;
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded);
    for (options, ranks) in [
        (LogOptions::default().rank(3), 3..4),
        (LogOptions::follow().rank(3), 3..4),
        (LogOptions::follow(), 0..12),
    ] {
        let read = async {
            let mut batches = backend.logs(&job, options);
            let mut text: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
            while let Some(batch) = batches.next().await {
                let batch = batch.expect("a batch");
                if let Some(rank) = batch.source.rank {
                    text.entry(rank).or_default().extend_from_slice(&batch.bytes);
                }
            }
            text
        };
        let text = tokio::time::timeout(Duration::from_secs(60), read).await.expect("is read in a minute");
        assert_eq!(text.keys().copied().collect::<Vec<_>>(), ranks.clone().collect::<Vec<_>>());
        for rank in ranks {
            assert_eq!(text[&rank].len(), 3_000_001 + format!("rank {rank}\n").len());
            assert!(text[&rank].ends_with(format!("\nrank {rank}\n").as_bytes()));
        }
    }
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_reports_the_end_of_a_job_while_the_host_of_another_is_silent() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let on = |host: &str| connect(&cluster.target().with("nodelist", host));
    let silent = submitted(&on("b"), job("silent", Launch::PerRank, 1, 1, "sleep 600")).await;
    cluster.on("a", "rm -f ~/go");
    let script = "until [ -e ~/go ]; do sleep 0.1; done";
    let ends = submitted(&on("a"), job("ends", Launch::PerRank, 1, 1, script)).await;
    let backend = connect(&cluster.target().with("connect-seconds", 2).with("ssh-share", false));
    let watch = async {
        let (mut events, mut running) = (backend.watch(JobFilter::all()), 0);
        while let Some(event) = events.next().await {
            match event.expect("an event") {
                JobEvent::Status { job } if job.phase == JobPhase::Running => {
                    running += 1;
                    if running == 2 {
                        cluster.ctl("cut b");
                        cluster.on("a", "touch ~/go");
                    }
                }
                JobEvent::Status { job } if job.handle == ends && job.phase.is_terminal() => return true,
                JobEvent::Gone { job } if job == ends => return true,
                JobEvent::Gone { job } if job == silent => return false,
                _ => {}
            }
        }
        false
    };
    let told = tokio::time::timeout(Duration::from_secs(60), watch).await;
    cluster.ctl("mend b");
    assert_eq!(told, Ok(true), "the end was not reported, or a job that cannot be seen was");
    let backend = cluster.connect();
    assert!(logs(&backend, &ends).await.values().all(String::is_empty));
    delete(&backend, &silent).await;
    delete(&backend, &ends).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_logs_goes_on_when_the_only_host_of_a_job_answers_again() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = connect(&cluster.target().with("connect-seconds", 1).with("ssh-share", false));
    cluster.on("a", "rm -f ~/go");
    let script = "echo before; until [ -e ~/go ]; do sleep 0.1; done; echo after";
    let job = submitted(&backend, job("alone", Launch::PerRank, 1, 1, script)).await;
    let read = async {
        let (mut batches, mut text, mut cut) = (backend.logs(&job, LogOptions::follow()), Vec::new(), false);
        while let Some(batch) = batches.next().await {
            text.extend_from_slice(&batch.expect("a batch").bytes);
            if text == b"before\n" && !std::mem::replace(&mut cut, true) {
                cluster.ctl("cut a");
                // A read of the state that fails is one that the reader of logs has met too, or meets next.
                assert!(backend.describe(&job).await.is_err());
                assert!(backend.describe(&job).await.is_err());
                cluster.ctl("mend a");
                cluster.on("a", "touch ~/go");
            }
        }
        text
    };
    let text = tokio::time::timeout(Duration::from_secs(60), read).await;
    cluster.ctl("mend a");
    assert_eq!(String::from_utf8_lossy(&text.expect("ends")), "before\nafter\n");
    delete(&backend, &job).await;
}
