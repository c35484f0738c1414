//! Finds the command that starts the ranks: the one `srun` of a script, or its last command for a single
//! node.

use serde_json::json;

use super::body::{self, Chunk, base};
use super::words::{Reason, Value, Variables};
use super::{Import, lost};
use crate::Finding;
use crate::convert::slurm::{Directives, Program, Script};
use crate::spec::{Launch, RestartPolicy};

/// Options that weftrun's own srun sets, that the job file already holds, or that change nothing where one
/// srun uses the whole allocation.
const KNOWN: &str = "label unbuffered kill-on-bad-exit ntasks nodes gpus cpus-per-task no-container-mount-home job-name \
    exclusive exact quiet";

/// Options of srun that weftrun's own cannot have.
const LOST: [&str; 3] = ["error", "input", "container-name"];

/// Reads the launch into the job.
pub(super) fn read(import: &mut Import, script: &Script<'_>) -> Result<(), Finding> {
    let body = script.body();
    let Some(chunks) = body::chunks(&body, script.body_line()) else {
        import.carry_whole(&body, "the script's shell cannot be read");
        return Ok(());
    };
    let Some(last) = chunks.iter().rposition(|chunk| !chunk.is_farewell()) else {
        return Err(Finding::error("E-IMPORT-JOB", "the script starts nothing"));
    };
    let sruns: usize = chunks.iter().map(Chunk::sruns).sum();
    let starts = |chunk: &Chunk| chunk.sruns() > 0 || sruns == 0;
    let (before, rest) = chunks.split_at(last);
    let Some(chunk) = rest.first() else { return Ok(()) };
    let single = chunk.single().filter(|(_, command)| {
        let wrapper = command.words.get(..command.program).unwrap_or_default();
        wrapper.iter().all(|word| matches!(word.as_str(), "exec" | "time" | "command"))
    });
    let why = match (sruns, &single) {
        (2.., _) => format!("the script has {sruns} `srun` commands"),
        (1, _) if !starts(chunk) => "a command follows the script's `srun`".to_owned(),
        (1, None) => "the script's `srun` is part of a larger command".to_owned(),
        (0, _) if import.role.nodes > 1 => {
            format!("the script has no `srun` and requests {} nodes", import.role.nodes)
        }
        (0, Some((_, command))) if is_mpirun(base(command, command.program)) => {
            "the script's `mpirun` starts the ranks".to_owned()
        }
        (0, None) => "the script has no `srun`".to_owned(),
        _ => String::new(),
    };
    let Some((assigned, command)) = single.filter(|_| why.is_empty() && !import.whole) else {
        import.carry_whole(&body, if why.is_empty() { "`--whole` is given" } else { &why });
        return Ok(());
    };
    let mut variables = known_variables(import, body.len());
    let (exports, lines) = body::setup(before, &mut variables);
    exports.iter().for_each(|(name, value)| import.variable(name, value));
    import.setup(&lines, body::stops_at_errors(before));
    variables.line = chunk.line;
    for word in assigned {
        if let Some(name) = variables.assign(word)
            && let Some(Value::Text(text)) = variables.get(&name).cloned()
        {
            import.variable(&name, &resolved(&text, &variables)?);
        }
    }
    let mut words = Vec::new();
    for raw in chunk.raw(command, command.program) {
        words.extend(variables.expand(raw));
    }
    let mut words = words.as_slice();
    if sruns == 1 {
        words = words.get(1..).unwrap_or_default();
        let (options, used) = Directives::read(Program::Srun, words);
        words = words.get(used..).unwrap_or_default();
        if let Some(why) = srun(import, options, &variables)? {
            import.carry_whole(&body, &why);
            return Ok(());
        }
    }
    program(import, words, &variables)?;
    for (name, default) in &variables.defaults {
        if let Ok(default) = resolved(default, &variables) {
            let message = format!("the script does not set `{name}`: its default `{default}` is used");
            import.findings.push(Finding::warning("W-IMPORT-COMMAND", message));
        }
    }
    Ok(())
}

fn is_mpirun(program: &str) -> bool {
    matches!(program, "mpirun" | "mpiexec" | "orterun" | "prterun")
}

