//! A line to the API server that can be cut: its connections break, and none is made until it is mended. It passes bytes on
//! without reading them, so that what is at its end is the real server with its own certificate.

use std::path::PathBuf;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::TestCluster;

pub struct Line {
    pub kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy)]
struct State {
    up: bool,
    /// How often it was cut: one that is mended at once has broken its connections all the same.
    cuts: u32,
}

impl Line {
    /// Returns a line for the user of a kubeconfig.
    pub async fn of(kubeconfig: &std::path::Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let server = text.split("https://").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text.replace(&server, &format!("127.0.0.1:{port}"))).unwrap();
        let (sender, state) = watch::channel(State { up: true, cuts: 0 });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if state.borrow().up {
                    tokio::spawn(pass(client, server.clone(), state.clone()));
                }
            }
        });
        Self { kubeconfig: path, _folder: folder, state: sender }
    }

    /// A line for the researcher.
    pub async fn start(cluster: &TestCluster) -> Self {
        Self::of(&cluster.kubeconfig("researcher")).await
    }

    pub fn cut(&self) {
        self.state.send_modify(|state| *state = State { up: false, cuts: state.cuts + 1 });
    }

    pub fn mend(&self) {
        self.state.send_modify(|state| state.up = true);
    }
}

async fn pass(mut client: TcpStream, server: String, mut state: watch::Receiver<State>) {
    let before = state.borrow().cuts;
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = state.wait_for(|state| state.cuts != before) => {}
    }
}
