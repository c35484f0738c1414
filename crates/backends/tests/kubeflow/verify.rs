//! `weftrun verify` and `weftrun probe` with real jobs. There are no GPUs: what replaces PyTorch and nccl-tests sends the
//! name of each rank's node to rank 0, which prints low figures if the slow node is one of them.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;

use crate::cluster::{TestCluster, cluster, name, poll};
use crate::shell::{Ran, Shell, whole_cluster};
use weftrun_testkit::child;

/// A pod finds the name of its node in the paths of its mounts.
const PYTHON: &str = r##"#!/bin/sh
[ "$2" = "import torch" ] && exit 0
node=$(grep -o 'node-[0-9]' /proc/self/mountinfo | head -n 1)
if [ "$RANK" != 0 ]; then
  heard() { [ "$(echo "$node" | nc -w 5 "$MASTER_ADDR" 29777)" = ok ]; }
  until heard; do sleep 0.3; done
  # As with NCCL, no rank ends before the others: its node would be free for a pod that still waits for one.
  while heard; do sleep 0.3; done
  exit 0
fi
: > /tmp/seen
nc -ll -p 29777 -e sh -c 'read -r node; echo "$node" >> /tmp/seen; echo ok' &
until [ "$(sort -u /tmp/seen | wc -l)" -ge $((WORLD_SIZE - 1)) ]; do sleep 0.2; done
HOLD
kill $!
busbw=350.0
case " $node $(tr '\n' ' ' < /tmp/seen) " in *" SLOW "*) busbw=90.0 ;; esac
echo "# weftrun-verify all_reduce"
echo "2147483648 536870912 float sum -1 51000.0 42.1 $busbw 0"
"##;

/// Holds the benchmark's end until the test has made the file, so that the node is lost between two jobs of the search.
const WAIT_FOR_GO: &str = "until [ -e /tools/go ]; do sleep 0.2; done";

/// nccl-tests built with MPI: all ranks run it, and the first prints the table.
const NCCL_TESTS: &str = r##"#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-0}
[ "$rank" = 0 ] || exit 0
echo "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809"
echo "# Collective test starting: all_reduce_perf"
i=0
while [ $i -lt "${OMPI_COMM_WORLD_SIZE:-1}" ]; do
  echo "#  Rank  $i Group  0 Pid     $((40 + i)) on    host-$i device  0 [0000:53:00] NVIDIA H100"
  i=$((i + 1))
done
echo "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
echo "  2147483648     536870912     float     sum      -1   9000.0  238.61  238.61       0   9000.0  238.61  238.61       0"
"##;

/// A folder of all nodes with the programs.
fn tools(python: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    for (program, text) in [("python3", python), ("all_reduce_perf", NCCL_TESTS)] {
        std::fs::write(folder.path().join(program), text).unwrap();
        open(&folder.path().join(program));
    }
    open(folder.path());
    folder
}

fn job(name: &str, image: &str, nodes: u32, tools: &std::path::Path) -> String {
    format!(
        "name = \"{name}\"\nimage = \"{image}\"\nnodes = {nodes}\ngpus_per_node = 8\nranks_per_node = 1\n\
         instance_type = \"p5.48xlarge\"\nfabric = \"off\"\ncommand = [\"replaced\"]\n\
         env = {{ PATH = \"/tools:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\" }}\n\
         [volumes.tools]\nmount = \"/tools\"\nhost_path = \"{}\"\n",
        tools.display()
    )
}

fn report(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}: {}", ran.code, ran.stderr))
}

