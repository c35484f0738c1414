//! Converts Slurm's rows to a job's summary.

use weftrun_core::job::{JobHandle, JobPhase, JobSummary, ReplicaStatus, TASK_ROLE, TaskCounts};

use super::ids::JobId;
use super::records::{Job, Shown};
use super::{nodelist, state};

/// Returns the summary of one job from all its rows (tasks of an array, components of a heterogeneous job).
pub fn summary(handle: JobHandle, rows: &[&Job], shown: Option<&Shown>) -> JobSummary {
    let mut rows = rows.to_vec();
    // The tasks that wait are last.
    rows.sort_by_key(|job| (job.task.is_none(), job.task));
    let rows = rows.as_slice();
    let phase = JobPhase::of_many(rows.iter().map(|job| job.phase()));
    let mut summary = JobSummary::new(handle, phase);
    let Some(first) = rows.iter().min_by_key(|job| (job.component, job.task)) else { return summary };
    let decisive = rows.iter().find(|job| job.phase() == phase).unwrap_or(first);
    summary.name = super::error::clean(&first.name);
    "sbatch".clone_into(&mut summary.kind);
    let nodes = |job: &&Job| job.node_count.saturating_mul(job.tasks());
    let ready = rows.iter().copied().filter(|job| job.phase() == JobPhase::Running);
    let sum = |sum: u32, nodes: u32| sum.saturating_add(nodes);
    summary.ready =
        (ready.map(|job| nodes(&job)).fold(0, sum), rows.iter().copied().map(|job| nodes(&job)).fold(0, sum));
    summary.created = rows.iter().filter_map(|job| job.submitted).min();
    summary.started = rows.iter().filter(|job| has_start(job)).filter_map(|job| job.started).min();
    summary.owner = Some(super::error::clean(&first.user)).filter(|user| !user.is_empty());
    summary.ended = phase.is_terminal().then(|| rows.iter().filter_map(|job| job.ended).max()).flatten();
    summary.exit_code = exit_code(phase, decisive, shown);
    summary.reason = reason(decisive, summary.exit_code);
    summary.queue = (!first.partition.is_empty()).then(|| first.partition.clone());
    if let Some(marker) = rows.iter().find_map(|job| job.marker.as_ref()) {
        summary.submission = Some(marker.submission.clone());
        summary.fabric = marker.fabric;
        summary.labels.clone_from(&marker.labels);
    }
    let is_task = JobId::of(&summary.handle).is_ok_and(|id| id.task.is_some());
    summary.tasks = tasks(rows).filter(|_| !is_task);
    if rows.len() > 1 {
        summary.reason = counted(rows, phase, &summary.reason);
    }
    summary
}

/// Returns whether the start in a row is one: of a job that ended without nodes Slurm has its end as its start.
fn has_start(job: &Job) -> bool {
    let placed = !matches!(job.nodes.as_str(), "" | "None assigned" | "(null)");
    if job.phase().is_terminal() { placed } else { placed || state::never(&job.reason).is_none() }
}

/// Describes Slurm's state and reason in a sentence, with the exit code if the job failed by itself.
fn reason(job: &Job, exit_code: Option<i32>) -> String {
    let sentence = state::sentence(&job.state, &job.reason);
    match exit_code.filter(|code| *code != 0) {
        Some(code) if sentence == state::FAILED => state::exit_words(code),
        _ => sentence,
    }
}

fn exit_code(phase: JobPhase, row: &Job, shown: Option<&Shown>) -> Option<i32> {
    match phase {
        JobPhase::Succeeded => Some(0),
        JobPhase::Failed if row.task.is_some() => row.exit_code,
        // slurmctld has the whole code; accounting before 26.05 loses its highest bit (255 → 127).
        JobPhase::Failed => shown.and_then(|shown| shown.exit_code).or(row.exit_code),
        _ => None,
    }
}

/// Returns the tasks of an array by phase; none for other jobs. How many tasks the array had is not in the rows: slurmctld
/// forgets those that ended.
fn tasks(rows: &[&Job]) -> Option<TaskCounts> {
    rows.iter().any(|job| job.is_of_array()).then_some(())?;
    let mut counts = TaskCounts::default();
    rows.iter().for_each(|job| counts.add(job.phase(), job.tasks()));
    Some(counts)
}

/// Counts the states of many rows, and says how some of those in the phase of the whole came to it.
fn counted(rows: &[&Job], phase: JobPhase, reason: &str) -> String {
    const MOST: usize = 4;
    let mut counts: Vec<(&str, u32)> = Vec::new();
    for job in rows {
        let word = match job.phase() {
            JobPhase::Suspended if job.state == "PENDING" => "held",
            _ => job.state.split(' ').next().unwrap_or_default(),
        };
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count = count.saturating_add(job.tasks()),
            None => counts.push((word, job.tasks())),
        }
    }
    let parts: Vec<String> =
        counts.iter().map(|(word, count)| format!("{count} {}", word.to_lowercase())).collect();
    let tasks = rows.iter().filter(|job| job.phase() == phase && job.exit_code.is_some());
    let mut own: Vec<String> = tasks
        .filter_map(|job| Some(format!("task {} {}", job.task?, self::reason(job, job.exit_code))))
        .collect();
    let more = own.len().saturating_sub(MOST);
    own.truncate(MOST);
    if more > 0 {
        own.push(format!("{more} more"));
    }
    let own = if own.is_empty() || phase != JobPhase::Failed { reason.to_owned() } else { own.join(", ") };
    if own.is_empty() { parts.join(", ") } else { format!("{}; {own}", parts.join(", ")) }
}

