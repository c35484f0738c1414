//! The decisions, and what would be sent.

use super::SchemaName;
use weftrun_core::Finding;
use weftrun_core::backend::Rendered;
use weftrun_core::fabric::evidence::FabricEvidence;
use weftrun_core::fabric::{Decision, FabricPlan, Op, Skipped};
use weftrun_core::request::Fabric;
use weftrun_core::spec::{CodeContent, JobSpec};

weftrun_core::shapes! {
    /// The tasks of a job of many.
    pub struct TasksShape {
        /// How many there are.
        pub count: u32,
        /// Largest number of them that run at once; left out without a limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub parallel: Option<u32>,
        /// The values of the first tasks of a sweep (`lr=1e-3 seed=1`); empty for an array.
        pub first: Vec<String>,
    }

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
        /// The tasks of a job of many; left out for a job of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tasks: Option<TasksShape>,
        /// The folder that is sent with the job; left out for a job without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub code: Option<&'a CodeContent>,
    }
}

impl TasksShape {
    /// Makes the shape of a job's tasks, with the values of the first of them; none for a job of one task.
    pub fn of(spec: &JobSpec) -> Option<Self> {
        const FIRST: usize = 3;
        let tasks = spec.tasks()?;
        let first = tasks.numbers().take(FIRST).filter(|_| !spec.sweep.is_empty());
        let first = first.map(|task| spec.task_line(task)).collect();
        Some(Self { count: tasks.count(), parallel: tasks.parallel, first })
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
            tasks: None,
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
