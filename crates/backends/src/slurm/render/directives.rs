//! The `#SBATCH` lines.

use weftrun_convert::{Directive, Directives, Program};
use weftrun_core::backend::NodeGroup;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::shell::sbatch::OF_SUBMISSION;
use weftrun_core::spec::{Launch, RestartPolicy, Role};
use weftrun_core::text::Quantity;
use weftrun_core::text::nodelist;
use weftrun_core::{Error, ErrorKind, Result};

use super::RenderInput;

/// Options that are repeated in each component of a heterogeneous job; sbatch copies the others from the
/// first (slurm.schedmd.com/heterogeneous_jobs.html, of those that weftrun writes).
pub const OF_COMPONENT: [&str; 13] = [
    "partition",
    "reservation",
    "nodes",
    "ntasks-per-node",
    "gpus-per-node",
    "constraint",
    "mem",
    "cpus-per-task",
    "switches",
    "nodelist",
    "exclude",
    "segment",
    "exclusive",
];

/// Options of `sbatch = […]` that conflict with how weftrun starts, numbers or follows a job, each with the
/// alternative; those in [`OF_SUBMISSION`] conflict too.
const REFUSED: [(&str, &str); 7] = [
    ("job-name", "set `name` in the job file"),
    ("nodes", "set `nodes` in the job file: the ranks are numbered by it"),
    ("ntasks", "set `ranks_per_node` in the job file"),
    ("ntasks-per-node", "set `ranks_per_node` in the job file"),
    ("array", "set `array` in `[backend.slurm]`: each task has its own log"),
    ("chdir", "set `workdir` in the job file"),
    ("error", "leave it out: standard error goes into the log that is followed"),
];

/// Options that say how many tasks there are, of a job that starts its ranks itself.
const OF_TASKS: [&str; 2] = ["ntasks", "ntasks-per-node"];

/// Returns the options that a user's option replaces: those of which Slurm accepts only one, or with the same
/// effect.
fn replaced_by(option: &Directive) -> &'static [&'static str] {
    match option.name.as_str() {
        "requeue" | "no-requeue" => &["requeue", "no-requeue"],
        "mem-per-cpu" | "mem-per-gpu" => &["mem"],
        "cpus-per-gpu" => &["cpus-per-task"],
        "oversubscribe" => &["exclusive"],
        "gpus" | "gpus-per-task" | "gpus-per-socket" => &["gpus-per-node"],
        "ntasks" => &["ntasks-per-node"],
        "gres"
            if option
                .value
                .as_deref()
                .is_some_and(|gres| gres.split(',').any(|one| one.starts_with("gpu"))) =>
        {
            &["gpus-per-node"]
        }
        _ => &[],
    }
}

/// Returns the options of the job, separately for each component of a heterogeneous job.
pub fn of(draft: &RenderInput<'_>) -> Result<Vec<Directives>> {
    let mut components: Vec<Directives> =
        (0..draft.workers.len()).map(|index| of_role(draft, index)).collect::<Result<_>>()?;
    let mut first = of_job(draft);
    if let Some(component) = components.first_mut() {
        component.iter().for_each(|option| first.push(&option.name, option.value.clone()));
        *component = first;
    }
    users_own(draft, &mut components)?;
    Ok(components)
}

