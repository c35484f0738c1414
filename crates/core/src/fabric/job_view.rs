//! A job file as the rules see it.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::catalogue::Catalogue;
use crate::fabric::node::Node;
use crate::fabric::view::{
    Annotation, ContainerView, EnvView, JobKind, JobView, MountView, Mpi, RoleView, VolumeView,
};
use crate::fabric::{ClusterFacts, Profile};
use crate::request::Fabric;
use crate::spec::{Code, JobSpec, Launch, Role, RoleKind, VolumeSource};

/// The resource of a job file's `gpus_per_node`.
const GPUS: &str = "nvidia.com/gpu";

/// Makes the view of a job file. A job with `launch = "mpi"` has a launcher, whether or not it names one.
pub(super) fn of(spec: &JobSpec) -> JobView {
    let has_launcher = spec.roles.iter().any(|role| role.kind == RoleKind::Launcher);
    let by_mpi = spec.launch == Launch::Mpi;
    let mut roles: Vec<RoleView> = spec.roles.iter().map(|role| role_view(spec, role)).collect();
    if by_mpi && !has_launcher {
        roles.push(role_view(spec, &Role::launcher()));
    }
    // The workers' own command counts first, as the backends read it.
    let by_role = |kind| spec.roles.iter().find(|role| role.kind == kind && !role.command.is_empty());
    let program = by_role(RoleKind::Worker).or_else(|| by_role(RoleKind::Launcher)).filter(|_| by_mpi);
    JobView {
        kind: JobKind::JobFile,
        program: program.map(|role| role.command.clone()).unwrap_or_default(),
        name: spec.name.clone(),
        namespace: None,
        queue: spec.queue.clone(),
        annotations: texts(&spec.annotations),
        labels: spec.labels.clone(),
        roles,
        mpi: if by_mpi || has_launcher { Some(Mpi::OpenMpi) } else { None },
        devices_go_to_launcher: false,
    }
}

/// Gives workers on exclusive nodes of Slurm all GPUs of their nodes: `--exclusive` allocates all GRES (sbatch(1)).
/// Without a fabric the number is of no use.
pub(super) fn whole_nodes(
    job: &mut JobView,
    spec: &JobSpec,
    profile: &Profile,
    catalogue: &Catalogue,
    facts: &ClusterFacts,
) {
    let exclusive = spec.backend.get("slurm").and_then(|own| own.get("exclusive")) == Some(&Json::Bool(true));
    let fabric = spec.fabric.kind.named().unwrap_or(profile.fabric);
    if !exclusive || fabric == Fabric::Auto {
        return;
    }
    for role in job.roles.iter_mut().filter(|role| role.worker) {
        let node = Node::of(role, job.queue.as_deref(), profile, &spec.fabric, catalogue, facts);
        if role.accelerators(&profile.accelerator) < node.accelerators {
            role.container.limits.insert(GPUS.to_owned(), node.accelerators.to_string());
        }
    }
}

fn role_view(spec: &JobSpec, role: &Role) -> RoleView {
    let launcher = role.kind == RoleKind::Launcher;
    RoleView {
        name: role.name.clone(),
        worker: !launcher,
        launcher,
        replicas: role.nodes,
        instance_types: role.instance_type.iter().cloned().collect(),
        volumes: spec.volumes.iter().map(volume_view).collect(),
        container: container_view(spec, role),
        ..RoleView::default()
    }
}

