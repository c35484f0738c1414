//! The fabric's operations, role by role, as the script carries them.

use weftrun_core::backend::{ClusterFacts, Inexpressible, PlannedJob};
use weftrun_core::convert::{ScriptChange, ScriptContext, script_change, why_inexpressible};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::Role;

use crate::slurm::config::{Container, JobSettings};

/// What the operations of one role mean on Slurm.
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

/// Whether the cluster knows which nodes hang on which switch; else one partition is all that can be asked.
fn has_topology(facts: &ClusterFacts) -> bool {
    let plugin = facts.extra.get("TopologyPlugin").and_then(|name| name.as_str());
    plugin.is_some_and(|name| name.ends_with("tree") || name.ends_with("block"))
}

/// Translates all ops: for each worker what it gets, then the ops that are in the script and those that are not.
pub fn translate(
    job: &PlannedJob,
    own: &JobSettings,
    workers: &[&Role],
) -> (Vec<Translated>, Vec<Op>, Vec<Inexpressible>) {
    let mut all: Vec<Translated> = vec![Translated::default(); workers.len()];
    let (mut applied, mut inexpressible) = (Vec::new(), Vec::new());
    let topology = has_topology(&job.facts);
    for op in &job.plan.ops {
        // A launcher is no node of its own here: its command is the job's, its variables are the first worker's.
        let index = workers.iter().position(|role| role.name == op.role);
        let (of_launcher, index) = (index.is_none(), index.unwrap_or(0));
        let has_image =
            workers.get(index).is_some_and(|role| role.image.is_some()) || job.spec.image.is_some();
        let container = own.container != Some(Container::None) && has_image;
        let Some(target) = all.get_mut(index) else { continue };
        // srun passes the environment of the script on to every rank: what mpirun would forward is there already.
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
