//! The fabric's operations of each role, as the script expresses them.

use weftrun_core::backend::{ClusterFacts, Inexpressible, PlannedJob};
use weftrun_core::convert::{ScriptChange, ScriptContext, script_change, why_inexpressible};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::Role;

use crate::slurm::config::{Container, JobSettings};

/// The operations of one role, translated to Slurm.
#[derive(Clone, Default)]
pub struct Translated {
    /// Variables, with the operation that caused each.
    pub env: Vec<(String, String, Op)>,
    /// Folders of the node to mount in the container: from, to, read-only.
    pub mounts: Vec<(String, String, bool)>,
    /// Whole nodes, since the fabric's devices belong to the node.
    pub whole_nodes: Option<Op>,
    /// Feature the nodes must have.
    pub constraint: Option<String>,
    /// Unlimited locked memory.
    pub memlock: Option<Op>,
    /// All nodes under one switch.
    pub one_switch: Option<Op>,
    /// The rewritten command.
    pub command: Option<Vec<String>>,
    /// Words before the launcher's command.
    pub wrap: Vec<String>,
}

impl Translated {
    fn sets(&self, name: &str) -> bool {
        self.env.iter().any(|(known, ..)| known == name)
    }

    fn take(&mut self, op: &Op, change: ScriptChange<'_>) {
        match change {
            ScriptChange::Env(name, value) => {
                self.env.retain(|(known, ..)| known != name);
                self.env.push((name.to_owned(), value.to_owned(), op.clone()));
            }
            ScriptChange::Mount(from, to, read_only) => {
                self.mounts.push((from.to_owned(), to.to_owned(), read_only));
            }
            ScriptChange::InPlace => {}
            ScriptChange::WholeNodes => self.whole_nodes = Some(op.clone()),
            ScriptChange::Constraint(feature) => self.constraint = Some(feature.to_owned()),
            ScriptChange::Memlock => self.memlock = Some(op.clone()),
            ScriptChange::OneSwitch => self.one_switch = Some(op.clone()),
            ScriptChange::Command(after) => self.command = Some(after.to_vec()),
            ScriptChange::Wrap(argv) => self.wrap.extend(argv.iter().cloned()),
        }
    }
}

/// Returns whether the cluster has a switch topology; otherwise the most that can be requested is one
/// partition.
fn has_topology(facts: &ClusterFacts) -> bool {
    let plugin = facts.extra.get("TopologyPlugin").and_then(|name| name.as_str());
    plugin.is_some_and(|name| name.ends_with("tree") || name.ends_with("block"))
}

/// Translates all operations: returns those of each worker, then the ones that are in the script and the ones
/// that are not.
pub fn translate(
    job: &PlannedJob,
    own: &JobSettings,
    workers: &[&Role],
) -> (Vec<Translated>, Vec<Op>, Vec<Inexpressible>) {
    let mut all: Vec<Translated> = vec![Translated::default(); workers.len()];
    let (mut applied, mut inexpressible) = (Vec::new(), Vec::new());
    let topology = has_topology(&job.facts);
    for op in &job.plan.ops {
        // A launcher has no node of its own here: its command is the job's, its variables are the first
        // worker's.
        let index = workers.iter().position(|role| role.name == op.role);
        let (of_launcher, index) = (index.is_none(), index.unwrap_or(0));
        let has_image =
            workers.get(index).is_some_and(|role| role.image.is_some()) || job.spec.image.is_some();
        let container = own.container != Some(Container::None) && has_image;
        let Some(target) = all.get_mut(index) else { continue };
        // srun passes the environment of the script to every rank, so what mpirun would forward is already
        // set.
        let forwarded = of_launcher && matches!(&op.change, Change::Env { name, .. } if target.sets(name));
        match script_change(&op.change, ScriptContext { container, topology }) {
            Ok(change) => {
                if !forwarded {
                    target.take(op, change);
                }
                applied.push(op.clone());
            }
            Err(kind) => {
                let reason = why_inexpressible(kind).to_owned();
                inexpressible.push(Inexpressible { op: op.clone(), reason });
            }
        }
    }
    (all, applied, inexpressible)
}
