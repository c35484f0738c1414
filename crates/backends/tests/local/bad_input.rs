//! Jobs that misbehave are reported as what they are, and no byte of theirs is lost.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::StreamExt;
use weftrun_core::backend::ExecRequest;
use weftrun_core::job::{JobDetail, JobPhase, JobSummary};
use weftrun_core::log::{LogOptions, Mark};
use weftrun_core::spec::{EnvVar, JobSpec};
use weftrun_testkit::conformance::{Bench, Fixture};

use crate::bench::{Local, block_on};
use weftrun_testkit::child;

/// Runs a script on one rank to its end.
async fn run(local: &Local, script: &str) -> (JobSummary, JobDetail) {
    run_spec(local, local.job("bad", 1, 1, script)).await
}

async fn run_spec(local: &Local, spec: JobSpec) -> (JobSummary, JobDetail) {
    let job = Bench::new(local).submit_spec(spec).await.unwrap();
    let end = job.wait().await.unwrap();
    (end, job.backend.describe(&job.handle).await.unwrap())
}

pub fn a_signal_and_a_code_are_told_apart() {
    block_on(async {
        let local = Local::new();
        let (code, _) = run(&local, "exit 137").await;
        assert_eq!(code.exit_code, Some(137));
        assert!(code.reason.contains("exit code 137"), "{}", code.reason);
        let (signal, _) = run(&local, "kill -9 $$").await;
        assert_eq!(signal.exit_code, Some(137));
        assert!(signal.reason.contains("SIGKILL"), "{}", signal.reason);
    });
}

/// As in a shell: the command failed, not weftrun.
pub fn exec_of_an_unknown_program_is_127() {
    block_on(async {
        let local = Local::new();
        let spec = local.job("exec", 1, 1, "echo weft-up; sleep 600");
        let job = Bench::new(&local).submit_spec(spec).await.unwrap();
        job.until_written("weft-up", 1).await.unwrap();
        let mut err = Vec::new();
        let request = ExecRequest::new(["no-such-program-of-weftrun", "--x"]);
        let code = job
            .backend
            .exec(&job.handle, &request, &mut |_, bytes| {
                err.extend_from_slice(bytes);
                Ok(())
            })
            .await
            .unwrap();
        let err = String::from_utf8_lossy(&err).into_owned();
        assert_eq!((code, err.as_str()), (127, "weftrun: no-such-program-of-weftrun: command not found\n"));
        job.done().await.unwrap();
    });
}

pub fn children_left_behind_are_ended_and_told() {
    block_on(async {
        let local = Local::new();
        // One in the same group, and one that went to a session of its own. The times are no other test's.
        let (end, detail) = run(&local, "sleep 300071 & setsid sleep 300072 & echo up; exit 0").await;
        assert_eq!(end.phase, JobPhase::Succeeded, "{}", end.reason);
        let told = detail.findings.iter().any(|finding| finding.code == "LOCAL-LEFT-BEHIND");
        assert!(told, "{:?}", detail.findings);
        let left = child::command("pgrep").args(["-f", "^sleep 30007[12]$"]).output();
        if let Ok(left) = left {
            assert_eq!(String::from_utf8_lossy(&left.stdout), "", "children are still there");
        }
    });
}

pub fn one_that_ignores_term_is_killed_and_told() {
    block_on(async {
        let local = Local::new();
        let mut spec = local.job("stubborn", 1, 1, "trap '' TERM; while :; do sleep 0.1; done");
        spec.time_limit = Some(std::time::Duration::from_secs(1));
        let (end, detail) = run_spec(&local, spec).await;
        assert_eq!(end.phase, JobPhase::Failed);
        assert!(end.reason.contains("time limit"), "{}", end.reason);
        assert!(
            detail.findings.iter().any(|finding| finding.code == "LOCAL-KILLED"),
            "{:?}",
            detail.findings
        );
    });
}

