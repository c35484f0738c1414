//! The report of `weftrun health -o json`: what NCCL's RAS service says about a running job.

use serde::Serialize;
use weftrun_nccl::ras::Report;

use super::SchemaName;
use crate::diagnose::health::{Culprit, HealthState};

/// `weftrun health -o json`: whether the ranks of a running job make progress, and which one does not.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HealthReport {
    /// `weftrun/v1`.
    pub schema: SchemaName,
    /// What the answers say.
    pub state: HealthState,
    /// The state in a sentence, or why there is no answer.
    pub reason: String,
    /// Version of NCCL in the process that answered.
    pub nccl_version: Option<String>,
    /// The communicators of the last answer.
    pub communicators: Vec<CommunicatorHealth>,
    /// Ranks that hold the others up.
    pub culprits: Vec<Culprit>,
    /// How the service was reached.
    pub asked: Asked,
}

/// How the service was reached, and how long that took.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Asked {
    /// The way to the process that answered.
    pub via: String,
    /// Number of answers.
    pub answers: u32,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
}

/// One communicator.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CommunicatorHealth {
    /// Its hash, which NCCL logs as `commId`.
    pub hash: String,
    /// Its ranks; null where the answer does not name them.
    pub size: Option<u32>,
    /// Ranks whose data did not arrive.
    pub missing: Vec<MissingRank>,
    /// Ranks that launched fewer operations than others.
    pub behind: Vec<BehindRank>,
    /// Errors that ranks report.
    pub errors: Vec<FailedRank>,
}

/// A rank whose data did not arrive.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingRank {
    /// Rank in the communicator.
    pub rank: u32,
    /// Address or name of its node.
    pub host: String,
    /// Process id.
    pub pid: u64,
    /// Whether RAS has given it up.
    pub dead: bool,
}

/// A rank that launched fewer operations than others.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BehindRank {
    /// Rank in the communicator.
    pub rank: u32,
    /// Address or name of its node.
    pub host: String,
    /// Process id.
    pub pid: u64,
    /// The operation: `AllReduce`.
    pub operation: String,
    /// Operations it launched.
    pub count: u64,
    /// Operations the others launched.
    pub others: u64,
}

/// A rank that reports an error.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedRank {
    /// Rank in the communicator.
    pub rank: u32,
    /// Address or name of its node.
    pub host: String,
    /// Process id.
    pub pid: u64,
    /// What is wrong.
    pub error: String,
}

impl HealthReport {
    /// Makes a report without an answer.
    pub fn without_answer(state: HealthState, reason: impl Into<String>, asked: Asked) -> Self {
        Self {
            schema: SchemaName,
            state,
            reason: reason.into(),
            nccl_version: None,
            communicators: Vec::new(),
            culprits: Vec::new(),
            asked,
        }
    }

    /// Makes a report of the last answer.
    pub fn new(state: HealthState, last: &Report, culprits: Vec<Culprit>, asked: Asked) -> Self {
        let reason = reason(state, last, &culprits, &asked);
        let communicators = last.communicators.iter().map(|comm| CommunicatorHealth {
            hash: format!("{:#x}", comm.hash),
            size: comm.size,
            missing: comm
                .missing
                .iter()
                .map(|missing| MissingRank {
                    rank: missing.member.rank,
                    host: missing.member.host.clone(),
                    pid: missing.member.pid,
                    dead: missing.dead,
                })
                .collect(),
            behind: comm
                .behind
                .iter()
                .map(|behind| BehindRank {
                    rank: behind.rank,
                    host: behind.host.clone(),
                    pid: behind.pid,
                    operation: behind.operation.clone(),
                    count: behind.count,
                    others: behind.others,
                })
                .collect(),
            errors: comm
                .errors
                .iter()
                .map(|error| FailedRank {
                    rank: error.member.rank,
                    host: error.member.host.clone(),
                    pid: error.member.pid,
                    error: error.what.clone(),
                })
                .collect(),
        });
        Self {
            schema: SchemaName,
            state,
            reason,
            nccl_version: last.nccl_version.clone(),
            communicators: communicators.collect(),
            culprits,
            asked,
        }
    }
}

fn reason(state: HealthState, last: &Report, culprits: &[Culprit], asked: &Asked) -> String {
    let missing: usize = last.communicators.iter().map(|comm| comm.missing.len()).max().unwrap_or(0);
    let comms = last.communicators.len();
    let answers = match asked.answers {
        1 => "in one answer".to_owned(),
        count => format!("in {count} answers over {:.0} s", asked.seconds),
    };
    match state {
        HealthState::Healthy if !last.is_complete => {
            format!("RAS reports no rank that differs from the others {answers}")
        }
        HealthState::Healthy if last.is_clean() => {
            format!(
                "all ranks of {comms} {} answer and are at the same operation",
                plural(comms, "communicator")
            )
        }
        HealthState::Healthy => format!("ranks differ and move {answers}"),
        HealthState::Suspect if culprits.is_empty() => format!("ranks differ {answers}"),
        HealthState::Suspect if asked.answers > 1 => {
            format!("{} behind and did not move {answers}", are(culprits.len()))
        }
        HealthState::Suspect => {
            format!("{} behind {answers}; a second one would tell whether it moves", are(culprits.len()))
        }
        HealthState::Stuck => format!("{} behind and has not moved {answers}", are(culprits.len())),
        HealthState::Incomplete => format!(
            "{} {} not answer",
            match missing {
                0 => format!(
                    "{} {}",
                    last.missing_processes.len(),
                    plural(last.missing_processes.len(), "process")
                ),
                count => format!("{count} {}", plural(count, "rank")),
            },
            if missing.max(last.missing_processes.len()) == 1 { "does" } else { "do" }
        ),
        HealthState::Unreachable | HealthState::Unsupported => String::new(),
    }
}

fn are(ranks: usize) -> String {
    if ranks == 1 { "1 rank is".to_owned() } else { format!("{ranks} ranks are") }
}

fn plural(count: usize, noun: &str) -> String {
    match (count, noun) {
        (1, noun) => noun.to_owned(),
        (_, "process") => "processes".to_owned(),
        (_, noun) => format!("{noun}s"),
    }
}
