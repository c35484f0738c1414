//! The same job on bare hosts with Docker: commands to read and to run, host by host.
//!
//! After VMware's guide for NVIDIA AI Enterprise, "Multi-Node Training" (2022): the host's network and IPC, unlimited
//! locked memory, /dev/infiniband, and ranks started by Open MPI over ssh into containers that share one key.

use std::fmt::Write as _;

use super::{Fabric, FabricPlan};
use crate::mutation::{Change, Op};
use crate::spec::{JobSpec, Launch, Role, VolumeSource};

/// Folder of the hosts with the containers' ssh key, mounted as /root/.ssh.
const SSH_FOLDER: &str = "$HOME/.ssh/ssh_container";

/// The commands, as one shell text with comments. Hosts stand as `$HOST0`, `$HOST1`, …, set in its first lines.
pub fn docker(spec: &JobSpec, plan: &FabricPlan) -> String {
    let Some(worker) = spec.workers().next() else { return "# the job has no worker\n".to_owned() };
    let nodes = spec.nodes().max(1);
    let mut text = header(spec, plan, nodes);
    let run = run_command(spec, plan, worker);
    match spec.launch {
        Launch::Mpi | Launch::PerRank => by_mpirun(&mut text, spec, plan, worker, &run, nodes),
        Launch::Torchrun | Launch::PerNode => on_each_host(&mut text, spec, plan, worker, &run, nodes),
    }
    left_out(&mut text, plan);
    text
}

fn header(spec: &JobSpec, plan: &FabricPlan, nodes: u32) -> String {
    let mut text =
        format!("# {} on {nodes} hosts with Docker, fabric {}. Name the hosts:\n", spec.name, plan.fabric);
    for index in 0..nodes {
        let _ = writeln!(text, "HOST{index}=host{index}");
    }
    text
}

/// `docker run` with everything but how it is held and what it runs.
fn run_command(spec: &JobSpec, plan: &FabricPlan, worker: &Role) -> String {
    let mut words: Vec<String> = [
        "--gpus=all",
        "--net=host",
        "--uts=host",
        "--ipc=host",
        "--ulimit memlock=-1",
        "--ulimit stack=67108864",
    ]
    .map(str::to_owned)
    .to_vec();
    words.push(format!("--shm-size={}", docker_size(worker.shm.as_deref().unwrap_or("1Gi"))));
    if matches!(plan.fabric, Fabric::Efa | Fabric::Roce | Fabric::InfiniBand) {
        words.push("--device=/dev/infiniband".to_owned());
    }
    words.extend(mounts(spec, plan, worker));
    words.extend(
        environment(spec, plan, worker).map(|(name, value)| quoted(&format!("--env={name}={value}"))),
    );
    words.extend(spec.secrets.iter().map(|secret| format!("--env={}", secret.env)));
    words.extend(spec.workdir.iter().map(|folder| quoted(&format!("--workdir={folder}"))));
    let image = worker.image.as_ref().or(spec.image.as_ref()).map_or("IMAGE", String::as_str);
    words.push(quoted(image));
    words.join(" \\\n  ")
}

fn mounts<'a>(
    spec: &'a JobSpec,
    plan: &'a FabricPlan,
    worker: &'a Role,
) -> impl Iterator<Item = String> + 'a {
    let own = spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::HostPath(path) => Some(volume_flag(path, &volume.mount, volume.read_only)),
        VolumeSource::Claim(_) | VolumeSource::Memory { .. } => None,
    });
    let stack = ops(plan, worker).filter_map(|op| match &op.change {
        Change::Mount { host_path, mount_path, read_only, .. } => {
            Some(volume_flag(host_path, mount_path, *read_only))
        }
        Change::Resource { name, .. } if name == "hugepages-2Mi" => {
            Some(volume_flag("/dev/hugepages", "/dev/hugepages", false))
        }
        _ => None,
    });
    own.chain(stack)
}

