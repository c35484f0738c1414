//! Types and decisions of weftrun, without any I/O.
//!
//! Everything here is a pure function over plain data: no clock, no file system, no environment, no
//! network, no runtime. Each module may import those above it in this table, and none below it
//! (`.ci/layers` checks this):
//!
//! | module | what is in it |
//! |---|---|
//! | [`mask`] | known forms of secrets, hidden in everything that leaves the machine |
//! | [`error`], [`finding`], [`secret`], [`exit_codes`] | how anything is reported |
//! | [`text`] | suggestions, durations, quantities, percent-encoding |
//! | [`span`] | YAML, JSON and TOML as trees in which every value has its place |
//! | [`env_names`] | the environment variables that NCCL and its plugins read |
//! | [`advisories`] | versions of the fabric's libraries that are known to be bad |
//! | [`catalogue`] | what an instance type has: accelerators, EFA interfaces, RDMA |
//! | [`shell`] | shell grammar, and `mpirun` in argv and scripts |
//! | [`request`] | the fabric request, and the table of rules |
//! | [`spec`] | a job file, flags or a builder become one [`JobSpec`](spec::JobSpec), with every mistake reported at once |
//! | [`fabric`] | [`FabricPlan`](fabric::FabricPlan): which fabric, each decision with its reason, the operations |
//! | [`nccl`] | the crate `weftrun-nccl`: log lines become a map of which transport each pair of ranks uses |
//! | [`job`] | handles, phases, events: a job after it was submitted |
//! | [`log`] | log bytes, resumed and cleaned |
//! | [`backend`] | the trait that every cluster implements, and the registry of those linked in |
//! | [`config`] | configuration files, flags and environment, merged by layer |
//! | [`image`] | the fabric's libraries in a container image, and whether they fit the plan |
//! | [`explain`] | a page for every code |
//! | [`shape`] | the name of the JSON contract |

#[macro_use]
mod setters;

#[cfg(test)]
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../testkit/src/child.rs"]
mod child;

/// The crate `weftrun-nccl`.
#[macro_use(word_enum)]
pub extern crate weftrun_nccl as nccl;

pub mod advisories;
pub mod backend;
pub mod catalogue;
pub mod config;
pub mod env_names;
pub mod error;
pub mod exit_codes;
pub mod explain;
pub mod fabric;
pub mod finding;
pub mod image;
pub mod job;
pub mod log;
pub mod mask;
pub mod request;
pub mod secret;
pub mod shape;
pub mod shell;
pub mod span;
pub mod spec;
pub mod text;

pub use error::{Error, ErrorKind, Result};
pub use finding::{Confidence, Finding, Severity};

#[doc(hidden)]
pub use inventory as __inventory;
