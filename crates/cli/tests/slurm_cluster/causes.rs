//! `why` of jobs that Slurm, and not their program, ended or kept from starting.

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

/// Submits a job, waits for its end, and returns the answer of `why`.
fn why(user: &User<'_>, handle: &str) -> Value {
    let output = user.weftrun(&["why", handle, "-o", "json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

fn submit(user: &User<'_>, job: &str, further: &[&str]) -> String {
    user.file("job.toml", job);
    let mut words = vec!["submit", "job.toml"];
    words.extend(further);
    let output = user.weftrun(&words);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn what_ends_a_job_before_its_program_does_is_named() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let cases = [
        ("clone", "command = [\"true\"]\ncode = { git = \"file:///nowhere/code.git\" }", "not-started"),
        ("image", "image = \"docker.io/does-not-exist:1\"\ncommand = [\"true\"]", "not-started"),
        ("full", "command = [\"sh\", \"-c\", \"echo hi; cat /dev/zero > /dev/full\"]", "disk-full"),
        // srun -K ends before it has read what a task wrote just before its end.
        (
            "memory",
            "command = [\"sh\", \"-c\", \"echo 'slurmstepd: error: StepId=9.0 exceeded memory limit (2960 > 2048), being killed' >&2; sleep 2; kill -9 $$\"]",
            "OUT_OF_MEMORY",
        ),
    ];
    let handles = cases.map(|(name, text, _)| {
        submit(&user, &format!("name = \"causes-{name}\"\nlaunch = \"per-node\"\n{text}\n"), &[])
    });
    for ((name, _, class), handle) in cases.iter().zip(&handles) {
        let ended = user.weftrun(&["wait", handle]);
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", said(&ended));
        let why = why(&user, handle);
        assert_eq!(why["cause"]["class"], *class, "{name}: {why:#}");
    }
    // The second job depends on one that fails.
    let first = submit(
        &user,
        "name = \"causes-first\"\nlaunch = \"per-node\"\ncommand = [\"sh\", \"-c\", \"sleep 15; exit 3\"]\n",
        &[],
    );
    let never = submit(&user, "name = \"causes-never\"\ncommand = [\"true\"]\n", &["--after", &first]);
    user.weftrun(&["wait", &first]);
    // slurmctld looks at dependencies every two seconds; it may cancel the job then, and says why in both cases.
    std::thread::sleep(std::time::Duration::from_secs(5));
    let waits = why(&user, &never);
    assert_eq!(waits["cause"]["code"], "SLURM-NEVER-STARTS", "{waits:#}");
    assert!(["pending", "cancelled"].contains(&waits["state"].as_str().unwrap_or_default()), "{waits:#}");
    // Slurm starts a job at once that depends on one that it does not know.
    for after in ["slurm://cluster/999999", &first] {
        user.file("job.toml", "name = \"causes-after\"\ncommand = [\"true\"]\n");
        let refused = user.weftrun(&["submit", "job.toml", "--after", after]);
        assert!(refused.status.code() == Some(4) || refused.status.code() == Some(3), "{}", said(&refused));
        assert!(said(&refused).contains("SLURM-DEPENDENCY"), "{}", said(&refused));
    }
    user.weftrun(&["cancel", &never]);
}

#[test]
fn each_task_of_an_array_has_its_own_end_and_a_restart_is_no_failed_step() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let job = "name = \"causes-array\"\nlaunch = \"per-node\"\n\
        command = [\"sh\", \"-c\", \"case $SLURM_ARRAY_TASK_ID in 1) exit 3;; 2) exit 5;; esac\"]\n";
    let array = submit(&user, job, &["--array", "0-2"]);
    user.weftrun(&["wait", &array]);
    let output = user.weftrun(&["describe", &array, "-o", "json"]);
    let detail: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));

    let replicas = detail["roles"].as_array().cloned().unwrap_or_default();
    let ends: Vec<_> =
        replicas.iter().map(|task| (task["phase"].clone(), task["exit_code"].clone())).collect();
    let end = |phase: &str, code: i32| (Value::from(phase), Value::from(code));
    assert_eq!(ends, [end("succeeded", 0), end("failed", 3), end("failed", 5)], "{detail:#}");

    let job = "name = \"causes-again\"\nlaunch = \"per-node\"\nrestart = \"on-failure\"\n\
        command = [\"sh\", \"-c\", \"test -e /fsx/again-$SLURM_JOB_ID && exit 0; touch /fsx/again-$SLURM_JOB_ID; exit 7\"]\n";
    let again = submit(&user, job, &[]);
    let ended = user.weftrun(&["wait", &again]);
    assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
    let output = user.weftrun(&["describe", &again]);
    assert!(!said(&output).contains("SLURM-STEP-FAILED"), "{}", said(&output));
}

