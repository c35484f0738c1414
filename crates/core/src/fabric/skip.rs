//! What of a fabric did not apply, and why.

use serde::{Deserialize, Serialize};

use super::Fabric;

word_enum! {
    /// Why a rule or a whole fabric did not apply. `weftrun explain` has a page for each.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum SkipReason: ALL {
        /// The job reaches its fabric as it is.
        AlreadyThere = "already-there",
        /// The API version of the job is not mutated.
        ApiVersion = "api-version",
        /// NCCL chooses by itself.
        Auto = "auto",
        /// The rule depends on one that is switched off, or on a request of none.
        DependsOn = "depends-on",
        /// Nothing shows the fabric of the job.
        FabricUnknown = "fabric-unknown",
        /// The command of a container is not known.
        NoCommand = "no-command",
        /// The instance type has no EFA.
        NoEfaOnInstanceType = "no-efa-on-instance-type",
        /// No worker requests accelerators.
        NoGpu = "no-gpu",
        /// The instance type is not known, and so not what its nodes have.
        InstanceUnknown = "instance-unknown",
        /// No label marks the pods of the object.
        NoLabel = "no-label",
        /// No memory is requested, or the node has too few huge pages, so they are left out.
        NoMemory = "no-memory",
        /// The device of the instance type has no RDMA read.
        NoRdmaRead = "no-rdma-read",
        /// Nothing names the number of nodes.
        NodesUnknown = "nodes-unknown",
        /// No webhook adds EFA.
        NoWebhook = "no-webhook",
        /// The job has one pod with ranks.
        NotDistributed = "not-distributed",
        /// The backend or the sbatch script has no form of the change.
        NotExpressible = "not-expressible",
        /// The fabric or the rule is switched off.
        Off = "off",
        /// The job opts out.
        OptOut = "opt-out",
        /// weftrun has no rules for the fabric of the job.
        OtherFabric = "other-fabric",
        /// A worker requests a part of a node.
        PartialNode = "partial-node",
        /// The workers get their devices by resource claims.
        ResourceClaims = "resource-claims",
        /// The job sets the value itself.
        SetByUser = "set-by-user",
        /// The file is a template that was not filled in.
        Template = "template",
        /// A reason that another release of weftrun recorded.
        #[serde(other)]
        Unknown = "unknown",
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
    pub reason: SkipReason,
    /// A sentence.
    pub why: String,
}

impl Skipped {
    /// Makes the record of a fabric of which nothing applies.
    pub fn fabric(fabric: Fabric, reason: SkipReason, why: impl Into<String>) -> Self {
        Self { rule: fabric.as_str().to_owned(), reason, why: why.into() }
    }

    /// Makes the record of one rule that does not apply.
    pub fn rule(rule: impl Into<String>, reason: SkipReason, why: impl Into<String>) -> Self {
        Self { rule: rule.into(), reason, why: why.into() }
    }

    /// Returns whether all of a fabric was skipped, and not a single rule, whose id has a dot.
    pub fn is_whole(&self) -> bool {
        !self.rule.contains('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_another_release_is_read() {
        let stored = r#"{"rule": "efa.stack", "reason": "no-profile", "why": "no profile"}"#;
        let skipped: Skipped = serde_json::from_str(stored).unwrap();
        assert_eq!((skipped.reason, skipped.why.as_str()), (SkipReason::Unknown, "no profile"));
    }
}
