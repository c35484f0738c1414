//! `submit`: what is refused, what a user with few rights sees, and submissions that are killed or interrupted.

use std::process::Stdio;

use serde_json::Value;

use crate::cluster::{cluster, name};
use crate::holding::Holding;
use crate::replayed::{handle_of, job};
use crate::shell::{Ran, Shell, whole_cluster};
use weftrun_testkit::child;

/// `weftrun mutate | kubectl apply` makes the pods that `weftrun submit` makes.
#[test]
fn mutate_and_apply_make_the_same_pods() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let shell = Shell::of(cluster, "researcher");
    for launch in ["per-node", "mpi"] {
        let name = name("cli-same");
        let text = job(&name, launch, "").replace("code = { script = \"play.sh\" }\n", "");
        let command = if launch == "mpi" { "[\"hostname\"]" } else { "[\"sleep\", \"60\"]" };
        shell.write("job.toml", &text.replace("[\"sh\", \"play.sh\"]", command));
        let pods = || {
            let jobs = format!("training.kubeflow.org/job-name={name}");
            let pods = || shell.cluster.get(&["pods", "-l", &jobs])["items"].as_array().unwrap().clone();
            crate::cluster::poll("4 pods", || (pods().len() >= 4).then_some(()));
            let mut list: Vec<Value> = pods();
            list.retain(|pod| !pod["metadata"]["name"].as_str().unwrap().contains("launcher"));
            list.sort_by_key(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
            list.iter().map(comparable).collect::<Vec<_>>()
        };
        let gone = || {
            let jobs = format!("training.kubeflow.org/job-name={name}");
            crate::cluster::poll("no pods", || {
                shell.cluster.get(&["pods", "-l", &jobs])["items"]
                    .as_array()
                    .unwrap()
                    .is_empty()
                    .then_some(())
            });
        };
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "-o", "json", "job.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let submitted = pods();
        shell.delete(&handle_of(&ran));
        gone();

        let plain = shell.weftrun(&["render", "-b", "kubeflow", "--fabric", "off", "job.toml"]);
        assert_eq!(plain.code, 0, "{}", plain.stderr);
        assert!(!plain.stdout.contains("amazon"), "{}", plain.stdout);
        shell.write("plain.yaml", &plain.stdout);
        let mutated = shell.weftrun(&[
            "mutate",
            "-f",
            "plain.yaml",
            "--profile",
            "dgxc",
            "--fabric",
            "efa",
            "--instance-type",
            "p5.48xlarge",
            // A job file enables this by default; a filter on an existing manifest needs the flag.
            "--detect",
            "--webhook",
            "yes",
            "--fabric-rule",
            "efa.colocate",
        ]);
        assert_eq!(mutated.code, 0, "{}", mutated.stderr);
        shell.write("mutated.yaml", &mutated.stdout);
        let applied = shell.kubectl(&["apply", "-f", "mutated.yaml"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        assert_eq!(pods(), submitted);
        shell.kubectl(&["delete", "--wait=false", "-f", "mutated.yaml"]);
        gone();
    }
}

/// Refusals: the exit code, and a sentence with the fix. Nothing is submitted.
#[test]
fn refusals_say_what_to_do() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let plain = "image = \"busybox:1.36\"\nnodes = 1\ncommand = [\"true\"]\nfabric = \"off\"\n";
    let named = |name: &str| format!("name = \"{name}\"\n{plain}");
    let taken = name("taken");
    shell.write("taken.toml", &named(&taken));
    let first = shell.weftrun(&["submit", "-b", "kubeflow", "taken.toml"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    shell.write("long.toml", &named(&format!("a{}", "b".repeat(55))));
    shell.write("v1.toml", &format!("{}[backend.kubeflow]\nkind = \"mpijob.v1\"\n", named("v1")));
    shell.write("ok.toml", &named(&name("ok")));
    shell.write("config.toml", "[target.nowhere]\nbackend = \"kubeflow\"\ncontext = \"tset\"\n");
    let cases: [(&[&str], i32, &str); 6] = [
        (&["-b", "kubeflow", "taken.toml"], 4, "--name-suffix"),
        (&["-b", "kubeflow", "long.toml"], 3, "at most"),
        (&["-b", "kubeflow", "v1.toml"], 4, "install"),
        (&["-b", "kubeflow", "-n", "other", "ok.toml"], 4, "Role"),
        (&["-b", "nowhere", "--config", "config.toml", "ok.toml"], 3, "did you mean `test`"),
        (&["-b", "kubeflow", "--kubeconfig-is-no-flag", "ok.toml"], 2, "unexpected argument"),
    ];
    for (args, code, fix) in cases {
        let mut words = vec!["submit"];
        words.extend(args);
        let ran = shell.weftrun(&words);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(fix), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}: {}", ran.stdout);
    }
    shell.cluster.expired();
    let expired = Shell::of(shell.cluster.clone(), "expired");
    expired.write("ok.toml", &named(&name("late")));
    let ran = expired.weftrun(&["submit", "-b", "kubeflow", "ok.toml"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("log in again"), "{}", ran.stderr);
    let doctor = shell.weftrun(&["doctor", "-b", "kubeflow", "-n", "other"]);
    assert_eq!(doctor.code, 4, "{}", doctor.stderr);
    for said in ["may create no job in the namespace `other`", "rbac.yaml", "pods/log"] {
        assert!(doctor.stderr.contains(said), "{said}: {}", doctor.stderr);
    }
    let doctor = shell.weftrun(&["doctor", "-b", "kubeflow"]);
    assert_eq!(doctor.code, 0, "{}", doctor.stderr);
    shell.write("tj.toml", &format!("{}[backend.kubeflow]\nkind = \"trainjob\"\n", named(&name("tj"))));
    let tried = shell.weftrun(&["submit", "-b", "kubeflow", "--dry-run=server", "tj.toml"]);
    assert_eq!(tried.code, 0, "{}", tried.stderr);
    assert!(tried.stderr.contains("[K8S-TRAINJOB-RESTARTS]"), "{}", tried.stderr);
    shell.delete(first.stdout.trim());
}

/// A user with the fewest rights can submit and follow; what is hidden is reported.
#[test]
fn a_guest_submits_and_is_told_what_is_hidden() {
    let Some(cluster) = cluster() else { return };
    let (shell, name) = (Shell::of(cluster, "guest"), name("guest"));
    let script = format!("echo \"hello from rank $RANK\"\n# {}\n", "x".repeat(20 << 10));
    shell.write("play.sh", &script);
    let text = job(&name, "per-rank", "")
        .replace("gpus_per_node = 8", "ranks_per_node = 2")
        .replace("\"efa\"", "\"off\"");
    let text = text.replace("nodes = 4", "nodes = 2").replace("profile = \"dgxc\"\n", "");
    shell.write("job.toml", &text);
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for rank in 0..4 {
        assert_eq!(ran.lines().get(&format!("hello from rank {rank}")), Some(&1), "{}", ran.stdout);
    }
    // Without the right to make ConfigMaps the script is in the command.
    assert!(!shell.cluster.kubectl(&["get", "configmap", "-o", "name"]).contains(&format!("{name}-code")));
    // A job that needs a ConfigMap is refused, and no job is left that waits for the ConfigMap.
    let insists = text.replace(&name, &format!("{name}-map"));
    shell.write("map.toml", &format!("{insists}[backend.kubeflow]\nscripts = \"configmap\"\n"));
    let refused = shell.weftrun(&["submit", "-b", "kubeflow", "map.toml"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("configmaps") && refused.stderr.contains("Role"), "{}", refused.stderr);
    crate::cluster::poll("no job", || {
        (!shell.cluster.kubectl_says(&["get", "pytorchjob", &format!("{name}-map")]).0).then_some(())
    });
    // The check of the plan is the server's dry run, which reports a taken name.
    let plan = shell.weftrun(&["plan", "-b", "kubeflow", "--online", "job.toml"]);
    assert!(plan.code == 4 && plan.stderr.contains("already exists"), "{}: {}", plan.code, plan.stderr);
    shell.write("next.toml", &text.replace(&name, &format!("{name}-next")));
    let plan = shell.weftrun(&["plan", "-b", "kubeflow", "--online", "next.toml"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(
        plan.stderr.contains("you may not read nodes") && plan.stderr.contains("resource quotas"),
        "{}",
        plan.stderr
    );
    let doctor = shell.weftrun(&["doctor", "-b", "kubeflow"]);
    let said = doctor.stdout + &doctor.stderr;
    assert!(said.contains("you may not read nodes") && said.contains("configmaps"), "{said}");
    shell.delete(&handle_of(&ran));
}

/// A pod without what differs between two pods of one template.
fn comparable(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let mut spec = pod["spec"].take();
    let map = spec.as_object_mut().unwrap();
    map.remove("nodeName");
    // Each pod gets a token of its own, in a volume whose name ends by chance.
    map.get_mut("volumes")
        .and_then(Value::as_array_mut)
        .unwrap()
        .retain(|volume| volume["projected"].is_null());
    for containers in ["containers", "initContainers"] {
        for container in map.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array_mut().unwrap();
            mounts.retain(|mount| !mount["name"].as_str().unwrap().starts_with("kube-api-access"));
        }
    }
    spec
}

pub const MAPPED: &str = "image = \"busybox:1.36\"\nlaunch = \"per-node\"\nnodes = 2\nranks_per_node = 1\nfabric = \"off\"\n\
    command = [\"sh\", \"play.sh\"]\ncode = { script = \"play.sh\" }\n[backend.kubeflow]\nscripts = \"configmap\"\n";

/// A submit that is killed after any of its requests leaves no job whose pods wait for a ConfigMap; what it left is not in the way
/// of the next, and the next command gives a ConfigMap to its job.
#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_is_killed_leaves_no_job_that_hangs() {
    let Some(cluster) = cluster() else { return };
    for request in 1..=3 {
        let holding = Holding::start(&cluster, request).await;
        let (mut shell, name) = (Shell::of(cluster.clone(), "researcher"), name("killed"));
        shell.write("play.sh", "echo done\n");
        shell.write("job.toml", &format!("name = \"{name}\"\n{MAPPED}"));
        let direct = std::mem::replace(&mut shell.kubeconfig, holding.proxy.kubeconfig.clone());
        let mut child =
            shell.command(&shell.binary, &["submit", "-b", "kubeflow", "job.toml"]).spawn().unwrap();
        holding.held().await;
        child.kill().unwrap();
        child.wait().unwrap();
        shell.kubeconfig = direct;
        let exists = || cluster.kubectl_says(&["get", "pytorchjob", &name]).0;
        // The first request is the ConfigMap's, the second the job's, the third gives the one to the other.
        assert_eq!(exists(), request > 1, "request {request}");
        if !exists() {
            let again = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
            assert_eq!(again.code, 0, "{}", again.stderr);
        }
        let listed = shell.weftrun(&["list", "-a", "-b", "kubeflow"]);
        assert_eq!(listed.code, 0, "{}", listed.stderr);
        crate::cluster::poll("the job's end", || {
            let phase = "jsonpath={.status.conditions[?(@.type=='Succeeded')].status}";
            (cluster.kubectl(&["get", "pytorchjob", &name, "-o", phase]) == "True").then_some(())
        });
        let object = cluster.get(&["pytorchjob", &name]);
        let of = object["metadata"]["labels"]["weftrun.dev/submission"].as_str().unwrap().to_owned();
        let map = &cluster.get(&["configmap", "-l", &format!("weftrun.dev/submission={of}")])["items"][0];
        assert_eq!(
            map["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"],
            "request {request}: {map}"
        );
        cluster.kubectl(&["delete", "pytorchjob", &name, "--wait=false"]);
    }
}

/// Ctrl-C while a plain submit waits for the cluster's answer: the handle of the job that was made is printed, and the exit code is 130.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_submit_names_its_job() {
    let Some(cluster) = cluster() else { return };
    let holding = Holding::start(&cluster, 2).await;
    let (mut shell, name) = (Shell::of(cluster.clone(), "researcher"), name("ctrlc"));
    shell.write("play.sh", "echo done\n");
    shell.write("job.toml", &format!("name = \"{name}\"\n{MAPPED}"));
    shell.kubeconfig = holding.proxy.kubeconfig.clone();
    let mut command = shell.command(&shell.binary, &["submit", "-b", "kubeflow", "job.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    holding.held().await;
    let interrupt = || {
        let done = child::command("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(done.success());
    };
    interrupt();
    // The answer is released once the client has printed that it waits for it.
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    while !stderr.contains("waiting for the cluster's answer") {
        let read = std::io::BufRead::read_line(&mut said, &mut stderr).unwrap();
        assert!(read > 0, "{stderr}");
    }
    holding.release();
    std::io::Read::read_to_string(&mut said, &mut stderr).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{stderr}");
    let handle = ran.stdout.trim();
    assert!(handle.starts_with("kubeflow://") && handle.contains(&name), "{handle}");
    assert!(stderr.contains("the job keeps running") && stderr.contains(handle), "{stderr}");
    cluster.kubectl(&["delete", "pytorchjob", &name, "--wait=false"]);
}
