//! Runs the programs of `examples/` as a user would. `cargo test` builds them together with the tests; if
//! only this test was built they may be missing, which is reported.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use weftrun::prelude::*;
use weftrun_testkit::child;

/// How long a program may take: the machines of a CI are slow.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program with a home of its own; none where it was not built.
fn example(name: &str, home: &Path) -> Option<Command> {
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("examples").join(name);
    if !program.is_file() {
        weftrun_testkit::skipped(format_args!("{name} is not built; `cargo test --workspace` does it"));
        return None;
    }
    let mut command = Command::from(child::command(program));
    command.env_clear().env("HOME", home).current_dir(home).stdin(Stdio::null()).kill_on_drop(true);
    // Without a `weftrun` in PATH the jobs are a part of the program.
    command.env("PATH", "/usr/bin:/bin");
    Some(command)
}

/// What a program prints, once it has ended well.
async fn output(mut command: Command) -> String {
    let out = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends").unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

#[tokio::test]
async fn a_sweep_runs_twenty_jobs_and_a_watch_sees_them() {
    let home = tempfile::tempdir().unwrap();
    let (Some(sweep), Some(mut watch)) = (example("sweep", home.path()), example("watch", home.path()))
    else {
        return;
    };
    let mut watching = watch.stdout(Stdio::piped()).spawn().unwrap();
    let said = output(sweep).await;
    let jobs: Vec<&str> = said.lines().filter(|line| line.starts_with("succeeded")).collect();
    assert_eq!(jobs.len(), 20, "{said}");
    // It watches until it is stopped: the only requirement is that it reports the end of every job.
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut ends = std::collections::BTreeSet::new();
    while ends.len() < 20 {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it tells").unwrap();
        let line = line.expect("it goes on");
        if line.starts_with("succeeded") {
            ends.insert(line.split_whitespace().nth(1).unwrap().to_owned());
        }
    }
    for job in jobs {
        assert!(ends.contains(job.split_whitespace().nth(1).unwrap()), "{job} in {ends:?}");
    }
    watching.kill().await.unwrap();
}

#[tokio::test]
async fn a_tail_goes_on_where_it_stopped() {
    let home = tempfile::tempdir().unwrap();
    let Some(mut first) = example("tail", home.path()) else { return };
    let client = super::client(&home.path().join(".local/state/weftrun"));
    let job = super::submit(&client, "kept", 2, "echo rank $RANK; sleep 1; echo end of $RANK").await;
    let handle = job.handle().to_string();
    let said = output({
        first.args([&handle, "cursors.json"]);
        first
    })
    .await;
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["end of 0", "end of 1", "rank 0", "rank 1"]);
    assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
    // Another process, with the cursors of the first: nothing is reported twice.
    let mut second = example("tail", home.path()).unwrap();
    second.args([&handle, "cursors.json"]);
    assert_eq!(output(second).await, "");
}

#[tokio::test]
async fn files_are_read_without_a_client() {
    let home = tempfile::tempdir().unwrap();
    let Some(mut transport) = example("transport_of_a_file", home.path()) else { return };
    transport.args(
        (0..4).map(|rank| {
            file(&format!("crates/diagnose/tests/cases/nccl/captures/socket_2x2/rank{rank}.log"))
        }),
    );
    let said = output(transport).await;
    assert!(said.contains("over NET/Socket") && said.contains("the fabric is socket"), "{said}");
    assert!(said.contains("NCCL-NET-SOCKET-FALLBACK"), "{said}");

    let mut mutate = example("mutate_manifest", home.path()).unwrap();
    mutate.arg(file("crates/cli/tests/pages/job.yaml"));
    let said = output(mutate).await;
    assert!(said.contains("kind: PyTorchJob") && said.contains("vpc.amazonaws.com/efa"), "{said}");
}
