//! PyTorchJob of `kubeflow.org/v1`.

use serde_json::{Value, json};
use weftrun_core::Result;
use weftrun_core::spec::Rendezvous;

use super::kinds::Kind;
use super::render::Draft;

/// The spec: one master, which is the first of the nodes, and the others as workers, all alike.
pub fn spec(draft: &Draft<'_>) -> Result<Value> {
    let role = draft.worker()?;
    // The operator appends these to every container of the job; RANK is the number of the pod.
    let at = Rendezvous { node_rank: "$(RANK)", master_addr: "$(MASTER_ADDR)", master_port: "$(MASTER_PORT)" };
    let command = draft.command(role, &at);
    let template = draft.template().of(role, Kind::PyTorchJob.container(), &command);
    let replicas = |count: u32| {
        json!({"replicas": count, "restartPolicy": draft.restart_policy(), "template": template})
    };
    let mut specs = json!({"Master": replicas(1)});
    if role.nodes > 1 {
        specs["Worker"] = replicas(role.nodes - 1);
    }
    Ok(json!({
        // With a number WORLD_SIZE counts processes, with "auto" pods.
        "nprocPerNode": role.procs_per_node().to_string(),
        "runPolicy": draft.run_policy(),
        "pytorchReplicaSpecs": specs,
    }))
}
