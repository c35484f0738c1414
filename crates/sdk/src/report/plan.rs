//! The decisions, and what would be sent.

use super::SchemaName;
use weftrun_core::Finding;
use weftrun_core::backend::Rendered;
use weftrun_core::fabric::evidence::FabricEvidence;
use weftrun_core::fabric::{Decision, FabricPlan, Op, Skipped};
use weftrun_core::request::Fabric;
use weftrun_core::spec::{CodeContent, JobSpec};

weftrun_core::shapes! {
    /// `weftrun plan -o json`: every decision with its why.
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
        /// The profile they are of, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub profile: Option<&'a str>,
        /// What the job or the cluster shows of its fabric; empty where the profile was named.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        pub evidence: &'a [FabricEvidence],
        /// The folder that is sent with the job; left out for a job without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub code: Option<&'a CodeContent>,
    }
}

impl<'a> PlanReport<'a> {
    /// Makes the report of a plan, with all findings about the job.
    pub fn new(name: &'a str, plan: &'a FabricPlan, findings: &'a [Finding]) -> Self {
        let FabricPlan { fabric, decisions, skipped, ops, evidence, .. } = plan;
        let profile = plan.profile.as_deref();
        Self {
            schema: SchemaName,
            name,
            fabric: *fabric,
            decisions,
            skipped,
            findings,
            ops,
            profile,
            evidence,
            code: None,
        }
    }
}

report! {
    /// `weftrun render -o json` and `submit --dry-run -o json`: exactly what would be sent.
    pub struct RenderReport<'a> {
        /// The documents, the changes in them and those they cannot express.
        pub rendered: &'a Rendered,
        /// Errors and warnings of the plan and, where it was queried, of the cluster.
        pub findings: &'a [Finding],
    }

    /// `weftrun import -o json`: the job that was made of a manifest.
    pub struct ImportReport<'a> {
        /// The job.
        pub job: &'a JobSpec,
        /// The job file, as TOML.
        pub file: &'a str,
        /// What could not be carried, and warnings.
        pub findings: &'a [Finding],
    }
}
