//! Containers: `docker`, `podman` or `apptainer` around the process of a host.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use weftrun_core::spec::{Launch, Role, Volume};
use weftrun_core::{Error, Result};

use super::{BACKEND, INTERFACE, Renderer};
use crate::hosts::config::Container;
use crate::remote::{quote, script};

/// The variables that the supervisor sets for each process; docker and podman pass on only the named ones.
const NUMBERS: &[&str] = &[
    "WEFTRUN_SUBMISSION",
    "WEFTRUN_PROCESS",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NNODES",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
    "RANK",
    "LOCAL_RANK",
    "ROLE_NAME",
    "ROLE_RANK",
    "PYTHONUNBUFFERED",
];

/// What a rank needs to connect to the Open MPI that started it: its variables, its processes, its folder
/// (<https://podman.io/blogs/2019/09/26/podman-in-hpc.html>).
const MPI: &str = " --pid host -v /tmp:/tmp $(env | sed -n 's/^\\(OMPI_[A-Za-z0-9_]*\\)=.*/-e \\1/p; s/^\\(PMIX_[A-Za-z0-9_]*\\)=.*/-e \\1/p')";

pub fn program(kind: Container) -> &'static str {
    match kind {
        Container::Podman => "podman",
        Container::Apptainer => "apptainer",
        Container::Docker | Container::None => "docker",
    }
}

/// Returns the lines that fetch the images that a host does not have. Their progress is in the host's log.
pub fn pulls(renderer: &Renderer<'_>) -> Result<String> {
    let mut lines = BTreeSet::new();
    for role in &renderer.workers {
        let Some(kind) = super::container_of(renderer.job, &renderer.own, role) else { continue };
        let image = image(renderer, role)?;
        let program = program(kind);
        // Apptainer keeps images of registries in its own cache, and fetches them when it starts.
        if kind != Container::Apptainer {
            lines.insert(format!(
                "{program} image inspect {image} > /dev/null 2>&1 || {program} pull {image} || return 1\n"
            ));
        }
    }
    Ok(lines.into_iter().collect())
}

fn image(renderer: &Renderer<'_>, role: &Role) -> Result<String> {
    quote::word(script::image(renderer.spec(), role)?.unwrap_or_default())
}

/// Returns the functions that reach into the job's containers and end them, where docker or podman starts them.
pub fn functions(renderer: &Renderer<'_>) -> String {
    let kinds =
        renderer.workers.iter().filter_map(|role| super::container_of(renderer.job, &renderer.own, role));
    let Some(kind) = kinds.into_iter().find(|kind| *kind != Container::Apptainer) else {
        return String::new();
    };
    let (program, id) = (program(kind), &renderer.job.submission);
    // Podman's are children of ours, which signals reach; those of docker's daemon belong to root.
    let pause = match kind {
        Container::Docker => {
            "weftrun_pause_containers() {\nfor c in $(weftrun_containers --filter status=$1); do docker $2 \"$c\"; done > /dev/null 2>&1\n}\n"
        }
        _ => "",
    };
    format!(
        "# For `weftrun exec`, and for containers that outlive the program that started them.\n\
         weftrun_contained() {{\nname=weftrun-$1-$WEFTRUN_PROCESS; shift\nexec $weftrun_session {program} exec $weftrun_input \"$name\" \"$@\"\n}}\n\
         weftrun_containers() {{\n{}$limit {program} ps -q --filter name=weftrun-{id} \"$@\" 2> /dev/null\n}}\n\
         weftrun_kill_containers() {{\nfor c in $(weftrun_containers); do {program} kill \"$c\"; done > /dev/null 2>&1\n}}\n{pause}\n",
        quote::limit(10)
    )
}

/// Returns the error of a volume that is no folder.
pub fn no_claims(volume: &Volume) -> Error {
    Error::unsupported(BACKEND, "volumes of this kind")
        .with("volume", &volume.name)
        .hint("name a folder of the hosts instead")
}

/// Returns the lines that become the container.
pub fn run(
    renderer: &Renderer<'_>,
    index: usize,
    role: &Role,
    kind: Container,
    words: &str,
) -> Result<String> {
    let mounts = script::mounts(renderer.spec(), renderer.fabric.get(index), no_claims)?;
    let flag = if kind == Container::Apptainer { "--bind" } else { "-v" };
    let mut options = String::new();
    for (from, to, read_only) in &mounts {
        let mount = format!("{from}:{to}{}", if *read_only { ":ro" } else { "" });
        let _ = write!(options, " {flag} {}", quote::word(&mount)?);
    }
    let own = [("code", renderer.spec().code.is_some()), ("nccl", script::brings_library(renderer.job))];
    for (folder, _) in own.into_iter().filter(|(_, there)| *there) {
        let _ = write!(options, " {flag} \"$PWD/{folder}:$PWD/{folder}\"");
    }
    let folder = renderer.work_folder("\"$PWD/code\"")?;
    let folder_flag = if kind == Container::Apptainer { "--pwd" } else { "-w" };
    if let Some(folder) = folder {
        let _ = write!(options, " {folder_flag} {folder}");
    }
    let more = quote::words(&renderer.own.container_args)?;
    let more = if more.is_empty() { more } else { format!(" {more}") };
    let image = image(renderer, role)?;
    if kind == Container::Apptainer {
        let is_file = image.contains("://") || image.starts_with(['/', '.', '\'']);
        let image = if is_file { image } else { format!("docker://{image}") };
        let gpus = if role.gpus_per_node > 0 { " --nv" } else { "" };
        return Ok(format!("exec apptainer exec{gpus}{options}{more} {image}{words}\n"));
    }
    let interface: &[&str] = if renderer.own.interface.is_some() { &INTERFACE } else { &[] };
    let own = [NUMBERS, interface].concat();
    let mut names = script::variables(renderer.spec(), role, renderer.fabric.get(index), &own)?;
    names.sort_unstable();
    for name in names {
        let _ = write!(options, " -e {name}");
    }
    if renderer.spec().launch == Launch::Mpi {
        options.push_str(MPI);
    }
    let devices = devices(renderer, role, kind);
    let program = program(kind);
    Ok(format!(
        "exec {program} run --rm --name \"weftrun-$WEFTRUN_SUBMISSION-$WEFTRUN_PROCESS\"{devices}{options}{more} {image}{words}\n"
    ))
}

/// Returns the options with which a container sees the host's network, GPUs and RDMA devices, and may pin memory.
fn devices(renderer: &Renderer<'_>, role: &Role, kind: Container) -> String {
    let mut options = String::from(" --network host --ipc host");
    match kind {
        // Without root, no limit can be raised above the host's own, and a device belongs to a group of the host.
        Container::Podman => {
            options.push_str(" --ulimit host --group-add keep-groups");
            if role.gpus_per_node > 0 {
                options.push_str(" --device nvidia.com/gpu=all");
            }
        }
        _ => {
            options.push_str(" --uts host --ulimit memlock=-1 --ulimit stack=67108864");
            if role.gpus_per_node > 0 {
                options.push_str(" --gpus all");
            }
        }
    }
    if renderer.uses_rdma() {
        options.push_str(" --device /dev/infiniband");
    }
    options
}
