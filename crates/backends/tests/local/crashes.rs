//! After any process is killed, the list is correct and nothing is left that it does not list.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::StreamExt;
use weftrun_core::job::{Action, JobFilter, JobPhase, JobSummary};
use weftrun_core::log::LogOptions;
use weftrun_testkit::conformance::{Bench, Fixture, Submitted};

use crate::bench::{Local, block_on};
use weftrun_testkit::child;

fn folder(local: &Local, job: &Submitted) -> PathBuf {
    local.state.path().join("jobs").join(job.rendered.submission.as_str())
}

fn record(local: &Local, job: &Submitted) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder(local, job).join("state.json")).unwrap()).unwrap()
}

pub fn kill(local: &Local, job: &Submitted, signal: &str) {
    let pid = record(local, job)["supervisor"]["pid"].to_string();
    assert!(child::command("kill").args([signal, &pid]).status().unwrap().success());
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
        target.env = child::environment();
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
        target.env = child::environment();
        let supervisor = std::env::var_os("WEFTRUN_TEST_SUPERVISOR").map(PathBuf::from);
        target.binary = Some(supervisor.unwrap_or_else(|| std::env::current_exe().unwrap()));
        let backend = weftrun_backends::local::connect(target).await.unwrap();
        let submitted = backend.submit(&backend.render(&planned).unwrap()).await;
        if std::env::var_os("WEFTRUN_TEST_SUPERVISOR").is_none() {
            submitted.unwrap();
        }
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
            let mut submitter = child::command(std::env::current_exe().unwrap());
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

/// A submit that is killed between the claim and the start of its supervisor leaves no job, and its name is free.
pub fn a_claim_of_a_killed_submit_is_no_job() {
    block_on(async {
        let local = Local::new();
        let backend = local.connect().await.unwrap();
        let rendered = backend.render(&local.plan(local.job("claimed", 1, 1, "echo ran"))).unwrap();
        // A supervisor that never comes as far as its record, and a submitter that has ended.
        let planned = local.plan(local.job("claimed", 1, 1, "echo ran"));
        let lost = backend.render(&planned).unwrap();
        let file = local.state.path().join("planned.json");
        std::fs::write(&file, serde_json::to_vec(&planned).unwrap()).unwrap();
        let mut submitter = child::command(std::env::current_exe().unwrap());
        submitter
            .arg("submit")
            .arg(local.state.path())
            .arg(&file)
            .env("WEFTRUN_TEST_SUPERVISOR", "/bin/false");
        submitter.spawn().unwrap().wait().unwrap();
        assert_eq!(backend.list(&JobFilter::all()).await.unwrap().len(), 1, "the claim is there");
        let findings = backend.check(&rendered).await.unwrap();
        assert!(!findings.iter().any(weftrun_core::Finding::is_error), "the name is free: {findings:?}");
        assert_eq!(backend.find(&lost.submission).await.unwrap(), None);
        assert!(backend.list(&JobFilter::all()).await.unwrap().is_empty(), "the claim is withdrawn");
        let handle = backend.submit(&rendered).await.unwrap();
        let job = Submitted { backend, rendered, handle };
        assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
        assert_eq!(job.follow().await.unwrap().lines_with("ran").len(), 1);
    });
}

/// Submits with a supervisor that a script starts, which gets the job's folder as `$dir`; returns the job while it starts.
async fn starting(local: &Local, before: &str, script: &str) -> tokio::task::JoinHandle<Submitted> {
    let binary = local.state.path().join("slow");
    let own = std::env::current_exe().unwrap();
    let text = format!("#!/bin/sh\ndir=$2\n{before}\nexec '{}' \"$@\"\n", own.display());
    std::fs::write(&binary, text).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut target = weftrun_core::backend::TargetConfig::new("test", "local", local.state.path());
    target.env = child::environment();
    target.binary = Some(binary);
    let backend = weftrun_backends::local::connect(target).await.unwrap();
    let rendered = backend.render(&local.plan(local.job("slow", 1, 1, script))).unwrap();
    let folder = local.state.path().join("jobs").join(rendered.submission.as_str());
    let submit = tokio::spawn(async move {
        let handle = backend.submit(&rendered).await.unwrap();
        Submitted { backend, rendered, handle }
    });
    while !folder.join("supervisor.log").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    submit
}

async fn only(local: &Local) -> (std::sync::Arc<dyn weftrun_core::backend::Backend>, JobSummary) {
    let backend = local.connect().await.unwrap();
    let job = backend.list(&JobFilter::all()).await.unwrap().remove(0);
    (backend, job)
}

pub fn a_cancel_waits_for_a_supervisor_that_starts() {
    block_on(async {
        let local = Local::new();
        // A supervisor has the lock before it has a record.
        let locked = "(flock 9; touch \"$dir/locked\"; sleep 2) 9>> \"$dir/lock\"";
        let submit = starting(&local, locked, "echo up; sleep 300").await;
        let (backend, job) = only(&local).await;
        let folder = local.state.path().join("jobs").join(job.submission.as_ref().unwrap().as_str());
        while !folder.join("locked").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        backend.act(&job.handle, Action::Cancel).await.unwrap();
        let job = submit.await.unwrap();
        assert_eq!(until(&job, "cancelled", |job| job.phase.is_terminal()).await.phase, JobPhase::Cancelled);
    });
}

pub fn a_cancel_before_the_supervisor_is_a_job_that_never_runs() {
    block_on(async {
        let local = Local::new();
        let submit = starting(&local, "sleep 2", "echo ran").await;
        let (backend, job) = only(&local).await;
        backend.act(&job.handle, Action::Cancel).await.unwrap();
        let job = submit.await.unwrap();
        assert_eq!(summary(&job).await.phase, JobPhase::Cancelled);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(summary(&job).await.phase, JobPhase::Cancelled);
        assert!(job.follow().await.unwrap().lines_with("ran").is_empty());
    });
}

/// Returns whether a process with these arguments runs.
fn runs(arguments: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).any(|line| line.trim() == arguments)
}

