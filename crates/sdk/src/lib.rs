//! Run distributed GPU training on a real fabric, from Rust.
//!
//! A job is described once; [`Client::plan`] determines what its fabric needs (AWS EFA, RoCE, InfiniBand),
//! and [`Plan::submit`] sends it to Run:ai, Kubeflow, Slurm or this machine. Its logs then show which
//! transport each pair of ranks really uses.
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
//!         for event in batch.read_into(&mut map) {
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
//! # Without a cluster
//! Planning is a pure function of the job, the catalogue and the cluster's facts. Without a cluster, assumed
//! facts are used, and every decision that depends on one is marked:
//!
//! ```
//! use weftrun::prelude::*;
//!
//! fn main() -> weftrun::Result<()> {
//!     let client = Client::builder().build()?;
//!     let worker = Role::worker().nodes(2).gpus_per_node(8).instance_type("p5.48xlarge").memory("1Ti");
//!     let spec = JobSpec::builder("llama-8b")
//!         .image("pytorch:25.09")
//!         .role(worker.command(["./train"]))
//!         .fabric(Fabric::Efa)
//!         .profile("eks-image")
//!         .build()?;
//!     let plan = client.plan_offline("kubeflow", &spec)?;
//!     assert!(plan.explain().contains("vpc.amazonaws.com/efa = 32"));
//!     Ok(())
//! }
//! ```
//!
//! Logs of jobs that ran without weftrun are read the same way, by [`core`] alone:
//!
//! ```
//! use std::sync::Arc;
//! use weftrun::core::log::SourceId;
//! use weftrun::prelude::*;
//!
//! let mut map = TransportMap::new();
//! let rank0 = Arc::new(SourceId::new("rank0.log"));
//! map.read(&rank0, b"h0:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n");
//! map.end(&rank0);
//! let pairs = map.snapshot().pairs();
//! assert_eq!(&*pairs[0].transport, "NET/Socket");
//! ```
//!
//! # What to rely on
//! - **Dropping** a stream or a future at any point loses nothing that a new one would not return. A job
//!   continues when the program that submitted it ends, if
//!   [`Capability::detach`](core::backend::Capability::detach) is set.
//! - **Submitted once**: [`Plan::submit`] writes to the journal before it sends; [`Client::unresolved_on`]
//!   resolves submissions that lost their answer, and a job whose handle nobody has seen is named before an equal one is
//!   submitted ([`Plan::refuse_earlier`]).
//! - **Errors** are one type, [`Error`]: a [kind](ErrorKind) to match on, the affected value, hints for
//!   people, and [`Error::is_retryable`]. Nothing panics because of the contents of a cluster's answer, a
//!   file or a log.
//! - **No global state**: [`Config::empty`] and [`Registry::empty`] give a client without any outside
//!   configuration. One exception: the first TLS connection sets rustls' default provider to `ring` where the
//!   program has not set one, because kube and reqwest take it from there. Set yours before, and it is used.
//! - **A tokio runtime** with its timers and I/O enabled runs everything that is `async`. Outside of one, a
//!   call is an [`ErrorKind::Usage`] error, and nothing panics. Every future and stream is `Send`.
//! - **A spec is validated** by [`Client::plan`] as by
//!   [`build`](core::spec::JobSpecBuilder::build), however it was changed between.
//! - **Units** are in the type or the name: [`Duration`](std::time::Duration), `…_bytes`, `…_seconds`;
//!   quantities such as `64Gi` are Kubernetes' own.
//!
//! # Features
//! `local`, `hosts`, `slurm`, `kubeflow` and `runai` each add a backend; all are on by default. A backend of another
//! crate needs no feature: name the crate in your source, and [`Registry::linked`] contains it. `image` adds
//! [`Plan::check_image`], `log-files` adds [`open_logs`].
//!
//! # Minimum supported Rust version
//! 1.91, which CI checks. Raising it is a minor release.
//!
//! # What may grow
//! Structs and enums that will grow are `#[non_exhaustive]`, the shapes of [`report`] among them. Those
//! that are written as literals are not: end
//! them with `..Default::default()`, as [`Capability`], [`FabricRequest`](core::fabric::FabricRequest) and
//! [`Overrides`](core::spec::Overrides). Neither is [`Launch`](core::spec::Launch): every backend must handle
//! a new way to start a job. `docs/public-api` lists the whole
//! surface; CI compares it. [`Backend`] grows by methods with a default that answers
//! [`ErrorKind::Unsupported`].

mod array_end;
mod attempts;
mod client;
mod code_folder;
#[cfg(feature = "log-files")]
pub mod compressed;
mod config;
mod diagnosis;
pub mod files;
mod forward;
mod found_targets;
mod health;
#[cfg(feature = "image")]
mod image;
mod inspect;
mod job;
mod job_file;
mod job_history;
mod job_tasks;
mod journal;
mod left_out;
mod line_diff;
mod lint;
mod lock;
#[cfg(feature = "log-files")]
pub mod log_files;
mod log_selection;
mod plan;
mod predecessors;
mod project;
pub mod report;
mod runtime;
mod sightings;
mod task_sets;
mod trust;
pub mod verify;
mod watch;

pub use attempts::{Attempt, Attempts, EarlierAttempt, NextAttempt};
pub use client::{Client, ClientBuilder, Outcome};
pub use code_folder::code_folder;
pub use config::Config;
pub use forward::ForwardedPort;
pub use health::{HealthOptions, health_at, watch_health_at};
pub use inspect::Inspection;
pub use job::Job;
pub use job_file::{JobSource, Outside};
#[cfg(feature = "log-files")]
pub use job_history::Imported;
pub use job_history::{JobHistory, JobsPast};
pub use journal::{Journal, Owner, Record, RecordState};
pub use line_diff::{LineDiff, Run};
pub use lint::lint_job_file;
#[cfg(feature = "log-files")]
pub use log_files::{LogFiles, open_logs, read_bandwidth};
pub use plan::Plan;
pub use watch::WatchEvent;
pub use weftrun_convert as convert;
pub use weftrun_core as core;
pub use weftrun_core::backend::{Backend, Capability, Registry};
pub use weftrun_core::{Error, ErrorKind, Finding, Result, Severity};
pub use weftrun_diagnose as diagnose;
pub use weftrun_profiler as profiler;

/// Makes the linker keep weftrun's own backends. [`ClientBuilder::build`] calls it; only a program that uses
/// [`Registry::linked`] before it builds a client needs it.
pub fn link() {
    weftrun_backends::link();
}

pub use weftrun_backends::{clock, insecurity, random};

/// Runs the supervisor of a job of the `local` backend, as the hidden `weftrun supervise DIR` does.
#[cfg(feature = "local")]
#[doc(hidden)]
pub use weftrun_backends::local::supervise;

/// Compiles the Rust examples of the repository's pages together with those of this one.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/start/rust.md")]
    struct Start;
    #[doc = include_str!("../../../docs/guides/verify.md")]
    struct Verify;
}

/// The items that most programs need.
pub mod prelude {
    pub use crate::core::fabric::{Fabric, RuleSetting};
    pub use crate::core::job::{Action, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary};
    pub use crate::core::log::{LogBatch, LogOptions};
    pub use crate::core::nccl::TransportMap;
    pub use crate::core::spec::{JobSpec, Launch, RestartPolicy, Role};
    pub use crate::{Client, Config, Error, ErrorKind, Finding, Job, Plan, Registry, Result};
}
