//! The rules, by family: message, signatures that are evidence, condition, and fix.
//!
//! A rule is one value. Without [`Rule::when`] it applies where any of its signatures was found. The rules about single
//! errors ([`rule_of_error`]) know them by their words, or stand for a class of causes.

mod differ;
mod ends;
mod launchers;
mod libfabric;
mod messages;
mod node;
mod plugin;
mod program;
mod reasons;
mod socket;
mod starts;
mod ucx;
mod verbs;

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

pub(super) use ends::{
    COLLECTIVE_TIMEOUT_UNNAMED, COLLECTIVES_DIVERGED, ERROR_UNEXPLAINED, GPU_XID, GPU_XID_OF_PROGRAM,
    PEER_ENDED, PEER_ENDED_UNREAD, PROCESS_SILENT, PROGRAM_EXCEPTION, RANK_ENDED_EARLY, RANKS_ABORTED,
    RAY_WORKER_LOST, STORE_LOST, WATCHDOG_STUCK, rule_of_exit, rule_of_signal,
};
pub(super) use launchers::SLURM_REFUSED;
pub(super) use libfabric::WRONG_PROVIDER;
pub(super) use messages::NCCL_NO_REASON;
pub(super) use program::{COLLECTIVES_DIFFER, UNKNOWN_WARNING, closed_peers, ranks_of_one_gpu};
pub(super) use socket::{SOCKETS_BETWEEN_NODES, SOCKETS_INSIDE_NODE};
pub(super) use starts::{STORE_BARRIER_CROWDED, barrier_counts};
pub(super) use verbs::{NIXL_FAILED, peer_of};

use weftrun_nccl::{Signature, Trace};

