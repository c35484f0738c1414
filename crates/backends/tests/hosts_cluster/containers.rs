//! Jobs in containers of real engines: podman without root, and a docker daemon of each host.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::json;
use weftrun_core::backend::{Backend, ExecRequest};
use weftrun_core::fabric::Fabric;
use weftrun_core::job::{Action, JobHandle, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{JobSpec, Launch};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, connect};
use crate::jobs::{delete, ended, job, logs};

/// An engine on two hosts, with the image that `engine.sh` makes and a device; none where this machine lets no such engine run, which is
/// said where `cargo test` shows it.
fn prepared(cluster: &TestCluster, engine: &str) -> Option<Arc<dyn Backend>> {
    let hosts = ["a", "b"];
    for host in hosts {
        let user = if engine == "docker" { "in" } else { "as" };
        let said = cluster.ctl(&format!("{user} {host} sh \"$CLUSTER/lib/engine.sh\" {engine}"));
        if !cluster
            .ctl(&format!("as {host} sh -c '{engine} info > /dev/null 2>&1 && echo runs'"))
            .contains("runs")
        {
            weftrun_testkit::skipped(format_args!("{engine} does not run here: {said}"));
            return None;
        }
        let there =
            cluster.ctl(&format!("as {host} {engine} image inspect -f '{{{{.Id}}}}' localhost/box:1"));
        assert!(there.trim().len() >= 64, "{engine} on {host}: {said}{there}");
        cluster.ctl(&format!("in {host} sh -c 'mkdir -p /dev/infiniband; [ -e /dev/infiniband/uverbs0 ] || mknod -m 666 /dev/infiniband/uverbs0 c 1 3'"));
    }
    let mut target = cluster.target().with("container", engine).with("nodelist", json!(hosts));
    // A machine that may not raise limits cannot give a container more than it has itself.
    let limit = cluster.ctl("in a sh -c 'ulimit -H -l'");
    if let (Ok(kib), "docker") = (limit.trim().parse::<u64>(), engine) {
        target = target.with("container-args", json!(["--ulimit", format!("memlock={}", kib * 1024)]));
    }
    Some(connect(&target))
}

async fn submitted(backend: &Arc<dyn Backend>, mut spec: JobSpec) -> JobHandle {
    spec.image = Some("localhost/box:1".to_owned());
    let mut planned = planned(spec);
    planned.plan.fabric = Fabric::Roce;
    let rendered = backend.render(&planned).expect("renders");
    let findings = backend.check(&rendered).await.expect("is checked");
    assert!(!findings.iter().any(weftrun_core::Finding::is_error), "{findings:?}");
    backend.submit(&rendered).await.expect("is taken")
}

/// Follows a job until every of four ranks wrote a word.
async fn all_wrote(backend: &Arc<dyn Backend>, job: &JobHandle, word: &str) -> String {
    let (mut batches, mut seen) = (backend.logs(job, LogOptions::follow()), String::new());
    while let Some(batch) = batches.next().await {
        seen.push_str(&String::from_utf8_lossy(&batch.expect("a batch").bytes));
        if seen.matches(word).count() == 4 {
            return seen;
        }
    }
    panic!("the job ended: {seen}");
}

fn containers(cluster: &TestCluster, engine: &str, host: &str, filter: &str) -> usize {
    let said = cluster.ctl(&format!("as {host} {engine} ps -q {filter}"));
    said.lines().filter(|line| !line.contains(' ')).count()
}

