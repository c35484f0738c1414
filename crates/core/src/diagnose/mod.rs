//! Makes findings from plan and map: the problem, its certainty, the lines that prove it, the change that
//! fixes it.

mod anomalies;
pub mod cause;
pub mod counters;
pub mod flight_recorder;
pub mod health;
mod job;
mod judge;
mod rule_input;
mod rules;

use std::collections::BTreeSet;

pub use job::why_of_job;
pub use judge::Judge;
pub use rules::{Blame, Rule, rules};

use crate::catalogue::{self, Expected};
use crate::fabric::FabricPlan;
use crate::finding::{Evidence, Fix, PatchEdit};
use crate::request::Fabric;
use crate::text::numbers;
use crate::{Confidence, Error, ErrorKind, Finding, Severity, advisories};
use rule_input::RuleInput;
use weftrun_nccl::{FabricSeen, Kind, Network, Signature, SignatureHits, Trace, TransportMap, Verdict};

/// Most lines of evidence under one finding.
const EVIDENCE: usize = 6;

/// The result of comparing a map with a plan.
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
    /// The bus bandwidth of a large all-reduce on the planned instance type and as many nodes, where it was published.
    pub expected: Option<Expected>,
    one_node: bool,
}

impl Diagnosis {
    /// Returns the judge of single connections.
    pub fn judge(&self) -> Judge {
        Judge::new(self.planned, &self.findings).on_one_node(self.one_node)
    }

    /// Returns whether the pairs prove the planned fabric; none where nothing was planned, or nothing is proved.
    pub fn is_met(&self) -> Option<bool> {
        is_met(self.planned?, self.verdict.fabric, &self.findings)
    }

    /// Returns an error if the pairs prove another fabric than planned; the diagnosis itself otherwise.
    pub fn into_result(self) -> crate::Result<Self> {
        if self.is_met() != Some(false) {
            return Ok(self);
        }
        let message = format!(
            "the ranks use {}, planned was {}",
            self.verdict.fabric.label(),
            self.planned.map_or("another fabric", Fabric::as_str)
        );
        Err(Error::from_findings(ErrorKind::FabricNotAsPlanned, message, self.findings))
    }

    /// Returns the same with `unknown` counted as a failure, as for `--strict`.
    pub fn into_strict_result(self) -> crate::Result<Self> {
        if let Some(asked) = self.planned.and_then(Fabric::named)
            && self.ok.is_none()
            && self.verdict.fabric == FabricSeen::Unknown
        {
            let message = format!("nothing proves that the ranks use {}", asked.as_str());
            return Err(Error::from_findings(ErrorKind::FabricNotAsPlanned, message, self.findings));
        }
        self.into_result()
    }
}

/// Diagnoses a map. Without a plan, `ok` is whether nothing serious was found on a known fabric.
pub fn diagnose(plan: Option<&FabricPlan>, map: &TransportMap) -> Diagnosis {
    let planned = plan.map(|plan| plan.fabric);
    let seen = RuleInput::new(planned, map);
    let mut findings: Vec<Finding> =
        rules().filter(|rule| rule.applies(&seen)).map(|rule| finding(rule, &seen)).collect();
    explain_consequences(&mut findings);
    findings.extend(not_as_planned(&seen, &findings));
    findings.extend(silent(plan, &seen).map(|finding| with(Confidence::High, finding)));
    findings.extend(anomalies::findings(&seen));
    findings.extend(known_bad_versions(&seen));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let ok = judge(&seen, &findings);
    let expected = plan.and_then(|plan| plan.instance_type.as_deref()).and_then(|instance| {
        let nodes = map.snapshot().ranks().iter().map(|rank| rank.node + 1).max()?;
        catalogue::expected(instance, nodes, "all_reduce")
    });
    let whole = seen.comms().iter().any(|comm| comm.world && comm.seen_ranks.len() == comm.nranks as usize);
    let one_node = whole && seen.ranks().iter().all(|rank| rank.node == 0);
    Diagnosis { verdict: seen.verdict, ok, planned, findings, expected, one_node }
}

