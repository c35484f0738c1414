//! `submit --follow`: every line, the right map, and the exit code that the job's end means.

use serde_json::Value;
use weftrun_replay::{Capture, Shape};

use crate::cluster::{cluster, name};
use crate::replayed::{assert_complete, assert_complete_by_rank, assert_mutated, handle_of, job, over_efa};
use crate::shell::{Shell, whole_cluster};

/// A PyTorchJob of 4 nodes and 32 ranks: mutated objects on the server, all lines, the right map, exit 0.
#[test]
fn a_pytorch_job_of_32_ranks() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-pt"));
    let (replay, script) = over_efa();
    shell.write("play.sh", &script);
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    assert_eq!(ran.ended()["transport"]["verdict"]["fabric"], "efa");
    let object = shell.cluster.get(&["pytorchjob", &name]);
    assert_mutated(&object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]);
    assert_mutated(&shell.cluster.get(&["pod", &format!("{name}-worker-3")])["spec"]);
    // The script is in a ConfigMap that goes with the job.
    let of = format!(
        "weftrun.dev/submission={}",
        object["metadata"]["labels"]["weftrun.dev/submission"].as_str().unwrap()
    );
    let map = &shell.cluster.get(&["configmap", "-l", &of])["items"][0];
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"]);
    shell.delete(&handle_of(&ran));
}

/// An MPIJob of 32 ranks: the launcher has neither GPUs nor EFA, its ranks have the forwarded environment.
#[test]
fn an_mpi_job_of_32_ranks() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-mpi"));
    let (replay, script) = over_efa();
    let says = "echo \"forwarded $WEFT_SAYS $NCCL_DEBUG $OPAL_PREFIX\"\n";
    shell.write("play.sh", &script.replacen("rank=", &format!("{says}rank="), 1));
    shell.write("job.toml", &job(&name, "mpi", "env = { WEFT_SAYS = \"hello\" }\n"));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete_by_rank(&ran, &replay, "forwarded hello INFO /opt/amazon-efa-ofi/openmpi\n");
    // What waits for the workers' names found them, and did not wait its whole minute.
    let launcher = format!("training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher");
    let waited = shell.kubectl(&["logs", "-n", "research", "-l", &launcher, "-c", "weftrun-wait"]);
    assert_eq!((waited.code, waited.stdout.as_str()), (0, ""), "{}", waited.stderr);
    let object = shell.cluster.get(&["mpijob", &name]);
    assert_mutated(&object["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]);
    let launcher = &object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0];
    assert_eq!(launcher["command"][0], "/opt/amazon-efa-ofi/openmpi/bin/mpirun");
    let asked = launcher["resources"].to_string();
    assert!(!asked.contains("efa") && !asked.contains("hugepages") && !asked.contains("gpu"), "{asked}");
    shell.delete(&handle_of(&ran));
}

/// One rank fails: exit 1, and its earlier output is shown.
#[test]
fn a_failing_job_is_exit_code_1() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let shell = Shell::of(cluster, "researcher");
    for launch in ["per-rank", "mpi"] {
        let name = name("cli-bad");
        let fails = "rank=${RANK:-$OMPI_COMM_WORLD_RANK}\necho up $rank\n[ $rank = 5 ] || exec sleep 60\necho why; exit 9\n";
        shell.write("play.sh", fails);
        shell.write("job.toml", &job(&name, launch, ""));
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
        assert_eq!(ran.code, 1, "{launch}: {}\n{}", ran.stderr, ran.stdout);
        assert_eq!(ran.lines().get("why"), Some(&1), "{launch}: {}", ran.stdout);
        assert_eq!(ran.ended()["job"]["exit_code"], 9, "{launch}: {}", ran.ended());
        shell.delete(&handle_of(&ran));
    }
}

/// A TrainJob is submitted and followed.
#[test]
fn a_train_job_of_32_ranks() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-tj"));
    let (replay, script) = over_efa();
    shell.write("play.sh", &script);
    shell.write(
        "job.toml",
        &job(&name, "per-rank", "[backend.kubeflow]\nkind = \"trainjob\"\nscripts = \"configmap\"\n"),
    );
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    shell.delete(&handle_of(&ran));
}

/// Planned EFA that runs on sockets is exit 7, and the finding contains the fix.
#[test]
fn sockets_where_efa_was_planned_is_exit_code_7() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-fall"));
    let replay = Capture::shipped("socket_2x2").unwrap().scale(Shape::new(4, 8)).unwrap();
    shell.write("play.sh", &replay.script(0.0).unwrap());
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 7, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    shell.delete(&handle_of(&ran));
}