/// What a user sees of a job in containers, from its start to its end.
async fn lives_and_ends(engine: &str) {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let Some(backend) = prepared(&cluster, engine) else { return };
    let script = "echo limit $(ulimit -H -l) >&2; for d in /dev/infiniband/*; do echo device $d; done; : > /dev/infiniband/uverbs0 && echo opened\n\
        echo rank $RANK of $WORLD_SIZE; trap 'echo told to end; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    let job1 = submitted(&backend, job("box", Launch::PerRank, 2, 2, script)).await;
    all_wrote(&backend, &job1, "up\n").await;
    let mut out = Vec::new();
    let request = ExecRequest::new(["sh", "-c", "echo $RANK; ls /home 2>&1"]).on_rank(3);
    let code = backend
        .exec(&job1, &request, &mut |_, bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
        .await
        .expect("runs");
    let out = String::from_utf8_lossy(&out).into_owned();
    assert!(code != 0 && out.starts_with("3\n") && out.contains("No such file"), "{code}: {out}");
    assert_eq!([containers(&cluster, engine, "a", ""), containers(&cluster, engine, "b", "")], [2, 2]);
    backend.act(&job1, Action::Cancel).await.expect("is told");
    assert_eq!(ended(&backend, &job1).await.phase, JobPhase::Cancelled);
    assert_eq!([containers(&cluster, engine, "a", "-a"), containers(&cluster, engine, "b", "-a")], [0, 0]);
    let logs = logs(&backend, &job1).await;
    let limit = cluster.on("a", "ulimit -H -l");
    for (at, host) in ["a", "b"].into_iter().enumerate() {
        for rank in [2 * at, 2 * at + 1] {
            let text = logs.get(&format!("{host}/rank{rank}")).map_or("", String::as_str);
            for line in [
                format!("limit {}", limit.trim()),
                "device /dev/infiniband/uverbs0".to_owned(),
                "opened".to_owned(),
                format!("rank {rank} of 4"),
                "told to end".to_owned(),
            ] {
                assert!(text.lines().any(|said| said == line), "no `{line}` in {logs:?}");
            }
        }
    }
    delete(&backend, &job1).await;

    // One that does not end when it is told to, and is suspended before.
    let script = "trap '' TERM; echo up; while :; do sleep 0.1; echo tick; done";
    let deaf = submitted(&backend, job("deaf", Launch::PerRank, 2, 2, script)).await;
    all_wrote(&backend, &deaf, "up\n").await;
    backend.act(&deaf, Action::Suspend).await.expect("is told");
    let written = "cat ~/.weftrun/hosts/a/jobs/*/logs/0/rank0.log | wc -c";
    let (before, mut after) = (cluster.on("a", written), String::new());
    for _ in 0..10 {
        after = cluster.on("a", written);
    }
    assert_eq!(before, after, "it goes on while it is suspended");
    backend.act(&deaf, Action::Resume).await.expect("is told");
    for _ in 0..100 {
        after = cluster.on("a", written);
        if after != before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_ne!(before, after, "it does not go on");
    backend.act(&deaf, Action::Suspend).await.expect("is told");
    backend.act(&deaf, Action::Cancel).await.expect("is told");
    assert_eq!(ended(&backend, &deaf).await.phase, JobPhase::Cancelled);
    assert_eq!([containers(&cluster, engine, "a", "-a"), containers(&cluster, engine, "b", "-a")], [0, 0]);
    delete(&backend, &deaf).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_lives_and_ends_in_containers_of_podman_without_root() {
    lives_and_ends("podman").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_lives_and_ends_in_containers_of_docker() {
    lives_and_ends("docker").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_whose_client_and_supervisor_were_killed_are_ended_by_cancel() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let Some(backend) = prepared(&cluster, "docker") else { return };
    let lost =
        submitted(&backend, job("lost", Launch::PerRank, 2, 2, "echo up; while :; do sleep 0.1; done")).await;
    all_wrote(&backend, &lost, "up\n").await;
    for host in ["a", "b"] {
        cluster.on(
            host,
            "cd ~/.weftrun/hosts/*/jobs/*/ && kill -9 $(cut -d' ' -f1 go-0/supervisor) $(pgrep -x docker)",
        );
        assert_eq!(containers(&cluster, "docker", host, ""), 2, "they run on");
    }
    backend.act(&lost, Action::Delete).await.expect("ends it");
    assert_eq!(
        [containers(&cluster, "docker", "a", "-a"), containers(&cluster, "docker", "b", "-a")],
        [0, 0]
    );
}
