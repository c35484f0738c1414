//! Plain hosts over real sshds: `WEFTRUN_TEST_HOSTS=DIR` names running ones (`test-cluster/hosts/up.sh DIR`).
//! `test-cluster/hosts/ci.sh` starts them, runs the tests and stops them.
#![cfg(feature = "hosts")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "a report of the suite is read by people")]

mod bandwidth;
mod cluster;
mod conformance;
mod containers;
mod failures;
mod jobs;
mod looks;
