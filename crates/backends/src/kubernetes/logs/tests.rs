use std::collections::BTreeMap;

use futures_util::StreamExt;
use weftrun_testkit::fake_runai::FakeRunAi;

use super::*;
use crate::kubernetes::ClusterConfig;

/// Opens the logs of a job of the fake's Kubernetes.
async fn open(
    fake: &FakeRunAi,
    name: &str,
    options: LogOptions,
    ended: watch::Receiver<bool>,
) -> BoxStream<'static, Result<LogBatch>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, fake.kubeconfig()).unwrap();
    let config = ClusterConfig {
        kubeconfig: Some(path),
        context: None,
        namespace: Some(format!("runai-{}", weftrun_testkit::fake_runai::PROJECT)),
        env: BTreeMap::new(),
        patience: None,
    };
    logs(LogJob {
        name: name.to_owned(),
        cluster: config.connect().await.unwrap(),
        selector: String::new(),
        place: Arc::new(|_| Some(RankPosition::default())),
        ended,
        expected: Vec::new(),
        options,
        quiet: Duration::from_millis(300),
    })
}

/// An API server that loses the node in the middle of a log ends its answer as if it were complete: the last
/// line is unterminated, so the log is read again from there.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_inside_a_line_is_asked_for_again() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.add(["torn".to_owned()], 1, 3);
    let whole = "torn-worker-0 line 0\ntorn-worker-0 line 1\ntorn-worker-0 line 2\n";
    for bytes in [7, 40, 60, 100] {
        fake.state().tear_logs_after = BTreeMap::from([("torn-worker-0".to_owned(), bytes)]);
        let (_over, ended) = watch::channel(false);
        let mut batches = open(&fake, "torn", LogOptions::default(), ended).await;
        let mut text = String::new();
        while let Some(batch) = batches.next().await {
            text.push_str(std::str::from_utf8(&batch.unwrap().bytes).unwrap());
        }
        assert_eq!(text, whole, "torn after {bytes} bytes");
    }
}

/// The second pod writes on, but its log stream stalls, as that of a kubelet that follows a rotated file: it
/// is reopened once the first pod has written for a while, and its lines arrive, each once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stalls_while_another_talks_is_opened_again() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.add(["stall".to_owned()], 2, 3);
    fake.state().stall_logs_after = BTreeMap::from([("stall-worker-1".to_owned(), 3)]);
    let (_over, ended) = watch::channel(false);
    let mut batches = open(&fake, "stall", LogOptions::follow(), ended).await;
    let outputs: Vec<_> = {
        let state = fake.state();
        state.workloads.values().flat_map(|workload| &workload.pods).map(|pod| pod.output.clone()).collect()
    };
    let write = |pod: usize, line: String| {
        outputs[pod].lock().unwrap().lines.push((crate::clock::now(), line.into_bytes()));
    };
    (3..10).for_each(|i| write(1, format!("stall-worker-1 line {i}")));
    let expected: String = (0..10).map(|i| format!("stall-worker-1 line {i}\n")).collect();
    let (mut text, mut marks) = (String::new(), Vec::new());
    let whole = async {
        for said in 3.. {
            while let Ok(batch) = tokio::time::timeout(Duration::from_millis(50), batches.next()).await {
                let batch = batch.unwrap().unwrap();
                if batch.source.name == "stall-worker-1" {
                    text.push_str(std::str::from_utf8(&batch.bytes).unwrap());
                }
                marks.extend(batch.mark);
            }
            if text.len() >= expected.len() {
                return;
            }
            write(0, format!("stall-worker-0 line {said}"));
        }
    };
    tokio::time::timeout(Duration::from_mins(1), whole).await.unwrap();
    assert_eq!(text, expected);
    assert_eq!(marks, []);
}

/// Of thousands of pods only those that are chosen are read, and none of the others is said to be missing.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_chosen_pods_are_read() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.add(["some".to_owned()], 5, 2);
    let (_over, ended) = watch::channel(true);
    let options = LogOptions::default().replica("some-worker-3");
    let mut batches = open(&fake, "some", options, ended).await;
    let (mut text, mut marks) = (String::new(), Vec::new());
    while let Some(batch) = batches.next().await {
        let batch = batch.unwrap();
        text.push_str(std::str::from_utf8(&batch.bytes).unwrap());
        marks.extend(batch.mark.filter(|mark| matches!(mark, Mark::Gap { .. })));
    }
    assert_eq!(text, "some-worker-3 line 0\nsome-worker-3 line 1\n");
    assert_eq!(marks, []);
}
