//! A job whose node failed is submitted again without that node, exactly once, though every answer is lost.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{TestCluster, WAYS};
use crate::run::{User, said};

/// A job of one node, which fails on the first node that it runs on.
fn job(name: &str, line: &str) -> String {
    let script = format!(
        "f=$HOME/{name}; [ -s $f ] || echo $SLURMD_NODENAME > $f; \
         if [ $(cat $f) = $SLURMD_NODENAME ]; then echo '{line}'; exit 1; fi; echo fine"
    );
    format!("name = \"{name}\"\nfabric = \"off\"\nretry = 2\ncommand = [\"sh\", \"-c\", \"{script}\"]\n")
}

#[test]
fn the_node_that_failed_is_left_out_though_answers_are_lost() {
    let Some(cluster) = TestCluster::find() else { return };
    let ways = WAYS.into_iter();
    let faults = [
        ("silent", "\"$real\" \"$@\" > /dev/null; exit 1"),
        ("killed", "\"$real\" \"$@\"; kill -9 $PPID"),
        (
            "late",
            "t=$(mktemp); cat > $t; (sleep 4; \"$real\" \"$@\" < $t) > /dev/null 2>&1 &\n\
             echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
        ),
    ];
    for (way, (fault, script)) in ways.flat_map(|way| faults.map(|fault| (way, fault))) {
        let script = format!("case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n{script}");
        let programs = cluster.wrapper(way, "sbatch", &script);
        let user = User::new(
            &cluster,
            way,
            &[("bin-dir", &programs.display().to_string()), ("command-seconds", "5")],
        );
        let name = format!("retry-{fault}-{way:?}-{}", std::process::id()).to_lowercase();
        let line = "NVRM: Xid (PCI:0000:b3:00): 79, pid=7, name=python, GPU has fallen off the bus.";
        user.file("job.toml", &job(&name, line));
        let output = user.weftrun(&["submit", "--follow", "job.toml"]);
        assert_eq!(output.status.code(), Some(0), "{way:?}: {}", said(&output));
        assert_eq!((cluster.count(&name), cluster.count(&format!("{name}-r2"))), (1, 1), "{way:?}");
        assert_eq!(cluster.count(&format!("{name}-r3")), 0, "{way:?}");
        let output = user.weftrun(&["nodes", "--offline", "-o", "json"]);
        let nodes: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let (first, second) = (&nodes["nodes"][0], &nodes["nodes"][1]);
        assert_eq!(
            (&first["judgement"], &second["judgement"]),
            (&"suspect".into(), &"clear".into()),
            "{nodes}"
        );
        let first = said(&user.weftrun(&["describe", &name]));
        assert!(first.contains("after   2/3 slurm://"), "{first}");
        let bad = first.lines().find_map(|line| line.split("node list ").nth(1)).unwrap_or_default();
        assert!(first.contains(&format!("a rank on {}", bad.trim())), "{first}");
        let listed = said(&user.weftrun(&["list", "--all"]));
        let lines = listed.lines().filter(|line| line.contains(&name)).count();
        assert!(lines == 1 && listed.contains("attempt 2/3"), "{listed}");
    }
}

