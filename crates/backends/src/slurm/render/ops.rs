//! The fabric's ops in Slurm's words. What Slurm cannot say is a table, checked by a test against the docs page.

use weftrun_core::backend::{ClusterFacts, Inexpressible, PlannedJob};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::Role;

use crate::slurm::config::{Container, JobSettings};

/// What the ops of one role mean on Slurm.
#[derive(Clone, Default)]
pub struct Translated {
    /// Variables, with the op that made each.
    pub env: Vec<(String, String, Op)>,
    /// Folders of the node for the container: from, to, read-only.
    pub mounts: Vec<(String, String, bool)>,
    /// Whole nodes: the fabric's devices go with the node.
    pub whole_nodes: Option<Op>,
    /// Feature the nodes must have.
    pub constraint: Option<String>,
    /// Locked memory without limit.
    pub memlock: Option<Op>,
    /// The nodes hang on one switch.
    pub one_switch: Option<Op>,
    /// The rewritten command.
    pub command: Option<Vec<String>>,
    /// Words before what starts the ranks.
    pub wrap: Vec<String>,
}

impl Translated {
    fn sets(&self, name: &str) -> bool {
        self.env.iter().any(|(known, ..)| known == name)
    }
}

/// Whether the cluster knows which nodes hang on which switch; else one partition is all that can be asked.
fn has_topology(facts: &ClusterFacts) -> bool {
    let plugin = facts.extra.get("TopologyPlugin").and_then(|name| name.as_str());
    plugin.is_some_and(|name| name.ends_with("tree") || name.ends_with("block"))
}

/// What Slurm cannot express: the kind of change, and why that is no loss or what follows.
pub const INEXPRESSIBLE: &[(&str, &str)] = &[
    (
        "hugepages",
        "Slurm does not hand out huge pages: the node's image reserves them (vm.nr_hugepages), and libfabric falls back to normal pages",
    ),
    ("annotation", "Slurm jobs have no annotations; what this one asks of Kubernetes has no counterpart"),
    (
        "mount",
        "without a container the node's folders are where they are: set the path in the profile, or give the job an image",
    ),
    ("node-selector", "Slurm nodes have features, not labels: set `constraint` in `[backend.slurm]`"),
    ("toleration", "Slurm has no taints: partitions and reservations decide who may use a node"),
    ("mpirun", "srun starts the ranks and passes the environment on: there is no mpirun to rewrite"),
    (
        "resource",
        "Slurm has no counterpart of this resource: set `sbatch = [\"--gres=NAME:N\"]` in `[backend.slurm]`",
    ),
    (
        "colocate",
        "the cluster reports no topology (TopologyPlugin is not set): the nodes of a partition are assumed to be close to each other",
    ),
    ("capability", "Slurm gives no Linux capabilities: the site's containers or prolog must"),
    ("unknown", "this version of weftrun's Slurm backend does not know this kind of change"),
];

fn why_not(kind: &str) -> String {
    INEXPRESSIBLE
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or_else(String::new, |(_, why)| (*why).to_owned())
}

/// Translates all ops: for each worker what it gets, then the ops that are in the script and those that are not.
pub fn translate(
    job: &PlannedJob,
    own: &JobSettings,
    workers: &[&Role],
) -> (Vec<Translated>, Vec<Op>, Vec<Inexpressible>) {
    let mut all: Vec<Translated> = vec![Translated::default(); workers.len()];
    let (mut applied, mut inexpressible) = (Vec::new(), Vec::new());
    for op in &job.plan.ops {
        // A launcher is no node of its own here: its command is the job's, its variables are the first worker's.
        let index = workers.iter().position(|role| role.name == op.role).unwrap_or(0);
        let has_image =
            workers.get(index).is_some_and(|role| role.image.is_some()) || job.spec.image.is_some();
        let contained = own.container != Some(Container::None) && has_image;
        let outcome = match (all.get_mut(index), &op.change) {
            (None, _) => Err("unknown"),
            // srun passes the environment of the script on to every rank: what mpirun would forward is there already.
            (Some(target), Change::Env { name, .. })
                if workers.iter().all(|role| role.name != op.role) && target.sets(name) =>
            {
                Ok(())
            }
            (Some(_), Change::Colocate { .. }) if !has_topology(&job.facts) => Err("colocate"),
            (Some(target), _) => one(target, op, contained),
        };
        match outcome {
            Ok(()) => applied.push(op.clone()),
            Err(kind) => inexpressible.push(Inexpressible { op: op.clone(), reason: why_not(kind) }),
        }
    }
    (all, applied, inexpressible)
}

fn one(target: &mut Translated, op: &Op, contained: bool) -> Result<(), &'static str> {
    match &op.change {
        Change::Env { name, value } => {
            target.env.retain(|(known, ..)| known != name);
            target.env.push((name.clone(), value.clone(), op.clone()));
        }
        Change::Mount { host_path, mount_path, read_only, .. } if contained => {
            target.mounts.push((host_path.clone(), mount_path.clone(), *read_only));
        }
        Change::Mount { host_path, mount_path, .. } if host_path == mount_path => {}
        Change::Mount { .. } => return Err("mount"),
        Change::Resource { name, .. } if name.starts_with("hugepages-") => return Err("hugepages"),
        // Interfaces go with the whole node: every process sees all of them.
        Change::Resource { name, .. } if is_fabric_device(name) => target.whole_nodes = Some(op.clone()),
        Change::Resource { .. } => return Err("resource"),
        Change::NodeSelector { key, value } if key.ends_with("instance-type") => {
            target.constraint = Some(value.clone());
        }
        Change::NodeSelector { .. } => return Err("node-selector"),
        Change::Capability { name } if name == "IPC_LOCK" => target.memlock = Some(op.clone()),
        Change::Capability { .. } => return Err("capability"),
        Change::Colocate { .. } => target.one_switch = Some(op.clone()),
        Change::Command { after, .. } => target.command = Some(after.clone()),
        Change::Wrap { argv } => target.wrap.clone_from(argv),
        Change::Annotation { .. } => return Err("annotation"),
        Change::Toleration { .. } => return Err("toleration"),
        Change::Mpirun { .. } => return Err("mpirun"),
        _ => return Err("unknown"),
    }
    Ok(())
}

/// Whether a Kubernetes resource is a network device of the node, or an accelerator that only whole nodes have.
fn is_fabric_device(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["vpc.amazonaws.com/efa", "aws.amazon.com/neuron", "rdma/", "nvidia.com/"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name != "nvidia.com/gpu"
}