/// Adds the user's own options, which take precedence, or refuses them with the reason.
fn users_own(draft: &RenderInput<'_>, components: &mut [Directives]) -> Result<()> {
    draft.own.srun.iter().try_for_each(|text| of_srun(text))?;
    for text in &draft.own.sbatch {
        let option = further(text)?;
        let of = |refused: &[(&str, &'static str)]| {
            refused.iter().find(|(name, _)| *name == option.name).map(|(_, instead)| *instead)
        };
        let name = &option.name;
        let starts_ranks = draft.job.spec.launch != Launch::Once;
        let refused = of(&REFUSED).filter(|_| starts_ranks || !OF_TASKS.contains(&name.as_str()));
        let own = refused.map(|instead| (format!("weftrun sets `--{name}` itself"), instead));
        let of_submission =
            || of(&OF_SUBMISSION).map(|instead| (format!("`--{name}` cannot be used here"), instead));
        if let Some((why, instead)) = own.or_else(of_submission) {
            let message = format!("`sbatch = [\"{text}\"]`: {why}");
            return Err(Error::new(ErrorKind::InvalidSpec, message).hint(instead));
        }
        if option.name == "output" && !draft.output.own {
            // The script creates the folder, and a link to the log or a file for each task.
            continue;
        }
        if option.name == "exclude" {
            // Added to the nodes that the job leaves out.
            for component in components.iter_mut() {
                let both: Vec<&str> =
                    component.value("exclude").into_iter().chain(option.value.as_deref()).collect();
                let both = both.join(",");
                component.replace("exclude", Some(both));
            }
            continue;
        }
        if option.name == "comment" {
            let marker = components.first().and_then(|options| options.value("comment")).unwrap_or_default();
            let both = format!("{marker} {}", option.value.as_deref().unwrap_or_default());
            if let Some(first) = components.first_mut() {
                first.replace("comment", Some(both));
            }
            continue;
        }
        let each = if OF_COMPONENT.contains(&option.name.as_str()) { components.len() } else { 1 };
        for component in components.iter_mut() {
            replaced_by(&option).iter().for_each(|name| component.remove(name));
        }
        for component in components.iter_mut().take(each) {
            component.replace(&option.name, option.value.clone());
        }
    }
    Ok(())
}

/// Largest comment that slurmctld takes (`_test_strlen(job_desc->comment, "comment", 1024)`, src/slurmctld/job_mgr.c of 25.05).
const LARGEST_COMMENT: usize = 1024;

/// Returns the lines, one component after the other.
pub fn write(components: &[Directives]) -> Result<String> {
    let comment = components.first().and_then(|options| options.value("comment")).unwrap_or_default();
    if comment.len() > LARGEST_COMMENT {
        let message = format!(
            "the labels of the job are kept in its comment, which would have {} bytes; Slurm takes {LARGEST_COMMENT}",
            comment.len()
        );
        return Err(Error::new(ErrorKind::InvalidSpec, message).with("key", "labels"));
    }
    let mut text = String::new();
    for (index, options) in components.iter().enumerate() {
        if index > 0 {
            text.push_str("#SBATCH hetjob\n");
        }
        for Directive { name, value } in options.iter() {
            match value {
                None => text.push_str(&format!("#SBATCH --{name}\n")),
                Some(value) => {
                    text.push_str(&format!("#SBATCH --{name}={}\n", directive(name, value)?));
                }
            }
        }
    }
    Ok(text)
}

/// Returns a dependency with the job number in place of each handle (`afterok:slurm://pc/123`).
fn numbers(dependency: &str) -> String {
    let is_end = |c: char| matches!(c, ':' | ',' | '?' | '+');
    let (mut text, mut rest) = (String::new(), dependency);
    while let Some((before, handle)) = rest.split_once("slurm://") {
        let end = handle.find(is_end).unwrap_or(handle.len());
        let (handle, after) = handle.split_at_checked(end).unwrap_or((handle, ""));
        text.push_str(before);
        text.push_str(handle.rsplit('/').next().unwrap_or_default());
        rest = after;
    }
    text + rest
}

fn of_job(draft: &RenderInput<'_>) -> Directives {
    let (spec, own) = (&draft.job.spec, &draft.own);
    let mut options = Directives::default();
    options.add("job-name", &spec.name);
    options.add("comment", draft.marker().text());
    let limit = spec.time_limit.map(|limit| time(limit.as_secs()));
    let dependency = own.dependency.as_deref().map(numbers);
    let mail = own.mail.as_ref().map(|_| own.mail_type.clone().unwrap_or_else(|| "END,FAIL".to_owned()));
    for (name, value) in [
        ("account", own.account.as_ref()),
        ("qos", spec.priority.as_ref().or(own.qos.as_ref())),
        ("time", limit.as_ref()),
        ("array", own.array.as_ref()),
        ("dependency", dependency.as_ref()),
        ("begin", own.begin.as_ref()),
        ("signal", own.signal.as_ref()),
        ("licenses", own.licenses.as_ref()),
        ("mail-type", mail.as_ref()),
        ("mail-user", own.mail.as_ref()),
        ("wckey", own.wckey.as_ref()),
    ] {
        if let Some(value) = value {
            options.add(name, value);
        }
    }
    if own.dependency.is_some() {
        // Otherwise a job whose dependency failed waits forever.
        options.add("kill-on-invalid-dep", "yes");
    }
    if let Some(folder) = draft.chdir() {
        options.add("chdir", folder);
    }
    options.add("output", format!("{}/{}.log", draft.log_dir(), draft.log_name()));
    // A requeued job appends to the output of its earlier run.
    options.add("open-mode", "append");
    if let Some(requeue) = own.requeue.or((spec.restart != RestartPolicy::Never).then_some(true)) {
        options.push(if requeue { "requeue" } else { "no-requeue" }, None);
    }
    if own.export.as_deref() == Some("none") {
        options.add("export", "NONE");
    }
    options
}

fn of_role(draft: &RenderInput<'_>, index: usize) -> Result<Directives> {
    let mut options = Directives::default();
    let (Some(role), Some(fabric)) = (draft.workers.get(index), draft.fabric.get(index)) else {
        return Ok(options);
    };
    let own = &draft.own;
    let partition = draft.job.spec.queue.as_ref().or(own.partition.as_ref()).cloned();
    if let Some(partition) = partition.or_else(|| partition_of(draft, role)) {
        options.add("partition", partition);
    }
    if let Some(reservation) = &own.reservation {
        options.add("reservation", reservation);
    }
    options.add("nodes", role.nodes.to_string());
    // A script that starts its ranks itself reads SLURM_NTASKS_PER_NODE: it is set only where the job says so.
    let tasks = super::launch::tasks_per_node(draft, role);
    if draft.job.spec.launch != Launch::Once || role.ranks_per_node.is_some() {
        options.add("ntasks-per-node", tasks.to_string());
    }
    let exclusive = whole_nodes(draft, index).is_some();
    if role.gpus_per_node > 0 && has_gpu_gres(role) {
        options.add("gpus-per-node", role.gpus_per_node.to_string());
    }
    let constraint = own.constraint.as_ref().or(role.instance_type.as_ref()).or(fabric.constraint.as_ref());
    if let Some(constraint) = constraint {
        options.add("constraint", constraint);
    }
    match (&role.memory, exclusive) {
        (Some(memory), _) => options.add("mem", format!("{}M", mebibytes(memory)?)),
        // All memory of the node: DefMemPerCPU would grant a share of it.
        (None, true) => options.add("mem", "0"),
        (None, false) => {}
    }
    if let Some(cpus) = cpus_per_task(draft, role, tasks, exclusive)? {
        options.add("cpus-per-task", cpus.to_string());
    }
    let one_switch = fabric.one_switch.is_some().then(|| "1".to_owned());
    let segment = own.segment.map(|nodes| nodes.to_string());
    let pinned = own.nodelist.as_deref().map(nodelist::expand).unwrap_or_default();
    draft.job.refuse_pinned("nodelist", pinned.iter().map(String::as_str))?;
    let excluded: Vec<&str> = own.exclude.as_deref().into_iter().chain(draft.job.avoided()).collect();
    let exclude = (!excluded.is_empty()).then(|| excluded.join(","));
    for (name, value) in [
        ("switches", own.switches.as_ref().or(one_switch.as_ref())),
        ("nodelist", own.nodelist.as_ref()),
        ("exclude", exclude.as_ref()),
        ("segment", segment.as_ref()),
    ] {
        if let Some(value) = value {
            options.add(name, value);
        }
    }
    if exclusive {
        options.push("exclusive", None);
    }
    Ok(options)
}

/// Returns the first partition that has the instance type, if the default one lacks it.
fn partition_of(draft: &RenderInput<'_>, role: &Role) -> Option<String> {
    let facts = &draft.job.facts;
    let wanted = role.instance_type.as_deref()?;
    let with = facts.nodes.iter().filter(|group| group.instance_type.as_deref() == Some(wanted));
    let with: Vec<&String> = with.flat_map(|group| &group.queues).collect();
    let default = facts.queues.iter().find(|queue| queue.default).map(|queue| &queue.name);
    if default.is_some_and(|default| with.contains(&default)) {
        return None;
    }
    with.first().map(|name| (*name).clone())
}

/// Returns the nodes a role may run on, as far as the cluster was queried: of its type, in its partition.
fn nodes_of<'f>(draft: &'f RenderInput<'_>, role: &Role) -> Vec<&'f NodeGroup> {
    let facts = &draft.job.facts;
    let queue = draft.job.spec.queue.as_ref().or(draft.own.partition.as_ref());
    let fits = |group: &&NodeGroup| {
        let of_type = role.instance_type.is_none() || group.instance_type == role.instance_type;
        // `--partition` may be a list.
        let serves = |list: &String| list.split(',').any(|one| group.queues.iter().any(|name| name == one));
        of_type && queue.is_none_or(serves)
    };
    let known = role.instance_type.is_some() || queue.is_some();
    facts.nodes.iter().filter(|group| known && fits(group)).collect()
}

/// Returns why a role gets whole nodes; none if it shares them.
pub fn whole_nodes(draft: &RenderInput<'_>, index: usize) -> Option<&'static str> {
    let (Some(role), Some(fabric)) = (draft.workers.get(index), draft.fabric.get(index)) else {
        return None;
    };
    match draft.own.exclusive {
        Some(true) => return Some("`exclusive` is set"),
        Some(false) => return None,
        None if fabric.whole_nodes.is_some() || draft.uses_rdma() => {
            return Some("the devices of the fabric belong to whole nodes");
        }
        None => {}
    }
    let neuron = role.resources.get("aws.amazon.com/neuron").and_then(|amount| amount.parse().ok());
    let requested = neuron.unwrap_or(role.gpus_per_node);
    let name = role.instance_type.as_deref().or(fabric.constraint.as_deref()).unwrap_or_default();
    let row = Catalogue::builtin().get(name).map(|row| row.accelerators);
    let count =
        |group: &NodeGroup| group.allocatable.get("nvidia.com/gpu").and_then(|count| count.parse().ok());
    let most = row.or_else(|| nodes_of(draft, role).into_iter().filter_map(count).max())?;
    // A job of one GPU is an ordinary Slurm job, even on nodes with one GPU.
    let single = role.nodes == 1 && requested <= 1 && draft.workers.len() == 1;
    (requested > 0 && requested >= most && !single).then_some("all GPUs of each node are requested")
}

/// Returns whether the role's accelerators are a `gpu` GRES; Trainium and Inferentia are not.
fn has_gpu_gres(role: &Role) -> bool {
    !role.instance_type.as_deref().is_some_and(|name| name.starts_with("trn") || name.starts_with("inf"))
}

/// Returns the CPUs of a task. Without `cpus`, the one task of a whole node gets all of them; several tasks
/// share them, since an equal part for each would bind them away from their GPUs on nodes with several
/// sockets.
fn cpus_per_task(draft: &RenderInput<'_>, role: &Role, tasks: u32, exclusive: bool) -> Result<Option<u64>> {
    if let Some(cpus) = &role.cpus {
        let cpus = Quantity::parse(cpus).ok_or_else(|| bad_quantity("cpus", cpus))?.whole();
        return Ok(Some((cpus / u64::from(tasks.max(1))).max(1)));
    }
    let is_one_task = tasks == 1 && draft.job.spec.launch != Launch::Once;
    let groups = nodes_of(draft, role).into_iter().filter(|_| exclusive && is_one_task);
    Ok(groups.filter_map(|group| group.allocatable.get("cpu")?.parse::<u64>().ok()).min())
}

fn mebibytes(text: &str) -> Result<u64> {
    let quantity = Quantity::parse(text).ok_or_else(|| bad_quantity("memory", text))?;
    Ok(quantity.whole().div_ceil(1 << 20))
}

fn bad_quantity(name: &str, text: &str) -> Error {
    Error::new(ErrorKind::InvalidSpec, format!("`{name}` is not a quantity"))
        .with("value", text.escape_debug())
        .hint("write it as `96`, `500m`, `64Gi`")
}

/// Parses `--name=value` or `--name` of the user.
pub fn further(text: &str) -> Result<Directive> {
    option("sbatch", Program::Sbatch, text)
}

/// Checks an option of srun: srun would take a word that is not an option for the program.
pub fn of_srun(text: &str) -> Result<()> {
    option("srun", Program::Srun, text).map(drop)
}

fn option(key: &str, program: Program, text: &str) -> Result<Directive> {
    let bad =
        |message: String| Error::new(ErrorKind::InvalidSpec, message).with("value", text.escape_debug());
    let body = text.strip_prefix("--").filter(|body| body.starts_with(|c: char| c.is_ascii_alphabetic()));
    body.ok_or_else(|| bad(format!("`{key}` takes options of the form `--name=value`")))?;
    let (options, _) = Directives::read(program, &[text.to_owned()]);
    let option = options.iter().next().cloned().ok_or_else(|| bad(format!("not an option of {key}")))?;
    if option.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Ok(option);
    }
    Err(bad(format!("not an option of {key}")))
}

/// Formats seconds as `D-HH:MM:SS`.
pub fn time(seconds: u64) -> String {
    format!("{}-{:02}:{:02}:{:02}", seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// Returns a value for an `#SBATCH` line. sbatch parses these lines itself, not the shell: double quotes keep
/// blanks and `#`, a backslash keeps the next byte (source: `_get_next_opt`, slurm 22.05 `src/sbatch/opt.c`).
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for control characters, which end the line or corrupt Slurm's own output.
fn directive(name: &str, text: &str) -> Result<String> {
    if text.chars().any(char::is_control) {
        return Err(Error::new(ErrorKind::InvalidSpec, format!("`{name}` may not hold control characters"))
            .with("value", text.escape_debug()));
    }
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,&|*[]()~!<>^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_option_can_carry_is_refused() {
        assert_eq!(directive("account", "a\nb").expect_err("newline").kind(), ErrorKind::InvalidSpec);
        assert_eq!(directive("comment", "a \"b\" #c").expect("fits"), r#""a \"b\" #c""#);
    }
}
