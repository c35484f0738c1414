//! Test helpers for weftrun and for third parties' backends.
//!
//! | module | what it gives |
//! |---|---|
//! | [`child`] | the programs that a test starts, without the user's environment |
//! | [`conformance`] | the suite every [`Backend`](weftrun_core::backend::Backend) must pass, chosen by its capability |
//! | [`fake`] | a backend a test moves: phases, bytes, silence, garbage, death |
//! | [`fabric_matrix`] | a planned job for every row of the catalogue under every profile |
//! | [`code_folder`] | a folder as the code of a job, packed by the system's tar |
//! | [`planned`] | a planned job of a spec, without config files, catalogue or cluster |
//! | [`skipped`] | a line that says why a test did not run |

pub mod child;
pub mod conformance;
pub mod fabric_matrix;
pub mod fake;
#[cfg(feature = "fake-runai")]
pub mod fake_runai;
mod plan;
pub mod ras;
#[cfg(feature = "fake-registry")]
pub mod registry;
mod skip;

pub use plan::{code_folder, planned, random_submission};
pub use skip::skipped;
