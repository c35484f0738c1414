//! The report of `weftrun health -o json`: the answers of NCCL's RAS service for a running job.

use std::collections::{BTreeSet, HashSet};

use weftrun_nccl::TransportMap;
use weftrun_nccl::ras::{Communicator, PeerEvent, Report};

use crate::cause::named;
use crate::cause::{Cause, CauseClass, Why, WhyState};
use crate::diagnostics;
use crate::health::{Culprit, HealthState, RAS, advisories_of};
use crate::rules::{PROCESS_SILENT, rule_of_error};
use weftrun_core::finding::{Confidence, Evidence, Finding, Severity};
use weftrun_core::shape::SchemaName;
use weftrun_core::text::counted;

weftrun_core::shapes! {
    /// `weftrun health -o json`: whether the ranks of a running job make progress, and which one does not.
    pub struct HealthReport {
        /// `weftrun/v1`.
        pub schema: SchemaName,
        /// The state according to the answers.
        pub state: HealthState,
        /// The state in a sentence, or why there is no answer.
        pub reason: String,
        /// Version of NCCL in the process that answered.
        pub nccl_version: Option<String>,
        /// What is known to go wrong with the RAS service of that version.
        pub notes: Vec<String>,
        /// The communicators of the last answer.
        pub communicators: Vec<Communicator>,
        /// Ranks that hold the others up.
        pub culprits: Vec<Culprit>,
        /// What is wrong with the job, from the answers and its logs, as `weftrun why` names it; null where nothing is, or
        /// nothing proves it.
        pub cause: Option<Cause>,
        /// How the service was reached.
        pub asked: Asked,
        /// With `--watch`: what NCCL noticed since the line before.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub events: Vec<PeerEvent>,
        /// With `--diagnose`: what NCCL's own diagnostics found.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub diagnostics: Option<HealthDiagnostics>,
    }

    /// What NCCL's own diagnostics of a running job found.
    #[derive(Default)]
    pub struct HealthDiagnostics {
        /// Why there are none; null where NCCL made them.
        pub refused: Option<String>,
        /// The checks that found nothing, by NCCL's names.
        pub passed: Vec<String>,
        /// What they found, and what they could not check.
        pub findings: Vec<Finding>,
    }

    /// How the service was reached, and how long that took.
    #[derive(Default)]
    pub struct Asked {
        /// The way to the process that answered.
        pub via: String,
        /// Number of answers.
        pub answers: u32,
        /// Seconds from the first request to the last answer.
        pub seconds: f64,
    }
}

impl HealthDiagnostics {
    /// Says why there are none.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { refused: Some(reason.into()), ..Self::default() }
    }

    /// Takes those of a diagnosis that are of NCCL's own diagnostics.
    pub fn new(logs: &TransportMap, findings: Vec<Finding>) -> Self {
        let passed =
            logs.snapshot().own_diagnostics_passed().map(|check| check.as_str().to_owned()).collect();
        Self { refused: None, passed, findings: findings.into_iter().filter(diagnostics::is_one).collect() }
    }
}

impl HealthReport {
    /// Makes a report without an answer.
    pub fn without_answer(state: HealthState, reason: impl Into<String>, asked: Asked) -> Self {
        Self {
            schema: SchemaName,
            state,
            reason: reason.into(),
            nccl_version: None,
            notes: Vec::new(),
            communicators: Vec::new(),
            culprits: Vec::new(),
            cause: None,
            asked,
            events: Vec::new(),
            diagnostics: None,
        }
    }

    /// Makes a report of the last answer.
    pub fn new(state: HealthState, last: &Report, culprits: Vec<Culprit>, asked: Asked) -> Self {
        let reason = reason(state, last, &culprits, &asked);
        Self {
            nccl_version: last.nccl_version.clone(),
            notes: last.nccl_version.as_deref().map(advisories_of).unwrap_or_default(),
            communicators: last.communicators.clone(),
            culprits,
            ..Self::without_answer(state, reason, asked)
        }
    }

    /// Adds the answer of the service to what the logs show of a running job that no cause explains: a rank that holds the
    /// others up is the cause, and ranks that make progress are a note.
    pub fn explain(&self, why: &mut Why) {
        if why.cause.is_some() {
            return;
        }
        let said = format!("NCCL's RAS service: {}", self.reason);
        let Some(first) = self.culprits.first() else {
            return why.findings.push(Finding::info("WHY-RAS", said));
        };
        let gone = self.state == HealthState::Incomplete;
        // One answer cannot tell a rank that hangs from one that is about to go on.
        let certain = gone || self.state == HealthState::Stuck || self.asked.answers > 1;
        if certain {
            why.state = WhyState::Hanging;
        }
        let global: BTreeSet<u32> = self.culprits.iter().filter_map(|culprit| culprit.global_rank).collect();
        let nodes: BTreeSet<&String> = self.culprits.iter().map(|culprit| &culprit.host).collect();
        why.victims.retain(|rank| !global.contains(rank));
        // One that does not answer has ended, hangs as a whole, or has left NCCL; only RAS's word for dead tells these apart.
        let dead = gone && first.is_dead();
        let class = match (dead, certain) {
            (true, _) => CauseClass::ExitCode,
            (false, true) => CauseClass::CollectiveTimeout,
            (false, false) => CauseClass::Behind,
        };
        let rule = if dead { &PROCESS_SILENT } else { rule_of_error(class, &[]) };
        let cause = Cause::new(class, rule, format!("{}; {}", first.why, self.reason));
        why.cause = Some(Cause {
            ranks: global.into_iter().collect(),
            nodes: nodes.into_iter().cloned().collect(),
            code: self.finding().map_or(cause.code, |finding| finding.code),
            fix: match (dead, gone, first.pid) {
                (true, ..) => cause.fix,
                (false, true, pid) => format!(
                    "see whether process {pid} still runs on its node: if so, what it does (`weftrun why JOB --stacks`); if not, \
                     whether it left the loop before the others (its last lines beside theirs) or was ended (dmesg)"
                ),
                (false, false, pid) => format!(
                    "see what process {pid} does: `weftrun why JOB --stacks`, or `py-spy dump --pid {pid}` beside it"
                ),
            },
            evidence: vec![Evidence { source: RAS.to_owned(), line: 0, text: first.sentence() }],
            confidence: match self.state {
                HealthState::Stuck => Confidence::High,
                HealthState::Incomplete if first.is_dead() => Confidence::High,
                _ if certain => Confidence::Medium,
                _ => Confidence::Low,
            },
            ..Cause::new(class, rule, cause.what)
        });
    }

