//! Jobs of many tasks as arrays of Slurm.

use std::time::{Duration, Instant};

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

/// Tasks that wait are counted, listed and held, although Slurm has one row for all of them.
#[test]
fn the_tasks_of_an_array_that_wait_are_seen_and_held() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file("job.toml", "name = \"held\"\nlaunch = \"per-node\"\ncommand = [\"sleep\", \"20\"]\n");
    let output = user.weftrun(&["submit", "job.toml", "--array", "0-3", "--parallel", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let phases = || json(&user, &["describe", &handle])["job"]["tasks"]["phases"].clone();
    let until = |expected: Value| {
        let ends = Instant::now() + Duration::from_secs(60);
        while phases() != expected {
            assert!(Instant::now() < ends, "{} is not {expected}", phases());
            std::thread::sleep(Duration::from_millis(500));
        }
    };
    until(serde_json::json!({"running": 1, "pending": 3}));
    let not_held = user.weftrun(&["release", &handle]);
    assert!(
        not_held.status.code() == Some(4) && said(&not_held).contains("cannot be released"),
        "{}",
        said(&not_held)
    );
    let held = user.weftrun(&["hold", &handle]);
    assert_eq!(held.status.code(), Some(0), "{}", said(&held));
    let described = said(&user.weftrun(&["describe", &handle]));
    for line in ["ready   1 of 4", "1 running, 3 held", "is held by its owner"] {
        assert!(described.contains(line), "{line}: {described}");
    }
    assert!(!described.contains("4294967294"), "{described}");
    let listed = said(&user.weftrun(&["list", "--all", "--all-tasks"]));
    assert!((0..4).all(|task| listed.contains(&format!("{handle}_{task} "))), "{listed}");
    until(serde_json::json!({"succeeded": 1, "suspended": 3}));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(phases(), serde_json::json!({"succeeded": 1, "suspended": 3}), "none of them starts");
    let released = user.weftrun(&["release", &handle]);
    assert_eq!(released.status.code(), Some(0), "{}", said(&released));
    assert_eq!(phases()["suspended"], Value::Null, "{}", phases());
    user.weftrun(&["cancel", &handle]);
}

/// Each line says its task, and the exit code is that of the worst.
#[test]
fn an_array_is_followed_to_its_end() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file(
        "job.toml",
        "name = \"followed\"\nlaunch = \"per-node\"\ncommand = [\"sh\", \"-c\", \"echo hello from {task}; sleep 2; test {task} != 1\"]\n",
    );
    let followed = user.weftrun(&["submit", "job.toml", "--array", "0-2", "--follow"]);
    assert_eq!(followed.status.code(), Some(1), "{}", said(&followed));
    let said = said(&followed);
    for task in 0..3 {
        let line = said.lines().find(|line| line.contains(&format!("hello from {task}")));
        let prefix = line.and_then(|line| line.split('|').next()).unwrap_or_default();
        assert!(prefix.contains(&format!("_{task}/")), "{task}: {said}");
    }
}
