//! The facade as a program uses it, on this machine: nothing but a folder is needed.
#![cfg(feature = "local")]
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

use std::path::Path;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use weftrun::core::log::{Cursor, Mark};
use weftrun::prelude::*;
use weftrun::{ErrorKind, RecordState};
use weftrun_testkit::child;

mod examples;

#[path = "../../examples/submit.rs"]
#[allow(dead_code, reason = "its main is another's")]
mod submit;

/// The example of the front page runs where there is nothing but this machine.
#[tokio::test]
async fn the_example_runs() {
    if child::command("python3").arg("--version").output().is_err() {
        weftrun_testkit::skipped("python3 is not there");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    submit::run(&client, "local").await.unwrap();
    let jobs = client.list("local", &JobFilter::all()).await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.phase).collect::<Vec<_>>(), [JobPhase::Succeeded]);
}

/// Returns a client with a state folder, and nothing else.
fn client(state: &Path) -> Client {
    let mut config = Config::empty(state);
    config.env = child::environment();
    Client::builder().config(config).build().unwrap()
}

fn spec(name: &str, ranks: u32, script: &str) -> JobSpec {
    let role = Role::worker().nodes(1).ranks_per_node(ranks).command(["sh", "-c", script]);
    JobSpec::builder(name).launch(Launch::PerRank).role(role).build().unwrap()
}

async fn submit(client: &Client, name: &str, ranks: u32, script: &str) -> Job {
    client.plan("local", &spec(name, ranks, script)).await.unwrap().submit().await.unwrap()
}

/// Runs on a thread of its own with nothing in the environment: the test program again, with nothing but this test.
#[test]
fn constructing_needs_no_environment() {
    if std::env::vars_os().next().is_none() {
        let state = tempfile::tempdir_in("/tmp").unwrap();
        Client::builder().build().unwrap();
        client(state.path()).plan_offline("local", &spec("a", 1, "true")).unwrap();
        Config::load().unwrap();
        return;
    }
    let mut again = child::command(std::env::current_exe().unwrap());
    again.env_clear().current_dir("/").args(["--exact", "constructing_needs_no_environment"]);
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The supervisor is a `weftrun` that is installed, and never the program that uses the library.
#[test]
fn a_program_is_not_taken_for_weftrun() {
    let own = std::env::current_exe().unwrap();
    let mut environment = child::environment();
    environment.insert("PATH".to_owned(), own.parent().unwrap().display().to_string());
    assert_eq!(Config::load_from(None, environment).unwrap().binary, None, "{}", own.display());
}

#[tokio::test]
async fn a_job_is_followed_to_its_end() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let job = submit(&client, "two", 2, "echo rank $RANK").await;
    assert!(!job.backend().capability().detach, "without a weftrun binary the job is a part of this program");

    let phases: Vec<JobPhase> =
        job.watch().try_filter_map(|event| async move { Ok(event.phase()) }).try_collect().await.unwrap();
    assert_eq!(phases.last(), Some(&JobPhase::Succeeded), "{phases:?}");
    let end = job.wait().await.unwrap();
    assert_eq!((end.phase, end.exit_code), (JobPhase::Succeeded, Some(0)));
    let batches: Vec<LogBatch> = job.logs(LogOptions::follow()).try_collect().await.unwrap();
    let mut lines: Vec<String> =
        batches.iter().map(|b| String::from_utf8_lossy(&b.bytes).into_owned()).collect();
    lines.sort();
    assert_eq!(lines.concat(), "rank 0\nrank 1\n");
    assert!(
        job.diagnose(&TransportMap::default()).into_result().is_ok(),
        "nothing was planned that could be missed"
    );

    let again = client.attach(job.handle()).await.unwrap();
    assert_eq!(again.describe().await.unwrap().summary.phase, JobPhase::Succeeded);
    assert_eq!(again.plan(), job.plan());
    let records = client.journal().records().unwrap();
    assert_eq!(records.iter().map(|r| r.state).collect::<Vec<_>>(), [RecordState::Submitted]);
}

/// The cluster would return the first job's handle, and the second would never run.
#[tokio::test]
async fn an_id_that_belongs_to_another_job_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let first = submit(&client, "first", 1, "true").await;
    let second = client.plan("local", &spec("second", 1, "true")).await.unwrap();
    let mut record = client.journal().records().unwrap().remove(0);
    record.submission = second.planned().submission.clone();
    client.journal().write(&record).unwrap();
    let error = second.submit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert!(error.message().contains("`first`"), "{error}");
    let jobs = client.list("local", &JobFilter::all()).await.unwrap();
    assert_eq!(jobs.iter().map(|job| &job.handle).collect::<Vec<_>>(), [first.handle()]);
}

