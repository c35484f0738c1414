//! `weftrun verify` with real jobs, whose benchmark is a program that prints low figures on one node.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

/// Replaces PyTorch: prints a table whose bandwidth is low if the job includes the slow node.
const PYTHON: &str = r##"#!/bin/bash
[ "$2" = "import torch" ] && exit 0
[ "$RANK" = 0 ] || exit 0
busbw=350.0
case " $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ') " in *" SLOW "*)
  busbw=90.0
  echo 'weftrun-probe {"host":"card-of-SLOW","interfaces":[{"device":"mlx5_3:1","counters":{"symbol_error":1}}]}'
  echo 'weftrun-after {"host":"card-of-SLOW","interfaces":[{"device":"mlx5_3:1","counters":{"symbol_error":9}}]}' ;;
esac
echo "# weftrun-verify all_reduce"
echo "2147483648 536870912 float sum -1 51000.0 42.1 $busbw 0"
"##;

/// One test takes a node away that the other needs.
static NODES: Mutex<()> = Mutex::new(());

/// The slow one of four nodes is found by jobs on the nodes that the search selects.
#[test]
fn the_slow_node_is_found_by_jobs_on_parts_of_the_nodes() {
    let Some(cluster) = TestCluster::find() else { return };
    let _nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = format!("/fsx/verify-{}", std::process::id());
    let user = User::new(&cluster, Way::Ssh, &[]);
    let job = format!(
        "name = \"measure\"\nnodes = 4\nranks_per_node = 1\ninstance_type = \"p4de.24xlarge\"\ncommand = [\"replaced\"]\n\
         [backend.slurm]\nsetup = [\"export PATH={folder}:$PATH\"]\n"
    );
    user.file("job.toml", &job);
    for slow in ["", "compute-gpu-st-p4de-3"] {
        let program = PYTHON.replace("SLOW", if slow.is_empty() { "none" } else { slow });
        let path = cluster.dir.join("shared").join(folder.trim_start_matches('/'));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("python3"), program).expect("written");
        cluster.sh(&format!("chmod -R a+rx {}", path.display()));
        let output = user.weftrun(&["verify", "job.toml", "--bisect=always", "-o", "json"]);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        let search = &report["search"];
        let found: Vec<&str> =
            search["slow_nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = said(&output);
        assert_eq!(found, if slow.is_empty() { vec![] } else { vec![slow] }, "{text}");
        assert_eq!(search["reason"].is_null(), !slow.is_empty(), "{text}");
        // The interface of the slow node is named with it.
        let found: Vec<&str> = search["findings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["message"].as_str())
            .collect();
        assert_eq!(
            found.iter().any(|found| found.contains("symbol_error grew by 8 on mlx5_3:1")),
            !slow.is_empty(),
            "{text}"
        );
        assert!(search["jobs"].as_u64().is_some_and(|jobs| (2..=6).contains(&jobs)), "{text}");
        for group in search["groups"].as_array().expect("groups") {
            let nodes: Vec<&str> =
                group["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let expected = if nodes.contains(&slow) { 90.0 } else { 350.0 };
            assert_eq!(group["busbw_gbps"], expected, "the job ran on other nodes: {text}");
        }
    }
}

/// A node that takes no jobs any more is found during the search, and no job is left in the queue.
#[test]
fn a_node_that_is_lost_during_the_search_is_named() {
    let Some(cluster) = TestCluster::find() else { return };
    let _nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = format!("/fsx/lost-{}", std::process::id());
    let user = User::new(&cluster, Way::Here, &[]);
    let job = format!(
        "name = \"lost\"\nnodes = 4\nranks_per_node = 1\ninstance_type = \"p4de.24xlarge\"\ncommand = [\"replaced\"]\n\
         [backend.slurm]\nsetup = [\"export PATH={folder}:$PATH\"]\n"
    );
    user.file("job.toml", &job);
    let lost = "compute-gpu-st-p4de-2";
    // The first run itself takes the node away from later jobs: it goes on on the node.
    let program = PYTHON.replace("SLOW", "none").replace(
        "echo \"# weftrun",
        &format!("[ \"$SLURM_JOB_NUM_NODES\" = 4 ] && touch {folder}/ran && while [ ! -e {folder}/go ]; do sleep 0.2; done\necho \"# weftrun"),
    );
    let path = cluster.dir.join("shared").join(folder.trim_start_matches('/'));
    std::fs::create_dir_all(&path).expect("a folder");
    std::fs::write(path.join("python3"), program).expect("written");
    cluster.sh(&format!("chmod -R a+rx {0} && chmod a+w {0}", path.display()));
    let drained = std::thread::spawn({
        let (cluster, path) = (cluster.clone(), path.clone());
        move || {
            let began = std::time::Instant::now();
            while !path.join("ran").exists() && began.elapsed().as_secs() < 120 {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            cluster.ctl(&format!("head -u root scontrol update nodename={lost} state=drain reason=test"));
            std::fs::write(path.join("go"), "").expect("written");
        }
    });
    let output = user.weftrun(&["verify", "job.toml", "--bisect=always", "--timeout", "30s", "-o", "json"]);
    drained.join().expect("drained");
    cluster.ctl(&format!("head -u root scontrol update nodename={lost} state=resume"));
    let text = said(&output);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(report["search"]["slow_nodes"], serde_json::json!([lost]), "{text}");
    let groups = report["search"]["groups"].as_array().expect("groups");
    assert!(groups.iter().any(|group| group["failed"].is_string()), "{text}");
    let listed = user.weftrun(&["list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("a list");
    let left = listed["jobs"].as_array().into_iter().flatten();
    let left: Vec<&Value> =
        left.filter(|job| job["name"].as_str().is_some_and(|name| name.starts_with("lost"))).collect();
    assert!(
        left.iter().all(|job| !["pending", "running"].contains(&job["phase"].as_str().unwrap_or_default())),
        "{left:?}"
    );
}

#[test]
fn the_probe_reports_each_node() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let job = "name = \"look\"\nnodes = 2\nranks_per_node = 1\ninstance_type = \"p4de.24xlarge\"\ncommand = [\"replaced\"]\n";
    user.file("job.toml", job);
    let output = user.weftrun(&["probe", "job.toml", "-o", "json"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let hosts: Vec<&str> =
        report["nodes"].as_array().into_iter().flatten().filter_map(|node| node["host"].as_str()).collect();
    assert_eq!(hosts.len(), 2, "{}", said(&output));
    assert!(hosts.iter().all(|host| host.contains("p4de")), "{hosts:?}");
}
