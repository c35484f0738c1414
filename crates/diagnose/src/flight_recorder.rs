//! Findings from PyTorch's flight recorder.

use weftrun_nccl::flight_recorder::{Collective, Disagreement, FlightRecorder};
use weftrun_nccl::printable;

use super::cause::named;
use super::cause::{Cause, CauseClass, Why, WhyState};
use super::rules;
use super::rules::rule_of_error;
use weftrun_core::finding::Evidence;
use weftrun_core::{Confidence, Finding};

const SOURCE: &str = "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html";

/// Returns a finding for each disagreement that the dumps prove.
pub fn findings(recorder: &FlightRecorder) -> Vec<Finding> {
    recorder.disagreements().iter().filter_map(finding).collect()
}

/// Adds what the dumps of a running job prove. They name the cause where the logs do not: a rank that hangs writes nothing.
pub fn explain(why: &mut Why, disagreements: &[Disagreement]) {
    let found: Vec<(CauseClass, Finding)> = disagreements
        .iter()
        .filter_map(|disagreement| {
            let class = match disagreement {
                Disagreement::Mismatch { .. } => CauseClass::CollectiveMismatch,
                _ => CauseClass::CollectiveTimeout,
            };
            Some((class, finding(disagreement)?))
        })
        .collect();
    // A wait that is part of another one names all its members: the dump that accuses the fewest ranks is the most specific.
    let first = found.iter().min_by_key(|(_, finding)| finding.ranks.len());
    if let Some((class, finding)) = first
        && why.cause.as_ref().is_none_or(|cause| cause.ranks.is_empty())
    {
        let certain = why.state == WhyState::Hanging;
        if !certain {
            // A watchdog that gave up proves a hang.
            let message =
                "two dumps agree; a step that takes long looks the same until the watchdog's time limit";
            why.findings.insert(0, Finding::info("WHY-INSPECTION", message));
        }
        let text = finding.fix.as_ref().map_or_else(String::new, |fix| fix.text.clone());
        why.victims.retain(|rank| !finding.ranks.contains(rank));
        why.cause = Some(Cause {
            code: finding.code.clone(),
            ranks: finding.ranks.clone(),
            evidence: vec![Evidence { source: "flight recorder".to_owned(), line: 0, text: text.clone() }],
            fix: text,
            confidence: if certain { Confidence::High } else { Confidence::Medium },
            ..Cause::new(*class, rule_of_error(*class, &[]), finding.message.clone())
        });
    }
    why.findings.extend(found.into_iter().map(|(_, finding)| finding));
}

fn finding(disagreement: &Disagreement) -> Option<Finding> {
    match disagreement {
        Disagreement::Behind { collective, late, silent, waiting } => {
            Some(behind(collective, late, silent, waiting))
        }
        Disagreement::Mismatch { sequence, variants } => {
            let said: Vec<String> = variants
                .iter()
                .map(|variant| format!("{} {} {}", named(&variant.ranks), variant.name, variant.sizes))
                .collect();
            let message = format!("ranks disagree on collective {sequence}: {}", said.join("; "));
            let mut finding = Finding::error("FR-COLLECTIVE-MISMATCH", printable(message.as_bytes(), 600));
            finding.rule = Some(rules::COLLECTIVES_DIFFER.to_owned());
            finding.confidence = Some(Confidence::High);
            // The smallest group is the most likely to be wrong.
            let fewest = variants.iter().min_by_key(|variant| variant.ranks.len());
            finding.ranks = fewest.map_or_else(Vec::new, |variant| variant.ranks.clone());
            Some(
                finding.fix("all ranks must call the same collectives, of the same sizes, in the same order"),
            )
        }
        _ => None,
    }
}

fn behind(collective: &Collective, late: &[u32], silent: &[u32], waiting: &[u32]) -> Finding {
    let Collective { sequence, name, sizes, group, place } = collective;
    let what = format!("collective {sequence} ({name}, {sizes}) of group {group}");
    let waits = if waiting.len() == 1 { "waits" } else { "wait" };
    let (message, suspects) = match (late.is_empty(), silent.is_empty()) {
        (false, _) => {
            (format!("{} never entered {what}; {} {waits} in it", named(late), named(waiting)), late)
        }
        (true, false) => {
            (format!("{} left no dump; {} {waits} in {what}", named(silent), named(waiting)), silent)
        }
        (true, true) => {
            (format!("all ranks entered {what} and none finished it: the network or a GPU hangs"), waiting)
        }
    };
    let mut finding = Finding::error("FR-RANK-BEHIND", printable(message.as_bytes(), 600));
    finding.confidence = Some(Confidence::High);
    finding.ranks = suspects.to_vec();
    finding.source = Some(SOURCE.to_owned());
    let place =
        place.as_deref().map_or_else(String::new, |place| format!(" ({})", printable(place.as_bytes(), 200)));
    finding.fix(format!("inspect what those ranks did instead of the call in which the others wait{place}"))
}
