//! What a user does: torchrun, mpirun, keys, busy hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::json;
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Backend, Rendered, TargetConfig};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, connect};

/// A job of a shell script.
pub fn job(name: &str, launch: Launch, nodes: u32, ranks: u32, script: &str) -> JobSpec {
    let role = Role::worker().nodes(nodes).ranks_per_node(ranks).command(["sh", "-c", script]);
    JobSpec::builder(name).launch(launch).role(role).build().expect("a valid job")
}

pub fn rendered(backend: &dyn Backend, spec: JobSpec) -> Rendered {
    backend.render(&planned(spec)).expect("renders")
}

pub async fn submitted(backend: &Arc<dyn Backend>, spec: JobSpec) -> JobHandle {
    backend.submit(&rendered(backend.as_ref(), spec)).await.expect("is taken")
}

/// Waits for the end of a job; no longer than a minute.
pub async fn ended(backend: &Arc<dyn Backend>, job: &JobHandle) -> JobSummary {
    let mut events = backend.watch(JobFilter::one(job));
    let wait = async {
        let mut last = None;
        while let Some(event) = events.next().await {
            if let JobEvent::Status { job } = event.expect("an event") {
                last = Some(job);
            }
        }
        last.expect("a status")
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("ends in a minute")
}

/// Everything that was written, by the name of its source.
pub async fn logs(backend: &Arc<dyn Backend>, job: &JobHandle) -> BTreeMap<String, String> {
    let mut batches = backend.logs(job, LogOptions::follow());
    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    while let Some(batch) = batches.next().await {
        let batch = batch.expect("a batch");
        all.entry(batch.source.name.clone()).or_default().extend_from_slice(&batch.bytes);
    }
    all.into_iter().map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes).into_owned())).collect()
}

pub async fn delete(backend: &Arc<dyn Backend>, job: &JobHandle) {
    backend.act(job, Action::Delete).await.expect("is removed");
}

fn with(target: TargetConfig, key: &str, value: impl Into<serde_json::Value>) -> Arc<dyn Backend> {
    connect(&target.with(key, value))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torchrun_starts_once_on_each_host_and_meets_at_the_first() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    // A stand-in that prints what it is asked: what real torchrun does with it is PyTorch's.
    for host in ["a", "b", "c", "d"] {
        cluster.on(host, "mkdir -p ~/bin && printf '#!/bin/sh\\necho torchrun \"$@\"\\n' > ~/bin/torchrun && chmod 755 ~/bin/torchrun");
    }
    let backend = with(cluster.target(), "setup", json!(["PATH=$HOME/bin:$PATH"]));
    let role = Role::worker().nodes(4).gpus_per_node(2).command(["train.py", "--name", "a b"]);
    let spec = JobSpec::builder("torch").launch(Launch::Torchrun).role(role).build().expect("a valid job");
    let job = submitted(&backend, spec).await;
    let logs = logs(&backend, &job).await;
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded, "{logs:?}");
    for (node, host) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let line = logs.get(host).map_or("", String::as_str);
        assert!(line.starts_with("torchrun --tee=3 --nnodes=4 --nproc-per-node=2 "), "{host}: {line}");
        assert!(line.contains(&format!("--node-rank={node} --master-addr=10.78.")), "{host}: {line}");
        assert!(line.ends_with(" train.py --name a b\n"), "{host}: {line}");
    }
    delete(&backend, &job).await;
}

