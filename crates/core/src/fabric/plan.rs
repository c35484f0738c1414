//! The decisions for a job, independent of its backend.

use serde::{Deserialize, Serialize};

use super::Profile;
use super::rules::detect;
use crate::Finding;
use crate::catalogue::Catalogue;
use crate::fabric::evidence::FabricEvidence;
use crate::fabric::{ClusterFacts, Op, SkipReason, Skipped, decide};
use crate::request::{Fabric, Origin};
use crate::spec::JobSpec;

/// One decision, for a person: what is set on what, by which rule, and why.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Decision {
    /// Rule id (`efa.devices`).
    pub rule: String,
    /// What it is set on (`worker: resources vpc.amazonaws.com/efa`).
    pub target: String,
    /// The value.
    pub value: String,
    /// Why, in a sentence.
    pub why: String,
    /// Where the value came from.
    pub origin: Origin,
    /// The source of the fact behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Decision {
    pub(super) fn of(op: &Op) -> Self {
        Self {
            rule: op.rule.clone(),
            target: format!("{}: {}", op.role, op.change.target()),
            value: op.change.value(),
            why: op.why.clone(),
            origin: op.origin.clone(),
            source: op.source.clone(),
        }
    }
}

/// Hides the value of a variable or a command, which may contain the user's own environment.
impl std::fmt::Debug for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, target, value, why: _, origin, source: _ } = self;
        let hidden = ["env ", "command", "mpirun", "annotation "].iter().any(|word| target.contains(word));
        let mut shown = f.debug_struct("Decision");
        shown.field("rule", rule).field("target", target);
        if !hidden {
            shown.field("value", value);
        }
        shown.field("origin", origin).finish_non_exhaustive()
    }
}

/// What was decided for one job: the same value for a job file, a manifest and a script, and for every backend.
///
/// With an error among the findings there are no ops: the job stays as it was.
///
/// ```
/// use weftrun_core::catalogue::Catalogue;
/// use weftrun_core::fabric::{ClusterFacts, Fabric, FabricPlan, Profiles};
/// use weftrun_core::spec::{JobSpec, Role};
/// let worker = Role::worker().nodes(2).gpus_per_node(8).instance_type("p5.48xlarge").memory("1Ti");
/// let job = JobSpec::builder("llama-8b").image("pytorch:25.09").fabric(Fabric::Efa);
/// let job = job.role(worker.command(["./train"])).build()?;
/// let (catalogue, profile) = (Catalogue::builtin(), Profiles::builtin().get("eks-image")?);
/// let plan = FabricPlan::new(&job, &catalogue, &ClusterFacts::default(), &profile);
/// assert_eq!(plan.fabric, Fabric::Efa);
/// assert!(plan.decisions.iter().any(|decision| decision.rule == "efa.devices"));
/// # Ok::<(), weftrun_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FabricPlan {
    /// The fabric the ranks are expected to use between nodes; [`Fabric::Auto`] if none is.
    pub fabric: Fabric,
    /// The decisions, role by role: one for each op, and one for each value of the user's that stays.
    pub decisions: Vec<Decision>,
    /// What did not apply: a whole fabric (first), or single rules.
    pub skipped: Vec<Skipped>,
    /// Errors, warnings and notes, in the order of their creation.
    pub findings: Vec<Finding>,
    /// The changes the decisions mean, in the order they are to be made.
    pub ops: Vec<Op>,
    /// The profile they are of, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Instance type of the workers' nodes, if all have the same known one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// What the job or the cluster shows of its fabric; empty where the profile was named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<FabricEvidence>,
}

impl FabricPlan {
    /// Makes the plan of a job of which nothing is changed.
    pub fn skipped(skipped: Skipped) -> Self {
        Self { skipped: vec![skipped], ..Self::default() }
    }

    /// Makes the decisions. Pure: the result depends only on the arguments. The user's request is in
    /// `spec.fabric`.
    ///
    /// ```
    /// use weftrun_core::{catalogue::Catalogue, backend::ClusterFacts, fabric::{Fabric, FabricPlan, Profiles}};
    /// use weftrun_core::spec::{JobSpec, Role};
    /// let worker = Role::worker().nodes(2).gpus_per_node(8).memory("1800Gi").instance_type("p5en.48xlarge");
    /// let spec = JobSpec::builder("llama").image("pytorch:25.09").role(worker.command(["train.py"])).build()?;
    /// let profile = Profiles::builtin().get("dgxc")?;
    /// let plan = FabricPlan::new(&spec, &Catalogue::builtin(), &ClusterFacts::default(), &profile);
    /// assert_eq!(plan.fabric, Fabric::Efa);
    /// let devices = plan.decisions.iter().find(|decision| decision.rule == "efa.devices");
    /// assert_eq!(devices.map(|decision| decision.value.as_str()), Some("16"));
    /// # Ok::<(), weftrun_core::Error>(())
    /// ```
    pub fn new(spec: &JobSpec, catalogue: &Catalogue, facts: &ClusterFacts, profile: &Profile) -> Self {
        let mut job = super::job_view::of(spec);
        super::job_view::whole_nodes(&mut job, spec, profile, catalogue, facts);
        decide(&job, profile, &spec.fabric, catalogue, facts)
    }

    /// Returns whether NCCL is expected to run, and so to log its transports: not where no worker requests
    /// a GPU.
    pub fn runs_nccl(&self) -> bool {
        !self
            .skipped
            .iter()
            .any(|skipped| skipped.rule == detect::RULE && skipped.reason == SkipReason::NoGpu)
    }

    /// Removes the warning about a hidden `LD_LIBRARY_PATH`, for scripts and processes without a container: there the plan's
    /// folders are put before those of the environment.
    pub fn keep_library_path(&mut self) {
        self.findings.retain(|finding| finding.code != "W-LDPATH-SHADOW");
    }

    /// Returns whether the plan itself makes NCCL log its transports.
    pub fn sets_nccl_debug(&self) -> bool {
        self.ops.iter().any(|op| op.rule == detect::RULE)
    }

    /// Moves changes that are not written, for one reason, and their decisions to what did not apply.
    pub fn leave_out(&mut self, ops: &[&Op], why: impl Into<String>) {
        let Some(first) = ops.first() else { return };
        self.ops.retain(|op| !ops.contains(&op));
        for op in ops {
            let target = format!("{}: {}", op.role, op.change.target());
            self.decisions.retain(|decision| decision.rule != op.rule || decision.target != target);
        }
        let skipped = Skipped::rule(first.rule.clone(), SkipReason::NotExpressible, why);
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// Makes the plan that changes nothing.
    pub fn unchanged(fabric: Fabric) -> Self {
        Self { fabric, ..Self::default() }
    }

    /// Returns why nothing of the fabric applies (`partial-node`, `opt-out`, …), if nothing does.
    pub fn skip(&self) -> Option<&Skipped> {
        self.skipped.iter().find(|skipped| skipped.is_whole())
    }

    /// Returns the first error, if there is one.
    pub fn error(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.is_error())
    }
}
