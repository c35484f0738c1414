//! A job whose node failed is submitted again without that node, exactly once, through a connection that loses answers and turns
//! requests away.

use serde_json::Value;

use crate::cluster::{TestCluster, cluster, name, poll};
use crate::losing::Losing;
use crate::refusing::{Refusing, Turn};
use crate::shell::Shell;

const XID: &str = "NVRM: Xid (PCI:0000:b3:00): 79, pid=7, name=python, GPU has fallen off the bus.";

/// A job whose first attempt runs a script, and whose second one succeeds.
fn job(name: &str, nodes: u32, script: &str) -> String {
    let script = format!("case $(hostname) in *-r2-*) echo fine; exit 0;; esac; {script}");
    format!(
        "name = \"{name}\"\nimage = \"busybox:1.36\"\nnodes = {nodes}\nfabric = \"off\"\nlaunch = \"per-node\"\n\
         command = [\"sh\", \"-c\", \"{script}\"]\n"
    )
}

/// Returns how many jobs have a name, or one that begins so.
fn jobs(cluster: &TestCluster, name: &str) -> Vec<String> {
    let all = cluster.get(&["pytorchjobs"]);
    let names =
        all["items"].as_array().into_iter().flatten().filter_map(|job| job["metadata"]["name"].as_str());
    let mut names: Vec<String> = names.filter(|own| own.starts_with(name)).map(str::to_owned).collect();
    names.sort();
    names
}

/// Returns the node of a pod.
fn node_of(cluster: &TestCluster, pod: &str) -> String {
    let node = || cluster.get(&["pod", pod])["spec"]["nodeName"].as_str().map(str::to_owned);
    poll("the pod has a node", node)
}

/// Returns the nodes that a pod must not run on.
fn left_out(cluster: &TestCluster, pod: &str) -> Vec<String> {
    let pod = cluster.get(&["pod", pod]);
    let affinity = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions";
    let expressions = pod.pointer(affinity).and_then(Value::as_array).cloned().unwrap_or_default();
    let not = expressions.iter().filter(|one| one["operator"] == "NotIn");
    not.flat_map(|one| one["values"].as_array().cloned().unwrap_or_default())
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn the_node_of_a_dead_hca_is_left_out() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster.clone(), "researcher");
    let name = name("retry-ib");
    // Rank 1 says that its HCA has lost its port, and ends.
    let script = "h=$(hostname); r=$WEFTRUN_NODE_RANK; case $h in *-worker-1) r=1;; *) r=0;; esac; \
        echo $h:41:41 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.$r'<0>'; \
        echo $h:41:43 [0] NCCL INFO ncclCommInitRank comm 0x1 rank $r nranks 2 cudaDev 0 nvmlDev 0 busId b3000 commId 0x9 - Init START; \
        [ $r = 0 ] && exec sleep 20; \
        echo $h:41:60 [0] transport/net_ib.cc:96 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error; exit 1";
    shell.write("job.toml", &job(&name, 2, script));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "--retry", "2", "job.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(jobs(&cluster, &name), [name.clone(), format!("{name}-r2")], "{}", ran.stderr);
    let bad = node_of(&cluster, &format!("{name}-worker-1"));
    for worker in 0..2 {
        let pod = format!("{name}-r2-worker-{worker}");
        assert_eq!(left_out(&cluster, &pod), std::slice::from_ref(&bad), "{}", ran.stderr);
        assert_ne!(node_of(&cluster, &pod), bad);
    }
    let nodes: Value =
        serde_json::from_str(&shell.weftrun(&["nodes", "-b", "kubeflow", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        (&nodes["nodes"][0]["node"], &nodes["nodes"][0]["judgement"]),
        (&bad.into(), &"suspect".into())
    );
    let listed = shell.weftrun(&["list", "-b", "kubeflow", "--all"]).stdout;
    let lines: Vec<&str> = listed.lines().filter(|line| line.contains(&name)).collect();
    assert!(lines.len() == 1 && lines[0].contains("attempt 2/3"), "{listed}");
    for own in [format!("{name}-r2"), name] {
        shell.weftrun(&["delete", "--yes", "-b", "kubeflow", &own]);
    }
}

/// Under a lost answer, 429, 500, 503 and a connection that is reset, an attempt is one job; asked for again, it is the same one.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_one_job_under_every_fault() {
    let Some(cluster) = cluster() else { return };
    let (losing, refusing) = (Losing::start(&cluster).await, Refusing::start(&cluster).await);
    losing.armed.store(false, std::sync::atomic::Ordering::SeqCst);
    for fault in ["lost", "429", "500", "503", "reset"] {
        let mut shell = Shell::of(cluster.clone(), "researcher");
        let name = name("retry-once");
        shell.write("job.toml", &job(&name, 1, &format!("echo '{XID}'; exit 1")));
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--wait", "job.toml"]);
        assert_eq!(ran.code, 1, "{fault}: {}", ran.stderr);
        let direct = shell.kubeconfig.clone();
        shell.kubeconfig = if fault == "lost" { &losing.proxy } else { &refusing.proxy }.kubeconfig.clone();
        // The dry run and the create, with requests between them.
        match fault {
            "lost" => losing.armed.store(true, std::sync::atomic::Ordering::SeqCst),
            "429" => refusing.turn_away(&[Turn::Later, Turn::Pass, Turn::Later, Turn::Later]),
            "500" => refusing.turn_away(&[Turn::Broken, Turn::Pass, Turn::Broken, Turn::Pass, Turn::Broken]),
            "503" => refusing.turn_away(&[Turn::Pass, Turn::Unavailable, Turn::Pass, Turn::Unavailable]),
            _ => refusing.turn_away(&[Turn::Reset, Turn::Pass, Turn::Reset, Turn::Pass, Turn::Reset]),
        }
        // Whatever a client is told, asking again continues with the same attempt.
        let mut said = String::new();
        for _ in 0..4 {
            let ran = shell.weftrun(&["retry", "-b", "kubeflow", &name]);
            said += &ran.stderr;
            if ran.code == 0 {
                break;
            }
        }
        shell.kubeconfig = direct;
        assert_eq!(jobs(&cluster, &name), [name.clone(), format!("{name}-r2")], "{fault}: {said}");
        let again = shell.weftrun(&["retry", "-b", "kubeflow", &name]);
        assert!(
            again.code == 0 && again.stderr.contains("was submitted before"),
            "{fault}: {}",
            again.stderr
        );
        assert_eq!(jobs(&cluster, &name).len(), 2, "{fault}");
        let bad = node_of(&cluster, &format!("{name}-worker-0"));
        assert_eq!(left_out(&cluster, &format!("{name}-r2-worker-0")), [bad], "{fault}");
        for own in [format!("{name}-r2"), name] {
            shell.weftrun(&["delete", "--yes", "-b", "kubeflow", &own]);
        }
    }
    assert!(!losing.armed.load(std::sync::atomic::Ordering::SeqCst), "an answer was lost");
}

