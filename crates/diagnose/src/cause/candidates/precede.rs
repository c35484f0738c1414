//! What explains a failure comes before the general words that report it: a refusal, an exception without its
//! traceback, or that another process ended.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use weftrun_core::Severity;
use weftrun_core::finding::Evidence;
use weftrun_nccl::{SourceIndex, Trace};

use super::super::answer::named;
use super::super::class::CauseClass;
use super::super::grade::Grade;
use super::rulings::Ruling;
use super::{Candidate, NEAR};
use crate::rule_input::RuleInput;
use crate::rules::{
    ERROR_UNEXPLAINED, NIXL_FAILED, PEER_ENDED, PROGRAM_EXCEPTION, Rule, SLURM_REFUSED, WATCHDOG_STUCK, rules,
};

/// Most lines between what NCCL or a plugin of it says and the error of the program that follows from it.
const REACH: u64 = 6;

/// Gives what explains a general report the place of that one, which is dropped.
pub(super) fn precede(found: &mut [Candidate], seen: &RuleInput<'_>) {
    let known: BTreeMap<(SourceIndex, u64), usize> = found
        .iter()
        .enumerate()
        .filter(|(_, one)| one.grade > Grade::Alone && is_known(one) && !is_general(one))
        .map(|(place, one)| ((one.source, one.line), place))
        .collect();
    let reasons = LazyCell::new(|| reasons(seen));
    for at in 0..found.len() {
        let Some(general) = found.get(at).filter(|one| is_general(one)) else { continue };
        if general.rule.code == PROGRAM_EXCEPTION.code {
            let above = (general.source, general.line.saturating_sub(REACH))..(general.source, general.line);
            let reason =
                reasons.range(above).next_back().map(|(_, (rule, trace))| of(rule, trace, general, seen));
            if let Some((reason, general)) = reason.zip(found.get_mut(at)) {
                *general = reason;
            }
            continue;
        }
        let explains = |one: &Candidate| {
            if general.rule.code == PEER_ENDED.code {
                return is_of_a_node_or_gpu(one.class);
            }
            is_before(one, general)
                && (general.rule.code == NIXL_FAILED.code || is_of_same_program(one, general))
        };
        let near = (general.source, general.line.saturating_sub(NEAR))
            ..=(general.source, general.line.saturating_add(NEAR));
        let mut places = known.range(near).map(|(_, place)| *place);
        let Some(place) = places.find(|place| found.get(*place).is_some_and(explains)) else { continue };
        // What a process that ended leaves to the others proves that it ended.
        let grade = general.grade.min(Grade::Reported);
        let is_proof = general.is_proof || general.grade == Grade::Remote;
        if let Some(one) = found.get_mut(place) {
            one.grade = one.grade.min(grade);
            one.is_proof |= is_proof;
        }
        if let Some(general) = found.get_mut(at) {
            general.grade = Grade::Mentioned;
        }
    }
}

/// Returns whether it says that something failed or ended, and nothing of why.
fn is_general(one: &Candidate) -> bool {
    let is_of = |rule: &Rule| one.rule.code == rule.code;
    is_of(&SLURM_REFUSED)
        || is_of(&NIXL_FAILED)
        || is_of(&PEER_ENDED) && one.grade == Grade::Remote
        || is_of(&PROGRAM_EXCEPTION) && matches!(one.grade, Grade::Alone | Grade::Quoted)
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

/// Returns what the rules of NCCL's lines say that a job survives, where the ranks did not go on.
fn reasons<'s>(seen: &'s RuleInput<'_>) -> BTreeMap<(SourceIndex, u64), (&'static Rule, &'s Trace)> {
    let is_reason = |rule: &&'static Rule| {
        rule.blame.is_none()
            && rule.severity == Severity::Error
            && !rule.signatures.is_empty()
            && !rule.is_about_speed()
            && rule.applies(seen)
    };
    let traces = |rule: &'static Rule| {
        let hits = rule.signatures.iter().filter_map(|signature| seen.map.signatures().get(*signature));
        hits.flat_map(|hits| &hits.traces).map(move |trace| (rule, trace))
    };
    let all = rules().filter(is_reason).flat_map(traces);
    all.filter(|(_, trace)| !seen.map.went_on(trace))
        .map(|(rule, trace)| ((seen.map.source_of(trace), trace.line), (rule, trace)))
        .collect()
}

/// Returns what a rule says of a trace, in the place of a general error.
fn of(rule: &'static Rule, trace: &Trace, general: &Candidate, seen: &RuleInput<'_>) -> Candidate {
    let evidence = Evidence {
        source: seen.map.source_name(trace).to_owned(),
        line: trace.line,
        text: trace.text.clone(),
    };
    let ruling = Ruling::of(rule, general.grade, CauseClass::Nccl, rule.sentence(seen)).advised(seen);
    Candidate {
        ranks: general.ranks.clone(),
        host: seen.map.host_of(trace).map(str::to_owned),
        first: general.first,
        source: general.source,
        time: general.time,
        is_proof: general.is_proof,
        ..ruling.candidate(evidence)
    }
}

