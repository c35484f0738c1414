//! `weftrun health` on a job whose task plays NCCL's RAS service.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{TestCluster, Way};
use crate::run::{User, said};

#[test]
fn the_rank_that_hangs_is_named_from_inside_the_step() {
    let Some(cluster) = TestCluster::find() else { return };
    let user = User::new(&cluster, Way::Ssh, &[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let server = std::fs::read_to_string(root.join("../testkit/data/ras_server.py")).unwrap();
    let recorded = std::fs::read_to_string(root.join("../nccl/tests/data/ras/v2.28.9/hang.jsonl")).unwrap();
    // One file, which carries the recording: the script is all that is sent.
    let program = format!(
        "import sys, tempfile\nf = tempfile.NamedTemporaryFile('w', delete=False)\nf.write({})\nf.close()\n\
         sys.argv = ['x', f.name, '28417']\n{}",
        Value::from(recorded),
        server.split_once("\n\"\"\"\n").expect("the docstring").1
    );
    user.file("ras.py", &program);
    user.file(
        "job.toml",
        "name = \"health\"\nlaunch = \"per-node\"\ncommand = [\"python3\", \"ras.py\"]\ncode = { script = \"ras.py\" }\n",
    );
    let output = user.weftrun(&["submit", "job.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let handle = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // Generous: the machine may be busy with the other tests.
    let until = Instant::now() + Duration::from_mins(2);
    let report = loop {
        let output = user.weftrun(&["health", "--observe", "0s", "-o", "json", &handle]);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
        if report["state"] != "unreachable" {
            break report;
        }
        assert!(Instant::now() < until, "{report:#}");
        std::thread::sleep(Duration::from_millis(500));
    };
    let output = user.weftrun(&["cancel", &handle]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(
        (&report["state"], &report["culprits"][0]["rank"]),
        (&"suspect".into(), &3.into()),
        "{report:#}"
    );
}