#[test]
fn an_exception_is_not_submitted_again() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster.clone(), "researcher");
    let name = name("retry-bug");
    let script = "echo 'Traceback (most recent call last):'; echo 'ValueError: bad sample'; exit 1";
    shell.write("job.toml", &job(&name, 1, script));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--wait", "--retry", "3", "job.toml"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("not submitted again: "), "{}", ran.stderr);
    assert_eq!(jobs(&cluster, &name), std::slice::from_ref(&name));
    shell.weftrun(&["delete", "--yes", "-b", "kubeflow", &name]);
}

/// The operator starts a failed pod again, and one whose node was drained: nothing is submitted meanwhile, nor afterwards.
#[test]
fn a_job_that_the_operator_starts_again_is_not_submitted_again() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster.clone(), "researcher");
    let name = name("retry-restart");
    // The second start of the container, on the same pod, finds what the first one left.
    let script = format!("[ -e /dev/shm/once ] && exec sleep 15; touch /dev/shm/once; echo '{XID}'; exit 1");
    shell.write("job.toml", &format!("{}restart = {{ max = 3 }}\n", job(&name, 1, &script)));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--retry", "2", "job.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let pod = format!("{name}-worker-0");
    let restarted = || {
        let status = &cluster.get(&["pod", &pod])["status"]["containerStatuses"][0];
        (status["restartCount"].as_u64()? > 0 && status["state"]["running"].is_object()).then_some(())
    };
    poll("the pod runs again", restarted);
    let refused = shell.weftrun(&["retry", "-b", "kubeflow", &name]);
    assert!(refused.code != 0 && refused.stderr.contains("not submitted again: "), "{}", refused.stderr);
    let waited = shell.weftrun(&["wait", "-b", "kubeflow", "--retry", "2", &name]);
    assert_eq!(waited.code, 0, "{}", waited.stderr);
    assert_eq!(jobs(&cluster, &name), std::slice::from_ref(&name), "{}", waited.stderr);
    shell.weftrun(&["delete", "--yes", "-b", "kubeflow", &name]);
}

