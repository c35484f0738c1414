//! A connection whose next requests are turned away instead of passed on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::TestCluster;
use crate::proxy::Proxy;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is passed on.
    Pass,
    /// 429 with `Retry-After: 1`, as API priority and fairness answers.
    Later,
    /// 503.
    Unavailable,
    /// 500, which does not say whether anything was done.
    Broken,
    /// The connection is closed without an answer.
    Reset,
}

/// What the researcher's requests go through.
pub struct Refusing {
    pub proxy: Proxy,
    /// What becomes of the next requests; those after them pass.
    pub next: Arc<Mutex<VecDeque<Turn>>>,
    /// Creates for good, turned away or not.
    pub creates: Arc<AtomicUsize>,
}

impl Refusing {
    pub async fn start(cluster: &TestCluster) -> Self {
        let (next, creates) = (Arc::new(Mutex::new(VecDeque::new())), Arc::new(AtomicUsize::new(0)));
        let state = (next.clone(), creates.clone());
        let proxy = Proxy::start(cluster, move |client, server| pass(client, server, state.clone())).await;
        Self { proxy, next, creates }
    }

    pub fn turn_away(&self, turns: &[Turn]) {
        self.next.lock().unwrap().extend(turns);
    }

    /// Whether all that was to be turned away has been.
    pub fn done(&self) -> bool {
        self.next.lock().unwrap().is_empty()
    }
}

async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    (next, creates): (Arc<Mutex<VecDeque<Turn>>>, Arc<AtomicUsize>),
) {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let head = String::from_utf8_lossy(&up[..n.min(400)]).into_owned();
                if ["GET /", "POST /", "PATCH /", "DELETE /"].iter().any(|verb| head.starts_with(verb)) {
                    let create = head.starts_with("POST /apis/") && !head.contains("dryRun");
                    creates.fetch_add(usize::from(create), Ordering::SeqCst);
                    let turn = next.lock().unwrap().pop_front();
                    let status = match turn {
                        None | Some(Turn::Pass) => "",
                        Some(Turn::Later) => "429 Too Many Requests\r\nRetry-After: 1",
                        Some(Turn::Unavailable) => "503 Service Unavailable",
                        Some(Turn::Broken) => "500 Internal Server Error",
                        Some(Turn::Reset) => return,
                    };
                    if !status.is_empty() {
                        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                        let _ = client.write_all(answer.as_bytes()).await;
                        return;
                    }
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}
