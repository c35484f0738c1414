//! The backends of weftrun: one folder each, with the same file names in all of them.
//!
//! | file | what happens there |
//! |---|---|
//! | `mod.rs` | the type that implements [`Backend`](weftrun_core::backend::Backend), its capability, its registration |
//! | `config.rs` | the target's settings, read and checked |
//! | `discover.rs` | what the cluster offers |
//! | `render.rs` | a planned job becomes exactly what is sent; pure |
//! | `check.rs` | what would stop a rendered job |
//! | `submit.rs` | creating a job exactly once |
//! | `status.rs` | the cluster's objects become phases and findings |
//! | `watch.rs` | changes of jobs |
//! | `logs.rs` | log bytes, followed and resumed |
//! | `act.rs` | cancel, delete, suspend, resume |
//! | `error.rs` | the cluster's errors become [`weftrun_core::Error`] |
//! | `docs.md` | background about the cluster for readers of this folder |
//!
//! A program that calls [`link`] has every backend of its features in
//! [`Registry::linked`](weftrun_core::backend::Registry::linked); without a reference in source code the
//! linker drops them.

pub mod address;
#[cfg(any(feature = "hosts", feature = "kubernetes", feature = "local", feature = "slurm"))]
pub mod attach;
#[cfg(any(feature = "kubeflow", feature = "slurm"))]
mod cache;
#[cfg(any(feature = "hosts", feature = "kubeflow", feature = "local", feature = "runai", feature = "slurm"))]
pub mod changes;
pub mod clock;
#[cfg(any(feature = "kubernetes", feature = "requests"))]
pub mod deadline;
pub mod files;
pub mod helper;
#[cfg(feature = "hosts")]
pub mod hosts;
#[cfg(any(feature = "kubernetes", feature = "requests"))]
pub mod json_answer;
#[cfg(feature = "kubeflow")]
pub mod kubeflow;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "local")]
pub mod local;
pub mod named_file;
#[cfg(any(feature = "hosts", feature = "runai", feature = "slurm"))]
pub mod outage;
#[cfg(feature = "kubernetes")]
pub mod private_access;
pub mod process;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod random;
#[cfg(any(feature = "hosts", feature = "kubernetes", feature = "local", feature = "slurm"))]
pub mod refusals;
#[cfg(any(feature = "local", feature = "hosts", feature = "slurm"))]
pub mod relay;
#[cfg(any(feature = "hosts", feature = "local", feature = "slurm"))]
pub mod remote;
#[cfg(feature = "requests")]
pub mod requests;
#[cfg(any(feature = "kubernetes", feature = "requests"))]
pub mod retry_after;
#[cfg(any(feature = "kubernetes", feature = "requests"))]
pub mod sent;
#[cfg(any(feature = "hosts", feature = "kubeflow", feature = "slurm"))]
mod settings;
#[cfg(feature = "slurm")]
pub mod slurm;
#[cfg(any(feature = "hosts", feature = "kubernetes", feature = "local", feature = "slurm"))]
mod stream;
#[cfg(any(feature = "hosts", feature = "kubeflow", feature = "local", feature = "runai", feature = "slurm"))]
pub mod submit_once;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "runai")]
pub mod runai;

/// Does nothing. A call keeps this crate, and with it the registrations of its backends, in the program.
pub fn link() {}

/// Returns why requests to a target can be read or changed on their way, which is to be said at every use of it; none if
/// they cannot. Sends nothing.
pub fn insecurity(target: &weftrun_core::backend::TargetConfig) -> Option<String> {
    if target.is_insecure() {
        return Some(format!("target `{}` has `insecure = true`", target.name));
    }
    #[cfg(feature = "kubernetes")]
    if let Some(context) = kubernetes::ClusterConfig::of(target).and_then(|config| config.unchecked_context())
    {
        return Some(format!(
            "target `{}`: the kubeconfig's context `{context}` has `insecure-skip-tls-verify: true`",
            target.name
        ));
    }
    None
}
