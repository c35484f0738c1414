//! Logs over every route, cut, refused and deleted under us: nothing is lost, nothing comes twice.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use weftrun_core::ErrorKind;
use weftrun_core::backend::Backend;
use weftrun_core::job::{Action, JobFilter, JobHandle, JobPhase};
use weftrun_core::log::{LogOptions, Mark};
use weftrun_testkit::fake_runai::{FakeRunAi, Fault, Trouble};

use crate::common::{connect, submit, target, until, with_kubeconfig};

/// Sixty lines a node, slowly.
const SLOW: &str = "i=0; while [ $i -lt 60 ]; do echo line $i of $RANK; i=$((i+1)); sleep 0.05; done";

/// The bytes of each pod, and the marks that are more than an end.
async fn read(
    backend: &dyn Backend,
    handle: &JobHandle,
    options: LogOptions,
) -> (BTreeMap<String, String>, Vec<Mark>) {
    let mut batches = backend.logs(handle, options);
    let (mut bytes, mut marks): (BTreeMap<String, Vec<u8>>, Vec<Mark>) = (BTreeMap::new(), Vec::new());
    let mut notes = Vec::new();
    while let Some(batch) = batches.try_next().await.unwrap() {
        if let Some(note @ Mark::Note { .. }) = batch.mark {
            notes.push(note);
            continue;
        }
        bytes.entry(batch.source.name.clone()).or_default().extend(&batch.bytes);
        marks.extend(batch.mark.filter(|mark| !matches!(mark, Mark::Ended { .. })));
    }
    // Whether a pod had started at the first look is chance, unless none ever did.
    if bytes.is_empty() {
        marks.extend(notes);
    }
    (bytes.into_iter().map(|(pod, text)| (pod, String::from_utf8(text).unwrap())).collect(), marks)
}

fn assert_whole(pods: &BTreeMap<String, String>) {
    assert_eq!(pods.len(), 2, "{pods:?}");
    for (rank, text) in pods.values().enumerate() {
        let expected: String = (0..60).map(|i| format!("line {i} of {rank}\n")).collect();
        assert_eq!(*text, expected);
    }
}

/// Streams are cut three times, once in the middle of a line, and the token runs out in between.
#[tokio::test(flavor = "multi_thread")]
async fn cut_logs_lose_and_repeat_nothing() {
    for minor in [18, 21, 24] {
        let fake = FakeRunAi::start(minor).await.unwrap();
        fake.state().cut_logs_after = vec![3, 0, 17];
        let backend = connect(target(&fake)).await.unwrap();
        let handle = submit(&backend, "cuts", 2, SLOW).await;
        let path = "/cluster-api/api";
        fake.fail(Fault { method: "GET", path, times: 1, trouble: Trouble::Status(503) });
        fake.fail(Fault { method: "GET", path, times: 1, trouble: Trouble::TokenExpired });
        fake.fail(Fault { method: "GET", path, times: 1, trouble: Trouble::CutBefore });
        let (pods, marks) = read(&*backend, &handle, LogOptions::follow()).await;
        assert_whole(&pods);
        assert_eq!(marks, [], "2.{minor}");
    }
}

/// Without the cluster's API, a kubeconfig does: while the workload runs, and after it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_gives_the_logs() {
    for minor in [18, 21, 24] {
        let fake = FakeRunAi::start(minor).await.unwrap();
        fake.state().cluster_api = false;
        let folder = tempfile::tempdir().unwrap();
        let backend = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
        let handle = submit(&backend, "kube", 2, SLOW).await;
        let (pods, marks) = read(&*backend, &handle, LogOptions::follow()).await;
        assert_whole(&pods);
        assert_eq!(marks, []);
        until(&backend, &handle, JobPhase::Succeeded).await;
        let (pods, _) = read(&*backend, &handle, LogOptions::default()).await;
        assert_whole(&pods);
    }
}