/// What docker does as far as a job sees it: it runs the command. Each call is recorded.
const DOCKER: &str = r#"#!/bin/sh
printf '%s\n' "$*" >> ~/docker.log
case $1 in
image) [ -e ~/image-is-here ] ;;
pull) echo "pulling $2: 100%"; : > ~/image-is-here ;;
exec) shift 2; exec "$@" ;;
run) while [ "$1" != registry/image:1 ]; do shift; done; shift; exec "$@" ;;
esac
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_gets_the_hosts_network_and_devices_and_a_missing_image_is_pulled() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    for host in ["a", "b"] {
        cluster.on(host, &format!("mkdir -p ~/bin; rm -f ~/image-is-here ~/docker.log; cat > ~/bin/docker <<'E'\n{DOCKER}E\nchmod 755 ~/bin/docker"));
    }
    let backend = with(cluster.target(), "setup", json!(["PATH=$HOME/bin:$PATH"]));
    let mut spec = job("boxes", Launch::PerRank, 2, 2, "echo in a box: rank $RANK; sleep 600");
    spec.image = Some("registry/image:1".to_owned());
    let mut planned = planned(spec);
    planned.plan.fabric = weftrun_core::fabric::Fabric::Roce;
    let job = backend.submit(&backend.render(&planned).expect("renders")).await.expect("is taken");
    let (mut batches, mut seen) = (backend.logs(&job, LogOptions::follow()), String::new());
    while let Some(batch) = batches.next().await {
        let batch = batch.expect("a batch");
        seen.push_str(&format!("{}: {}", batch.source.name, String::from_utf8_lossy(&batch.bytes)));
        if seen.matches("in a box").count() == 4 && seen.matches("100%").count() == 2 {
            break;
        }
    }
    assert!(
        seen.contains("b/prepare: pulling registry/image:1: 100%")
            && seen.contains("b/rank3: in a box: rank 3"),
        "{seen}"
    );
    let mut out = Vec::new();
    let request = weftrun_core::backend::ExecRequest::new(["sh", "-c", "echo beside $RANK"]).on_rank(3);
    let code = backend
        .exec(&job, &request, &mut |_, bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
        .await
        .expect("runs");
    assert_eq!((code, String::from_utf8_lossy(&out).as_ref()), (0, "beside 3\n"));
    delete(&backend, &job).await;
    let calls = cluster.on("b", "cat ~/docker.log");
    for part in [
        "--network host --ipc host",
        "--ulimit memlock=-1",
        "--device /dev/infiniband",
        "-e RANK",
        "exec weftrun-",
        "-rank3 sh -c echo beside",
    ] {
        assert!(calls.contains(part), "{part} in\n{calls}");
    }
}

