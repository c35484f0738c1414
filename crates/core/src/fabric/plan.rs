//! What was decided for a job, whichever backend it goes to.

use serde::{Deserialize, Serialize};

use super::Profile;
use super::rules::detect;
use crate::Finding;
use crate::catalogue::Catalogue;
use crate::fabric::ClusterFacts;
use crate::fabric::{Op, Outcome, decide};
use crate::request::Fabric;
use crate::request::Origin;
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
    /// Where the fact behind it is written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Does not show the value of a variable or a command, in which the user's own environment may stand.
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

/// A rule that did not apply, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Skipped {
    /// Rule id, or the fabric's name when all of it was skipped.
    pub rule: String,
    /// Stable reason (`partial-node`, `opt-out`, `not-distributed`, …).
    pub reason: String,
    /// A sentence.
    pub why: String,
}

/// What was decided for one job: the same value whichever backend it goes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FabricPlan {
    /// The fabric the ranks are expected to use between nodes.
    pub fabric: Fabric,
    /// The decisions, in the order of the rules.
    pub decisions: Vec<Decision>,
    /// What did not apply.
    pub skipped: Vec<Skipped>,
    /// Errors and warnings.
    pub findings: Vec<Finding>,
    /// The changes the decisions mean.
    pub ops: Vec<Op>,
}

impl FabricPlan {
    /// Decides. Pure: the result depends on nothing but its arguments. What the user asked stands in `spec.fabric`.
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
        decide(&super::job_view::of(spec), profile, &spec.fabric, catalogue, facts).into()
    }

    /// Whether NCCL is expected to run, and so to say which transports it uses: not where no worker asks a GPU.
    pub fn runs_nccl(&self) -> bool {
        !self.skipped.iter().any(|skipped| skipped.rule == detect::RULE && skipped.reason == "no-gpu")
    }

    /// Whether the plan itself makes NCCL say which transports it uses.
    pub fn lets_nccl_speak(&self) -> bool {
        self.ops.iter().any(|op| op.rule == detect::RULE)
    }

    /// Makes the plan that changes nothing.
    pub fn unchanged(fabric: Fabric) -> Self {
        Self { fabric, decisions: Vec::new(), skipped: Vec::new(), findings: Vec::new(), ops: Vec::new() }
    }
}

impl From<Outcome> for FabricPlan {
    fn from(outcome: Outcome) -> Self {
        let Outcome { fabric, skip, ops, decisions, skipped, findings } = outcome;
        Self { fabric, decisions, skipped: skip.into_iter().chain(skipped).collect(), findings, ops }
    }
}
