//! `weftrun verify` with real jobs, whose benchmark is a program that prints low figures on one node.

use serde_json::Value;

use crate::bed::{Bed, Way};
use crate::run::{User, said};

/// Replaces PyTorch: prints a table whose bandwidth is low if the job includes the slow node.
const PYTHON: &str = r##"#!/bin/bash
[ "$2" = "import torch" ] && exit 0
[ "$RANK" = 0 ] || exit 0
busbw=350.0
case " $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ') " in *" SLOW "*) busbw=90.0 ;; esac
echo "# weftrun-verify all_reduce"
echo "2147483648 536870912 float sum -1 51000.0 42.1 $busbw 0"
"##;

/// The slow one of four nodes is found by jobs on the nodes that the search selects.
#[test]
fn the_slow_node_is_found_by_jobs_on_parts_of_the_nodes() {
    let Some(bed) = Bed::find() else { return };
    let folder = format!("/fsx/verify-{}", std::process::id());
    let user = User::new(&bed, Way::Ssh, &[]);
    let job = format!(
        "name = \"measure\"\nnodes = 4\nranks_per_node = 1\ninstance_type = \"p4de.24xlarge\"\ncommand = [\"replaced\"]\n\
         [backend.slurm]\nsetup = [\"export PATH={folder}:$PATH\"]\n"
    );
    user.file("job.toml", &job);
    for slow in ["", "compute-gpu-st-p4de-3"] {
        let program = PYTHON.replace("SLOW", if slow.is_empty() { "none" } else { slow });
        let path = bed.dir.join("shared").join(folder.trim_start_matches('/'));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("python3"), program).expect("written");
        bed.sh(&format!("chmod -R a+rx {}", path.display()));
        let output = user.weftrun(&["verify", "job.toml", "--bisect=always", "-o", "json"]);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        let search = &report["search"];
        let found: Vec<&str> =
            search["slow_nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = said(&output);
        assert_eq!(found, if slow.is_empty() { vec![] } else { vec![slow] }, "{text}");
        assert_eq!(search["reason"].is_null(), !slow.is_empty(), "{text}");
        assert!(search["jobs"].as_u64().is_some_and(|jobs| (2..=6).contains(&jobs)), "{text}");
        for group in search["groups"].as_array().expect("groups") {
            let nodes: Vec<&str> =
                group["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let expected = if nodes.contains(&slow) { 90.0 } else { 350.0 };
            assert_eq!(group["busbw_gbps"], expected, "the job ran on other nodes: {text}");
        }
    }
}