    /// Returns what blocks the job as a finding, for lists of findings; none where the ranks make progress
    /// or nothing answered.
    pub fn finding(&self) -> Option<Finding> {
        let (code, severity, confidence) = match self.state {
            HealthState::Stuck => ("HEALTH-STUCK", Severity::Error, Confidence::High),
            HealthState::Incomplete => ("HEALTH-INCOMPLETE", Severity::Error, Confidence::High),
            HealthState::Suspect => ("HEALTH-SUSPECT", Severity::Warning, Confidence::Medium),
            HealthState::Healthy | HealthState::Unreachable | HealthState::Unsupported => return None,
        };
        let named: Vec<String> = self.culprits.iter().take(4).map(Culprit::sentence).collect();
        let more = match self.culprits.len().saturating_sub(named.len()) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let separator = if named.is_empty() { "" } else { ": " };
        let message = format!("NCCL's RAS service: {}{separator}{}{more}", self.reason, named.join("; "));
        let mut finding = Finding::new(severity, code, message);
        if let Some(first) = self.culprits.first() {
            let rank = first.global_rank.map_or_else(|| "N".to_owned(), |rank| rank.to_string());
            let pid = if first.pid == 0 { "PID".to_owned() } else { first.pid.to_string() };
            finding = finding.fix(format!(
                "see what that process does: `weftrun exec JOB --rank {rank} -- py-spy dump --pid {pid}`"
            ));
        }
        finding.confidence = Some(confidence);
        finding.ranks = self.culprits.iter().filter_map(|culprit| culprit.global_rank).collect();
        finding.ranks.sort_unstable();
        finding.ranks.dedup();
        Some(finding)
    }
}

fn reason(state: HealthState, last: &Report, culprits: &[Culprit], asked: &Asked) -> String {
    let comms = last.communicators.len();
    let answers = match asked.answers {
        1 => "in one answer".to_owned(),
        count => format!("in {count} answers over {:.0} s", asked.seconds),
    };
    let failed = last.communicators.iter().flat_map(|comm| &comm.errors);
    let failed: HashSet<_> = failed.map(|error| (&error.member.host, error.member.pid)).collect();
    match state {
        HealthState::Healthy if !last.is_complete => {
            format!("RAS reports no rank that differs from the others {answers}")
        }
        HealthState::Healthy if comms == 0 => "RAS reports no communicator yet".to_owned(),
        HealthState::Healthy if last.is_clean() => {
            format!("all ranks of {} answer and are at the same operation", counted(comms, "communicator"))
        }
        HealthState::Healthy => format!("ranks differ and move {answers}"),
        HealthState::Suspect if !failed.is_empty() => {
            format!(
                "{} {} an error",
                counted(failed.len(), "rank"),
                if failed.len() == 1 { "reports" } else { "report" }
            )
        }
        HealthState::Suspect | HealthState::Stuck if culprits.is_empty() => {
            let ahead = last.communicators.iter().flat_map(|comm| &comm.ahead);
            let (count, others) = ahead.clone().next().map_or((0, 0), |first| (first.count, first.others));
            let operation = ahead.clone().next().map_or("", |first| first.operation.as_str());
            let ranks: Vec<u32> = ahead.map(|rank| rank.member.rank).collect();
            format!(
                "{} launched {count} {operation} operations, the others {others} {answers}; RAS does not name those that \
                 are behind",
                named(&ranks)
            )
        }
        HealthState::Suspect if asked.answers > 1 => {
            format!("{} behind and did not move {answers}", are(culprits.len()))
        }
        HealthState::Suspect => format!(
            "{} behind {answers}, which does not show whether {}",
            are(culprits.len()),
            if culprits.len() == 1 { "it moves" } else { "they move" }
        ),
        HealthState::Stuck => format!(
            "{} behind and {} not moved {answers}",
            are(culprits.len()),
            if culprits.len() == 1 { "has" } else { "have" }
        ),
        HealthState::Incomplete => {
            let missing = last.communicators.iter().flat_map(|comm| &comm.missing);
            let missing: HashSet<_> =
                missing.map(|missing| (&missing.member.host, missing.member.pid)).collect();
            let (number, noun) = match missing.len() {
                0 => (last.missing_processes.len(), "process"),
                known => (known, "rank"),
            };
            format!("{} {} not answer", counted(number, noun), if number == 1 { "does" } else { "do" })
        }
        HealthState::Unreachable | HealthState::Unsupported => String::new(),
    }
}

fn are(ranks: usize) -> String {
    if ranks == 1 { "1 rank is".to_owned() } else { format!("{ranks} ranks are") }
}
