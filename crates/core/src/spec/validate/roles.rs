//! Roles, and the commands they start.

use std::collections::BTreeSet;

use super::names::is_label;
use super::{Findings, shown};
use crate::spec::file::join;
use crate::spec::{Code, JobSpec, Launch, Role, RoleKind};

/// More nodes than any cluster has, in all roles together; keeps sums of them from overflowing.
const MAX_NODES: u32 = 100_000;
/// More ranks than a node can start.
const MAX_RANKS: u32 = 1024;

pub(super) fn check(job: &JobSpec, out: &mut Findings) {
    if job.workers().next().is_none() {
        out.error("SPEC-NO-ROLE", "roles", "the job starts nothing: it has no role with ranks")
            .fix("set `nodes` and `command`, or add a `[roles.worker]`");
    }
    let mut names = BTreeSet::new();
    let with_command: Vec<RoleKind> = [RoleKind::Worker, RoleKind::Launcher]
        .into_iter()
        .filter(|kind| job.roles.iter().any(|role| role.kind == *kind && !role.command.is_empty()))
        .collect();
    for role in &job.roles {
        let path = join("roles", &role.name);
        if !is_label(&role.name) {
            let message = format!(
                "`{}` cannot be a role's name: clusters derive host names from it",
                shown(&role.name)
            );
            out.error("SPEC-ROLE-NAME", &path, message)
                .fix("use lower-case letters, digits and `-`, a letter first");
        }
        if !names.insert(&role.name) {
            out.error("SPEC-DUPLICATE", &path, format!("two roles are named `{}`", shown(&role.name)));
        }
        counts(role, &path, out);
        command(job, role, &with_command, &path, out);
    }
    let nodes = job.roles.iter().map(|role| u64::from(role.nodes)).sum::<u64>();
    if nodes > u64::from(MAX_NODES) && job.roles.iter().all(|role| role.nodes <= MAX_NODES) {
        let message = format!("the roles have {nodes} nodes together, and at most {MAX_NODES} are planned");
        out.error("SPEC-VALUE", "roles", message).fix("reduce `nodes` of the roles");
    }
    launcher(job, out);
}

fn counts(role: &Role, path: &str, out: &mut Findings) {
    if role.nodes == 0 {
        out.error("SPEC-VALUE", &format!("{path}.nodes"), format!("role `{}` has no nodes", role.name));
    } else if role.nodes > MAX_NODES {
        let message = format!(
            "{} nodes, and at most {MAX_NODES} are planned, which is more than any cluster has",
            role.nodes
        );
        out.error("SPEC-VALUE", &format!("{path}.nodes"), message).fix("reduce `nodes`");
    }
    let ranks = role.procs_per_node();
    if ranks == 0 || ranks > MAX_RANKS {
        let key = if role.ranks_per_node.is_some() { "ranks_per_node" } else { "gpus_per_node" };
        let message = format!("{ranks} ranks on a node cannot be started; it can be 1 to {MAX_RANKS}");
        out.error("SPEC-VALUE", &format!("{path}.{key}"), message);
    } else if role.gpus_per_node > 0 && ranks > role.gpus_per_node {
        let message = format!(
            "{ranks} ranks share {} GPUs, and NCCL refuses two ranks of one communicator on one GPU",
            role.gpus_per_node
        );
        out.warning("SPEC-RANKS", &format!("{path}.ranks_per_node"), message)
            .fix("use one rank per GPU, which is the default");
    }
}

fn launcher(job: &JobSpec, out: &mut Findings) {
    let launchers: Vec<&Role> = job.roles.iter().filter(|role| role.kind == RoleKind::Launcher).collect();
    for role in &launchers {
        let path = join("roles", &role.name);
        if job.launch != Launch::Mpi {
            let message =
                format!("role `{}` launches, but only `launch = \"mpi\"` has a launcher", role.name);
            out.error("SPEC-LAUNCH", &path, message).fix("set `launch = \"mpi\"`, or make the role a worker");
        }
        if role.nodes > 1 {
            out.error("SPEC-LAUNCH", &format!("{path}.nodes"), "there is one launcher, on one node");
        }
    }
    if let [_, second, ..] = launchers.as_slice() {
        out.error("SPEC-LAUNCH", &join("roles", &second.name), "a job has one launcher at most");
    }
}

