//! TrainJob of `trainer.kubeflow.org/v1alpha1`.

use serde_json::{Value, json};
use weftrun_convert::TrainerVersion;
use weftrun_core::spec::{Launch, Rendezvous, RestartPolicy};
use weftrun_core::{Error, ErrorKind, Finding, Result};

use super::kinds::Kind;
use super::pod::resources;
use super::render_input::RenderInput;

/// The manager name of weftrun's patches of the runtime.
const MANAGER: &str = "weftrun.dev/job";

/// Returns the spec: the runtime defines how the job runs, the trainer what it runs.
pub fn spec(draft: &RenderInput<'_>) -> Result<Value> {
    let role = draft.worker()?;
    let spec = draft.spec;
    if spec.launch == Launch::Mpi && draft.settings.runtime.is_none() {
        return Err(Error::new(ErrorKind::InvalidSpec, "a TrainJob with `launch = \"mpi\"` needs a runtime for MPI")
            .hint("name it with `runtime` under [backend.kubeflow]; `kubectl get clustertrainingruntimes` lists them"));
    }
    // Trainer's torch plugin sets these on every node.
    let at = Rendezvous {
        node_rank: "$(PET_NODE_RANK)",
        master_addr: "$(PET_MASTER_ADDR)",
        master_port: "$(PET_MASTER_PORT)",
    };
    let template = draft.template();
    let mut trainer = json!({
        "numNodes": role.nodes,
    });
    if let Some(image) = role.image.as_ref().or(spec.image.as_ref()) {
        trainer["image"] = json!(image);
    }
    let command = draft.command(role, &at);
    if !command.is_empty() {
        trainer["command"] = json!(command);
    }
    if spec.launch == Launch::Mpi {
        trainer["numProcPerNode"] = json!(role.procs_per_node());
    }
    let env = template.env(role);
    if !env.is_empty() {
        trainer["env"] = json!(env);
    }
    let asked = resources(role);
    if !asked.is_empty() {
        trainer["resourcesPerNode"] = json!({"limits": asked, "requests": asked});
    }
    let mut reference = json!({"name": runtime(draft)});
    if let Some(kind) = &draft.settings.runtime_kind {
        reference["kind"] = json!(kind);
    }
    let mut out = json!({"runtimeRef": reference, "trainer": trainer});
    if let Some(limit) = spec.time_limit {
        if draft.trainer < TrainerVersion::V2_2 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a TrainJob has a time limit from Kubeflow Trainer 2.2 on",
            )
            .with("trainer", format!("{:?}", draft.trainer))
            .hint("leave `time_limit` out, or use a PyTorchJob (`kind = \"pytorchjob\"`)"));
        }
        out["activeDeadlineSeconds"] = json!(limit.as_secs().max(1));
    }
    if let Some(suspend) = draft.settings.suspend {
        out["suspend"] = json!(suspend);
    }
    overrides(draft, &mut out)?;
    Ok(out)
}

/// Default number of retries of a Job (https://kubernetes.io/docs/concepts/workloads/controllers/job/,
/// 2026-11-21).
const JOB_TRIES: u64 = 6;

/// Returns a finding if the runtime's number of restarts is not that of the job file: a TrainJob has no field
/// for restarts, and none of the overrides reaches the Job's.
pub fn restarts(draft: &RenderInput<'_>) -> Option<Finding> {
    let asked = match draft.spec.restart {
        RestartPolicy::Never => 0,
        RestartPolicy::OnFailure { max } => u64::from(max),
    };
    let name = runtime(draft);
    let found = draft.runtimes.iter().find(|runtime| runtime["metadata"]["name"] == name);
    let tries = found.map(tries);
    if tries == Some(asked) {
        return None;
    }
    let does = match tries {
        Some(tries) => format!("the runtime `{name}` starts what failed again up to {tries} times"),
        None => format!("what the runtime `{name}` says of them counts, which is not known here"),
    };
    let text = format!("a TrainJob has no field for restarts, and the job file requests {asked}: {does}");
    let fix =
        "name a runtime whose Job has that `backoffLimit`, or use a PyTorchJob (`kind = \"pytorchjob\"`)";
    Some(Finding::warning("K8S-TRAINJOB-RESTARTS", text).at("restart").fix(fix))
}

