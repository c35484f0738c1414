//! Renders a planned job as a process list. Pure: the properties of this machine were read when the target
//! was connected.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::sync::Arc;

use weftrun_core::backend::{Document, Inexpressible, Language, Placeholder, PlannedJob, Prepared, Rendered};
use weftrun_core::fabric::{Change, Op, PROFILER_RULE};
use weftrun_core::spec::{Code, JobSpec, Launch, Rendezvous, RestartPolicy, Role, RoleKind, node_command};
use weftrun_core::{Error, ErrorKind, Result};

use super::after::dependencies;
use super::config::Config;
use super::document::{MASTER_PORT, Process, ProcessList, is_plain};

pub(super) fn render(job: &PlannedJob, config: &Config) -> Result<Rendered> {
    job.spec.refuse_nul()?;
    job.spec.refuse_once("local")?;
    job.spec.refuse_entrypoint("local")?;
    job.refuse_avoid("local")?;
    let (env_ops, inexpressible) = split_ops(&job.plan.ops);
    let list = Renderer { job, config, env_ops: &env_ops, notes: Vec::new() }.list()?;
    let document =
        Document { title: "process list".to_owned(), language: Language::Toml, text: list.to_toml()? };
    let mut rendered = Rendered::new(&job.spec.name, job.submission.clone(), document);
    rendered.prepared = Prepared::new(Arc::new(list));
    rendered.applied = env_ops;
    rendered.inexpressible = inexpressible;
    rendered.placeholders.push(Placeholder {
        name: MASTER_PORT.trim_matches(['<', '>']).to_owned(),
        what: "a free port of this machine, chosen when the job starts".to_owned(),
    });
    Ok(rendered)
}

/// Splits the operations into those that can and cannot be expressed. Processes have an environment and an
/// argv; there are no containers to mount into and no devices to request.
fn split_ops(ops: &[Op]) -> (Vec<Op>, Vec<Inexpressible>) {
    let (mut applied, mut not) = (Vec::new(), Vec::new());
    for op in ops {
        let reason = match &op.change {
            change if change.needs_companion() => {
                "the file is in an object beside the pods, and there is none here"
            }
            _ if op.rule == PROFILER_RULE && weftrun_profiler::library(ARCH).is_none() => NO_LIBRARY,
            Change::Env { .. } => {
                applied.push(op.clone());
                continue;
            }
            Change::Mount { .. } => "processes see this machine's folders as they are",
            Change::Resource { .. } => "this machine's devices are available without a request",
            Change::Command { .. } => "processes start with this machine's own launcher",
            _ => "it is a property of pods, and there are none here",
        };
        not.push(Inexpressible { op: op.clone(), reason: reason.to_owned() });
    }
    (applied, not)
}

const NO_LIBRARY: &str = "this build of weftrun has no NCCL profiler library for this machine";

/// Most processes of a job. At about 2 KB each, the record of a job stays below [`crate::files::MAX_STATE`], above
/// which it could not be read again.
const MOST_PROCESSES: u64 = 10_000;
/// Most bytes of commands in the record of a job.
const MOST_COMMANDS: u64 = crate::files::MAX_STATE / 2;

/// A node of the job with its position among all nodes.
#[derive(Clone, Copy)]
struct Node<'a> {
    role: &'a Role,
    number: u32,
    replica: u32,
    first_rank: u32,
    ranks: u32,
}

/// The launcher that is emulated when ranks are started one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Starter {
    /// None: the job starts its ranks individually.
    None,
    /// torchrun, which runs its script with Python.
    Torchrun,
    /// mpirun, whose ranks read their number from its own variables.
    Mpi,
}

struct Renderer<'a> {
    job: &'a PlannedJob,
    config: &'a Config,
    env_ops: &'a [Op],
    notes: Vec<String>,
}

