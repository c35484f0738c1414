//! Converts a job of slurmrestd's answers to the row that `squeue`, `sacct` and `scontrol` would print.

use serde_json::Value;

use super::json::{exit_code, number, some_number, state, text, time};
use crate::slurm::ids::JobId;
use crate::slurm::records::{Job, Marker, Shown};

/// Parses a job of `/slurm/…/jobs`.
pub fn queued(job: &Value) -> Option<Job> {
    let id = number(job.get("job_id")?)?;
    let named = Named {
        id,
        array: some_number(job, "array_job_id"),
        task: job.get("array_task_id").and_then(number),
        pending: text(job, "array_task_string"),
        het: some_number(job, "het_job_id"),
        offset: job.get("het_job_offset").and_then(number),
    };
    let mut row = named.row()?;
    row.state = state(job, "job_state");
    row.reason = text(job, "state_reason");
    row.nodes = text(job, "nodes");
    row.node_count = some_number(job, "node_count").and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    row.partition = text(job, "partition");
    row.submitted = time(job, "submit_time");
    row.started = time(job, "start_time");
    row.ended = time(job, "end_time");
    row.user = text(job, "user_name");
    row.marker = Marker::find(&text(job, "comment"));
    row.name = text(job, "name");
    row.exit_code = job.get("exit_code").and_then(exit_code);
    Some(row)
}

/// Parses a job of `/slurmdb/…/jobs`.
pub fn accounted(job: &Value) -> Option<Job> {
    let part = |key: &str| job.get(key).unwrap_or(&Value::Null);
    let named = Named {
        id: number(job.get("job_id")?)?,
        array: some_number(part("array"), "job_id"),
        task: part("array").get("task_id").and_then(number),
        pending: text(part("array"), "task"),
        het: some_number(part("het"), "job_id"),
        offset: part("het").get("job_offset").and_then(number),
    };
    let mut row = named.row()?;
    row.state = state(part("state"), "current");
    row.reason = text(part("state"), "reason");
    row.nodes = Some(text(job, "nodes")).filter(|nodes| nodes != "None assigned").unwrap_or_default();
    row.node_count =
        some_number(job, "allocation_nodes").and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    row.partition = text(job, "partition");
    row.submitted = time(part("time"), "submission");
    row.started = time(part("time"), "start");
    row.ended = time(part("time"), "end");
    row.user = text(job, "user");
    row.marker = Marker::find(&text(part("comment"), "job"));
    row.name = text(job, "name");
    row.exit_code = job.get("exit_code").and_then(exit_code);
    Some(row)
}

/// The numbers that identify a job.
struct Named {
    id: u64,
    array: Option<u64>,
    task: Option<u64>,
    pending: String,
    het: Option<u64>,
    offset: Option<u64>,
}

impl Named {
    /// Returns a row with only the id, written as squeue would.
    fn row(&self) -> Option<Job> {
        let component = self.offset.filter(|_| self.het.is_some());
        let printed = match (self.array, self.task, self.het) {
            (Some(array), Some(task), _) => format!("{array}_{task}"),
            (Some(array), None, _) if !self.pending.is_empty() => format!("{array}_[{}]", self.pending),
            (_, _, Some(first)) => format!("{first}+{}", component.unwrap_or(0)),
            _ => self.id.to_string(),
        };
        Some(Job {
            number: JobId::parse(&printed)?.number,
            task: self.array.and(self.task),
            component: component.and_then(|offset| u32::try_from(offset).ok()),
            printed,
            ..Job::default()
        })
    }
}

/// Returns the further details of a job.
pub fn shown(job: &Value) -> Shown {
    let some = |key: &str| Some(text(job, key)).filter(|text| !text.is_empty());
    let facts = [
        ("Account", "account"),
        ("QOS", "qos"),
        ("Dependency", "dependency"),
        ("Features", "features"),
        ("Reservation", "resv_name"),
        ("TresPerNode", "tres_per_node"),
    ];
    Shown {
        state: state(job, "job_state"),
        exit_code: job.get("exit_code").and_then(exit_code),
        step_exit_code: job.get("derived_exit_code").and_then(exit_code),
        restarts: some_number(job, "restart_cnt").and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        requeue: job.get("requeue").and_then(Value::as_bool).unwrap_or(false),
        stdout: some("stdout_expanded").or_else(|| some("standard_output")),
        stderr: some("stderr_expanded").or_else(|| some("standard_error")),
        batch_host: some("batch_host"),
        task: job.get("array_task_id").and_then(number),
        nodes: some("nodes"),
        facts: facts.iter().filter_map(|(name, key)| Some(((*name).to_owned(), some(key)?))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_of_arrays_and_components() {
        let printed = |job: Value| queued(&job).map(|job| (job.printed, job.number, job.task, job.component));
        assert_eq!(
            printed(json!({"job_id": 7, "array_job_id": 0, "array_task_id": null, "het_job_id": 0})),
            Some(("7".into(), 7, None, None))
        );
        let set = |number: u64| json!({"set": true, "infinite": false, "number": number});
        assert_eq!(
            printed(json!({"job_id": 9, "array_job_id": set(7), "array_task_id": set(0)})),
            Some(("7_0".into(), 7, Some(0), None))
        );
        assert_eq!(
            printed(
                json!({"job_id": 7, "array_job_id": 7, "array_task_id": null, "array_task_string": "2-5%2"})
            ),
            Some(("7_[2-5%2]".into(), 7, None, None))
        );
        assert_eq!(
            printed(json!({"job_id": 8, "het_job_id": 7, "het_job_offset": 1})),
            Some(("7+1".into(), 7, None, Some(1)))
        );
        assert_eq!(printed(json!({"name": "no id"})), None);
    }
}
