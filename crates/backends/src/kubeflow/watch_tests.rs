//! What is told of a job when its watch and that of its pods are not equally far: on a loaded API server either may be behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, SelectAll};
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

/// The end that is told where the job has failed, its pod still runs by the pods' watch, and this comes later.
async fn end(later: Option<(Of, Change<Seen>)>) -> JobSummary {
    let state = tempfile::tempdir().unwrap();
    let client = Arc::new(Client::new(&TargetConfig::new("t", "kubeflow", state.path())).unwrap());
    let running = pod("Running", &json!({"running": {}}));
    let before = [
        (Of::Pods, Change::All(vec![Seen::of(Of::Pods, running)])),
        (Of::Events, Change::All(Vec::new())),
        (Of::Jobs(Kind::PyTorchJob), Change::All(vec![Seen::of(Of::Jobs(Kind::PyTorchJob), failed_job())])),
    ];
    let mut changes = SelectAll::new();
    let all = before.into_iter().chain(later).map(|(of, change)| (of, Ok(change)));
    changes.push(stream::iter(all).chain(stream::pending()).boxed());
    let handle = JobHandle::new("kubeflow", "t", ["nlp", "pytorchjob", "a"]).with_uid("job");
    let wanted = BTreeSet::from(["job".to_owned()]);
    let mut watcher = Watcher::over(client, changes, 3, JobFilter::one(&handle), wanted);
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
