//! What the logs prove of the transports, compared with the plan, as findings: the problem, its certainty, the lines that
//! prove it, the change that fixes it.

use std::collections::BTreeSet;

use weftrun_core::fabric::FabricPlan;
use weftrun_core::finding::{Evidence, Fix, PatchEdit};
use weftrun_core::request::Fabric;
use weftrun_core::{Confidence, Finding, Severity, advisories};
use weftrun_nccl::{FabricSeen, Kind, Network, Signature, SignatureHits, Trace};

use crate::cause::Why;
use crate::rule_input::RuleInput;
use crate::rules::{self, Blame, Rule, rules};
use crate::{Measured, anomalies, diagnostics};

/// The code of the finding that the log has no INFO lines.
pub const NO_INFO: &str = "NCCL-DEBUG-SILENT";

/// The code of the finding that the others wait for a rank. The job runs: it never is why one failed.
pub const RANK_LATE: &str = "NCCL-RANK-LATE";

/// The code of the finding that the transfer itself takes most of the time. It is a note: a job may need it.
pub const NETWORK_BOUND: &str = "NCCL-NETWORK-BOUND";

/// The findings that say what makes a job slow.
pub const OF_SPEED: [&str; 2] = [RANK_LATE, NETWORK_BOUND];

/// Most lines of evidence under one finding.
const EVIDENCE: usize = 6;