/// Returns how often a runtime's nodes are restarted: pod by pod by the Job, all together by the JobSet.
fn tries(runtime: &Value) -> u64 {
    let set = &runtime["spec"]["template"]["spec"];
    let jobs = set["replicatedJobs"].as_array().map_or(&[][..], Vec::as_slice);
    let node = jobs.iter().find(|job| job["name"] == Kind::TrainJob.container());
    let job =
        node.map_or(JOB_TRIES, |job| job["template"]["spec"]["backoffLimit"].as_u64().unwrap_or(JOB_TRIES));
    let all = set["failurePolicy"]["maxRestarts"].as_u64().unwrap_or(0);
    // Each restart of the JobSet resets the retries of every Job.
    job.saturating_add(all.saturating_mul(job.saturating_add(1)))
}

fn runtime<'a>(draft: &'a RenderInput<'_>) -> &'a str {
    draft.settings.runtime.as_deref().unwrap_or("torch-distributed")
}

/// Adds settings without a trainer field through the overrides of this version.
fn overrides(draft: &RenderInput<'_>, out: &mut Value) -> Result<()> {
    let role = draft.worker()?;
    let template = draft.template();
    let mut pod = Value::Object(template.pod_spec(role));
    let node = Kind::TrainJob.container();
    let mut container = json!({"name": node});
    let mounts = template.mounts(role);
    if !mounts.is_empty() {
        container["volumeMounts"] = json!(mounts);
        pod["containers"] = json!([container]);
    }
    // The fields that the overrides lack.
    for field in ["priorityClassName", "schedulerName"] {
        if pod.get(field).is_some() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a TrainJob cannot set {field} of its pods"),
            )
            .hint("put it into a TrainingRuntime of your namespace, or use a PyTorchJob"));
        }
    }
    let annotations = &draft.spec.annotations;
    if pod == json!({}) && annotations.is_empty() {
        return Ok(());
    }
    let metadata = json!({"annotations": annotations});
    match draft.trainer {
        TrainerVersion::V2_2 | TrainerVersion::V2_3 => {
            let mut template = json!({"spec": pod});
            if !annotations.is_empty() {
                template["metadata"] = metadata;
            }
            let job = json!({"name": node, "template": {"spec": {"template": template}}});
            out["runtimePatches"] = json!([{
                "manager": MANAGER,
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
            }]);
        }
        TrainerVersion::V2_1 => {
            let mut one = json!({"targetJobs": [{"name": node}], "spec": pod});
            if !annotations.is_empty() {
                one["metadata"] = metadata;
            }
            out["podTemplateOverrides"] = json!([one]);
        }
        TrainerVersion::V2_0 => {
            pod["targetJobs"] = json!([{"name": node}]);
            out["podSpecOverrides"] = json!([pod]);
            out["annotations"] = json!(annotations);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(job: &Value, set: &Value) -> Value {
        let node = json!({"name": "node", "template": {"spec": job}});
        json!({"spec": {"template": {"spec": {"replicatedJobs": [{"name": "launcher"}, node], "failurePolicy": set}}}})
    }

    #[test]
    fn restarts_are_those_of_the_job_and_of_the_set() {
        assert_eq!(tries(&runtime(&json!({}), &Value::Null)), 6);
        assert_eq!(tries(&runtime(&json!({"backoffLimit": 0}), &Value::Null)), 0);
        // Two tries per round, and three rounds: five restarts.
        assert_eq!(tries(&runtime(&json!({"backoffLimit": 1}), &json!({"maxRestarts": 2}))), 5);
        assert_eq!(tries(&json!({})), 6);
    }
}
