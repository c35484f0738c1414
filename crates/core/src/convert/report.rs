//! What `mutate` has to say of one job.

use serde::Serialize;
use serde_json::Value as Json;

use crate::Finding;
use crate::fabric::view::{JobKind, JobView};
use crate::fabric::{Change, Op, Outcome};
use crate::fabric::{Decision, Skipped};

/// What became of one job object or script.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct JobReport {
    /// Kind of object (`PyTorchJob`).
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace, if it says one.
    pub namespace: Option<String>,
    /// File it came from, and the line it starts on.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Whether anything was changed.
    pub changed: bool,
    /// Why nothing of the fabric applies, if nothing does (`partial-node`).
    pub skip: Option<String>,
    /// The sentence to it.
    pub skip_why: Option<String>,
    /// What stood in the way, if anything did; then the job stays as it was.
    pub error: Option<Finding>,
    /// What was done, in a few words each.
    pub actions: Vec<String>,
    /// Warnings and notes.
    pub notes: Vec<Finding>,
    /// Every decision with its why.
    pub decisions: Vec<Decision>,
    /// Single rules that did not apply.
    pub skipped: Vec<Skipped>,
    /// The changes themselves.
    #[serde(skip)]
    pub ops: Vec<Op>,
}

impl JobReport {
    /// `overrides` is the field of a TrainJob that takes what its trainer has no field for.
    pub(super) fn new(job: &JobView, outcome: Outcome, overrides: &str) -> Self {
        let error = outcome.error().cloned();
        let actions = if error.is_some() { Vec::new() } else { actions(job, &outcome.ops, overrides) };
        Self {
            kind: kind_name(job.kind).to_owned(),
            name: job.name.clone(),
            namespace: job.namespace.clone(),
            file: String::new(),
            line: 1,
            changed: error.is_none() && !outcome.ops.is_empty(),
            skip: outcome.skip.as_ref().map(|skip| skip.reason.clone()),
            skip_why: outcome.skip.map(|skip| skip.why),
            actions,
            notes: outcome.findings.into_iter().filter(|finding| !finding.is_error()).collect(),
            decisions: outcome.decisions,
            skipped: outcome.skipped,
            ops: if error.is_some() { Vec::new() } else { outcome.ops },
            error,
        }
    }

    /// A job whose API version nobody serves any more, or nobody does yet: it stays as it is.
    pub(super) fn of_other_version(object: &Json, file: &str, line: usize) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
        let (kind, version) = (text("/kind"), text("/apiVersion"));
        let known = match kind.as_str() {
            "PyTorchJob" => "kubeflow.org/v1",
            "MPIJob" => "kubeflow.org/v1 and kubeflow.org/v2beta1",
            _ => "trainer.kubeflow.org/v1alpha1",
        };
        Self {
            name: text("/metadata/name"),
            namespace: Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()),
            file: file.to_owned(),
            line,
            skip: Some("api-version".to_owned()),
            skip_why: Some(format!("{kind} of {version} is not known; {known} is")),
            kind,
            ..Self::default()
        }
    }

    /// Keeps the job as it was, for a reason found after the decisions.
    pub(super) fn fail(&mut self, error: Finding) {
        self.pass();
        self.error = Some(error);
    }

    /// Keeps the job as it was.
    pub(super) fn pass(&mut self) {
        self.changed = false;
        self.actions.clear();
        self.ops.clear();
    }
}

fn kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::JobFile => "job",
        JobKind::PyTorchJob => "PyTorchJob",
        JobKind::MpiJobV1 | JobKind::MpiJobV2 => "MPIJob",
        JobKind::TrainJob => "TrainJob",
        JobKind::Sbatch => "sbatch script",
    }
}

fn actions(job: &JobView, ops: &[Op], field: &str) -> Vec<String> {
    let mut actions: Vec<String> = Vec::new();
    let mut overrides = false;
    for op in ops {
        let role = job.roles.iter().find(|role| role.name == op.role);
        let had_env = |name: &str| role.is_some_and(|role| role.container.env(name).is_some());
        let what = match &op.change {
            Change::Env { name, .. } => {
                let done = match (name.as_str(), had_env(name)) {
                    ("LD_LIBRARY_PATH", true) => "prefixed",
                    ("LD_LIBRARY_PATH", false) => "set",
                    (_, true) => "replaced",
                    (_, false) => "added",
                };
                format!("env {name} {done}")
            }
            Change::Mount { .. } => "volume and mount added".to_owned(),
            Change::Resource { name, quantity } => format!("resources {name}={quantity}"),
            Change::Annotation { key, .. } if role.is_some_and(|role| role.annotations.contains_key(key)) => {
                format!("annotation {key} appended")
            }
            Change::Annotation { key, .. } => format!("annotation {key}"),
            Change::Capability { name } => format!("capability {name}"),
            Change::NodeSelector { key, value } => format!("node selector {key}={value}"),
            Change::Colocate { topology_key } => format!("affinity {topology_key}"),
            Change::Toleration { key, .. } => format!("toleration {key}"),
            Change::Command { before, after, .. }
                if crate::shell::gid::wrapped_from(after).is_some()
                    && crate::shell::gid::wrapped_from(before).is_none() =>
            {
                "command wrapped".to_owned()
            }
            Change::Command { before, after, .. } => {
                let count = new_mpiruns(before, after).max(1);
                (1..count).for_each(|_| actions.push(format!("{}: mpirun rewritten", op.role)));
                "mpirun rewritten".to_owned()
            }
            Change::Wrap { .. } | Change::Mpirun { .. } => continue,
        };
        let patched =
            matches!(op.change, Change::Mount { .. } | Change::Annotation { .. } | Change::Capability { .. });
        if job.kind == JobKind::TrainJob && patched {
            overrides = true;
        } else {
            actions.push(format!("{}: {what}", op.role));
        }
    }
    if overrides {
        actions.push(format!("{field} entry added"));
    }
    actions
}

/// How many `mpirun` with an absolute path are new in a command line.
fn new_mpiruns(before: &[String], after: &[String]) -> usize {
    let mut left = mpiruns(before);
    let mut new = 0;
    for word in mpiruns(after) {
        match left.iter().position(|old| *old == word) {
            Some(at) => drop(left.swap_remove(at)),
            None => new += 1,
        }
    }
    new
}

fn mpiruns(argv: &[String]) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let words = argv.iter().flat_map(|word| word.split(move |c: char| !is_path(c)));
    words.filter(|word| ["/mpirun", "/mpiexec", "/orterun"].iter().any(|end| word.ends_with(end))).collect()
}
