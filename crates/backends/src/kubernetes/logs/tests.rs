use std::collections::BTreeMap;

use jiff::Timestamp;
use weftrun_testkit::fake_runai::FakeRunAi;

use super::*;
use crate::kubernetes::ClusterConfig;

/// The second pod writes on, but the stream of its log says nothing more, as a kubelet's that follows a rotated file: it is
/// opened again once the first pod has talked for a while, and its lines come, each once.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stalls_while_another_talks_is_opened_again() {
    let fake = FakeRunAi::start(24).await.unwrap();
    fake.add(["stall".to_owned()], 2, 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, fake.kubeconfig()).unwrap();
    fake.state().stall_logs_after = BTreeMap::from([("stall-worker-1".to_owned(), 3)]);
    let config = ClusterConfig {
        kubeconfig: Some(path),
        context: None,
        namespace: Some(format!("runai-{}", weftrun_testkit::fake_runai::PROJECT)),
        env: BTreeMap::new(),
    };
    let (_over, ended) = watch::channel(false);
    let mut batches = logs(LogJob {
        name: "stall".to_owned(),
        cluster: config.connect().await.unwrap(),
        selector: String::new(),
        place: Arc::new(|_| Some(Place::default())),
        ended,
        options: LogOptions::follow(),
        quiet: Duration::from_millis(300),
    });
    let outputs: Vec<_> = {
        let state = fake.state();
        state.workloads.values().flat_map(|workload| &workload.pods).map(|pod| pod.output.clone()).collect()
    };
    let write = |pod: usize, line: String| {
        outputs[pod].lock().unwrap().lines.push((Timestamp::now(), line.into_bytes()));
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
