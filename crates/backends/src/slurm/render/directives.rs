//! The `#SBATCH` lines.

use weftrun_core::backend::NodeGroup;
use weftrun_core::catalogue::Catalogue;
use weftrun_core::spec::Role;
use weftrun_core::text::Quantity;
use weftrun_core::{Error, ErrorKind, Result};

use super::Draft;
use crate::slurm::quote;
use crate::slurm::records::Marker;

/// An option with its value.
type Line = (String, Option<String>);

/// All lines, components of a heterogeneous job one after the other.
pub fn write(draft: &Draft<'_>) -> Result<String> {
    let mut text = String::new();
    for line in of_job(draft)? {
        push(&mut text, &line)?;
    }
    for index in 0..draft.workers.len() {
        if index > 0 {
            text.push_str("#SBATCH hetjob\n");
        }
        for line in of_role(draft, index)? {
            push(&mut text, &line)?;
        }
    }
    Ok(text)
}

fn push(text: &mut String, (name, value): &Line) -> Result<()> {
    match value {
        None => text.push_str(&format!("#SBATCH --{name}\n")),
        Some(value) => text.push_str(&format!("#SBATCH --{name}={}\n", quote::directive(name, value)?)),
    }
    Ok(())
}

fn of_job(draft: &Draft<'_>) -> Result<Vec<Line>> {
    let (spec, own) = (&draft.job.spec, &draft.own);
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |name: &str, value: String| lines.push((name.to_owned(), Some(value)));
    add("job-name", spec.name.clone());
    let fabric =
        serde_json::to_value(draft.job.plan.fabric).ok().and_then(|word| word.as_str().map(str::to_owned));
    let marker = Marker {
        submission: draft.job.submission.clone(),
        fabric: fabric.unwrap_or_else(|| "off".to_owned()),
    };
    add("comment", marker.text());
    if let Some(account) = &own.account {
        add("account", account.clone());
    }
    if let Some(qos) = spec.priority.as_ref().or(own.qos.as_ref()) {
        add("qos", qos.clone());
    }
    if let Some(limit) = spec.time_limit {
        add("time", time(limit.as_secs()));
    }
    for (name, value) in [
        ("array", &own.array),
        ("dependency", &own.dependency),
        ("begin", &own.begin),
        ("signal", &own.signal),
    ] {
        if let Some(value) = value {
            add(name, value.clone());
        }
    }
    if own.dependency.is_some() {
        // Else a job whose dependency failed waits for ever.
        add("kill-on-invalid-dep", "yes".to_owned());
    }
    add("output", format!("{}/{}.log", draft.settings.log_dir.trim_end_matches('/'), draft.log_name()));
    // A requeued job writes on behind what its first life wrote.
    add("open-mode", "append".to_owned());
    lines.push(((if draft.requeues() { "requeue" } else { "no-requeue" }).to_owned(), None));
    if own.export.as_deref() == Some("none") {
        lines.push(("export".to_owned(), Some("NONE".to_owned())));
    }
    for option in &own.sbatch {
        lines.push(further(option)?);
    }
    Ok(lines)
}

fn of_role(draft: &Draft<'_>, index: usize) -> Result<Vec<Line>> {
    let (Some(role), Some(fabric)) = (draft.workers.get(index), draft.fabric.get(index)) else {
        return Ok(Vec::new());
    };
    let own = &draft.own;
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |name: &str, value: String| lines.push((name.to_owned(), Some(value)));
    let partition = draft.job.spec.queue.as_ref().or(own.partition.as_ref()).cloned();
    if let Some(partition) = partition.or_else(|| partition_of(draft, role)) {
        add("partition", partition);
    }
    if let Some(reservation) = &own.reservation {
        add("reservation", reservation.clone());
    }
    add("nodes", role.nodes.to_string());
    let tasks = super::launch::tasks_per_node(draft, role);
    add("ntasks-per-node", tasks.to_string());
    let exclusive = is_exclusive(draft, index);
    if role.gpus_per_node > 0 && has_gpu_gres(role) {
        add("gpus-per-node", role.gpus_per_node.to_string());
    }
    let constraint =
        own.constraint.clone().or_else(|| role.instance_type.clone()).or_else(|| fabric.constraint.clone());
    if let Some(constraint) = constraint {
        add("constraint", constraint);
    }
    match (&role.memory, exclusive) {
        (Some(memory), _) => add("mem", format!("{}M", mebibytes(memory)?)),
        // All of the node's memory: DefMemPerCPU would give a share of it.
        (None, true) => add("mem", "0".to_owned()),
        (None, false) => {}
    }
    if let Some(cpus) = cpus_per_task(draft, role, tasks, exclusive)? {
        add("cpus-per-task", cpus.to_string());
    }
    if fabric.one_switch.is_some() {
        add("switches", "1".to_owned());
    }
    if exclusive {
        lines.push(("exclusive".to_owned(), None));
    }
    Ok(lines)
}

