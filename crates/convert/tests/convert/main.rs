//! The tests of this crate's public items, in one program: a change of the crate links it once.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../testkit/src/child.rs"]
mod child;
mod evidence;
mod kept;
mod lint;
mod manifests;
mod mutate_cases;
mod mutation_laws;
mod pods;
mod strangers;
mod without_job;
