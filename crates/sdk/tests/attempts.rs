//! A job that failed is submitted again exactly once, under every fault, against a backend that a test controls.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use weftrun::core::backend::{Backend, BackendEntry};
use weftrun::core::spec::RetryPolicy;
use weftrun::diagnose::nodes::Decision;
use weftrun::prelude::*;
use weftrun::{Config, NextAttempt, Registry};
use weftrun_testkit::fake::Fake;

static FAKE: LazyLock<Fake> = LazyLock::new(|| Fake::new("fake"));
/// A lost answer is that of the test which lost it.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const XID: &str = "NVRM: Xid (PCI:0000:b3:00): 79, pid=4711, name=python, GPU has fallen off the bus.\n";

fn client(state: &Path) -> Client {
    let connect = |_| Box::pin(async { Ok(Arc::new(FAKE.clone()) as Arc<dyn Backend>) }) as _;
    let registry = Registry::empty().with(BackendEntry::new("fake", "", "here", connect));
    Client::builder().registry(registry).config(Config::empty(state)).build().unwrap()
}

async fn submitted(client: &Client, name: &str) -> Job {
    let role = Role::worker().nodes(2).ranks_per_node(1).command(["./train"]);
    let spec = JobSpec::builder(name).launch(Launch::PerRank).role(role).build().unwrap();
    let job = client.plan("fake", &spec).await.unwrap().submit().await.unwrap();
    FAKE.place(job.handle(), &["gpu-16", "gpu-17"]);
    job
}

/// Ends a job with these lines of its second rank.
fn fail(job: &Job, lines: &str) {
    for rank in 0..2_u32 {
        let line = format!(
            "gpu-1{}:41{rank}:41{rank} [0] NCCL INFO Bootstrap: Using eth0:10.0.0.{rank}<0>\n",
            rank + 6
        );
        FAKE.log(job.handle(), rank, line.as_bytes());
        let line = format!(
            "gpu-1{}:41{rank}:43{rank} [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId b3000 commId 0x9 - Init START\n",
            rank + 6
        );
        FAKE.log(job.handle(), rank, line.as_bytes());
    }
    FAKE.log(job.handle(), 1, lines.as_bytes());
    FAKE.fail(job.handle(), 1, "exit code 1");
}

fn made(name: &str) -> usize {
    let jobs =
        futures_util::FutureExt::now_or_never(FAKE.list(&JobFilter::all().ended(true))).unwrap().unwrap();
    jobs.iter().filter(|job| job.name == name).count()
}

async fn next(client: &Client, job: &Job) -> NextAttempt {
    client.next_attempt(job, RetryPolicy::new(3)).await.unwrap()
}

fn proven(next: &NextAttempt) -> Vec<&str> {
    match &next.decision {
        Decision::Retry { proven, .. } => proven.iter().map(|left| left.node.as_str()).collect(),
        Decision::Stop { why } => panic!("not submitted again: {why}"),
    }
}

fn reason(next: &NextAttempt) -> &str {
    match &next.decision {
        Decision::Stop { why } => why,
        Decision::Retry { .. } => panic!("submitted again: {:?}", next.decision),
    }
}

