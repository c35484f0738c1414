//! The answer to planning a draft: what is sent, and what the backend cannot express.

use std::collections::BTreeMap;

use weftrun::Finding;
use weftrun::core::backend::Rendered;
use weftrun::core::fabric::{FabricPlan, Op};
use weftrun::core::log::clean_text;

use crate::model::compare::{self, Row};

/// The result of planning a draft.
#[derive(Clone, Debug)]
pub struct Planned {
    pub plan: FabricPlan,
    /// The changes as they would be with no rule switched off.
    pub all: Vec<Op>,
    /// The rendered document, line by line, compared with the one without the changes; or why it cannot be
    /// rendered.
    pub rows: Result<Vec<Row>, String>,
    /// The changes in the order of those lines.
    pub order: Vec<usize>,
    /// What the backend cannot express, by the index of the change: why, and what follows.
    pub inexpressible: BTreeMap<usize, String>,
    /// Settings of the job that this kind of job has no field for.
    pub findings: Vec<Finding>,
    /// Queues of the cluster, as far as it reports them.
    pub queues: Vec<String>,
    /// Priorities of the cluster, as far as it reports them.
    pub priorities: Vec<String>,
    /// The source of its facts.
    pub basis: Basis,
}

/// The source of a plan's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Assumed facts: the cluster is being queried.
    Assumed,
    /// Assumed facts: the cluster did not answer.
    Unanswered,
    /// The cluster's facts.
    Cluster,
}

impl Planned {
    /// Compares what is sent with what would be sent without any change.
    pub fn new(
        plan: FabricPlan,
        all: Vec<Op>,
        bare: Option<&Rendered>,
        sent: Result<&Rendered, String>,
        basis: Basis,
    ) -> Self {
        let place = |op: &Op| all.iter().position(|known| known == op);
        let lost = sent.as_ref().map_or(&[][..], |sent| &sent.inexpressible);
        let inexpressible = lost
            .iter()
            .filter_map(|lost| Some((place(&lost.op)?, clean_text(&lost.reason).into_owned())))
            .collect();
        let findings = sent.as_ref().map_or(&[][..], |sent| &sent.findings);
        let findings = findings.iter().cloned().map(crate::safe::finding).collect();
        let rows = sent.map(|sent| compare::compare(bare, sent, &all));
        let order = compare::order(rows.as_deref().unwrap_or_default(), all.len());
        let (queues, priorities) = (Vec::new(), Vec::new());
        Self { plan, all, rows, order, inexpressible, findings, queues, priorities, basis }
    }
}
