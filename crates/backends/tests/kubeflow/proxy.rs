//! A connection that a test intercepts: `kubectl proxy` serves plain HTTP with the researcher's credentials,
//! and the interceptor decides what is forwarded.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use tokio::net::{TcpListener, TcpStream};

use crate::cluster::TestCluster;
use weftrun_testkit::child;

/// The proxy; it ends when it is dropped.
pub struct Proxy {
    kubectl: Child,
    pub kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

impl Proxy {
    /// Starts one; `pass` has each connection of a client and its own to the server.
    pub async fn start<F>(
        cluster: &TestCluster,
        pass: impl Fn(TcpStream, TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut kubectl = child::command(cluster.state.join("kubectl"))
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig("researcher"))
            .args(["proxy", "--port=0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(kubectl.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let upstream = line.trim().rsplit(' ').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&upstream).await.unwrap();
                tokio::spawn(pass(client, server));
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
        Self { kubectl, kubeconfig, _folder: folder }
    }
}
