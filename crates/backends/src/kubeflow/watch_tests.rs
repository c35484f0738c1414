//! Events of a job whose own watch and that of its pods lag differently, as either may on a loaded API
//! server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, SelectAll};
use futures_util::{Stream, StreamExt};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use weftrun_core::backend::TargetConfig;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};

use super::client::Client;
use super::kinds::Kind;
use super::watch::{Of, Seen, Watcher};
use crate::kubernetes::Change;

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

fn failed_job() -> DynamicObject {
    let failed = json!({"type": "Failed", "status": "True", "message": "1 Worker replica(s) failed."});
    object(&json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "nlp", "uid": "job", "labels": {"weftrun.dev/submission": "0123456789abcdef0123456789abcdef"}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}, "status": {"conditions": [failed]},
    }))
}

fn pod(phase: &str, state: &Value) -> DynamicObject {
    let status = json!({"name": "pytorch", "state": state, "restartCount": 0});
    object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a-worker-0", "uid": "pod", "labels": {"training.kubeflow.org/job-name": "a"}},
        "spec": {"containers": [{"name": "pytorch"}]}, "status": {"phase": phase, "containerStatuses": [status]},
    }))
}

const JOBS: Of = Of::Jobs(Kind::PyTorchJob);

/// Returns a watcher of these jobs whose three watches bring these changes.
fn watcher(
    changes: impl Stream<Item = (Of, Change<Seen>)> + Send + 'static,
    filter: JobFilter,
    wanted: &[&str],
) -> Watcher {
    let state = tempfile::tempdir().unwrap();
    let client = Arc::new(Client::new(&TargetConfig::new("t", "kubeflow", state.path())).unwrap());
    let mut all = SelectAll::new();
    all.push(changes.map(|(of, change)| (of, Ok(change))).boxed());
    Watcher::over(client, all, 3, filter, wanted.iter().map(|uid| (*uid).to_owned()).collect())
}

/// Returns a watcher of one job, to which nothing happens after these changes.
fn of_one(changes: impl IntoIterator<Item = (Of, Change<Seen>), IntoIter: Send + 'static>) -> Watcher {
    let handle = JobHandle::new("kubeflow", "t", ["nlp", "pytorchjob", "a"]).with_uid("job");
    watcher(stream::iter(changes).chain(stream::pending()), JobFilter::one(&handle), &["job"])
}

/// Returns the first lists of one job, with these pods and events.
fn lists(pods: Vec<DynamicObject>, events: Vec<Seen>, job: DynamicObject) -> Vec<(Of, Change<Seen>)> {
    let pods = pods.into_iter().map(|pod| Seen::of(Of::Pods, pod)).collect();
    vec![
        (Of::Pods, Change::All(pods)),
        (Of::Events, Change::All(events)),
        (JOBS, Change::All(vec![Seen::of(JOBS, job)])),
    ]
}

/// Returns the reported end of a job that has failed while its pod still runs according to the pods' watch,
/// and this change comes later.
async fn end(later: Option<(Of, Change<Seen>)>) -> JobSummary {
    let running = pod("Running", &json!({"running": {}}));
    let before = lists(vec![running], Vec::new(), failed_job());
    let mut watcher = of_one(before.into_iter().chain(later));
    let mut last = None;
    while let Some(event) = watcher.next().await.unwrap() {
        if let JobEvent::Status { job } = event {
            assert!(last.is_none(), "the end is told twice");
            last = Some(job);
        }
    }
    last.unwrap()
}

#[tokio::test]
async fn a_failed_job_waits_for_its_pods_to_say_how() {
    let ended = pod("Failed", &json!({"terminated": {"exitCode": 9, "reason": "Error"}}));
    let told = end(Some((Of::Pods, Change::Set(Seen::of(Of::Pods, ended))))).await;
    assert_eq!((told.phase, told.exit_code), (JobPhase::Failed, Some(9)), "{told:?}");
    assert!(told.reason.contains("a-worker-0 ended with exit code 9"), "{told:?}");
}

#[tokio::test]
async fn pods_that_never_say_how_do_not_hold_the_end_back() {
    let told = end(None).await;
    assert_eq!((told.phase, told.exit_code), (JobPhase::Failed, None), "{told:?}");
}

/// A namespace may have more events than are kept; those of the job at hand are the newest.
#[tokio::test]
async fn the_newest_events_are_kept_whatever_their_uids() {
    let event = |uid: String, second: i64, about: &str| {
        Seen::of(
            Of::Events,
            object(&json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": uid, "uid": uid}, "type": "Warning",
                "reason": "FailedCreatePod", "message": "exceeded quota", "count": 1,
                "involvedObject": {"kind": "PyTorchJob", "name": "a", "uid": about},
                "lastTimestamp": jiff::Timestamp::from_second(1_700_000_000 + second).unwrap().to_string(),
            })),
        )
    };
    let mut events: Vec<Seen> = (0..9000).map(|i| event(format!("z{i:05}"), i, "other")).collect();
    // First by uid, last by time.
    events.push(event("a".to_owned(), 20_000, "job"));
    events.push(event("z99999".to_owned(), 1, "other"));
    let running = pod("Running", &json!({"running": {}}));
    let mut watcher = of_one(lists(vec![running], events, failed_job()));
    let mut messages = 0;
    while let Some(event) = watcher.next().await.unwrap() {
        messages += usize::from(matches!(event, JobEvent::Message { .. }));
    }
    assert_eq!(messages, 1);
}

