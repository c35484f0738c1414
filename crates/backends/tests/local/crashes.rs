//! After any process is killed, the list is correct and nothing is left that it does not list.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use futures_util::StreamExt;
use weftrun_core::job::{Action, JobFilter, JobPhase, JobSummary};
use weftrun_core::log::LogOptions;
use weftrun_testkit::conformance::{Bench, Fixture, Submitted};

use crate::bench::{Local, block_on};

fn folder(local: &Local, job: &Submitted) -> PathBuf {
    local.state.path().join("jobs").join(job.rendered.submission.as_str())
}

fn record(local: &Local, job: &Submitted) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder(local, job).join("state.json")).unwrap()).unwrap()
}

pub fn kill(local: &Local, job: &Submitted, signal: &str) {
    let pid = record(local, job)["supervisor"]["pid"].to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

async fn summary(job: &Submitted) -> JobSummary {
    let jobs = job.backend.list(&JobFilter::one(&job.handle)).await.unwrap();
    jobs.into_iter().next().unwrap()
}

/// Waits until the job's line in the list is as it should be.
pub async fn until(job: &Submitted, what: &str, fits: impl Fn(&JobSummary) -> bool) -> JobSummary {
    let mut last = summary(job).await;
    for _ in 0..1200 {
        if fits(&last) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        last = summary(job).await;
    }
    panic!("not {what}: {last:?}");
}

pub fn a_killed_supervisor_leaves_orphans_that_are_listed_and_ended() {
    block_on(async {
        let local = Local::new();
        let job =
            Bench::new(&local).submit_spec(local.job("orphans", 2, 2, "echo up; sleep 300")).await.unwrap();
        job.until_written("up", 4).await.unwrap();
        kill(&local, &job, "-KILL");
        let line = until(&job, "told of orphans", |job| job.reason.contains("was killed")).await;
        assert_eq!(line.phase, JobPhase::Running);
        let detail = job.backend.describe(&job.handle).await.unwrap();
        assert!(detail.findings.iter().any(|f| f.code == "LOCAL-ORPHANS"), "{:?}", detail.findings);
        job.backend.act(&job.handle, Action::Cancel).await.unwrap();
        let line = summary(&job).await;
        assert_eq!(line.phase, JobPhase::Cancelled, "{}", line.reason);
    });
}

pub fn no_byte_is_lost_with_the_supervisor() {
    block_on(async {
        let local = Local::new();
        let script = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.02; done";
        let job = Bench::new(&local).submit_spec(local.job("lossless", 1, 2, script)).await.unwrap();
        job.until_written("line 5", 2).await.unwrap();
        kill(&local, &job, "-KILL");
        let read = job.follow().await.unwrap();
        assert_eq!(read.lines_with("line ").len(), 120);
        let end = summary(&job).await;
        assert_eq!(end.phase, JobPhase::Failed);
        assert!(end.reason.contains("exit codes are lost"), "{}", end.reason);
    });
}

pub fn killed_before_the_claim_nothing_is_there() {
    block_on(async {
        let local = Local::new();
        // What a submit leaves that is killed while it writes its draft.
        let draft = local.state.path().join("jobs/.new-cutoff");
        std::fs::create_dir_all(&draft).unwrap();
        std::fs::write(draft.join("job.toml"), "half a fi").unwrap();
        let backend = local.connect().await.unwrap();
        assert!(backend.list(&JobFilter::all()).await.unwrap().is_empty());
        let job = Bench::new(&local).submit("exit 0").await.unwrap();
        assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
        assert!(!draft.exists(), "the next submit sweeps the draft away");
    });
}

pub fn killed_after_the_claim_it_is_told_and_started_by_the_same_id() {
    block_on(async {
        // A supervisor that does nothing is a submit that was killed before it started one.
        let local = Local::new();
        let mut target = weftrun_core::backend::TargetConfig::new("test", "local", local.state.path());
        target.binary = Some("/no/such/weftrun".into());
        let broken = weftrun_backends::local::connect(target).await.unwrap();
        let rendered = broken.render(&local.plan(local.job("claimed", 1, 1, "echo ran; exit 0"))).unwrap();
        let error = broken.submit(&rendered).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/weftrun"), "{error}");
        let handle = broken.find(&rendered.submission).await.unwrap().unwrap();
        let backend = local.connect().await.unwrap();
        let job = Submitted { backend, rendered, handle };
        let line = summary(&job).await;
        assert_eq!(line.phase, JobPhase::Submitted);
        assert!(line.reason.contains("not started"), "{}", line.reason);
        let again = job.backend.submit(&job.rendered).await.unwrap();
        assert_eq!(again, job.handle);
        assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
        assert_eq!(job.follow().await.unwrap().lines_with("ran").len(), 1);
    });
}

pub fn a_supervisor_that_does_not_start_is_started_again() {
    block_on(async {
        let local = Local::new();
        let binary = local.state.path().join("fails-once");
        let once = local.state.path().join("failed");
        let own = std::env::current_exe().unwrap();
        let script =
            format!("#!/bin/sh\nmkdir '{}' && exit 1\nexec '{}' \"$@\"\n", once.display(), own.display());
        std::fs::write(&binary, script).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut target = weftrun_core::backend::TargetConfig::new("test", "local", local.state.path());
        target.env = std::env::vars().collect();
        target.binary = Some(binary);
        let backend = weftrun_backends::local::connect(target).await.unwrap();
        let rendered = backend.render(&local.plan(local.job("again", 1, 1, "echo ran"))).unwrap();
        let handle = backend.submit(&rendered).await.unwrap();
        let job = Submitted { backend, rendered, handle };
        assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
        assert!(once.is_dir());
        assert_eq!(job.follow().await.unwrap().lines_with("ran").len(), 1);
    });
}

pub fn two_submits_at_once_are_one_job() {
    block_on(async {
        let local = Local::new();
        let backend = local.connect().await.unwrap();
        let rendered = backend.render(&local.plan(local.job("race", 1, 1, "echo ran"))).unwrap();
        let submits = (0..8).map(|_| async {
            let backend = local.connect().await.unwrap();
            backend.submit(&rendered).await.unwrap()
        });
        let handles = futures_util::future::join_all(submits).await;
        assert!(handles.windows(2).all(|pair| pair[0] == pair[1]));
        let job = Submitted { backend, rendered, handle: handles[0].clone() };
        job.wait().await.unwrap();
        assert_eq!(job.follow().await.unwrap().lines_with("ran").len(), 1);
        assert_eq!(job.backend.list(&JobFilter::all()).await.unwrap().len(), 1);
    });
}

pub fn a_terminated_supervisor_ends_its_job() {
    block_on(async {
        let local = Local::new();
        let job =
            Bench::new(&local).submit_spec(local.job("told", 1, 2, "echo up; sleep 300")).await.unwrap();
        job.until_written("up", 2).await.unwrap();
        kill(&local, &job, "-TERM");
        let end = until(&job, "ended", |job| job.phase.is_terminal()).await;
        assert_eq!(end.phase, JobPhase::Cancelled);
        assert!(end.reason.contains("supervisor"), "{}", end.reason);
    });
}

pub fn a_damaged_record_is_listed() {
    block_on(async {
        let local = Local::new();
        let job = Bench::new(&local).submit("exit 0").await.unwrap();
        job.wait().await.unwrap();
        std::fs::write(folder(&local, &job).join("state.json"), "{ torn").unwrap();
        let line = summary(&job).await;
        assert_eq!(line.phase, JobPhase::Unknown);
        assert!(line.reason.contains("damaged"), "{}", line.reason);
        let mut logs = job.backend.logs(&job.handle, LogOptions::default());
        assert!(logs.next().await.unwrap().is_err());
        job.backend.act(&job.handle, Action::Delete).await.unwrap();
        assert!(job.backend.list(&JobFilter::all()).await.unwrap().is_empty());
    });
}

/// Submits the planned job of a file to the target of a folder: what is killed in the test below.
pub fn submit_and_end(state: &str, planned: &str) -> ExitCode {
    let planned = serde_json::from_slice(&std::fs::read(planned).unwrap()).unwrap();
    block_on(async {
        let mut target = weftrun_core::backend::TargetConfig::new("test", "local", state).with("grace", 1.0);
        target.env = std::env::vars().collect();
        target.binary = Some(std::env::current_exe().unwrap());
        let backend = weftrun_backends::local::connect(target).await.unwrap();
        backend.submit(&backend.render(&planned).unwrap()).await.unwrap();
    });
    ExitCode::SUCCESS
}

pub fn killed_at_any_moment_of_a_submit() {
    block_on(async {
        let mut phases = std::collections::BTreeMap::<String, usize>::new();
        for step in 0..24_u64 {
            let local = Local::new();
            let backend = local.connect().await.unwrap();
            let planned = local.plan(local.job("killed", 1, 1, "echo ran"));
            let rendered = backend.render(&planned).unwrap();
            let file = local.state.path().join("planned.json");
            std::fs::write(&file, serde_json::to_vec(&planned).unwrap()).unwrap();
            let mut submitter = Command::new(std::env::current_exe().unwrap());
            submitter.arg("submit").arg(local.state.path()).arg(&file);
            let mut submitter = submitter.spawn().unwrap();
            tokio::time::sleep(Duration::from_micros(step * 700)).await;
            submitter.kill().unwrap();
            submitter.wait().unwrap();

            let jobs = backend.list(&JobFilter::all()).await.unwrap();
            let said = match jobs.as_slice() {
                [] => "not taken".to_owned(),
                [job] => {
                    assert_ne!(job.phase, JobPhase::Unknown, "{}", job.reason);
                    assert_eq!(job.submission.as_ref(), Some(&rendered.submission));
                    job.phase.to_string()
                }
                more => panic!("{} jobs of one submission", more.len()),
            };
            *phases.entry(said).or_default() += 1;
            // The same submission again, as the journal's recovery does it: one job, run once.
            let handle = backend.submit(&rendered).await.unwrap();
            let job = Submitted { backend, rendered, handle };
            assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
            assert_eq!(job.follow().await.unwrap().lines_with("ran").len(), 1, "it ran more than once");
        }
        println!("  killed submits left: {phases:?}");
    });
}
