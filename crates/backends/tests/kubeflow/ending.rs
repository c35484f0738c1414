//! A connection on which the server ends the streams of logs, well and truly, while their containers run on: as a kubelet does after
//! four hours. It writes the last chunk itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::TestCluster;
use crate::proxy::Proxy;

/// Bytes of a log after which its stream is ended.
const ENOUGH: usize = 2000;

/// What the researcher's requests go through.
pub struct Ending {
    pub proxy: Proxy,
    /// How many streams are still to be ended.
    pub left: Arc<AtomicUsize>,
}

impl Ending {
    pub async fn start(cluster: &TestCluster, streams: usize) -> Self {
        let left = Arc::new(AtomicUsize::new(streams));
        let count = left.clone();
        let proxy = Proxy::start(cluster, move |client, server| pass(client, server, count.clone())).await;
        Self { proxy, left }
    }
}

/// Passes bytes both ways; of a followed log, whole chunks until there were enough.
async fn pass(mut client: TcpStream, mut server: TcpStream, left: Arc<AtomicUsize>) {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut log: Option<Chunks> = None;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let head = String::from_utf8_lossy(&up[..n.min(600)]).into_owned();
                let line = head.lines().next().unwrap_or_default();
                if line.starts_with("GET ") {
                    log = (line.contains("/log?") && line.contains("follow=true")).then(Chunks::default);
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                let Some(chunks) = &mut log else {
                    if client.write_all(&down[..n]).await.is_err() { return }
                    continue;
                };
                let whole = chunks.take(&down[..n]);
                if client.write_all(&whole).await.is_err() { return }
                let one_less = |left: usize| left.checked_sub(1);
                if chunks.sent > ENOUGH && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                    let _ = client.write_all(b"0\r\n\r\n").await;
                    return;
                }
            }
        }
    }
}

/// An answer in chunks.
#[derive(Default)]
struct Chunks {
    held: Vec<u8>,
    head: bool,
    sent: usize,
}

impl Chunks {
    /// What is whole by now, of the head and of chunks.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut end = 0;
        if !self.head {
            let Some(at) = self.held.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Vec::new();
            };
            (self.head, end) = (true, at + 4);
        }
        while let Some(at) = self.held[end..].windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.held[end..end + at]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let next = end + at + 2 + size + 2;
            if next > self.held.len() {
                break;
            }
            self.sent += size;
            end = next;
        }
        self.held.drain(..end).collect()
    }
}
