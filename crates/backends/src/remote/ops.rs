//! The fabric's operations of each role, as a script expresses them.

use weftrun_convert::ScriptChange;
use weftrun_core::backend::{Inexpressible, PlannedJob, RANKS_HAVE_IT};
use weftrun_core::fabric::{Change, Op};
use weftrun_core::spec::Role;

/// A folder of the node in a container: from, to, read-only.
pub type Mount = (String, String, bool);

/// The operations of one role, translated.
#[derive(Clone, Debug, Default)]
pub struct Translated {
    /// Variables, with the operation that caused each.
    pub env: Vec<(String, String, Op)>,
    /// Folders of the node to mount in the container.
    pub mounts: Vec<Mount>,
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
    /// The `mpirun` of the fabric, and the variables that it forwards.
    pub mpirun: Option<(String, Vec<String>)>,
}

impl Translated {
    /// Returns whether a change is of a variable that the ranks have already.
    fn has(&self, change: &Change) -> bool {
        matches!(change, Change::Env { name, .. } if self.env.iter().any(|(known, ..)| known == name))
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

/// Translates all operations: returns those of each worker, then the ones that are in the script and the ones that are not. `express`
/// says what an operation is in the script of a worker, or why it is not in it.
pub fn translate<'a>(
    job: &'a PlannedJob,
    workers: &[&Role],
    express: impl Fn(&'a Change, &Role, &mut Translated) -> Result<ScriptChange<'a>, &'static str>,
) -> (Vec<Translated>, Vec<Op>, Vec<Inexpressible>) {
    let mut all: Vec<Translated> = vec![Translated::default(); workers.len()];
    let (mut applied, mut inexpressible) = (Vec::new(), Vec::new());
    for op in &job.plan.ops {
        // A launcher has no node of its own here: its command is the job's, its variables are the first worker's.
        let index = workers.iter().position(|role| role.name == op.role);
        let (of_launcher, index) = (index.is_none(), index.unwrap_or(0));
        let (Some(role), Some(target)) = (workers.get(index), all.get_mut(index)) else { continue };
        if of_launcher && target.has(&op.change) {
            inexpressible.push(Inexpressible { op: op.clone(), reason: RANKS_HAVE_IT.to_owned() });
            continue;
        }
        match express(&op.change, role, target) {
            Ok(change) => {
                target.take(op, change);
                applied.push(op.clone());
            }
            Err(reason) => {
                inexpressible.push(Inexpressible { op: op.clone(), reason: reason.to_owned() });
            }
        }
    }
    (all, applied, inexpressible)
}
