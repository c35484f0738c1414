//! The report of `weftrun why -o json`: the first cause of a failure.

use serde::Serialize;

use crate::cause::{Cause, Stack, Why, WhyState};
use weftrun_core::Finding;
use weftrun_core::shape::SCHEMA;

/// `weftrun why -o json`: why a job failed or hangs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WhyReport {
    /// `weftrun/v1`.
    pub schema: &'static str,
    /// The state of the job.
    pub state: WhyState,
    /// The first cause; null where nothing failed, or nothing proves one.
    pub cause: Option<Cause>,
    /// Ranks that failed because of it.
    pub victims: Vec<u32>,
    /// What else is worth knowing.
    pub findings: Vec<Finding>,
    /// With `--stacks`, the stacks of the ranks that the cause names; left out otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

impl From<Why> for WhyReport {
    fn from(why: Why) -> Self {
        let Why { state, cause, victims, findings, stacks } = why;
        Self { schema: SCHEMA, state, cause, victims, findings, stacks }
    }
}
