//! A job whose node failed is submitted again without that node, exactly once, though every answer is lost.

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
    for way in WAYS {
        let script = "case \" $* \" in *' --test-only '*) exec \"$real\" \"$@\";; esac\n\"$real\" \"$@\" > /dev/null; exit 1";
        let programs = cluster.wrapper(way, "sbatch", script);
        let user = User::new(
            &cluster,
            way,
            &[("bin-dir", &programs.display().to_string()), ("command-seconds", "5")],
        );
        let name = format!("retry-{way:?}-{}", std::process::id()).to_lowercase();
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
        assert!(said(&user.weftrun(&["list", "--all"])).contains("attempt 2"));
    }
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
