//! The nodes that a job leaves out, and warnings of those that it should leave out.

use weftrun_core::Finding;
use weftrun_core::backend::{ClusterFacts, PlannedJob, TargetConfig};
use weftrun_core::spec::LeftOut;
use weftrun_core::text::listed;

use crate::Client;
use crate::client::queue_of;

/// Most suspects that are named in one warning.
const MOST_NAMED: usize = 4;

impl Client {
    /// Completes the nodes that a job leaves out, and adds them to its plan, each with the reason. Nodes that the cluster does not
    /// have stay out of it, since Slurm refuses to leave them out. Suspects that it may run on are warned of.
    pub(crate) fn leave_out(&self, target: &TargetConfig, planned: &mut PlannedJob) {
        let (mut suspects, note) = self.suspects(target);
        if planned.spec.avoids_suspects() && note.is_none() {
            planned.plan.findings.extend(self.nothing_to_leave_out(target, &suspects));
        }
        suspects.retain(|suspect| planned.avoided().all(|node| node != suspect.node));
        if planned.spec.avoids_suspects() {
            planned.left_out.append(&mut suspects);
        }
        if let Some(queues) = queues_of(target, planned) {
            let absent = drop_absent(planned);
            planned.plan.findings.extend(absent);
            suspects.retain(|suspect| may_run_on(&planned.facts, &queues, &suspect.node));
        }
        planned.plan.findings.extend(planned.left_out.iter().map(finding_of));
        planned.plan.findings.extend(note.into_iter().chain(suspect(target, &suspects)));
    }

    /// Returns why `avoid = "suspects"` leaves out nothing; none where it leaves out nodes.
    fn nothing_to_leave_out(&self, target: &TargetConfig, suspects: &[LeftOut]) -> Option<Finding> {
        const NOTHING: &str = "`suspects` leaves out no node";
        if self.job_history(target).is_none() {
            let message = format!("{NOTHING}: no history of the jobs of this target is kept");
            let fix = "name the nodes (`--avoid NODE`), or keep one: `[history] enabled = true`";
            return Some(Finding::warning("NODE-LEFT-OUT", message).at("avoid").fix(fix));
        }
        let message = format!("{NOTHING}: the history suspects none");
        suspects.is_empty().then(|| Finding::info("NODE-LEFT-OUT", message).at("avoid"))
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

/// Returns what a plan says of a node that is left out.
pub(crate) fn finding_of(left: &LeftOut) -> Finding {
    Finding::info("NODE-LEFT-OUT", format!("left out: {} ({})", left.node, left.why)).at("avoid")
}

/// Returns the queues that a job may run in, which are all if it names none; none for a queue that the cluster does not list, as
/// Slurm does not list a hidden partition, nor its nodes.
fn queues_of(target: &TargetConfig, planned: &PlannedJob) -> Option<Vec<String>> {
    let known = &planned.facts.queues;
    let queues: Vec<String> = match queue_of(target, &planned.spec) {
        Some(named) => named.split(',').map(str::to_owned).collect(),
        // A job for an instance type is sent to another partition where the default one lacks it.
        None if planned.spec.roles.iter().any(|role| role.instance_type.is_some()) => Vec::new(),
        None => known.iter().filter(|queue| queue.default).map(|queue| queue.name.clone()).collect(),
    };
    let is_listed = |name: &String| known.iter().any(|queue| queue.name == *name);
    queues.iter().all(is_listed).then_some(queues)
}

/// Returns whether a job of these queues may run on a node, as far as that is known.
fn may_run_on(facts: &ClusterFacts, queues: &[String], node: &str) -> bool {
    match facts.node_queues.get(node) {
        None => facts.node_queues.is_empty(),
        Some(own) => own.is_empty() || queues.is_empty() || own.iter().any(|queue| queues.contains(queue)),
    }
}

/// Removes the nodes that a cluster does not list from those that are left out, and returns a warning of each.
fn drop_absent(planned: &mut PlannedJob) -> Vec<Finding> {
    let facts = &planned.facts;
    let absent = planned.left_out.extract_if(.., |left| !may_run_on(facts, &[], &left.node));
    let ignored = |left: LeftOut| {
        let message = format!("not left out, since the cluster lists no node `{}` ({})", left.node, left.why);
        Finding::warning("NODE-LEFT-OUT", message).at("avoid").fix("check the name")
    };
    absent.map(ignored).collect()
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

#[cfg(test)]
mod tests {
    use weftrun_core::fabric::Queue;
    use weftrun_core::spec::{JobSpec, Role};

    use super::*;

    fn planned(nodes: &[(&str, &str)]) -> PlannedJob {
        let role = Role::worker().command(["./train"]);
        let spec = JobSpec::builder("train").role(role).avoid("gpu-1").avoid("gpu-99").build().unwrap();
        let mut planned = weftrun_testkit::planned(spec);
        let queue = |name: &str| {
            let mut queue = Queue::default();
            (queue.name, queue.default) = (name.to_owned(), name == "main");
            queue
        };
        planned.facts.queues = ["main", "test"].map(queue).to_vec();
        let of = |(node, queue): &(&str, &str)| ((*node).to_owned(), vec![(*queue).to_owned()]);
        planned.facts.node_queues = nodes.iter().map(of).collect();
        planned
    }

    #[test]
    fn nodes_that_the_cluster_does_not_list_are_not_left_out() {
        let mut online = planned(&[("gpu-1", "main"), ("gpu-2", "test")]);
        let said = drop_absent(&mut online);
        assert_eq!(online.avoided().collect::<Vec<_>>(), ["gpu-1"]);
        assert!(said.len() == 1 && said[0].message.contains("no node `gpu-99` (asked for)"), "{said:?}");
        let mut offline = planned(&[]);
        assert!(drop_absent(&mut offline).is_empty() && offline.avoided().count() == 2);
    }

    #[test]
    fn only_suspects_that_the_job_may_run_on_are_warned_of() {
        let mut target = TargetConfig::new("slurm", "prod", ".");
        let may = |target: &TargetConfig, planned: &PlannedJob| {
            let queues = queues_of(target, planned).unwrap();
            ["gpu-1", "gpu-2", "gone"].map(|node| may_run_on(&planned.facts, &queues, node))
        };
        let online = planned(&[("gpu-1", "main"), ("gpu-2", "test")]);
        assert_eq!(may(&target, &online), [true, false, false], "the default partition");
        assert_eq!(may(&target, &planned(&[])), [true, true, true], "nothing is known");
        target.settings.insert("partition".to_owned(), "main,test".into());
        assert_eq!(may(&target, &online), [true, true, false]);
        target.settings.insert("partition".to_owned(), "hidden".into());
        assert_eq!(queues_of(&target, &online), None, "a partition that is not listed");
    }
}
