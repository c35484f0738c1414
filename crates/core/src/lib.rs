//! Types and decisions of weftrun, without any I/O.
//!
//! Everything here is a pure function over plain data: no clock, no file system, no environment, no network, no
//! runtime. The rooms, in the order a job walks through them:
//!
//! | module | what happens there |
//! |---|---|
//! | [`span`] | YAML, JSON and TOML as trees in which every value knows where it stands |
//! | [`spec`] | a job file, flags or a builder become one [`JobSpec`](spec::JobSpec), with every mistake reported at once |
//! | [`catalogue`] | what an instance type has: accelerators, EFA interfaces, RDMA |
//! | [`fabric`] | [`FabricPlan`](fabric::FabricPlan): which fabric, and each decision with its why |
//! | [`mutation`] | the changes ("ops") those decisions mean, the rule table, the codes |
//! | [`manifest`] | raw Kubeflow objects and sbatch scripts, edited by span |
//! | [`backend`] | the seam every cluster stands behind, and the registry of those linked in |
//! | [`image`] | what a container image brings along for the fabric, and whether that fits the plan |
//! | [`job`] | handles, phases, events: a job after it was submitted |
//! | [`log`] | log bytes, resumed and sanitised |
//! | [`nccl`] | the crate `weftrun-nccl`: log lines become a map of which transport each pair of ranks uses |
//! | [`percent`] | names that stand in URLs, handles and file names |
//! | [`diagnose`] | plan and map become findings, with evidence and a fix |
//! | [`report`] | the JSON shapes other programs read |

pub mod backend;
pub mod catalogue;
pub mod config;
pub mod diagnose;
pub mod env_names;
pub mod error;
pub mod exit_codes;
pub mod fabric;
pub mod finding;
pub mod image;
pub mod job;
pub mod log;
pub mod manifest;
pub mod mutation;
pub mod percent;
pub mod report;
pub mod secret;
pub mod span;
pub mod spec;

#[doc(inline)]
pub use weftrun_nccl as nccl;

pub use error::{Error, ErrorKind, Result};
pub use finding::{Confidence, Finding, Severity};

#[doc(hidden)]
pub use inventory as __inventory;