/// A command in a session of its own, without the mark of the job, and its command line.
fn escaped(local: &Local, how: &str) -> (String, String) {
    let unique = local.state.path().file_name().unwrap().to_string_lossy().into_owned();
    let line = format!("sh -c sleep 600; : {unique}");
    (format!("{how} sh -c 'sleep 600; : {unique}' & sleep 0.5; echo up; sleep 300"), line)
}

pub fn a_process_without_the_jobs_environment_ends_with_the_job() {
    block_on(async {
        for how in
            ["env -i setsid", "setsid env -i", "env -i setsid -f", "env -i setsid setsid -f", "env -i nohup"]
        {
            let local = Local::new();
            let (script, line) = escaped(&local, how);
            let job = Bench::new(&local).submit_spec(local.job("escaped", 1, 1, &script)).await.unwrap();
            job.until_written("up", 1).await.unwrap();
            assert!(runs(&line), "{how}");
            job.backend.act(&job.handle, Action::Cancel).await.unwrap();
            until(&job, "cancelled", |job| job.phase.is_terminal()).await;
            assert!(!runs(&line), "{how}: it outlived the job");
            let detail = job.backend.describe(&job.handle).await.unwrap();
            let told = detail.findings.iter().any(|finding| finding.code == "LOCAL-LEFT-BEHIND");
            assert!(told || how.ends_with("nohup"), "{how}: {:?}", detail.findings);
        }
    });
}

pub fn a_process_without_the_jobs_environment_is_an_orphan_of_a_killed_supervisor() {
    block_on(async {
        let local = Local::new();
        let (script, line) = escaped(&local, "env -i setsid -f");
        let job = Bench::new(&local).submit_spec(local.job("escaped", 1, 1, &script)).await.unwrap();
        job.until_written("up", 1).await.unwrap();
        while record(&local, &job)["adopted"].as_array().is_none_or(Vec::is_empty) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        kill(&local, &job, "-KILL");
        until(&job, "told of orphans", |job| job.reason.contains("was killed")).await;
        job.backend.act(&job.handle, Action::Cancel).await.unwrap();
        assert_eq!(summary(&job).await.phase, JobPhase::Cancelled);
        assert!(!runs(&line), "it outlived the job");
    });
}