fn volume_flag(host: &str, container: &str, read_only: bool) -> String {
    quoted(&format!("--volume={host}:{container}{}", if read_only { ":ro" } else { "" }))
}

/// The job's environment with the plan's on top, in order.
fn environment<'a>(
    spec: &'a JobSpec,
    plan: &'a FabricPlan,
    worker: &'a Role,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let ours: Vec<(&str, &str)> = ops(plan, worker)
        .filter_map(|op| match &op.change {
            Change::Env { name, value } => Some((name.as_str(), value.as_str())),
            _ => None,
        })
        .collect();
    let replaced: Vec<&str> = ours.iter().map(|(name, _)| *name).collect();
    let own = spec.env.iter().chain(&worker.env).map(|var| (var.name.as_str(), var.value.as_str()));
    own.filter(move |(name, _)| !replaced.contains(name)).chain(ours)
}

fn ops<'a>(plan: &'a FabricPlan, role: &'a Role) -> impl Iterator<Item = &'a Op> {
    plan.ops.iter().filter(|op| op.role == role.name)
}

/// One `mpirun` on the first host; the containers of the others wait for it.
fn by_mpirun(text: &mut String, spec: &JobSpec, plan: &FabricPlan, worker: &Role, run: &str, nodes: u32) {
    let name = quoted(&spec.name);
    let _ = write!(
        text,
        "\n# Once: a key that all containers share, and a login that goes into the container (same folder on every host).\n\
         mkdir -p {SSH_FOLDER} && ssh-keygen -t ed25519 -N '' -f {SSH_FOLDER}/id_ed25519\n\
         printf 'Host *\\n StrictHostKeyChecking no\\n UserKnownHostsFile /dev/null\\n LogLevel ERROR\\n User %s\\n' \"$USER\" > {SSH_FOLDER}/config\n\
         echo \"command=\\\"docker exec {name} /bin/sh -c \\\\\\\"\\$SSH_ORIGINAL_COMMAND\\\\\\\"\\\" $(cat {SSH_FOLDER}/id_ed25519.pub)\" >> ~/.ssh/authorized_keys\n\
         sudo chown root:root {SSH_FOLDER}/config {SSH_FOLDER}/id_ed25519\n",
    );
    let held = format!(
        "docker run --detach --rm --name={name} \\\n  --volume={SSH_FOLDER}:/root/.ssh:ro \\\n  {run} \\\n  sleep infinity"
    );
    let _ = write!(text, "\n# On every host: the container in which the ranks of this host run.\n{held}\n");
    let ranks = worker.procs_per_node();
    let hosts: Vec<String> = (0..nodes).map(|index| format!("$HOST{index}:{ranks}")).collect();
    let (path, forward) = mpirun(spec, plan, worker);
    let forward: String = forward.iter().map(|name| format!(" -x {name}")).collect();
    let _ = write!(
        text,
        "\n# On the first host: the ranks.\ndocker exec {name} {path} --allow-run-as-root -H {} -np {} --bind-to none{forward} {}\n",
        hosts.join(","),
        u64::from(ranks) * u64::from(nodes),
        command(plan, worker, &worker.command),
    );
}

/// The `mpirun` of the plan, or the image's own with the environment of the job.
fn mpirun(spec: &JobSpec, plan: &FabricPlan, worker: &Role) -> (String, Vec<String>) {
    let planned = plan.ops.iter().find_map(|op| match &op.change {
        Change::Mpirun { path, forward } => Some((path.clone(), forward.clone())),
        _ => None,
    });
    planned.unwrap_or_else(|| {
        let names = environment(spec, plan, worker).map(|(name, _)| name.to_owned()).collect();
        ("mpirun".to_owned(), names)
    })
}

