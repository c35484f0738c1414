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

/// Whoever cancelled sees a job that has ended, in the list too; to others it is suspended, as the platform says.
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

/// A preemption and a suspend are told while they are watched; broken answers between are no end.
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