#[tokio::test]
async fn the_node_that_failed_is_left_out() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let job = submitted(&client, "xid").await;
    fail(&job, XID);
    let second = next(&client, &job).await;
    assert_eq!((proven(&second), second.number), (vec!["gpu-17"], 2));
    let plan = second.plan.as_ref().unwrap();
    assert_eq!(
        (&*plan.planned().spec.name, &plan.planned().spec.avoid),
        ("xid-r2", &vec!["gpu-17".to_owned()])
    );
    assert!(
        plan.findings().iter().any(|finding| finding.message.starts_with("left out: gpu-17 (GPU-XID")),
        "{:?}",
        plan.findings()
    );
    let again = plan.submit().await.unwrap();
    assert_eq!((made("xid-r2"), again.attempt().unwrap().number), (1, 2));
    // The next one leaves out both, and then it is enough.
    FAKE.place(again.handle(), &["gpu-16", "gpu-18"]);
    FAKE.log(
        again.handle(),
        1,
        format!("gpu-18:1:1 [0] NCCL INFO cudaDriverVersion 12040\n{XID}").as_bytes(),
    );
    FAKE.fail(again.handle(), 1, "exit code 1");
    let third = next(&client, &again).await;
    assert_eq!((third.number, &*third.plan.as_ref().unwrap().planned().spec.name), (3, "xid-r3"));
    let attempts = client.attempts().unwrap();
    let replaced = |list: &[&Job]| {
        attempts.replaced_in(list.iter().map(|job| job.handle())).into_iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(replaced(&[&job, &again]), [job.handle().clone()]);
    assert!(replaced(&[&job]).is_empty(), "the later attempt is not in the list");
    assert_eq!(attempts.of(again.handle()).unwrap().label(), "attempt 2/4");
    let facts = again.describe().await.unwrap().facts;
    let before = facts.iter().find(|(key, _)| key == "before").unwrap();
    assert!(before.1.starts_with(&format!("1 {}: GPU-XID", job.handle())), "{facts:?}");
    let newest = client.newest_attempt(job.handle()).unwrap();
    assert_eq!(newest.map(|(job, _)| job).as_ref(), Some(again.handle()));
    assert!(client.newest_attempt(again.handle()).unwrap().is_none());
    // The history has both, and the hardware is proven.
    let suspects = client.job_history(&client.target("fake").unwrap()).unwrap().suspects().unwrap();
    assert!(suspects.iter().any(|left| left.node == "gpu-17"), "{suspects:?}");
}

#[tokio::test]
async fn a_program_is_not_submitted_again() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let job = submitted(&client, "bug").await;
    fail(
        &job,
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/t.py\", line 3, in f\n[rank1]: ValueError: x\n",
    );
    assert!(reason(&next(&client, &job).await).contains("PROGRAM-EXCEPTION"));
    let suspects = client.job_history(&client.target("fake").unwrap()).unwrap().suspects().unwrap();
    assert!(suspects.is_empty(), "{suspects:?}");
}

/// The cluster starts it again itself, as after a preemption.
#[tokio::test]
async fn a_job_that_is_queued_again_is_not_submitted_again() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let job = submitted(&client, "requeued").await;
    fail(&job, XID);
    for phase in [JobPhase::Pending, JobPhase::Restarting, JobPhase::Running] {
        FAKE.phase(job.handle(), phase, "");
        assert!(reason(&next(&client, &job).await).contains("starts it again itself"), "{phase}");
    }
    assert_eq!(made("requeued-r2"), 0);
}

#[tokio::test]
async fn an_attempt_whose_answer_was_lost_is_found() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let first = client(state.path());
    let job = submitted(&first, "lost").await;
    fail(&job, XID);
    let second = next(&first, &job).await;
    FAKE.lose_next_answer();
    assert_eq!(second.plan.unwrap().submit().await.unwrap_err().kind(), ErrorKind::Unreachable);
    // Another process, after this one was killed.
    let other = client(state.path());
    let job = other.attach(job.handle()).await.unwrap();
    let found = next(&other, &job).await;
    assert!(found.plan.is_none());
    assert_eq!((made("lost-r2"), found.job.unwrap().attempt().unwrap().number), (1, 2));
}

/// The record of an attempt as an older version wrote it, and one that cannot be read: neither is made a second time.
#[tokio::test]
async fn an_attempt_of_another_version_is_not_made_again() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let job = submitted(&client, "upgraded").await;
    fail(&job, XID);
    let again = next(&client, &job).await.plan.unwrap().submit().await.unwrap();
    let path = state
        .path()
        .join(format!("journal/{}.json", client.journal().find(again.handle()).unwrap().unwrap().submission));
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let attempt = record["attempt"].as_object_mut().unwrap();
    attempt.remove("earlier").unwrap();
    attempt.remove("most").unwrap();
    attempt.insert("previous".to_owned(), job.handle().to_string().into());
    attempt.insert("why".to_owned(), "GPU-XID: as it was written".into());
    std::fs::write(&path, record.to_string()).unwrap();
    let found = next(&client, &job).await;
    assert_eq!((found.plan.is_none(), found.job.unwrap().handle()), (true, again.handle()));
    assert!(
        matches!(&found.decision, Decision::Retry { why, .. } if why == "GPU-XID: as it was written"),
        "{:?}",
        found.decision
    );
    let attempts = client.attempts().unwrap();
    let lines: Vec<String> = attempts.of(again.handle()).unwrap().earlier_lines().collect();
    assert_eq!(lines, [format!("1 {}: GPU-XID: as it was written", job.handle())]);
    for unreadable in ["{\"submission\":", "{\"written\": \"by a later version\"}"] {
        std::fs::write(&path, unreadable).unwrap();
        let error = client.next_attempt(&job, RetryPolicy::new(3)).await.unwrap_err();
        assert!(error.message().contains("cannot be read"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), unreadable, "it is left as it is");
    }
    assert_eq!(made("upgraded-r2"), 1);
}

