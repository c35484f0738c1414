//! Jobs of many tasks as arrays of Slurm.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

fn json(user: &User<'_>, words: &[&str]) -> Value {
    let output = user.weftrun(&[words, &["-o", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {}", said(&output)))
}

/// The values of a sweep reach the ranks, in the command and in the environment; at most two tasks run at once.
#[test]
fn a_sweep_is_one_bounded_array() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let own = format!("/fsx/sweep-{}", std::process::id());
    user.file(
        "sweep.toml",
        &format!(
            "name = \"sweep\"\nlaunch = \"per-node\"\nparallel = 2\n\
             command = [\"sh\", \"-c\", \"mkdir -p {own}; mkdir {own}/runs-{{task}}; ls -d {own}/runs-* | wc -l >> {own}/at-once; \
             echo lr=$1 seed=$WEFTRUN_SWEEP_SEED task=$WEFTRUN_TASK of $WEFTRUN_TASKS; sleep 3; rmdir {own}/runs-{{task}}; test {{task}} != 3\", \"x\", \"{{lr}}\"]\n\
             [sweep]\nlr = [1e-3, \"it's $HOME\", 0.5]\nseed = [1, 2]\n"
        ),
    );
    let output = user.weftrun(&["submit", "sweep.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(handle.starts_with("slurm://cluster/"), "one job of Slurm: {handle}");
    let listed = json(&user, &["list"]);
    let jobs: Vec<&Value> = listed["jobs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|job| job["handle"] == handle.as_str())
        .collect();
    assert_eq!(jobs.len(), 1, "one line: {listed:#}");
    assert_eq!(jobs[0]["tasks"]["total"], 6, "{listed:#}");

    let waited = user.weftrun(&["wait", &handle]);
    assert_eq!(waited.status.code(), Some(1), "the worst of all: {}", said(&waited));
    assert!(said(&waited).contains("1 task failed: 3 (lr=it's $HOME seed=2)"), "{}", said(&waited));
    let at_once = cluster.ctl(&format!("head cat {own}/at-once"));
    let counts: Vec<u32> = at_once.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert!(counts.len() == 6 && counts.iter().all(|count| *count <= 2), "{at_once}");

    let logs = said(&user.weftrun(&["logs", &handle]));
    for line in
        ["lr=1e-3 seed=1 task=0 of 6", "lr=it's $HOME seed=1 task=2 of 6", "lr=0.5 seed=2 task=5 of 6"]
    {
        assert!(logs.contains(line), "{line}: {logs}");
    }
    let one = said(&user.weftrun(&["logs", "--task", "4", &handle]));
    assert!(one.contains("task=4 of 6") && !one.contains("task=5"), "{one}");
    let described = said(&user.weftrun(&["describe", &handle]));
    assert!(described.contains("lr=0.5 seed=1"), "{described}");
    let listed = json(&user, &["list", "--all"]);
    let job = listed["jobs"].as_array().into_iter().flatten().find(|job| job["handle"] == handle.as_str());
    let tasks = job.map(|job| job["tasks"]["phases"].clone());
    assert_eq!(tasks, Some(serde_json::json!({"succeeded": 5, "failed": 1})), "{listed:#}");
    let why = json(&user, &["why", &handle]);
    assert!(why["findings"].to_string().contains("WHY-TASKS"), "{why:#}");
    cluster.ctl(&format!("head rm -r {own}"));
}

#[test]
fn all_tasks_of_an_array_are_cancelled() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file("job.toml", "name = \"many\"\nlaunch = \"per-node\"\ncommand = [\"sleep\", \"600\"]\n");
    let output = user.weftrun(&["submit", "job.toml", "--array", "0-7", "--parallel", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    std::thread::sleep(Duration::from_secs(4));
    let described = json(&user, &["describe", &handle]);
    let phases = &described["job"]["tasks"];
    assert_eq!(phases["total"], 8, "{described:#}");
    let waits = phases["phases"]["pending"].as_u64().unwrap_or_default();
    assert!(waits >= 7, "the tasks that wait are one row of Slurm, and are counted: {described:#}");
    let cancelled = user.weftrun(&["cancel", &handle]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", said(&cancelled));
    let waited = user.weftrun(&["wait", "--timeout", "60s", &handle]);
    assert_eq!(waited.status.code(), Some(1), "{}", said(&waited));
    assert_eq!(cluster.count("many"), cluster.count("many -t CANCELLED"), "nothing of it waits or runs");
}