/// Not yet adopted: the process that the supervisor started, or one whose parent lives. The last one survives its parent, which
/// ends at TERM.
pub fn a_process_without_the_jobs_environment_is_found_after_its_supervisor_by_its_identity_or_its_parent() {
    block_on(async {
        for script in [
            "echo up; exec env -i sh -c 'CODE'",
            "env -i sh -c 'CODE' & echo up; exec sleep 300",
            "(env -i sh -c 'CODE' & exec sleep 300) & echo up; exec env -i sleep 300",
            "env -i sh -c 'CODE' & echo up; exec sleep 300; : trap",
        ] {
            let local = Local::new();
            let trap = if script.ends_with("trap") { "trap \"\" TERM; " } else { "" };
            let unique = local.state.path().file_name().unwrap().to_string_lossy().into_owned();
            let code = format!("{trap}sleep 600; : {unique}");
            let line = format!("sh -c {code}");
            let script = script.replace("CODE", &code);
            let job = Bench::new(&local).submit_spec(local.job("escaped", 1, 1, &script)).await.unwrap();
            job.until_written("up", 1).await.unwrap();
            while !runs(&line) || record(&local, &job)["processes"][0]["identity"].is_null() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            kill(&local, &job, "-KILL");
            let now = until(&job, "told of orphans", |job| job.reason.contains("was killed")).await;
            assert_eq!(now.phase, JobPhase::Running, "{script}: {}", now.reason);
            job.backend.act(&job.handle, Action::Cancel).await.unwrap();
            assert_eq!(summary(&job).await.phase, JobPhase::Cancelled, "{script}");
            assert!(!runs(&line), "{script}: it outlived the job");
        }
    });
}

pub fn a_claim_that_cannot_be_removed_blocks_no_submit() {
    block_on(async {
        let local = Local::new();
        let mut target = weftrun_core::backend::TargetConfig::new("test", "local", local.state.path());
        target.binary = Some("/no/such/weftrun".into());
        let broken = weftrun_backends::local::connect(target).await.unwrap();
        let claimed = broken.render(&local.plan(local.job("claimed", 1, 1, "echo ran"))).unwrap();
        broken.submit(&claimed).await.unwrap_err();
        // A folder in place of the lock: the claim cannot be removed, by root neither.
        let folder = local.state.path().join("jobs").join(claimed.submission.as_str());
        let _ = std::fs::remove_file(folder.join("lock"));
        std::fs::create_dir(folder.join("lock")).unwrap();
        let job = Bench::new(&local).submit("exit 0").await.unwrap();
        assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
        assert!(folder.exists());
    });
}

pub fn a_job_that_a_job_submits_outlives_it() {
    block_on(async {
        for signal in [None, Some("-KILL")] {
            let local = Local::new();
            let planned = local.plan(local.job("inner", 1, 1, "echo up; sleep 300"));
            let file = local.state.path().join("planned.json");
            std::fs::write(&file, serde_json::to_vec(&planned).unwrap()).unwrap();
            let (own, state) = (std::env::current_exe().unwrap(), local.state.path());
            let script = format!(
                "'{}' submit '{}' '{}'; sleep 1.5; echo up; sleep 300",
                own.display(),
                state.display(),
                file.display()
            );
            let outer = Bench::new(&local).submit_spec(local.job("outer", 1, 1, &script)).await.unwrap();
            outer.until_written("up", 1).await.unwrap();
            if let Some(signal) = signal {
                kill(&local, &outer, signal);
            }
            outer.backend.act(&outer.handle, Action::Cancel).await.unwrap();
            until(&outer, "cancelled", |job| job.phase.is_terminal()).await;
            let jobs = outer.backend.list(&JobFilter::all()).await.unwrap();
            let inner = jobs.iter().find(|job| job.name == "inner").unwrap();
            assert_eq!((inner.phase, inner.reason.as_str()), (JobPhase::Running, ""));
            outer.backend.act(&inner.handle, Action::Cancel).await.unwrap();
        }
    });
}
