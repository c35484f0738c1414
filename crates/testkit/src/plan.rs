//! Planned jobs without config files, catalogue or cluster.

use weftrun_core::backend::{ClusterFacts, PlannedJob};
use weftrun_core::fabric::{FabricPlan, Profile};
use weftrun_core::job::SubmissionId;
use weftrun_core::spec::JobSpec;

/// Returns a unique submission id.
pub fn random_submission() -> SubmissionId {
    SubmissionId::from_random(fastrand::u128(..))
}

/// Returns the planned job of a spec, with a plan that changes nothing.
pub fn planned(spec: JobSpec) -> PlannedJob {
    let plan = FabricPlan::unchanged(spec.fabric.kind);
    PlannedJob::new(spec, plan, Profile::default(), ClusterFacts::default(), random_submission())
}