/// A job whose label changes is no longer watched by it.
#[tokio::test]
async fn labels_select_jobs_while_they_have_them() {
    let labelled = |name: &str, team: &str| {
        let object = object(&json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": "nlp", "uid": name, "labels": {"team": team}},
            "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
        }));
        Seen::of(JOBS, object)
    };
    let list = [
        (Of::Pods, Change::All(Vec::new())),
        (Of::Events, Change::All(Vec::new())),
        (JOBS, Change::All(vec![labelled("ours", "nlp"), labelled("theirs", "vision")])),
        (JOBS, Change::Set(labelled("ours", "vision"))),
    ];
    let mut watcher = watcher(stream::iter(list), JobFilter::all().label("team", "nlp"), &[]);
    let mut seen = Vec::new();
    while let Some(event) = watcher.next().await.unwrap() {
        match event {
            JobEvent::Status { job } => seen.push(format!("{} {:?}", job.name, job.labels)),
            JobEvent::Gone { job } => seen.push(format!("{} gone", job.name())),
            _ => {}
        }
    }
    assert_eq!(seen, [r#"ours {"team": "nlp"}"#, "ours gone"]);
}

/// Returns the events of a watcher of one job for these changes, until it is silent for `patience`.
async fn said(changes: Vec<(Of, Change<Seen>)>, patience: Duration) -> Vec<JobEvent> {
    let mut watcher = of_one(changes);
    let mut events = Vec::new();
    while let Ok(Ok(Some(event))) = tokio::time::timeout(patience, watcher.next()).await {
        events.push(event);
    }
    events
}

/// A job without a status, created so many seconds ago.
fn new_job(age: i64, suspended: bool) -> DynamicObject {
    let created = crate::clock::now() - jiff::SignedDuration::from_secs(age);
    object(&json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "nlp", "uid": "job", "creationTimestamp": created.to_string(),
                     "labels": {"weftrun.dev/submission": "0123456789abcdef0123456789abcdef"}},
        "spec": {"runPolicy": {"suspend": suspended}, "pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
    }))
}

/// Nothing happens to a job that no operator takes up: it is reported after 30 seconds, but not before, and
/// not for a job that waits in a queue.
#[tokio::test]
async fn a_job_that_no_operator_takes_up_is_named() {
    let untaken = async |age, suspended, patience| {
        let changes = lists(Vec::new(), Vec::new(), new_job(age, suspended));
        let events = said(changes, Duration::from_secs(patience)).await;
        let stuck = |event: &&JobEvent| matches!(event, JobEvent::Stuck { finding, .. } if finding.code == "K8S-NO-OPERATOR");
        events.iter().filter(stuck).count()
    };
    assert_eq!(untaken(28, false, 30).await, 1);
    assert_eq!(untaken(3600, false, 1).await, 1);
    assert_eq!(untaken(0, false, 1).await, 0);
    assert_eq!(untaken(3600, true, 1).await, 0);
}

/// A repeated warning is reported again when its number of occurrences doubled, each time with that number.
#[tokio::test]
async fn repeated_warnings_are_folded() {
    let warning = |count: u64| {
        object(&json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "uid": "e"}, "type": "Warning",
            "reason": "FailedCreatePod", "message": "exceeded quota", "count": count,
            "involvedObject": {"kind": "PyTorchJob", "name": "a", "uid": "job"},
            "lastTimestamp": crate::clock::now().to_string(),
        }))
    };
    let mut changes = lists(Vec::new(), Vec::new(), new_job(0, false));
    changes.extend((1..=100).map(|count| (Of::Events, Change::Set(Seen::of(Of::Events, warning(count))))));
    let texts: Vec<String> = said(changes, Duration::from_secs(1))
        .await
        .into_iter()
        .filter_map(|event| match event {
            JobEvent::Message { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    let wanted = ["", " (2 times)", " (4 times)", " (8 times)", " (16 times)", " (32 times)", " (64 times)"];
    assert_eq!(texts, wanted.map(|times| format!("a: exceeded quota{times}")));
}

/// A TrainJob is not starting again between the end of its pods and its own condition.
#[test]
fn a_trainjob_whose_pods_have_ended_is_not_starting() {
    let job = super::status::Job {
        kind: Kind::TrainJob,
        object: json!({"metadata": {"name": "a", "uid": "job"}, "spec": {"trainer": {"numNodes": 2}}}),
    };
    let phase = |first: &str, second: &str| {
        let pods = [first, second].map(|phase| {
            let state = if phase == "Running" {
                json!({"running": {}})
            } else {
                json!({"terminated": {"exitCode": 0}})
            };
            crate::kubernetes::Pod::of(&pod(phase, &state))
        });
        job.phase(&pods.iter().collect::<Vec<_>>()).0
    };
    assert_eq!(phase("Running", "Running"), JobPhase::Running);
    assert_eq!(phase("Succeeded", "Running"), JobPhase::Running);
    assert_eq!(phase("Succeeded", "Succeeded"), JobPhase::Running);
}
