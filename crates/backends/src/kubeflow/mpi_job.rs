//! MPIJob of `kubeflow.org/v2beta1` and of `kubeflow.org/v1`.

use serde_json::{Value, json};
use weftrun_core::Result;
use weftrun_core::spec::{Launch, Rendezvous, Role};

use super::kinds::Kind;
use super::render_input::RenderInput;
use crate::kubernetes::escape::literal;
use crate::kubernetes::mpirun;

/// Returns the spec: a launcher that runs `mpirun`, and all nodes as workers, which wait for it.
pub fn spec(draft: &RenderInput<'_>) -> Result<Value> {
    let worker = draft.worker()?;
    let launcher = mpirun::launcher(draft.spec, worker);
    let template = draft.template();
    let container = draft.kind.container();
    let command = command(draft, worker, &launcher)?;
    let waiting: Vec<String> = draft.settings.worker_command.iter().map(|word| literal(word)).collect();
    let mut spec = json!({
        "slotsPerWorker": worker.procs_per_node(),
        "runPolicy": draft.run_policy(),
        "mpiReplicaSpecs": {
            "Launcher": {
                "replicas": 1,
                "restartPolicy": draft.restart_policy(),
                "template": template.of(&launcher, container, &command),
            },
            // Without a command the operator starts sshd (v2beta1) or a sleep (v1).
            "Worker": {
                "replicas": worker.nodes,
                "restartPolicy": "Never",
                "template": template.of(worker, container, &waiting),
            },
        },
    });
    if draft.kind == Kind::MpiJobV2 {
        // At the start the workers' names do not resolve yet: with the default (AtStartup) the launcher fails
        // and is restarted, and with a small backoffLimit the job is lost (two of four times on our test
        // cluster).
        spec["launcherCreationPolicy"] = json!("WaitForWorkersReady");
        wait_for_names(draft, worker, &mut spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]);
    }
    Ok(spec)
}

/// Waits for the workers' names. Workers that are ready may have no name for a moment, and ssh does not retry
/// a failed lookup. One minute at most; if no lookup tool is available, mpirun runs at once and reports
/// errors itself. The `nslookup` of busybox (Alpine) does not append the search domains of `/etc/resolv.conf`
/// to a name (seen with 1.37, 2026-11-21), so they are appended here.
const WAIT: &str = r#"n=$1 job=$2 space=$3 i=0 tries=0
command -v getent >/dev/null || command -v nslookup >/dev/null || exit 0
resolves() {
  command -v getent >/dev/null && { getent hosts "$1" >/dev/null 2>&1; return; }
  nslookup "$1" >/dev/null 2>&1 && return
  while read -r key domains; do
    [ "$key" = search ] || continue
    for domain in $domains; do nslookup "$1.$domain" >/dev/null 2>&1 && return; done
  done </etc/resolv.conf
  return 1
}
while [ "$i" -lt "$n" ]; do
  host=$job-worker-$i.$job.$space.svc
  until resolves "$host"; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || { echo "weftrun-wait: $host does not resolve after a minute; mpirun starts all the same"; exit 0; }
    sleep 1
  done
  i=$((i + 1))
done"#;

/// Makes the launcher wait until its workers' names resolve.
fn wait_for_names(draft: &RenderInput<'_>, worker: &Role, pod: &mut Value) {
    let main = &pod["containers"][0];
    let words = ["/bin/sh", "-c", WAIT, "weftrun-wait"].map(literal);
    let values = [worker.nodes.to_string(), draft.spec.name.clone(), "$(WEFTRUN_NAMESPACE)".to_owned()];
    let mut wait = json!({
        "name": "weftrun-wait", "image": main["image"], "command": words.iter().chain(&values).collect::<Vec<_>>(),
        "env": [{"name": "WEFTRUN_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
    });
    // A quota's requirements apply to each container.
    for key in ["imagePullPolicy", "resources"] {
        if let Some(value) = main.get(key) {
            wait[key] = value.clone();
        }
    }
    pod["initContainers"] = json!([wait]);
}

/// Workers are ready when their container has started, and its sshd may start later: on a loaded node the
/// operator's ten ssh connection attempts, one a second, may be too few (mpi-operator 0.6; a launcher once
/// ended with 255 because of that, 2026-11-21).
const SSH_ARGS: &str = "plm_rsh_args";

/// Returns the launcher's command.
fn command(draft: &RenderInput<'_>, worker: &Role, launcher: &Role) -> Result<Vec<String>> {
    let spec = draft.spec;
    if spec.launch != Launch::Mpi {
        let at = Rendezvous { node_rank: "0", master_addr: "127.0.0.1", master_port: "29500" };
        return Ok(draft.command(launcher, &at));
    }
    let ranks = |program| draft.delivery.command(spec, program);
    let mut own = draft.settings.mpirun_args.clone();
    if draft.kind == Kind::MpiJobV2 && !own.iter().any(|word| word == SSH_ARGS) {
        own.splice(0..0, ["--mca", SSH_ARGS, "-o ConnectionAttempts=60"].map(str::to_owned));
    }
    let words = mpirun::line(draft.job, worker, launcher, &own, ranks)?;
    Ok(words.iter().map(|word| literal(word)).collect())
}
