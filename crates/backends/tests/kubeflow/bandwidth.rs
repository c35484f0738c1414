//! `bandwidth = true`: the library comes in a ConfigMap of the job, is loaded in its pods, read while it runs, and goes with it.

use std::time::{Duration, Instant};

use crate::cluster::{cluster, name, poll};
use crate::shell::{Shell, whole_cluster};
use weftrun_testkit::child;

#[test]
fn a_running_job_shows_which_rank_comes_last() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-bw"));
    // Nodes see this machine's files.
    let stub = shell.home.path().join("nccl_stub");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/tests/nccl_stub.c");
    let built = child::command("gcc").args(["-O1", "-o"]).args([&stub, &source]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    shell.write(
        "job.toml",
        &format!(
            "name = \"{name}\"\nimage = \"example.test/mpi:1\"\nlaunch = \"per-rank\"\nnodes = 2\ngpus_per_node = 1\n\
             instance_type = \"p5.48xlarge\"\ncommand = [\"/stub/nccl_stub\", \"300\"]\nbandwidth = true\n\
             env = {{ WEFTRUN_NCCL_MS = \"200\" }}\n"
        ),
    );
    let volume = format!("stub:/stub=host:{}", shell.home.path().display());
    let sent = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml", "--volume", &volume]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let begun = Instant::now();
    let shown = loop {
        let shown = shell.weftrun(&["bandwidth", &name, "-b", "kubeflow"]);
        if shown.stdout.starts_with("rank 1 on ") || begun.elapsed() > Duration::from_secs(120) {
            break shown;
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(
        shown.stdout.contains("reaches AllReduce last: the others waited "),
        "{}{}{}",
        shown.stdout,
        shown.stderr,
        shell.weftrun(&["logs", &name, "-b", "kubeflow"]).stdout
    );
    // On a loaded machine the last seconds may show too little.
    let begun = Instant::now();
    let why = loop {
        let why = shell.weftrun(&["why", &name, "-b", "kubeflow"]).stdout;
        if why.contains("rank 1 on ") || begun.elapsed() > Duration::from_secs(60) {
            break why;
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(why.starts_with("running: ") && why.contains("rank 1 on "), "{why}");
    let logs = shell.weftrun(&["logs", &name, "-b", "kubeflow"]).stdout;
    assert!(logs.contains("step 1") && !logs.contains("weftrun_nccl"), "{logs}");
    let map = format!("{name}-nccl-profiler");
    let object = shell.cluster.get(&["configmap", &map]);
    let job = shell.cluster.get(&["pytorchjob", &name]);
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
    let deleted = shell.weftrun(&["delete", &name, "-b", "kubeflow", "--yes"]);
    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    poll("the library goes with its job", || {
        (!shell.kubectl(&["get", "configmap", "-n", "research", &map]).stderr.is_empty()).then_some(())
    });
}
