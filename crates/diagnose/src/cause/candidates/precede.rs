//! What explains a failure comes before the general words that report it: a refusal, an exception without its
//! traceback, or that another process ended.

use weftrun_core::Severity;
use weftrun_core::finding::Evidence;

use super::super::class::CauseClass;
use super::super::grade::Grade;
use super::rulings::Ruling;
use super::{Candidate, NEAR};
use crate::rule_input::RuleInput;
use crate::rules::{PEER_ENDED, PROGRAM_EXCEPTION, Rule, SLURM_REFUSED, rules};

/// Most lines between what NCCL or a plugin of it says and the error of the program that follows from it.
const REACH: u64 = 6;

/// Gives what explains a general report the place of that one, which is dropped.
pub(super) fn precede(found: &mut Vec<Candidate>, seen: &RuleInput<'_>) {
    for at in 0..found.len() {
        let Some(general) = found.get(at) else { continue };
        let near = |one: &Candidate| one.source == general.source && one.line.abs_diff(general.line) <= NEAR;
        let explains = |one: &Candidate| match general.rule.code {
            code if code == SLURM_REFUSED.code => is_before(one, general) && is_of_same_program(one, general),
            code if code == PEER_ENDED.code => is_of_a_node_or_gpu(one.class),
            _ => false,
        };
        let first = found
            .iter()
            .enumerate()
            .filter(|(_, one)| one.grade > general.grade || one.grade.is_quote())
            .filter(|(_, one)| near(one) && explains(one) && is_known(one))
            .min_by_key(|(_, one)| one.line)
            .map(|(place, _)| place);
        // What a process that ended leaves to the others proves that it ended.
        let grade = general.grade.min(Grade::Reported);
        let is_proof = general.is_proof || general.grade == Grade::Remote;
        let is_untraced = general.rule.code == PROGRAM_EXCEPTION.code
            && matches!(general.grade, Grade::Alone | Grade::Quoted);
        let reason = if is_untraced { reason(general, seen) } else { None };
        if let Some(place) = first
            && let Some(one) = found.get_mut(place)
        {
            one.grade = grade;
            one.is_proof = is_proof;
            if let Some(general) = found.get_mut(at) {
                general.grade = Grade::Mentioned;
            }
        } else if let Some(reason) = reason
            && let Some(general) = found.get_mut(at)
        {
            *general = reason;
        }
    }
}

fn is_before(one: &Candidate, general: &Candidate) -> bool {
    one.line < general.line
}

/// Returns whether a rule knows its words, and not only its kind.
fn is_known(one: &Candidate) -> bool {
    !matches!(one.class, CauseClass::Unexplained | CauseClass::ExitCode) && one.rule.has_words()
}

/// Returns whether both lines are errors of one program: `sbatch: error: …`.
fn is_of_same_program(one: &Candidate, other: &Candidate) -> bool {
    let program = |one: &Candidate| Some(one.evidence.text.split_once(": error: ")?.0.to_owned());
    program(one).is_some_and(|name| program(other) == Some(name))
}

/// Returns whether a failure of this kind ends processes, which the others then miss.
fn is_of_a_node_or_gpu(class: CauseClass) -> bool {
    matches!(
        class,
        CauseClass::NodeFail | CauseClass::CudaOutOfMemory | CauseClass::CudaError | CauseClass::OutOfMemory
    )
}

/// Returns what a rule of NCCL's lines says just above an error of the program, of which no traceback is in the log.
fn reason(general: &Candidate, seen: &RuleInput<'_>) -> Option<Candidate> {
    let is_reason = |rule: &&Rule| {
        rule.blame.is_none()
            && rule.severity == Severity::Error
            && !rule.signatures.is_empty()
            && !rule.is_about_speed()
            && rule.applies(seen)
    };
    rules().filter(is_reason).find_map(|rule| {
        let hits = rule.signatures.iter().filter_map(|signature| seen.map.signatures().get(*signature));
        let trace = hits.flat_map(|hits| &hits.traces).find(|trace| {
            seen.map.source_of(trace) == general.source
                && (1..=REACH).contains(&general.line.saturating_sub(trace.line))
                && !seen.map.went_on(trace)
        })?;
        let evidence = Evidence {
            source: seen.map.source_name(trace).to_owned(),
            line: trace.line,
            text: trace.text.clone(),
        };
        let of = Ruling::of(rule, general.grade, CauseClass::Nccl, rule.sentence(seen)).advised(seen);
        let host = seen.map.host_of(trace).map(str::to_owned);
        Some(Candidate {
            ranks: general.ranks.clone(),
            host,
            first: general.first,
            source: general.source,
            time: general.time,
            is_proof: general.is_proof,
            ..of.candidate(evidence)
        })
    })
}
