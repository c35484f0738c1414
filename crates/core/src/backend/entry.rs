//! How a backend is registered.

use std::pin::Pin;
use std::sync::Arc;

use super::{Backend, TargetConfig};
use crate::Result;

/// The future of a connection.
pub type ConnectFuture = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send>>;

/// A backend that is linked in: const, and without side effects until it is connected.
#[derive(Clone, Copy, Debug)]
pub struct BackendEntry {
    /// The name after `-b`.
    pub name: &'static str,
    /// One line for `weftrun backends`.
    pub summary: &'static str,
    /// The crate it is defined in, for the error about two backends with one name.
    pub krate: &'static str,
    /// Makes a backend of a target. Reads files and environment, but does not talk to the cluster yet: `render`
    /// must work offline.
    pub connect: fn(TargetConfig) -> ConnectFuture,
}

inventory::collect!(BackendEntry);

/// Registers a backend: `register_backend!("flyte", "Flyte tasks", connect)`, with
/// `async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>>`.
///
/// Naming the crate in source (`use acme_flyte as _;`) is what makes the linker keep it.
#[macro_export]
macro_rules! register_backend {
    ($name:expr, $summary:expr, $connect:path) => {
        $crate::__inventory::submit! {
            $crate::backend::BackendEntry {
                name: $name,
                summary: $summary,
                krate: env!("CARGO_PKG_NAME"),
                connect: |target| Box::pin($connect(target)),
            }
        }
    };
}
