//! The report of `mutate` about one job.

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use weftrun_core::Finding;
use weftrun_core::fabric::evidence::FabricEvidence;
use weftrun_core::fabric::view::{JobKind, JobView};
use weftrun_core::fabric::{Change, Decision, FabricPlan, Op, SkipReason, Skipped};
use weftrun_core::request::Fabric;

/// One job object or script: its identity, its plan, and what was done to it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MutatedJob {
    /// Kind of object (`PyTorchJob`).
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// File it came from.
    pub file: String,
    /// Line it starts on, from 1.
    pub line: usize,
    /// Whether anything was changed.
    pub changed: bool,
    /// What was done, in a few words each.
    pub actions: Vec<String>,
    /// What was decided. With an error in it, the job stays as it was.
    pub plan: FabricPlan,
}

/// A [`MutatedJob`] as other programs read it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "JobReport"))]
struct Shape<'a> {
    /// Kind of object (`PyTorchJob`).
    kind: &'a str,
    /// Its name.
    name: &'a str,
    /// Its namespace, if it has one.
    namespace: Option<&'a str>,
    /// File it came from.
    file: &'a str,
    /// Line it starts on, from 1.
    line: usize,
    /// Whether anything was changed.
    changed: bool,
    /// Why nothing of the fabric applies, if nothing does (`partial-node`).
    skip: Option<SkipReason>,
    /// The same as a sentence.
    skip_why: Option<&'a str>,
    /// The error, if there is one; then the job stays as it was.
    error: Option<&'a Finding>,
    /// What was done, in a few words each.
    actions: &'a [String],
    /// Warnings and notes.
    notes: Vec<&'a Finding>,
    /// Every decision with its reason.
    decisions: &'a [Decision],
    /// Single rules that did not apply.
    skipped: Vec<&'a Skipped>,
    /// The profile that was applied, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
    /// What shows the fabric of the job; empty where the profile was named.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    evidence: &'a [FabricEvidence],
}

impl Serialize for MutatedJob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let skip = self.plan.skip();
        let shape = Shape {
            kind: &self.kind,
            name: &self.name,
            namespace: self.namespace.as_deref(),
            file: &self.file,
            line: self.line,
            changed: self.changed,
            skip: skip.map(|skip| skip.reason),
            skip_why: skip.map(|skip| skip.why.as_str()),
            error: self.error(),
            actions: &self.actions,
            notes: self.notes().collect(),
            decisions: &self.plan.decisions,
            skipped: self.plan.skipped.iter().filter(|skipped| !skipped.is_whole()).collect(),
            profile: self.plan.profile.as_deref(),
            evidence: &self.plan.evidence,
        };
        shape.serialize(serializer)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for MutatedJob {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Shape::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Shape::json_schema(generator)
    }
}

impl MutatedJob {
    /// Makes a report. `overrides` is the field of a TrainJob for changes that its trainer has no field
    /// for.
    pub(super) fn new(job: &JobView, plan: FabricPlan, overrides: &str) -> Self {
        Self {
            kind: kind_name(job.kind).to_owned(),
            name: job.name.clone(),
            namespace: job.namespace.clone(),
            line: 1,
            changed: !plan.ops.is_empty(),
            actions: actions(job, &plan.ops, overrides),
            plan,
            ..Self::default()
        }
    }

    /// Makes the report of a job whose API version is no longer served, or not yet: it stays unchanged.
    pub(super) fn of_other_version(object: &Json, file: &str, line: usize) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned();
        let (kind, version) = (text("/kind"), text("/apiVersion"));
        let known = match kind.as_str() {
            "PyTorchJob" => "kubeflow.org/v1",
            "MPIJob" => "kubeflow.org/v1 and kubeflow.org/v2beta1",
            _ => "trainer.kubeflow.org/v1alpha1",
        };
        let why = format!("{kind} of {version} is not known; weftrun supports {known}");
        Self {
            name: text("/metadata/name"),
            namespace: Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()),
            file: file.to_owned(),
            line,
            plan: FabricPlan::skipped(Skipped::fabric(Fabric::Auto, SkipReason::ApiVersion, why)),
            kind,
            ..Self::default()
        }
    }

    /// Returns why nothing of the fabric applies, if nothing does (`partial-node`).
    pub fn skip(&self) -> Option<&str> {
        self.plan.skip().map(|skip| skip.reason.as_str())
    }

    /// Returns the error that prevented the changes, if there is one.
    pub fn error(&self) -> Option<&Finding> {
        self.plan.error()
    }

    /// Returns the warnings and notes.
    pub fn notes(&self) -> impl Iterator<Item = &Finding> {
        self.plan.findings.iter().filter(|finding| !finding.is_error())
    }

    /// Keeps the job unchanged, for a reason found after the decisions.
    pub(super) fn fail(&mut self, error: Finding) {
        self.pass();
        self.plan.findings.push(error);
    }

    /// Keeps the job unchanged.
    pub(super) fn pass(&mut self) {
        self.changed = false;
        self.actions.clear();
        self.plan.ops.clear();
    }
}

fn kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::JobFile => "job",
        JobKind::PyTorchJob => "PyTorchJob",
        JobKind::MpiJobV1 | JobKind::MpiJobV2 => "MPIJob",
        JobKind::TrainJob => "TrainJob",
        JobKind::Sbatch => "sbatch script",
        JobKind::Workload(kind) => kind.as_str(),
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
                if weftrun_core::shell::gid::wrapped_from(after).is_some()
                    && weftrun_core::shell::gid::wrapped_from(before).is_none() =>
            {
                "command wrapped".to_owned()
            }
            Change::Command { before, after, .. } => {
                let count = new_mpiruns(before, after).max(1);
                (1..count).for_each(|_| actions.push(format!("{}: mpirun rewritten", op.role)));
                "mpirun rewritten".to_owned()
            }
            Change::Member { .. } | Change::Companion { .. } => format!("{} added", op.change.target()),
            Change::Remove { .. } => format!("{} removed", op.change.target()),
            Change::PodField { .. } | Change::JobField { .. } => {
                format!("{}={}", op.change.target(), op.change.value())
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

/// Returns how many `mpirun` with an absolute path are new in a command line.
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
