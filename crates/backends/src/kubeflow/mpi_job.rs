//! MPIJob of `kubeflow.org/v2beta1` and of `kubeflow.org/v1`.

use serde_json::{Value, json};
use weftrun_core::Result;
use weftrun_core::mutation::{Change, Mpirun, MpirunNote, shell};
use weftrun_core::spec::{JobSpec, Launch, Rendezvous, Role, RoleKind};

use super::kinds::Kind;
use super::render::Draft;
use crate::kubernetes::expansion::literal;

/// The spec: a launcher that runs `mpirun`, and all nodes as workers, which wait for it.
pub fn spec(draft: &Draft<'_>) -> Result<Value> {
    let worker = draft.worker()?;
    let launcher = launcher(draft.spec, worker);
    let template = draft.template();
    let container = draft.kind.container();
    let command = command(draft, worker, &launcher);
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
                "template": template.of(worker, container, &[]),
            },
        },
    });
    if draft.kind == Kind::MpiJobV2 {
        // At start the workers' names do not resolve yet: with the default (AtStartup) the launcher fails and is
        // started again, and with a small backoffLimit the job is lost (two of four times on our test cluster).
        spec["launcherCreationPolicy"] = json!("WaitForWorkersReady");
    }
    Ok(spec)
}

/// The launcher's role: as the job file says, else one without GPUs. It has the workers' environment too, since that is
/// what `mpirun -x` forwards.
fn launcher(spec: &JobSpec, worker: &Role) -> Role {
    let own = spec.roles.iter().find(|role| role.kind == RoleKind::Launcher).cloned();
    let mut launcher = own.unwrap_or_else(|| {
        let mut launcher = Role::launcher();
        launcher.image.clone_from(&worker.image);
        launcher
    });
    for var in &worker.env {
        if !launcher.env.iter().any(|own| own.name == var.name) {
            launcher.env.push(var.clone());
        }
    }
    launcher
}

/// The launcher's command.
fn command(draft: &Draft<'_>, worker: &Role, launcher: &Role) -> Vec<String> {
    let spec = draft.spec;
    if spec.launch != Launch::Mpi {
        let at = Rendezvous { node_rank: "0", master_addr: "127.0.0.1", master_port: "29500" };
        return draft.command(launcher, &at);
    }
    let program = if worker.command.is_empty() { &launcher.command } else { &worker.command };
    let (path, mut forward) = planned(draft, launcher);
    // sshd gives ranks none of the container's environment, so what the user set is forwarded.
    let own = spec.env.iter().map(|var| &var.name).chain(launcher.env.iter().map(|var| &var.name));
    for name in own.chain(spec.secrets.iter().map(|secret| &secret.env)) {
        if !forward.contains(name) {
            forward.push(name.clone());
        }
    }
    // A command that calls mpirun itself, in a shell's text too, is the launcher's as it stands.
    let bin = path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let rule = Mpirun { bin, forward: forward.clone(), ..Mpirun::default() };
    let rewritten = shell::rewrite(program, &[], &rule);
    let calls_mpirun = !rewritten.notes.iter().any(|note| matches!(note, MpirunNote::Opaque { .. }));
    let words = if calls_mpirun {
        rewritten.command.into_iter().chain(rewritten.args).collect()
    } else {
        let mut words =
            vec![path, "--allow-run-as-root".to_owned(), "-np".to_owned(), spec.world_size().to_string()];
        // One core a rank is what Open MPI binds to by default; a rank of training has many threads.
        words.extend(["--bind-to", "none"].map(str::to_owned));
        words.extend(draft.settings.mpirun_args.iter().cloned());
        words.extend(forward.into_iter().flat_map(|name| ["-x".to_owned(), name]));
        let ranks = draft.wrap_of(worker).into_iter().chain(program.iter().cloned()).collect();
        words.extend(draft.delivery.command(spec, ranks));
        words
    };
    words.iter().map(|word| literal(word)).collect()
}

/// The `mpirun` that the plan wants, and what it forwards.
fn planned(draft: &Draft<'_>, launcher: &Role) -> (String, Vec<String>) {
    let ops = draft.job.plan.ops.iter().filter(|op| op.role == launcher.name);
    let wanted = ops.filter_map(|op| match &op.change {
        Change::Mpirun { path, forward } => Some((path.clone(), forward.clone())),
        _ => None,
    });
    wanted.last().unwrap_or_else(|| ("mpirun".to_owned(), Vec::new()))
}
