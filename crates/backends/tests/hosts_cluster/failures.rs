//! Hosts that are down, connections that are cut, disks that are full, clocks that are off.

use std::time::Duration;

use futures_util::StreamExt as _;
use weftrun_core::ErrorKind;
use weftrun_core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{Launch, RestartPolicy};

use crate::cluster::{TestCluster, connect};
use crate::jobs::{delete, ended, job, logs, rendered, submitted};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_arrives_once_over_connections_that_are_cut() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let script = "i=0; while [ $i -lt 400 ]; do echo \"rank $RANK line $i\"; i=$((i + 1)); sleep 0.01; done";
    let job = submitted(&backend, job("cut", Launch::PerRank, 2, 2, script)).await;
    let mut batches = backend.logs(&job, LogOptions::follow());
    let (mut text, mut cuts) = (vec![Vec::new(); 4], 0);
    while let Some(batch) = batches.next().await {
        let batch = batch.expect("a batch");
        if let Some(rank) = batch.source.rank {
            text[rank as usize].extend_from_slice(&batch.bytes);
        }
        if cuts < 3 && !batch.bytes.is_empty() {
            cuts += 1;
            cluster.ctl("drop a");
            cluster.ctl("drop b");
        }
    }
    for (rank, text) in text.iter().enumerate() {
        let wanted: String = (0..400).map(|line| format!("rank {rank} line {line}\n")).collect();
        assert_eq!(String::from_utf8_lossy(text), wanted);
    }
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded);
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_down_is_named_and_another_one_is_taken() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    cluster.ctl("cut b");
    let backend = connect(&cluster.target().with("connect-seconds", 2).with("ssh-share", false));
    let outcome = async {
        let job = submitted(&backend, job("around", Launch::PerRank, 2, 1, "exit 0")).await;
        let end = ended(&backend, &job).await;
        let hosts = backend.describe(&job).await.map(|detail| detail.facts);
        (job, end, hosts)
    };
    let (done, end, hosts) = outcome.await;
    let all = backend.submit(&rendered(backend.as_ref(), job("all", Launch::PerRank, 4, 1, "exit 0"))).await;
    cluster.ctl("mend b");
    assert_eq!(end.phase, JobPhase::Succeeded);
    assert!(hosts.expect("is there").contains(&("hosts".to_owned(), "a c".to_owned())));
    let refused = all.expect_err("one is down");
    assert!(refused.to_string().contains("b does not answer"), "{refused}");
    delete(&cluster.connect(), &done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_crashes_leaves_a_verdict_with_its_name() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = connect(&cluster.target().with("connect-seconds", 2));
    // A rank that notices that the other one is gone, as NCCL does.
    let script = "echo up; if [ $RANK = 0 ]; then sleep 6; exit 1; fi; sleep 600";
    let job = submitted(&backend, job("crash", Launch::PerRank, 2, 1, script)).await;
    let mut events = backend.watch(JobFilter::one(&job));
    while let Some(event) = events.next().await {
        if event.expect("an event").phase() == Some(JobPhase::Running) {
            break;
        }
    }
    cluster.ctl("crash b");
    // Nothing says whether its ranks still run, so the job has not ended.
    let known = reaches(&backend, &job, |now| now.reason.contains("rank 0 on a exited with code 1")).await;
    let refused = [Action::Cancel, Action::Delete].map(|action| backend.act(&job, action));
    let refused = futures_util::future::join_all(refused).await;
    cluster.ctl("start b");
    assert_eq!(known.phase, JobPhase::Stopping);
    assert!(known.reason.contains("b does not answer: its ranks may still run"), "{}", known.reason);
    for refused in refused {
        let refused = refused.expect_err("one host does not answer").to_string();
        assert!(refused.contains("host b does not answer"), "{refused}");
    }
    assert!(!cluster.on("a", "ls ~/.weftrun/hosts/a/jobs").is_empty(), "a part of the job was removed");
    // Once it is back, the job there is seen to have been lost, and the host is free again.
    let backend = cluster.connect();
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Cancelled);
    delete(&backend, &job).await;
    let all = submitted(&backend, crate::jobs::job("again", Launch::PerRank, 4, 1, "exit 0")).await;
    assert_eq!(ended(&backend, &all).await.phase, JobPhase::Succeeded);
    delete(&backend, &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_down_delays_no_job_of_others_and_a_list_once() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let on = |hosts: &str| connect(&cluster.target().with("nodelist", hosts));
    let apart = submitted(&on("c,d"), job("apart", Launch::PerRank, 2, 1, "echo up; sleep 600")).await;
    let ended_there = submitted(&on("a"), job("done", Launch::PerRank, 1, 1, "exit 0")).await;
    assert_eq!(ended(&on("a"), &ended_there).await.phase, JobPhase::Succeeded);
    let down = submitted(&on("b"), job("down", Launch::PerRank, 1, 1, "sleep 600")).await;
    // Every host has a shared connection now; that to b is dead and does not know it.
    cluster.ctl("cut b");
    let backend = cluster.connect();
    let mut took = Vec::new();
    let mut time = |name: &str, from: tokio::time::Instant| took.push((name.to_owned(), from.elapsed()));
    let from = tokio::time::Instant::now();
    let described = backend.describe(&apart).await;
    time("describe", from);
    let from = tokio::time::Instant::now();
    let first = backend.list(&JobFilter::all()).await;
    time("list", from);
    let from = tokio::time::Instant::now();
    let second = cluster.connect().list(&JobFilter::all()).await;
    time("list again", from);
    let by_name = JobHandle::new("hosts", "rack", ["done"]);
    let named = backend.describe(&by_name).await;
    time("describe by name", from);
    let text = logs(&on("d"), &ended_there).await;
    time("logs", from);
    let from = tokio::time::Instant::now();
    let cancelled = backend.act(&apart, Action::Cancel).await;
    let over = ended(&backend, &apart).await.phase;
    time("cancel and wait", from);
    let unknown = backend.describe(&down).await;
    cluster.ctl("mend b");
    let limits = [3, 25, 3, 6, 9, 20];
    for ((name, took), limit) in took.iter().zip(limits) {
        assert!(took.as_secs() < limit, "{name} took {took:?}: {took:?}");
    }
    assert_eq!(described.expect("its hosts answer").summary.phase, JobPhase::Running);
    for listed in [first, second] {
        let names: Vec<String> =
            listed.expect("three answer").iter().map(|job| job.handle.name().to_owned()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
    assert_eq!(named.expect("its host answers").summary.phase, JobPhase::Succeeded);
    assert!(text.contains_key("a/rank0"), "{text:?}");
    cancelled.expect("its hosts answer");
    assert_eq!(over, JobPhase::Cancelled);
    assert!(unknown.expect_err("its host is down").to_string().contains("b does not answer"));
    // It is asked at once where it matters, whatever is remembered.
    for job in [apart, ended_there, down] {
        delete(&cluster.connect(), &job).await;
    }
    let all = submitted(&cluster.connect(), crate::jobs::job("back", Launch::PerRank, 4, 1, "exit 0")).await;
    assert_eq!(ended(&cluster.connect(), &all).await.phase, JobPhase::Succeeded);
    delete(&cluster.connect(), &all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_refused_before_the_job_and_named_during_it() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let small = connect(&cluster.target().with("folder", "/small/weftrun").with("nodelist", "d"));
    cluster.on("d", "head -c 2000000 /dev/zero > /small/fill");
    let refused = small.submit(&rendered(small.as_ref(), job("full", Launch::PerRank, 1, 1, "exit 0"))).await;
    cluster.on("d", "rm -f /small/fill");
    let refused = refused.expect_err("the disk is full");
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    assert_eq!(cluster.on("d", "ls -A /small/weftrun/hosts/d/jobs"), "", "nothing of it is left");

    let script = "echo begin; head -c 4000000 /dev/zero | tr '\\0' x; sleep 1; exit 3";
    let job = submitted(&small, job("fills", Launch::PerRank, 1, 1, script)).await;
    let (mut events, mut end, mut told) = (small.watch(JobFilter::one(&job)), None, Vec::new());
    while let Some(event) = events.next().await {
        match event.expect("an event") {
            JobEvent::Status { job } => end = Some(job),
            // Before the end, behind which nobody may look.
            JobEvent::Stuck { finding, .. } if end.as_ref().is_some_and(|job| !job.phase.is_terminal()) => {
                told.push(finding.code);
            }
            _ => {}
        }
    }
    let end = end.expect("a status");
    assert_eq!(told, ["HOSTS-DISK-FULL"]);
    assert_eq!((end.phase, end.exit_code), (JobPhase::Failed, Some(3)), "{}", end.reason);
    let detail = small.describe(&job).await.expect("is there");
    let codes: Vec<&str> = detail.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert!(codes.contains(&"HOSTS-DISK-FULL"), "{codes:?}");
    assert!(logs(&small, &job).await["d/rank0"].starts_with("begin\n"));
    delete(&small, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_is_killed_leaves_ranks_that_can_be_cancelled() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let job = submitted(&backend, job("orphans", Launch::PerRank, 1, 2, "echo up; sleep 600")).await;
    let mut batches = backend.logs(&job, LogOptions::follow());
    while let Some(batch) = batches.next().await {
        if batch.expect("a batch").bytes.starts_with(b"up") {
            break;
        }
    }
    cluster.on("a", "cd ~/.weftrun/hosts/a/jobs/*/ && kill -9 $(cut -d' ' -f1 go-0/supervisor)");
    let detail = backend.describe(&job).await.expect("is there");
    assert_eq!(detail.summary.phase, JobPhase::Running);
    let reason = &detail.summary.reason;
    assert!(reason.contains("processes run on without their supervisor"), "{reason}");
    backend.act(&job, Action::Cancel).await.expect("is told");
    let mut events = backend.watch(JobFilter::one(&job));
    let mut last = None;
    while let Some(event) = events.next().await {
        if let JobEvent::Status { job } = event.expect("an event") {
            last = Some(job.phase);
        }
    }
    assert_eq!(last, Some(JobPhase::Cancelled));
    assert_eq!(cluster.on("a", "pgrep -fx 'sleep 600'"), "", "a rank still runs");
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_is_cut_off_between_two_hosts_is_completed_by_the_next_look() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    // The second host is never told to start: weftrun was killed, or lost its link, between the two.
    let script = "if grep -q '^weftrun_go ' \"$program\" && [[ \" ${words[*]} \" = *' b '* ]]; then exit 255; fi\nreal < \"$program\"";
    let (_dir, target) = cluster.ssh(script);
    let cut_off = connect(&target);
    let job = submitted(&cut_off, job("halves", Launch::PerRank, 2, 1, "echo up; sleep 1")).await;
    drop(cut_off);
    let backend = cluster.connect();
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded);
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_is_cut_off_before_the_start_leaves_the_other_hosts_to_others() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let script = "if grep -q '^weftrun_go ' \"$program\"; then exit 255; fi\nreal < \"$program\"";
    let (_dir, target) = cluster.ssh(script);
    let cut_off = connect(&target);
    let lost =
        cut_off.submit(&rendered(cut_off.as_ref(), job("lost", Launch::PerRank, 2, 1, "exit 0"))).await;
    lost.expect_err("no host is told to start");
    let backend = cluster.connect();
    let job = submitted(&backend, job("next", Launch::PerRank, 2, 1, "exit 0")).await;
    let hosts = backend.describe(&job).await.expect("is there").facts;
    assert!(hosts.contains(&("hosts".to_owned(), "c d".to_owned())), "{hosts:?}");
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded);
    let all = backend
        .submit(&rendered(backend.as_ref(), crate::jobs::job("all", Launch::PerRank, 4, 1, "exit 0")))
        .await;
    let refused = all.expect_err("two hosts are taken").to_string();
    assert!(refused.contains("2 are free: a is being taken by submission "), "{refused}");
    assert!(refused.contains("free after ten minutes"), "{refused}");
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_in_setup_is_refused_on_every_shell_before_the_job() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    for host in ["a", "b", "c"] {
        let target =
            cluster.target().with("nodelist", host).with("setup", serde_json::json!(["echo \"unbalanced"]));
        let backend = connect(&target);
        let refused = backend
            .submit(&rendered(backend.as_ref(), job("setup", Launch::PerRank, 1, 1, "exit 0")))
            .await
            .expect_err("is no shell");
        assert_eq!(refused.kind(), ErrorKind::InvalidSpec, "{refused}");
        assert!(
            refused.to_string().to_lowercase().contains("unterminated")
                || refused.to_string().contains("unexpected"),
            "{refused}"
        );
        assert_eq!(cluster.on(host, "ls -A ~/.weftrun/hosts/*/jobs"), "", "nothing of it is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_clock_of_a_host_is_compared_with_another() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    // Files of a job that look decades old, as they do where a clock was off.
    let backend = cluster.connect();
    let job = submitted(&backend, job("clocks", Launch::PerRank, 2, 1, "echo up; sleep 2")).await;
    cluster.on("b", "find ~/.weftrun -exec touch -h -d 1990-01-01 {} +");
    cluster.on("a", "find ~/.weftrun -exec touch -h -d 2099-01-01 {} +");
    let end = ended(&backend, &job).await;
    assert_eq!(end.phase, JobPhase::Succeeded);
    let took = end.ended.expect("an end").duration_since(end.created.expect("a start")).as_secs();
    assert!((1..60).contains(&took), "{took} s");
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_cannot_be_reached_is_an_error_that_says_so() {
    let Some(cluster) = TestCluster::find() else { return };
    let target = cluster.target().with("hosts", serde_json::json!(["nowhere.invalid"]));
    let backend = connect(&target);
    for error in [
        backend.list(&JobFilter::all()).await.expect_err("list"),
        backend
            .submit(&rendered(backend.as_ref(), job("x", Launch::PerRank, 1, 1, "exit 0")))
            .await
            .expect_err("submit"),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Refused), "{error}");
        assert!(error.to_string().contains("nowhere.invalid"), "{error}");
    }
}

/// Waits until a job is as wanted, by looks that do nothing for it.
async fn reaches(
    backend: &std::sync::Arc<dyn weftrun_core::backend::Backend>,
    job: &JobHandle,
    wanted: impl Fn(&JobSummary) -> bool,
) -> JobSummary {
    for _ in 0..300 {
        match backend.describe(job).await.map(|detail| detail.summary) {
            Ok(now) if wanted(&now) => return now,
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    panic!("{:?}", backend.describe(job).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_would_start_again_is_cancelled_and_deleted_for_good() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    for action in [Action::Cancel, Action::Delete] {
        cluster.on("a", "rm -f ~/starts");
        let mut spec = job("again", Launch::PerRank, 2, 1, "echo start >> ~/starts; exit 1");
        spec.restart = RestartPolicy::OnFailure { max: 3 };
        let job = submitted(&backend, spec).await;
        reaches(&backend, &job, |now| now.phase == JobPhase::Restarting).await;
        backend.act(&job, action).await.expect("ends it");
        if action == Action::Cancel {
            assert_eq!(ended(&backend, &job).await.phase, JobPhase::Cancelled);
            // An order to start it that was on its way.
            cluster.on(
                "a",
                "weftrun_root=~/.weftrun/hosts/a; cd $weftrun_root/jobs/*/\n\
                 sed '/^# The supervisor of one attempt/,$d' supervise > ~/library; . ~/library; weftrun_go \"${PWD##*/}\" 1; :",
            );
            assert_eq!(ended(&backend, &job).await.phase, JobPhase::Cancelled);
            delete(&backend, &job).await;
        }
        assert_eq!(cluster.on("a", "cat ~/starts"), "start\n");
        assert_eq!(cluster.on("a", "ls ~/.weftrun/hosts/a/jobs"), "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ended_stays_ended_while_one_of_its_hosts_is_down() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = connect(&cluster.target().with("connect-seconds", 2));
    let job = submitted(&backend, job("over", Launch::PerRank, 2, 1, "exit 0")).await;
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded);
    cluster.ctl("crash b");
    let down = backend.describe(&job).await.map(|detail| detail.summary.phase);
    let wait = ended(&backend, &job).await.phase;
    let deleted = backend.act(&job, Action::Delete).await;
    cluster.ctl("start b");
    assert_eq!((down.expect("is there"), wait), (JobPhase::Succeeded, JobPhase::Succeeded));
    assert!(deleted.expect_err("b has its part").to_string().contains("nothing was removed"));
    delete(&cluster.connect(), &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_job_is_kept_by_whatever_sees_it() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    for look in ["describe", "list"] {
        let job = submitted(&backend, job(look, Launch::PerRank, 2, 1, "exit $RANK")).await;
        let said = async {
            loop {
                match look {
                    "describe" => drop(backend.describe(&job).await.expect("is there")),
                    _ => drop(backend.list(&JobFilter::all()).await.expect("is listed")),
                }
                let kept = ["a", "b"]
                    .map(|host| cluster.on(host, "cat ~/.weftrun/hosts/*/jobs/*/verdict 2> /dev/null"));
                if kept.iter().all(|kept| !kept.is_empty()) {
                    return kept;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let kept = tokio::time::timeout(Duration::from_secs(60), said).await.expect("is kept");
        let wanted = "failed 1 rank 1 on b exited with code 1\n";
        assert_eq!(kept, [wanted, wanted], "{look}");
        delete(&backend, &job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_stops_half_way_says_what_is_left_and_is_gone_on_with() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let job = submitted(&backend, job("half", Launch::PerRank, 2, 1, "exit 0")).await;
    let script = "if grep -q '^weftrun_remove ' \"$program\" && [[ \" ${words[*]} \" = *' a '* ]]; then exit 255; fi\nreal < \"$program\"";
    let (_dir, target) = cluster.ssh(script);
    let cut_off = connect(&target);
    reaches(&backend, &job, |now| now.phase.is_terminal()).await;
    let stopped = cut_off.act(&job, Action::Delete).await.expect_err("a is not told").to_string();
    assert!(stopped.contains("was not removed from a; "), "{stopped}");
    assert_eq!(cluster.on("b", "ls ~/.weftrun/hosts/b/jobs"), "");
    let left = backend.describe(&job).await.expect("its first host has it").summary;
    assert_eq!((left.phase, left.exit_code), (JobPhase::Succeeded, Some(0)), "{}", left.reason);
    delete(&backend, &job).await;
    assert_eq!(cluster.on("a", "ls ~/.weftrun/hosts/a/jobs"), "");
    assert_eq!(backend.describe(&job).await.expect_err("is gone").kind(), ErrorKind::NotFound);
}
