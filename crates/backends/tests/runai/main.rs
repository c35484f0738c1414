//! The Run:ai backend against a control plane of our own, in several versions and under every fault.
#![cfg(feature = "runai")]
#![allow(missing_docs)]
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends with a panic, and says why"
)]

mod access;
mod bodies;
mod common;
mod doctor;
mod exec;
mod imports;
mod life;
mod logs;
mod runapy;
mod scale;
mod serve;
mod submit;
