//! PyTorchJob of `kubeflow.org/v1`.

use serde_json::{Value, json};
use weftrun_core::Result;
use weftrun_core::spec::{Launch, Rendezvous, Role};

use super::kinds::Kind;
use super::render_input::RenderInput;

/// The operator's own port, which its Services use.
const PORT: &str = "23456";
/// The label by which the operator numbers the pods of a role.
const INDEX: &str = "metadata.labels['training.kubeflow.org/replica-index']";

/// Returns the spec. With torchrun, whose agents end together: a master, which is the first of the nodes, and
/// the others as workers. Otherwise only workers, since a master that ends would end the job, and with it
/// nodes that still run or have not even started; then the job ends when all of them have.
pub fn spec(draft: &RenderInput<'_>) -> Result<Value> {
    let role = draft.worker()?;
    let mut specs = json!({});
    if draft.spec.launch == Launch::Torchrun {
        // The operator appends these to every container of the job; RANK is the number of the pod.
        let at =
            Rendezvous { node_rank: "$(RANK)", master_addr: "$(MASTER_ADDR)", master_port: "$(MASTER_PORT)" };
        let template = template(draft, role, &at);
        specs["Master"] = replicas(draft, 1, &template);
        if role.nodes > 1 {
            specs["Worker"] = replicas(draft, role.nodes - 1, &template);
        }
    } else {
        let first = format!("{}-worker-0", draft.spec.name);
        let at = Rendezvous { node_rank: "$(NODE_RANK)", master_addr: &first, master_port: PORT };
        let mut template = template(draft, role, &at);
        add_env(&mut template, environment(role, &first));
        specs["Worker"] = replicas(draft, role.nodes, &template);
    }
    Ok(json!({
        // With a number, WORLD_SIZE counts processes; with "auto", pods.
        "nprocPerNode": role.procs_per_node().to_string(),
        "runPolicy": draft.run_policy(),
        "pytorchReplicaSpecs": specs,
    }))
}

fn template(draft: &RenderInput<'_>, role: &Role, at: &Rendezvous<'_>) -> Value {
    let mut template = draft.template().of(role, Kind::PyTorchJob.container(), &draft.command(role, at));
    if let Some(limit) = draft.spec.time_limit {
        // The operator checks the job's own limit only when something happens to the job (seen with 1.9.3: a
        // quiet job ran on forever). The kubelet enforces this one, which triggers such an event.
        template["spec"]["activeDeadlineSeconds"] = json!(limit.as_secs().max(1));
    }
    template
}

fn replicas(draft: &RenderInput<'_>, count: u32, template: &Value) -> Value {
    json!({"replicas": count, "restartPolicy": draft.restart_policy(), "template": template})
}

/// Returns the variables that the operator sets only for jobs with a master, under torchrun's names.
fn environment(role: &Role, first: &str) -> Vec<Value> {
    let (nodes, ranks) = (role.nodes, role.procs_per_node());
    let text = |name: &str, value: &str| json!({"name": name, "value": value});
    let index = |name: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": INDEX}}});
    let mut env = vec![
        index("NODE_RANK"),
        index("PET_NODE_RANK"),
        text("MASTER_ADDR", first),
        text("PET_MASTER_ADDR", first),
        text("MASTER_PORT", PORT),
        text("PET_MASTER_PORT", PORT),
        text("NNODES", &nodes.to_string()),
        text("PET_NNODES", &nodes.to_string()),
        text("PET_NPROC_PER_NODE", &ranks.to_string()),
        text("LOCAL_WORLD_SIZE", &ranks.to_string()),
        text("WORLD_SIZE", &nodes.saturating_mul(ranks).to_string()),
    ];
    if ranks == 1 {
        env.push(index("RANK"));
    }
    env
}

/// Adds variables that the user did not set, before the user's, so that those may refer to them.
fn add_env(template: &mut Value, ours: Vec<Value>) {
    let Some(container) = template.pointer_mut("/spec/containers/0") else { return };
    let users = container["env"].as_array().cloned().unwrap_or_default();
    let free = ours.into_iter().filter(|var| !users.iter().any(|user| user["name"] == var["name"]));
    let all: Vec<Value> = free.chain(users.iter().cloned()).collect();
    container["env"] = json!(all);
}