/// Gives what explains another error the grade of that one, which is dropped.
pub(super) fn explain(found: &mut Vec<Candidate>) {
    let mut all: BTreeMap<&'static str, (&'static Rule, Grade, bool)> = BTreeMap::new();
    for one in found.iter() {
        let (_, grade, is_proof) = all.entry(one.rule.code).or_insert((one.rule, one.grade, false));
        *grade = one.grade.min(*grade);
        *is_proof |= one.is_proof;
    }
    for one in found.iter_mut() {
        for (_, grade, is_proof) in all.values().filter(|(rule, ..)| one.rule.explains(rule)) {
            one.grade = one.grade.min(*grade);
            one.is_proof |= is_proof;
        }
    }
    let is_explained = |rule: &Rule| all.values().any(|(other, ..)| other.explains(rule));
    let explained: BTreeSet<&str> =
        all.iter().filter(|(_, (rule, ..))| is_explained(rule)).map(|(code, _)| *code).collect();
    found.retain(|one| !explained.contains(one.rule.code));
    stuck_together(found);
    // Of what one rule knows, the line with the words that say most.
    let mut places: BTreeMap<&'static str, usize> = BTreeMap::new();
    for one in found.iter().filter(|one| one.rule.is_end()) {
        let place = one.rule.place_of(&one.what);
        places.entry(one.rule.code).and_modify(|known| *known = place.min(*known)).or_insert(place);
    }
    found.retain(|one| places.get(one.rule.code).is_none_or(|place| one.rule.place_of(&one.what) <= *place));
}

/// Says that the watchdogs of several ranks stood still, where more than one says so: each of them only reports it. The rank with the
/// fewest operations in its list, if it is one, is told.
fn stuck_together(found: &mut Vec<Candidate>) {
    let is_stuck = |one: &&Candidate| one.rule.code == WATCHDOG_STUCK.code;
    let ranks: BTreeSet<u32> = found.iter().filter(is_stuck).flat_map(|one| one.ranks.clone()).collect();
    if ranks.len() < 2 {
        return;
    }
    let listed = |one: &Candidate| {
        let digits = one.evidence.text.split_once("workMetaList_.size()=")?.1;
        let end = digits.find(|next: char| !next.is_ascii_digit()).unwrap_or(digits.len());
        Some((digits.get(..end)?.parse::<u64>().ok()?, *one.ranks.first()?))
    };
    let counts: BTreeSet<(u64, u32)> = found.iter().filter(is_stuck).filter_map(listed).collect();
    let few = counts.first().filter(|(few, _)| counts.iter().filter(|(count, _)| count == few).count() == 1);
    let few = few.filter(|_| counts.len() > 1).map_or_else(String::new, |(count, rank)| {
        format!(", and rank {rank} has the fewest operations in its list ({count})")
    });
    let ranks: Vec<u32> = ranks.into_iter().collect();
    let what = format!(
        "the watchdogs of {} did not move for minutes: calls of CUDA or NCCL do not return there; which rank is the first is not shown{few}",
        named(&ranks)
    );
    let Some(first) = found.iter().position(|one| is_stuck(&one)) else { return };
    found[first].what = what;
    found[first].ranks.clear();
    found[first].first = false;
    let mut at = 0;
    found.retain(|one| {
        at += 1;
        at - 1 == first || !is_stuck(&one)
    });
}

/// Lets a line whose words a rule knows say as much as an error right below it that none does.
pub(super) fn lead(found: &mut [Candidate]) {
    let is_unknown = |one: &&Candidate| one.grade == Grade::Quoted && one.class == CauseClass::Unexplained;
    let unknown: BTreeSet<(SourceIndex, u64)> =
        found.iter().filter(is_unknown).map(|one| (one.source, one.line)).collect();
    let is_known = |one: &&mut Candidate| one.grade == Grade::Mentioned && one.rule.code != ERROR_UNEXPLAINED;
    for one in found.iter_mut().filter(is_known) {
        let below = (one.source, one.line.saturating_add(1))..=(one.source, one.line.saturating_add(NEAR));
        if unknown.range(below).next().is_some() {
            one.grade = Grade::Quoted;
        }
    }
}

/// Marks the exceptions that came after a failure of NCCL on the same rank, as a library raises them in its parent process.
pub(super) fn follow(found: &mut [Candidate]) {
    let failed: Vec<(SourceIndex, u64, BTreeSet<u32>)> = found
        .iter()
        .filter(|one| matches!(one.grade, Grade::Nccl | Grade::Link))
        .map(|one| (one.source, one.line, one.ranks.clone()))
        .collect();
    for one in found.iter_mut().filter(|one| one.grade == Grade::Own) {
        let same = |ranks: &BTreeSet<u32>| {
            ranks.is_empty() || one.ranks.is_empty() || !ranks.is_disjoint(&one.ranks)
        };
        if failed.iter().any(|(source, line, ranks)| *source == one.source && *line < one.line && same(ranks))
        {
            one.grade = Grade::Followed;
        }
    }
}
