//! Slurm over slurmrestd: tests that are not in the suite.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weftrun_backends::slurm::Slurm;
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Backend, Scope, TargetConfig};
use weftrun_core::job::{Action, JobFilter, JobPhase};
use weftrun_core::log::LogOptions;
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::planned;

use crate::cluster::{TestCluster, Way};
use crate::hostile::output;

/// A proxy before slurmrestd that hands submissions on and never their answers; its address.
pub async fn losing_submissions(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            tokio::spawn(pass(caller, port));
        }
    });
    format!("http://{address}")
}

/// One connection: closed as soon as the answer to a submission begins to come.
async fn pass(mut caller: TcpStream, port: u16) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("slurmrestd is there");
    let (mut asked, mut told, mut submits) = (vec![0; 1 << 16], vec![0; 1 << 16], false);
    loop {
        tokio::select! {
            read = caller.read(&mut asked) => match read {
                Ok(count) if count > 0 => {
                    submits |= String::from_utf8_lossy(&asked[..count]).contains("/job/submit");
                    server.write_all(&asked[..count]).await.expect("it is taken");
                }
                _ => return,
            },
            read = server.read(&mut told) => match read {
                Ok(count) if count > 0 && !submits => {
                    if caller.write_all(&told[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

fn job(name: &str, script: &str) -> JobSpec {
    let role = Role::worker().command(["sh", "-c", script]);
    JobSpec::builder(name).launch(Launch::PerRank).role(role).build().expect("valid")
}

async fn kind_of(target: TargetConfig) -> ErrorKind {
    let backend = Slurm::new(&target).expect("the target is good");
    let error = backend.discover(&Scope::default()).await.expect_err("must fail");
    assert!(!error.hints().is_empty(), "{error}: no hint");
    assert!(!format!("{error:?}").contains("eyJ"), "no token is told: {error:?}");
    error.kind()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_addresses_that_are_wrong() {
    let Some(cluster) = TestCluster::find() else { return };
    let target = cluster.target(Way::Rest);
    let printed = |text: &str| serde_json::json!(["echo", text]);
    let forged = target.clone().with("token-command", printed("a.b.c")).with("rest-user", "researcher");
    assert_eq!(kind_of(forged).await, ErrorKind::Credentials);
    let other = target.clone().with("rest-user", "outsider");
    assert_eq!(kind_of(other).await, ErrorKind::Credentials);
    assert_eq!(kind_of(target.clone().with("rest", "http://127.0.0.1:1")).await, ErrorKind::Unreachable);
    let none = target.with("token-command", serde_json::json!(["false"]));
    assert_eq!(kind_of(none).await, ErrorKind::Credentials);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_clear_and_a_job_without_files_runs() {
    let Some(cluster) = TestCluster::find() else { return };
    let target = cluster.target(Way::Rest);
    for (key, said) in
        [("partition", "Invalid partition"), ("account", "Invalid account"), ("qos", "Invalid qos")]
    {
        let backend = Slurm::new(&target.clone().with(key, "nope")).expect("the target is good");
        let name = format!("rest-refused-{key}");
        let rendered = backend.render(&planned(job(&name, "true"))).expect("renders");
        let error = backend.submit(&rendered).await.expect_err("must be refused");
        assert_eq!(error.kind(), ErrorKind::Refused, "{key}: {error}");
        assert!(error.to_string().contains(said) && !error.hints().is_empty(), "{key}: {error}");
        assert_eq!(cluster.count(&name), 0, "{key}");
    }
    // Neither ssh nor a mounted folder: everything but the log.
    let mut blind = target;
    blind.settings.remove("path-map");
    let backend = Slurm::new(&blind).expect("the target is good");
    let rendered = backend.render(&planned(job("rest-blind", "exit 3"))).expect("renders");
    let handle = backend.submit(&rendered).await.expect("is taken");
    let mut phase = JobPhase::Unknown;
    for _ in 0..200 {
        let detail = backend.describe(&handle).await.expect("is there");
        phase = detail.summary.phase;
        if phase.is_terminal() {
            assert_eq!(detail.summary.exit_code, Some(3));
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    assert_eq!(phase, JobPhase::Failed);
    let mut logs = backend.logs(&handle, LogOptions::default());
    let refused = futures_util::StreamExt::next(&mut logs).await.expect("an item").expect_err("no files");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert_eq!(backend.act(&handle, Action::Requeue).await.expect_err("none").kind(), ErrorKind::Unsupported);
    assert!(backend.list(&JobFilter::all()).await.expect("a list").iter().any(|job| job.handle == handle));
    let facts = backend.discover(&Scope::default()).await.expect("facts");
    assert!(facts.queues.iter().any(|queue| queue.name == "compute-gpu" && queue.up), "{facts:?}");
    assert!(
        facts.nodes.iter().any(|group| group.instance_type.as_deref() == Some("p4de.24xlarge")),
        "{facts:?}"
    );
}

/// GPUs, exclusive nodes, components and tasks of an array: what the fields mean is what the lines mean.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_mean_what_the_lines_mean() {
    let Some(cluster) = TestCluster::find() else { return };
    let backend = cluster.connect(Way::Rest);
    let script = "echo $RANK of $WORLD_SIZE sees $(echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l)";
    let role =
        Role::worker().nodes(2).gpus_per_node(8).instance_type("p4de.24xlarge").command(["sh", "-c", script]);
    let mut spec = JobSpec::builder("rest-gpus").launch(Launch::PerRank).role(role).build().expect("valid");
    spec.backend.insert("slurm".to_owned(), serde_json::json!({ "exclusive": true }));
    let handle = backend.submit(&backend.render(&planned(spec)).expect("renders")).await.expect("is taken");
    let text = output(&*backend, &handle).await;
    let mut seen: Vec<&str> = text.lines().filter(|line| line.contains(" of ")).collect();
    seen.sort_unstable();
    let mut wanted: Vec<String> = (0..16).map(|rank| format!("{rank} of 16 sees 8")).collect();
    wanted.sort_unstable();
    assert_eq!(seen, wanted, "{text}");

    let role = |name: &str, nodes| {
        let script = format!("echo {name} $RANK of $WORLD_SIZE");
        Role::new(name).nodes(nodes).ranks_per_node(2).command(["sh", "-c", &script])
    };
    let het =
        JobSpec::builder("rest-het").launch(Launch::PerRank).role(role("actor", 2)).role(role("judge", 1));
    let rendered = backend.render(&planned(het.build().expect("valid"))).expect("renders");
    let handle = backend.submit(&rendered).await.expect("is taken");
    let text = output(&*backend, &handle).await;
    let mut seen: Vec<&str> = text.lines().filter(|line| line.contains(" of ")).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        ["actor 0 of 6", "actor 1 of 6", "actor 2 of 6", "actor 3 of 6", "judge 4 of 6", "judge 5 of 6"],
        "{text}"
    );

    let mut array = job("rest-array", "echo task $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))");
    array.backend.insert("slurm".to_owned(), serde_json::json!({ "array": "0-3%2" }));
    let handle = backend.submit(&backend.render(&planned(array)).expect("renders")).await.expect("is taken");
    let text = output(&*backend, &handle).await;
    let mut seen: Vec<&str> = text.lines().filter(|line| line.starts_with("task")).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["task 0", "task 1", "task 2", "task 3"]);
    let detail = backend.describe(&handle).await.expect("is there");
    assert_eq!(
        (detail.summary.phase, detail.replicas.len()),
        (JobPhase::Failed, 4),
        "{}",
        detail.summary.reason
    );
}