impl<'a> Renderer<'a> {
    fn spec(&self) -> &'a JobSpec {
        &self.job.spec
    }

    /// Refuses a job that one machine cannot start, before anything is built for each of its processes.
    fn refuse_too_many(&self) -> Result<()> {
        let spec = self.spec();
        let of_role = |role: &Role| match spec.launch {
            Launch::PerNode | Launch::Once => u64::from(role.nodes),
            _ => u64::from(role.nodes) * u64::from(role.procs_per_node()),
        };
        let count = spec.workers().map(of_role).fold(0, u64::saturating_add);
        let own = self.config.user_processes.filter(|own| *own < MOST_PROCESSES);
        let (most, source) = match own {
            Some(own) => (own, "your limit of processes (`ulimit -u`)"),
            None => (MOST_PROCESSES, "the limit of the local backend, which runs all ranks on this machine"),
        };
        let refused = |what: String| {
            Err(Error::new(ErrorKind::InvalidSpec, what)
                .hint("reduce `nodes`, `gpus_per_node` or `ranks_per_node`")
                .hint("submit it to a cluster: `-b TARGET`; `weftrun backends` lists the kinds"))
        };
        if count > most {
            return refused(format!(
                "the job starts {count} processes on this machine, but at most {most} are allowed: {source}"
            ));
        }
        let bytes = |role: &Role| role.command.iter().map(|word| word.len() as u64 + 4).sum::<u64>();
        let commands =
            spec.workers().map(|role| of_role(role).saturating_mul(bytes(role))).fold(0, u64::saturating_add);
        if commands > MOST_COMMANDS {
            return refused(format!(
                "the commands of the job's {count} processes have {commands} bytes, but at most {MOST_COMMANDS} fit the record of a local job, which holds each of them"
            ));
        }
        Ok(())
    }

    fn list(mut self) -> Result<ProcessList> {
        self.refuse_too_many()?;
        let nodes = nodes(self.spec());
        let processes = self.processes(&nodes)?;
        self.note_what_has_no_place_here();
        let spec = &self.job.spec;
        spec.code_archive()?;
        if let Some(Code::Script { name, .. }) = &spec.code
            && !is_plain(name)
        {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                "the name of the script is not a plain file name",
            )
            .with("code.name", format!("{name:?}")));
        }
        Ok(ProcessList {
            name: spec.name.clone(),
            submission: self.job.submission.clone(),
            launch: spec.launch,
            fabric: self.job.plan.fabric,
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            restarts: match spec.restart {
                RestartPolicy::Never => 0,
                RestartPolicy::OnFailure { max } => max,
            },
            grace_ms: u64::try_from(self.config.grace.as_millis()).unwrap_or(u64::MAX),
            time_limit: spec.time_limit.map(|limit| limit.as_secs()),
            workdir: spec.workdir.clone(),
            labels: spec.labels.clone(),
            notes: self.notes,
            after: dependencies(self.job)?,
            lane: self.job.lane.clone(),
            secrets: spec.secrets.iter().map(|secret| secret.env.clone()).collect(),
            env: spec.env.iter().map(|var| (var.name.clone(), var.value.clone())).collect(),
            code: spec.code.clone(),
            processes,
        })
    }

    fn processes(&mut self, nodes: &[Node<'_>]) -> Result<Vec<Process>> {
        let world = nodes.iter().map(|node| node.ranks).sum();
        match self.spec().launch {
            Launch::Torchrun => match self.config.torchrun.clone() {
                Some(torchrun) => {
                    let program = torchrun.display().to_string();
                    Ok(nodes.iter().map(|node| self.agent(&program, node, nodes.len(), world)).collect())
                }
                None => {
                    self.notes.push(
                        "torchrun is not in PATH: each rank is started on its own, with torchrun's environment"
                            .to_owned(),
                    );
                    Ok(self.per_rank(nodes, world, Starter::Torchrun))
                }
            },
            Launch::PerRank => Ok(self.per_rank(nodes, world, Starter::None)),
            Launch::PerNode | Launch::Once => {
                Ok(nodes.iter().map(|node| self.per_node(node, nodes.len(), world)).collect())
            }
            Launch::Mpi => self.mpi(nodes, world),
        }
    }

    /// Returns one torchrun agent per node, as on the other backends; it tags the output of its ranks.
    fn agent(&self, torchrun: &str, node: &Node<'_>, nodes: usize, world: u32) -> Process {
        let node_rank = node.number.to_string();
        let at = Rendezvous { node_rank: &node_rank, master_addr: "127.0.0.1", master_port: MASTER_PORT };
        let command = node_command(self.spec(), node.role, &at);
        let own = [torchrun.to_owned(), "--tee=3".to_owned()];
        let argv = own.into_iter().chain(command.into_iter().skip(1)).collect();
        self.process(format!("node{}", node.number), node, None, argv, node_env(node, nodes, world))
    }

    fn per_node(&self, node: &Node<'_>, nodes: usize, world: u32) -> Process {
        let mut env = node_env(node, nodes, world);
        let rank = (node.ranks == 1).then_some(node.first_rank);
        if rank.is_some() {
            env.extend(rank_env(node, 0, world));
        }
        self.process(format!("node{}", node.number), node, rank, node.role.command.clone(), env)
    }

    fn per_rank(&self, nodes: &[Node<'_>], world: u32, instead_of: Starter) -> Vec<Process> {
        let one = |node: &Node<'_>, local: u32| {
            let rank = node.first_rank + local;
            let mut argv = node.role.command.clone();
            if instead_of == Starter::Torchrun {
                argv.insert(0, self.config.python.clone());
            }
            let mut env = node_env(node, nodes.len(), world);
            env.extend(rank_env(node, local, world));
            if instead_of == Starter::Mpi {
                env.extend(mpi_env(node, local, world));
            }
            self.process(format!("node{}/rank{rank}", node.number), node, Some(rank), argv, env)
        };
        nodes.iter().flat_map(|node| (0..node.ranks).map(move |local| one(node, local))).collect()
    }

    /// Returns one launcher. On this machine, `mpirun` runs all ranks on one host, regardless of the nodes.
    fn mpi(&mut self, nodes: &[Node<'_>], world: u32) -> Result<Vec<Process>> {
        let own = self.spec().roles.iter().find(|role| role.kind == RoleKind::Launcher);
        let command =
            own.or(nodes.first().map(|node| node.role)).map(|role| role.command.clone()).unwrap_or_default();
        let calls_mpirun =
            command.first().is_some_and(|p| p.rsplit('/').next().is_some_and(|n| n.starts_with("mpi")));
        let Some(mpirun) = &self.config.mpirun else {
            if calls_mpirun || own.is_some() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the job starts mpirun itself, and there is none here",
                )
                .with("command", command.join(" "))
                .hint("install Open MPI or MPICH, or set `mpirun` of the target to its path")
                .hint("`launch = \"per-rank\"` needs no mpirun"));
            }
            self.notes.push(
                "mpirun is not in PATH: each rank is started on its own, with Open MPI's and PMI's variables"
                    .to_owned(),
            );
            return Ok(self.per_rank(nodes, world, Starter::Mpi));
        };
        let argv = if calls_mpirun || own.is_some() {
            command
        } else {
            [mpirun.display().to_string(), "-n".to_owned(), world.to_string()]
                .into_iter()
                .chain(command)
                .collect()
        };
        let Some(first) = nodes.first() else { return Ok(Vec::new()) };
        let role = own.unwrap_or(first.role);
        if nodes.len() > 1 {
            self.notes.push(format!("mpirun puts the ranks of all {} nodes on this one host", nodes.len()));
        }
        let launcher = Node { role, ..*first };
        let mut env = BTreeMap::new();
        // More ranks than cores, and root in a container, are the normal use of this backend.
        for name in
            ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"]
        {
            env.insert(name.to_owned(), "1".to_owned());
        }
        env.insert("PRTE_MCA_rmaps_default_mapping_policy".to_owned(), ":oversubscribe".to_owned());
        Ok(vec![self.process("launcher".to_owned(), &launcher, None, argv, env)])
    }

    /// Builds a process. The user's variables take precedence over the plan's, and those over the ones given
    /// here.
    fn process(
        &self,
        name: String,
        node: &Node<'_>,
        rank: Option<u32>,
        argv: Vec<String>,
        mut env: BTreeMap<String, String>,
    ) -> Process {
        if self.spec().nodes() > 1 {
            // Without it NCCL sees one host and uses NVLink or shared memory between the simulated nodes.
            env.insert("NCCL_HOSTID".to_owned(), format!("node{}", node.number));
        }
        if let Some(devices) = self.devices(node) {
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), devices);
        }
        // The user's variables take precedence over those given here; the plan has already considered both.
        for var in &self.spec().env {
            env.remove(&var.name);
        }
        env.extend(node.role.env.iter().map(|var| (var.name.clone(), var.value.clone())));
        // What the job itself sets is already in the plan's value.
        let sets = |name: &str| {
            let mut own = self.spec().env.iter().chain(&node.role.env);
            own.any(|var| var.name == name)
        };
        for op in self.env_ops.iter().filter(|op| op.role == node.role.name) {
            if let Change::Env { name, value } = &op.change {
                let inherited = self.config.library_path.as_ref();
                let value = match inherited.filter(|_| name == "LD_LIBRARY_PATH" && !sets(name)) {
                    Some(inherited) => format!("{value}:{inherited}"),
                    None => value.clone(),
                };
                env.insert(name.clone(), value);
            }
        }
        Process {
            name,
            role: node.role.name.clone(),
            node: node.number,
            replica: node.replica,
            rank,
            argv,
            env,
        }
    }

    /// Returns the GPUs of a simulated node, if this machine has enough for all nodes.
    fn devices(&self, node: &Node<'_>) -> Option<String> {
        let have: u32 = self.job.facts.nodes.first()?.allocatable.get("nvidia.com/gpu")?.parse().ok()?;
        let each = node.role.gpus_per_node;
        let want =
            self.spec().workers().map(|role| role.nodes.saturating_mul(role.gpus_per_node)).sum::<u32>();
        if each == 0 || have < want || self.spec().nodes() < 2 {
            return None;
        }
        let first = node.number * each;
        Some((first..first + each).map(|gpu| gpu.to_string()).collect::<Vec<_>>().join(","))
    }

    fn note_what_has_no_place_here(&mut self) {
        let spec = &self.job.spec;
        let said = [
            (spec.image.is_some(), "image", "processes run without a container"),
            (!spec.volumes.is_empty(), "volumes", "processes see this machine's folders as they are"),
            (spec.queue.is_some(), "queue", "there is no queue here"),
            (spec.priority.is_some(), "priority", "there is no queue here"),
            (!spec.annotations.is_empty(), "annotations", "jobs have none here"),
            (
                spec.roles.iter().any(|role| role.memory.is_some() || role.cpus.is_some()),
                "cpus and memory",
                "nothing limits processes here",
            ),
        ];
        for (_, key, why) in said.into_iter().filter(|(is_set, ..)| *is_set) {
            self.notes.push(format!("{key}: not used, {why}"));
        }
    }
}

