//! Failures under a running job: daemons, nodes, links, disks. On a separate test cluster
//! (`WEFTRUN_TEST_SLURM_BARE`), since they disrupt it: without accounting, and with a slurmctld that forgets
//! ended jobs after two seconds.

use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt as _;
use weftrun_backends::slurm::Slurm;
use weftrun_core::backend::{Backend, TargetConfig};
use weftrun_core::job::{JobDetail, JobEvent, JobFilter, JobHandle, JobPhase};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_core::{ErrorKind, log::LogOptions, log::Mark};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, Way};
use crate::hostile::output;
use weftrun_testkit::child;

fn job(name: &str, nodes: u32, script: &str) -> JobSpec {
    let role = Role::worker().nodes(nodes).command(["sh", "-c", script]);
    JobSpec::builder(name).launch(Launch::PerNode).role(role).build().expect("valid")
}

async fn submitted(backend: &dyn Backend, spec: JobSpec) -> JobHandle {
    let rendered = backend.render(&planned(spec)).expect("renders");
    backend.submit(&rendered).await.expect("is taken")
}

/// Waits until the job runs on its nodes, and gives the last of them.
async fn node_of(backend: &dyn Backend, job: &JobHandle) -> String {
    for _ in 0..200 {
        let detail = backend.describe(job).await.expect("is there");
        if let Some(node) = detail.replicas.iter().rfind(|replica| replica.phase == JobPhase::Running) {
            return node.node.clone().expect("a node");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    panic!("the job never ran")
}

/// What happened to the job until its end.
async fn events(backend: &dyn Backend, job: &JobHandle) -> Vec<JobEvent> {
    let collect = backend.watch(JobFilter::one(job)).map(|event| event.expect("the watch goes on")).collect();
    tokio::time::timeout(Duration::from_secs(100), collect).await.expect("the job ends")
}

fn last(events: &[JobEvent]) -> JobPhase {
    events.iter().rev().find_map(JobEvent::phase).expect("a phase")
}

fn codes(detail: &JobDetail) -> Vec<&str> {
    detail.findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// One after the other: each breaks the cluster for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_is_told_and_nothing_is_lost() {
    let Some(cluster) = TestCluster::named("WEFTRUN_TEST_SLURM_BARE") else { return };
    slurmdbd_down(&cluster).await;
    without_munge(&cluster).await;
    slurmctld_down_and_back(&cluster).await;
    a_full_disk(&cluster).await;
    a_log_folder_that_the_node_lacks(&cluster).await;
    a_dead_slurmd(&cluster).await;
    a_cut_link(&cluster).await;
    forgotten_without_accounting(&cluster).await;
}

/// The real sacct, and a real slurmrestd, with a slurmdbd that refuses connections, and with one that accepts
/// them and does not answer.
async fn slurmdbd_down(cluster: &TestCluster) {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = silent.local_addr().expect("an address").port();
    for (case, port) in [("refuses", 1), ("is silent", port)] {
        let conf = format!(
            "t=$(mktemp); sed -e '/^AccountingStorage/d' /etc/slurm/slurm.conf > \"$t\"; chmod 644 \"$t\"\n\
             printf 'AccountingStorageType=accounting_storage/slurmdbd\\nAccountingStorageHost=127.0.0.1\\nAccountingStoragePort={port}\\n' >> \"$t\"\n"
        );
        let sacct = format!("{conf}SLURM_CONF=$t exec \"$real\" \"$@\"");
        without_slurmdbd(
            cluster,
            &cluster.wrapped(Way::Ssh, "sacct", &sacct),
            &format!("sacct, slurmdbd {case}"),
        )
        .await;
        let (target, _slurmrestd) = rest_with(cluster, &conf).await;
        without_slurmdbd(cluster, &target, &format!("slurmrestd, slurmdbd {case}")).await;
    }
}

/// Returns a target for another slurmrestd on the head node, with the configuration that a script writes to `$t`.
async fn rest_with(cluster: &TestCluster, conf: &str) -> (TargetConfig, tokio::process::Child) {
    // Below the ports that Linux gives to connections: none of the other tests can get it in between.
    let port = fastrand::u16(20_000..32_000);
    // Only `nsenter` is killed here; slurmrestd gets a signal when its parent ends.
    let script = format!(
        "{conf}SLURM_CONF=$t SLURM_JWT=daemon exec setpriv --reuid 2002 --regid 2002 --clear-groups --pdeathsig KILL \
         slurmrestd -a rest_auth/jwt 127.0.0.1:{port}"
    );
    let mut command = tokio::process::Command::from(child::command(cluster.dir.join("bin/clusterctl")));
    command.args(["head", "-u", "root", "bash", "-c", &script]).kill_on_drop(true);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slurmrestd starts");
    for _ in 0..200 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (cluster.target(Way::Rest).with("rest", format!("http://127.0.0.1:{port}")), child)
}

/// A job that slurmctld has removed is found by its own files, and the message names slurmdbd.
async fn without_slurmdbd(cluster: &TestCluster, target: &TargetConfig, case: &str) {
    let backend = Slurm::new(target).expect("the target is good");
    let handle = submitted(&backend, job("no-dbd", 1, "echo said-it; exit 3")).await;
    is_forgotten(cluster, &handle).await;
    let began = std::time::Instant::now();
    // A new client, as in another process.
    let backend = Slurm::new(target).expect("the target is good");
    let detail = backend.describe(&handle).await.expect(case);
    assert_eq!((detail.summary.phase, detail.summary.exit_code), (JobPhase::Failed, Some(3)), "{case}");
    assert_eq!(detail.summary.name, "no-dbd", "{case}");
    let note = detail.findings.iter().find(|finding| finding.code == "SLURM-NO-ACCOUNTING");
    assert!(note.is_some_and(|note| note.message.contains("slurmdbd")), "{case}: {:?}", detail.findings);
    assert!(output(&backend, &handle).await.contains("said-it"), "{case}");
    assert_eq!(last(&events(&backend, &handle).await), JobPhase::Failed, "{case}");
    let listed = backend.list(&JobFilter::all()).await.expect(case);
    let ours = listed.iter().find(|job| job.handle == handle).unwrap_or_else(|| panic!("{case}: {listed:?}"));
    assert_eq!((ours.phase, ours.exit_code, ours.name.as_str()), (JobPhase::Failed, Some(3), "no-dbd"));
    assert!(backend.take_notes().iter().any(|note| note.message.contains("slurmdbd")), "{case}");
    let unknown = backend.describe(&JobHandle::new("slurm", "cluster", ["4000000"])).await.expect_err(case);
    assert!(
        unknown.kind() == ErrorKind::Unreachable && unknown.to_string().contains("slurmdbd"),
        "{case}: it may be there: {unknown}"
    );
    assert!(began.elapsed() < Duration::from_mins(3), "{case}: {:?}", began.elapsed());
}

/// Waits until slurmctld has removed a job.
async fn is_forgotten(cluster: &TestCluster, job: &JobHandle) {
    for _ in 0..200 {
        if cluster.ctl(&format!("head squeue -h -t all -j {0},{0}", job.name())).trim().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    panic!("slurmctld still has {job}");
}

async fn without_munge(cluster: &TestCluster) {
    cluster.ctl("stop-munge");
    let backend = cluster.connect(Way::Ssh);
    let rendered = backend.render(&planned(job("munge", 1, "true"))).expect("renders");
    let refused = backend.submit(&rendered).await.expect_err("nobody can prove who he is");
    cluster.ctl("start-munge");
    assert_eq!(refused.kind(), ErrorKind::Credentials, "{refused}");
    assert!(refused.hints().iter().any(|hint| hint.contains("munged")), "{refused}: {:?}", refused.hints());
    assert_eq!(cluster.count("munge"), 0);
    // The same submission again, as a user would try it.
    let handle = backend.submit(&rendered).await.expect("is taken now");
    assert_eq!(last(&events(&*backend, &handle).await), JobPhase::Succeeded);
}

async fn slurmctld_down_and_back(cluster: &TestCluster) {
    let backend =
        Slurm::new(&cluster.target(Way::Ssh).with("command-seconds", 3)).expect("the target is good");
    let running =
        submitted(&backend, job("ctld", 2, "for i in $(seq 14); do echo tick $i; sleep 1; done")).await;
    node_of(&backend, &running).await;
    cluster.ctl("stop-ctld");
    let watching = tokio::spawn({
        let (backend, running) = (backend.clone(), running.clone());
        async move { events(&backend, &running).await }
    });
    let log = tokio::spawn({
        let (backend, running) = (backend.clone(), running.clone());
        async move { output(&backend, &running).await }
    });
    let rendered = backend.render(&planned(job("while-down", 1, "true"))).expect("renders");
    let submitting = tokio::spawn({
        let (backend, rendered) = (backend.clone(), rendered.clone());
        async move { backend.submit(&rendered).await }
    });
    tokio::time::sleep(Duration::from_secs(9)).await;
    cluster.ctl("start-ctld");
    let lines = log.await.expect("the log is read");
    assert_eq!(lines.lines().count(), 28, "{lines}");
    let seen = watching.await.expect("the watch ends");
    assert_eq!(last(&seen), JobPhase::Succeeded);
    let lost = |wanted: bool| {
        seen.iter().any(|event| matches!(event, JobEvent::Disconnected { lost, .. } if *lost == wanted))
    };
    assert!(lost(true) && lost(false), "that slurmctld was away is told: {seen:?}");
    // Whatever became of the submission meanwhile: the same one again is one job.
    if let Err(error) = submitting.await.expect("it ends") {
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout), "{error}");
    }
    let handle = backend.submit(&rendered).await.expect("slurmctld is back");
    assert_eq!(last(&events(&backend, &handle).await), JobPhase::Succeeded);
    let rest = backend.submit(&rendered).await.expect("is the same");
    assert_eq!(rest, handle);
}

async fn a_full_disk(cluster: &TestCluster) {
    let small = "$CLUSTER/shared/fsx/small";
    let backend =
        Slurm::new(&cluster.target(Way::Ssh).with("log-dir", "/fsx/small/logs")).expect("the target is good");
    let script = "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; exit 5";
    let handle = submitted(&backend, job("fills", 1, script)).await;
    let end = events(&backend, &handle).await;
    assert_eq!(last(&end), JobPhase::Failed);
    let told = end
        .iter()
        .any(|event| matches!(event, JobEvent::Message { reason, .. } if reason == "SLURM-DISK-FULL"));
    assert!(told, "{end:?}");
    // Also once slurmctld has forgotten the exit code, which the full disk did not take either.
    for forgotten in [false, true] {
        if forgotten {
            is_forgotten(cluster, &handle).await;
        }
        let batches: Vec<_> =
            backend.logs(&handle, LogOptions::default()).map(|batch| batch.expect("a batch")).collect().await;
        assert!(
            batches.iter().any(|batch| matches!(batch.mark, Some(Mark::Gap { .. }))),
            "the end is missing, and that is told; forgotten: {forgotten}"
        );
    }
    let rendered = backend.render(&planned(job("finds-it-full", 1, "true"))).expect("renders");
    let refused = backend.submit(&rendered).await.expect_err("there is no room for a log");
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("No space left on device"), "{refused}");
    assert_eq!(cluster.count("finds-it-full"), 0);
    cluster.sh(&format!("rm -rf {small}/logs"));
    let handle = backend.submit(&rendered).await.expect("there is room again");
    assert_eq!(last(&events(&backend, &handle).await), JobPhase::Succeeded);
}

