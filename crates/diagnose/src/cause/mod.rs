//! Why a job failed or hangs: the first cause in the output of all ranks.
//!
//! Most lines come from victims, often on another node and minutes before or after the culprit's own, and
//! clocks differ between nodes. So a cause outranks its consequences by kind, and order decides only
//! between equals. A rank that hangs writes nothing: it is identified by the sequence numbers of the
//! others.

mod answer;
mod candidates;
mod class;
mod collective;
mod exceptions;
mod grade;
mod place;
mod scene;

use std::collections::BTreeSet;

use crate::rule_input::RuleInput;
pub(super) use answer::named;
pub use answer::{CAUSE_CODE, Cause, Stack, Why, WhyState, rank_list};
pub(crate) use candidates::HARDWARE_XIDS;
pub(super) use candidates::signal_text;
pub use class::CauseClass;
pub use place::Place;

use crate::rules::{
    COLLECTIVE_TIMEOUT_UNNAMED, ERROR_UNEXPLAINED, NCCL_NO_REASON, Rule, rule_of_error, rules,
};
use candidates::{Candidate, candidates, choose};
use collective::CollectiveCause;
use grade::Grade;
use scene::Scene;
use weftrun_core::finding::Evidence;
use weftrun_core::{Confidence, Finding, Severity};
use weftrun_nccl::Trace;
use weftrun_nccl::failure::Fact;

/// The code of the finding that logs of ranks were not read.
const LOGS_MISSING: &str = "WHY-LOGS-MISSING";

/// The code of the finding that quotes an error line which no rule explains.
const UNEXPLAINED: &str = "WHY-UNEXPLAINED";

/// The code of the finding that quotes a line whose words healthy programs print too.
const MENTIONED: &str = "WHY-MENTIONED";

/// The codes of the findings about what differs between ranks or hosts.
const DIFFERENCES: [&str; 2] = ["RANKS-DIFFER", "NICS-DIFFER"];

/// The code of the finding of a rank that failed in a job that its cluster calls succeeded.
pub const RANK_FAILED: &str = "WHY-RANK-FAILED";

/// The code of the finding of a failure in an attempt before the last one.
const EARLIER_ATTEMPT: &str = "WHY-EARLIER-ATTEMPT";

/// The code of the finding that says a job's phase.
pub(crate) const PHASE: &str = "WHY-PHASE";

/// The code of the finding of an error that is known, and that need not have ended anything.
pub(crate) const NOT_FATAL: &str = "WHY-NOT-FATAL";

/// The codes of causes that say how a process ended, and nothing of why.
const NOTHING_SAID: [&str; 4] = ["PROCESS-EXITED", "PROCESS-CRASHED", "RANKS-ABORTED", "ASSERTION-FAILED"];

/// Most lines between what a process could not find and its exit code.
const REACH: u64 = 60;

/// Most lines cited for a cause.
const EVIDENCE: usize = 6;

/// Returns the first cause that the logs show. `known` is the job's state from the cluster, where it was queried.
pub(crate) fn find(seen: &RuleInput<'_>, known: Option<WhyState>) -> Why {
    let map = &seen.map;
    let mut scene = Scene::new(map, None);
    // The cluster returned all existing logs: a rank without one wrote nothing.
    scene.complete = known.is_some();
    scene.running = known == Some(WhyState::Running);
    if scene.running {
        scene.forget_survived(map);
    }
    let mut why = of_scene(&scene, seen);
    // A job that was ended from outside may have been restarted for a failure of its own.
    let ended = |cause: &Cause| matches!(cause.class, CauseClass::Cancelled | CauseClass::TimeLimit);
    if scene.restarts > 0 && why.cause.as_ref().is_none_or(ended) {
        let earlier = of_scene(&Scene::new(map, Some(scene.restarts - 1)), seen);
        if let Some(cause) = earlier.cause {
            let message =
                format!("an earlier attempt in the same logs failed: {}: {}", cause.who(), cause.what);
            let mut finding = Finding::info(EARLIER_ATTEMPT, message);
            finding.ranks = cause.ranks;
            finding.evidence = cause.evidence;
            why.findings.push(finding);
        }
    }
    match known {
        Some(WhyState::Running) if why.state == WhyState::Failed || why.state == WhyState::Hanging => {}
        Some(WhyState::Unknown) | None => {}
        Some(WhyState::Succeeded) => {
            let failed = why.cause.filter(|cause| why.state == WhyState::Failed && is_own(cause));
            let raised = failed.map(|cause| raised_anyway(cause, scene.world));
            let findings = why.findings.into_iter().chain(raised).collect();
            why = Why { state: WhyState::Succeeded, findings, ..Why::default() }
        }
        Some(state) => why.state = state,
    }
    why
}