/// A job that cannot start is followed until the time limit, and the reason is reported with the fix; one
/// that is deleted while it is followed ends the command without success.
#[test]
fn a_followed_job_that_cannot_end_well_says_why() {
    let Some(cluster) = cluster() else { return };
    let text = |name: &str, image: &str, more: &str| {
        format!(
            "name = \"{name}\"\nimage = \"{image}\"\nnodes = 1\nfabric = \"off\"\ncommand = [\"sleep\", \"600\"]\n{more}"
        )
    };
    let cases = [
        ("cli-img", "example.test/nope:9", "", 124, ["K8S-IMAGE-PULL", "cannot resolve the registry's name"]),
        (
            "cli-big",
            "busybox:1.36",
            "gpus_per_node = 64\n",
            124,
            ["K8S-UNSCHEDULABLE", "nvidia.com/gpu free"],
        ),
        ("cli-del", "busybox:1.36", "", 1, ["no longer in the cluster", "cli-del"]),
    ];
    std::thread::scope(|scope| {
        for (what, image, more, code, said) in cases {
            let cluster = cluster.clone();
            scope.spawn(move || {
                let (shell, name) = (Shell::of(cluster, "researcher"), name(what));
                shell.write("job.toml", &text(&name, image, more));
                let args = ["submit", "-b", "kubeflow", "--follow", "--timeout", "60s", "job.toml"];
                let ran = std::thread::scope(|scope| {
                    let following = scope.spawn(|| shell.weftrun(&args));
                    if code == 1 {
                        let pod = format!("{name}-worker-0");
                        let runs = || {
                            shell.cluster.kubectl_says(&[
                                "get",
                                "pod",
                                &pod,
                                "-o",
                                "jsonpath={.status.phase}",
                            ])
                        };
                        crate::cluster::poll("its pod", || (runs().1 == "Running").then_some(()));
                        shell.cluster.kubectl(&["delete", "pytorchjob", &name, "--wait=false"]);
                    }
                    following.join().unwrap()
                });
                assert_eq!(ran.code, code, "{what}: {}", ran.stderr);
                for word in said {
                    assert!(ran.stderr.contains(word), "{what}, {word}: {}", ran.stderr);
                }
                // The handle and nothing else.
                assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
                shell.cluster.kubectl_says(&["delete", "pytorchjob", &name, "--wait=false"]);
            });
        }
    });
}

/// The API server is killed while the binary follows: the output is complete.
#[test]
fn alone_a_followed_job_outlives_the_api_server() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-down"));
    let replay = Capture::shipped("ofi_tcp_2x2").unwrap().scale(Shape::new(4, 8)).unwrap();
    let script = replay.script(4.0).unwrap().replace("tcp;ofi_rxm", "efa");
    shell.write("play.sh", &script);
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = std::thread::scope(|scope| {
        let following = scope
            .spawn(|| shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]));
        crate::cluster::poll("4 running pods", || {
            let pods = shell.cluster.get(&["pods", "-l", &format!("training.kubeflow.org/job-name={name}")]);
            let running = |pod: &&Value| pod["status"]["phase"] == "Running";
            (pods["items"].as_array().unwrap().iter().filter(running).count() == 4).then_some(())
        });
        shell.cluster.restart_api_server();
        following.join().unwrap()
    });
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    assert_complete(&ran, &replay);
    shell.delete(&handle_of(&ran));
}

/// A job that has failed when the time is out is a failure, not a time-out: one of its pods takes half a minute to end, and its log is
/// followed until then.
#[test]
fn a_job_that_failed_before_the_time_is_out_is_exit_code_1() {
    let Some(cluster) = cluster() else { return };
    let (shell, name) = (Shell::of(cluster.clone(), "researcher"), name("cli-late"));
    let script = "trap '' TERM\n[ $RANK = 1 ] && exit 9\nwhile :; do sleep 1; done\n";
    shell.write("play.sh", script);
    shell.write(
        "job.toml",
        &format!("name = \"{name}\"\n{}clean-pod-policy = \"Running\"\n", crate::submit::MAPPED),
    );
    let args = ["submit", "-b", "kubeflow", "--follow", "--timeout", "25s", "job.toml"];
    let ran = shell.weftrun(&args);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("exit code 9"), "{}", ran.stderr);
    shell.delete(ran.stdout.trim());
}
