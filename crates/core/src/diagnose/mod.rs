//! Plan and map become findings: what is wrong, how sure that is, which lines prove it, what to change.

mod conditions;
pub mod flight_recorder;
mod misfits;
mod table;

use std::collections::BTreeSet;
use std::fmt::Write as _;

pub use table::{RULES, Rule, rule_of};

use crate::fabric::FabricPlan;
use crate::finding::{Evidence, Fix, PatchEdit};
use crate::nccl::{FabricSeen, Found, Kind, Trace, TransportMap, Verdict};
use crate::request::Fabric;
use crate::{Confidence, Error, ErrorKind, Finding, Severity};
use conditions::Seen;

/// Most lines of evidence under one finding.
const EVIDENCE: usize = 6;

/// What a map means for a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What the pairs prove.
    pub verdict: Verdict,
    /// Whether that is what was planned; none where nothing proves it, or nothing was planned.
    pub ok: Option<bool>,
    /// What was planned.
    pub planned: Option<Fabric>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// An error if the pairs prove another fabric than planned; the diagnosis itself otherwise.
    pub fn into_result(self) -> crate::Result<Self> {
        if self.planned.and_then(|planned| planned.is_met_by(self.verdict.fabric)) != Some(false) {
            return Ok(self);
        }
        let message = format!(
            "the ranks use {}, planned was {}",
            self.verdict.fabric.label(),
            self.planned.map_or("another fabric", Fabric::as_str)
        );
        Err(Error::from_findings(ErrorKind::FabricNotAsPlanned, message, self.findings))
    }

    /// The same with `unknown` counted as a failure, as `--strict` asks.
    pub fn into_strict_result(self) -> crate::Result<Self> {
        let asked = self.planned.is_some_and(|planned| !matches!(planned, Fabric::Auto | Fabric::Off));
        if asked && self.ok.is_none() && self.verdict.fabric == FabricSeen::Unknown {
            let message = format!(
                "nothing proves that the ranks use {}",
                self.planned.map_or("the planned fabric", Fabric::as_str)
            );
            return Err(Error::from_findings(ErrorKind::FabricNotAsPlanned, message, self.findings));
        }
        self.into_result()
    }
}

/// Diagnoses a map. Without a plan, `ok` says whether anything serious was found on a fabric that is known.
pub fn diagnose(plan: Option<&FabricPlan>, map: &TransportMap) -> Diagnosis {
    let planned = plan.map(|plan| plan.fabric);
    let seen = Seen::new(planned, map);
    let mut findings: Vec<Finding> = RULES
        .iter()
        .filter(|rule| conditions::applies(rule.id, &seen))
        .map(|rule| finding(rule, &seen))
        .collect();
    findings.extend(not_as_planned(&seen));
    findings.extend(silent(plan, &seen));
    findings.extend(misfits::findings(&seen));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let ok = judge(&seen, &findings);
    Diagnosis { verdict: seen.verdict, ok, planned, findings }
}

/// Whether all is well: by the plan where there is one, else by what was found.
fn judge(seen: &Seen<'_>, findings: &[Finding]) -> Option<bool> {
    if let Some(planned) = seen.planned
        && !matches!(planned, Fabric::Auto | Fabric::Off)
    {
        return planned.is_met_by(seen.verdict.fabric);
    }
    match seen.verdict.fabric {
        FabricSeen::Unknown => None,
        FabricSeen::LibfabricTcp => Some(false),
        _ => Some(!findings.iter().any(Finding::is_error)),
    }
}

fn finding(rule: &Rule, seen: &Seen<'_>) -> Finding {
    let mut finding = Finding::new(rule.severity, rule.code, message(rule, seen));
    finding.rule = Some(rule.id.to_owned());
    finding.confidence = Some(rule.confidence);
    finding.source = Some(rule.source.to_owned());
    finding.fix = Some(Fix {
        text: rule.fix.to_owned(),
        patch: rule
            .patch
            .iter()
            .map(|(path, value)| PatchEdit {
                path: (*path).to_owned(),
                op: if value.is_some() { "set" } else { "unset" }.to_owned(),
                value: value.map(Into::into),
            })
            .collect(),
    });
    for clue in clues_of(rule.id) {
        if let Some(found) = seen.map.clues().get(clue) {
            add_evidence(&mut finding, found, seen);
        }
    }
    finding
}

