//! Commands and ports in the pods of a workload, over Kubernetes.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use weftrun_core::ErrorKind;
use weftrun_core::backend::{Backend, ExecRequest, ExecStream};
use weftrun_core::job::{Action, JobHandle, JobPhase};
use weftrun_core::spec::{JobSpec, Launch, Role};
use weftrun_testkit::fake_runai::FakeRunAi;

use crate::common::{connect, rendered, submit, target, until, with_kubeconfig};

async fn hostname(backend: &Arc<dyn Backend>, handle: &JobHandle, rank: Option<u32>) -> String {
    let mut request = ExecRequest::new(["sh", "-c", "printf %s \"$HOSTNAME\"; exit 7"]);
    request.rank = rank;
    let mut out = Vec::new();
    let mut sink = |stream, bytes: &[u8]| {
        assert_eq!(stream, ExecStream::Stdout, "{}", String::from_utf8_lossy(bytes));
        out.extend_from_slice(bytes);
        Ok(())
    };
    assert_eq!(backend.exec(handle, &request, &mut sink).await.unwrap(), 7);
    String::from_utf8(out).unwrap()
}

/// A rank runs in the pod whose command started it.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_the_pod_of_its_rank() {
    for minor in [18, 21, 24] {
        let fake = FakeRunAi::start(minor).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let backend = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
        assert!(backend.capability().exec && backend.capability().ports);
        let role = Role::worker().nodes(3).ranks_per_node(2).command(["sleep", "300"]);
        let spec: JobSpec = JobSpec::builder("ranks")
            .image("example.test/trainer:1")
            .launch(Launch::PerRank)
            .role(role)
            .build()
            .unwrap();
        let handle = backend.submit(&rendered(&backend, spec)).await.unwrap();
        until(&backend, &handle, JobPhase::Running).await;
        assert_eq!(hostname(&backend, &handle, None).await, "ranks-master-0", "2.{minor}");
        for (rank, pod) in [(1, "master-0"), (2, "worker-0"), (5, "worker-1")] {
            assert_eq!(hostname(&backend, &handle, Some(rank)).await, format!("ranks-{pod}"), "2.{minor}");
        }
        let beyond = backend.exec(&handle, &ExecRequest::new(["true"]).on_rank(6), &mut |_, _| Ok(())).await;
        assert_eq!(beyond.unwrap_err().kind(), ErrorKind::NotFound);
        let missing = backend.exec(&handle, &ExecRequest::new(["/none/such"]), &mut |_, _| Ok(())).await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::Refused);
        if minor < 20 {
            // A distributed workload of 2.18 cannot be cancelled.
            continue;
        }
        backend.act(&handle, Action::Cancel).await.unwrap();
        let ended = backend.exec(&handle, &ExecRequest::new(["true"]), &mut |_, _| Ok(())).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Refused);
    }
}

/// `health` reaches the RAS service over such a connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_a_pod_is_reached() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let backend = connect(with_kubeconfig(&fake, &folder)).await.unwrap();
    let handle = submit(&backend, "ports", 2, "sleep 300").await;
    until(&backend, &handle, JobPhase::Running).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    });
    let connection = backend.open_port(&handle, Some(1), port).await.unwrap();
    connection.send(b"hi\0\xff\n").await.unwrap();
    let mut got = Vec::new();
    loop {
        let bytes = connection.receive().await.unwrap();
        if bytes.is_empty() {
            break;
        }
        got.extend(bytes);
    }
    assert_eq!(got, b"hi\0\xff\n");
    server.await.unwrap();
    // The listener was closed, and its port is held by a socket that does not listen: no other test gets it.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.set_reuseaddr(true).unwrap();
    held.bind(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
    let refused = match backend.open_port(&handle, None, port).await {
        Ok(connection) => match connection.send(b"x").await {
            Ok(()) => connection.receive().await.map(drop),
            failed => failed,
        },
        Err(error) => Err(error),
    };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_kubeconfig_the_error_names_what_to_set() {
    let fake = FakeRunAi::start(24).await.unwrap();
    let backend = connect(target(&fake)).await.unwrap();
    let handle = submit(&backend, "apart", 1, "sleep 300").await;
    assert!(!backend.capability().exec && !backend.capability().ports);
    let exec = backend.exec(&handle, &ExecRequest::new(["true"]), &mut |_, _| Ok(())).await.map(drop);
    let port = backend.open_port(&handle, None, 28028).await.map(drop);
    for refused in [exec.unwrap_err(), port.unwrap_err()] {
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        let hint = refused.hints().join(" ");
        assert!(hint.contains("`kubeconfig`") && hint.contains("[target.nlp]"), "{hint}");
    }
}
