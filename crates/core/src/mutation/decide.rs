//! The engine's entry.

use super::{JobView, Options, Outcome};
use crate::backend::ClusterFacts;
use crate::catalogue::Catalogue;
use crate::fabric::Profile;

/// Decides what a job gets. Pure: the result depends on nothing but the arguments.
pub fn decide(
    _job: &JobView,
    _profile: &Profile,
    options: &Options,
    _catalogue: &Catalogue,
    _facts: &ClusterFacts,
) -> Outcome {
    Outcome { fabric: options.kind, ..Outcome::default() }
}
