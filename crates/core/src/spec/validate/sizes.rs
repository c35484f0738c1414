//! Checks the request to a node against its capacity.

use super::names::bad_key;
use super::{Findings, shown};
use crate::catalogue::{Catalogue, InstanceType};
use crate::spec::file::join;
use crate::spec::{JobSpec, Role, RoleKind, VolumeSource};
use crate::text::Quantity;

/// Resource name of accelerators, which have a separate key.
const GPU: &str = "nvidia.com/gpu";

pub(super) fn check(job: &JobSpec, catalogue: &Catalogue, out: &mut Findings) {
    for role in &job.roles {
        let path = join("roles", &role.name);
        quantities(role, &path, out);
        if let Some(name) = &role.instance_type {
            match catalogue.get(name) {
                Some(row) => against(role, row, &path, out),
                None => unknown(name, catalogue, &path, out),
            }
        }
    }
    for volume in &job.volumes {
        if let VolumeSource::Memory { size: Some(size) } = &volume.source {
            bytes(size, &format!("{}.memory", join("volumes", &volume.name)), out);
        }
    }
}

fn unknown(name: &str, catalogue: &Catalogue, path: &str, out: &mut Findings) {
    let path = format!("{path}.instance_type");
    if name.is_empty() || name.contains(|c: char| c.is_control()) {
        return out
            .error("SPEC-INSTANCE", &path, "the instance type has no name")
            .fix("`weftrun instances` lists them");
    }
    let message =
        format!("instance type `{}` is not known: its GPUs and fabric cannot be checked", shown(name));
    let last = out.warning("SPEC-INSTANCE", &path, message);
    match catalogue.nearest(name) {
        Some(near) => last.fix(format!("did you mean `{near}`?")),
        None => last.fix(
            "`weftrun instances` lists those that are known; the config file's `[instances]` adds your own",
        ),
    }
}

/// Code and message of a /dev/shm above the memory limit. Kubernetes starts such a pod, and ends it when it writes that much
/// (Kubernetes documentation, Volumes, emptyDir: "memory backed volumes count against the memory limit").
pub const SHM_OVER_MEMORY: (&str, &str) = (
    "SPEC-SHM",
    "/dev/shm counts as memory of the container, and this one is larger than all its memory: a rank that fills it is killed",
);

fn quantities(role: &Role, path: &str, out: &mut Findings) {
    if let Some(cpus) = &role.cpus {
        let path = format!("{path}.cpus");
        if quantity(cpus, &path, out).is_some_and(Quantity::is_zero) {
            out.error("SPEC-QUANTITY", &path, "no CPU at all: nothing would run")
                .fix("leave it out, or name the CPUs of a node");
        }
    }
    let memory = role.memory.as_ref().and_then(|text| bytes(text, &format!("{path}.memory"), out));
    let shm = role.shm.as_ref().and_then(|text| bytes(text, &format!("{path}.shm"), out));
    if let (Some(memory), Some(shm)) = (memory, shm)
        && shm > memory
    {
        out.warning(SHM_OVER_MEMORY.0, &format!("{path}.shm"), SHM_OVER_MEMORY.1)
            .fix("raise `memory`, or lower `shm`");
    }
    for (name, text) in &role.resources {
        let path = join(&format!("{path}.resources"), name);
        let Some(amount) = quantity(text, &path, out) else { continue };
        if let Some(why) = bad_key(name) {
            let message = format!("`{}` is not the name of a resource: {why}", shown(name));
            out.error("SPEC-RESOURCE", &path, message)
                .fix("a resource is `name` or `domain/name`, as `kubectl describe node` lists it");
        } else if name == GPU {
            out.error("SPEC-GPU", &path, format!("`{GPU}` is requested by `gpus_per_node`"))
                .fix("set `gpus_per_node`");
        } else if name.contains('/') && amount.is_fraction() {
            let message = format!("`{name}` counts devices, and `{}` is not a whole number", shown(text));
            out.error("SPEC-QUANTITY", &path, message);
        }
    }
}

