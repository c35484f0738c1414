//! `weftrun` as a user runs it, on a real Slurm cluster: over local commands and over ssh.
//!
//! `WEFTRUN_TEST_SLURM=DIR` names a running test cluster; `test-cluster/slurm/ci.sh` starts one and runs
//! this.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod bandwidth;
mod causes;
#[path = "../../../../test-cluster/slurm/cluster.rs"]
#[allow(dead_code, reason = "the backend's tests use more of it")]
mod cluster;
mod code;
mod exactly_once;
mod follow;
mod health;
mod hostile;
mod imported;
mod refused;
mod retry;
mod run;
mod signals;
mod speed;
mod tasks;
mod verbs;
mod verify;
