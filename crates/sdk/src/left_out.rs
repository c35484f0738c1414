//! The nodes that a job leaves out, and warnings of those that it should leave out.

use weftrun_core::Finding;
use weftrun_core::backend::{PlannedJob, TargetConfig};
use weftrun_core::spec::LeftOut;
use weftrun_core::text::listed;

use crate::Client;

/// Most suspects that are named in one warning.
const MOST_NAMED: usize = 4;

impl Client {
    /// Completes the nodes that a job leaves out, and adds them to its plan, each with the reason. Suspects that it may run on
    /// are warned of.
    pub(crate) fn leave_out(&self, target: &TargetConfig, planned: &mut PlannedJob) {
        let (mut suspects, note) = self.suspects(target);
        suspects.retain(|suspect| planned.avoided().all(|node| node != suspect.node));
        if planned.spec.avoids_suspects() {
            planned.left_out.append(&mut suspects);
        }
        let left = |left: &LeftOut| {
            Finding::info("NODE-LEFT-OUT", format!("left out: {} ({})", left.node, left.why)).at("avoid")
        };
        planned.plan.findings.extend(planned.left_out.iter().map(left));
        planned.plan.findings.extend(note.into_iter().chain(suspect(target, &suspects)));
    }

    /// Returns the nodes of a target that its history suspects, and a note where it cannot be read.
    fn suspects(&self, target: &TargetConfig) -> (Vec<LeftOut>, Option<Finding>) {
        match self.job_history(target).map(|history| history.suspects()) {
            None => (Vec::new(), None),
            Some(Ok(suspects)) => (suspects, None),
            Some(Err(error)) => {
                let message = format!("the history of the nodes is not used: {error}");
                (
                    Vec::new(),
                    Some(Finding::warning("HISTORY-UNREAD", message).fix("check the file, or remove it")),
                )
            }
        }
    }

    /// Returns a warning of the nodes of a target that its history suspects, and on which jobs may run.
    pub fn warn_of_suspects(&self, target: &TargetConfig) -> Vec<Finding> {
        let (suspects, note) = self.suspects(target);
        note.into_iter().chain(suspect(target, &suspects)).collect()
    }
}

/// Returns the warning of nodes that are suspected and not left out.
fn suspect(target: &TargetConfig, suspects: &[LeftOut]) -> Option<Finding> {
    let named: Vec<String> = suspects.iter().map(|left| format!("{} ({})", left.node, left.why)).collect();
    let first = suspects.first()?;
    let message = format!("a job may run on nodes that failed before: {}", listed(&named, MOST_NAMED));
    Some(Finding::warning("NODE-SUSPECT", message).fix(format!(
        "leave them out with `--avoid suspects`; `weftrun nodes -b {} {}` lists the evidence",
        target.name, first.node
    )))
}
