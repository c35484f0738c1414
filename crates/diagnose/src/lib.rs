//! What is wrong with a job, and what to change. Everything that is known of a job ([`Sources`]) becomes one
//! [`Diagnosis`]: what its transports prove, what is wrong with them, its state, and the first cause of a failure or a
//! hang. Pure functions over plain data, without any I/O.
//!
//! ```
//! use std::sync::Arc;
//! use weftrun_diagnose::Sources;
//! use weftrun_nccl::{SourceId, TransportMap};
//!
//! let (mut map, rank0) = (TransportMap::new(), Arc::new(SourceId::new("rank0.log")));
//! map.read(&rank0, b"h0:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n");
//! map.end(&rank0);
//! let diagnosis = Sources::of_logs(&map).diagnose();
//! assert_eq!(diagnosis.verdict.fabric.label(), "socket");
//! assert!(diagnosis.why.cause.is_none());
//! ```

#[macro_use(word_enum)]
extern crate weftrun_nccl;

mod anomalies;
pub mod cause;
mod cluster;
pub mod counters;
mod diagnosis;
pub mod diagnostics;
pub mod explain;
mod fabric;
pub mod flight_recorder;
pub mod health;
mod judge;
mod measured;
pub mod nodes;
pub mod report;
mod rule_input;
mod rules;
mod sources;

pub use cluster::ended_by_cluster;
pub use diagnosis::Diagnosis;
pub use fabric::{NO_INFO, OF_SPEED, RANK_LATE};
pub use judge::Judge;
pub use measured::{ExpectedSpeed, Measured, StepCost};
pub use rules::{Blame, Rule, rules};
pub use sources::Sources;
