//! TrainJob of `trainer.kubeflow.org/v1alpha1`.

use serde_json::{Value, json};
use weftrun_core::manifest::TrainerVersion;
use weftrun_core::spec::{Launch, Rendezvous};
use weftrun_core::{Error, ErrorKind, Result};

use super::kinds::Kind;
use super::pod::resources;
use super::render::Draft;

/// The manager that owns our patches of the runtime.
const MANAGER: &str = "weftrun.dev/job";

/// The spec: the runtime says how, the trainer says what.
pub fn spec(draft: &Draft<'_>) -> Result<Value> {
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
        "image": role.image.as_ref().or(spec.image.as_ref()),
        "command": draft.command(role, &at),
    });
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
    let mut runtime = json!({"name": draft.settings.runtime.as_deref().unwrap_or("torch-distributed")});
    if let Some(kind) = &draft.settings.runtime_kind {
        runtime["kind"] = json!(kind);
    }
    let mut out = json!({"runtimeRef": runtime, "trainer": trainer});
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

/// What a trainer has no field for goes to the pods through the overrides this version has.
fn overrides(draft: &Draft<'_>, out: &mut Value) -> Result<()> {
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
    // The fields that the overrides do not have.
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
