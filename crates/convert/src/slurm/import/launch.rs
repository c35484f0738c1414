//! Finds the command that starts the ranks: the one `srun` of a script, or its last command for a single
//! node. A script of any other form is carried as it is.

use serde_json::json;

use super::body::{self, Chunk, base};
use super::first_node::FirstNode;
use super::literal::literal;
use super::whole::argument_of;
use super::{Import, lost};
use crate::kubeflow::TORCHRUN_OPTIONS;
use crate::slurm::{Directive, Directives, Program, Script};
use weftrun_core::Finding;
use weftrun_core::shell::ScriptCommand;
use weftrun_core::spec::Launch;

/// Options that weftrun's own srun sets, that the job file already holds, or that change nothing where one
/// srun uses the whole allocation.
const KNOWN: &str = "label kill-on-bad-exit ntasks nodes gpus cpus-per-task no-container-mount-home job-name \
    exclusive exact quiet";

/// Options of srun that weftrun's own cannot have.
const LOST: [&str; 3] = ["error", "input", "container-name"];

/// What a simple form lacks.
type Simple<T = ()> = Result<T, String>;

/// Reads the launch into the job: a simple form, or the whole script.
pub(super) fn read(import: &mut Import, script: &Script<'_>) -> Result<(), Finding> {
    let body = script.body();
    let Some(chunks) = body::chunks(&body) else {
        import.carry_whole(&body, "the script's shell cannot be read", script);
        return Ok(());
    };
    let Some(last) = chunks.iter().rposition(|chunk| !chunk.is_farewell()) else {
        return Err(Finding::error("E-IMPORT-JOB", "the script starts nothing"));
    };
    let before = import.clone();
    let read = import.whole.map_or_else(|| simple(import, &chunks, last), |why| Err(why.to_owned()));
    if let Err(why) = read {
        *import = before;
        import.carry_whole(&body, &why, script);
        return Ok(());
    }
    let is_one_task = import.spec.launch == Launch::PerNode && import.role.ranks_per_node.is_none();
    if is_one_task && import.role.gpus_per_node > 1 && script.launched.processes.is_none() {
        // A task for each node, whatever GPUs it has: `WORLD_SIZE` counts tasks.
        import.role.ranks_per_node = Some(1);
    }
    Ok(())
}

