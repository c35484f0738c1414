//! Which logs of a job with thousands of replicas are read for a diagnosis.

use std::collections::BTreeSet;

use weftrun_core::Finding;
use weftrun_core::job::{JobDetail, odd};
use weftrun_core::log::LogOptions;

use crate::Job;

/// Number of replicas up to which the logs of all are read.
const ALL: usize = 256;
/// Largest number of replicas that are read because their state is not that of most.
const ODD: usize = 64;
/// Number of others that are read, evenly spread: ranks that hang look alike.
const OTHERS: usize = 32;

impl Job {
    /// Returns the options that read the logs that matter for a diagnosis, and a finding if those are not all: of a job with
    /// more than 256 replicas, the replicas whose state is not that of most (the rarest first), the first of each role, and
    /// some of the others. All logs are read where the backend cannot read chosen ones.
    pub fn telling_logs(&self, detail: &JobDetail) -> (LogOptions, Option<Finding>) {
        let mut options = LogOptions::default();
        if detail.replicas.len() <= ALL || !self.backend().capability().replica_logs {
            return (options, None);
        }
        options.replicas = telling(detail);
        let message = format!(
            "the logs of {} of {} replicas were read: those whose state is not that of most, the first of each role, and some of the others",
            options.replicas.len(),
            detail.replicas.len()
        );
        let fix = "to read all: `weftrun logs JOB > job.log; weftrun why job.log`";
        (options, Some(Finding::info("WHY-LOGS-CHOSEN", message).fix(fix)))
    }
}

fn telling(detail: &JobDetail) -> BTreeSet<String> {
    let replicas = &detail.replicas;
    let firsts = replicas.iter().filter(|replica| replica.index == 0);
    let others = replicas.iter().step_by(replicas.len().div_ceil(OTHERS).max(1));
    let chosen = odd(replicas).into_iter().take(ODD).chain(firsts.take(ODD)).chain(others);
    chosen.map(|replica| replica.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use weftrun_core::job::{JobHandle, JobPhase, JobSummary, ReplicaStatus};

    use super::*;

    #[test]
    fn of_thousands_those_that_matter_are_read() {
        let job = JobSummary::new(JobHandle::new("b", "t", ["j"]), JobPhase::Failed);
        let mut detail = JobDetail::new(job);
        let ended = |index: u32, code: i32| {
            let mut replica = ReplicaStatus::new(format!("w-{index}"), "worker", index, JobPhase::Failed);
            replica.exit_code = Some(code);
            replica
        };
        detail.replicas = (0..4000).map(|index| ended(index, 134)).collect();
        detail.replicas[2345].exit_code = Some(1);
        for replica in &mut detail.replicas[3000..3400] {
            replica.exit_code = Some(143);
        }
        let chosen = telling(&detail);
        assert!(chosen.len() <= 1 + ODD + OTHERS, "{}", chosen.len());
        assert!(chosen.contains("w-2345") && chosen.contains("w-0"), "{chosen:?}");
        let of_most = detail.replicas.iter().filter(|replica| replica.exit_code == Some(134));
        assert!(of_most.filter(|replica| chosen.contains(&replica.name)).count() > OTHERS / 2);
    }
}
