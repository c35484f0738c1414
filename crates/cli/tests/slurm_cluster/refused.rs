//! What the cluster refuses, or would never start, ends `submit` before there is a job: exit code 4, one clear message.

use crate::cluster::{TestCluster, WAYS};
use crate::run::{User, said};

#[test]
fn what_can_never_run_is_refused_before_it_is_submitted() {
    let Some(cluster) = TestCluster::find() else { return };
    let cases = [
        ("nodes", "nodes = 9\ninstance_type = \"p4de.24xlarge\"", "9 nodes"),
        ("type", "nodes = 2\ninstance_type = \"p5en.48xlarge\"", "no partition has p5en.48xlarge"),
        ("elsewhere", "queue = \"inference-gpu\"\ninstance_type = \"p5.48xlarge\"", "has no p5.48xlarge"),
        ("limit", "queue = \"inference-gpu\"\ntime_limit = \"24h\"", "requested 24 h"),
        (
            "cpus",
            "cpus = 500",
            "requested 500 CPUs a node, but the nodes of partition `compute-gpu` have at most 128",
        ),
        (
            "gpus",
            "gpus_per_node = 16",
            "requested 16 GPUs a node, but the nodes of partition `compute-gpu` have at most 8",
        ),
        (
            "fabric",
            "nodes = 2\ngpus_per_node = 8\nfabric = \"infiniband\"",
            "show efa (4 nodes, p4de.24xlarge)",
        ),
        ("partition", "queue = \"nope\"", "no partition `nope`"),
    ];
    for way in WAYS {
        for (case, lines, wanted) in cases {
            let user = User::new(&cluster, way, &[]);
            let name = format!("never-{case}");
            user.file("job.toml", &format!("name = \"{name}\"\n{lines}\ncommand = [\"true\"]\n"));
            let output = user.weftrun(&["submit", "job.toml"]);
            let text = said(&output);
            assert_eq!(output.status.code(), Some(4), "{way:?} {case}: {text}");
            assert!(text.contains(wanted) && output.stdout.is_empty(), "{way:?} {case}: {text}");
            assert_eq!(cluster.count(&name), 0, "{way:?} {case}");
        }
    }
}
