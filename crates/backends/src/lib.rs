//! The backends of weftrun: one folder each, with the same file names in each.
//!
//! | file | what happens there |
//! |---|---|
//! | `mod.rs` | the type that implements [`Backend`](weftrun_core::backend::Backend), its capability, its registration |
//! | `config.rs` | the target's settings, read and checked |
//! | `client.rs` | talking to the cluster (or, for `local`, to the job folders) |
//! | `render.rs` | a planned job becomes exactly what is sent; pure |
//! | `status.rs` | the cluster's words become phases and findings |
//! | `logs.rs` | log bytes, followed and resumed |
//! | `error.rs` | the cluster's errors become [`weftrun_core::Error`] |
//! | `docs.md` | what a reader of this folder must know of the cluster |
//!
//! A program that names [`link`] has every backend of its features in
//! [`Registry::linked`](weftrun_core::backend::Registry::linked); without a mention in source the linker drops them.

pub mod files;
#[cfg(feature = "kubeflow")]
pub mod kubeflow;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "requests")]
pub mod requests;
#[cfg(feature = "slurm")]
pub mod slurm;

#[cfg(feature = "runai")]
pub mod runai;

/// Does nothing but be called: a call keeps this crate, and with it the registrations of its backends, in the program.
pub fn link() {}