/// Returns a text in which everything was expanded.
fn resolved(text: &str, variables: &Variables) -> Result<String, Finding> {
    match variables.unresolved(text) {
        None => Ok(text.to_owned()),
        Some(Reason { line, text, why }) => {
            let line = line.unwrap_or(variables.line);
            let message = format!("`{text}` cannot be resolved: {why}");
            let fix = "write the value into the script, or keep the script as it is with `import sbatch --whole` (it runs once, on the first node)";
            Err(Finding::error("E-IMPORT-JOB", message).at(format!("line {line}")).fix(fix))
        }
    }
}

/// Returns the variables that Slurm itself sets, as far as the `#SBATCH` lines determine them.
/// `bytes` is the length of the script.
fn known_variables(import: &Import, bytes: usize) -> Variables {
    let mut variables = Variables::of_script(bytes);
    let role = &import.role;
    let tasks = import.tasks.map(|each| each.saturating_mul(role.nodes));
    let gpus = (role.gpus_per_node > 0).then_some(role.gpus_per_node);
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    for (name, value) in [
        ("SLURM_JOB_NUM_NODES", text(Some(role.nodes))),
        ("SLURM_NNODES", text(Some(role.nodes))),
        ("SLURM_NTASKS", text(tasks)),
        ("SLURM_NPROCS", text(tasks)),
        ("SLURM_NTASKS_PER_NODE", text(import.tasks)),
        ("SLURM_GPUS_ON_NODE", text(gpus)),
        ("SLURM_GPUS_PER_NODE", text(gpus)),
        ("SLURM_CPUS_PER_TASK", text(import.cpus_per_task)),
        ("SLURM_JOB_NAME", Some(import.name.clone())),
        ("SLURM_JOB_PARTITION", import.spec.queue.clone()),
    ] {
        value.into_iter().for_each(|value| variables.set(name, Value::Text(value)));
    }
    variables
}

