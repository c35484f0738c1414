//! A workload after it was submitted: its phases, what was done to it, what happened to it.

use futures_util::TryStreamExt;
use weftrun_core::ErrorKind;
use weftrun_core::job::{Action, JobEvent, JobFilter, JobPhase};
use weftrun_testkit::fake_runai::{FakeRunAi, Fault, Trouble};

use crate::common::{connect, submit, target, until};

#[tokio::test(flavor = "multi_thread")]
async fn suspend_resume_delete_in_every_version() {
    for minor in [18, 21, 24] {
        let fake = FakeRunAi::start(minor).await.unwrap();
        let backend = connect(target(&fake)).await.unwrap();
        // Before 2.20 a distributed workload cannot be suspended, and one of one node can.
        let handle = submit(&backend, "life", if minor < 20 { 1 } else { 2 }, "sleep 300").await;
        until(&backend, &handle, JobPhase::Running).await;
        backend.act(&handle, Action::Suspend).await.unwrap();
        assert_eq!(backend.describe(&handle).await.unwrap().summary.phase, JobPhase::Suspended);
        backend.act(&handle, Action::Resume).await.unwrap();
        until(&backend, &handle, JobPhase::Running).await;
        let history = backend.describe(&handle).await.unwrap().history;
        let resumed = |event: &&JobEvent| matches!(event, JobEvent::Attempt { reason, .. } if reason.contains("resumed"));
        assert_eq!(history.iter().filter(resumed).count(), 1, "{history:#?}");
        let listed = backend.list(&JobFilter::all()).await.unwrap();
        assert_eq!(listed.len(), 1, "2.{minor}");
        assert_eq!(listed[0].handle, handle);
        backend.act(&handle, Action::Delete).await.unwrap();
        assert_eq!(backend.describe(&handle).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(backend.act(&handle, Action::Hold).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

/// On the machine that cancelled it, the job has ended, in the list too; elsewhere it is suspended, as the
/// platform reports it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_has_ended_where_it_was_cancelled() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "cancelled", 2, "sleep 300").await;
    backend.act(&handle, Action::Cancel).await.unwrap();
    assert_eq!(backend.describe(&handle).await.unwrap().summary.phase, JobPhase::Cancelled);
    assert_eq!(backend.list(&JobFilter::all()).await.unwrap()[0].phase, JobPhase::Cancelled);
    let mut elsewhere = target(&fake);
    elsewhere.state_dir = tempfile::tempdir().unwrap().path().to_owned();
    let elsewhere = connect(elsewhere).await.unwrap();
    assert_eq!(elsewhere.list(&JobFilter::all()).await.unwrap()[0].phase, JobPhase::Suspended);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_version_cannot_do_is_said() {
    let fake = FakeRunAi::start(18).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "old", 2, "sleep 300").await;
    let error = backend.act(&handle, Action::Suspend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hints()[0].contains("2.20"), "{error}");
}

/// A preemption and a suspend are reported during a watch; broken answers in between do not end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_of_preemption_and_resume() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let ids = fake.add(["preempted".to_owned()], 2, 0);
    let backend = connect(target(&fake)).await.unwrap();
    let handle = backend.list(&JobFilter::all()).await.unwrap().remove(0).handle;
    let path = "/api/v1/workloads/distributed";
    fake.fail(Fault { method: "GET", path, times: 1, trouble: Trouble::Html(502) });
    fake.fail(Fault { method: "GET", path, times: 1, trouble: Trouble::TokenExpired });
    let tell = |phase: &str| fake.state().workloads.get_mut(&ids[0]).unwrap().told = Some(phase.to_owned());
    let mut events = backend.watch(JobFilter::one(&handle));
    let mut steps =
        ["Pending", "Degraded", "Running", "Stopped", "Running", "Unknown", "Completed"].into_iter();
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        match event {
            JobEvent::Status { job } => {
                seen.push(job.phase.to_string());
                if job.phase == JobPhase::Pending {
                    assert_eq!(
                        job.reason,
                        "Unschedulable: 0/2 nodes are available: insufficient nvidia.com/gpu"
                    );
                }
                if let Some(next) = steps.next() {
                    tell(next);
                }
            }
            JobEvent::Attempt { attempt, reason, .. } => seen.push(format!("{attempt} {reason}")),
            _ => {}
        }
    }
    let wanted = [
        "running",
        "1 preempted: waits for nodes again",
        "pending",
        "restarting",
        "running",
        "suspended",
        "2 resumed after a suspend",
        "running",
        "unknown",
        "succeeded",
    ];
    assert_eq!(seen, wanted);
}

/// Somebody deletes the workload while it is watched.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_the_workload_is_deleted_under_it() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "gone", 2, "sleep 300").await;
    let mut events = backend.watch(JobFilter::one(&handle));
    let mut gone = false;
    while let Some(event) = events.try_next().await.unwrap() {
        if matches!(event, JobEvent::Status { .. }) {
            let other = connect(target(&fake)).await.unwrap();
            let _ = other.act(&handle, Action::Delete).await;
        }
        gone |= matches!(event, JobEvent::Gone { .. });
    }
    assert!(gone);
}