#[test]
fn a_job_whose_node_failed_is_queued_again_and_the_node_is_named() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let job = "name = \"causes-node\"\nlaunch = \"per-node\"\nnodes = 2\ncommand = [\"sleep\", \"600\"]\n[backend.slurm]\npartition = \"compute-p5\"\n";
    let handle = submit(&user, job, &[]);
    let phase = |wanted: &str| {
        let until = std::time::Instant::now() + std::time::Duration::from_mins(2);
        loop {
            let output = user.weftrun(&["describe", &handle, "-o", "json"]);
            let detail: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if detail["phase"] == wanted {
                return;
            }
            assert!(std::time::Instant::now() < until, "not {wanted}: {}", said(&output));
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    };
    phase("running");
    cluster.ctl("crash compute-p5-st-p5-2");
    phase("pending");
    let why = why(&user, &handle);
    cluster.ctl("start compute-p5-st-p5-2");
    user.weftrun(&["cancel", &handle]);
    assert_eq!((&why["state"], &why["cause"]["class"]), (&"pending".into(), &"NODE_FAIL".into()), "{why:#}");
    assert_eq!(why["cause"]["nodes"], serde_json::json!(["compute-p5-st-p5-2"]), "{why:#}");
    assert_eq!(why["cause"]["ranks"], serde_json::json!([]), "no rank is to blame: {why:#}");
    assert!(why["cause"]["fix"].as_str().unwrap_or_default().starts_with("nothing"), "{why:#}");
}

/// A job that does not start is cancelled, and its command says why; a command beside a rank has the rank's environment.
#[test]
fn a_job_has_a_time_to_start_and_exec_is_beside_its_rank() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file(
        "job.toml",
        "name = \"causes-late\"\ncommand = [\"true\"]\nbackend.slurm.begin = \"now+1hour\"\n",
    );
    let late = user.weftrun(&["submit", "job.toml", "--wait", "--start-timeout", "5s"]);
    assert_eq!(late.status.code(), Some(124), "{}", said(&late));
    assert!(
        said(&late).contains("did not start within 5 s") && said(&late).contains("BeginTime"),
        "{}",
        said(&late)
    );
    let listed = user.weftrun(&["list", "-o", "json"]);
    assert!(!said(&listed).contains("causes-late"), "it is cancelled: {}", said(&listed));
    let job = "name = \"causes-exec\"\nlaunch = \"per-rank\"\nnodes = 2\ngpus_per_node = 2\ncommand = [\"sleep\", \"120\"]\n";
    let handle = submit(&user, job, &["--start-timeout", "2m"]);
    let mut seen = String::new();
    for _ in 0..40 {
        let output = user.weftrun(&[
            "exec",
            &handle,
            "--rank",
            "3",
            "--",
            "sh",
            "-c",
            "echo rank $RANK of $WORLD_SIZE",
        ]);
        seen = said(&output);
        if seen.contains("rank 3 of 4") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    user.weftrun(&["cancel", &handle]);
    assert!(seen.contains("rank 3 of 4"), "{seen}");
}
