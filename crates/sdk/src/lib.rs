//! Run distributed GPU training on a real fabric, from Rust.
//!
//! A job is described once; [`Client::plan`] decides what its fabric needs (AWS EFA, RoCE, InfiniBand), and
//! [`Plan::submit`] sends it to Run:ai, Kubeflow, Slurm or this machine. Its logs then say which transport each pair
//! of ranks really uses.
//!
//! ```no_run
//! use futures_util::TryStreamExt;
//! use weftrun::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> weftrun::Result<()> {
//!     let client = Client::builder().config(Config::load()?).build()?;
//!     let spec = JobSpec::builder("llama-8b")
//!         .image("pytorch:25.09")
//!         .launch(Launch::Torchrun)
//!         .role(Role::worker().nodes(4).gpus_per_node(8).command(["train.py"]))
//!         .fabric(Fabric::Efa)
//!         .build()?;
//!     let job = client.plan("prod", &spec).await?.submit().await?;
//!     let (mut logs, mut map) = (job.logs(LogOptions::follow()), TransportMap::default());
//!     while let Some(batch) = logs.try_next().await? {
//!         for event in map.observe(&batch) {
//!             println!("{event}");
//!         }
//!     }
//!     job.diagnose(&map).into_result()?; // an error when planned EFA ran on sockets
//!     Ok(())
//! }
//! ```
//!
//! A job that another process submitted is bound by its handle:
//!
//! ```no_run
//! use futures_util::TryStreamExt;
//! use weftrun::prelude::*;
//!
//! # async fn example(client: Client) -> weftrun::Result<()> {
//! let job = client.attach(&"slurm://prod/184223".parse()?).await?;
//! let mut events = job.watch();
//! while let Some(event) = events.try_next().await? {
//!     if let Some(phase) = event.phase() {
//!         println!("{phase}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here needs an environment to be constructed: [`Config::empty`] and [`Registry::empty`] give a client that
//! knows only what it is told. Dropping a stream at any point loses nothing.

mod client;
mod config;
mod files;
mod job;
mod job_file;
mod journal;
mod plan;
mod trust;

pub use client::{Client, ClientBuilder};
pub use config::Config;
pub use job::Job;
pub use job_file::JobSource;
pub use journal::{Journal, Record, RecordState};
pub use plan::Plan;
pub use weftrun_core as core;
pub use weftrun_core::backend::{Backend, Capability, Registry};
pub use weftrun_core::{Error, ErrorKind, Finding, Result, Severity};

/// Makes the linker keep the backends that come with weftrun. [`ClientBuilder::build`] calls it; only a program that
/// asks [`Registry::linked`] before it builds a client needs it.
pub fn link() {
    weftrun_backends::link();
}

/// Runs the supervisor of a job of the `local` backend: what the hidden `weftrun supervise DIR` does.
#[cfg(feature = "local")]
#[doc(hidden)]
pub use weftrun_backends::local::supervise;

/// What most programs need.
pub mod prelude {
    pub use crate::core::fabric::{Fabric, RuleSetting};
    pub use crate::core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase};
    pub use crate::core::log::{LogBatch, LogOptions};
    pub use crate::core::nccl::TransportMap;
    pub use crate::core::spec::{JobSpec, Launch, RestartPolicy, Role};
    pub use crate::{Client, Config, Job, Plan, Registry};
}