/// The same command on every host, each told its number.
fn on_each_host(text: &mut String, spec: &JobSpec, plan: &FabricPlan, worker: &Role, run: &str, nodes: u32) {
    let name = quoted(&spec.name);
    for node in 0..nodes {
        let start = match spec.launch {
            Launch::Torchrun => {
                let torchrun = format!(
                    "torchrun --nnodes={nodes} --nproc-per-node={} --node-rank={node} --master-addr=$HOST0 --master-port=29500",
                    worker.procs_per_node()
                );
                format!("{}{torchrun} {}", wrapper(plan, worker), joined(&worker.command))
            }
            _ => command(plan, worker, &worker.command),
        };
        let _ =
            write!(text, "\n# On $HOST{node}:\ndocker run --rm --name={name} \\\n  {run} \\\n  {start}\n");
    }
}

fn command(plan: &FabricPlan, worker: &Role, argv: &[String]) -> String {
    format!("{}{}", wrapper(plan, worker), joined(argv))
}

/// The words that go before the program, if the plan has some.
fn wrapper(plan: &FabricPlan, worker: &Role) -> String {
    ops(plan, worker)
        .find_map(|op| match &op.change {
            Change::Wrap { argv } => Some(format!("{} ", joined(argv))),
            _ => None,
        })
        .unwrap_or_default()
}

/// What only a cluster knows, and a host does not need.
fn left_out(text: &mut String, plan: &FabricPlan) {
    let mut rules: Vec<&str> = plan
        .ops
        .iter()
        .filter(|op| match &op.change {
            Change::Annotation { .. }
            | Change::NodeSelector { .. }
            | Change::Colocate { .. }
            | Change::Toleration { .. } => true,
            Change::Resource { name, .. } => name != "hugepages-2Mi",
            _ => false,
        })
        .map(|op| op.rule.as_str())
        .collect();
    rules.dedup();
    if !rules.is_empty() {
        let _ = writeln!(
            text,
            "\n# Only a cluster needs these, a host has its devices already: {}.",
            rules.join(", ")
        );
    }
}

/// Docker writes `1g` where Kubernetes writes `1Gi`.
fn docker_size(quantity: &str) -> String {
    match quantity.strip_suffix('i') {
        Some(binary) => binary.to_lowercase(),
        None => quantity.to_lowercase(),
    }
}

fn joined(argv: &[String]) -> String {
    argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it. A NUL, which no word can hold, is dropped.
fn quoted(word: &str) -> String {
    shlex::try_quote(&word.replace('\0', "")).map_or_else(|_| String::new(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ClusterFacts;
    use crate::catalogue::Catalogue;
    use crate::fabric::Profiles;

    fn recipe(launch: Launch, profile: &str) -> String {
        let program: &[&str] = if launch == Launch::Torchrun { &[] } else { &["python3"] };
        let argv = program.iter().chain(&["train.py", "--name", "a b"]).copied();
        let worker = Role::worker().nodes(2).gpus_per_node(4).memory("200Gi").command(argv);
        let job = JobSpec::builder("resnet").image("nvcr.io/nvidia/pytorch:25.09-py3");
        let mut spec = job.launch(launch).role(worker).build().unwrap();
        spec.fabric.kind = Fabric::Roce;
        let profile = Profiles::builtin().get(profile).unwrap();
        docker(&spec, &FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile))
    }

    #[test]
    fn mpi_jobs_run_over_ssh_into_waiting_containers() {
        insta::assert_snapshot!(recipe(Launch::Mpi, "roce"));
    }

    #[test]
    fn torchrun_starts_on_each_host_by_its_number() {
        insta::assert_snapshot!(recipe(Launch::Torchrun, "roce"));
    }

    #[test]
    fn the_text_is_shell() {
        for launch in [Launch::Mpi, Launch::Torchrun, Launch::PerNode] {
            let text = recipe(launch, "roce");
            let checked = std::process::Command::new("/bin/sh").args(["-n", "-c", &text]).output().unwrap();
            assert!(checked.status.success(), "{}\n{text}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}
