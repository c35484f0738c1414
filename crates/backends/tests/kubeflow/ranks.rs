//! `logs --rank`.

use crate::cluster::{cluster, name, poll};
use crate::replayed::{handle_of, job, over_efa};
use crate::shell::{Shell, whole_cluster};
use crate::submit::MAPPED;

/// `logs --rank` prints the lines of a rank, even if its rank is proved only by later lines, and no others;
/// an unknown rank is an error.
#[test]
fn logs_of_one_rank_are_that_ranks_and_an_unknown_rank_is_an_error() {
    let Some(cluster) = cluster() else { return };
    let _whole = whole_cluster();
    let (shell, name) = (Shell::of(cluster, "researcher"), name("cli-rank"));
    let (replay, script) = over_efa();
    shell.write("play.sh", &script);
    shell.write("job.toml", &job(&name, "per-rank", ""));
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "--follow", "-o", "json", "job.toml"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stderr, ran.ended());
    let handle = handle_of(&ran);
    for rank in [0u32, 5, 31] {
        let mut log = Vec::new();
        replay.write_log(rank, &mut log).unwrap();
        let wanted: Vec<String> =
            String::from_utf8(log).unwrap().lines().map(|line| line.replace("tcp;ofi_rxm", "efa")).collect();
        let read = shell.weftrun(&["logs", "--no-prefix", "--rank", &rank.to_string(), &handle]);
        assert_eq!(read.code, 0, "{}", read.stderr);
        let mut seen: Vec<&str> = read.stdout.lines().collect();
        // Lines without NCCL's prefix prove no rank.
        let mut proved: Vec<&str> =
            wanted.iter().map(String::as_str).filter(|line| line.contains("NCCL")).collect();
        seen.retain(|line| line.contains("NCCL"));
        seen.sort_unstable();
        proved.sort_unstable();
        assert_eq!(seen, proved, "rank {rank}");
    }
    let unknown = shell.weftrun(&["logs", "--rank", "30-40", &handle]);
    assert_eq!(unknown.code, 6, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no output of rank 32-40 was found"), "{}", unknown.stderr);
    assert!(unknown.stdout.contains("NCCL"), "the ranks that are there are printed");
    shell.delete(&handle);
}

/// Where each pod runs one process, its number is its rank, without a line of NCCL's.
#[test]
fn the_rank_of_a_pod_with_one_process_is_known() {
    let Some(cluster) = cluster() else { return };
    // With torchrun the first is the master, for which the workers' init containers wait: it runs until the worker has written.
    for (launch, file) in [("per-node", "play.sh"), ("torchrun", "play.py")] {
        let (shell, name) = (Shell::of(cluster.clone(), "researcher"), name("cli-one"));
        let waits = if launch == "torchrun" {
            "while [ $RANK = 0 ] && [ ! -e /tmp/end ]; do sleep 0.2; done"
        } else {
            ""
        };
        shell.write(file, &format!("echo I am $RANK\n{waits}\n"));
        let text = format!("name = \"{name}\"\n{MAPPED}").replace("per-node", launch);
        let text =
            if launch == "torchrun" { text.replace("\"sh\", ", "").replace("play.sh", file) } else { text };
        shell.write("job.toml", &text);
        let ran = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let handle = ran.stdout.trim();
        if launch == "torchrun" {
            let (master, worker) = (format!("{name}-master-0"), format!("{name}-worker-0"));
            poll("the worker's line", || {
                cluster.kubectl_says(&["logs", &worker]).1.contains("I am 1").then_some(())
            });
            poll("the master's end", || {
                cluster.kubectl_says(&["exec", &master, "--", "touch", "/tmp/end"]).0.then_some(())
            });
        }
        let waited = shell.weftrun(&["wait", handle]);
        assert_eq!(waited.code, 0, "{}", waited.stderr);
        for rank in 0..2 {
            let read = shell.weftrun(&["logs", "--no-prefix", "--rank", &rank.to_string(), handle]);
            assert_eq!(
                (read.code, read.stdout.trim()),
                (0, format!("I am {rank}").as_str()),
                "{}",
                read.stderr
            );
        }
        assert_eq!(shell.weftrun(&["logs", "--rank", "2", handle]).code, 6);
        shell.delete(handle);
    }
}