/// The clues that a rule cites.
fn clues_of(rule: &'static str) -> &'static [&'static str] {
    match rule {
        "R01" => &["SOCKET-LINK", "SOCKET-CHOSEN", "R02", "R15"],
        "R02" => &["R02"],
        "R06" => &["R06", "R06b"],
        "R08" => &["R08", "R08b"],
        "R09" => &["OFI-NOGDR-LINK"],
        "R12" => &["R12", "R12b"],
        "R16" => &["R16", "R16n", "R16p", "R16s"],
        "R25" => &["R25", "IB-NOGDR-LINK"],
        "R27" => &["R27", "IB-LIST"],
        "R34" => &["R34", "R34b"],
        "R37" => &["R37", "R37-LO"],
        "R40" => &["R40", "VERSION"],
        "R49" => &["MNNVL-LINK"],
        "R50" => &["R50", "IB-LIST"],
        other => table::rule_of(other).map_or(&[], |rule| std::slice::from_ref(&rule.id)),
    }
}

fn add_evidence(finding: &mut Finding, found: &Found, seen: &Seen<'_>) {
    let mut ranks: BTreeSet<u32> = finding.ranks.iter().copied().collect();
    add_traces(finding, &found.traces, seen);
    for trace in &found.traces {
        ranks.extend(seen.map.rank_of_trace(trace, &seen.world));
    }
    ranks.extend(seen.map.told_ranks(found));
    finding.ranks = ranks.into_iter().collect();
}

/// Cites lines, each once.
fn add_traces(finding: &mut Finding, traces: &[Trace], seen: &Seen<'_>) {
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

/// The rule's sentence, with what is known of this case.
fn message(rule: &Rule, seen: &Seen<'_>) -> String {
    let mut message = rule.message.to_owned();
    match rule.id {
        "R01" => {
            let sockets = seen.socket_connections();
            if sockets > 0 {
                let _ = write!(message, ": {sockets} connections");
            }
        }
        "R06" => {
            let providers: BTreeSet<&str> = seen
                .map
                .plugins()
                .iter()
                .flat_map(|plugin| &plugin.providers)
                .map(|name| &**name)
                .filter(|name| !name.starts_with("efa"))
                .collect();
            if !providers.is_empty() {
                let _ = write!(message, ": {}", providers.into_iter().collect::<Vec<_>>().join(", "));
            }
        }
        "R16" => {
            for (clue, text) in [
                ("R16", "InfiniBand is disabled"),
                ("R16n", "sockets are asked for"),
                ("R16p", "P2P is disabled, so that ranks of one node use SHM"),
                ("R16s", "SHM is disabled"),
            ] {
                if seen.map.clues().has(clue) {
                    let _ = write!(message, ": {text}");
                }
            }
        }
        "R40" => {
            if let Some((one, other)) = conditions::versions_differ(seen) {
                let _ = write!(message, ": {one} and {other}");
            }
        }
        "R43" => {
            let victims =
                seen.map.clues().get("R43").map_or_else(Vec::new, |found| seen.map.told_ranks(found));
            if !victims.is_empty() {
                let _ = write!(message, " (reported by rank {})", list(&victims));
            }
        }
        _ => {}
    }
    message
}

fn list(ranks: &[u32]) -> String {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Planned EFA, and the pairs prove something else.
fn not_as_planned(seen: &Seen<'_>) -> Option<Finding> {
    let planned = seen.planned?;
    if planned.is_met_by(seen.verdict.fabric) != Some(false) {
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
    for clue in ["SOCKET-LINK", "OFI-LINK", "IB-LINK"] {
        if let Some(found) = seen.map.clues().get(clue) {
            add_evidence(&mut finding, found, seen);
        }
    }
    Some(finding.fix("the other findings say why"))
}

/// The ranks that are an end of a network connection, among the first of the job: naming thousands tells nothing more.
fn network_ranks(seen: &Seen<'_>) -> Vec<u32> {
    const MOST: u32 = 256;
    let pairs = seen.map.pairs_of_ranks(&seen.world, 0..MOST);
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

/// Nothing can be said without NCCL_DEBUG=INFO: silence proves nothing. Of a job without GPUs nothing is expected.
fn silent(plan: Option<&FabricPlan>, seen: &Seen<'_>) -> Option<Finding> {
    let anything = seen.map.has_info() || !seen.transports.is_empty() || !seen.networks.is_empty();
    if seen.map.lines() == 0 || anything || plan.is_some_and(|plan| !plan.runs_nccl()) {
        return None;
    }
    if plan.is_some_and(FabricPlan::lets_nccl_speak) {
        let mut finding = Finding::warning(
            "NCCL-DEBUG-SILENT",
            "no NCCL INFO line in the log, though NCCL_DEBUG=INFO was set: no rank came as far as NCCL, or it writes to a file",
        );
        finding.confidence = Some(Confidence::High);
        return Some(
            finding.fix("look in the log for what stopped the ranks, and for NCCL_DEBUG_FILE in the job"),
        );
    }
    let mut finding = Finding::new(
        Severity::Warning,
        "NCCL-DEBUG-SILENT",
        "no NCCL INFO line in the log: set NCCL_DEBUG=INFO, since silence says nothing about the transport",
    );
    finding.confidence = Some(Confidence::High);
    finding.source =
        Some("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug".to_owned());
    finding.fix = Some(Fix {
        text: "set NCCL_DEBUG=INFO for all ranks".to_owned(),
        patch: vec![PatchEdit {
            path: "env.NCCL_DEBUG".to_owned(),
            op: "set".to_owned(),
            value: Some("INFO".into()),
        }],
    });
    Some(finding)
}
