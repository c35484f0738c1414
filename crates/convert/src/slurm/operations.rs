//! Translates the fabric's operations for a batch script: one translator for rendered and for edited
//! scripts, and what Slurm cannot express.

use std::borrow::Cow;

use weftrun_core::fabric::{Change, Decision};

/// The form of an operation in a batch script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptChange<'a> {
    /// A variable of the script's environment, which `srun` passes on.
    Env(&'a str, &'a str),
    /// A folder of the node in the container: from, to, read-only.
    Mount(&'a str, &'a str, bool),
    /// The folder is used in place; nothing is written.
    InPlace,
    /// The devices belong to whole nodes (`--exclusive`).
    WholeNodes,
    /// A feature of the nodes (`--constraint`).
    Constraint(&'a str),
    /// Locked memory without limit.
    Memlock,
    /// Nodes of one switch (`--switches=1`).
    OneSwitch,
    /// Another command.
    Command(&'a [String]),
    /// Words before the program.
    Wrap(&'a [String]),
}

/// Known properties of the job and its cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptContext {
    /// The ranks run in a container, into which folders can be mounted.
    pub container: bool,
    /// The cluster has a topology: which nodes are on which switch.
    pub topology: bool,
}

/// Returns the target, value and reason of a decision in the terms of the backend.
///
/// The rules name Kubernetes' node labels, pods and resources; on Slurm and on plain hosts these become the choice of nodes, and their
/// devices and limits.
pub fn decision_text<'d>(
    decision: &'d Decision,
    backend: &str,
) -> (Cow<'d, str>, Cow<'d, str>, Cow<'d, str>) {
    let Decision { target, value, why, .. } = decision;
    let plain = (Cow::from(target), Cow::from(value), Cow::from(why));
    let on_hosts = backend == "hosts";
    let role_and_what = target.split_once(": ").filter(|_| on_hosts || backend == "slurm");
    let Some((role, what)) = role_and_what else { return plain };
    match what {
        "capabilities" if value == "IPC_LOCK" => {
            (Cow::from(format!("{role}: locked memory")), Cow::from("unlimited"), plain.2)
        }
        _ if what.strip_prefix("resources ").is_some_and(is_fabric_device) => (
            Cow::from(format!("{role}: network devices")),
            Cow::from("all of the node"),
            Cow::from("they belong to the whole node; a container gets their device files"),
        ),
        _ if what.starts_with("annotation k8s.v1.cni.cncf.io/") => {
            (plain.0, plain.1, Cow::from("Kubernetes gives a pod its networks so; it is not applied here"))
        }
        "affinity" if on_hosts => (
            Cow::from(format!("{role}: hosts")),
            Cow::from("in the order of `hosts`"),
            Cow::from(
                "there is no scheduler that chooses hosts of one switch: name neighbours after each other",
            ),
        ),
        "affinity" => (
            Cow::from(format!("{role}: nodes")),
            Cow::from("close to each other"),
            Cow::from("nodes of one switch, where the cluster reports its topology (`--switches=1`)"),
        ),
        _ if !on_hosts && what.starts_with("node selector ") && what.ends_with("/instance-type") => {
            (Cow::from(format!("{role}: constraint")), plain.1, plain.2)
        }
        _ => plain,
    }
}

word_enum! {
    /// A kind of change that Slurm cannot express. Those after `unknown` are about edited scripts, whose own `#SBATCH`
    /// lines stay as they are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum NoCounterpart: ALL {
        /// Huge pages.
        Hugepages = "hugepages",
        /// An annotation of the pods.
        Annotation = "annotation",
        /// A folder of the node, without a container.
        Mount = "mount",
        /// A label of the nodes.
        NodeSelector = "node-selector",
        /// A toleration.
        Toleration = "toleration",
        /// The backend's own `mpirun`.
        Mpirun = "mpirun",
        /// A resource that is no fabric device.
        Resource = "resource",
        /// Nodes of one switch, without a topology.
        Colocate = "colocate",
        /// A Linux capability.
        Capability = "capability",
        /// A part of a pod.
        Pod = "pod",
        /// A setting that is removed.
        Remove = "remove",
        /// A kind of change that is not known.
        Unknown = "unknown",
        /// Whole nodes, in an edited script.
        WholeNodes = "whole-nodes",
        /// An option of sbatch, in an edited script.
        Directive = "directive",
        /// A limit of the process, in an edited script.
        Memlock = "memlock",
        /// Words before the program, in an edited script.
        Wrapper = "wrapper",
    }
}

