//! What was decided, and what would be sent.

use serde::Serialize;

use super::SchemaName;
use crate::Finding;
use crate::backend::Rendered;
use crate::fabric::Op;
use crate::fabric::{Decision, FabricPlan, Skipped};
use crate::request::Fabric;
use crate::spec::JobSpec;

/// `weftrun plan -o json`: every decision with its why.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// Name of the job.
    pub name: &'a str,
    /// The fabric the ranks are expected to use between nodes.
    pub fabric: Fabric,
    /// The decisions, in the order of the rules.
    pub decisions: &'a [Decision],
    /// What did not apply, and why.
    pub skipped: &'a [Skipped],
    /// Errors and warnings.
    pub findings: &'a [Finding],
    /// The changes the decisions mean.
    pub ops: &'a [Op],
}

impl<'a> PlanReport<'a> {
    /// Makes the report of a plan, with all that is to be said of the job.
    pub fn new(name: &'a str, plan: &'a FabricPlan, findings: &'a [Finding]) -> Self {
        let FabricPlan { fabric, decisions, skipped, ops, .. } = plan;
        Self { schema: SchemaName, name, fabric: *fabric, decisions, skipped, findings, ops }
    }
}

/// `weftrun render -o json` and `submit --dry-run -o json`: exactly what would be sent.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenderReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// The documents, the changes in them and those they cannot express.
    pub rendered: &'a Rendered,
    /// Errors and warnings of the plan and, where it was asked, of the cluster.
    pub findings: &'a [Finding],
}

/// `weftrun import -o json`: the job that was made of a manifest.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportReport<'a> {
    /// The contract.
    pub schema: SchemaName,
    /// The job.
    pub job: &'a JobSpec,
    /// The job file, as TOML.
    pub file: &'a str,
    /// What could not be carried, and warnings.
    pub findings: &'a [Finding],
}
