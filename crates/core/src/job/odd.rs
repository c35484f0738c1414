//! The replicas of a large job that are not like most.

use std::collections::BTreeMap;

use super::ReplicaStatus;

/// Returns the replicas whose state is not that of most, those with the rarest state first: of a thousand, the one that failed by
/// itself and not those that were ended because of it.
///
/// ```
/// use weftrun_core::job::{JobPhase, ReplicaStatus, odd};
/// let mut replicas: Vec<_> = (0..100)
///     .map(|index| ReplicaStatus::new(format!("w-{index}"), "worker", index, JobPhase::Running))
///     .collect();
/// (replicas[7].phase, replicas[8].phase, replicas[9].phase) = (JobPhase::Pending, JobPhase::Pending, JobPhase::Failed);
/// let names: Vec<_> = odd(&replicas).iter().map(|replica| replica.name.as_str()).collect();
/// assert_eq!(names, ["w-9", "w-7", "w-8"]);
/// ```
pub fn odd(replicas: &[ReplicaStatus]) -> Vec<&ReplicaStatus> {
    let state = |replica: &ReplicaStatus| {
        let is_explained = !replica.reason.is_empty();
        (replica.phase, replica.exit_code, replica.restarts > 0, replica.failed_rank.is_some(), is_explained)
    };
    let mut counts = BTreeMap::new();
    for replica in replicas {
        *counts.entry(state(replica)).or_insert(0_usize) += 1;
    }
    let most = counts.iter().max_by_key(|(_, count)| **count).map(|(state, _)| *state);
    let mut odd: Vec<&ReplicaStatus> =
        replicas.iter().filter(|replica| Some(state(replica)) != most).collect();
    odd.sort_by_key(|replica| counts.get(&state(replica)).copied());
    odd
}
