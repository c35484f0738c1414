//! The command that starts the ranks: `srun` with torchrun, MPI, or the program itself.

use weftrun_convert::Directives;
use weftrun_core::fabric::PROFILER_PATH;
use weftrun_core::spec::{Code, Launch, Role};
use weftrun_core::{Error, ErrorKind, Result};

use super::{RenderInput, container, tasks};
use crate::remote::script;
use crate::slurm::quote;
use crate::slurm::task_files::TaskFiles;

/// The folder of weftrun's library for NCCL, which the script removes at its end.
pub const LIBRARY: &str = "\"$weftrun_base.nccl\"";

/// Returns the number of tasks that srun starts on a node.
pub fn tasks_per_node(draft: &RenderInput<'_>, role: &Role) -> u32 {
    match draft.job.spec.launch {
        Launch::Torchrun | Launch::PerNode => 1,
        // The default of the script's own srun.
        Launch::Once => role.ranks_per_node.unwrap_or(1),
        Launch::Mpi | Launch::PerRank => role.procs_per_node(),
    }
}

/// Returns the number of tasks that srun starts on all nodes of a role.
pub fn tasks(draft: &RenderInput<'_>, role: &Role) -> u32 {
    role.nodes.saturating_mul(tasks_per_node(draft, role))
}

/// Returns whether a task of srun is a rank; otherwise it is a node.
pub fn are_ranks(launch: Launch) -> bool {
    matches!(launch, Launch::Mpi | Launch::PerRank)
}

/// Returns whether each task writes its own file, so that no line needs the label of its task.
fn is_unlabelled(draft: &RenderInput<'_>) -> bool {
    draft.output.tasks.as_ref().is_some_and(TaskFiles::one_for_each_task)
}