fn container_view(spec: &JobSpec, role: &Role) -> ContainerView {
    let mut asked: BTreeMap<String, String> = role.resources.clone();
    if role.gpus_per_node > 0 {
        asked.entry(GPUS.to_owned()).or_insert_with(|| role.gpus_per_node.to_string());
    }
    for (name, quantity) in [("cpu", &role.cpus), ("memory", &role.memory)] {
        if let Some(quantity) = quantity {
            asked.insert(name.to_owned(), quantity.clone());
        }
    }
    let variable = |name: &String, value: Option<&String>| EnvView {
        name: name.clone(),
        value: value.cloned(),
        at: String::new(),
    };
    let setup = setup_exports(spec);
    let is_set = |name: &String| spec.env.iter().chain(&role.env).any(|var| var.name == *name);
    let of_setup =
        setup.iter().filter(|(name, _)| !is_set(name)).map(|(name, value)| variable(name, value.as_ref()));
    let own = spec.env.iter().chain(&role.env).map(|var| variable(&var.name, Some(&var.value)));
    let secrets = spec.secrets.iter().map(|secret| variable(&secret.env, None));
    let command =
        if spec.launch == Launch::Mpi && role.kind == RoleKind::Launcher { &[][..] } else { &role.command };
    ContainerView {
        name: role.name.clone(),
        image: role.image.clone().or_else(|| spec.image.clone()),
        command: command.to_vec(),
        env: own.chain(of_setup).chain(secrets).collect(),
        starts_containers: starts_containers(spec, role),
        limits: asked.clone(),
        requests: asked,
        mounts: spec
            .volumes
            .iter()
            .map(|volume| MountView { volume: volume.name.clone(), path: volume.mount.clone() })
            .collect(),
        ..ContainerView::default()
    }
}

/// Returns the settings of the backends that run the job's own shell lines.
fn of_scripts<'a>(spec: &'a JobSpec, key: &'a str) -> impl Iterator<Item = &'a str> {
    let own =
        ["slurm", "hosts", "local"].into_iter().filter_map(move |name| spec.backend.get(name)?.get(key));
    own.filter_map(Json::as_array).flatten().filter_map(Json::as_str)
}

/// Returns the variables that `setup` exports, with their values where the shell expands nothing in them. They are the user's:
/// a value set after them would replace them. What is set of LD_LIBRARY_PATH goes before the value of `setup`.
fn setup_exports(spec: &JobSpec) -> BTreeMap<String, Option<String>> {
    let lines: Vec<&str> = of_scripts(spec, "setup").collect();
    let commands = crate::shell::commands(&lines.join("\n")).unwrap_or_default();
    let mut found = BTreeMap::new();
    for command in commands {
        let words = command.words.get(command.program..).unwrap_or_default();
        let exported = match words {
            [program, rest @ ..] if program == "export" => rest,
            [program, option, rest @ ..]
                if matches!(program.as_str(), "declare" | "typeset") && option == "-x" =>
            {
                rest
            }
            _ => continue,
        };
        for word in exported {
            let (name, value) =
                word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            if crate::shell::is_variable(name) && name != "LD_LIBRARY_PATH" {
                let plain = value.filter(|value| !value.contains(['$', '`', '\\']));
                let plain = plain.map(|value| value.replace(['"', '\''], ""));
                found.insert(name.to_owned(), plain);
            }
        }
    }
    found
}

/// Returns whether the job's own command, script or options start a container.
fn starts_containers(spec: &JobSpec, role: &Role) -> bool {
    const STARTS: [&str; 9] = [
        "--container-image",
        "singularity exec",
        "singularity run",
        "apptainer exec",
        "apptainer run",
        "docker run",
        "podman run",
        "enroot start",
        "podman-hpc run",
    ];
    let script = match &spec.code {
        Some(Code::Script { text, .. }) => text.as_str(),
        _ => "",
    };
    let command = role.command.join(" ");
    let options = ["sbatch", "srun", "setup"].into_iter().flat_map(|key| of_scripts(spec, key));
    let mut lines =
        script.lines().map(crate::shell::without_comment).chain(options).chain([command.as_str()]);
    lines.any(|line| STARTS.iter().any(|start| line.contains(start)))
}

fn volume_view(volume: &crate::spec::Volume) -> VolumeView {
    let host_path = match &volume.source {
        VolumeSource::HostPath(path) => Some(path.clone()),
        VolumeSource::Memory { .. } | VolumeSource::Claim(_) => None,
    };
    let memory = match &volume.source {
        VolumeSource::Memory { size } => size.clone(),
        VolumeSource::HostPath(_) | VolumeSource::Claim(_) => None,
    };
    VolumeView { name: volume.name.clone(), at: String::new(), host_path, memory }
}

fn texts(annotations: &BTreeMap<String, String>) -> BTreeMap<String, Annotation> {
    annotations.iter().map(|(key, value)| (key.clone(), Annotation::Text(value.clone()))).collect()
}