async fn a_log_folder_that_the_node_lacks(cluster: &TestCluster) {
    // /tmp is each node's own.
    let backend =
        Slurm::new(&cluster.target(Way::Ssh).with("log-dir", "/tmp/only-here")).expect("the target is good");
    let handle = submitted(&backend, job("unwritable", 1, "true")).await;
    let end = events(&backend, &handle).await;
    assert_eq!(last(&end), JobPhase::Failed);
    let told = end
        .iter()
        .any(|event| matches!(event, JobEvent::Message { reason, .. } if reason == "SLURM-OUTPUT-UNUSABLE"));
    assert!(told, "{end:?}");
}

async fn a_dead_slurmd(cluster: &TestCluster) {
    // The site would queue the job again, and it would wait for the node.
    let backend = Slurm::new(&cluster.target(Way::Ssh).with("requeue", false)).expect("the target is good");
    let handle = submitted(&backend, job("slurmd", 2, "echo up; sleep 60")).await;
    let node = node_of(&backend, &handle).await;
    cluster.ctl(&format!("kill-slurmd {node}"));
    let end = events(&backend, &handle).await;
    cluster.ctl(&format!("start {node}"));
    assert_eq!(last(&end), JobPhase::Failed);
    let text = format!("{end:?}");
    assert!(text.contains("SLURM-NODE-FAILED") && text.contains(&node), "{text}");
}

