//! How a backend is registered.

use std::pin::Pin;
use std::sync::Arc;

use super::{Backend, FoundTarget, TargetConfig};
use crate::Result;
use crate::fabric::evidence::Form;

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
    /// Makes a backend of a target. Reads files and environment, but does not contact the cluster yet: `render`
    /// must work offline.
    pub connect: fn(TargetConfig) -> ConnectFuture,
    /// The form in which jobs are given to the cluster.
    pub form: Form,
    /// Whether the image of a job is ignored, since its processes run without a container.
    pub ignores_images: bool,
    /// Finds what targets could be made of, given the backend's own target without settings: by its environment and the user's
    /// files, without a request to anything.
    pub find: fn(&TargetConfig) -> Vec<FoundTarget>,
}

impl BackendEntry {
    /// Makes the entry of a backend that makes Kubernetes objects, or none.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        krate: &'static str,
        connect: fn(TargetConfig) -> ConnectFuture,
    ) -> Self {
        Self { name, summary, krate, connect, form: Form::Made, ignores_images: false, find: |_| Vec::new() }
    }
}

inventory::collect!(BackendEntry);

/// Registers a backend: `register_backend!("flyte", "Flyte tasks", connect)`, with
/// `async fn connect(target: TargetConfig) -> Result<Arc<dyn Backend>>`.
///
/// Other fields of [`BackendEntry`] follow: `register_backend!("pbs", "PBS", connect, form: Form::Script)`.
///
/// Naming the crate in source (`use acme_flyte as _;`) is what makes the linker keep it.
#[macro_export]
macro_rules! register_backend {
    ($name:expr, $summary:expr, $connect:path $(, $field:ident: $value:expr)*) => {
        $crate::__inventory::submit! {
            $crate::backend::BackendEntry {
                $($field: $value,)*
                ..$crate::backend::BackendEntry::new($name, $summary, env!("CARGO_PKG_NAME"), |target| {
                    Box::pin($connect(target))
                })
            }
        }
    };
}
