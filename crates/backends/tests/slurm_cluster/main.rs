//! The Slurm backend on a real cluster: `WEFTRUN_TEST_SLURM=DIR` names a running test cluster
//! (`test-cluster/slurm/up.sh DIR`).
//!
//! Each test runs over local commands (the cluster's wrappers) and over ssh. `test-cluster/slurm/ci.sh`
//! starts a cluster, runs the tests and stops it.
#![cfg(feature = "slurm")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod broken;
mod cluster;
mod conformance;
mod failures;
mod hostile;
mod job;
mod once;
mod rendered;
mod rest;
mod speed;