pub fn a_gigabyte_in_seconds_is_read_whole() {
    // A debug build on a busy machine: a tenth shows the same; WEFTRUN_BIG=1 writes the whole.
    let megabytes: usize = if std::env::var_os("WEFTRUN_BIG").is_some() { 1024 } else { 100 };
    block_on(async {
        let local = Local::new();
        let script = format!("exec head -c {} /dev/zero", megabytes << 20);
        let job = Bench::new(&local).submit_spec(local.job("flood", 1, 1, &script)).await.unwrap();
        let began = Instant::now();
        let mut batches = job.backend.logs(&job.handle, LogOptions::follow());
        let (mut bytes, mut largest) = (0, 0);
        while let Some(batch) = batches.next().await {
            let batch = batch.unwrap();
            bytes += batch.bytes.len();
            largest = largest.max(batch.bytes.len());
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "  {megabytes} MiB in one line followed in {seconds:.2} s ({:.0} MB/s)",
            bytes as f64 / 1e6 / seconds
        );
        assert_eq!(bytes, megabytes << 20);
        assert!(largest <= 1 << 20, "a batch of {largest} bytes");
    });
}

/// A job of a script that waits for the file `$GO`, and that file.
fn until_go(local: &Local, name: &str, script: &str) -> (JobSpec, PathBuf) {
    let mut spec = local.job(name, 1, 1, script);
    let go = local.state.path().join("go");
    spec.roles[0].env.push(EnvVar { name: "GO".into(), value: go.display().to_string() });
    (spec, go)
}

pub fn a_truncated_log_is_told() {
    block_on(async {
        let local = Local::new();
        let script = "echo before; while [ ! -e \"$GO\" ]; do sleep 0.05; done; echo after";
        let (spec, go) = until_go(&local, "cut", script);
        let job = Bench::new(&local).submit_spec(spec).await.unwrap();
        let mut batches = job.backend.logs(&job.handle, LogOptions::follow());
        let first = batches.next().await.unwrap().unwrap();
        assert_eq!(first.bytes, b"before\n");
        let log = local
            .state
            .path()
            .join("jobs")
            .join(job.rendered.submission.as_str())
            .join("logs/0/node0/rank0.log");
        std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(0).unwrap();
        std::fs::write(go, "").unwrap();
        let (mut marks, mut text) = (Vec::new(), Vec::new());
        while let Some(batch) = batches.next().await {
            let batch = batch.unwrap();
            marks.extend(batch.mark);
            text.extend(batch.bytes);
        }
        assert_eq!(text, b"after\n");
        assert_eq!(marks, [Mark::Truncated, Mark::Ended { exit_code: Some(0) }]);
    });
}

/// Another file of the same name may be as long as the one before.
pub fn a_replaced_log_is_told() {
    block_on(async {
        let local = Local::new();
        let script = "echo before; while [ ! -e \"$GO\" ]; do sleep 0.05; done";
        let (spec, go) = until_go(&local, "replaced", script);
        let job = Bench::new(&local).submit_spec(spec).await.unwrap();
        let mut batches = job.backend.logs(&job.handle, LogOptions::follow());
        assert_eq!(batches.next().await.unwrap().unwrap().bytes, b"before\n");
        let jobs = local.state.path().join("jobs").join(job.rendered.submission.as_str());
        let (log, other) = (jobs.join("logs/0/node0/rank0.log"), jobs.join("other"));
        std::fs::write(&other, "before\nand after\n").unwrap();
        std::fs::rename(other, log).unwrap();
        let mark = batches.next().await.unwrap().unwrap();
        assert_eq!((mark.mark, mark.cursor.offset), (Some(Mark::Truncated), 0));
        std::fs::write(go, "").unwrap();
        let mut text = Vec::new();
        while let Some(batch) = batches.next().await {
            text.extend(batch.unwrap().bytes);
        }
        assert_eq!(text, b"before\nand after\n");
    });
}

pub fn a_working_folder_that_is_not_there() {
    block_on(async {
        let local = Local::new();
        let mut spec = local.job("lost", 1, 1, "true");
        spec.workdir = Some("/no/such/folder".to_owned());
        let (end, _) = run_spec(&local, spec).await;
        assert_eq!(end.phase, JobPhase::Failed);
        assert!(end.reason.contains("/no/such/folder"), "{}", end.reason);
    });
}

pub fn files_are_for_their_owner_only() {
    block_on(async {
        let local = Local::new();
        run(&local, "echo secret").await;
        check_modes(&local.state.path().join("jobs"));
    });
}

fn check_modes(path: &Path) {
    let mode = path.metadata().unwrap().permissions().mode() & 0o777;
    let allowed = if path.is_dir() { 0o700 } else { 0o600 };
    assert_eq!(mode & !allowed, 0, "{} has mode {mode:o}", path.display());
    if path.is_dir() {
        for entry in path.read_dir().unwrap() {
            check_modes(&entry.unwrap().path());
        }
    }
}
