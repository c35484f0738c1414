//! What was decided for one job.

use super::Op;
use crate::Finding;
use crate::fabric::{Decision, Skipped};
use crate::request::Fabric;

/// What was decided for one job. With an error among the findings there are no ops: the job stays as it was.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The fabric the ranks are expected to use between nodes; [`Fabric::Auto`] if nothing is expected.
    pub fabric: Fabric,
    /// Why nothing of the fabric applies (`partial-node`, `opt-out`, …), if nothing does.
    pub skip: Option<Skipped>,
    /// The changes, role by role, in the order they are to be made.
    pub ops: Vec<Op>,
    /// What was decided and why: one for each op, and one for each value of the user's that stays.
    pub decisions: Vec<Decision>,
    /// Single rules that did not apply.
    pub skipped: Vec<Skipped>,
    /// Errors, warnings and notes, in the order they came up.
    pub findings: Vec<Finding>,
}

impl Outcome {
    /// Whether anything changes.
    pub fn changed(&self) -> bool {
        !self.ops.is_empty()
    }

    /// The first error, if there is one.
    pub fn error(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.is_error())
    }
}
