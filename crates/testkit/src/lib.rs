//! What tests of weftrun and of third parties' backends need.
//!
//! | module | what it gives |
//! |---|---|
//! | [`conformance`] | the suite every [`Backend`](weftrun_core::backend::Backend) must pass, chosen by its capability |
//! | [`planned`] | a planned job of a spec, without config files, catalogue or cluster |

pub mod conformance;
mod plan;

pub use plan::{planned, random_submission};
