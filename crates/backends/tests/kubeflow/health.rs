//! `weftrun health` on a job whose pods play NCCL's RAS service.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weftrun_core::ErrorKind;
use weftrun_core::job::JobPhase;

use crate::cluster::{cluster, job, name, poll};
use crate::shell::Shell;

/// The service as a shell script: it supports only text, as NCCL before 2.28.7.
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

/// The service is reached over a forwarded port, and by a command where that is refused; without both rights the reason names them.
#[test]
fn the_rank_that_hangs_is_named_over_a_port_or_by_a_command() {
    let Some(cluster) = cluster() else { return };
    let job_name = name("health");
    let shell = Shell::of(cluster.clone(), "researcher");
    shell.write("ras.sh", SERVER);
    let text = format!(
        "name = \"{job_name}\"\nimage = \"example.test/trainer:1\"\nlaunch = \"per-node\"\nnodes = 2\n\
         command = [\"sh\", \"ras.sh\"]\ncode = {{ script = \"ras.sh\" }}\nenv = {{ REPORT = {} }}\n",
        serde_json::Value::from(report())
    );
    shell.write("job.toml", &text);
    let ran = shell.weftrun(&["submit", "-b", "kubeflow", "job.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let handle = ran.stdout.trim().to_owned();
    let health = |shell: &Shell| -> Value {
        let ran = shell.weftrun(&["health", "--observe", "0s", "-o", "json", &handle]);
        let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        eprintln!("{report}");
        report
    };
    poll("an answer", || (health(&shell)["state"] != "unreachable").then_some(()));
    let reads = "{apiGroups: ['', kubeflow.org], resources: [pods, pods/log, pytorchjobs, events], verbs: [get, list, watch]}";
    for (right, via) in [("pods/portforward", "port-forward"), ("pods/exec", "exec"), ("pods/status", "")] {
        let account = name("health");
        cluster.account(
            &account,
            &format!("[{reads}, {{apiGroups: [''], resources: [{right}], verbs: [get, create]}}]"),
        );
        let health = health(&Shell::of(cluster.clone(), &account));
        if via.is_empty() {
            let reason = health["reason"].as_str().unwrap();
            assert!(reason.contains("pods/portforward") && reason.contains("pods/exec"), "{health:#}");
            assert_eq!(health["state"], "unreachable", "{health:#}");
            continue;
        }
        assert!(health["asked"]["via"].as_str().unwrap().starts_with(via), "{right}: {health:#}");
        assert_eq!(
            (&health["state"], &health["culprits"][0]["rank"]),
            (&"suspect".into(), &3.into()),
            "{right}: {health:#}"
        );
        assert_eq!(health["communicators"][0]["behind"][0]["count"], 20, "{right}: {health:#}");
    }
    shell.delete(&handle);
}

/// A forwarded port carries bytes both ways, to the given rank; if nothing listens, the error reports it.
#[tokio::test]
async fn a_port_of_a_rank_is_connected_to() {
    let Some(cluster) = cluster() else { return };
    let script = "echo $RANK > /tmp/rank; exec nc -ll -p 7007 -e sh -c 'read line; echo \"$line from\" $(cat /tmp/rank)'";
    let running = cluster.submit(job("ports", 2, script)).await;
    running.phase(JobPhase::Running).await;
    // The test cluster's researcher has no right to it.
    let backend = cluster.connect_to(cluster.target(&cluster.kubeconfig("admin"))).await.unwrap();
    for rank in [None, Some(0), Some(1)] {
        let answer = async || {
            let connection = backend.open_port(&running.handle, rank, 7007).await?;
            connection.send(b"hello\n").await?;
            let mut answer = Vec::new();
            loop {
                let bytes = connection.receive().await?;
                if bytes.is_empty() {
                    return Ok::<_, weftrun_core::Error>(String::from_utf8(answer).unwrap());
                }
                answer.extend_from_slice(&bytes);
            }
        };
        // A job runs before each of its pods does, and a pod before its program listens.
        let began = Instant::now();
        let answer = loop {
            match answer().await {
                Err(error) if began.elapsed() < Duration::from_mins(2) => {
                    assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unreachable), "{error}");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                answer => break answer.unwrap(),
            }
        };
        assert_eq!(answer, format!("hello from {}\n", rank.unwrap_or(0)));
    }
    let nothing = backend.open_port(&running.handle, None, 7008).await.unwrap();
    let sent = nothing.send(b"hello\n").await;
    let error = match sent {
        Ok(()) => nothing.receive().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("nothing listens on port 7008"), "{error}");
    let refused = running.backend.open_port(&running.handle, None, 7007).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Credentials, "{refused}");
    let unknown = backend.open_port(&running.handle, Some(2), 7007).await.err().unwrap();
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "{unknown}");
    running.delete().await;
}