/// Returns the comment before `srun`, for options of one letter.
pub fn explanation(draft: &RenderInput<'_>) -> &'static str {
    match draft.job.spec.launch {
        Launch::Once => "",
        _ if is_unlabelled(draft) => "# -K1: a task that fails ends the others.\n",
        _ => "# -K1: a task that fails ends the others. -l: each line begins with the number of its task.\n",
    }
}

/// Returns the `srun` command, one part for each component of a heterogeneous job.
pub fn write(draft: &RenderInput<'_>, options: &[Directives]) -> Result<String> {
    if draft.job.spec.launch == Launch::Once {
        return once(draft);
    }
    let parts: Vec<String> =
        (0..draft.workers.len()).map(|index| component(draft, options, index)).collect::<Result<_>>()?;
    Ok(format!("srun {}\n", parts.join(" : \\\n  ")))
}

/// Returns the command itself, run on the first node: it starts the ranks with its own `srun`.
fn once(draft: &RenderInput<'_>) -> Result<String> {
    let [role] = draft.workers[..] else {
        return Err(Error::new(ErrorKind::InvalidSpec, "`launch = \"once\"` is for jobs of one role"));
    };
    if draft.container_of(role).is_some() {
        return Err(Error::new(
            ErrorKind::InvalidSpec,
            "`launch = \"once\"` starts the command outside of any container",
        )
        .hint("give the image to the command's own `srun --container-image`, and leave `image` out"));
    }
    let code = match &draft.job.spec.code {
        Some(Code::Script { name, .. }) => Some(name),
        _ => None,
    };
    let word = |word: &String| match code {
        Some(name) if name == word => Ok(format!("\"$weftrun_source\"/{}", quote::word(word)?)),
        _ => tasks::word(draft, word),
    };
    let wrap = draft.fabric.first().map_or(&[][..], |fabric| &fabric.wrap);
    let command = command(draft, 0, role)?;
    let words: Vec<String> = wrap.iter().chain(&command).map(word).collect::<Result<_>>()?;
    // Without srun, the command itself is started in the folder.
    let change = match container::workdir(draft)? {
        Some(dir) if draft.job.spec.code_folder().is_some() => format!("cd -- {dir} || exit\n"),
        _ => String::new(),
    };
    Ok(format!("{change}weftrun_program {}\n", words.join(" ")))
}

fn component(draft: &RenderInput<'_>, options: &[Directives], index: usize) -> Result<String> {
    let (Some(role), Some(fabric)) = (draft.workers.get(index), draft.fabric.get(index)) else {
        return Ok(String::new());
    };
    let mut words: Vec<String> = Vec::new();
    if index == 0 {
        // -K1: a rank that dies ends the others, which would hang; -l: lines are labelled with their task.
        // Not -u: with it srun splits lines at 1 KiB and labels each part (seen on 22.05.8), and they cannot
        // be rejoined. PYTHONUNBUFFERED makes Python write at once, and NCCL flushes each line.
        words.push((if is_unlabelled(draft) { "-K1" } else { "-K1 -l" }).to_owned());
    }
    if draft.workers.len() > 1 {
        // The numbers are explicit: SLURM_NTASKS in the script's environment is the first component's.
        let tasks = tasks(draft, role);
        words.push(format!("--het-group={index} --nodes={} --ntasks={tasks}", role.nodes));
    }
    // Explicit, since `sbatch --export=NONE` would affect srun.
    words.push("--export=ALL".to_owned());
    // Since 22.05 srun does not inherit the number from sbatch, and uses one CPU per task without it.
    if let Some(cpus) = options.get(index).and_then(|options| options.value("cpus-per-task")) {
        words.push(format!("--cpus-per-task={}", quote::word(cpus)?));
    }
    if draft.output.tasks.is_some() {
        words.push("--output=\"$weftrun_files\"".to_owned());
    }
    if draft.job.spec.launch == Launch::Mpi {
        words.push(format!("--mpi={}", quote::word(mpi(draft))?));
    }
    for option in draft.own.srun.iter().filter(|option| !is_output(option)) {
        words.push(quote::word(option)?);
    }
    let mut inner = quote::words(&fabric.wrap)?;
    if !inner.is_empty() {
        inner.push(' ');
    }
    inner.push_str(&program(draft, index, role)?);
    let (options, contained) = container::wrap(draft, index, role, &inner)?;
    words.extend(options);
    Ok(format!("{} \\\n  {contained}", words.join(" ")))
}

/// Returns whether an option of srun sets the output files of the tasks.
fn is_output(option: &str) -> bool {
    option.starts_with("--output=")
}

/// Returns the MPI plugin through which the ranks find each other: the configured one, else pmix unless this
/// cluster has only pmi2.
pub fn mpi<'a>(draft: &'a RenderInput<'_>) -> &'a str {
    let serves = |name: &str| draft.job.facts.serves.iter().any(|known| known == name);
    let usual = if serves("mpi/pmi2") && !serves("mpi/pmix") { "pmi2" } else { "pmix" };
    draft.own.mpi.as_deref().unwrap_or(usual)
}

/// Returns the program with the settings that identify each task. `$SLURM_PROCID` and similar variables are
/// set only where the task runs.
fn program(draft: &RenderInput<'_>, index: usize, role: &Role) -> Result<String> {
    let given = tasks::words(draft, &command(draft, index, role)?)?;
    let own_env = if draft.workers.len() > 1 { role_env(draft, index, role)? } else { String::new() };
    let procs = role.procs_per_node();
    let node = "NODE_RANK=\"$SLURM_NODEID\" GROUP_RANK=\"$SLURM_NODEID\"";
    let text = match draft.job.spec.launch {
        // A signal to the job's steps reaches torchrun as well as its ranks, and these two would kill
        // torchrun: it ignores them, and a rank that installs a handler still receives them. Not
        // `--max-restarts`: with it only the node of the failed rank restarts, and the others wait for it
        // until their collective times out.
        Launch::Torchrun => format!(
            "sh -c 'trap \"\" USR1 USR2; exec torchrun --nnodes=\"$NNODES\" --nproc-per-node={procs} --node-rank=\"$SLURM_NODEID\" \
             --master-addr=\"$MASTER_ADDR\" --master-port=\"$MASTER_PORT\" \"$@\"' torchrun {given}"
        ),
        Launch::PerRank => format!(
            "sh -c 'export RANK=\"$SLURM_PROCID\" LOCAL_RANK=\"$SLURM_LOCALID\" LOCAL_WORLD_SIZE={procs} {node}; exec \"$@\"' rank {given}"
        ),
        Launch::PerNode => {
            format!("sh -c 'export LOCAL_WORLD_SIZE={procs} {node}; exec \"$@\"' node {given}")
        }
        Launch::Mpi | Launch::Once => given,
    };
    Ok(format!("{own_env}{text}"))
}

/// Returns the user's command: the rewritten one if a rule rewrote it, the launcher's if the workers have
/// none.
fn command(draft: &RenderInput<'_>, index: usize, role: &Role) -> Result<Vec<String>> {
    let mpi = draft.job.spec.launch == Launch::Mpi;
    let rewritten = draft.fabric.get(index).and_then(|fabric| fabric.command.as_ref()).filter(|_| !mpi);
    let command = script::command(&draft.job.spec, role, false, rewritten)?;
    let first = command.first().map(String::as_str).unwrap_or_default();
    if mpi && matches!(first.rsplit('/').next(), Some("mpirun" | "mpiexec" | "orterun")) {
        let message = "on Slurm srun starts the ranks of an MPI job: give the program without `mpirun`";
        return Err(Error::new(ErrorKind::InvalidSpec, message).with("role", &role.name));
    }
    Ok(command)
}

/// Returns `env A=b …` for a component, if components differ.
fn role_env(draft: &RenderInput<'_>, index: usize, role: &Role) -> Result<String> {
    let own = role.env.iter().map(|var| (&var.name, &var.value));
    let fabric = draft.fabric.get(index).into_iter().flat_map(|fabric| {
        fabric.env.iter().filter(|entry| !draft.all_set(entry)).map(|(name, value, _)| (name, value))
    });
    let pair = |(name, value): (&String, &String)| match value.as_str() {
        PROFILER_PATH => Ok(format!("{name}={}", script::value(value, LIBRARY)?)),
        _ => quote::word(&format!("{name}={value}")),
    };
    let pairs = own.chain(fabric).map(pair).collect::<Result<Vec<String>>>()?;
    Ok(if pairs.is_empty() { String::new() } else { format!("env {} ", pairs.join(" ")) })
}
