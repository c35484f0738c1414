//! A fake control plane, written from the published contract of Run:ai 2.18 to 2.24: its answers in each
//! version, and all kinds of faults. Its pods are processes of this machine, so jobs really run.

mod assets;
mod cluster;
mod fault;
mod kubernetes;
mod pod;
mod routes;
mod tls;
mod token;
mod workload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware;
use tokio::net::TcpListener;

pub use fault::{Fault, Trouble};
pub use tls::{authority, client_identity, self_signed};
pub use workload::Workload;

/// Id of the only project, a string that looks like a number as real ones do.
pub const PROJECT_ID: &str = "4500012";
/// Name of the only project.
pub const PROJECT: &str = "nlp";
/// Id of the only cluster.
pub const CLUSTER_ID: &str = "71f69d83-ba66-4822-adf5-55ce55efd210";
/// The application that may get tokens.
pub const CLIENT_ID: &str = "weftrun-tests";
/// Its secret; made up for these tests.
pub const CLIENT_SECRET: &str = "not-a-real-secret";

/// A request that the control plane received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Body.
    pub body: String,
    /// Status of the answer; 0 while there is none, or if the connection broke first.
    pub status: u16,
}

/// The state of the control plane.
#[derive(Debug, Default)]
pub struct State {
    /// Minor version: 18, 21, 24.
    pub minor: u32,
    /// Its base URL.
    pub url: String,
    /// Workloads by id.
    pub workloads: BTreeMap<String, Workload>,
    /// The requests received, in order.
    pub journal: Vec<Seen>,
    /// The next faults.
    pub faults: Vec<Fault>,
    /// Valid tokens, each with its expiry.
    pub tokens: Vec<(String, Instant)>,
    /// Lifetime of a token.
    pub token_life: Duration,
    /// Whether a plain researcher's token is refused access to clusters, node pools and nodes.
    pub researcher: bool,
    /// Longest page of a list.
    pub page: usize,
    /// Lines after which the first log stream of a pod over Kubernetes stalls without closing, as that of a
    /// kubelet which follows a rotated file.
    pub stall_logs_after: BTreeMap<String, usize>,
    /// Bytes after which the first log answer of a pod over Kubernetes ends normally, as that of an API
    /// server that lost the node meanwhile.
    pub tear_logs_after: BTreeMap<String, usize>,
    /// Lines after which a log stream is cut, once each.
    pub cut_logs_after: Vec<usize>,
    /// Whether the kubeconfig's user may not forward ports.
    pub refuse_ports: bool,
    /// A policy violation: field and text.
    pub policy: Option<(String, String)>,
    /// The status for a taken name: the document lists none, so both 400 and 409 must work.
    pub name_taken: u16,
    /// Whether the logs of an ended pod can be read over the cluster's API.
    pub ended_logs: bool,
    /// Whether the cluster's API is available.
    pub cluster_api: bool,
}

/// The state, shared by all requests.
pub type Shared = Arc<Mutex<State>>;

/// A running control plane; when dropped, it stops and its pods are killed.
#[derive(Debug)]
pub struct FakeRunAi {
    state: Shared,
    server: tokio::task::JoinHandle<()>,
}

impl FakeRunAi {
    /// Starts a control plane of version 2.`minor` on loopback.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(minor: u32) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Self::serve(minor, listener, url))
    }

    /// Starts it with a certificate of [`authority`], which no system trusts. With `known_clients_only` a
    /// client must present [`client_identity`].
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start_tls(minor: u32, known_clients_only: bool) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://localhost:{}", listener.local_addr()?.port());
        Ok(Self::serve(minor, tls::TlsListener::new(listener, known_clients_only)?, url))
    }

    /// Starts it with a self-signed certificate, marked as an authority as by `openssl req -x509`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start_self_signed(minor: u32) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://localhost:{}", listener.local_addr()?.port());
        Ok(Self::serve(minor, tls::TlsListener::self_signed(listener)?, url))
    }

    fn serve<L>(minor: u32, listener: L, url: String) -> Self
    where
        L: axum::serve::Listener<Addr = SocketAddr>,
    {
        let state = Arc::new(Mutex::new(State {
            minor,
            url,
            token_life: Duration::from_hours(1),
            page: 500,
            name_taken: 409,
            ended_logs: true,
            cluster_api: true,
            ..State::default()
        }));
        let app: Router = routes::router()
            .merge(assets::router())
            .merge(cluster::router())
            .route_layer(middleware::from_fn_with_state(state.clone(), token::authorised))
            .merge(token::router())
            .merge(cluster::open_router())
            .merge(kubernetes::router())
            .layer(middleware::from_fn_with_state(state.clone(), fault::layer))
            .with_state(state.clone());
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Self { state, server }
    }

    /// Returns its base URL.
    pub fn url(&self) -> String {
        self.state().url.clone()
    }

    /// Returns a kubeconfig whose only context is the Kubernetes API of the cluster, in a namespace that is
    /// not the project's.
    pub fn kubeconfig(&self) -> String {
        let server = format!("{}{}", self.url(), kubernetes::ROOT);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: fake\n\
             clusters: [{{name: fake, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: researcher, user: {{token: {}}}}}]\n\
             contexts: [{{name: fake, context: {{cluster: fake, user: researcher, namespace: default}}}}]\n",
            kubernetes::TOKEN
        )
    }

    /// Adds workloads with simulated pods: each has written this many lines and keeps running, without a
    /// process.
    pub fn add(&self, names: impl IntoIterator<Item = String>, pods: usize, lines: usize) -> Vec<String> {
        let made: Vec<_> = names.into_iter().map(|name| Workload::made_up(&name, pods, lines)).collect();
        let ids = made.iter().map(|workload| workload.id.clone()).collect();
        self.state().workloads.extend(made.into_iter().map(|workload| (workload.id.clone(), workload)));
        ids
    }

    /// Returns its state, to read or change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a fault.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Returns the received requests with this path prefix.
    pub fn seen(&self, method: &str, path: &str) -> Vec<Seen> {
        let matches = |seen: &&Seen| seen.method == method && seen.path.starts_with(path);
        self.state().journal.iter().filter(matches).cloned().collect()
    }
}

impl Drop for FakeRunAi {
    fn drop(&mut self) {
        self.server.abort();
        for workload in self.state().workloads.values() {
            workload.kill();
        }
    }
}

/// Locks the state, also after a panic in another thread.
pub(crate) fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
