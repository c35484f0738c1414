//! The rules, one situation a test: what a job looks like, what is asked, what comes of it.

#![allow(
    clippy::field_reassign_with_default,
    reason = "the facts of a cluster can grow, so they have no literal"
)]

mod detection;
mod opting_out;
mod own_values;
mod pods;
mod rdma;
mod situation;
mod stack;
mod which_jobs;
