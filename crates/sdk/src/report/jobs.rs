//! Jobs that are in a cluster.

use super::{SchemaName, WhyReport};
use weftrun_core::Finding;
use weftrun_core::fabric::{Decision, FabricPlan};
use weftrun_core::job::{Action, JobDetail, JobEvent, JobHandle, JobPhase, JobSummary, ReplicaStatus};
use weftrun_core::spec::{CodeContent, JobSpec};

report! {
    /// `weftrun list -o json`.
    pub struct ListReport<'a> {
        /// The jobs.
        pub jobs: &'a [JobSummary],
    }

    /// `weftrun wait -o json`: how a job ended.
    pub struct WaitReport<'a> {
        /// The job at its end.
        pub job: &'a JobSummary,
        /// Why it failed; left out where it did not.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub why: Option<WhyReport>,
    }

    /// `weftrun cancel`, `delete`, `suspend` and `resume` with `-o json`: a line for each job it was done to.
    pub struct ActReport<'a> {
        /// The job's handle.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        pub handle: &'a JobHandle,
        /// What was done.
        pub action: Action,
    }

    /// `weftrun port-forward` with `-o json`: a line for each port, once it listens.
    pub struct PortReport<'a> {
        /// The job's handle.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        pub handle: &'a JobHandle,
        /// The port of this machine's 127.0.0.1.
        pub local: u16,
        /// The port of localhost inside the job.
        pub port: u16,
        /// The global rank beside which it is; none for the job's first node.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rank: Option<u32>,
    }
}

weftrun_core::shapes! {
    /// What was decided for a job when it was submitted.
    pub struct PlanShape<'a> {
        /// The decisions; empty for a job that was submitted elsewhere.
        pub decisions: &'a [Decision],
        /// Warnings of the plan.
        pub findings: &'a [Finding],
    }

    /// `weftrun describe -o json`: everything known of a job.
    pub struct DescribeReport<'a> {
        /// The contract.
        pub schema: SchemaName,
        /// The job's handle.
        #[cfg_attr(feature = "schema", schemars(with = "String"))]
        pub handle: &'a JobHandle,
        /// The backend it runs on.
        pub backend: &'a str,
        /// Its name.
        pub name: &'a str,
        /// Its phase.
        pub phase: JobPhase,
        /// Its line in the list.
        pub job: &'a JobSummary,
        /// Its pods, hosts or processes.
        pub roles: &'a [ReplicaStatus],
        /// Why it is stuck or failed, and what to do.
        pub findings: &'a [Finding],
        /// What happened, oldest first.
        pub history: &'a [JobEvent],
        /// Further facts for people, in order.
        pub facts: &'a [(String, String)],
        /// The folder that was sent with it; left out for a job without one, and one that was submitted elsewhere.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub code: Option<&'a CodeContent>,
        /// What was decided for it.
        pub plan: PlanShape<'a>,
        /// Why it failed; left out where it did not.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub why: Option<WhyReport>,
    }
}

impl<'a> PlanShape<'a> {
    /// Makes the shape of decisions and findings.
    pub fn new(decisions: &'a [Decision], findings: &'a [Finding]) -> Self {
        Self { decisions, findings }
    }
}

impl<'a> DescribeReport<'a> {
    /// Makes the report of a job; plan and spec are none for one that was submitted elsewhere.
    pub fn new(
        handle: &'a JobHandle,
        detail: &'a JobDetail,
        plan: Option<&'a FabricPlan>,
        spec: Option<&'a JobSpec>,
    ) -> Self {
        let JobDetail { summary, replicas, findings, history, facts, .. } = detail;
        Self {
            schema: SchemaName,
            handle,
            backend: handle.backend(),
            name: &summary.name,
            phase: summary.phase,
            job: summary,
            roles: replicas,
            findings,
            history,
            facts,
            code: spec.and_then(JobSpec::code_content),
            plan: PlanShape {
                decisions: plan.map(|plan| plan.decisions.as_slice()).unwrap_or_default(),
                findings: plan.map(|plan| plan.findings.as_slice()).unwrap_or_default(),
            },
            why: None,
        }
    }
}
