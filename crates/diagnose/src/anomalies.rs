//! Contradictory lines: torn ones, two jobs in one log, programs that print what looks like NCCL.

use super::fabric::add_traces;
use super::rule_input::RuleInput;
use weftrun_core::{Confidence, Finding, Severity};
use weftrun_nccl::{Doubts, Signature, Trace};

/// Returns a finding for every contradiction.
pub(super) fn findings(seen: &RuleInput<'_>) -> Vec<Finding> {
    let (torn, dropped, others) = seen.map.torn_and_dropped();
    let contested = seen.map.contested();
    let anomalies = seen.map.anomalies();
    let impossible = seen.map.signatures().get(Signature::ImpossibleRank);
    let doubt = |doubts: &Doubts, code: &'static str, what: &str| {
        (doubts.count > 0).then(|| {
            finding(seen, Severity::Warning, code, &doubts.traces, format!("{} {what}", doubts.count))
        })
    };
    [
        (torn > 0).then(|| {
            let said = format!("{torn} connection lines are cut in the middle; nothing is concluded from them");
            finding(seen, Severity::Info, "NCCL-LOG-TORN", &[], said)
        }),
        (contested > 0).then(|| {
            let said = format!("{contested} ranks of one communicator are claimed by two processes: the log may hold two jobs, or a run and its repetition");
            finding(seen, Severity::Warning, "NCCL-LOG-CONTESTED", &[], said)
        }),
        (anomalies.groups > 1).then(|| {
            let said = format!("the log holds {} groups of ranks that no communicator joins: several jobs, or groups of a job whose common communicator is not in the log. Their ranks are not numbered together", anomalies.groups);
            finding(seen, Severity::Info, "NCCL-LOG-SEVERAL-JOBS", &[], said)
        }),
        impossible.map(|found| {
            let said = format!("{} lines tell of a rank beyond the ranks of its communicator: NCCL prints no such line", found.count);
            finding(seen, Severity::Warning, "NCCL-LOG-IMPOSSIBLE", &found.traces, said)
        }),
        doubt(&anomalies.beyond, "NCCL-LOG-MISFIT", "connections fit no communicator of their process: they may be of another job, or not be NCCL's"),
        doubt(&anomalies.unsigned, "NCCL-LOG-UNSIGNED", "connections have no prefix of NCCL, though others have one: a program may have printed them. They do not count for the verdict"),
        doubt(&anomalies.outsiders, "NCCL-LOG-OUTSIDER", "connections are of processes that joined no communicator, though the others did: another job's, or not NCCL's"),
        (dropped > 0).then(|| {
            let said = format!("{dropped} connections exceed the limit of the map and are only counted");
            finding(seen, Severity::Warning, "NCCL-MAP-FULL", &[], said)
        }),
        (others > 0).then(|| {
            let said = format!("{others} lines name more hosts, processes or communicators than the map keeps; they are left out");
            finding(seen, Severity::Warning, "NCCL-MAP-FULL", &[], said)
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn finding(
    seen: &RuleInput<'_>,
    severity: Severity,
    code: &'static str,
    traces: &[Trace],
    said: String,
) -> Finding {
    let mut finding = Finding::new(severity, code, said);
    finding.confidence = Some(Confidence::High);
    add_traces(&mut finding, traces, seen);
    finding
}