/// Reads a quantity from a builder or a merged file; one from a file alone was checked when it was read.
fn quantity(text: &str, path: &str, out: &mut Findings) -> Option<Quantity> {
    match Quantity::read(text) {
        Ok(amount) if amount.is_negative() => {
            out.error("SPEC-QUANTITY", path, format!("`{}` is less than nothing", shown(text)));
            None
        }
        Ok(amount) => Some(amount),
        Err(error) => {
            let last = out.error("SPEC-QUANTITY", path, error.to_string());
            match error.meant() {
                [] => last
                    .fix("a quantity is a number with a suffix such as `Mi`, `Gi`, `Ti`, `M`, `G` or none"),
                meant => last.fix(format!("did you mean `{}`?", meant.join("` or `"))),
            }
            None
        }
    }
}

/// Reads a quantity of bytes. `512m` is half a byte, and always a mistake.
fn bytes(text: &str, path: &str, out: &mut Findings) -> Option<Quantity> {
    let amount = quantity(text, path, out)?;
    if let Some(number) = text.strip_suffix('m') {
        out.error("SPEC-QUANTITY", path, format!("`{}` is thousandths of a byte", shown(text)))
            .fix(format!("did you mean `{number}M` or `{number}Mi`?"));
        return None;
    }
    if amount.is_zero() {
        out.error("SPEC-QUANTITY", path, "a size of nothing").fix("leave it out, or name a size");
        return None;
    }
    if amount < Quantity::mib(1) && amount.whole() < 1 << 20 {
        out.warning("SPEC-QUANTITY", path, format!("`{}` is less than a mebibyte", shown(text)))
            .fix(format!("did you mean `{}Gi`?", shown(text)));
    }
    Some(amount)
}

fn against(role: &Role, row: &InstanceType, path: &str, out: &mut Findings) {
    let name = &row.name;
    if role.gpus_per_node > row.accelerators {
        let message = format!(
            "{} GPUs per node are requested, but a {name} has {}",
            role.gpus_per_node, row.accelerators
        );
        out.error("SPEC-GPU", &format!("{path}.gpus_per_node"), message)
            .fix(format!("request at most {}, on more nodes", row.accelerators));
    } else if role.kind == RoleKind::Worker
        && role.gpus_per_node == 0
        && row.accelerators > 0
        && !role.resources.keys().any(|name| name.starts_with("aws.amazon.com/neuron"))
    {
        let message = format!("no GPU is requested, although a {name} has {}", row.accelerators);
        out.warning("SPEC-GPU", &format!("{path}.instance_type"), message)
            .fix(format!("set `gpus_per_node = {}`", row.accelerators));
    }
    let read = |text: &Option<String>| text.as_deref().and_then(Quantity::parse);
    let mut more = |key: &str, asked: Option<Quantity>, has: Option<Quantity>, shown: String| {
        if asked.zip(has).is_some_and(|(asked, has)| asked > has) {
            let message = format!("more {key} is requested than a {name} has ({shown})");
            out.error("SPEC-TOO-MUCH", &format!("{path}.{key}"), message)
                .fix("Kubernetes can give a little less than the instance has: leave some to the node");
        }
    };
    let vcpus = row.vcpus.filter(|_| !row.is_unsure("vcpus"));
    more(
        "cpus",
        read(&role.cpus),
        vcpus.map(|n| Quantity::units(n.into())),
        format!("{}", vcpus.unwrap_or(0)),
    );
    let memory = row.memory_mib.filter(|_| !row.is_unsure("memory_mib"));
    more("memory", read(&role.memory), memory.map(Quantity::mib), format!("{}Mi", memory.unwrap_or(0)));
    if let (Some(asked), Some(most)) = (role.resources.get("vpc.amazonaws.com/efa"), row.efa_max)
        && Quantity::parse(asked).is_some_and(|asked| asked > Quantity::units(most.into()))
    {
        let message =
            format!("{} EFA interfaces exceed the instance's capacity: a {name} has {most}", shown(asked));
        out.error("SPEC-TOO-MUCH", &join(&format!("{path}.resources"), "vpc.amazonaws.com/efa"), message)
            .fix("leave it out: the plan requests what the instance has");
    }
}