#[tokio::test]
async fn a_cancelled_job_ends_as_cancelled() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let job = submit(&client, "long", 2, "echo up; sleep 600").await;
    let mut logs = job.logs(LogOptions::follow());
    logs.try_next().await.unwrap().unwrap();
    // Somebody waits while another cancels.
    let waits = tokio::spawn({
        let job = job.clone();
        async move { job.wait().await }
    });
    job.cancel().await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap().phase, JobPhase::Cancelled);
    while logs.try_next().await.unwrap().is_some() {}
    job.act(Action::Delete).await.unwrap();
    assert_eq!(job.describe().await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A stream that is dropped loses nothing that a new one would not give, however often and wherever it is dropped.
#[tokio::test]
async fn dropped_streams_lose_nothing() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let script = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); done; sleep 1; echo end";
    let job = submit(&client, "drops", 1, script).await;
    let (mut text, mut from, mut streams) = (Vec::new(), Vec::<Cursor>::new(), 0_u64);
    loop {
        let mut options = LogOptions::follow();
        options.from.clone_from(&from);
        let mut logs = job.logs(options);
        streams += 1;
        // A future of the stream is dropped half-way, then the stream itself; now and then there is time to go on.
        let patience =
            if streams % 40 == 0 { Duration::from_secs(60) } else { Duration::from_millis(streams % 7) };
        let next = tokio::time::timeout(patience, logs.next()).await;
        drop(logs);
        match next {
            Err(_) => {}
            Ok(Some(batch)) => {
                let batch = batch.unwrap();
                text.extend_from_slice(&batch.bytes);
                from = vec![batch.cursor];
                // A new stream would report the end again.
                if matches!(batch.mark, Some(Mark::Ended { .. })) {
                    break;
                }
            }
            Ok(None) => panic!("the end was not told"),
        }
        assert!(streams < 100_000, "no end: {}", String::from_utf8_lossy(&text));
    }
    let wanted: String = (0..400).map(|n| format!("line {n}\n")).chain(["end\n".to_owned()]).collect();
    assert_eq!(String::from_utf8(text).unwrap(), wanted, "after {streams} streams");

    // The watch is interrupted as often, and the end is still reported.
    for _ in 0..20 {
        drop(job.watch());
        let _ = tokio::time::timeout(Duration::from_micros(50), job.wait()).await;
    }
    assert_eq!(job.wait().await.unwrap().phase, JobPhase::Succeeded);
}

/// A submit is atomic: dropped at any point, the job exists once, or not at all, and the journal has the
/// outcome.
#[tokio::test]
async fn a_dropped_submit_is_found_again() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let target = client.target("local").unwrap();
    for step in 0..12_u64 {
        let spec = spec(&format!("cut-{step}"), 1, "true");
        let plan = client.plan("local", &spec).await.unwrap();
        let _ = tokio::time::timeout(Duration::from_micros(step * step * 200), plan.submit()).await;
    }
    let listed = client.list("local", &JobFilter::all()).await.unwrap();
    client.unresolved_on(&target).await.unwrap();
    let known: Vec<_> =
        client.journal().records().unwrap().into_iter().filter_map(|record| record.handle).collect();
    for job in &listed {
        assert!(known.contains(&job.handle), "{} is not in the journal", job.handle);
        client.attach(&job.handle).await.unwrap().wait().await.unwrap();
    }
}

/// A process that was killed between the answer and its output leaves a handle that nobody has seen.
#[tokio::test]
async fn a_handle_that_was_not_seen_is_told_before_the_job_runs_again() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let twice = || async { client.plan("local", &spec("twice", 1, "true")).await.unwrap().submit().await };
    let first = twice().await.unwrap();
    first.wait().await.unwrap();
    let mut record = client.journal().find(first.handle()).unwrap().unwrap();
    assert!(!record.undelivered, "the caller has it");
    record.undelivered = true;
    record.owner.as_mut().unwrap().started = 1;
    client.journal().write(&record).unwrap();
    // Another job is another job.
    client.plan("local", &spec("other", 1, "true")).await.unwrap().submit().await.unwrap();
    let error = twice().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains(&first.handle().to_string()), "{error}");
    let second = twice().await.unwrap();
    assert_ne!(second.handle(), first.handle(), "it is told once");
    second.wait().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_is_said_with_its_kind() {
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let kind = |result: weftrun::Result<Job>| result.unwrap_err().kind();
    assert_eq!(client.plan("nowhere", &spec("a", 1, "true")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(kind(client.attach(&"slurm://nowhere/1".parse().unwrap()).await), ErrorKind::NotFound);
    let job = submit(&client, "taken", 1, "sleep 600").await;
    let plan = client.plan("local", &spec("taken", 1, "true")).await.unwrap();
    assert!(matches!(kind(plan.submit().await), ErrorKind::Refused | ErrorKind::AlreadyExists));
    job.cancel().await.unwrap();
    let empty =
        Client::builder().registry(Registry::empty()).config(Config::empty(state.path())).build().unwrap();
    assert_eq!(empty.plan_offline("local", &spec("a", 1, "true")).unwrap_err().kind(), ErrorKind::NotFound);
}
