//! The answer to why a job failed: its state, the first cause and the victims, as data and as lines for a person.

use serde::{Deserialize, Serialize};
use weftrun_nccl::failure::Frame;

use super::class::CauseClass;
use super::place::Place;
use crate::rules::Rule;

use weftrun_core::finding::Evidence;
use weftrun_core::{Confidence, Finding};

/// Most lines of an answer.
const MOST_LINES: usize = 10;

/// The code of the finding that names the first cause.
pub const CAUSE_CODE: &str = "WHY-CAUSE";

word_enum! {
    /// The state of a job.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum WhyState {
        /// It ended with an error.
        Failed = "failed",
        /// It runs, and a collective operation waits beyond its time limit.
        Hanging = "hanging",
        /// It runs.
        Running = "running",
        /// It ended in order.
        Succeeded = "succeeded",
        /// It waits to start, or to start again.
        Pending = "pending",
        /// Somebody ended it.
        Cancelled = "cancelled",
        /// The logs do not show it.
        #[default]
        Unknown = "unknown",
    }
}

/// The first cause of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// Kind.
    pub class: CauseClass,
    /// Global ranks that failed first; empty where no rank did, or none is proved.
    pub ranks: Vec<u32>,
    /// Their nodes.
    pub nodes: Vec<String>,
    /// What happened, in one line.
    pub what: String,
    /// The code of its rule (`weftrun explain CODE`).
    pub code: String,
    /// What to do, in one sentence.
    pub fix: String,
    /// The innermost frame of the user's own code.
    pub frame: Option<Frame>,
    /// Where ranks that disagree stand in the user's own code; left out unless they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// The GPU of the process that failed, where its rank is not known.
    #[serde(skip)]
    pub gpu: Option<u32>,
    /// The log lines that prove it.
    pub evidence: Vec<Evidence>,
    /// How sure that is.
    pub confidence: Confidence,
}

impl Cause {
    /// Creates a cause that a rule knows, of no known rank.
    pub(crate) fn new(class: CauseClass, rule: &Rule, what: String) -> Self {
        Self {
            class,
            ranks: Vec::new(),
            nodes: Vec::new(),
            fix: rule.fix_of(&what),
            what,
            code: rule.code.to_owned(),
            frame: None,
            places: Vec::new(),
            gpu: None,
            evidence: Vec::new(),
            confidence: Confidence::Medium,
        }
    }

    /// Returns which ranks failed: `rank 3 on node1`.
    pub fn who(&self) -> String {
        let ranks = match (self.ranks.as_slice(), self.gpu) {
            ([], Some(gpu)) => format!("the rank of GPU {gpu}"),
            ([], None) => "a rank".to_owned(),
            (ranks, _) => named(ranks),
        };
        match self.nodes.as_slice() {
            [] if self.class.is_of_whole_job() && self.ranks.is_empty() => "the whole job".to_owned(),
            [] if self.ranks.is_empty() => "it is not known which rank".to_owned(),
            [] => ranks,
            [one] => format!("{ranks} on {one}"),
            many if self.ranks.is_empty() && self.gpu.is_none() => {
                format!("ranks on {}", weftrun_core::text::listed(many, 4))
            }
            many => format!("{ranks} on {} nodes", many.len()),
        }
    }
}

/// The stack of a rank's process, as a debugger printed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stack {
    /// Global rank.
    pub rank: u32,
    /// Its process, in the process namespace of its container.
    pub pid: Option<u32>,
    /// The debugger's output, or why there is none.
    pub text: String,
}

/// Why a job failed or hangs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// The state of the job.
    pub state: WhyState,
    /// The first cause; none where nothing failed, or the cause is not proved.
    pub cause: Option<Cause>,
    /// Ranks that failed because of it.
    pub victims: Vec<u32>,
    /// Other notable findings.
    pub findings: Vec<Finding>,
    /// Stacks of the ranks that the cause names, where they were requested.
    pub stacks: Vec<Stack>,
}

