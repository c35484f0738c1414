//! The fake follows the instructions of a test.

use futures_util::StreamExt;
use weftrun_core::ErrorKind;
use weftrun_core::backend::Backend;
use weftrun_core::job::{Action, JobEvent, JobFilter, JobPhase};
use weftrun_core::log::{LogOptions, Mark};
use weftrun_core::spec::{JobSpec, Role};
use weftrun_testkit::fake::Fake;
use weftrun_testkit::planned;

#[tokio::test]
async fn a_job_goes_through_its_phases_and_its_logs_end() {
    let fake = Fake::new("fake");
    let job = fake.add("llama", 1, 2);
    let mut logs = fake.logs(&job, LogOptions::follow());
    let mut events = fake.watch(JobFilter::one(&job));
    fake.phase(&job, JobPhase::Running, "");
    fake.log(&job, 1, b"\xff garbage\0\n");
    assert_eq!(logs.next().await.unwrap().unwrap().bytes, b"\xff garbage\0\n");
    fake.fail(&job, 137, "out of memory");
    let mut ended = 0;
    while let Some(batch) = logs.next().await {
        ended += usize::from(batch.unwrap().mark == Some(Mark::Ended { exit_code: Some(137) }));
    }
    assert_eq!(ended, 2);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = event.unwrap().phase().or(last);
    }
    assert_eq!(last, Some(JobPhase::Failed));
    drop((logs, events));
    assert_eq!(fake.open_streams(), 0);
}

#[tokio::test]
async fn a_lost_answer_is_found_and_a_dead_cluster_says_so() {
    let fake = Fake::new("fake");
    let spec = JobSpec::builder("once").role(Role::worker().command(["true"])).build().unwrap();
    let rendered = fake.render(&planned(spec)).unwrap();
    fake.lose_next_answer();
    assert_eq!(fake.submit(&rendered).await.unwrap_err().kind(), ErrorKind::Unreachable);
    let handle = fake.submit(&rendered).await.unwrap();
    assert_eq!(fake.list(&JobFilter::all()).await.unwrap().len(), 1);
    fake.die(true);
    let error = fake.describe(&handle).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable());
    assert!(fake.watch(JobFilter::all()).next().await.unwrap().is_err());
    fake.die(false);
    fake.act(&handle, Action::Delete).await.unwrap();
    assert_eq!(fake.describe(&handle).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_hangs_goes_on_when_it_may() {
    let fake = Fake::new("fake");
    let job = fake.add("slow", 1, 1);
    fake.hang(true);
    let mut events = fake.watch(JobFilter::one(&job));
    let waited = tokio::time::timeout(std::time::Duration::from_millis(50), events.next()).await;
    assert!(waited.is_err(), "a hanging watch says nothing");
    fake.hang(false);
    assert!(matches!(events.next().await.unwrap().unwrap(), JobEvent::Status { .. }));
    let limited = fake.with(|capability| capability.hold = false);
    assert_eq!(limited.act(&job, Action::Hold).await.unwrap_err().kind(), ErrorKind::Unsupported);
}