async fn a_cut_link(cluster: &TestCluster) {
    // The site would queue the job again, and it would wait for the node.
    let backend = Slurm::new(&cluster.target(Way::Ssh).with("requeue", false)).expect("the target is good");
    let handle = submitted(&backend, job("link", 2, "echo up; sleep 60")).await;
    let node = node_of(&backend, &handle).await;
    cluster.ctl(&format!("cut {node}"));
    let end = events(&backend, &handle).await;
    cluster.ctl(&format!("mend {node}"));
    assert_eq!(last(&end), JobPhase::Failed);
    let detail = backend.describe(&handle).await;
    assert!(detail.is_ok_and(|detail| detail.summary.phase == JobPhase::Failed), "and stays so");
}

/// After slurmctld has forgotten the job, and without accounting, its own files contain the result.
async fn forgotten_without_accounting(cluster: &TestCluster) {
    for way in crate::cluster::WAYS {
        let backend = cluster.connect(way);
        let handle = submitted(&*backend, job("forgotten", 1, "echo said this; exit 255")).await;
        assert_eq!(last(&events(&*backend, &handle).await), JobPhase::Failed);
        for _ in 0..200 {
            if cluster.count("forgotten") == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let later = cluster.connect(way);
        let detail = later.describe(&handle).await.expect("its files are there");
        let told = (detail.summary.phase, detail.summary.exit_code, detail.summary.name.as_str());
        assert_eq!(told, (JobPhase::Failed, Some(255), "forgotten"), "{way:?}: {:?}", codes(&detail));
        // srun adds that the task failed.
        let text = output(&*later, &handle).await;
        assert_eq!(text.lines().filter(|line| *line == "said this").count(), 1, "{way:?}: {text}");
        let unknown = JobHandle::new("slurm", "cluster", ["999999"]);
        assert_eq!(later.describe(&unknown).await.expect_err("nobody knows it").kind(), ErrorKind::NotFound);
    }
}