/// The reason and the addresses that only the list has are shown by `describe`, `wait` and a list of one job too.
#[tokio::test(flavor = "multi_thread")]
async fn every_verb_shows_the_reason_of_the_list() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let id = fake.add(["why".to_owned()], 2, 0).remove(0);
    let tell = |phase: &str, message: &str| {
        let mut state = fake.state();
        let workload = state.workloads.get_mut(&id).unwrap();
        (workload.told, workload.message) = (Some(phase.to_owned()), message.to_owned());
        workload.urls = vec!["https://cluster.example.test/nlp/why".to_owned()];
    };
    let backend = connect(target(&fake)).await.unwrap();
    for (phase, message) in [
        ("Pending", "over the quota of the project"),
        ("Running", "1 of 2 pods is being replaced"),
        ("Degraded", "a pod was evicted"),
        ("Stopped", "idle for 8 hours"),
        ("SomethingNew", "a word of a later version"),
        ("Failed", "exit code 3"),
    ] {
        tell(phase, message);
        let listed = backend.list(&JobFilter::all()).await.unwrap().remove(0);
        assert_eq!(listed.reason, message);
        let described = backend.describe(&listed.handle).await.unwrap();
        let one = backend.list(&JobFilter::one(&listed.handle)).await.unwrap().remove(0);
        let watched = loop {
            if let Some(JobEvent::Status { job }) =
                backend.watch(JobFilter::one(&listed.handle)).try_next().await.unwrap()
            {
                break job;
            }
        };
        for (verb, reason) in
            [("describe", described.summary.reason), ("list", one.reason), ("watch", watched.reason)]
        {
            assert!(reason.contains(message), "{phase}, {verb}: {reason:?}");
        }
        let address = ("address".to_owned(), "https://cluster.example.test/nlp/why".to_owned());
        assert!(described.facts.contains(&address), "{:?}", described.facts);
    }
}

/// Reads lag behind a create: a 404 right after it is waited out by every verb, and only then.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_was_just_created_is_waited_for() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let path = "/api/v1/workloads/distributed";
    let lag = |method| fake.fail(Fault { method, path, times: 2, trouble: Trouble::Status(404) });
    for verb in ["describe", "list", "watch", "logs", "suspend", "cancel", "delete"] {
        let submitter = connect(target(&fake)).await.unwrap();
        let handle = submit(&submitter, &format!("new-{verb}"), 2, "echo new").await;
        // Another process, which learns of the create from the state folder or from the list.
        let mut elsewhere = target(&fake);
        let other = tempfile::tempdir().unwrap();
        if verb == "describe" {
            elsewhere.state_dir = other.path().to_owned();
        }
        let backend = connect(elsewhere).await.unwrap();
        let of = |error: weftrun_core::Error| panic!("{verb}: {error}");
        match verb {
            "delete" => {
                fake.fail(Fault { method: "DELETE", path, times: 1, trouble: Trouble::Status(404) });
                lag("GET");
                backend.act(&handle, Action::Delete).await.unwrap_or_else(of);
                // It is gone now, and nothing waits for it.
                let began = std::time::Instant::now();
                assert_eq!(backend.describe(&handle).await.unwrap_err().kind(), ErrorKind::NotFound);
                assert!(began.elapsed() < std::time::Duration::from_secs(30));
            }
            "suspend" | "cancel" => {
                fake.fail(Fault { method: "POST", path, times: 1, trouble: Trouble::Status(404) });
                lag("GET");
                let action = if verb == "cancel" { Action::Cancel } else { Action::Suspend };
                backend.act(&handle, action).await.unwrap_or_else(of);
            }
            "describe" => {
                lag("GET");
                drop(backend.describe(&handle).await.unwrap_or_else(|error| panic!("{verb}: {error}")));
            }
            "list" => {
                lag("GET");
                assert_eq!(backend.list(&JobFilter::one(&handle)).await.unwrap().len(), 1);
            }
            "watch" => {
                lag("GET");
                let first = backend.watch(JobFilter::one(&handle)).try_next().await.unwrap();
                assert!(matches!(first, Some(JobEvent::Status { .. })), "{first:?}");
            }
            _ => {
                lag("GET");
                let logs = backend.logs(&handle, weftrun_core::log::LogOptions::follow());
                let read: Vec<_> = logs.try_collect().await.unwrap();
                assert!(read.iter().any(|batch| batch.bytes.ends_with(b"new\n")), "{read:?}");
            }
        }
        fake.state().faults.clear();
    }
}
