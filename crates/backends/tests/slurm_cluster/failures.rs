//! What goes wrong on clusters: one clear error each, nothing submitted twice, nothing lost.

use std::time::Duration;

use futures_util::StreamExt as _;
use weftrun_backends::slurm::Slurm;
use weftrun_core::backend::{Backend, ExecRequest, TargetConfig};
use weftrun_core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{JobSpec, Launch, RestartPolicy, Role};
use weftrun_core::{Error, ErrorKind};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, WAYS, Way};
use crate::hostile::{bounded, output};

fn job(name: &str, script: &str) -> JobSpec {
    let role = Role::worker().command(["sh", "-c", script]);
    JobSpec::builder(name).launch(Launch::PerRank).role(role).build().expect("valid")
}

async fn refused(target: &TargetConfig, spec: JobSpec) -> Error {
    let backend = Slurm::new(target).expect("the target is good");
    let rendered = backend.render(&planned(spec)).expect("renders");
    backend.submit(&rendered).await.expect_err("must be refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_clear_and_leave_nothing() {
    let Some(cluster) = TestCluster::find() else { return };
    let cases = [
        ("partition", "nope", ErrorKind::Refused, "Invalid partition"),
        ("account", "nope", ErrorKind::Refused, "Invalid account"),
        ("qos", "nope", ErrorKind::Refused, "Invalid qos"),
        ("reservation", "nope", ErrorKind::Refused, "reservation is invalid"),
        ("constraint", "nosuchfeature", ErrorKind::Refused, "Invalid feature"),
    ];
    for way in WAYS {
        for (key, value, kind, said) in cases {
            let name = format!("refused-{key}");
            let error = refused(&cluster.target(way).with(key, value), job(&name, "true")).await;
            assert_eq!(error.kind(), kind, "{way:?} {key}: {error}");
            assert!(error.to_string().contains(said), "{way:?} {key}: {error}");
            assert!(!error.hints().is_empty(), "{way:?} {key}: no hint");
            assert_eq!(cluster.count(&name), 0, "{way:?} {key}");
        }
        let error = refused(&cluster.target(way), job("forbidden-by-plugin", "true")).await;
        assert!(error.to_string().contains("site policy"), "{way:?}: {error}");
        let unwritable = cluster.target(way).with("log-dir", "/proc/nowhere/logs");
        let error = refused(&unwritable, job("unwritable", "true")).await;
        assert!(
            error.kind() == ErrorKind::Refused && error.to_string().contains("folder for logs"),
            "{way:?}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_and_login_scripts_that_print_do_no_harm() {
    let Some(cluster) = TestCluster::find() else { return };
    let bashrc = cluster.dir.join("home/researcher/.bashrc");
    std::fs::write(&bashrc, "echo '*** Welcome ***'; echo 12345; echo 'noise on stderr' >&2\n")
        .expect("written");
    for way in WAYS {
        let backend = cluster.connect(way);
        let rendered = backend.render(&planned(job("chatty", "echo said-it"))).expect("renders");
        let job = backend.submit(&rendered).await.expect("is taken");
        assert_eq!(output(&*backend, &job).await, "said-it\n", "{way:?}");
    }
    std::fs::write(&bashrc, "").expect("written");
}

/// Fakes torchrun's handling of signals and failures: it starts the ranks of its node, does not handle USR1,
/// and ends its ranks and fails when one of them fails. The test cluster has no torch, and its scripts are in
/// Perl, which every Debian has.
const TORCHRUN: &str = r#"#!/usr/bin/perl
my ($each, $node);
for (@ARGV) { $each = $1 if /^--nproc-per-node=(\d+)/; $node = $1 if /^--node-rank=(\d+)/ }
my @script = grep { !/^--/ } @ARGV;
my %ranks;
for my $local (0 .. $each - 1) {
    my $pid = fork();
    if (!$pid) { $ENV{RANK} = $node * $each + $local; exec "/usr/bin/perl", @script }
    $ranks{$pid} = 1;
}
while (%ranks) {
    my $pid = wait();
    delete $ranks{$pid};
    if ($?) { kill "TERM", keys %ranks; exit 1 }
}
"#;

/// A job of torchrun with two ranks on each of two nodes.
fn torchrun(cluster: &TestCluster, name: &str, script: &str) -> JobSpec {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = cluster.dir.join("shared/fsx").join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("torchrun"), TORCHRUN).expect("written");
    std::fs::write(folder.join("rank.py"), script).expect("written");
    for (path, mode) in [("torchrun", 0o755), ("", 0o777)] {
        std::fs::set_permissions(folder.join(path), std::fs::Permissions::from_mode(mode)).expect("set");
    }
    let role = Role::worker().nodes(2).ranks_per_node(2).command([format!("/fsx/{name}/rank.py")]);
    let mut spec = JobSpec::builder(name).launch(Launch::Torchrun).role(role).build().expect("valid");
    let own = serde_json::json!({ "setup": [format!("PATH=/fsx/{name}:$PATH")] });
    spec.backend.insert("slurm".to_owned(), own);
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_reaches_the_ranks_of_torchrun_and_torchrun_goes_on() {
    let Some(cluster) = TestCluster::find() else { return };
    let script = "$| = 1; $SIG{USR1} = sub { print \"saved $ENV{RANK}\\n\"; exit 0 }; print \"up\\n\"; sleep 1 while 1;";
    let backend = cluster.connect(Way::Ssh);
    let rendered = backend.render(&planned(torchrun(&cluster, "torch-signal", script))).expect("renders");
    let job = backend.submit(&rendered).await.expect("is taken");
    let mut logs = bounded(backend.logs(&job, LogOptions::follow()));
    let (mut text, mut sent) = (String::new(), false);
    while let Some(batch) = logs.next().await {
        text.push_str(&String::from_utf8_lossy(&batch.expect("a batch").bytes));
        if !sent && text.matches("up").count() == 4 {
            sent = true;
            backend.act(&job, Action::Signal(10)).await.expect("signalled");
        }
    }
    for rank in 0..4 {
        assert!(text.contains(&format!("saved {rank}")), "{text}");
    }
    let end = backend.describe(&job).await.expect("known").summary;
    assert_eq!((end.phase, end.exit_code), (JobPhase::Succeeded, Some(0)), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_rank_of_torchrun_starts_those_of_all_nodes_again() {
    let Some(cluster) = TestCluster::find() else { return };
    // Rank 3 fails once, on the second node; the others wait for it as in a collective, longer than the test does.
    let script = "$| = 1; my $failed = '/fsx/torch-restart/failed';\n\
        if (-e $failed) { print \"again $ENV{RANK}\\n\"; sleep 2; exit 0 }\n\
        if ($ENV{RANK} == 3) { sleep 2; open(F, '>', $failed); exit 5 }\nsleep 3600;";
    let mut spec = torchrun(&cluster, "torch-restart", script);
    let _ = std::fs::remove_file(cluster.dir.join("shared/fsx/torch-restart/failed"));
    spec.restart = RestartPolicy::OnFailure { max: 2 };
    let backend = cluster.connect(Way::Ssh);
    let job = backend.submit(&backend.render(&planned(spec)).expect("renders")).await.expect("is taken");
    let text = output(&*backend, &job).await;
    for rank in 0..4 {
        assert_eq!(text.matches(&format!("again {rank}")).count(), 1, "{text}");
    }
    let end = backend.describe(&job).await.expect("known").summary;
    assert_eq!((end.phase, end.exit_code), (JobPhase::Succeeded, Some(0)), "{text}");
}

/// A step whose caller is gone holds nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_ends_with_its_caller() {
    let Some(cluster) = TestCluster::find() else { return };
    // Over ssh: the local commands of the test cluster are wrappers that do not forward signals.
    for way in [Way::Ssh] {
        let backend = cluster.connect(way);
        let rendered = backend.render(&planned(job("exec-caller", "echo up; sleep 600"))).expect("renders");
        let job = backend.submit(&rendered).await.expect("is taken");
        until_running(&*backend, &job).await;
        let steps = || cluster.ctl(&format!("head squeue -h -s -j {} -o %j", job.name()));
        let request = ExecRequest::new(["sleep", "1234"]);
        let mut sink = |_, _: &[u8]| Ok(());
        let mut running = Box::pin(backend.exec(&job, &request, &mut sink));
        for _ in 0..120 {
            if steps().lines().any(|name| name == "sleep") {
                break;
            }
            let ended = tokio::time::timeout(Duration::from_millis(500), &mut running).await;
            assert!(ended.is_err(), "{way:?}: {ended:?}");
        }
        assert!(steps().lines().any(|name| name == "sleep"), "{way:?}: the step never started: {}", steps());
        drop(running);
        let mut left = steps();
        for _ in 0..120 {
            if !left.lines().any(|name| name == "sleep") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            left = steps();
        }
        assert!(!left.lines().any(|name| name == "sleep"), "{way:?}: {left}");
        backend.act(&job, Action::Cancel).await.expect("cancelled");
    }
}

async fn until_running(backend: &dyn Backend, job: &JobHandle) {
    for _ in 0..240 {
        if backend.describe(job).await.expect("known").summary.phase == JobPhase::Running {
            return;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("{job} does not run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_not_there() {
    let Some(cluster) = TestCluster::find() else { return };
    let config = cluster.dir.join("ssh/closed");
    let port = cluster.sh("awk '$1==\"Port\"{print $2}' $CLUSTER/ssh/config");
    std::fs::write(&config, format!("Host closed\n  HostName 127.0.0.1\n  Port 1\nHost stranger\n  HostName 127.0.0.1\n  Port {}\n  User researcher\n  IdentitiesOnly yes\n  IdentityFile /nonexistent\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n", port.trim())).expect("written");
    let at = |host: &str| {
        TargetConfig::new("cluster", "slurm", cluster.dir.join("state"))
            .with("ssh", host)
            .with("ssh-config", config.display().to_string())
            .with("command-seconds", 30)
            .with("ssh-share", false)
    };
    for (host, kind) in [
        ("closed", ErrorKind::Unreachable),
        ("no.such.host.invalid", ErrorKind::Unreachable),
        ("stranger", ErrorKind::Credentials),
    ] {
        let backend = Slurm::new(&at(host)).expect("the target is good");
        let error =
            backend.discover(&weftrun_core::backend::Scope::default()).await.expect_err("is not there");
        assert_eq!(error.kind(), kind, "{host}: {error}");
        assert!(!error.hints().is_empty(), "{host}: no hint");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_make_no_second_job() {
    let Some(cluster) = TestCluster::find() else { return };
    let cases = [
        ("silent", "\"$real\" \"$@\" > /dev/null; exit 1"),
        (
            "garbled",
            "\"$real\" \"$@\" > /dev/null; echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1",
        ),
        ("killed", "\"$real\" \"$@\"; kill -9 $PPID"),
        ("hangs", "\"$real\" \"$@\"; sleep 30"),
    ];
    for way in WAYS {
        for (case, script) in cases {
            let name = format!("lost-{case}-{:06x}", fastrand::u32(..0x00ff_ffff));
            let backend =
                Slurm::new(&cluster.wrapped(way, "sbatch", script).with("command-seconds", 4)).expect("good");
            let rendered = backend.render(&planned(job(&name, "sleep 30"))).expect("renders");
            let found =
                backend.submit(&rendered).await.unwrap_or_else(|error| panic!("{way:?} {case}: {error}"));
            assert_eq!(cluster.count(&name), 1, "{way:?} {case}");
            let again = cluster.connect(way).submit(&rendered).await.expect("the same job");
            assert_eq!((again, cluster.count(&name)), (found.clone(), 1), "{way:?} {case}");
            cluster.connect(way).act(&found, Action::Cancel).await.expect("is cancelled");
        }
    }
}

/// These disrupt the cluster, so they run in one test, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_and_nodes_that_die() {
    let Some(cluster) = TestCluster::find() else { return };
    a_node_that_is_powered_off(&cluster).await;
    a_controller_that_is_away(&cluster).await;
}

async fn a_node_that_is_powered_off(cluster: &TestCluster) {
    // A partition of its own: the other tests run beside this one.
    let backend =
        Slurm::new(&cluster.target(Way::Ssh).with("partition", "compute-p5")).expect("the target is good");
    let role =
        Role::worker().nodes(2).instance_type("p5.48xlarge").command(["sh", "-c", "echo up; sleep 300"]);
    let spec = JobSpec::builder("poweroff")
        .launch(Launch::PerRank)
        .role(role)
        .restart(RestartPolicy::OnFailure { max: 1 })
        .build()
        .expect("valid");
    let handle = backend.submit(&backend.render(&planned(spec)).expect("renders")).await.expect("is taken");
    let mut events = backend.watch(JobFilter::one(&handle));
    let mut node = None;
    let told = tokio::time::timeout(Duration::from_secs(90), async {
        while let Some(event) = events.next().await {
            match event.expect("an event") {
                JobEvent::Replica { replica, .. }
                    if node.is_none() && replica.phase == JobPhase::Running && replica.index == 1 =>
                {
                    node.clone_from(&replica.node);
                    // While a step is being launched its failure is srun's, and not the node's.
                    let log = "head bash -c 'cat ~/weftrun/poweroff-*.log'";
                    while cluster.ctl(log).matches(": up").count() < 2 {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    cluster.ctl(&format!("crash {}", replica.node.unwrap_or_default()));
                }
                JobEvent::Attempt { attempt, reason, .. } => return Some((attempt, reason)),
                _ => {}
            }
        }
        None
    });
    let (attempt, reason) = told.await.expect("in time").expect("the requeue is told");
    let node = node.expect("it ran");
    assert_eq!(attempt, 1);
    assert!(reason.contains(&node) && reason.contains("queued again"), "{reason}");
    backend.act(&handle, Action::Cancel).await.expect("is cancelled");
    cluster.ctl(&format!("start {node}"));
}

async fn a_controller_that_is_away(cluster: &TestCluster) {
    let backend = cluster.connect(Way::Ssh);
    let rendered = backend
        .render(&planned(job("away", "for i in 1 2 3 4 5 6; do echo tick $i; sleep 1; done")))
        .expect("renders");
    let handle = backend.submit(&rendered).await.expect("is taken");
    let mut events = bounded(backend.watch(JobFilter::one(&handle)));
    let log = tokio::spawn({
        let (backend, handle) = (cluster.connect(Way::Ssh), handle.clone());
        async move { output(&*backend, &handle).await }
    });
    cluster.ctl("head -u root pkill -STOP -x slurmctld");
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.ctl("head -u root pkill -CONT -x slurmctld");
    let mut last = None;
    while let Some(event) = events.next().await {
        last = event.expect("a watch survives a controller that is away").phase().or(last);
    }
    assert_eq!(last, Some(JobPhase::Succeeded));
    assert_eq!(log.await.expect("the log is read").lines().count(), 6);
}