/// Returns the nodes of a job, or the tasks of an array.
pub fn replicas(rows: &[&Job]) -> Vec<ReplicaStatus> {
    let mut replicas = Vec::new();
    for job in rows {
        let phase = job.phase();
        let named = |component: u32| job.marker.as_ref()?.roles.get(component as usize).cloned();
        let role = match job.component {
            None => "worker".to_owned(),
            Some(component) => named(component).unwrap_or_else(|| format!("component{component}")),
        };
        let nodes = nodelist::expand(&job.nodes);
        if let Some(task) = job.task {
            let mut replica =
                ReplicaStatus::new(&job.printed, TASK_ROLE, u32::try_from(task).unwrap_or(u32::MAX), phase);
            replica.reason = reason(job, job.exit_code);
            replica.node = nodes.first().cloned();
            replica.restarts = job.restarts;
            // Slurm has 0 for a task that runs.
            replica.exit_code = job.exit_code.filter(|_| phase.is_terminal());
            replicas.push(replica);
            continue;
        }
        for (index, node) in nodes.iter().enumerate() {
            let mut replica =
                ReplicaStatus::new(node, &role, u32::try_from(index).unwrap_or(u32::MAX), phase);
            replica.node = Some(node.clone());
            replica.restarts = job.restarts;
            replicas.push(replica);
        }
    }
    replicas
}

/// Adds how the nodes of a job ended. Of a job that failed on several nodes Slurm has one exit code, which is not that of each.
pub fn end(replicas: &mut [ReplicaStatus], job: &JobSummary) {
    if !job.phase.is_terminal() {
        return;
    }
    let one = replicas.len() == 1 || job.exit_code == Some(0);
    for replica in replicas.iter_mut().filter(|replica| replica.exit_code.is_none()) {
        replica.exit_code = job.exit_code.filter(|_| one);
        if !one && job.phase == JobPhase::Failed && replica.reason.is_empty() {
            "ended with the job; Slurm does not say which of its nodes failed"
                .clone_into(&mut replica.reason);
        }
    }
}

/// Returns the nodes of one task after its first, each as a replica with the number of the task.
pub fn further_nodes(task: &Job) -> Vec<ReplicaStatus> {
    let Some(number) = task.task.and_then(|task| u32::try_from(task).ok()) else { return Vec::new() };
    let replica = |node: String| {
        let mut replica = ReplicaStatus::new(&node, TASK_ROLE, number, task.phase());
        replica.node = Some(node);
        replica.restarts = task.restarts;
        replica
    };
    nodelist::expand(&task.nodes).into_iter().skip(1).map(replica).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(job: &Job) -> JobSummary {
        summary("slurm://c/7".parse().expect("a handle"), &[job], None)
    }

    #[test]
    fn a_job_that_never_had_nodes_never_started() {
        let started = Some(jiff::Timestamp::UNIX_EPOCH);
        let job = |state: &str, reason: &str, nodes: &str| Job {
            state: state.to_owned(),
            reason: reason.to_owned(),
            nodes: nodes.to_owned(),
            started,
            ..Job::default()
        };
        assert_eq!(of(&job("CANCELLED", "DependencyNeverSatisfied", "")).started, None);
        assert_eq!(of(&job("CANCELLED", "", "None assigned")).started, None);
        assert_eq!(of(&job("PENDING", "DependencyNeverSatisfied", "")).started, None);
        assert_eq!(of(&job("PENDING", "Resources", "")).started, started, "when it is expected to");
        assert_eq!(of(&job("CANCELLED", "", "n[1-2]")).started, started);
    }

    #[test]
    fn the_exit_code_of_a_job_is_not_that_of_each_node() {
        let ends = |state: &str, nodes: &str, code: i32| {
            let job = Job {
                state: state.to_owned(),
                nodes: nodes.to_owned(),
                exit_code: Some(code),
                ..Job::default()
            };
            let mut nodes = replicas(&[&job]);
            end(&mut nodes, &of(&job));
            nodes.into_iter().map(|node| (node.exit_code, node.reason.is_empty())).collect::<Vec<_>>()
        };
        assert_eq!(ends("FAILED", "n[1-2]", 143), [(None, false), (None, false)]);
        assert_eq!(ends("FAILED", "n1", 143), [(Some(143), true)]);
        assert_eq!(ends("COMPLETED", "n[1-2]", 0), [(Some(0), true), (Some(0), true)]);
    }
}