/// Makes notes of the findings that others explain, without a fix of their own: the fix of the cause is the one to make.
fn explain_consequences(findings: &mut [Finding]) {
    let applied: Vec<&Rule> = rules()
        .filter(|rule| findings.iter().any(|finding| finding.rule.as_deref() == Some(rule.id)))
        .collect();
    for finding in findings {
        let explains =
            |rule: &&&Rule| rule.code != finding.code && rule.explains.contains(&finding.code.as_str());
        if let Some(cause) = applied.iter().find(explains) {
            finding.severity = Severity::Info;
            finding.fix = None;
            finding.message = format!("{} (explained by {})", finding.message, cause.code);
        }
    }
}

/// Returns notes on versions in the log that are known to be bad. Only notes: the log need not show the
/// effect.
fn known_bad_versions(seen: &RuleInput<'_>) -> Vec<Finding> {
    let nccl = seen.map.live_versions().map(|version| ("nccl", version));
    let plugins = seen.map.plugins().iter().filter(|plugin| &*plugin.name == "aws-ofi-nccl");
    let plugins = plugins.filter_map(|plugin| Some(("aws-ofi-nccl", plugin.version.as_deref()?)));
    let found: Vec<(&str, &str)> = nccl.chain(plugins).collect();
    let note = |finding| Finding { severity: Severity::Info, ..with(Confidence::Medium, finding) };
    advisories::findings(&found).into_iter().map(note).collect()
}

fn with(confidence: Confidence, finding: Finding) -> Finding {
    Finding { confidence: Some(confidence), ..finding }
}

/// Returns the edit that sets a path of the job file, or unsets it.
fn edit(path: &str, value: Option<&str>) -> PatchEdit {
    let op = if value.is_some() { "set" } else { "unset" };
    PatchEdit { path: path.to_owned(), op: op.to_owned(), value: value.map(Into::into) }
}

/// Returns whether all is well: by the plan where there is one, else by the findings.
fn judge(seen: &RuleInput<'_>, findings: &[Finding]) -> Option<bool> {
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
    let patch = rule.patch.iter().map(|(path, value)| edit(path, *value)).collect();
    finding.fix = Some(Fix { text: rule.fix_for(seen), patch });
    for signature in rule.signatures {
        if let Some(found) = seen.map.signatures().get(*signature) {
            add_evidence(&mut finding, found, seen);
        }
    }
    finding
}

fn add_evidence(finding: &mut Finding, found: &SignatureHits, seen: &RuleInput<'_>) {
    let mut ranks: BTreeSet<u32> = finding.ranks.iter().copied().collect();
    add_traces(finding, &found.traces, seen);
    ranks.extend(seen.map.ranks_of(found));
    finding.ranks = ranks.into_iter().collect();
}

/// Cites lines, each once.
fn add_traces(finding: &mut Finding, traces: &[Trace], seen: &RuleInput<'_>) {
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
fn is_met(planned: Fabric, seen: FabricSeen, findings: &[Finding]) -> Option<bool> {
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

/// Returns whether a version as NCCL prints it (`2.1.15+cuda9.0`) is before 2.3.
fn is_before_2_3(version: &str) -> bool {
    let numbers = numbers(version);
    numbers.len() > 1 && numbers < vec![2, 3]
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
    if let Some(version) = seen.map.versions().find(|version| is_before_2_3(version)) {
        let message =
            format!("NCCL {version} prints its lines in a form that is not read; that ended with 2.3");
        let fix = "use an image with NCCL 2.3 or later to see the transport";
        return Some(Finding::warning("NCCL-LOG-OLD", message).fix(fix));
    }
    if plan.is_some_and(FabricPlan::sets_nccl_debug) {
        let message = "no NCCL INFO line in the log, though NCCL_DEBUG=INFO was set: no rank initialised NCCL, or NCCL writes to a file";
        let fix = "read the last lines of each rank, and check the job for NCCL_DEBUG_FILE";
        return Some(Finding::warning("NCCL-DEBUG-SILENT", message).fix(fix));
    }
    let message = "no NCCL INFO line in the log; set NCCL_DEBUG=INFO to see the transport";
    let mut finding = Finding::warning("NCCL-DEBUG-SILENT", message)
        .cite("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug");
    let patch = vec![edit("env.NCCL_DEBUG", Some("INFO"))];
    finding.fix = Some(Fix { text: "set NCCL_DEBUG=INFO for all ranks".to_owned(), patch });
    Some(finding)
}