const WHO: &str =
    "echo rank $RANK of $WORLD_SIZE on $(uname -n), local $LOCAL_RANK, mpi $OMPI_COMM_WORLD_RANK";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mpirun_reaches_the_other_hosts_with_a_key_of_the_job_that_is_gone_after_it() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = with(cluster.target(), "ssh-keys", "job");
    // A file that an editor left without a last newline: the job's key may not become part of the user's.
    let known = cluster.sh("cat $CLUSTER/ssh/id.pub");
    cluster.on("b", "k=$(cat ~/.ssh/authorized_keys); printf %s \"$k\" > ~/.ssh/authorized_keys");
    let job = submitted(&backend, job("mpi", Launch::Mpi, 4, 2, WHO)).await;
    let logs = logs(&backend, &job).await;
    let end = ended(&backend, &job).await;
    assert_eq!((end.phase, end.reason.as_str()), (JobPhase::Succeeded, ""), "{logs:?}");
    for rank in 0..8 {
        let host = ["a", "b", "c", "d"][rank / 2];
        let line = logs.get(&format!("{host}/rank{rank}")).map_or("", String::as_str);
        assert_eq!(line, format!("rank {rank} of 8 on {host}, local {}, mpi {rank}\n", rank % 2), "{logs:?}");
    }
    for host in ["b", "c", "d"] {
        // The supervisor takes its line out after it has written its last state.
        let mut keys = String::new();
        for _ in 0..100 {
            keys = cluster.on(host, "cat ~/.ssh/authorized_keys");
            if !keys.contains("weftrun-") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(keys, known, "{host}");
    }
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mpi_job_that_starts_again_still_has_its_key() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = with(cluster.target(), "ssh-keys", "job");
    let script = "[ $RANK = 0 ] || exec sleep 2; [ -e ~/again ] && rm ~/again || { : > ~/again; exit 7; }";
    let mut spec = job("mpi-again", Launch::Mpi, 2, 1, script);
    spec.restart = weftrun_core::spec::RestartPolicy::OnFailure { max: 1 };
    let job = submitted(&backend, spec).await;
    let end = ended(&backend, &job).await;
    let logs = logs(&backend, &job).await;
    assert_eq!((end.phase, end.reason.as_str()), (JobPhase::Succeeded, ""), "{logs:?}");
    assert_eq!(backend.describe(&job).await.expect("is there").replicas[0].restarts, 1);
    delete(&backend, &job).await;
    assert!(!cluster.on("b", "cat ~/.ssh/authorized_keys").contains("weftrun-"), "the key is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mpirun_without_a_way_to_the_other_hosts_fails_with_the_reason() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let spec = job("mpi-own", Launch::Mpi, 2, 1, WHO);
    let findings = backend.check(&rendered(backend.as_ref(), spec.clone())).await.expect("is checked");
    let finding = findings.iter().find(|finding| finding.code == "HOSTS-SSH-KEYS").expect("is found before");
    assert!(finding.is_error() && finding.message.contains("on a could not log in to b"), "{finding:?}");
    assert!(finding.message.contains("Permission denied"), "{finding:?}");
    let keys = with(cluster.target(), "ssh-keys", "job");
    let findings = keys.check(&rendered(keys.as_ref(), spec.clone())).await.expect("is checked");
    assert!(findings.is_empty(), "{findings:?}");
    let job = submitted(&backend, spec).await;
    let logs = logs(&backend, &job).await;
    let end = ended(&backend, &job).await;
    assert_eq!(end.phase, JobPhase::Failed, "{logs:?}");
    assert!(end.reason.starts_with("mpirun on a "), "{}", end.reason);
    assert!(logs["a/launcher"].contains("Permission denied"), "{logs:?}");
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_does_not_work_is_found_before_the_start() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    cluster.on("a", "mkdir -p ~/bin && printf '#!/bin/sh\n[ \"$1\" != info ] || { echo; echo permission denied: docker.sock >&2; exit 1; }\n' > ~/bin/docker && chmod 755 ~/bin/docker");
    let backend = with(cluster.target(), "setup", json!(["PATH=$HOME/bin:$PATH"]));
    let mut spec = job("box", Launch::PerRank, 1, 1, "exit 0");
    spec.image = Some("registry/image:1".to_owned());
    let findings = backend.check(&rendered(backend.as_ref(), spec)).await.expect("is checked");
    cluster.on("a", "rm -r ~/bin");
    let finding = findings.iter().find(|finding| finding.is_error()).expect("it does not work");
    assert_eq!(finding.code, "HOSTS-ENGINE", "{findings:?}");
    assert_eq!(finding.message, "`docker` does not work on a: permission denied: docker.sock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_of_one_machine_are_reported_and_counted_once() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let address = cluster.sh("awk '$2 == \"a\" { print $1 }' \"$CLUSTER/etc/hosts\"").trim().to_owned();
    let backend = connect(&cluster.target().with("hosts", json!(["a", address, "b"])));
    let facts = backend.discover(&weftrun_core::backend::Scope::default()).await.expect("is there");
    assert_eq!(facts.nodes.iter().map(|group| group.count).sum::<u32>(), 2, "{facts:?}");
    let same: Vec<&str> = facts.notes.iter().map(|note| note.code.as_str()).collect();
    assert_eq!(same, ["HOSTS-SAME"], "{:?}", facts.notes);
    assert!(facts.notes[0].message.starts_with(&format!("{address} and a are one machine")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mpirun_in_the_command_gets_the_variables_of_the_job_and_no_image() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = with(cluster.target(), "ssh-keys", "job");
    let line = "mpirun -H a,b sh -c 'echo $OMPI_COMM_WORLD_RANK $(uname -n) $GREETING'";
    let role = Role::worker().nodes(2).ranks_per_node(1).command(["sh", "-c", line]);
    let spec = JobSpec::builder("mpi-user").launch(Launch::Mpi).env("GREETING", "good-day").role(role);
    let mut spec = spec.build().expect("a valid job");
    let job = submitted(&backend, spec.clone()).await;
    let logs = logs(&backend, &job).await;
    assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded, "{logs:?}");
    let mut lines: Vec<&str> = logs["a/launcher"].lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 a good-day", "1 b good-day"], "{logs:?}");
    delete(&backend, &job).await;
    spec.image = Some("registry/image:1".to_owned());
    let refused = backend.render(&planned(spec)).expect_err("its ranks would not be in the image");
    assert!(refused.message().contains("calls mpirun itself"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_of_mpirun_may_use_every_core_unless_an_option_binds_it() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let cores: u32 = cluster.on("a", "nproc").trim().parse().expect("a number");
    for (options, expected) in [(json!([]), cores), (json!(["--bind-to", "core"]), 1)] {
        let target = cluster.target().with("ssh-keys", "job");
        let backend = with(target, "mpirun", options.clone());
        let job = submitted(&backend, job("mpi-cores", Launch::Mpi, 2, 1, "nproc")).await;
        let logs = logs(&backend, &job).await;
        assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded, "{logs:?}");
        assert_eq!(logs["b/rank1"], format!("{expected}\n"), "{options}: {logs:?}");
        delete(&backend, &job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_of_mpirun_that_fails_fails_the_job_and_frees_the_hosts() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = with(cluster.target(), "ssh-keys", "job");
    // Open MPI reports 255 for a rank that ends while others are being launched, so it waits until all are there.
    let started = tempfile::tempdir_in(&cluster.dir).expect("a folder that all hosts of the cluster see");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(started.path(), open).expect("ranks write there");
    let dir = started.path().display();
    let script = format!(
        "touch {dir}/$RANK; [ $RANK = 3 ] || exec sleep 600; while [ ! -e {dir}/0 -o ! -e {dir}/1 -o ! -e {dir}/2 ]; do sleep 0.1; done; sleep 1; exit 7"
    );
    let job = submitted(&backend, job("mpi-fails", Launch::Mpi, 2, 2, &script)).await;
    let end = ended(&backend, &job).await;
    let logs = logs(&backend, &job).await;
    assert_eq!((end.phase, end.exit_code), (JobPhase::Failed, Some(7)), "{}: {logs:?}", end.reason);
    for host in ["a", "b"] {
        let left = cluster.on(host, "pgrep -fx 'sleep 600'");
        assert_eq!(left, "", "{host} still runs a rank");
    }
    delete(&backend, &job).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_host_is_named_and_a_job_can_wait_for_it() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let first = submitted(&backend, job("holds", Launch::PerRank, 3, 1, "sleep 600")).await;
    let second = job("wants", Launch::PerRank, 2, 1, "exit 0");
    let refused =
        backend.submit(&rendered(backend.as_ref(), second.clone())).await.expect_err("two are not free");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let said = refused.to_string();
    assert!(said.contains("needs 2 hosts, and 1 is free") && said.contains("a runs `holds`"), "{said}");
    let findings = backend.check(&rendered(backend.as_ref(), second.clone())).await.expect("is checked");
    assert!(findings.iter().any(|finding| finding.code == "HOSTS-TOO-FEW"), "{findings:?}");

    let patient = with(cluster.target(), "wait-for-hosts", "2m");
    let findings = patient.check(&rendered(patient.as_ref(), second.clone())).await.expect("is checked");
    assert!(!findings.iter().any(weftrun_core::Finding::is_error), "{findings:?}");
    let waiting = {
        let patient = Arc::clone(&patient);
        tokio::spawn(async move { submitted(&patient, second).await })
    };
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "it waits");
    backend.act(&first, Action::Cancel).await.expect("is told");
    let job = waiting.await.expect("is submitted");
    assert_eq!(ended(&patient, &job).await.phase, JobPhase::Succeeded);
    for job in [first, job] {
        delete(&backend, &job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_submissions_at_once_never_share_a_host() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let submit = |number: u32| {
        let backend = cluster.connect();
        tokio::spawn(async move {
            let spec = job(&format!("race{number}"), Launch::PerRank, 2, 1, "sleep 600");
            (backend.submit(&rendered(backend.as_ref(), spec)).await, backend)
        })
    };
    let (mut taken, mut refused) = (Vec::new(), 0);
    for outcome in futures_util::future::join_all((0..4).map(submit)).await {
        match outcome.expect("no panic") {
            (Ok(job), _) => taken.push(job),
            (Err(error), _) => {
                assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
                refused += 1;
            }
        }
    }
    let backend = cluster.connect();
    let mut hosts = Vec::new();
    for job in &taken {
        let detail = backend.describe(job).await.expect("is there");
        hosts.extend(detail.replicas.into_iter().filter_map(|replica| replica.node));
    }
    hosts.sort();
    let mut once = hosts.clone();
    once.dedup();
    assert_eq!(hosts, once, "a host has two jobs");
    assert!(!taken.is_empty() && taken.len() <= 2 && taken.len() + refused == 4, "{taken:?}");
    for job in &taken {
        delete(&backend, job).await;
    }
}

/// Point 10 of issue 39: each host has the folder once, however many jobs run in copies of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_sent_once_to_each_host_and_jobs_run_in_copies() {
    let Some(cluster) = TestCluster::find() else { return };
    let _turn = cluster.turn().await;
    let backend = cluster.connect();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("sub")).expect("made");
    std::fs::write(folder.path().join("sub/odd\nname"), "deep\n").expect("written");
    std::os::unix::fs::symlink("sub", folder.path().join("near")).expect("linked");
    // Incompressible, so that the archive has several pieces.
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(7 << 20).collect();
    std::fs::write(folder.path().join("noise"), noise).expect("written");
    let code = weftrun_testkit::code_folder(folder.path());
    let script =
        "cat 'near/odd\nname'; wc -c < noise; echo changed > noise; [ ! -e new ] && echo fresh; echo x > new";
    let weftrun_core::spec::Code::Folder { content: Some(content), .. } = &code else { panic!("a folder") };
    let name = format!("{}.tar.gz", content.hash);
    let find = format!("cd ~ && find . -name '{name}' -printf '%f %i\\n'; find . -name '.part-*'");
    let mut stores = Vec::new();
    for name in ["folder-1", "folder-2"] {
        let mut spec = job(name, Launch::PerNode, 2, 1, script);
        spec.code = Some(code.clone());
        let job = submitted(&backend, spec.clone()).await;
        let logs = logs(&backend, &job).await;
        assert_eq!(ended(&backend, &job).await.phase, JobPhase::Succeeded, "{logs:?}");
        assert_eq!(logs.len(), 2, "{logs:?}");
        assert!(logs.values().all(|text| text == "deep\n7340032\nfresh\n"), "{logs:?}");
        stores.push(["a", "b"].map(|host| cluster.on(host, &find)));
        delete(&backend, &job).await;
        (spec.name, spec.workdir) = (format!("{name}-in"), Some("sub".to_owned()));
        spec.roles[0].command = vec!["ls".to_owned()];
        let job = submitted(&backend, spec).await;
        let logs = self::logs(&backend, &job).await;
        assert!(logs.values().all(|text| text.contains("name")), "{logs:?}");
        ended(&backend, &job).await;
        delete(&backend, &job).await;
    }
    assert_eq!(stores[0], stores[1]);
    assert!(stores[0].iter().all(|store| store.lines().count() == 1), "{stores:?}");
}
