//! A connection on which the server ends the streams of logs, well and truly, while their containers run on: as a kubelet does after
//! four hours. `kubectl proxy` speaks plain HTTP, and what stands before it writes the last chunk itself.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::Bed;

/// Bytes of a log after which its stream is ended.
const ENOUGH: usize = 2000;

/// The proxy; it ends when it is dropped.
pub struct Ending {
    kubectl: Child,
    pub kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
    /// How many streams are still to be ended.
    pub left: Arc<AtomicUsize>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

impl Ending {
    pub async fn start(bed: &Bed, streams: usize) -> Self {
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
        let left = Arc::new(AtomicUsize::new(streams));
        let count = left.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&upstream).await.unwrap();
                tokio::spawn(pass(client, server, count.clone()));
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
        Self { kubectl, kubeconfig, _folder: folder, left }
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
