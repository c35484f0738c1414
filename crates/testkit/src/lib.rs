//! What tests of weftrun and of third parties' backends need.
//!
//! | module | what it gives |
//! |---|---|
//! | [`conformance`] | the suite every [`Backend`](weftrun_core::backend::Backend) must pass, chosen by its capability |
//! | [`replay`] | real NCCL logs, played as captured or widened to any number of ranks, with the truth beside |
//! | [`damage`] | logs as launchers, pipes and terminals leave them |
//! | [`planned`] | a planned job of a spec, without config files, catalogue or cluster |

pub mod conformance;
pub mod damage;
#[cfg(feature = "fake-runai")]
pub mod fake_runai;
mod plan;
pub mod replay;

pub use plan::{planned, random_submission};
