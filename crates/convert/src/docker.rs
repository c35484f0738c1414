//! Writes a job as commands for hosts that have docker and no cluster: one container per host on the host's
//! network, `mpirun` across them. After NVIDIA AI Enterprise's guide for RoCE on VMware ("Run Sample
//! ResNet-50 Multi-Node Training").

use std::collections::BTreeMap;

use weftrun_core::fabric::{Change, FabricPlan};
use weftrun_core::request::Fabric;
use weftrun_core::shell::variable;
use weftrun_core::spec::{JobSpec, Launch, Role, Volume, VolumeSource};
use weftrun_core::{Error, ErrorKind, Result};

/// Stack size in the containers: MPI and UCX need more than the default of 8 MiB.
const STACK: u32 = 67_108_864;

/// Writes the commands. Hosts are placeholders (`<host-1>`) for the user to fill in; the first one starts
/// the job.
///
/// # Errors
/// [`ErrorKind::InvalidSpec`] for a NUL character, and for a name that no environment variable can have.
pub fn docker_commands(spec: &JobSpec, plan: &FabricPlan) -> Result<String> {
    spec.refuse_nul()?;
    let Some(role) = spec.workers().next() else {
        return Ok("# the job has no role with ranks\n".to_owned());
    };
    let name = format!("weftrun-{}", spec.name);
    let image = role.image.as_ref().or(spec.image.as_ref()).map_or("<image>", String::as_str);
    let rdma = matches!(plan.fabric, Fabric::Roce | Fabric::InfiniBand | Fabric::Efa | Fabric::Auto);
    let device = if rdma { " --device=/dev/infiniband" } else { "" };
    let shm = role.shm.clone().map_or_else(|| "1g".to_owned(), |size| docker_size(&size));
    let volumes: String = spec.volumes.iter().filter_map(volume).collect::<Result<_>>()?;
    Ok(format!(
        "# 1. On every host: a container with the host's network, its devices, and no limit on pinned memory.\n\
         #    ~/.ssh/ssh_container holds a key pair, authorized_keys and config of the containers (mode 600).\n\
         docker run -d --gpus=all --net=host --uts=host --ipc=host --ulimit memlock=-1 --ulimit stack={STACK} \\\n  \
         --shm-size={} --name={}{device} \\\n  \
         -v \"$HOME/.ssh/ssh_container:/root/.ssh\"{volumes} {} sleep infinity\n\n\
         # 2. On every host but the first: let sshd lead into the container. In ~/.ssh/authorized_keys, before its key:\n\
         #    command=\"docker exec {name} /bin/sh -c \\\"$SSH_ORIGINAL_COMMAND\\\"\"\n\n\
         # 3. On the first host: start the ranks everywhere.\n\
         docker exec {} {}\n",
        quote(&shm)?,
        quote(&name)?,
        quote(image)?,
        quote(&name)?,
        mpirun(spec, plan, role)?,
    ))
}

fn mpirun(spec: &JobSpec, plan: &FabricPlan, role: &Role) -> Result<String> {
    let nodes = spec.nodes().max(1);
    let procs = match spec.launch {
        Launch::Mpi | Launch::PerRank => role.procs_per_node(),
        Launch::Torchrun | Launch::PerNode | Launch::Once => 1,
    };
    let hosts: Vec<String> = (1..=nodes).map(|host| format!("<host-{host}>:{procs}")).collect();
    let forward: Vec<String> = environment(spec, plan, role)
        .iter()
        .map(|(name, value)| Ok(format!("-x {}={}", variable(name)?, quote(value)?)))
        .collect::<Result<_>>()?;
    let mut words: Vec<String> = Vec::new();
    if spec.launch == Launch::Torchrun {
        let ranks = role.procs_per_node();
        words.push(format!(
            "torchrun --nnodes={nodes} --nproc-per-node={ranks} --rdzv-backend=c10d --rdzv-endpoint=<host-1>:29500"
        ));
    }
    for word in &role.command {
        words.push(quote(word)?);
    }
    Ok(format!(
        "mpirun --allow-run-as-root -H {} -np {} -N {procs} \\\n  {} \\\n  {}",
        quote(&hosts.join(","))?,
        nodes.saturating_mul(procs),
        forward.join(" "),
        words.join(" "),
    ))
}

/// Returns the environment of the ranks: the job's own, then the fabric's, and explicit settings for RDMA.
fn environment(spec: &JobSpec, plan: &FabricPlan, role: &Role) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    if plan.fabric != Fabric::Tcp && plan.fabric != Fabric::Off {
        env.insert("NCCL_IB_DISABLE".to_owned(), "0".to_owned());
    }
    for op in &plan.ops {
        if let Change::Env { name, value } = &op.change {
            env.insert(name.clone(), value.clone());
        }
    }
    env.extend(spec.env.iter().chain(&role.env).map(|var| (var.name.clone(), var.value.clone())));
    env
}

fn volume(volume: &Volume) -> Option<Result<String>> {
    let VolumeSource::HostPath(path) = &volume.source else { return None };
    let mode = if volume.read_only { ":ro" } else { "" };
    Some(quote(&format!("{path}:{}{mode}", volume.mount)).map(|word| format!(" -v {word}")))
}

/// Converts a Kubernetes quantity to docker's form: `64Gi` is `64g`.
fn docker_size(quantity: &str) -> String {
    match quantity.strip_suffix('i').filter(|rest| rest.ends_with(['K', 'M', 'G'])) {
        Some(rest) => rest.to_ascii_lowercase(),
        None => quantity.to_ascii_lowercase(),
    }
}

fn quote(word: &str) -> Result<String> {
    shlex::try_quote(word).map(std::borrow::Cow::into_owned).map_err(|_| {
        Error::new(ErrorKind::InvalidSpec, "a word of the command line contains a NUL character")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_guide() {
        let role = Role::worker().nodes(2).gpus_per_node(4).command(["python3", "train.py", "--name", "a b"]);
        let mut spec = JobSpec::builder("resnet")
            .image("reg/multinode:latest")
            .launch(Launch::Mpi)
            .role(role)
            .build()
            .unwrap();
        spec.env.push(weftrun_core::spec::EnvVar { name: "NCCL_DEBUG".into(), value: "INFO".into() });
        let text = docker_commands(&spec, &FabricPlan::unchanged(Fabric::Roce)).unwrap();
        for part in [
            "--gpus=all --net=host --uts=host --ipc=host --ulimit memlock=-1 --ulimit stack=67108864",
            "--shm-size=1g",
            "--device=/dev/infiniband",
            "-v \"$HOME/.ssh/ssh_container:/root/.ssh\"",
            "reg/multinode:latest sleep infinity",
            "-H '<host-1>:4,<host-2>:4' -np 8 -N 4",
            "-x NCCL_DEBUG=INFO -x NCCL_IB_DISABLE=0",
            "python3 train.py --name 'a b'",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let tcp = docker_commands(&spec, &FabricPlan::unchanged(Fabric::Tcp)).unwrap();
        assert!(!tcp.contains("infiniband") && !tcp.contains("IB_DISABLE"));
        spec.env[0].value.push('\0');
        let refused = docker_commands(&spec, &FabricPlan::unchanged(Fabric::Tcp)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidSpec, "a NUL does not become an empty word");
    }
}