/// Returns the worker nodes in order, each with its first rank.
fn nodes(spec: &JobSpec) -> Vec<Node<'_>> {
    let (mut nodes, mut rank) = (Vec::new(), 0_u32);
    for role in spec.workers() {
        for replica in 0..role.nodes {
            let number = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let ranks = role.procs_per_node();
            nodes.push(Node { role, number, replica, first_rank: rank, ranks });
            rank = rank.saturating_add(ranks);
        }
    }
    nodes
}

fn variables<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the environment of every process of a node, under the names of torchrun and of its own options
/// (`PET_`).
fn node_env(node: &Node<'_>, nodes: usize, world: u32) -> BTreeMap<String, String> {
    variables([
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", MASTER_PORT.to_owned()),
        ("PET_MASTER_PORT", MASTER_PORT.to_owned()),
        ("PET_MASTER_ADDR", "127.0.0.1".to_owned()),
        ("PET_NNODES", nodes.to_string()),
        ("PET_NODE_RANK", node.number.to_string()),
        ("PET_NPROC_PER_NODE", node.ranks.to_string()),
        ("NNODES", nodes.to_string()),
        ("NODE_RANK", node.number.to_string()),
        ("GROUP_RANK", node.number.to_string()),
        ("GROUP_WORLD_SIZE", nodes.to_string()),
        ("LOCAL_WORLD_SIZE", node.ranks.to_string()),
        ("WORLD_SIZE", world.to_string()),
    ])
}

/// Returns the environment of a single rank, as torchrun sets it.
fn rank_env(node: &Node<'_>, local: u32, world: u32) -> BTreeMap<String, String> {
    let rank = node.first_rank + local;
    variables([
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", local.to_string()),
        ("ROLE_NAME", node.role.name.clone()),
        ("ROLE_RANK", (node.replica * node.ranks + local).to_string()),
        ("ROLE_WORLD_SIZE", (node.role.nodes * node.ranks).min(world).to_string()),
    ])
}

/// Returns the variables that Open MPI and PMI set for a rank.
fn mpi_env(node: &Node<'_>, local: u32, world: u32) -> BTreeMap<String, String> {
    let rank = (node.first_rank + local).to_string();
    variables([
        ("OMPI_COMM_WORLD_RANK", rank.clone()),
        ("OMPI_COMM_WORLD_SIZE", world.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", local.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", node.ranks.to_string()),
        ("PMI_RANK", rank),
        ("PMI_SIZE", world.to_string()),
    ])
}
