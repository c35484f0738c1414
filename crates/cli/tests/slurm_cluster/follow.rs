//! `submit --follow`: every line of every rank, the right map, the job's result; also over a connection that is cut and
//! a node that loses its power.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use weftrun_replay::{Capture, Replay, Shape};

use crate::cluster::{EVERY, TestCluster, WAYS, Way};
use crate::run::{User, said};

/// A real capture of four ranks, widened to 4 nodes of 8.
fn wide() -> Replay {
    Capture::shipped("socket_2x2").expect("shipped").scale(Shape::new(4, 8)).expect("widens")
}

const JOB: &str = "name = \"replay\"\nlaunch = \"per-rank\"\nnodes = 4\ngpus_per_node = 8\ninstance_type = \"p4de.24xlarge\"\n\
                   code = { script = \"replay.sh\" }\ncommand = [\"sh\", \"replay.sh\"]\n";

fn lines_of(wide: &Replay) -> BTreeMap<u64, Vec<String>> {
    let line = |rank| {
        let mut log = Vec::new();
        wide.write_log(rank, &mut log).expect("written");
        (u64::from(rank), String::from_utf8_lossy(&log).lines().map(str::to_owned).collect())
    };
    (0..wide.world()).map(line).collect()
}

/// The pairs of a map as the truth writes them.
fn pairs(ended: &Value) -> BTreeSet<(u64, u64, String, Option<String>)> {
    let pairs = ended["transport"]["pairs"].as_array().expect("pairs");
    let one = |pair: &Value| {
        Some((
            pair["global_from"].as_u64()?,
            pair["global_to"].as_u64()?,
            pair["kind"].as_str()?.to_owned(),
            pair["net"].as_str().map(str::to_owned),
        ))
    };
    pairs.iter().filter_map(one).collect()
}

#[test]
fn thirty_two_ranks_over_a_connection_that_is_cut() {
    let Some(cluster) = TestCluster::find() else { return };
    let wide = wide();
    let expected = lines_of(&wide);
    for way in WAYS {
        let user = User::new(&cluster, way, &[]);
        user.file("replay.sh", &wide.script(0.3).expect("a script"));
        user.file("job.toml", &format!("{JOB}fabric = \"off\"\n"));
        let mut events = user.events(&["submit", "--follow", "job.toml"]);
        let (mut got, mut ended, mut lines) = (BTreeMap::<u64, Vec<String>>::new(), Value::Null, 0);
        for event in events.by_ref() {
            match event["type"].as_str() {
                Some("log") => {
                    if let Some(rank) = event["rank"].as_u64() {
                        got.entry(rank).or_default().push(event["text"].as_str().expect("text").to_owned());
                    }
                    lines += 1;
                    if way == Way::Ssh && lines == 400 {
                        cluster.cut_ssh();
                    }
                }
                Some("ended") => ended = event,
                _ => {}
            }
        }
        let (code, stderr) = events.end();
        assert_eq!(code, Some(0), "{way:?}: {stderr}");
        for (rank, expected) in &expected {
            assert_eq!(got.get(rank), Some(expected), "{way:?}: rank {rank}");
        }
        let truth = wide.expected();
        let wanted: BTreeSet<_> = truth
            .pairs
            .iter()
            .map(|(from, to, kind, net)| (u64::from(*from), u64::from(*to), kind.clone(), net.clone()))
            .collect();
        assert_eq!(pairs(&ended), wanted, "{way:?}");
        assert_eq!(ended["transport"]["verdict"]["fabric"], truth.verdict_fabric.as_str(), "{way:?}");
        assert_eq!(ended["job"]["exit_code"], 0, "{way:?}: {ended}");
    }
}

#[test]
fn the_exit_code_is_the_jobs_result() {
    let Some(cluster) = TestCluster::find() else { return };
    for way in EVERY {
        let user = User::new(&cluster, way, &[]);
        // Efa was planned, the ranks prove sockets.
        user.file("replay.sh", &wide().script(0.0).expect("a script"));
        user.file("job.toml", &format!("{JOB}fabric = \"efa\"\nprofile = \"parallelcluster\"\n"));
        let output = user.weftrun(&["submit", "--follow", "job.toml"]);
        assert_eq!(output.status.code(), Some(7), "{way:?}: {}", said(&output));
        let handle = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(handle.starts_with("slurm://cluster/") && handle.lines().count() == 1, "{way:?}: {handle}");
        // sacct reports 255 as 127, but every command shows 255, even long after the job's end.
        user.file("fails.toml", "name = \"fails\"\nlaunch = \"per-node\"\ncommand = [\"sh\", \"-c\", \"echo about to fail; exit 255\"]\n");
        let output = user.weftrun(&["submit", "--follow", "fails.toml"]);
        assert_eq!(output.status.code(), Some(1), "{way:?}: {}", said(&output));
        let text = said(&output);
        assert!(text.contains("about to fail") && text.contains("exited with 255"), "{way:?}: {text}");
        let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let described = user.weftrun(&["describe", &handle, "-o", "json"]);
        let described: Value =
            serde_json::from_slice(&described.stdout).unwrap_or_else(|_| panic!("{}", said(&described)));
        assert_eq!(described["job"]["exit_code"], 255, "{way:?}: {described}");
    }
}