/// A pod that the scheduler takes away is the operator's to start again, where the job says so; else its job is submitted again, on
/// any node.
#[test]
fn alone_a_preempted_job_is_submitted_again_only_where_nobody_starts_it() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(
        "{apiVersion: v1, kind: List, items: [\
        {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: retry-low}, value: 10},\
        {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: retry-high}, value: 1000}]}",
    );
    let shell = Shell::of(cluster.clone(), "researcher");
    for restart in [true, false] {
        let name = name("retry-taken");
        // Only the first pod of the first attempt waits to be preempted.
        let text = job(&name, 1, "exec sleep 600");
        let restarts = if restart { "restart = { max = 3 }\n" } else { "" };
        let target = "[backend.kubeflow]\nnode-selector = { \"kubernetes.io/hostname\" = \"node-2\" }\n";
        let text =
            format!("{text}gpus_per_node = 8\npriority = \"retry-low\"\nretry = 2\n{restarts}{target}");
        shell.write("job.toml", &text);
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let pod = format!("{name}-worker-0");
        let running = |pod: &str| {
            let found =
                cluster.kubectl_says(&["get", "pod", pod, "-o", "jsonpath={.metadata.uid} {.status.phase}"]);
            found.1.trim().strip_suffix(" Running").map(str::to_owned)
        };
        let first = poll("the pod runs", || running(&pod));
        cluster.apply(
            "{apiVersion: v1, kind: Pod, metadata: {name: retry-taker}, spec: {priorityClassName: retry-high, \
             nodeSelector: {kubernetes.io/hostname: node-2}, terminationGracePeriodSeconds: 0, containers: [{name: c, \
             image: 'busybox:1.36', command: [sleep, '600'], resources: {limits: {nvidia.com/gpu: 8}}}]}}",
        );
        poll("the node was taken", || running("retry-taker"));
        if restart {
            let refused = shell.weftrun(&["retry", "-b", "kubeflow", &name]);
            assert!(
                refused.code != 0 && refused.stderr.contains("not submitted again: "),
                "{}",
                refused.stderr
            );
            cluster.kubectl(&["delete", "pod", "retry-taker", "--now"]);
            let again = poll("the pod runs again", || running(&pod));
            assert_ne!(first, again);
            assert_eq!(jobs(&cluster, &name), std::slice::from_ref(&name));
        } else {
            cluster.kubectl(&["delete", "pod", "retry-taker", "--now"]);
            let waited = shell.weftrun(&["wait", "-b", "kubeflow", &name]);
            assert_eq!(waited.code, 0, "{}", waited.stderr);
            let second = format!("{name}-r2");
            assert_eq!(jobs(&cluster, &name), [name.clone(), second.clone()], "{}", waited.stderr);
            assert!(left_out(&cluster, &format!("{second}-worker-0")).is_empty(), "{}", waited.stderr);
            shell.weftrun(&["delete", "--yes", "-b", "kubeflow", &second]);
        }
        shell.weftrun(&["delete", "--yes", "-b", "kubeflow", &name]);
    }
    cluster.kubectl(&["delete", "priorityclass", "retry-low", "retry-high"]);
}

/// One task fails for its node, another one for its program: each cause is in the history, once, through whichever handle it is seen.
#[test]
fn each_task_of_a_sweep_is_one_run() {
    let Some(cluster) = cluster() else { return };
    let shell = Shell::of(cluster, "researcher");
    let name = name("retry-sweep");
    let script = "case {seed} in 7) echo 'ValueError: bad sample'; exit 1;; \
        8) echo 'NVRM: Xid (PCI:0000:b3:00): 119, pid=7, Timeout waiting for RPC from GSP'; exit 1;; esac";
    let job = job(&name, 1, script);
    shell.write("job.toml", &format!("{job}[sweep]\nseed = [6, 7, 8]\n"));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--wait", "job.toml"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let handle = ran.stdout.lines().next().unwrap_or_default().trim().to_owned();
    let tasks = shell.weftrun(&["list", "-b", "kubeflow", "--all", "--all-tasks", "-o", "name"]).stdout;
    let own = tasks.lines().filter(|line| line.contains(&name));
    for job in own.chain([handle.as_str()]) {
        shell.weftrun(&["why", job]);
    }
    let export = shell.weftrun(&["history", "-b", "kubeflow", "--export", "-o", "json"]).stdout;
    let export: Value = serde_json::from_str(&export).unwrap();
    let records = export["records"].as_array().unwrap();
    let mut found: Vec<(u64, &str)> = records
        .iter()
        .map(|record| {
            (record["task"].as_u64().unwrap_or(99), record["cause"]["fault"].as_str().unwrap_or("-"))
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(0, "-"), (1, "-"), (2, "node")], "{records:#?}");
    assert!(records.iter().all(|record| record["set"] == records[0]["set"]), "{records:#?}");
    let refused = shell.weftrun(&["retry", &handle]);
    assert!(refused.stderr.contains("submit the tasks that failed"), "{}", refused.stderr);
    shell.weftrun(&["delete", "--yes", &handle]);
}