/// The first partition that has the instance type, where the default one has not.
fn partition_of(draft: &Draft<'_>, role: &Role) -> Option<String> {
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

/// The nodes a role will stand on, as far as the cluster was asked: of its type, in its partition.
fn nodes_of<'f>(draft: &'f Draft<'_>, role: &Role) -> Vec<&'f NodeGroup> {
    let facts = &draft.job.facts;
    let queue = draft.job.spec.queue.as_ref().or(draft.own.partition.as_ref());
    let fits = |group: &&NodeGroup| {
        let of_type = role.instance_type.is_none() || group.instance_type == role.instance_type;
        of_type && queue.is_none_or(|queue| group.queues.contains(queue))
    };
    let known = role.instance_type.is_some() || queue.is_some();
    facts.nodes.iter().filter(|group| known && fits(group)).collect()
}

/// Whole nodes: as said, or since EFA and the like go with the node, or since all its accelerators are asked.
pub fn is_exclusive(draft: &Draft<'_>, index: usize) -> bool {
    let (Some(role), Some(fabric)) = (draft.workers.get(index), draft.fabric.get(index)) else {
        return false;
    };
    let neuron = role.resources.get("aws.amazon.com/neuron").and_then(|amount| amount.parse().ok());
    let asked = neuron.unwrap_or(role.gpus_per_node);
    let all_accelerators = || {
        let name = role.instance_type.as_deref().or(fabric.constraint.as_deref()).unwrap_or_default();
        let row = Catalogue::builtin().get(name).map(|row| row.accelerators);
        let count =
            |group: &NodeGroup| group.allocatable.get("nvidia.com/gpu").and_then(|count| count.parse().ok());
        let most = row.or_else(|| nodes_of(draft, role).into_iter().filter_map(count).max());
        asked > 0 && most.is_some_and(|most| asked >= most)
    };
    draft
        .own
        .exclusive
        .unwrap_or_else(|| fabric.whole_nodes.is_some() || draft.uses_rdma() || all_accelerators())
}

/// Trainium and Inferentia are no `gpu` GRES.
fn has_gpu_gres(role: &Role) -> bool {
    !role.instance_type.as_deref().is_some_and(|name| name.starts_with("trn") || name.starts_with("inf"))
}

/// CPUs of a task: srun binds a task to one CPU unless it is told (since 22.05 it does not inherit the job's).
fn cpus_per_task(draft: &Draft<'_>, role: &Role, tasks: u32, exclusive: bool) -> Result<Option<u64>> {
    let share = |cpus: u64| (cpus / u64::from(tasks.max(1))).max(1);
    if let Some(cpus) = &role.cpus {
        return Ok(Some(share(Quantity::parse(cpus).ok_or_else(|| bad_quantity("cpus", cpus))?.whole())));
    }
    let groups = nodes_of(draft, role).into_iter().filter(|_| exclusive);
    Ok(groups.filter_map(|group| group.allocatable.get("cpu")?.parse::<u64>().ok()).min().map(share))
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

/// `--name=value` or `--name`, from the user.
fn further(option: &str) -> Result<Line> {
    let body = option.strip_prefix("--").filter(|body| body.starts_with(|c: char| c.is_ascii_alphabetic()));
    let body = body.ok_or_else(|| {
        Error::new(ErrorKind::InvalidSpec, "`sbatch` takes options of the form `--name=value`")
            .with("value", option.escape_debug())
    })?;
    Ok(match body.split_once('=') {
        Some((name, value)) => (plain_option(name)?, Some(value.to_owned())),
        None => (plain_option(body)?, None),
    })
}

fn plain_option(name: &str) -> Result<String> {
    if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Ok(name.to_owned());
    }
    Err(Error::new(ErrorKind::InvalidSpec, "not an option of sbatch").with("value", name.escape_debug()))
}

/// `D-HH:MM:SS`.
pub fn time(seconds: u64) -> String {
    format!("{}-{:02}:{:02}:{:02}", seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}