/// Of two workloads of one project each gets its own pods' logs.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_gives_the_logs_of_this_workload_only() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.state().cluster_api = false;
    let folder = tempfile::tempdir().unwrap();
    let backend = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
    submit(&backend, "kube", 2, "echo other").await;
    let handle = submit(&backend, "kube-2", 1, "echo ours").await;
    until(&backend, &handle, JobPhase::Succeeded).await;
    let (pods, _) = read(&*backend, &handle, LogOptions::follow()).await;
    assert_eq!(pods.into_values().collect::<Vec<_>>(), ["ours\n"]);
}

/// Where no route leads to the logs, the error holds the exact words that get them elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_route_the_error_says_where_the_logs_are() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.state().cluster_api = false;
    let backend = connect(target(&fake)).await.unwrap();
    for (name, nodes, words) in [("far", 2, "training pytorch"), ("near", 1, "training")] {
        let handle = submit(&backend, name, nodes, "sleep 300").await;
        let error = backend.logs(&handle, LogOptions::follow()).try_next().await.unwrap_err();
        assert!(error.message().contains("HTML page came with 502"), "{error}");
        let wanted = format!("runai {words} logs {name} -p nlp --follow");
        assert!(error.hints().contains(&wanted), "{:?}", error.hints());
        assert!(error.hints().iter().any(|hint| hint.contains("/workloads")));
    }
}

/// The platform streams the logs of running workloads only: a pod that has ended is explained, not silently empty.
#[tokio::test(flavor = "multi_thread")]
async fn an_ended_pod_is_explained() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.state().ended_logs = false;
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "ended", 1, "echo done").await;
    until(&backend, &handle, JobPhase::Succeeded).await;
    for options in [LogOptions::follow(), LogOptions::default()] {
        let error = backend.logs(&handle, options).try_collect::<Vec<_>>().await.unwrap_err();
        assert!(error.message().contains("not running") && error.message().contains("kubeconfig"), "{error}");
        assert!(error.hints().contains(&"runai training logs ended -p nlp --follow".to_owned()), "{error:?}");
        assert!(error.hints().iter().any(|hint| hint.contains("/workloads")), "{error:?}");
    }
    // With a kubeconfig the same log is there.
    let folder = tempfile::tempdir().unwrap();
    let backend = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
    let (pods, _) = read(&*backend, &handle, LogOptions::follow()).await;
    assert_eq!(pods.into_values().collect::<Vec<_>>(), ["done\n"]);
}

/// Somebody deletes the workload while its logs are followed: the stream ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn following_ends_when_the_workload_is_deleted_under_it() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "deleted", 2, "echo begun; sleep 300").await;
    let mut batches = backend.logs(&handle, LogOptions::follow());
    let mut text = Vec::new();
    while let Some(batch) = batches.try_next().await.unwrap() {
        text.extend(&batch.bytes);
        if batch.bytes.ends_with(b"begun\n") {
            let other = connect(target(&fake)).await.unwrap();
            let _ = other.act(&handle, Action::Delete).await;
        }
    }
    assert!(text.starts_with(b"begun\n"));
}

/// A suspend kills the pods, a resume makes new ones: both are followed.
#[tokio::test(flavor = "multi_thread")]
async fn the_pods_after_a_resume_are_followed_too() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let marker = std::env::temp_dir().join(format!("weftrun-runai-again-{}", fastrand::u64(..)));
    let script =
        format!("if [ -e {0} ]; then echo second; else : > {0}; echo first; sleep 300; fi", marker.display());
    let handle = submit(&backend, "again", 1, &script).await;
    let mut batches = backend.logs(&handle, LogOptions::follow());
    let mut text = String::new();
    while let Some(batch) = batches.try_next().await.unwrap() {
        text.push_str(&String::from_utf8_lossy(&batch.bytes));
        if batch.bytes.ends_with(b"first\n") {
            backend.act(&handle, Action::Suspend).await.unwrap();
            until(&backend, &handle, JobPhase::Suspended).await;
            backend.act(&handle, Action::Resume).await.unwrap();
        }
    }
    let _ = std::fs::remove_file(marker);
    assert_eq!(text, "first\nsecond\n");
}

