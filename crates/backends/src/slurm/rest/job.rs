//! Converts a job of slurmrestd's answers to the row that `squeue`, `sacct` and `scontrol` would print.

use serde_json::Value;

use super::json::{count, exit_code, number, some_number, state, text, time};
use crate::slurm::ids::JobId;
use crate::slurm::records::{Job, Marker, Shown, without_no_task};

/// Parses a job of `/slurm/…/jobs`.
pub fn queued(job: &Value) -> Option<Job> {
    row(job, |queued, _| queued)
}

/// Parses a job of `/slurmdb/…/jobs`.
pub fn accounted(job: &Value) -> Option<Job> {
    row(job, |_, accounted| accounted)
}

/// Parses a job; `path` chooses between the places of a value in the two interfaces.
fn row(job: &Value, path: impl Fn(&'static str, &'static str) -> &'static str) -> Option<Job> {
    let at = |queued, accounted| job.pointer(path(queued, accounted)).unwrap_or(&Value::Null);
    let id = number(&job["job_id"])?;
    let array = some_number(at("/array_job_id", "/array/job_id"));
    let task = number(at("/array_task_id", "/array/task_id"));
    let pending = text(at("/array_task_string", "/array/task"));
    let het = some_number(at("/het_job_id", "/het/job_id"));
    let component = number(at("/het_job_offset", "/het/job_offset")).filter(|_| het.is_some());
    // As squeue would print it.
    let printed = match (array, task, het) {
        (Some(array), Some(task), _) => format!("{array}_{task}"),
        (Some(array), None, _) if !pending.is_empty() => format!("{array}_[{pending}]"),
        (_, _, Some(first)) => format!("{first}+{}", component.unwrap_or(0)),
        _ => id.to_string(),
    };
    Some(Job {
        number: JobId::parse(&printed)?.number,
        task: array.and(task),
        component: component.and_then(|offset| u32::try_from(offset).ok()),
        printed,
        state: state(at("/job_state", "/state/current")),
        reason: text(at("/state_reason", "/state/reason")),
        nodes: Some(text(&job["nodes"])).filter(|nodes| nodes != "None assigned").unwrap_or_default(),
        node_count: count(at("/node_count", "/allocation_nodes")),
        partition: text(&job["partition"]),
        submitted: time(at("/submit_time", "/time/submission")),
        started: time(at("/start_time", "/time/start")),
        ended: time(at("/end_time", "/time/end")),
        user: text(at("/user_name", "/user")),
        marker: Marker::find(&text(at("/comment", "/comment/job"))),
        name: text(&job["name"]),
        exit_code: exit_code(&job["exit_code"]),
        restarts: 0,
    })
}

/// Returns the further details of a job.
pub fn shown(job: &Value) -> Shown {
    let some = |key: &str| Some(text(&job[key])).filter(|text| !text.is_empty());
    let path = |key: &str| some(key).map(|path| without_no_task(&path));
    let facts = [
        ("Account", "account"),
        ("QOS", "qos"),
        ("Dependency", "dependency"),
        ("Features", "features"),
        ("Reservation", "resv_name"),
        ("TresPerNode", "tres_per_node"),
    ];
    Shown {
        state: state(&job["job_state"]),
        task: queued(job).and_then(|row| row.task),
        exit_code: exit_code(&job["exit_code"]),
        step_exit_code: exit_code(&job["derived_exit_code"]),
        restarts: count(&job["restart_cnt"]),
        stdout: path("stdout_expanded").or_else(|| path("standard_output")),
        stderr: path("stderr_expanded").or_else(|| path("standard_error")),
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
