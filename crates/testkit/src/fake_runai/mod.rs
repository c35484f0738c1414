//! A control plane of our own, written from the published contract of Run:ai 2.18 to 2.24: what it answers, in which
//! version, and every way in which it can fail. Its pods are processes of this machine, so jobs really run.

mod cluster;
mod fault;
mod pod;
mod routes;
mod workload;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::middleware;

pub use fault::{Fault, Trouble};
pub use workload::Workload;

/// Id of the one project, a string that looks like a number as real ones do.
pub const PROJECT_ID: &str = "4500012";
/// Name of the one project.
pub const PROJECT: &str = "nlp";
/// Id of the one cluster.
pub const CLUSTER_ID: &str = "71f69d83-ba66-4822-adf5-55ce55efd210";
/// The application that may have tokens.
pub const CLIENT_ID: &str = "weftrun-tests";
/// Its secret; made up for these tests.
pub const CLIENT_SECRET: &str = "not-a-real-secret";

/// A request the control plane got.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Body.
    pub body: String,
}

/// What the control plane is and knows.
#[derive(Debug)]
pub struct State {
    /// Minor version: 18, 21, 24.
    pub minor: u32,
    /// Its own address.
    pub address: SocketAddr,
    /// Workloads by id.
    pub workloads: BTreeMap<String, Workload>,
    /// What it got, in order.
    pub journal: Vec<Seen>,
    /// What goes wrong next.
    pub faults: Vec<Fault>,
    /// Tokens that are good.
    pub tokens: Vec<String>,
    /// Whether a plain researcher's token is refused clusters, node pools and nodes.
    pub researcher: bool,
    /// Longest page of a list.
    pub page: usize,
    /// Lines after which a log stream is cut, once each.
    pub cut_logs_after: Vec<usize>,
    /// What a policy refuses: field and its text.
    pub policy: Option<(String, String)>,
}

/// The state, shared by all requests.
pub type Shared = Arc<Mutex<State>>;

/// A running control plane; dropped, it stops and its pods die.
#[derive(Debug)]
pub struct FakeRunAi {
    state: Shared,
    address: SocketAddr,
    server: tokio::task::JoinHandle<()>,
}

impl FakeRunAi {
    /// Starts a control plane of version 2.`minor` on loopback.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(minor: u32) -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            minor,
            address,
            workloads: BTreeMap::new(),
            journal: Vec::new(),
            faults: Vec::new(),
            tokens: Vec::new(),
            researcher: false,
            page: 500,
            cut_logs_after: Vec::new(),
            policy: None,
        }));
        let app: Router = routes::router()
            .merge(cluster::router())
            .layer(middleware::from_fn_with_state(state.clone(), fault::layer))
            .with_state(state.clone());
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { state, address, server })
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its state, to look at or to change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Lets something go wrong.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Requests that were seen to a path that begins so.
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

/// Locks the state; a panic elsewhere does not spoil it.
pub(crate) fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