/// Returns whether a cause is an error of a rank's own program.
fn is_own(cause: &Cause) -> bool {
    matches!(cause.class, CauseClass::Exception | CauseClass::CudaOutOfMemory | CauseClass::CudaError)
}

/// Returns the finding of ranks that raised an error in a job that its cluster calls succeeded: one of several that surely
/// failed, or one that may have handled it.
fn raised_anyway(cause: Cause, world: u32) -> Finding {
    let who = if cause.ranks.is_empty() { "a rank".to_owned() } else { cause.who() };
    let message = format!("the cluster reports success, but the log of {who} has an error: {}", cause.what);
    let sure = world > 1 && cause.confidence == Confidence::High && !cause.ranks.is_empty();
    let finding =
        if sure { Finding::error(RANK_FAILED, message) } else { Finding::warning(NOT_FATAL, message) };
    let mut finding = finding.fix(cause.fix);
    finding.ranks = cause.ranks;
    finding.evidence = cause.evidence;
    finding
}

fn of_scene(scene: &Scene<'_>, seen: &RuleInput<'_>) -> Why {
    let collective = collective::find(scene);
    let mut candidates = candidates(scene, seen, collective.is_some());
    candidates.sort_by_key(|candidate| candidate.grade);
    let mut best = candidates.first().map(|candidate| candidate.grade);
    // An exception of no known rank may be one that the program survived: what ended the job is sure.
    let ended = candidates.iter().map(|candidate| candidate.grade).find(|grade| grade.ends_job());
    if best == Some(Grade::Own) && candidates.iter().all(|one| one.grade != Grade::Own || one.is_nobodys()) {
        best = ended.or(best);
    }
    // What a process could not find says more than its exit code, which stands below it.
    let is_below = |exit: &Candidate| {
        let above = |one: &Candidate| {
            one.grade == Grade::Rendezvous
                && one.source == exit.source
                && (1..=REACH).contains(&exit.line.saturating_sub(one.line))
        };
        candidates.iter().any(above)
    };
    if best == Some(Grade::Exited) && candidates.iter().filter(|one| one.grade == Grade::Exited).all(is_below)
    {
        best = Some(Grade::Rendezvous);
    }
    let collective_grade = collective.as_ref().map(|found| {
        let named =
            !found.ranks.is_empty() || found.class == CauseClass::CollectiveMismatch || found.complete;
        if named { Grade::Collective } else { Grade::Waiting }
    });
    let by_collective = match (best, collective_grade) {
        (Some(best), Some(grade)) => grade < best,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let quoted = !by_collective && best.is_some_and(Grade::is_quote);
    let chosen = match (&collective, best) {
        (Some(_), _) if by_collective => None,
        (_, best) => best.and_then(|grade| choose(scene, &candidates, grade)),
    };
    // A rule knows that what it found ends a job, whatever the log shows of the end.
    let ruled =
        !by_collective && best == Some(Grade::Remote) || chosen.as_ref().is_some_and(|(_, ruled)| *ruled);
    let by_collective = collective.filter(|_| by_collective).map(|found| of_collective(scene, found));
    let mut cause = by_collective.or(chosen.map(|(cause, _)| cause));
    let state = if ruled { WhyState::Failed } else { state(scene, cause.is_some()) };
    let mut findings = Vec::new();
    let mut mention = None;
    if quoted
        && !matches!(state, WhyState::Failed | WhyState::Hanging)
        && let Some(cause) = cause.take()
    {
        let is_known = ![ERROR_UNEXPLAINED, "NCCL-WARNING"].contains(&cause.code.as_ref());
        let mentioned = best == Some(Grade::Mentioned);
        let finding = if is_known { not_fatal(cause) } else { unexplained(cause, mentioned) };
        // What the rules of NCCL's lines know says more than such words.
        if best == Some(Grade::Mentioned) { mention = Some(finding) } else { findings.push(finding) }
    }
    // An exit code or a signal says nothing of itself.
    if let Some(cause) = cause.as_ref().filter(|cause| NOTHING_SAID.contains(&cause.code.as_str())) {
        let is_above = |quote: &Cause| match (quote.evidence.first(), cause.evidence.first()) {
            (Some(quote), Some(end)) => quote.source != end.source || quote.line < end.line,
            _ => false,
        };
        let quotes = [Grade::Quoted, Grade::Mentioned].into_iter();
        let quotes = quotes.filter_map(|grade| Some((choose(scene, &candidates, grade)?.0, grade)));
        let quotes = quotes.filter(|(quote, _)| cause.code == "PROCESS-EXITED" || is_above(quote));
        // A line that a rule knows says more than one that none does.
        let is_known = |quote: &Cause| ![ERROR_UNEXPLAINED, "NCCL-WARNING"].contains(&quote.code.as_ref());
        let quote = quotes.min_by_key(|(quote, _)| !is_known(quote));
        findings.extend(quote.map(|(quote, grade)| match is_known(&quote) {
            true => not_fatal(quote),
            false => unexplained(quote, grade == Grade::Mentioned),
        }));
    }
    // What NCCL went on without may be why a later call failed.
    if let Some(cause) = cause.as_mut().filter(|cause| cause.code == NCCL_NO_REASON.code)
        && let Some(before) =
            survived(scene, seen).find(|before| before.rule.as_deref() != Some(NCCL_NO_REASON.id))
    {
        cause.what = format!("{}; before it: {}", cause.what, before.message);
        cause.fix = before.fix.map_or_else(|| cause.fix.clone(), |fix| fix.text);
    }
    if cause.is_none() && findings.is_empty() && state == WhyState::Unknown {
        findings.extend(survived(scene, seen));
        if findings.is_empty() {
            findings.extend(mention);
        }
        findings.extend(different(seen));
        if findings.is_empty() {
            findings.extend(slow(seen));
        }
    }
    let unseen = if scene.complete { Vec::new() } else { scene.unseen() };
    if let Some(cause) = &mut cause {
        let nodes = nodes(scene, &cause.ranks);
        if !nodes.is_empty() {
            cause.nodes = nodes;
        }
        if !unseen.is_empty() && cause.confidence == Confidence::High {
            cause.confidence = Confidence::Medium;
        }
        if scene.inferred && cause.confidence == Confidence::High {
            cause.confidence = Confidence::Medium;
        }
    }
    if !unseen.is_empty()
        && (cause.is_some() || state == WhyState::Unknown)
        && scene.world > 1
        && !scene.seen.is_empty()
    {
        let of = if scene.stated { format!(" of {}", scene.world) } else { String::new() };
        let mut finding = Finding::info(LOGS_MISSING, scene.not_read(&of));
        finding.ranks = unseen;
        findings.push(finding);
    }
    if let Some(cause) = cause.as_mut().filter(|cause| cause.class == CauseClass::CollectiveMismatch) {
        let ranks: BTreeSet<u32> = cause.ranks.iter().copied().collect();
        cause.places = place::places(scene);
        // Those that the cause names come first.
        cause.places.sort_by_key(|place| !place.ranks.iter().any(|rank| ranks.contains(rank)));
    }
    let victims = match &cause {
        // The one that failed first is among them.
        Some(cause) if cause.ranks.is_empty() && cause.nodes.is_empty() && !cause.class.is_of_whole_job() => {
            Vec::new()
        }
        Some(cause) => {
            let ranks: BTreeSet<u32> = cause.ranks.iter().copied().collect();
            // A process whose rank is not known may be that of any rank whose process is not.
            let in_doubt = ranks.is_empty() && !cause.nodes.is_empty() && scene.nameless;
            let is_victim = |rank: &u32| !in_doubt || scene.placed.contains(rank);
            scene.seen.difference(&ranks).copied().filter(is_victim).collect()
        }
        None => Vec::new(),
    };
    Why { state, cause, victims, findings, stacks: Vec::new() }
}

fn of_collective(scene: &Scene<'_>, found: CollectiveCause<'_>) -> Cause {
    let unnamed = found.class == CauseClass::CollectiveTimeout && found.ranks.is_empty();
    let rule = match found.rule {
        Some(rule) => rule,
        None if unnamed => &COLLECTIVE_TIMEOUT_UNNAMED,
        None => rule_of_error(found.class, &[&found.what]),
    };
    let by_line = found.reports.iter().find_map(|report| rule.fix_by(&report.text));
    let cause = Cause::new(found.class, rule, found.what);
    let fix = by_line.unwrap_or_else(|| cause.fix.clone());
    Cause {
        fix,
        ranks: found.ranks,
        evidence: found.reports.iter().take(EVIDENCE).map(|report| scene.evidence(report)).collect(),
        confidence: found.confidence,
        ..cause
    }
}

/// Returns `rank 3 on n1: `, or nothing where no rank and no host is known.
fn prefix(cause: &Cause) -> String {
    if cause.ranks.is_empty() && cause.nodes.is_empty() {
        String::new()
    } else {
        format!("{}: ", cause.who())
    }
}

/// Returns the finding of an error that is known, and that need not have ended anything. What a rule calls a note is none of an
/// error.
fn not_fatal(cause: Cause) -> Finding {
    let message = format!("{}{}", prefix(&cause), cause.what);
    let rule = rules().find(|rule| rule.code == cause.code);
    let finding = match rule.filter(|rule| rule.severity == Severity::Info) {
        Some(rule) => Finding::info(rule.code, message),
        None => Finding::warning(NOT_FATAL, message),
    };
    let mut finding = finding.fix(cause.fix);
    finding.rule = rule.map(|rule| rule.id.to_owned());
    finding.ranks = cause.ranks;
    finding.evidence = cause.evidence;
    finding
}

/// Returns the errors that rules find in the last attempt, after which the ranks went on as far as the logs show it.
fn survived<'s>(scene: &'s Scene<'_>, seen: &'s RuleInput<'_>) -> impl Iterator<Item = Finding> + 's {
    const MOST: usize = 3;
    let applying = rules().filter(|rule| rule.applies(seen));
    let applying: Vec<&Rule> = applying.collect();
    let is_explained = move |rule: &&Rule| applying.iter().any(|other| other.explains(rule));
    let errors = rules().filter(|rule| rule.severity == Severity::Error && !rule.is_about_speed());
    let errors = errors.filter(|rule| rule.applies(seen)).filter(move |rule| !is_explained(rule));
    let found = errors.filter_map(|rule| {
        let hits = rule.signatures.iter().filter_map(|signature| seen.map.signatures().get(*signature));
        let current = |trace: &&Trace| scene.is_current(seen.map.source_of(trace), trace.line);
        let trace = hits.flat_map(|hits| &hits.traces).find(current)?;
        let host = seen.map.host_of(trace).map_or_else(String::new, |host| format!("a rank on {host}: "));
        let mut finding = Finding::warning(NOT_FATAL, format!("{host}{}", rule.sentence(seen)));
        finding.rule = Some(rule.id.to_owned());
        finding.evidence.push(Evidence {
            source: seen.map.source_name(trace).to_owned(),
            line: trace.line,
            text: trace.text.clone(),
        });
        Some(finding.fix(rule.fix_for(seen)))
    });
    found.take(MOST)
}

/// Returns what differs between ranks or hosts, for logs that say nothing of a failure: the cause of a hang may be among it.
fn different(seen: &RuleInput<'_>) -> impl Iterator<Item = Finding> {
    let applying = rules().filter(|rule| DIFFERENCES.contains(&rule.code) && rule.applies(seen));
    applying.map(|rule| {
        let mut finding = Finding::warning(rule.code, rule.sentence(seen)).fix(rule.fix_for(seen));
        finding.rule = Some(rule.id.to_owned());
        finding
    })
}

/// Returns what makes a job slow, for logs that say nothing of a failure.
fn slow(seen: &RuleInput<'_>) -> impl Iterator<Item = Finding> {
    let is_found =
        |rule: &&'static Rule| rule.is_about_speed() && rule.severity != Severity::Info && rule.applies(seen);
    let found: Vec<&'static Rule> = rules().filter(is_found).collect();
    let explained: Vec<bool> =
        found.iter().map(|rule| found.iter().any(|other| other.explains(rule))).collect();
    let found = found.into_iter().zip(explained).filter(|(_, is_explained)| !is_explained);
    found.map(|(rule, _)| {
        let mut finding = Finding::new(rule.severity, rule.code, rule.sentence(seen)).fix(rule.fix_for(seen));
        finding.rule = Some(rule.id.to_owned());
        finding
    })
}

/// Returns the id of a cause's rule.
fn id_of(cause: &Cause) -> Option<String> {
    rules().find(|rule| rule.code == cause.code).map(|rule| rule.id.to_owned())
}

/// Returns the finding that quotes the earliest error line that no rule explains, or the earliest line that only has such words.
fn unexplained(cause: Cause, mentioned: bool) -> Finding {
    let who = prefix(&cause);
    let (code, line) = match mentioned {
        true => (MENTIONED, "the first line that says that something failed"),
        false => (UNEXPLAINED, "the first error line"),
    };
    let message = format!("{line}, which no rule explains: {who}{}", cause.what);
    let mut finding = Finding::info(code, message);
    finding.rule = id_of(&cause);
    finding.ranks = cause.ranks;
    finding.evidence = cause.evidence;
    finding
}

fn nodes(scene: &Scene<'_>, ranks: &[u32]) -> Vec<String> {
    let names: BTreeSet<&String> = ranks.iter().filter_map(|rank| scene.node_of.get(rank)).collect();
    names.into_iter().cloned().collect()
}

fn state(scene: &Scene<'_>, caused: bool) -> WhyState {
    let mut waits = false;
    for known in &scene.reports {
        match &known.report.fact {
            Fact::TimedOut { .. }
            | Fact::ToldOfTimeout { .. }
            | Fact::WatchdogFailed { .. }
            | Fact::Absent { .. } => {
                waits = true;
            }
            Fact::Exit { code: 0, .. }
            | Fact::Progress { .. }
            | Fact::Stack(_)
            | Fact::StoreLost
            | Fact::Mention(_)
            | Fact::Finished => {}
            Fact::Cuda(_) | Fact::Xid(_) if !caused => {}
            Fact::Error { fatal: false, .. } => {}
            Fact::Exception(exception) if exception.alone && !scene.ends(known.report, exception) => {}
            _ => return WhyState::Failed,
        }
    }
    if waits {
        return WhyState::Hanging;
    }
    let all =
        !scene.seen.is_empty() && scene.seen.len() >= scene.world as usize && scene.seen == scene.finished;
    if all { WhyState::Succeeded } else { WhyState::Unknown }
}