/// One task fails for its node, another one for its program: each cause is in the history, once, and the array is not submitted again.
#[test]
fn each_task_of_an_array_is_one_run() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, WAYS[0], &[]);
    let name = format!("mixed-{}", std::process::id());
    let script = "case $WEFTRUN_TASK in 0) echo 'ValueError: bad sample'; exit 1;; \
        1) echo 'NVRM: Xid (PCI:0000:b3:00): 119, pid=7, Timeout waiting for RPC from GSP'; exit 1;; esac";
    user.file(
        "job.toml",
        &format!(
            "name = \"{name}\"\nfabric = \"off\"\narray = \"0-2\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"
        ),
    );
    let output = user.weftrun(&["submit", "--follow", "job.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let handle = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned();
    let exported = || {
        let output = user.weftrun(&["history", "--export", "-o", "json"]);
        let export: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        export["records"].as_array().cloned().unwrap_or_default()
    };
    // However often, and through whichever handle.
    for job in [handle.clone(), format!("{handle}_1"), handle.clone()] {
        user.weftrun(&["why", &job]);
    }
    let records = exported();
    let mut tasks: Vec<(u64, String)> = records
        .iter()
        .map(|record| {
            (
                record["task"].as_u64().unwrap_or(99),
                record["cause"]["fault"].as_str().unwrap_or("-").to_owned(),
            )
        })
        .collect();
    tasks.sort();
    assert_eq!(tasks, [(0, "-".to_owned()), (1, "node".to_owned()), (2, "-".to_owned())], "{records:#?}");
    assert!(records.iter().all(|record| record["set"] == handle.as_str()), "{records:#?}");
    let nodes = user.weftrun(&["nodes", "--offline", "-o", "json"]);
    let nodes: Value = serde_json::from_slice(&nodes.stdout).expect("JSON");
    let count = |judgement: &str| {
        nodes["nodes"].as_array().into_iter().flatten().filter(|node| node["judgement"] == judgement).count()
    };
    assert_eq!((count("suspect"), count("watched")), (0, 1), "one event proves nothing: {nodes:#}");
    for job in [handle.clone(), format!("{handle}_1")] {
        let output = user.weftrun(&["retry", &job]);
        assert!(said(&output).contains("submit the tasks that failed"), "{}", said(&output));
    }
    assert_eq!(cluster.count(&format!("{name}-r2")), 0);
}

/// The files of the folder are those of the first submission, though the folder has changed.
#[test]
fn an_attempt_has_the_code_of_the_first_one() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, WAYS[0], &[]);
    let name = format!("code-{}", std::process::id());
    std::fs::create_dir_all(user.dir().join("code")).expect("a folder");
    let script = format!(
        "f=$HOME/{name}; [ -e $f ] && echo version one && exit 0; touch $f; echo 'NVRM: Xid (PCI:0000:b3:00): 79, pid=7, GPU has fallen off the bus.'; exit 1\n"
    );
    user.file("code/train.sh", &script);
    user.file(
        "job.toml",
        &format!("name = \"{name}\"\nfabric = \"off\"\ncode = {{ dir = \"code\" }}\ncommand = [\"sh\", \"train.sh\"]\n"),
    );
    let output = user.weftrun(&["submit", "--wait", "job.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    user.file("code/train.sh", "echo version two\n");
    let output = user.weftrun(&["wait", "--retry", "2", &name]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let logs = said(&user.weftrun(&["logs", &format!("{name}-r2")]));
    assert!(logs.contains("version one") && !logs.contains("version two"), "{logs}");
}

#[test]
fn a_program_that_fails_is_not_submitted_again() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, WAYS[0], &[]);
    let name = format!("bug-{}", std::process::id());
    user.file("job.toml", &job(&name, "ValueError: bad sample"));
    let output = user.weftrun(&["submit", "--wait", "job.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("not submitted again: "), "{}", said(&output));
    assert_eq!((cluster.count(&name), cluster.count(&format!("{name}-r2"))), (1, 0));
}

/// A job that Slurm puts back into its queue is Slurm's to start; one that it only ended is submitted again, on any node.
#[test]
fn a_preempted_job_is_submitted_again_only_where_slurm_does_not_start_it() {
    let Some(cluster) = TestCluster::find() else { return };
    let node = "inference-gpu-st-g5-1";
    cluster.ctl(&format!("head -u root scontrol create PartitionName=urgent Nodes={node} PriorityTier=10"));
    let user = User::new(&cluster, WAYS[0], &[]);
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_mins(1);
        while !done() {
            assert!(Instant::now() < end, "{what}: not within a minute");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    for requeue in [true, false] {
        let name = format!("taken-{requeue}-{}", std::process::id());
        let script = format!("f=/fsx/logs/{name}; [ -e $f ] && echo again && exit 0; touch $f; sleep 300");
        user.file(
            "job.toml",
            &format!(
                "name = \"{name}\"\nqueue = \"inference-gpu\"\nfabric = \"off\"\nretry = 2\n\
                 backend.slurm.requeue = {requeue}\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"
            ),
        );
        let output = user.weftrun(&["submit", "job.toml"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let mark = cluster.dir.join("shared/fsx/logs").join(&name);
        until("the job runs", &|| mark.exists());
        let mut waits = user.command(&["wait", &name]);
        let waits = waits.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
        cluster.ctl("head sbatch -p urgent --exclusive -o /dev/null --wrap 'sleep 5'");
        let states = || cluster.ctl(&format!("head squeue -h -t all -n {name} -o %T"));
        until("its node was taken", &|| {
            let states = states();
            states.contains("PENDING") || states.contains("PREEMPTED")
        });
        if requeue {
            let refused = user.weftrun(&["retry", &name]);
            assert!(said(&refused).contains("not submitted again: "), "{}", said(&refused));
            // A requeued job waits for two minutes.
            cluster.ctl(&format!("head -u root scontrol update JobName={name} StartTime=now"));
        }
        let waited = waits.wait_with_output().expect("it ends");
        assert_eq!(waited.status.code(), Some(0), "{requeue}: {} {}", said(&waited), states());
        let attempts = (cluster.count(&name), cluster.count(&format!("{name}-r2")));
        assert_eq!(attempts, (1, usize::from(!requeue)), "{}", said(&waited));
        assert!(!said(&waited).contains(&format!("without {node}")), "{}", said(&waited));
    }
    cluster.ctl("head -u root scontrol delete PartitionName=urgent");
}