/// The lines of [`Why::lines`].
impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl Why {
    /// Returns the cause as a finding, for lists of findings; none where there is no cause.
    pub fn finding(&self) -> Option<Finding> {
        let cause = self.cause.as_ref()?;
        let place = cause.frame.as_ref().map_or_else(String::new, |frame| {
            format!(" ({}:{} in {})", frame.file, frame.line, frame.function)
        });
        let who = cause.who();
        let message =
            format!("{} {}: {}: {}{place}", self.state.as_str(), cause.class.as_str(), who, cause.what);
        let mut finding = Finding::error(CAUSE_CODE, message).fix(cause.fix.as_str());
        finding.confidence = Some(cause.confidence);
        finding.ranks.clone_from(&cause.ranks);
        finding.evidence.clone_from(&cause.evidence);
        Some(finding)
    }

    /// Returns whether the job failed, hangs, or was cancelled for a cause that is known.
    pub fn is_failure(&self) -> bool {
        match self.state {
            WhyState::Failed | WhyState::Hanging => true,
            WhyState::Cancelled => self.cause.is_some(),
            _ => false,
        }
    }

    /// Returns the answer for a job that has not ended.
    #[must_use]
    pub fn not_ended(mut self) -> Self {
        self.wait_for_the_end();
        self.state = WhyState::Running;
        self
    }

    /// Advises to wait: a loss of its nodes may only queue the job again, and a second one would then run beside it.
    pub(crate) fn wait_for_the_end(&mut self) {
        if let Some(cause) = self.cause.as_mut().filter(|cause| cause.class.is_over_when_queued_again()) {
            "nothing yet: the job has not ended, and its cluster may queue it again; submit it again only once `weftrun describe` says that it ended"
                .clone_into(&mut cause.fix);
        }
    }

    /// Returns whether a rank counts as failed: only those that the cause names; where it names a node alone, those that
    /// NCCL's lines show as failed and that are no victims.
    pub fn is_failed(&self, rank: Option<u32>, by_its_lines: bool) -> bool {
        let among = |ranks: &[u32]| rank.is_some_and(|rank| ranks.contains(&rank));
        let Some(cause) = self.cause.as_ref().filter(|_| self.state == WhyState::Failed) else {
            return false;
        };
        // Where nobody knows which rank it was, those that report it are its victims.
        let among_others = || by_its_lines && !cause.nodes.is_empty() && !among(&self.victims);
        if cause.ranks.is_empty() { among_others() } else { among(&cause.ranks) }
    }

    /// Returns whether a rank failed, or never started, in a job that its cluster calls succeeded.
    fn is_contradicted(&self) -> bool {
        [super::RANK_FAILED, "K8S-RANK-FAILED", "K8S-RANKS-MISSING"].iter().any(|code| self.has(code))
    }

    /// Returns whether somebody must let the job go on.
    fn is_held(&self) -> bool {
        self.findings.iter().any(|finding| finding.code == super::PHASE && finding.fix.is_some())
    }

    fn has_survived(&self) -> bool {
        self.has(super::NOT_FATAL)
    }

    /// Returns whether all that is quoted is a line whose words healthy programs print too.
    fn mentions(&self) -> bool {
        self.has(super::MENTIONED) && !self.has(super::UNEXPLAINED)
    }

    fn quotes(&self) -> bool {
        self.has(super::MENTIONED) || self.has(super::UNEXPLAINED)
    }

    fn has(&self, code: &str) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }

    /// Returns the answer in at most ten lines.
    pub fn lines(&self) -> Vec<String> {
        let Some(cause) = &self.cause else {
            let head = match self.state {
                WhyState::Failed => "failed: the logs do not show the cause",
                WhyState::Hanging => "hanging: the logs do not show the cause",
                WhyState::Running if self.quotes() => "running: no failure is proved",
                WhyState::Running => "running: no failure in the logs",
                WhyState::Succeeded if self.is_contradicted() => {
                    "succeeded: so the cluster reports, and what follows contradicts it"
                }
                WhyState::Succeeded if self.has_survived() => {
                    "succeeded: errors in the logs, and nothing shows that a rank failed"
                }
                WhyState::Succeeded if self.quotes() => "succeeded: no failure is proved",
                WhyState::Succeeded => "succeeded: no failure in the logs",
                WhyState::Pending if self.is_held() => "pending: it is held or suspended",
                WhyState::Pending => "pending: it has not started",
                WhyState::Cancelled if self.quotes() => "cancelled: no failure is proved",
                WhyState::Cancelled => "cancelled: no failure in the logs",
                WhyState::Unknown if self.has_survived() => {
                    "unknown: errors in the logs, and nothing shows that they ended the job"
                }
                WhyState::Unknown if self.mentions() => {
                    "unknown: no failure is proved, and no end of the job"
                }
                WhyState::Unknown if self.quotes() => "unknown: no rule explains the errors in the logs",
                WhyState::Unknown if self.has(super::EARLIER_ATTEMPT) => {
                    "unknown: no failure in the last attempt, and no end of the job"
                }
                // A finding says what the cluster reports.
                WhyState::Unknown if !self.findings.is_empty() => "unknown: no failure in the logs",
                WhyState::Unknown => "unknown: no failure in the logs, and no end of the job",
            };
            let more = self.findings.iter().take(8).map(|finding| format!("  note      {}", finding.message));
            let is_known = |finding: &&Finding| {
                matches!(finding.code.as_str(), super::NOT_FATAL | super::RANK_FAILED | super::PHASE)
            };
            let known = self.findings.iter().filter(is_known);
            // Where nothing failed, what the rules found has a fix, too.
            let mut all = known.chain(self.findings.iter().filter(|finding| finding.rule.is_some()));
            let fix =
                all.find_map(|finding| finding.fix.as_ref()).map(|fix| format!("  fix       {}", fix.text));
            return std::iter::once(head.to_owned()).chain(more).chain(fix).collect();
        };
        let mut lines = vec![format!("{}: {}: {}", self.state.as_str(), cause.class.as_str(), cause.who())];
        lines.push(format!("  what      {}", cause.what));
        if let Some(frame) = cause.frame.as_ref().filter(|_| cause.places.is_empty()) {
            lines.push(format!("  at        {}:{} in {}", frame.file, frame.line, frame.function));
        }
        for place in cause.places.iter().take(3) {
            let Place { ranks, frame } = place;
            let (file, line, function) = (&frame.file, frame.line, &frame.function);
            lines.push(format!("  at        {file}:{line} in {function} ({})", named(ranks)));
        }
        for evidence in cause.evidence.iter().take(2) {
            let text: String = evidence.text.chars().take(160).collect();
            let line = if evidence.line == 0 { String::new() } else { format!(":{}", evidence.line) };
            lines.push(format!("  evidence  {}{line}: {text}", evidence.source));
        }
        if !self.victims.is_empty() {
            lines.push(format!("  victims   {}", named(&self.victims)));
        }
        lines.push(format!("  fix       {}", cause.fix.as_str()));
        if cause.confidence != Confidence::High {
            let sure = if cause.confidence == Confidence::Low { "low" } else { "medium" };
            let reason = self.findings.iter().find(|finding| finding.code == super::LOGS_MISSING);
            let reason = reason.map_or_else(String::new, |finding| format!(": {}", finding.message));
            lines.push(format!("  sure      {sure}{reason}"));
        }
        let told =
            |finding: &&Finding| finding.code != super::LOGS_MISSING || cause.confidence == Confidence::High;
        for finding in self.findings.iter().filter(told).take(MOST_LINES.saturating_sub(lines.len())) {
            lines.push(format!("  note      {}", finding.message));
        }
        lines
    }
}

/// Reports that the logs of some ranks were not read; `of` is the number of all ranks, or is empty.
pub(super) fn not_read(ranks: &[u32], of: &str) -> String {
    let (logs, verb) = if ranks.len() == 1 { ("log", "was") } else { ("logs", "were") };
    format!("the {logs} of {}{of} {verb} not read", named(ranks))
}

/// Returns `rank 3`, or `ranks 0-3, 7`.
pub(crate) fn named(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, rank_list(ranks))
}

/// Returns numbers as ranges: `0-3, 7`.
pub fn rank_list(ranks: &[u32]) -> String {
    const MOST: usize = 16;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown = runs.iter().take(MOST).map(|(from, to)| match to - from {
        0 => from.to_string(),
        _ => format!("{from}-{to}"),
    });
    let more = if runs.len() > MOST { ", …" } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}