/// The only mark of a stream, as text.
fn note(marks: &[Mark]) -> &str {
    let [Mark::Note { text }] = marks else { panic!("{marks:?}") };
    text
}

/// A pending workload has no log: that is reported with the reason, and `-f` waits for the first pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_pending_workload_is_named_and_waited_for() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let id = fake.add(["queued".to_owned()], 0, 0).remove(0);
    fake.state().workloads.get_mut(&id).unwrap().told = Some("Pending".to_owned());
    let backend = connect(target(&fake)).await.unwrap();
    let handle = backend.list(&JobFilter::all()).await.unwrap().remove(0).handle;
    let (pods, marks) = read(&*backend, &handle, LogOptions::default()).await;
    assert!(pods.values().all(String::is_empty));
    let text = note(&marks);
    assert!(text.contains("pending (Unschedulable: 0/2 nodes") && text.contains("logs -f"), "{text}");

    let mut batches = backend.logs(&handle, LogOptions::follow());
    let first = batches.try_next().await.unwrap().unwrap();
    assert!(note(first.mark.as_slice()).contains("waiting for its first pod"), "{first:?}");
    // It ends without a pod: an empty log would look like a job that wrote nothing.
    fake.state().workloads.get_mut(&id).unwrap().told = Some("Failed".to_owned());
    let error = batches.try_next().await.unwrap_err();
    assert!(error.message().contains("pods are gone"), "{error}");
    assert!(
        error.hints().iter().any(|hint| hint.starts_with("runai training pytorch logs queued")),
        "{error:?}"
    );
}

/// The cluster's API has no log of an earlier attempt; a kubeconfig has.
#[tokio::test(flavor = "multi_thread")]
async fn the_previous_attempt_needs_a_kubeconfig() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "attempts", 1, "echo once").await;
    let mut options = LogOptions::default();
    options.previous = true;
    let error = backend.logs(&handle, options.clone()).try_next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hints().iter().any(|hint| hint.contains("kubeconfig")), "{error:?}");

    until(&backend, &handle, JobPhase::Succeeded).await;
    let folder = tempfile::tempdir().unwrap();
    let backend = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
    let (_, marks) = read(&*backend, &handle, options).await;
    assert!(note(&marks).contains("no previous attempt"), "{marks:?}");
}

/// The master is the first node of the role that the job file has: plan, logs and description call it so.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_called_by_the_roles_of_the_job_file() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let mut spec = crate::common::job("roles", 3, "echo here");
    spec.roles[0].name = "trainer".into();
    let handle = backend.submit(&crate::common::rendered(&backend, spec)).await.unwrap();
    until(&backend, &handle, JobPhase::Succeeded).await;
    let wanted = [("trainer", 0), ("trainer", 1), ("trainer", 2)].map(|(role, at)| (role.to_owned(), at));
    let detail = backend.describe(&handle).await.unwrap();
    let mut described: Vec<_> = detail.replicas.into_iter().map(|pod| (pod.role, pod.index)).collect();
    described.sort();
    assert_eq!(described, wanted);
    let over_kubernetes = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
    for backend in [backend, over_kubernetes] {
        for (asked, count) in [("trainer", 3), ("master", 1)] {
            let mut options = LogOptions::default();
            options.roles = vec![asked.to_owned()];
            let batches: Vec<_> = backend.logs(&handle, options).try_collect().await.unwrap();
            let mut seen: Vec<_> = batches
                .iter()
                .filter(|batch| !batch.bytes.is_empty())
                .map(|batch| (batch.source.role.clone(), batch.source.replica))
                .collect();
            seen.sort();
            assert_eq!(seen, wanted[..count], "{asked}");
        }
    }
    let backend = connect(target(&fake)).await.unwrap();
    let mut options = LogOptions::default();
    options.roles = vec!["evaluator".to_owned()];
    let error = backend.logs(&handle, options).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(error.message().contains("evaluator"), "{error}");
}