/// Checks a role's command. `with_command` are the kinds of roles that have one.
fn command(job: &JobSpec, role: &Role, with_command: &[RoleKind], path: &str, out: &mut Findings) {
    let path = format!("{path}.command");
    if role.command.iter().any(|word| word.contains('\0')) {
        out.error("SPEC-COMMAND", &path, "an argument holds a NUL character, which no program can be given");
    }
    // If a launcher has a command, workers of an MPI job only wait for it; a launcher without one starts
    // the workers' command.
    let other = with_command.iter().any(|kind| *kind != role.kind);
    let Some(program) = role.command.first() else {
        if job.launch == Launch::Mpi && other {
            return;
        }
        if job.starts_entrypoint(role) {
            return out
                .info(
                    "SPEC-ENTRYPOINT",
                    &path,
                    format!("role `{}` has no command: the image's entrypoint is started", shown(&role.name)),
                )
                .fix("set `command` to start another program");
        }
        if job.launch == Launch::Torchrun {
            return out
                .error("SPEC-TORCHRUN", &path, "`launch = \"torchrun\"` needs a script to start")
                .fix("set `command = [\"train.py\"]`, or `code = { script = \"train.py\" }`");
        }
        return out
            .error("SPEC-COMMAND", &path, format!("role `{}` has no command", shown(&role.name)))
            .fix("set `command`, or put it behind `--` on the command line");
    };
    if program.is_empty() {
        return out.error("SPEC-COMMAND", &path, "the program's name is empty").fix("name a program");
    }
    if role.kind == RoleKind::Worker {
        starter(job, &role.command, &path, out);
    }
}

/// Reports a starter in the command in addition to the backend's.
fn starter(job: &JobSpec, argv: &[String], path: &str, out: &mut Findings) {
    let program = argv[0].rsplit('/').next().unwrap_or("");
    let is_torchrun = program == "torchrun"
        || argv.windows(2).any(|w| w[0] == "-m" && w[1].starts_with("torch.distributed."));
    match job.launch {
        Launch::Torchrun if is_torchrun || program == "python" || program.starts_with("python3") => {
            let rest = argv.iter().skip(1).find(|word| word.ends_with(".py"));
            let example = rest.map_or("train.py", String::as_str);
            let message = format!("weftrun starts `torchrun` itself, and needs the script, not `{program}`");
            out.error("SPEC-TORCHRUN", path, message)
                .fix(format!("begin the command with the script: `[\"{}\", …]`", shown(example)));
        }
        Launch::Torchrun if !is_script(job, &argv[0]) => {
            let message =
                format!("`{}` is not a Python script, and torchrun starts nothing else", shown(&argv[0]));
            out.error("SPEC-TORCHRUN", path, message)
                .fix("name a `.py` file or `-m` with a module first, or use `launch = \"per-rank\"`");
        }
        Launch::PerRank if is_torchrun => {
            out.error("SPEC-LAUNCH", path, "`launch = \"per-rank\"` would start one torchrun per GPU")
                .fix("use `launch = \"torchrun\"` with the script alone");
        }
        // On one node it starts once.
        Launch::PerRank | Launch::PerNode
            if matches!(program, "mpirun" | "mpiexec" | "orterun")
                && (job.launch == Launch::PerRank || job.nodes() > 1) =>
        {
            let message = format!("`{program}` would start on every node, each time the whole job");
            out.error("SPEC-LAUNCH", path, message).fix("use `launch = \"mpi\"`");
        }
        _ => {}
    }
}

fn is_script(job: &JobSpec, word: &str) -> bool {
    let brought = matches!(&job.code, Some(Code::Script { name, .. }) if name == word);
    let named = std::path::Path::new(word).extension().is_some_and(|e| e.eq_ignore_ascii_case("py"));
    // `-m package.module`, `--no-python program`: torchrun's own.
    brought || named || word == "-m" || word == "--module" || word == "--no-python"
}