use super::cause::CauseClass;
use super::nodes::Fault;
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
    consequences: &'static [&'static str],
    /// The words by which it knows an error: all of any of these.
    says: &'static [&'static [&'static str]],
    /// The only classes of causes whose words it knows; empty for all.
    only: &'static [CauseClass],
    /// The classes of causes whose errors it stands for where no rule knows their words.
    of: &'static [CauseClass],
    /// The class of a cause that an error with its words is, where it need not have ended anything.
    kind: Option<CauseClass>,
    /// The signatures of lines that quote an error whose words it may know.
    lines: &'static [Signature],
    cites: Option<for<'s> fn(&'s RuleInput<'_>) -> Vec<&'s Trace>>,
    when: Option<fn(&RuleInput<'_>) -> bool>,
    advice: Option<fn(&RuleInput<'_>) -> Option<String>>,
    by_line: Option<fn(&str) -> Option<String>>,
    detail: Option<fn(&RuleInput<'_>) -> Option<String>>,
    /// Whose failure it is; none where it is the program's, or nobody's that a retry could help.
    pub fault: Option<Fault>,
    /// Whether a line proves that the hardware failed.
    pub(super) proof: Option<fn(&str) -> bool>,
}

impl Rule {
    const fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Tells a failure of the hardware by the words of a line.
    const fn proof(mut self, proves: fn(&str) -> bool) -> Self {
        self.proof = Some(proves);
        self
    }

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

    const fn explaining(mut self, codes: &'static [&'static str]) -> Self {
        self.consequences = codes;
        self
    }

    const fn says(mut self, words: &'static [&'static [&'static str]]) -> Self {
        self.says = words;
        self
    }

    const fn only(mut self, classes: &'static [CauseClass]) -> Self {
        self.only = classes;
        self
    }

    const fn of(mut self, classes: &'static [CauseClass]) -> Self {
        self.of = classes;
        self
    }

    const fn kind(mut self, class: CauseClass) -> Self {
        self.kind = Some(class);
        self
    }

    const fn lines(mut self, signatures: &'static [Signature]) -> Self {
        self.lines = signatures;
        self
    }

    /// Replaces the fix by one with the names that stand in the log.
    const fn advice(mut self, advice: fn(&RuleInput<'_>) -> Option<String>) -> Self {
        self.advice = Some(advice);
        self
    }

    /// Replaces the fix by one that the words of the line decide: one prefix stands before many reasons.
    const fn by_line(mut self, fix: fn(&str) -> Option<String>) -> Self {
        self.by_line = Some(fix);
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
            None => {
                self.signatures.iter().any(|signature| seen.has(*signature)) || !self.quoted(seen).is_empty()
            }
        }
    }

    /// Returns the lines that quote an error whose words it knows before all other rules.
    fn quoted<'s>(&self, seen: &'s RuleInput<'_>) -> Vec<&'s Trace> {
        let hits = self.lines.iter().filter_map(|signature| seen.map.signatures().get(*signature));
        let traces: Vec<&Trace> = hits.flat_map(|hits| &hits.traces).collect();
        // What NCCL adds to a failed allocation has no words of its own.
        let is_echo = |trace: &Trace| trace.text.starts_with("Failed to CUDA calloc");
        let only_echoes = traces.iter().all(|trace| is_echo(trace));
        let is_own = |trace: &&Trace| {
            (only_echoes || !is_echo(trace))
                && rule_of_error(CauseClass::CudaError, &[&trace.text]).code == self.code
        };
        traces.into_iter().filter(is_own).collect()
    }

    /// Returns whether it knows the words of an error.
    fn knows(&self, class: CauseClass, text: &str) -> bool {
        (self.only.is_empty() || self.only.contains(&class)) && self.place_of(text) < self.says.len()
    }

    /// Returns which of its words an error has: the first ones say most.
    pub(super) fn place_of(&self, text: &str) -> usize {
        let place = self.says.iter().position(|words| words.iter().all(|word| text.contains(word)));
        place.unwrap_or(self.says.len())
    }

    /// Returns whether it knows errors by their words.
    pub(super) fn has_words(&self) -> bool {
        !self.says.is_empty()
    }

    /// Returns whether an error with its words ends a job.
    pub(super) fn is_end(&self) -> bool {
        self.signatures.is_empty() && self.blame.is_some()
    }

    /// Returns whether what another one found is a consequence of what this one did.
    pub(super) fn explains(&self, other: &Self) -> bool {
        self.code != other.code && self.consequences.contains(&other.code)
    }

    /// Returns the class of the cause that an error with its words is.
    pub(super) fn class(&self) -> Option<CauseClass> {
        match self.blame {
            Some(Blame::Rank(class)) => Some(class),
            _ if self.kind.is_some() => self.kind,
            _ if self.lines.is_empty() => self.of.first().copied(),
            _ => Some(self.of.first().copied().unwrap_or(CauseClass::CudaError)),
        }
    }

    /// Returns the signatures of the lines that it may cite.
    pub(super) fn all_signatures(&self) -> impl Iterator<Item = Signature> {
        self.signatures.iter().chain(self.lines).copied()
    }

    /// Returns whether it tells how fast a job is, not whether it fails.
    pub(super) fn is_about_speed(&self) -> bool {
        const WITHOUT_GDR: [&str; 5] =
            ["OFI-GDR-DISABLED", "IB-WITHOUT-GDR", "EFA-WITHOUT-GDR", "OFI-GDR-OFF-HMEM", "GDR-TOO-FAR"];
        matches!(self.code, SOCKETS_BETWEEN_NODES | SOCKETS_INSIDE_NODE | WRONG_PROVIDER | "TOPOLOGY-PATHS")
            || WITHOUT_GDR.contains(&self.code)
    }

    /// Returns whether it needs more than one of its signatures.
    pub(super) fn is_conditional(&self) -> bool {
        self.when.is_some()
    }

    /// Returns the lines that it cites besides those of its signatures.
    pub(super) fn cited<'s>(&self, seen: &'s RuleInput<'_>) -> Vec<&'s Trace> {
        self.cites.map_or_else(|| self.quoted(seen), |cites| cites(seen))
    }

    /// Returns what to do in this case.
    pub(super) fn fix_for(&self, seen: &RuleInput<'_>) -> String {
        self.advice_for(seen).unwrap_or_else(|| self.fix.to_owned())
    }

    /// Returns what to do in this case where it is not the same as in all others.
    pub(super) fn advice_for(&self, seen: &RuleInput<'_>) -> Option<String> {
        self.advice.and_then(|advice| advice(seen))
    }

    /// Returns what to do about an error with some words.
    pub(super) fn fix_of(&self, text: &str) -> String {
        self.fix_by(text).unwrap_or_else(|| self.fix.to_owned())
    }

    /// Returns what the words of an error decide to do.
    pub(super) fn fix_by(&self, text: &str) -> Option<String> {
        self.by_line.and_then(|fix| fix(text))
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
        consequences: &[],
        says: &[],
        only: &[],
        of: &[],
        kind: None,
        lines: &[],
        cites: None,
        when: None,
        advice: None,
        by_line: None,
        detail: None,
        fault: None,
        proof: None,
    }
}

/// A rule about the cause of an end.
const fn cause(
    id: &'static str,
    code: &'static str,
    message: &'static str,
    fix: &'static str,
    source: &'static str,
) -> Rule {
    rule(id, code, HIGH, message, fix, source)
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

/// The rule about an error of CUDA whose words no other rule knows.
const CUDA_FAILURE: &str = "CUDA-FAILURE";

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
        messages::RULES,
        launchers::RULES,
        ends::RULES,
        starts::RULES,
        ucx::RULES,
    ];
    let mut all: Vec<&Rule> = families.into_iter().flatten().collect();
    all.sort_by_key(|rule| rule.id);
    all
});

/// The rules that know errors, by the first of each of their words: every error of every rank is searched for them.
static FIRST_WORDS: LazyLock<Option<(AhoCorasick, Vec<&'static Rule>)>> = LazyLock::new(|| {
    let words =
        rules().flat_map(|rule| rule.says.iter().filter_map(move |words| Some((words.first()?, rule))));
    let (words, rules): (Vec<&&str>, Vec<&Rule>) = words.unzip();
    Some((AhoCorasick::new(words).ok()?, rules))
});

fn rule_of_words(class: CauseClass, text: &str) -> Option<&'static Rule> {
    let (automaton, of) = FIRST_WORDS.as_ref()?;
    let begun =
        automaton.find_overlapping_iter(text).filter_map(|hit| of.get(hit.pattern().as_usize()).copied());
    begun.filter(|rule| rule.knows(class, text)).min_by_key(|rule| rule.id)
}

/// Returns the rule about an error of a class that has some texts: the first one that knows the words of one of them, else
/// that of its class.
pub(super) fn rule_of_error(class: CauseClass, texts: &[&str]) -> &'static Rule {
    let known = texts.iter().find_map(|text| rule_of_words(class, text));
    known.or_else(|| rules().find(|rule| rule.of.contains(&class))).unwrap_or(&PROGRAM_EXCEPTION)
}

/// Returns every rule in the order of reports.
pub fn rules() -> impl Iterator<Item = &'static Rule> + Clone {
    ALL.iter().copied()
}
