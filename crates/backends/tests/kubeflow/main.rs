//! The Kubeflow backend on a real cluster with the real operators. Skipped, with a message, where there is none:
//!
//! ```text
//! test-cluster/kubernetes/ci.sh build
//! test-cluster/kubernetes/ci.sh test
//! ```

#![cfg(feature = "kubeflow")]
#![allow(
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

mod absent;
mod bandwidth;
mod cluster;
mod code;
mod companions;
mod conformance;
mod ending;
mod exec;
mod fabric;
mod failures;
mod findings;
mod follow;
mod health;
mod holding;
mod kinds;
mod kueue;
mod line;
mod logs;
mod losing;
mod networks;
mod pending;
mod proxy;
mod ranks;
mod refusing;
mod replayed;
mod retry;
mod shell;
mod submit;
mod tasks;
mod verify;
mod webhook;
