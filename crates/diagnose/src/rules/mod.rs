//! The rules, by family: message, signatures that are evidence, condition, and fix.
//!
//! A rule is one value. Without [`Rule::when`] it applies where any of its signatures was found.

mod differ;
mod libfabric;
mod node;
mod plugin;
mod program;
mod socket;
mod verbs;

use std::sync::LazyLock;

pub(super) use libfabric::WRONG_PROVIDER;
pub(super) use program::{COLLECTIVES_DIFFER, UNKNOWN_WARNING, closed_peers};
pub(super) use socket::{SOCKETS_BETWEEN_NODES, SOCKETS_INSIDE_NODE};

use weftrun_nccl::{Signature, Trace};

use super::cause::CauseClass;
use super::rule_input::RuleInput;
use weftrun_core::{Confidence, Severity};

/// Whom a rule blames for the end of a job, where its evidence ends one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The rank that printed it, or its node.
    Rank(CauseClass),
    /// The link between the rank that printed it and a peer: either end, or the network.
    Link,
    /// The peer, which ended before.
    Peer,
}

/// One rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Id, the finding's `ref`.
    pub id: &'static str,
    /// Stable code.
    pub code: &'static str,
    /// How bad.
    pub severity: Severity,
    /// How sure, once its condition holds.
    pub confidence: Confidence,
    /// What it means.
    pub message: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// Where it is written down.
    pub source: &'static str,
    /// Edits of the job file: path, and the value to set; none unsets.
    pub patch: &'static [(&'static str, Option<&'static str>)],
    /// What counts as its evidence.
    pub signatures: &'static [Signature],
    /// Whom it blames for the end of a job; none where a job continues in spite of it.
    pub blame: Option<Blame>,
    /// The codes of findings that are its consequences.
    pub explains: &'static [&'static str],
    cites: Option<for<'s> fn(&'s RuleInput<'_>) -> Vec<&'s Trace>>,
    when: Option<fn(&RuleInput<'_>) -> bool>,
    advice: Option<fn(&RuleInput<'_>) -> Option<String>>,
    detail: Option<fn(&RuleInput<'_>) -> Option<String>>,
}

impl Rule {
    const fn patch(mut self, patch: &'static [(&'static str, Option<&'static str>)]) -> Self {
        self.patch = patch;
        self
    }

    const fn signatures(mut self, signatures: &'static [Signature]) -> Self {
        self.signatures = signatures;
        self
    }

    const fn blame(mut self, blame: Blame) -> Self {
        self.blame = Some(blame);
        self
    }

    /// The rank that printed the evidence failed by itself.
    const fn fails(self) -> Self {
        self.blame(Blame::Rank(CauseClass::Nccl))
    }

    const fn explains(mut self, codes: &'static [&'static str]) -> Self {
        self.explains = codes;
        self
    }

    /// Replaces the fix by one with the names that stand in the log.
    const fn advice(mut self, advice: fn(&RuleInput<'_>) -> Option<String>) -> Self {
        self.advice = Some(advice);
        self
    }

    /// Cites lines that no signature keeps.
    const fn cites(mut self, cites: for<'s> fn(&'s RuleInput<'_>) -> Vec<&'s Trace>) -> Self {
        self.cites = Some(cites);
        self
    }

    const fn when(mut self, condition: fn(&RuleInput<'_>) -> bool) -> Self {
        self.when = Some(condition);
        self
    }

    const fn detail(mut self, detail: fn(&RuleInput<'_>) -> Option<String>) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Returns whether the rule applies to what was seen.
    pub(super) fn applies(&self, seen: &RuleInput<'_>) -> bool {
        match self.when {
            Some(condition) => condition(seen),
            None => self.signatures.iter().any(|signature| seen.has(*signature)),
        }
    }

    /// Returns whether it tells how fast a job is, not whether it fails.
    pub(super) fn is_about_speed(&self) -> bool {
        matches!(self.code, SOCKETS_BETWEEN_NODES | SOCKETS_INSIDE_NODE | WRONG_PROVIDER | "OFI-GDR-DISABLED")
    }

    /// Returns whether it needs more than one of its signatures.
    pub(super) fn is_conditional(&self) -> bool {
        self.when.is_some()
    }

    /// Returns the lines that it cites besides those of its signatures.
    pub(super) fn cited<'s>(&self, seen: &'s RuleInput<'_>) -> Vec<&'s Trace> {
        self.cites.map_or_else(Vec::new, |cites| cites(seen))
    }

    /// Returns what to do in this case.
    pub(super) fn fix_for(&self, seen: &RuleInput<'_>) -> String {
        self.advice.and_then(|advice| advice(seen)).unwrap_or_else(|| self.fix.to_owned())
    }

    /// Returns the rule's sentence, with the known details of this case.
    pub(super) fn sentence(&self, seen: &RuleInput<'_>) -> String {
        let detail = self.detail.and_then(|detail| detail(seen)).unwrap_or_default();
        format!("{}{detail}", self.message)
    }
}

const fn rule(
    id: &'static str,
    code: &'static str,
    level: (Severity, Confidence),
    message: &'static str,
    fix: &'static str,
    source: &'static str,
) -> Rule {
    Rule {
        id,
        code,
        severity: level.0,
        confidence: level.1,
        message,
        fix,
        source,
        patch: &[],
        signatures: &[],
        blame: None,
        explains: &[],
        cites: None,
        when: None,
        advice: None,
        detail: None,
    }
}

const HIGH: (Severity, Confidence) = (Severity::Error, Confidence::High);
const MEDIUM: (Severity, Confidence) = (Severity::Warning, Confidence::Medium);
const LOW: (Severity, Confidence) = (Severity::Warning, Confidence::Low);
const NOTE: (Severity, Confidence) = (Severity::Info, Confidence::Medium);

macro_rules! nccl_issue {
    ($number:literal) => {
        concat!("https://github.com/NVIDIA/nccl/issues/", $number)
    };
}
macro_rules! ofi_issue {
    ($number:literal) => {
        concat!("https://github.com/aws/aws-ofi-nccl/issues/", $number)
    };
}
use {nccl_issue, ofi_issue};

const TROUBLESHOOTING: &str =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html";
const ENV: &str = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html";

/// Every rule, by id: the order of reports.
static ALL: LazyLock<Vec<&'static Rule>> = LazyLock::new(|| {
    let families = [
        plugin::RULES,
        libfabric::RULES,
        verbs::RULES,
        node::RULES,
        socket::RULES,
        program::RULES,
        differ::RULES,
    ];
    let mut all: Vec<&Rule> = families.into_iter().flatten().collect();
    all.sort_by_key(|rule| rule.id);
    all
});

/// Returns every rule in the order of reports.
pub fn rules() -> impl Iterator<Item = &'static Rule> + Clone {
    ALL.iter().copied()
}
