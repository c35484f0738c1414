//! A connection that passes requests on, but holds the answer of one write and everything after it until it is let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::cluster::{PATIENCE, TestCluster};
use crate::proxy::Proxy;

/// What the researcher's requests go through.
pub struct Holding {
    pub proxy: Proxy,
    held: watch::Receiver<bool>,
    released: watch::Sender<bool>,
}

impl Holding {
    /// Holds the answer of this write: creates for good and patches count, from 1.
    pub async fn start(cluster: &TestCluster, write: usize) -> Self {
        let (says, held) = watch::channel(false);
        let (released, go) = watch::channel(false);
        let (says, writes) = (Arc::new(says), Arc::new(AtomicUsize::new(0)));
        let proxy = Proxy::start(cluster, move |client, server| {
            pass(client, server, write, writes.clone(), says.clone(), go.clone())
        })
        .await;
        Self { proxy, held, released }
    }

    /// Waits until the server has answered the write.
    pub async fn held(&self) {
        let mut held = self.held.clone();
        tokio::time::timeout(PATIENCE, held.wait_for(|held| *held)).await.unwrap().unwrap();
    }

    /// Lets everything through.
    pub fn release(&self) {
        self.released.send_replace(true);
    }
}

async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    write: usize,
    writes: Arc<AtomicUsize>,
    says: Arc<watch::Sender<bool>>,
    mut go: watch::Receiver<bool>,
) {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut holds = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let head = String::from_utf8_lossy(&up[..n.min(400)]).into_owned();
                let creates = head.starts_with("POST /api") && !head.contains("dryRun") && !head.contains("accessreviews");
                if creates || head.starts_with("PATCH /api") {
                    holds = writes.fetch_add(1, Ordering::SeqCst) + 1 == write;
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if std::mem::take(&mut holds) {
                    says.send_replace(true);
                    if go.wait_for(|go| *go).await.is_err() { return }
                }
                if client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}
