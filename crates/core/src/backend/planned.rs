//! A job with all decisions made.

use serde::{Deserialize, Serialize};

use crate::fabric::ClusterFacts;
use crate::fabric::{FabricPlan, Profile};
use crate::job::{Lane, SubmissionId};
use crate::spec::{JobSpec, LeftOut};
use crate::{Error, Result};

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
    /// The nodes that it does not run on: those that the spec names, and those that its words stand for.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// The earlier tasks of the same job that must have ended before it starts, on a backend with
    /// [dependencies](crate::backend::Capability::dependencies).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
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
        let left_out = spec.named_nodes_to_avoid();
        Self { spec, plan, profile, facts, submission, left_out, lane: None }
    }

    /// Returns the names of the nodes that it does not run on.
    pub fn avoided(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().map(|left| left.node.as_str())
    }

    /// Refuses a job that leaves nodes out, for a backend that cannot choose its nodes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    pub fn refuse_avoid(&self, backend: &str) -> Result<()> {
        if self.spec.avoid.is_empty() && self.left_out.is_empty() {
            return Ok(());
        }
        Err(Error::unsupported(backend, "leaving out nodes")
            .with("avoid", self.spec.avoid.join(","))
            .hint("take `avoid` out of the job file, or leave out `--avoid`"))
    }

    /// Refuses a job that names a node to run on which it also leaves out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec) naming the node and the key.
    pub fn refuse_pinned<'n>(&self, key: &str, pinned: impl IntoIterator<Item = &'n str>) -> Result<()> {
        let Some(both) = pinned.into_iter().find(|node| self.avoided().any(|avoided| avoided == *node))
        else {
            return Ok(());
        };
        let message = format!("`{key}` names the node {}, which `avoid` leaves out", both.escape_debug());
        Err(Error::new(crate::ErrorKind::InvalidSpec, message)
            .with("key", "avoid")
            .hint(format!("take the node out of `{key}` or out of `avoid`")))
    }
}