/// A history that cannot be written loses the line, with one note, and neither the job nor its next attempt.
#[tokio::test]
async fn a_history_that_cannot_be_written_costs_no_job() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    std::fs::write(state.path().join("history"), "a file in place of the folder").unwrap();
    let job = submitted(&client, "unwritten").await;
    fail(&job, XID);
    let why = job.why().await.unwrap();
    assert_eq!(why.cause.as_ref().unwrap().code, "GPU-XID", "{why:?}");
    let notes: Vec<_> = why.findings.iter().filter(|finding| finding.code == "HISTORY-UNWRITTEN").collect();
    assert_eq!(notes.len(), 1, "{:?}", why.findings);
    assert!(notes[0].message.contains("history"), "{:?}", notes[0]);
    let second = next(&client, &job).await;
    assert_eq!(proven(&second), ["gpu-17"]);
    second.plan.unwrap().submit().await.unwrap();
    assert_eq!(made("unwritten-r2"), 1);
}

#[tokio::test]
async fn two_clients_that_watch_a_job_make_one_attempt() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let (one, other) = (client(state.path()), client(state.path()));
    let job = submitted(&one, "two").await;
    fail(&job, XID);
    let same = other.attach(job.handle()).await.unwrap();
    // Both decide before either submits.
    let (first, second) = (next(&one, &job).await, next(&other, &same).await);
    let (first, second) =
        tokio::join!(first.plan.as_ref().unwrap().submit(), second.plan.as_ref().unwrap().submit());
    assert_eq!(first.unwrap().handle(), second.unwrap().handle());
    assert_eq!(made("two-r2"), 1);
    // And a third one finds it.
    assert!(next(&client(state.path()), &same).await.job.is_some());
}

/// The files of a folder are those of the first submission, in another process too.
#[tokio::test]
async fn an_attempt_sends_the_files_of_the_first_one() {
    let _alone = ALONE.lock().await;
    let (state, code) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(code.path().join("train.py"), "print(1)\n").unwrap();
    let first = client(state.path());
    let role = Role::worker().nodes(2).ranks_per_node(1).command(["python", "train.py"]);
    let spec = JobSpec::builder("code").launch(Launch::PerRank).role(role);
    let spec = spec.code(weftrun::code_folder(code.path()).unwrap()).build().unwrap();
    let job = first.plan("fake", &spec).await.unwrap().submit().await.unwrap();
    FAKE.place(job.handle(), &["gpu-16", "gpu-17"]);
    fail(&job, XID);
    std::fs::write(code.path().join("train.py"), "print(2)\n").unwrap();
    let other = client(state.path());
    let job = other.attach(job.handle()).await.unwrap();
    let second = next(&other, &job).await;
    let sent = &second.plan.as_ref().unwrap().planned().spec;
    assert_eq!(sent.code, spec.code);
    // Without them, nothing is announced and nothing is sent.
    std::fs::remove_dir_all(state.path().join("code")).unwrap();
    let third = client(state.path());
    let job = third.attach(job.handle()).await.unwrap();
    let error = third.next_attempt(&job, RetryPolicy::new(3)).await.unwrap_err();
    assert!(error.message().contains("are not kept any more"), "{error}");
    assert_eq!(made("code-r2"), 0);
}

#[tokio::test]
async fn a_job_from_elsewhere_is_not_submitted_again() {
    let _alone = ALONE.lock().await;
    let state = tempfile::tempdir().unwrap();
    let client = client(state.path());
    let handle = FAKE.add("foreign", 2, 1);
    let job = client.attach(&handle).await.unwrap();
    let error = client.next_attempt(&job, RetryPolicy::new(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
