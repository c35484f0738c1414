//! A connection that passes the next create on and loses its answer: `kubectl proxy` speaks plain HTTP with the
//! researcher's credentials, and a proxy before it cuts the connection when the answer comes.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::Bed;

/// The proxy; it ends when it is dropped.
pub struct Losing {
    kubectl: Child,
    pub kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
    /// Creates that went through to the server.
    pub creates: Arc<AtomicUsize>,
    /// Requests of any kind.
    pub requests: Arc<AtomicUsize>,
    /// Loses the answer of the next one.
    pub armed: Arc<AtomicBool>,
}

impl Drop for Losing {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

impl Losing {
    pub async fn start(bed: &Bed) -> Self {
        let mut kubectl = Command::new(bed.state.join("kubectl"))
            .arg("--kubeconfig")
            .arg(bed.kubeconfig("researcher"))
            .args(["proxy", "--port=0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(kubectl.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let upstream = line.trim().rsplit(' ').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = || Arc::new(AtomicUsize::new(0));
        let (creates, requests, armed) = (count(), count(), Arc::new(AtomicBool::new(true)));
        let state = (creates.clone(), requests.clone(), armed.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&upstream).await.unwrap();
                tokio::spawn(pass(client, server, state.clone()));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u, namespace: research}}}}]\n\
             current-context: c\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Self { kubectl, kubeconfig, _folder: folder, creates, requests, armed }
    }
}

/// Passes bytes both ways until a create for good is seen; its answer never arrives.
async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    (creates, requests, armed): (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicBool>),
) {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut lose = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let head = String::from_utf8_lossy(&up[..n.min(400)]).into_owned();
                if ["GET /", "POST /", "PATCH /", "DELETE /"].iter().any(|verb| head.starts_with(verb)) {
                    requests.fetch_add(1, Ordering::SeqCst);
                }
                if head.starts_with("POST /apis/") && head.contains("jobs?") && !head.contains("dryRun") {
                    creates.fetch_add(1, Ordering::SeqCst);
                    lose = armed.swap(false, Ordering::SeqCst);
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if lose { return }
                if client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}
