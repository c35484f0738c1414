//! The `mpirun` line that weftrun writes for `launch = "mpi"`, the same wherever ranks run in containers.

use std::collections::HashSet;

use weftrun_core::backend::PlannedJob;
use weftrun_core::fabric::Change;
use weftrun_core::shell;
use weftrun_core::spec::{Code, JobSpec, Role, RoleKind};
use weftrun_core::{Error, ErrorKind, Result};

/// Returns the launcher's role: the job file's, else one without GPUs. It has the workers' environment too,
/// which `mpirun -x` forwards.
pub fn launcher(spec: &JobSpec, worker: &Role) -> Role {
    let own = spec.roles.iter().find(|role| role.kind == RoleKind::Launcher).cloned();
    let mut launcher = own.unwrap_or_else(|| {
        let mut launcher = Role::launcher();
        launcher.image.clone_from(&worker.image);
        launcher
    });
    let mut names: HashSet<String> = launcher.env.iter().map(|own| own.name.clone()).collect();
    for var in &worker.env {
        if names.insert(var.name.clone()) {
            launcher.env.push(var.clone());
        }
    }
    launcher
}

/// Returns the words that rules put before the launcher of a role's ranks.
pub fn wrap_of(job: &PlannedJob, role: &Role) -> Vec<String> {
    let wraps = job.plan.ops.iter().filter(|op| op.role == role.name).filter_map(|op| match &op.change {
        Change::Wrap { argv } => Some(argv.clone()),
        _ => None,
    });
    wraps.flatten().collect()
}

/// Returns the launcher's command. A command that already is an `mpirun` is completed; before any other a
/// whole one is put, with `own` as its further arguments. `ranks` converts the program to the command of each
/// rank.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a command that is an `mpirun` where the job's code would not reach its ranks.
pub fn line(
    job: &PlannedJob,
    worker: &Role,
    launcher: &Role,
    own: &[String],
    ranks: impl FnOnce(Vec<String>) -> Vec<String>,
) -> Result<Vec<String>> {
    let spec = &job.spec;
    let program = if worker.command.is_empty() { &launcher.command } else { &worker.command };
    let (path, mut forward) = planned(job, launcher);
    // Ranks started by sshd have none of the container's environment, so the user's variables are forwarded.
    let set = spec.env.iter().map(|var| &var.name).chain(launcher.env.iter().map(|var| &var.name));
    for name in set.chain(spec.secrets.iter().map(|secret| &secret.env)) {
        if !forward.contains(name) {
            forward.push(name.clone());
        }
    }
    if let Some(own) = shell::complete_mpirun(program, &path, &forward) {
        // A script in a ConfigMap is in every pod; all else is brought by what weftrun puts before each rank.
        if matches!(spec.code, Some(Code::Git { .. } | Code::Folder { .. })) {
            let message =
                "the command calls mpirun itself, and the job's code reaches only ranks that weftrun starts";
            return Err(Error::new(ErrorKind::InvalidSpec, message)
                .with("role", &launcher.name)
                .hint("give the program alone, without mpirun, or put the code into the image"));
        }
        return Ok(own);
    }
    let mut words =
        vec![path, "--allow-run-as-root".to_owned(), "-np".to_owned(), spec.world_size().to_string()];
    // Open MPI binds each rank to one core by default; a training rank has many threads.
    words.extend(["--bind-to", "none"].map(str::to_owned));
    // mpirun passes on the contents of a rank's pipe, also in the middle of lines: with the rank before each
    // piece, no line is mixed with another rank's, and every line can be attributed to its rank.
    words.push("--tag-output".to_owned());
    words.extend(own.iter().cloned());
    words.extend(forward.into_iter().flat_map(|name| ["-x".to_owned(), name]));
    words.extend(ranks(wrap_of(job, worker).into_iter().chain(program.iter().cloned()).collect()));
    Ok(words)
}

/// Returns the `mpirun` of the plan, and the variables it forwards.
fn planned(job: &PlannedJob, launcher: &Role) -> (String, Vec<String>) {
    let ops = job.plan.ops.iter().filter(|op| op.role == launcher.name);
    let mut wanted = ops.filter_map(|op| match &op.change {
        Change::Mpirun { path, forward } => Some((path.clone(), forward.clone())),
        _ => None,
    });
    wanted.next_back().unwrap_or_else(|| ("mpirun".to_owned(), Vec::new()))
}