/// Reads srun's options; returns why the script is not a single launch, if it is not.
fn srun(
    import: &mut Import,
    mut options: Directives,
    variables: &Variables,
) -> Result<Option<String>, Finding> {
    if options.has("het-group") || options.has("multi-prog") {
        return Ok(Some("the script's `srun` starts different programs".to_owned()));
    }
    let nodes = import.role.nodes;
    let number = |options: &Directives, name: &str| -> Result<Option<u32>, Finding> {
        options.value(name).map(|text| resolved(text, variables)).transpose()?;
        Ok(options.number(name))
    };
    let (on, tasks, each) =
        (number(&options, "nodes")?, number(&options, "ntasks")?, number(&options, "ntasks-per-node")?);
    let part = on.is_some_and(|on| on != nodes) || options.has("nodelist") || options.has("relative");
    let uneven = tasks.is_some_and(|all| all % nodes != 0);
    if part || uneven {
        return Ok(Some("the script's `srun` uses a part of the allocation".to_owned()));
    }
    if let Some(each) = each.or_else(|| tasks.map(|all| all / nodes)) {
        import.tasks = Some(each);
        import.role.ranks_per_node = Some(each).filter(|each| *each > 1);
    }
    if import.role.gpus_per_node == 0 {
        for name in ["gpus-per-node", "gres", "gpus", "gpus-per-task"] {
            number(&options, name)?;
        }
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
        let each = number(&options, name)?.map(|gpus| if name == "gpus" { gpus / nodes } else { gpus });
        if each.is_some_and(|each| each != before) {
            let text = options.value(name).unwrap_or_default();
            import.findings.push(lost(&format!("srun's `--{name}={text}` of {before} GPUs on each node")));
        }
    }
    for name in ["ntasks-per-node", "gpus-per-node"] {
        options.remove(name);
    }
    if let Some(each) = number(&options, "cpus-per-task")? {
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
    KNOWN.split(' ').for_each(|name| options.remove(name));
    let unusable = |path: &&str| !super::names_job(path) || resolved(path, variables).is_err();
    if let Some(path) = options.value("output").filter(unusable).map(str::to_owned) {
        options.remove("output");
        import.findings.push(lost(&format!("srun's `--output={path}`")));
    }
    let mut further: Vec<String> = Vec::new();
    for option in options.last_of_each().iter() {
        let value = option.value.as_ref().map(|text| resolved(text, variables)).transpose()?;
        resolved(&option.name, variables)?;
        match (option.name.as_str(), value) {
            ("mpi", Some(value)) => {
                if value != "none" {
                    import.spec.launch = Launch::Mpi;
                }
                import.slurm.insert("mpi".to_owned(), json!(value));
            }
            ("container-image", Some(value)) => import.spec.image = Some(value.replace('#', "/")),
            ("container-mounts", Some(value)) => import.mounts(&value),
            ("container-workdir" | "chdir", Some(value)) => {
                if let Some(before) = import.spec.workdir.replace(value.clone()).filter(|old| *old != value) {
                    let what = format!("the working directory `{before}` beside srun's `{value}`");
                    import.findings.push(lost(&what));
                }
            }
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
    Ok(None)
}

/// Reads the program that each task runs.
fn program(import: &mut Import, words: &[String], variables: &Variables) -> Result<(), Finding> {
    let Some(first) = words.first() else {
        return Err(Finding::error("E-IMPORT-JOB", "`srun` starts nothing"));
    };
    let (first, name) = (resolved(first, variables)?, |at: usize| words.get(at).map_or("", String::as_str));
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
        && torchrun(import, words.get(from..).unwrap_or_default(), variables)?
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
    import.role.command = words.iter().map(|word| resolved(word, variables)).collect::<Result<_, _>>()?;
    Ok(())
}

/// Reads torchrun's own options, which the job file sets with other keys; the script and its arguments
/// remain. Returns false, and reads nothing, where the nodes do not form one job.
fn torchrun(import: &mut Import, words: &[String], variables: &Variables) -> Result<bool, Finding> {
    const FLAGS: [&str; 4] = ["standalone", "no-python", "run-path", "m"];
    let mut options: Vec<(String, Option<String>)> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && *word != "--") {
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let name = name.trim_start_matches('-').replace('_', "-");
        if matches!(name.as_str(), "m" | "module" | "no-python") {
            break;
        }
        at += 1;
        if value.is_none() && !FLAGS.contains(&name.as_str()) {
            value = words.get(at).cloned();
            at += 1;
        }
        options.push((name, value));
    }
    let value = |wanted: &str| {
        options.iter().rev().find(|(name, _)| name == wanted).and_then(|(_, value)| value.clone())
    };
    let nodes = value("nnodes").map(|text| resolved(&text, variables)).transpose()?;
    let procs = value("nproc-per-node").map(|text| resolved(&text, variables)).transpose()?;
    let alone = options.iter().any(|(name, _)| name == "standalone") || nodes.as_deref() == Some("1");
    let all_gpus = matches!(procs.as_deref(), Some("gpu" | "auto"));
    if alone && import.role.nodes > 1 || all_gpus && import.role.gpus_per_node == 0 {
        return Ok(false);
    }
    import.spec.launch = Launch::Torchrun;
    import.role.ranks_per_node = procs.as_deref().and_then(|procs| procs.parse().ok());
    if procs.is_none() && import.role.gpus_per_node > 1 {
        // torchrun starts one process on a node by default.
        import.role.ranks_per_node = Some(1);
    }
    for (name, value) in &options {
        let rendezvous =
            ["rdzv", "master", "node-rank", "local-addr"].iter().any(|start| name.starts_with(start));
        match (name.as_str(), value) {
            _ if rendezvous => {}
            ("standalone", _) => {}
            ("nnodes", _) if nodes.as_deref().is_none_or(|nodes| !nodes.contains(':')) => {}
            ("nproc-per-node", _) if all_gpus || import.role.ranks_per_node.is_some() => {}
            ("max-restarts", Some(value)) => {
                let max = resolved(value, variables)?.parse().unwrap_or(0);
                if max > 0 {
                    import.spec.restart = RestartPolicy::OnFailure { max };
                }
            }
            _ => import.findings.push(lost(&format!("torchrun's `--{name}`"))),
        }
    }
    let script = match words.get(at..).unwrap_or_default() {
        [first, script @ ..] if first == "--" => script,
        script => script,
    };
    import.role.command = script.iter().map(|word| resolved(word, variables)).collect::<Result<_, _>>()?;
    if import.role.command.is_empty() {
        return Err(Finding::error("E-IMPORT-JOB", "`torchrun` starts nothing"));
    }
    Ok(true)
}
