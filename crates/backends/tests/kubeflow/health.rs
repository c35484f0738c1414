//! `weftrun health` on a job whose pods play NCCL's RAS service.

use std::path::Path;

use serde_json::Value;

use crate::bed::{bed, name, poll};
use crate::shell::Shell;

/// The service as a shell can play it: it knows only text, as NCCL before 2.28.7.
const SERVER: &str = r#"
if [ "$1" = talk ]; then
    while IFS= read -r line; do
        case $line in
        "CLIENT PROTOCOL 2") echo "SERVER PROTOCOL 2" ;;
        TIMEOUT*) echo OK ;;
        *STATUS) cat "${0%/*}/report" 2>/dev/null || printf '%s' "$REPORT"; exit ;;
        *) echo "ERROR: Unknown command $line" ;;
        esac
    done
    exit
fi
echo "vm:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda13.0"
echo "vm:7:7 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>"
exec nc -ll -p 28028 -e sh "$0" talk
"#;

fn report() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl/tests/data/ras/v2.28.9/hang.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    first["talk"][1]["got"].as_str().unwrap().to_owned()
}

#[test]
fn the_rank_that_hangs_is_named_from_inside_the_pod() {
    let Some(bed) = bed() else { return };
    let name = name("health");
    let shell = Shell::of(bed, "researcher");
    shell.write("ras.sh", SERVER);
    let job = format!(
        "name = \"{name}\"\nimage = \"example.test/trainer:1\"\nlaunch = \"per-node\"\nnodes = 2\n\
         command = [\"sh\", \"ras.sh\"]\ncode = {{ script = \"ras.sh\" }}\nenv = {{ REPORT = {} }}\n",
        serde_json::Value::from(report())
    );
    shell.write("job.toml", &job);
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let handle = ran.stdout.trim().to_owned();
    let health = poll("an answer", || {
        let ran = shell.weftrun(&["health", "--observe", "0s", "-o", "json", &handle]);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        eprintln!("{report}");
        (report["state"] != "unreachable").then_some(report)
    });
    assert_eq!(
        (&health["state"], &health["culprits"][0]["rank"]),
        (&"suspect".into(), &3.into()),
        "{health:#}"
    );
    assert_eq!(health["communicators"][0]["behind"][0]["count"], 20, "{health:#}");
    shell.delete(&handle);
}