fn slow(report: &Value) -> Vec<&str> {
    report["search"]["slow_nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// No job of this name still runs.
fn assert_none_runs(cluster: &TestCluster, name: &str) {
    poll("the jobs to end", || {
        let pods = cluster.get(&["pods"]);
        let runs = |pod: &&Value| {
            pod["metadata"]["name"].as_str().is_some_and(|pod| pod.starts_with(name))
                && ["Running", "Pending"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
        };
        pods["items"].as_array().unwrap().iter().find(runs).is_none().then_some(())
    });
}

#[test]
fn the_slow_node_is_found_by_jobs_on_parts_of_the_nodes() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    for bad in ["node-2", "none"] {
        let tools = tools(&PYTHON.replace("SLOW", bad).replace("HOLD", ":"));
        let (shell, name) = (Shell::of(cluster.clone(), "researcher"), name("verify"));
        shell.write("job.toml", &job(&name, "busybox:1.36", 4, tools.path()));
        let ran = shell.weftrun(&["verify", "-b", "kubeflow", "job.toml", "--bisect=always", "-o", "json"]);
        let report = report(&ran);
        let expected = if bad == "none" { vec![] } else { vec![bad] };
        assert_eq!(slow(&report), expected, "{report:#}\n{}", ran.stderr);
        for group in report["search"]["groups"].as_array().unwrap() {
            let has = group["nodes"].as_array().unwrap().iter().any(|node| node == bad);
            assert_eq!(
                group["busbw_gbps"],
                if has { 90.0 } else { 350.0 },
                "the job ran on other nodes: {report:#}"
            );
        }
        assert_none_runs(&cluster, &name);
    }
}

/// A node on which nothing can be scheduled any more is found, and its jobs are cancelled.
#[test]
fn alone_a_node_that_is_lost_during_the_search_is_named() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let tools = tools(&PYTHON.replace("SLOW", "none").replace("HOLD", WAIT_FOR_GO));
    let (shell, name) = (Shell::of(cluster.clone(), "researcher"), name("lost"));
    shell.write("job.toml", &job(&name, "busybox:1.36", 4, tools.path()));
    let args = ["verify", "-b", "kubeflow", "job.toml", "--bisect=always", "--timeout", "90s", "-o", "json"];
    let mut command = shell.command(&shell.binary, &args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    poll("all pods to run", || {
        let pods = cluster.get(&["pods"]);
        let runs = |pod: &&Value| {
            pod["metadata"]["name"].as_str().is_some_and(|pod| pod.starts_with(&name))
                && pod["status"]["phase"] == "Running"
        };
        (pods["items"].as_array().unwrap().iter().filter(runs).count() == 4).then_some(())
    });
    cluster.kubectl(&["cordon", "node-1"]);
    std::fs::write(tools.path().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    cluster.kubectl(&["uncordon", "node-1"]);
    let ran = Ran::from(output);
    let report = report(&ran);
    assert_eq!(slow(&report), ["node-1"], "{report:#}\n{}", ran.stderr);
    let groups = report["search"]["groups"].as_array().unwrap();
    let failed: Vec<_> = groups.iter().filter(|group| group["busbw_gbps"].is_null()).collect();
    assert!(
        !failed.is_empty() && failed.iter().all(|group| group["failed"].as_str().unwrap().contains("90s"))
    );
    assert_none_runs(&cluster, &name);
}

#[test]
fn nccl_tests_are_run_by_mpirun() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let tools = tools("#!/bin/sh\nexit 1\n");
    let (shell, name) = (Shell::of(cluster.clone(), "researcher"), name("verify-mpi"));
    shell.write(
        "job.toml",
        &job(&name, "example.test/mpi:1", 2, tools.path())
            .replace("ranks_per_node = 1", "ranks_per_node = 2"),
    );
    let ran = shell.weftrun(&["verify", "-b", "kubeflow", "job.toml", "--launch", "mpi", "-o", "json"]);
    let report = report(&ran);
    assert_eq!(report["runs"][0]["busbw_gbps"], 238.61, "{report:#}\n{}", ran.stderr);
    assert_eq!(
        (&report["runs"][0]["collective"], &report["runs"][0]["ranks"]),
        (&"all_reduce".into(), &4.into())
    );
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{report:#}");
}

#[test]
fn the_probe_reports_each_pod_and_ctrl_c_leaves_no_job() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster.clone(), "researcher"), name("look"));
    let folder = tools("#!/bin/sh\n[ \"$2\" = \"import torch\" ] || sleep 600\n");
    shell.write("job.toml", &job(&name, "busybox:1.36", 2, folder.path()));
    let ran = shell.weftrun(&["probe", "-b", "kubeflow", "job.toml", "-o", "json"]);
    let report = report(&ran);
    let nodes = report["nodes"].as_array().unwrap();
    assert_eq!((ran.code, nodes.len()), (0, 2), "{report:#}\n{}", ran.stderr);
    assert!(nodes.iter().all(|node| node["facts"]["kernel"].is_string()), "{report:#}");
    shell.delete(report["job"].as_str().unwrap());

    let mut command = shell.command(&shell.binary, &["verify", "-b", "kubeflow", "job.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("weftrun-probe")), "the job does not start");
    let id = child.id().to_string();
    assert!(child::command("kill").args(["-INT", &id]).status().unwrap().success());
    let said: String = lines.map_while(Result::ok).collect::<Vec<_>>().join("\n");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("cancelled"), "{said}");
    assert_none_runs(&cluster, &name);
}
