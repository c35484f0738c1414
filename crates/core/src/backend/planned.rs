//! A job with all decisions made.

use serde::{Deserialize, Serialize};

use crate::fabric::ClusterFacts;
use crate::fabric::{FabricPlan, Profile};
use crate::job::SubmissionId;
use crate::spec::JobSpec;

/// A job with all decisions made; a backend's `render` needs nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedJob {
    /// What to run.
    pub spec: JobSpec,
    /// The fabric's decisions and ops.
    pub plan: FabricPlan,
    /// The profile they were made with.
    pub profile: Profile,
    /// The facts of the cluster, or the assumptions offline.
    pub facts: ClusterFacts,
    /// The id this submission carries into the cluster.
    pub submission: SubmissionId,
    /// The submissions that must have ended before it starts, on a backend with
    /// [dependencies](crate::backend::Capability::dependencies): earlier tasks of the same job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follows: Vec<SubmissionId>,
}

impl PlannedJob {
    /// Makes a planned job from its parts.
    pub fn new(
        spec: JobSpec,
        plan: FabricPlan,
        profile: Profile,
        facts: ClusterFacts,
        submission: SubmissionId,
    ) -> Self {
        Self { spec, plan, profile, facts, submission, follows: Vec::new() }
    }
}