impl NoCounterpart {
    /// Returns why that is no loss, or what follows.
    pub fn why(self) -> &'static str {
        match self {
            Self::Hugepages => {
                "Slurm does not hand out huge pages: the node's image reserves them (vm.nr_hugepages), and libfabric falls back to normal pages"
            }
            Self::Annotation => "Slurm jobs have no annotations; this one has no counterpart",
            Self::Mount => {
                "without a container folders cannot be mounted: set the path in the profile, or give the job an image"
            }
            Self::NodeSelector => {
                "Slurm nodes have features, not labels: set `constraint` in `[backend.slurm]`"
            }
            Self::Toleration => "Slurm has no taints: partitions and reservations decide who may use a node",
            Self::Mpirun => {
                "srun starts the ranks and passes the environment on: there is no mpirun to rewrite"
            }
            Self::Resource => {
                "Slurm has no counterpart of this resource: set `sbatch = [\"--gres=NAME:N\"]` in `[backend.slurm]`"
            }
            Self::Colocate => {
                "without `TopologyPlugin` the cluster reports no topology (`plan --online` reads it): the nodes of a partition are assumed to be close to each other"
            }
            Self::Capability => "Slurm gives no Linux capabilities: the site's containers or prolog must",
            Self::Pod => {
                "Slurm jobs have no pods: sidecars, claims, shared memory and the host's network are the node's own, or the container's"
            }
            Self::Remove => "settings of a script are not removed: remove them in the script",
            Self::Unknown => "this version of weftrun's Slurm backend does not know this kind of change",
            Self::WholeNodes => {
                "the devices come with whole nodes: a script gets all of them with `#SBATCH --exclusive`"
            }
            Self::Directive => "the `#SBATCH` lines of a script are not changed: add the option there",
            Self::Memlock => {
                "the limit of locked memory is the node's: add `ulimit -l unlimited` to the script where it is low"
            }
            Self::Wrapper => {
                "the commands of a script are not wrapped: call the program through the wrapper there"
            }
        }
    }
}

/// Returns the form of a change in a batch script.
///
/// # Errors
/// The kind of a change that Slurm cannot express.
pub fn script_change(change: &Change, context: ScriptContext) -> Result<ScriptChange<'_>, NoCounterpart> {
    Ok(match change {
        change if change.needs_companion() => return Err(NoCounterpart::Pod),
        Change::Env { name, value } => ScriptChange::Env(name, value),
        Change::Mount { host_path, mount_path, read_only, .. } if context.container => {
            ScriptChange::Mount(host_path, mount_path, *read_only)
        }
        Change::Mount { host_path, mount_path, .. } if host_path == mount_path => ScriptChange::InPlace,
        Change::Mount { .. } => return Err(NoCounterpart::Mount),
        Change::Resource { name, .. } if name.starts_with("hugepages-") => {
            return Err(NoCounterpart::Hugepages);
        }
        // Interfaces belong to the whole node: every process sees all of them.
        Change::Resource { name, .. } if is_fabric_device(name) => ScriptChange::WholeNodes,
        Change::Resource { .. } => return Err(NoCounterpart::Resource),
        Change::NodeSelector { key, value } if key.ends_with("instance-type") => {
            ScriptChange::Constraint(value)
        }
        Change::NodeSelector { .. } => return Err(NoCounterpart::NodeSelector),
        Change::Capability { name } if name == "IPC_LOCK" => ScriptChange::Memlock,
        Change::Capability { .. } => return Err(NoCounterpart::Capability),
        Change::Colocate { .. } if context.topology => ScriptChange::OneSwitch,
        Change::Colocate { .. } => return Err(NoCounterpart::Colocate),
        Change::Command { after, .. } => ScriptChange::Command(after),
        Change::Wrap { argv } => ScriptChange::Wrap(argv),
        Change::Annotation { .. } => return Err(NoCounterpart::Annotation),
        Change::Toleration { .. } => return Err(NoCounterpart::Toleration),
        Change::Mpirun { .. } => return Err(NoCounterpart::Mpirun),
        Change::Remove { .. } => return Err(NoCounterpart::Remove),
        Change::Member { .. }
        | Change::PodField { .. }
        | Change::Companion { .. }
        | Change::JobField { .. } => return Err(NoCounterpart::Pod),
    })
}

/// Returns whether a Kubernetes resource is a network device of the node, or an accelerator that only whole
/// nodes have.
fn is_fabric_device(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["vpc.amazonaws.com/efa", "aws.amazon.com/neuron", "rdma/", "nvidia.com/"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name != "nvidia.com/gpu"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_about_nodes_are_said_without_kubernetes() {
        let decision = |target: &str, value: &str| -> Decision {
            serde_json::from_value(serde_json::json!({
                "rule": "efa.colocate", "target": target, "value": value, "why": "it is faster", "origin": "default",
            }))
            .unwrap()
        };
        let affinity = decision("worker: affinity", "all pods in one topology.kubernetes.io/zone");
        let (target, value, why) = decision_text(&affinity, "slurm");
        for word in ["pod", "zone", "affinity"] {
            assert!(!format!("{target} {value} {why}").contains(word), "{target} = {value}: {why}");
        }
        assert_eq!(decision_text(&affinity, "kubeflow").1, affinity.value);
        let selector = decision("worker: node selector node.kubernetes.io/instance-type", "p5.48xlarge");
        let (target, value, _) = decision_text(&selector, "slurm");
        assert_eq!((target.as_ref(), value.as_ref()), ("worker: constraint", "p5.48xlarge"));
        for (target, value) in [
            ("worker: resources rdma/rdma", "1"),
            ("worker: capabilities", "IPC_LOCK"),
            ("worker: affinity", "all pods in one zone"),
        ] {
            let decision = decision(target, value);
            for backend in ["slurm", "hosts"] {
                let (target, value, why) = decision_text(&decision, backend);
                for word in ["pod", "rdma/", "IPC_LOCK", "affinity"] {
                    assert!(!format!("{target} {value} {why}").contains(word), "{target} = {value}: {why}");
                }
            }
            assert_eq!(decision_text(&decision, "kubeflow").0, decision.target);
        }
        let env = decision("worker: env NCCL_DEBUG", "INFO");
        assert_eq!(decision_text(&env, "slurm").0, env.target);
    }
}
