//! The rules, one situation per test: a job, a request, and the result.
#![allow(
    clippy::field_reassign_with_default,
    reason = "the facts of a cluster can grow, so they have no literal"
)]

mod detection;
mod networks;
mod opting_out;
mod own_values;
mod rdma;
mod situation;
mod stack;
mod which_jobs;
