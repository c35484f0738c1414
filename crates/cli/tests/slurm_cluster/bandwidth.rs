//! `bandwidth = true`: the library comes with the job, is loaded by its ranks, read while it runs, and goes with it.

use std::path::Path;
use std::time::{Duration, Instant};

use weftrun_testkit::child;

use crate::cluster::{TestCluster, WAYS};
use crate::run::{User, said};

#[test]
fn a_running_job_shows_which_rank_comes_last() {
    let Some(cluster) = TestCluster::find() else { return };
    // A program that calls the library as NCCL does, where every node sees it.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/tests/nccl_stub.c");
    let stub = cluster.dir.join("shared/fsx/nccl_stub");
    let built = child::command("gcc").args(["-O1", "-o"]).args([&stub, &source]).output().expect("gcc runs");
    assert!(built.status.success(), "{}", said(&built));
    for way in WAYS {
        let name = format!("bw-{way:?}").to_lowercase();
        let user = User::new(&cluster, way, &[]);
        let job = format!(
            "name = \"{name}\"\nlaunch = \"per-rank\"\nnodes = 2\ngpus_per_node = 8\ninstance_type = \"p4de.24xlarge\"\n\
             command = [\"/fsx/nccl_stub\", \"170\"]\nbandwidth = true\nenv = {{ WEFTRUN_NCCL_MS = \"200\" }}\n"
        );
        user.file("job.toml", &job);
        let sent = user.weftrun(&["submit", "job.toml"]);
        assert!(sent.status.success(), "{}", said(&sent));
        let text = |words: &[&str]| String::from_utf8_lossy(&user.weftrun(words).stdout).into_owned();
        let begun = Instant::now();
        let shown = loop {
            let shown = text(&["bandwidth", &name]);
            if shown.starts_with("rank 1 on ") || begun.elapsed() > Duration::from_secs(120) {
                break shown;
            }
            std::thread::sleep(Duration::from_millis(500));
        };
        let logs = text(&["logs", &name]);
        assert!(shown.contains("reaches AllReduce last: the others waited "), "{way:?}: {shown}\n{logs}");
        assert!(logs.contains("step 1") && !logs.contains("weftrun_nccl"), "{way:?}: {logs}");
        let why = text(&["why", &name]);
        assert!(why.starts_with("running: ") && why.contains("rank 1 on "), "{way:?}: {why}");
        let find = format!("find \"$CLUSTER\" -xdev -path '*/{name}-*' -name libweftrun-nccl.so");
        let brought = || cluster.sh(&find);
        assert!(!brought().is_empty(), "{way:?}");
        let cancelled = user.weftrun(&["cancel", &name]);
        assert!(cancelled.status.success(), "{}", said(&cancelled));
        let until = Instant::now() + Duration::from_secs(60);
        while !brought().is_empty() {
            assert!(Instant::now() < until, "{way:?}: the library stays: {}", brought());
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}
