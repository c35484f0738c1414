//! The Kubeflow backend on a real cluster with the real operators. Skipped, with a message, where there is none:
//!
//! ```text
//! test-cluster/kubernetes/up.sh STATE BIN 4 "training mpi trainer"
//! WEFTRUN_TEST_KUBE_STATE=STATE cargo test -p weftrun-backends --test kubeflow -- --test-threads=2
//! ```

#![cfg(feature = "kubeflow")]

mod bed;
mod conformance;
mod failures;
mod findings;
mod kinds;
mod losing;