/// Reads a script of the simple form: commands that stay shell, exports of plain text, one launch of plain words.
fn simple(import: &mut Import, chunks: &[Chunk], last: usize) -> Simple {
    let sruns: usize = chunks.iter().map(Chunk::sruns).sum();
    let (before, rest) = chunks.split_at(last);
    let Some(chunk) = rest.first() else { return Ok(()) };
    let single = chunk.single().filter(|(_, command)| {
        let wrapper = command.words.get(..command.program).unwrap_or_default();
        wrapper.iter().all(|word| matches!(word.as_str(), "exec" | "time" | "command"))
    });
    let (assigned, command) = match (sruns, single) {
        (2.., _) => return Err(format!("the script has {sruns} `srun` commands")),
        (1, _) if chunk.sruns() == 0 => return Err("a command follows the script's `srun`".to_owned()),
        (1, None) => return Err("the script's `srun` is part of a larger command".to_owned()),
        (0, _) if import.role.nodes > 1 => {
            return Err(format!("the script has no `srun` and requests {} nodes", import.role.nodes));
        }
        (0, Some((_, command))) if is_mpirun(base(command, command.program)) => {
            return Err("the script's `mpirun` starts the ranks".to_owned());
        }
        (0, None) => return Err("the script has no `srun`".to_owned()),
        (_, Some(single)) => single,
    };
    if let Some(behind) = rest.iter().skip(1).find(|chunk| !chunk.is_no_change()) {
        let first = behind.text.trim().lines().next().unwrap_or_default().trim();
        return Err(format!("`{first}` follows the command that starts the ranks"));
    }
    let mut first_node = FirstNode::default();
    for chunk in before {
        if first_node.read(&chunk.text, import.role.nodes) || chunk.reaches_the_ranks() {
            let line = chunk.text.trim().lines().next().unwrap_or_default().trim();
            return Err(format!("`{line}` reaches the ranks"));
        }
    }
    if let Some(name) = argument_of(before) {
        return Err(format!("the commands before the ranks read `{name}`"));
    }
    let works_inside = import.container.iter().any(|option| option.starts_with("--container-workdir"));
    let prepares = before.iter().any(|chunk| !chunk.is_farewell() && chunk.exports().is_none());
    if works_inside || prepares && !import.container.is_empty() {
        return Err("the whole script runs in the container of its `#SBATCH` lines".to_owned());
    }
    if prepares && import.shell != "bash" {
        return Err(format!(
            "`{}` runs the commands before the ranks, and bash would run those of the job",
            import.shell
        ));
    }
    if !import.spec.env.is_empty()
        && let Some(chunk) = before.iter().find(|chunk| !chunk.is_farewell())
    {
        let line = chunk.text.trim().lines().next().unwrap_or_default().trim();
        return Err(format!("`{line}` sees or sets the variables of `#SBATCH --export`"));
    }
    let shell_options = import.shell_options.clone();
    let has_option = |letter, name| body::has_option(before, &shell_options, letter, name);
    if has_option(Some('x'), "xtrace") || has_option(Some('v'), "verbose") {
        import.findings.push(lost("`set -x`").fix("nothing, if the log need not show each command"));
    }
    let reads_variables = |chunk: &Chunk| !chunk.is_empty() && chunk.text.contains('$');
    if has_option(Some('u'), "nounset") && before.iter().chain([chunk]).any(reads_variables) {
        let what = "`set -u`: a variable that is not set ends the script, and not the job";
        import.findings.push(lost(what).fix("nothing, if all variables are set; else check them in `setup`"));
    }
    let (lines, exports) = body::setup(before);
    exports.iter().for_each(|(name, value)| import.variable(name, value));
    import.setup(&lines, has_option(Some('e'), "errexit"), has_option(None, "pipefail"));
    import.port(before);
    for word in assigned {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        import.variable(name, &plain(value)?);
    }
    let raw = chunk.raw(command, command.program);
    let raw = raw.as_slice();
    let setup = lines.join("\n");
    if sruns == 0 {
        program(import, raw, &first_node)?;
        import.files_of_launch(&setup, &command.words);
        return Ok(());
    }
    let raw = raw.get(1..).unwrap_or_default();
    let words: Vec<String> =
        raw.iter().map(|raw| literal(raw).unwrap_or_else(|| (*raw).to_owned())).collect();
    let (options, used) = Directives::read(Program::Srun, &words);
    raw.iter().take(used).try_for_each(|raw| plain(raw).map(drop))?;
    refuse_other_shape(import, &options, before)?;
    let is_told = before.iter().any(|chunk| chunk.text.contains("SLURM_EXPORT_ENV"));
    if import.slurm.contains_key("export") && !options.has("export") && !is_told {
        let what = "`#SBATCH --export` without ALL, after which the script's `srun` passes on no other variables: the ranks of the job get them";
        import.findings.push(lost(what).fix("nothing, if the ranks may have the variables of the job"));
    }
    srun(import, options)?;
    let rest = raw.get(used..).unwrap_or_default();
    // srun looks a program up in the working directory too (srun(1)), and the shell of a rendered script does not.
    let is_file = |word: &&&str| {
        let ending = word.rsplit_once('.').filter(|_| !word.contains('/'));
        ending.is_some_and(|(_, ending)| ending.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    if let Some(file) = rest.first().filter(is_file) {
        return Err(format!("`srun` finds `{file}` in the folder where the job is submitted"));
    }
    program(import, rest, &first_node)?;
    import.files_of_launch(&setup, words.get(used..).unwrap_or_default());
    Ok(())
}

impl Import {
    /// Leaves out the port that the script gives its first rank: the rendered script sets one, behind `setup`.
    fn port(&mut self, before: &[Chunk]) {
        const NAME: &str = "MASTER_PORT";
        let sets = |word: &String| word.split_once('=').is_some_and(|(name, _)| name == NAME);
        let command_sets = |command: &ScriptCommand| {
            matches!(base(command, command.program), "export" | "declare" | "typeset" | "readonly")
                && command.words.iter().any(sets)
        };
        if before.iter().flat_map(|chunk| &chunk.commands).any(command_sets)
            || before.iter().any(|chunk| chunk.text.trim_start().starts_with("MASTER_PORT="))
        {
            self.spec.env.retain(|variable| variable.name != NAME);
            let fix = "nothing, if only the ranks use it: weftrun gives each job a port";
            self.findings.push(lost("`MASTER_PORT` of the script").fix(fix));
        }
    }
}

/// Returns a word in which the shell expands nothing.
fn plain(raw: &str) -> Simple<String> {
    const MOST: usize = 60;
    let shown: String = raw.chars().take(MOST).collect();
    literal(raw).ok_or_else(|| format!("the shell expands `{shown}` in the command that starts the ranks"))
}

fn is_mpirun(program: &str) -> bool {
    matches!(program, "mpirun" | "mpiexec" | "orterun" | "prterun")
}

/// Returns why the commands before `srun` would see another job where what it requests were requested of the whole job: Slurm sets
/// variables for tasks and CPUs, and programs look at them.
fn refuse_other_shape(import: &Import, options: &Directives, before: &[Chunk]) -> Simple {
    let nodes = import.role.nodes;
    let each = options.number("ntasks-per-node").or_else(|| options.number("ntasks").map(|all| all / nodes));
    let other_tasks = each.is_some_and(|each| each != import.tasks.unwrap_or(1));
    let other_cpus = options.number("cpus-per-task").is_some_and(|cpus| Some(cpus) != import.cpus_per_task);
    let sees = before.iter().find(|chunk| chunk.sees_the_job());
    match sees {
        _ if other_tasks && import.cpus_per_task.is_some() && !other_cpus => {
            Err("`srun` starts other tasks than the `#SBATCH` lines request CPUs for".to_owned())
        }
        Some(chunk) if other_tasks || other_cpus || options.has("chdir") => {
            let line = chunk.text.trim().lines().next().unwrap_or_default().trim();
            Err(format!("`srun` has other tasks, CPUs or another folder than `{line}` before it"))
        }
        _ => Ok(()),
    }
}

/// Reads srun's options.
fn srun(import: &mut Import, mut options: Directives) -> Simple {
    if options.has("het-group") || options.has("multi-prog") {
        return Err("the script's `srun` starts different programs".to_owned());
    }
    let nodes = import.role.nodes;
    let number = Directives::number;
    let (on, tasks, each) =
        (number(&options, "nodes"), number(&options, "ntasks"), number(&options, "ntasks-per-node"));
    let part = on.is_some_and(|on| on != nodes) || options.has("nodelist") || options.has("relative");
    let uneven = tasks.is_some_and(|all| all % nodes != 0);
    if part || uneven {
        return Err("the script's `srun` uses a part of the allocation".to_owned());
    }
    if let Some(each) = each.or_else(|| tasks.map(|all| all / nodes)) {
        import.tasks = Some(each);
        import.role.ranks_per_node = Some(each).filter(|each| *each > 1);
    }
    if import.role.gpus_per_node == 0 {
        let all = options.number("gpus").map(|all| all / nodes);
        let by_task =
            options.number("gpus-per-task").map(|gpus| gpus.saturating_mul(import.tasks.unwrap_or(1)));
        import.role.gpus_per_node =
            options.gpus_per_node().filter(|_| all.is_none()).or(all).or(by_task).unwrap_or(0);
        if let Some(name) = options.gpu_type() {
            let each = format!("--gpus-per-node={name}:{}", import.role.gpus_per_node);
            import.keep_for_sbatch([each]);
        }
    } else if let Some(name) = ["gpus", "gpus-per-node"].into_iter().find(|name| options.has(name)) {
        let before = import.role.gpus_per_node;
        let each = number(&options, name).map(|gpus| if name == "gpus" { gpus / nodes } else { gpus });
        if each.is_some_and(|each| each != before) {
            let text = options.value(name).unwrap_or_default();
            import.findings.push(lost(&format!("srun's `--{name}={text}` of {before} GPUs on each node")));
        }
    }
    for name in ["ntasks-per-node", "gpus-per-node"] {
        options.remove(name);
    }
    if let Some(each) = number(&options, "cpus-per-task") {
        let cpus = each.saturating_mul(import.tasks.unwrap_or(1).max(1)).to_string();
        match &import.role.cpus {
            None => import.role.cpus = Some(cpus),
            Some(before) if *before == cpus => {}
            Some(before) => {
                let what = format!("srun's `--cpus-per-task={each}` of {before} CPUs on each node");
                import.findings.push(lost(&what));
            }
        }
    }
    for name in LOST {
        if let Some(value) = options.take_value(name) {
            import.findings.push(lost(&format!("srun's `--{name}={value}`")));
        }
    }
    if options.value("kill-on-bad-exit") == Some("0") {
        import.findings.push(lost("srun's `--kill-on-bad-exit=0`"));
    }
    KNOWN.split(' ').for_each(|name| options.remove(name));
    let unusable = |path: &&str| !super::names_job(path);
    if let Some(path) = options.value("output").filter(unusable).map(str::to_owned) {
        options.remove("output");
        import.findings.push(lost(&format!("srun's `--output={path}`")));
    }
    let mut further: Vec<String> = Vec::new();
    // `-vv` says more than `-v`.
    let verbose = options.iter().filter(|option| option.name == "verbose").skip(1);
    further.extend(verbose.map(Directive::written));
    for option in options.last_of_each().iter() {
        match (option.name.as_str(), option.value.clone()) {
            ("mpi", Some(value)) => {
                if value != "none" {
                    import.spec.launch = Launch::Mpi;
                }
                import.slurm.insert("mpi".to_owned(), json!(value));
            }
            ("container-image", Some(value)) => {
                import.relative_file(Some(value.as_str()).filter(|path| path.starts_with('.')));
                import.spec.image = Some(value.replace('#', "/"));
            }
            ("container-mounts", Some(value)) => import.mounts(&value),
            ("container-workdir" | "chdir", Some(value)) => import.workdir(&value, "srun"),
            ("container-mount-home", None) => drop(import.slurm.insert("mount-home".to_owned(), json!(true))),
            // weftrun passes every variable of the job into the container.
            ("container-env", _) => {}
            ("export", Some(value)) => import.export(&value),
            _ => further.push(option.written()),
        }
    }
    if !further.is_empty() {
        import.slurm.insert("srun".to_owned(), json!(further));
    }
    Ok(())
}

/// Reads the program that each task runs.
fn program(import: &mut Import, words: &[&str], first_node: &FirstNode) -> Simple {
    let Some(first) = words.first() else { return Err("`srun` starts nothing".to_owned()) };
    let (first, name) = (plain(first)?, |at: usize| words.get(at).copied().unwrap_or_default());
    let base = first.rsplit('/').next().unwrap_or_default();
    let module = name(1) == "-m" && matches!(name(2), "torch.distributed.run" | "torch.distributed.launch");
    let options = match base {
        "torchrun" => Some(1),
        python if python.starts_with("python") && module => Some(3),
        _ => None,
    };
    // Several torchrun on a node are not one launch.
    let options =
        options.filter(|_| import.tasks.is_none_or(|tasks| tasks == 1) && import.spec.launch != Launch::Mpi);
    if let Some(from) = options
        && torchrun(import, words.get(from..).unwrap_or_default(), first_node)?
    {
        return Ok(());
    }
    if import.spec.launch != Launch::Mpi {
        let ranks = import.role.ranks_per_node.is_some_and(|ranks| ranks > 1);
        import.spec.launch = if ranks { Launch::PerRank } else { Launch::PerNode };
    } else if import.role.gpus_per_node > 1 && import.role.ranks_per_node.is_none() {
        // srun starts one task per node by default; a job of weftrun starts one for each GPU.
        import.role.ranks_per_node = Some(import.tasks.unwrap_or(1));
    }
    import.role.command = words.iter().map(|word| plain(word)).collect::<Simple<_>>()?;
    Ok(())
}

/// Returns whether a value is the number of the job's nodes, which Slurm sets.
fn is_all_nodes(value: &str) -> bool {
    let name = value.trim_matches('"').trim_start_matches('$').trim_matches(['{', '}']);
    matches!(name, "SLURM_NNODES" | "SLURM_JOB_NUM_NODES")
}

/// Reads torchrun's own options, which the job file sets with other keys; the script and its arguments
/// remain. Returns false, and reads nothing, where the nodes do not form one job or an option has no key.
fn torchrun(import: &mut Import, words: &[&str], first: &FirstNode) -> Simple<bool> {
    let mut options: Vec<(String, Option<&str>)> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && **word != "--") {
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*word, None),
        };
        let name = name.trim_start_matches('-').replace('_', "-");
        if matches!(name.as_str(), "m" | "module" | "no-python") {
            break;
        }
        at += 1;
        if value.is_none() && name != "standalone" {
            value = words.get(at).copied();
            at += 1;
        }
        options.push((name, value));
    }
    let value =
        |wanted: &str| options.iter().rev().find(|(name, _)| name == wanted).and_then(|(_, value)| *value);
    let nodes = value("nnodes").filter(|value| !is_all_nodes(value)).map(plain).transpose()?;
    let procs = value("nproc-per-node").map(plain).transpose()?;
    let fits =
        |text: &String| text.contains(':') || text.parse().is_ok_and(|nodes: u32| nodes == import.role.nodes);
    let alone = options.iter().any(|(name, _)| name == "standalone") || nodes.as_deref() == Some("1");
    if nodes.as_ref().is_some_and(|nodes| !alone && !fits(nodes)) {
        let nodes = nodes.unwrap_or_default();
        return Err(format!(
            "`torchrun --nnodes={nodes}` is not the number of the job's nodes ({})",
            import.role.nodes
        ));
    }
    let all_gpus = matches!(procs.as_deref(), Some("gpu" | "auto"));
    let ranks = procs.as_deref().and_then(|procs| procs.parse().ok());
    for name in ["rdzv-endpoint", "master-addr"] {
        if let Some(at) = value(name).filter(|at| !first.is_at(at)) {
            return Err(format!("`{at}` of `torchrun` may be another address than that of the first node"));
        }
    }
    let is_ours = |(name, value): &(String, Option<&str>)| match name.as_str() {
        "nnodes" => nodes.as_ref().is_none_or(|nodes| !nodes.contains(':')),
        "nproc-per-node" => all_gpus || ranks.is_some(),
        "max-restarts" => *value == Some("0"),
        name => TORCHRUN_OPTIONS.split(' ').any(|known| known == name),
    };
    if alone && import.role.nodes > 1
        || all_gpus && import.role.gpus_per_node == 0
        || !options.iter().all(is_ours)
    {
        return Ok(false);
    }
    import.spec.launch = Launch::Torchrun;
    if value("nnodes").is_none() && import.role.nodes > 1 {
        let nodes = import.role.nodes;
        let message = format!(
            "`torchrun` has no `--nnodes`, so that each of the {nodes} nodes is a job of its own (torchrun's default is 1); \
             the job gives it `--nnodes={nodes}`"
        );
        let fix = "nothing, if the nodes are to train together; `launch = \"per-node\"` with the whole command keeps them apart";
        import.findings.push(Finding::warning("W-IMPORT-COMMAND", message).fix(fix));
    }
    import.role.ranks_per_node = ranks;
    if procs.is_none() && import.role.gpus_per_node > 1 {
        // torchrun starts one process on a node by default.
        import.role.ranks_per_node = Some(1);
    }
    let script = match words.get(at..).unwrap_or_default() {
        [first, script @ ..] if *first == "--" => script,
        script => script,
    };
    import.role.command = script.iter().map(|word| plain(word)).collect::<Simple<_>>()?;
    if import.role.command.is_empty() {
        return Err("`torchrun` starts nothing".to_owned());
    }
    Ok(true)
}
