//! A connection that passes the next create on and loses its answer: it is cut when the answer comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::TestCluster;
use crate::proxy::Proxy;

/// What the researcher's requests go through.
pub struct Losing {
    pub proxy: Proxy,
    /// Creates that went through to the server.
    pub creates: Arc<AtomicUsize>,
    /// Requests of any kind, without the checks of the credentials.
    pub requests: Arc<AtomicUsize>,
    /// Loses the answer of the next one.
    pub armed: Arc<AtomicBool>,
}

impl Losing {
    pub async fn start(cluster: &TestCluster) -> Self {
        let count = || Arc::new(AtomicUsize::new(0));
        let (creates, requests, armed) = (count(), count(), Arc::new(AtomicBool::new(true)));
        let state = (creates.clone(), requests.clone(), armed.clone());
        let proxy = Proxy::start(cluster, move |client, server| pass(client, server, state.clone())).await;
        Self { proxy, creates, requests, armed }
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
                // The check of the credentials comes every few seconds.
                let line = head.lines().next().unwrap_or_default();
                let is_check = line.split(['?', '&', ' ']).any(|word| word == "limit=1");
                if !is_check && ["GET /", "POST /", "PATCH /", "DELETE /"].iter().any(|verb| head.starts_with(verb)) {
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
