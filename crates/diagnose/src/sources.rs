//! Everything that is known of a job, and the diagnosis of it.

use weftrun_core::catalogue::{self, Catalogue};
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::JobDetail;
use weftrun_core::{Finding, Severity};
use weftrun_nccl::TransportMap;

use crate::cause::{self, Cause, WhyState};
use crate::nodes::unnamed_nodes;
use crate::report::HealthReport;
use crate::rule_input::RuleInput;
use crate::{Diagnosis, Measured, cluster, diagnostics, fabric};

/// What is known of a job: its logs, and whatever else was asked.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    logs: &'a TransportMap,
    plan: Option<&'a FabricPlan>,
    job: Option<&'a JobDetail>,
    runs: bool,
    health: Option<&'a HealthReport>,
}

impl<'a> Sources<'a> {
    /// The logs alone.
    pub fn of_logs(logs: &'a TransportMap) -> Self {
        Self { logs, plan: None, job: None, runs: false, health: None }
    }

    /// Adds what was planned.
    #[must_use]
    pub fn plan(self, plan: Option<&'a FabricPlan>) -> Self {
        Self { plan, ..self }
    }

    /// Adds what the cluster reports. The logs are then all that the job has written.
    #[must_use]
    pub fn job(self, job: Option<&'a JobDetail>) -> Self {
        Self { job, ..self }
    }

    /// The job runs, and its logs were read as far as they are.
    #[must_use]
    pub fn running(self) -> Self {
        Self { runs: true, ..self }
    }

    /// Adds the answer of NCCL's RAS service.
    #[must_use]
    pub fn health(self, health: Option<&'a HealthReport>) -> Self {
        Self { health, ..self }
    }

    /// Returns what is wrong, and what to change.
    pub fn diagnose(self) -> Diagnosis {
        let planned = self.plan.map(|plan| plan.fabric);
        let seen = RuleInput::new(planned, self.logs);
        let mut why = cause::find(&seen, self.state());
        if let Some(job) = self.job {
            cluster::add_status(&mut why, &seen, job);
            let unplaced = |cause: &&mut Cause| cause.nodes.is_empty() && !cause.class.is_of_whole_job();
            if let Some(cause) = why.cause.as_mut().filter(unplaced) {
                cause.nodes = unnamed_nodes(cause, job);
            }
        }
        if let Some(health) = self.health {
            health.explain(&mut why);
        }
        let measured = if seen.map.bandwidth().is_empty() { None } else { self.measured(&seen) };
        let mut findings = fabric::findings(self.plan, &seen, measured.as_deref());
        fabric::fold_consequences(&mut findings, &why);
        let in_why = |finding: &&Finding| {
            fabric::OF_SPEED.contains(&&*finding.code)
                || diagnostics::is_one(finding) && finding.severity > Severity::Info
        };
        why.findings.extend(findings.iter().filter(in_why).cloned());
        let ok = fabric::judge(&seen, &findings);
        let expected = self.plan.and_then(|plan| plan.instance_type.as_deref()).and_then(|instance| {
            let nodes = seen.ranks().iter().map(|rank| rank.node + 1).max()?;
            catalogue::expected(instance, nodes, "all_reduce")
        });
        let whole =
            seen.comms().iter().any(|comm| comm.world && comm.seen_ranks.len() == comm.nranks as usize);
        let one_node = whole && seen.ranks().iter().all(|rank| rank.node == 0);
        let read_lines = seen.map.lines() > 0;
        Diagnosis {
            verdict: seen.verdict,
            ok,
            planned,
            findings,
            expected,
            measured,
            why,
            one_node,
            read_lines,
        }
    }

    fn measured(&self, seen: &RuleInput<'_>) -> Option<Box<Measured>> {
        let name = self.plan.and_then(|plan| plan.instance_type.as_deref());
        let catalogue = name.map(|_| Catalogue::builtin());
        let instance = name.zip(catalogue.as_ref()).and_then(|(name, catalogue)| catalogue.get(name));
        Measured::of_logs(&seen.map, instance).map(Box::new)
    }

    /// The state that the cluster reports; none where it was not asked, or does not know.
    fn state(&self) -> Option<WhyState> {
        if self.runs {
            return Some(WhyState::Running);
        }
        cluster::state_of(self.job?.summary.phase)
    }
}