/// The tests of nodes that are lost have a partition of their own, since others run beside them; one uses it at a time.
static LOST_NODES: Mutex<()> = Mutex::new(());

/// A job on both nodes of that partition.
fn lossy_job(name: &str, further: &str) -> String {
    format!(
        "name = \"{name}\"\nlaunch = \"per-node\"\nnodes = 2\ninstance_type = \"p5.48xlarge\"\nqueue = \"compute-p5\"\n\
         restart = {{ max = 1 }}\ncommand = [\"sh\", \"-c\", \"echo up; sleep 300\"]\n{further}"
    )
}

/// Follows the job until a node was lost and a new attempt is reported: `loses` it, a command of clusterctl, is
/// applied to the second node once the lines until then are `ready`. Returns the node, the event and every
/// line of the log.
fn followed_over_a_loss(
    cluster: &TestCluster,
    user: &User<'_>,
    loses: &str,
    ready: impl Fn(&[String]) -> bool,
    after: impl Fn(),
) -> (String, Value, Vec<String>) {
    let mut events = user.events(&["submit", "--follow", "job.toml"]);
    let (mut handle, mut node, mut attempt) = (String::new(), String::new(), Value::Null);
    let (mut lines, mut crashed) = (Vec::new(), false);
    for event in events.by_ref() {
        match event["type"].as_str() {
            Some("submitted") => event["handle"].as_str().expect("a handle").clone_into(&mut handle),
            Some("replica") if event["replica"]["index"] == 1 && node.is_empty() => {
                event["replica"]["node"].as_str().expect("a node").clone_into(&mut node);
            }
            Some("log") => lines.push(event["text"].as_str().unwrap_or_default().to_owned()),
            Some("attempt") => {
                attempt = event;
                break;
            }
            _ => {}
        }
        // The lines may come before the queue was looked at, and so before the node's name.
        if !crashed && !node.is_empty() && ready(&lines) {
            crashed = true;
            cluster.ctl(&format!("{loses} {node}"));
            after();
        }
    }
    let cancelled = user.weftrun(&["cancel", &handle]);
    let (code, seen) = events.end();
    cluster.ctl(&format!("start {node}"));
    assert!(crashed && attempt["attempt"] == 1, "{seen}");
    assert_eq!(cancelled.status.code(), Some(0), "{}", said(&cancelled));
    assert_eq!(code, Some(1), "a cancelled job is no success: {seen}");
    (node, attempt, lines)
}

#[test]
fn a_node_that_loses_its_power_is_told() {
    let Some(cluster) = TestCluster::find() else { return };
    let _one_at_a_time = LOST_NODES.lock().unwrap_or_else(PoisonError::into_inner);
    let user = User::new(&cluster, Way::Ssh, &[]);
    user.file("job.toml", &lossy_job("poweroff", ""));
    let both_run = |lines: &[String]| lines.iter().filter(|line| *line == "up").count() == 2;
    let (node, attempt, _) = followed_over_a_loss(&cluster, &user, "crash", both_run, || ());
    let reason = attempt["reason"].as_str().unwrap_or_default();
    assert!(reason.contains(&node) && reason.contains("queued again"), "{reason}");
}

/// srun gives up long before slurmctld misses the node: Slurm would call the job failed.
#[test]
fn a_node_that_is_lost_while_srun_launches_queues_the_job_again() {
    let Some(cluster) = TestCluster::find() else { return };
    let _one_at_a_time = LOST_NODES.lock().unwrap_or_else(PoisonError::into_inner);
    let user = User::new(&cluster, Way::Ssh, &[]);
    let gate = cluster.dir.join("shared/fsx/launch-now");
    let _ = std::fs::remove_file(&gate);
    let waits =
        "backend.slurm.setup = [\"echo waiting; while [ ! -e /fsx/launch-now ]; do sleep 0.2; done\"]\n";
    user.file("job.toml", &lossy_job("launch", waits));
    let waiting = |lines: &[String]| lines.iter().any(|line| line == "waiting");
    let launch = || std::fs::write(&gate, "").expect("written");
    let (node, _, lines) = followed_over_a_loss(&cluster, &user, "kill-slurmd", waiting, launch);
    let said = lines.iter().any(|line| line.contains("srun: error: ") && line.contains(&node));
    assert!(said, "the log says which node: {lines:?}");
}

/// Over slurmrestd without a mounted folder there are no logs: the job is followed by its events, and its end is the exit code.
#[test]
fn a_job_whose_files_are_out_of_reach_is_followed_to_its_end() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Rest, &[]);
    let config = std::fs::read_to_string(user.dir().join("config.toml")).expect("written");
    let kept: Vec<&str> = config.lines().filter(|line| !line.starts_with("path-map")).collect();
    user.file("config.toml", &kept.join("\n"));
    for (name, code) in [("blind-good", 0), ("blind-bad", 1)] {
        user.file(
            "job.toml",
            &format!("name = \"{name}\"\ncommand = [\"sh\", \"-c\", \"exit {}\"]\n", code * 3),
        );
        let ran = user.weftrun(&["submit", "--follow", "job.toml"]);
        let text = said(&ran);
        assert_eq!(ran.status.code(), Some(code), "{text}");
        assert_eq!(text.matches("slurmrestd gives no files").count(), 1, "{text}");
    }
}