/// Returns what is wrong, the worst first.
pub fn findings(
    plan: Option<&FabricPlan>,
    seen: &RuleInput<'_>,
    measured: Option<&Measured>,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        rules().filter(|rule| rule.applies(seen)).map(|rule| finding(rule, seen)).collect();
    explain_consequences(&mut findings);
    mark_past(&mut findings, seen);
    findings.extend(not_as_planned(seen, &findings));
    findings.extend(silent(plan, seen).map(|finding| with(Confidence::High, finding)));
    findings.extend(anomalies::findings(seen));
    findings.extend(diagnostics::findings(seen));
    findings.extend(known_bad_versions(seen));
    findings.extend(measured.and_then(network_bound).map(|finding| with(Confidence::Medium, finding)));
    findings.extend(measured.and_then(late).map(|finding| with(Confidence::High, finding)));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Makes notes of the findings that others explain.
fn explain_consequences(findings: &mut [Finding]) {
    let applied: Vec<&Rule> = rules()
        .filter(|rule| findings.iter().any(|finding| finding.rule.as_deref() == Some(rule.id)))
        .collect();
    for finding in findings {
        let own = applied.iter().find(|rule| finding.rule.as_deref() == Some(rule.id));
        let explains = |rule: &&&Rule| own.is_some_and(|own| rule.explains(own));
        if let Some(cause) = applied.iter().find(explains) {
            let message = format!("{} (explained by {})", finding.message, cause.code);
            make_note(finding, message);
        }
    }
}

/// Makes notes of what a failure led to: connections that closed, and collectives that timed out.
pub fn fold_consequences(findings: &mut [Finding], why: &Why) {
    let Some(cause) = why.cause.as_ref().filter(|cause| cause.confidence != Confidence::Low) else { return };
    let follows = |rule: &&Rule| {
        rule.blame == Some(Blame::Peer) || rule.signatures.contains(&Signature::WatchdogTimeout)
    };
    let codes: Vec<&str> = rules().filter(follows).map(|rule| rule.code).collect();
    for finding in findings.iter_mut() {
        if codes.contains(&finding.code.as_str()) && cause.code != finding.code {
            let first = if cause.ranks.is_empty() && cause.nodes.is_empty() {
                format!(" of {}", cause.code)
            } else {
                format!(": {} failed first", cause.who())
            };
            let message = format!("{} (a consequence{first})", finding.message);
            make_note(finding, message);
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

/// Makes a note of a finding, without a fix of its own: that of the cause is the one to make.
fn make_note(finding: &mut Finding, message: String) {
    finding.severity = Severity::Info;
    finding.fix = None;
    finding.message = message;
}

/// Makes notes of the findings whose lines are all of attempts before the last one.
fn mark_past(findings: &mut [Finding], seen: &RuleInput<'_>) {
    for finding in findings.iter_mut().filter(|finding| finding.severity != Severity::Info) {
        let rule = rules().find(|rule| finding.rule.as_deref() == Some(rule.id));
        let hits = rule
            .iter()
            .flat_map(|rule| rule.all_signatures())
            .filter_map(|one| seen.map.signatures().get(one));
        let mut past = hits.map(|hits| seen.map.is_past(hits)).peekable();
        if past.peek().is_some() && past.all(|past| past) {
            let message = format!("in an earlier attempt: {}", finding.message);
            make_note(finding, message);
        }
    }
}

/// Returns the ranks for which the others wait, where weftrun's library measures NCCL's collectives.
fn late(measured: &Measured) -> Option<Finding> {
    let ranks = measured.late_ranks();
    if ranks.is_empty() {
        return None;
    }
    let fix = "compare what that rank does before the collective (input, CPU, GPU clock) with another one: `weftrun bandwidth` \
               prints each rank's waiting";
    let mut finding = Finding::warning(RANK_LATE, measured.speeds.sentence.as_str()).fix(fix);
    finding.ranks = ranks;
    Some(finding)
}

/// Returns what takes the time where it is the transfer, with the bandwidth that is reached and the one that is expected.
fn network_bound(measured: &Measured) -> Option<Finding> {
    let (comm, speed) = measured.speeds.network_bound()?;
    let share = speed.time_share.map_or_else(String::new, |share| format!("{:.0} % of ", share * 100.0));
    let reached = speed.main_size().and_then(|size| size.busbw_gbps);
    let reached = reached.map_or_else(String::new, |gbps| format!(", at {gbps:.1} GB/s"));
    let expected = measured.expected(&comm.id, speed.collective);
    let expected = expected.map_or_else(String::new, |expected| {
        format!(" ({} expected of messages of 1 GiB)", expected.numbers())
    });
    let message = format!(
        "network-bound: the transfer of {} takes {share}the time{reached}{expected}, and no rank is late",
        speed.collective
    );
    let fix = "compare it with what the nodes can do: `weftrun transport` says which network carries it, and `weftrun verify` measures \
               the nodes";
    Some(Finding::info(NETWORK_BOUND, message).fix(fix))
}

/// Returns notes on versions in the log that are known to be bad. Only notes: the log need not show the
/// effect.
fn known_bad_versions(seen: &RuleInput<'_>) -> Vec<Finding> {
    let nccl = seen.map.live_versions().map(|version| ("nccl", version));
    let plugins = seen.map.plugins().iter().filter(|plugin| &*plugin.name == "aws-ofi-nccl");
    let plugins = plugins.filter_map(|plugin| Some(("aws-ofi-nccl", plugin.version.as_deref()?)));
    let found: Vec<(&str, &str)> = nccl.chain(plugins).collect();
    let mut notes = advisories::findings(&found);
    for finding in &mut notes {
        finding.severity = Severity::Info;
        finding.confidence = Some(Confidence::Medium);
    }
    notes
}

fn with(confidence: Confidence, mut finding: Finding) -> Finding {
    finding.confidence = Some(confidence);
    finding
}

/// Returns the edit that sets a path of the job file, or unsets it.
fn edit(path: &str, value: Option<&str>) -> PatchEdit {
    let op = if value.is_some() { "set" } else { "unset" };
    PatchEdit { path: path.to_owned(), op: op.to_owned(), value: value.map(Into::into) }
}

/// Returns whether all is well: by the plan where there is one, else by the findings.
pub fn judge(seen: &RuleInput<'_>, findings: &[Finding]) -> Option<bool> {
    let failed = findings.iter().any(Finding::is_error);
    // An unexplained warning may be the beginning of a failure.
    let doubtful = failed || seen.has(Signature::UnknownWarning);
    if let Some(planned) = seen.planned.and_then(Fabric::named) {
        return is_met(planned, seen.verdict.fabric, findings).filter(|met| !met || !doubtful);
    }
    match seen.verdict.fabric {
        FabricSeen::Unknown => None,
        FabricSeen::Network(Network::LibfabricTcp) => Some(false),
        _ if failed => Some(false),
        _ => (!doubtful).then_some(true),
    }
}

fn finding(rule: &Rule, seen: &RuleInput<'_>) -> Finding {
    let mut finding = Finding::new(rule.severity, rule.code, rule.sentence(seen));
    finding.rule = Some(rule.id.to_owned());
    finding.confidence = Some(rule.confidence);
    finding.source = Some(rule.source.to_owned());
    let text = rule.fix_for(seen);
    // An edit that the fix of this case does not name is none of it.
    let is_named = |value: Option<&str>| text == rule.fix || value.is_none_or(|value| text.contains(value));
    let edits = rule.patch.iter().filter(|(_, value)| is_named(*value));
    let patch = edits.map(|(path, value)| edit(path, *value)).collect();
    finding.fix = Some(Fix { text, patch });
    for signature in rule.signatures {
        if let Some(found) = seen.map.signatures().get(*signature) {
            add_evidence(&mut finding, found, seen);
        }
    }
    let cited: Vec<Trace> = rule.cited(seen).into_iter().cloned().collect();
    add_traces(&mut finding, &cited, seen);
    let mut ranks: BTreeSet<u32> = finding.ranks.iter().copied().collect();
    ranks.extend(cited.iter().filter_map(|trace| seen.map.rank_of(trace)));
    finding.ranks = ranks.into_iter().collect();
    finding
}

fn add_evidence(finding: &mut Finding, found: &SignatureHits, seen: &RuleInput<'_>) {
    let mut ranks: BTreeSet<u32> = finding.ranks.iter().copied().collect();
    add_traces(finding, &found.traces, seen);
    ranks.extend(seen.map.ranks_of(found));
    finding.ranks = ranks.into_iter().collect();
}

/// Cites lines, each once.
pub fn add_traces(finding: &mut Finding, traces: &[Trace], seen: &RuleInput<'_>) {
    for trace in traces {
        let known = finding.evidence.iter().any(|other| other.line == trace.line && other.text == trace.text);
        if finding.evidence.len() < EVIDENCE && !known {
            finding.evidence.push(Evidence {
                source: seen.map.source_name(trace).to_owned(),
                line: trace.line,
                text: trace.text.clone(),
            });
        }
    }
}

/// Returns whether the fabric that a log proves is the planned one. A provider of libfabric that was printed and is not efa proves another.
pub fn is_met(planned: Fabric, seen: FabricSeen, findings: &[Finding]) -> Option<bool> {
    let other =
        || planned == Fabric::Efa && findings.iter().any(|finding| finding.code == rules::WRONG_PROVIDER);
    match planned.is_met_by(seen) {
        None if seen == FabricSeen::Network(Network::LibfabricOther) && other() => Some(false),
        met => met,
    }
}

/// Returns the finding for a plan of EFA where the pairs prove another fabric.
fn not_as_planned(seen: &RuleInput<'_>, findings: &[Finding]) -> Option<Finding> {
    let planned = seen.planned?;
    if is_met(planned, seen.verdict.fabric, findings) != Some(false) {
        return None;
    }
    let networks = || seen.transports.iter().filter(|used| used.kind == Kind::Net);
    let message = format!(
        "planned was {}, but {} connections between nodes use {}",
        planned.as_str(),
        networks().map(|used| used.connections).sum::<u64>(),
        seen.verdict.fabric.label()
    );
    let mut finding = Finding::error("NCCL-FABRIC-NOT-AS-PLANNED", message);
    finding.confidence = Some(Confidence::High);
    finding.ranks = network_ranks(seen);
    for signature in [Signature::SocketConnection, Signature::OfiConnection, Signature::IbConnection] {
        if let Some(found) = seen.map.signatures().get(signature) {
            add_evidence(&mut finding, found, seen);
        }
    }
    Some(finding.fix("compare `weftrun plan` with the containers: devices, plugin and LD_LIBRARY_PATH of the planned fabric"))
}

/// Returns the ranks at an end of a network connection, limited to the first ones: thousands add no
/// information.
fn network_ranks(seen: &RuleInput<'_>) -> Vec<u32> {
    const MOST: u32 = 256;
    let pairs = seen.map.pairs_of_ranks(0..MOST);
    pairs
        .iter()
        .filter(|pair| pair.kind == Kind::Net)
        .flat_map(|pair| [pair.global_from, pair.global_to])
        .flatten()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .take(MOST as usize)
        .collect()
}

/// Returns a finding where NCCL_DEBUG=INFO is missing, since silence proves nothing. A job without GPUs
/// needs no NCCL lines.
fn silent(plan: Option<&FabricPlan>, seen: &RuleInput<'_>) -> Option<Finding> {
    let anything = seen.map.has_info()
        || !seen.transports.is_empty()
        || !seen.networks.is_empty()
        || !seen.map.plugins().is_empty()
        || !seen.map.ports().is_empty();
    if seen.map.lines() == 0 || anything || plan.is_some_and(|plan| !plan.runs_nccl()) {
        return None;
    }
    if let Some(found) = seen.map.signatures().get(Signature::Hccl) {
        let message =
            "the log is of Huawei's HCCL, whose lines are not read: nothing is known of its transport";
        let mut finding =
            Finding::warning("NCCL-LOG-HCCL", message).fix("give the log of a job that uses NCCL or RCCL");
        add_evidence(&mut finding, found, seen);
        return Some(finding);
    }
    if plan.is_some_and(FabricPlan::sets_nccl_debug) {
        let message = "no NCCL INFO line in the log, though NCCL_DEBUG=INFO was set: no rank initialised NCCL, or NCCL writes to a file";
        let fix = "read the last lines of each rank, and check the job for NCCL_DEBUG_FILE";
        return Some(Finding::warning(NO_INFO, message).fix(fix));
    }
    let message = "no NCCL INFO line in the log; set NCCL_DEBUG=INFO to see the transport";
    let mut finding = Finding::warning(NO_INFO, message)
        .cite("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug");
    let patch = vec![edit("env.NCCL_DEBUG", Some("INFO"))];
    finding.fix = Some(Fix { text: "set NCCL_DEBUG=INFO for all ranks".to_owned(), patch });
    Some(finding)
}
