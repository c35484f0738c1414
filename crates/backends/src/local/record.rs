//! What is written down of a job: by the submitter once, by its supervisor whenever something happened.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::Severity;
use weftrun_core::fabric::Fabric;
use weftrun_core::job::JobPhase;

use super::document::ProcessList;
use super::process::Identity;

/// Where a job came from. Written with the claim, never changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Origin {
    /// When it was submitted.
    pub created: Timestamp,
    /// The submitter's working folder, in which the processes start unless the job says otherwise.
    pub folder: PathBuf,
    /// Name of the job.
    pub name: String,
    /// Simulated nodes.
    pub nodes: u32,
    /// The fabric it was planned for.
    pub fabric: Fabric,
    /// Whether the supervisor is a thread of the submitter.
    pub attached: bool,
}

/// What the supervisor knows. Replaced whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The job's phase, as the supervisor sees it.
    pub phase: JobPhase,
    /// Why.
    pub reason: String,
    /// The job's exit code, once it has ended.
    pub exit_code: Option<i32>,
    /// The attempt, from 0.
    pub attempt: u32,
    /// Who writes this.
    pub supervisor: Identity,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// The processes of this attempt, in the order of the list.
    pub processes: Vec<ProcessRecord>,
    /// What happened, oldest first.
    pub history: Vec<Happening>,
}

/// One process of the present attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessRecord {
    /// Who it is, once it was started.
    pub identity: Option<Identity>,
    /// Its phase.
    pub phase: JobPhase,
    /// Why.
    pub reason: String,
    /// Exit code as a shell gives it: 128 and the signal's number if a signal ended it.
    pub exit_code: Option<i32>,
}

/// Something that happened to the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Happening {
    /// When.
    pub time: Timestamp,
    /// How bad.
    pub severity: Severity,
    /// A word (`started`, `restarted`, `left-behind`).
    pub what: String,
    /// A sentence.
    pub text: String,
}

impl Origin {
    /// The origin of a list that is submitted now.
    pub fn of(list: &ProcessList, folder: PathBuf, attached: bool) -> Self {
        Self {
            created: Timestamp::now(),
            folder,
            name: list.name.clone(),
            nodes: list.nodes,
            fabric: list.fabric,
            attached,
        }
    }
}

/// Happenings kept: the first ones say why, the last ones say what now.
const MOST_HAPPENINGS: usize = 200;

impl Record {
    /// The record before anything was started.
    pub fn starting(processes: usize) -> Self {
        Self {
            phase: JobPhase::Starting,
            reason: String::new(),
            exit_code: None,
            attempt: 0,
            supervisor: Identity::me(),
            ended: None,
            processes: vec![ProcessRecord::waiting(); processes],
            history: Vec::new(),
        }
    }

    /// Notes something that happened.
    pub fn note(&mut self, severity: Severity, what: &str, text: impl Into<String>) {
        if self.history.len() >= MOST_HAPPENINGS {
            self.history.remove(MOST_HAPPENINGS / 2);
        }
        self.history.push(Happening {
            time: Timestamp::now(),
            severity,
            what: what.to_owned(),
            text: text.into(),
        });
    }

    /// Ends the job.
    pub fn end(&mut self, phase: JobPhase, reason: impl Into<String>, exit_code: Option<i32>) {
        self.phase = phase;
        self.reason = reason.into();
        self.exit_code = exit_code;
        self.ended = Some(Timestamp::now());
        let severity = if phase == JobPhase::Failed { Severity::Error } else { Severity::Info };
        let text = if self.reason.is_empty() { phase.to_string() } else { self.reason.clone() };
        self.note(severity, "ended", text);
    }
}

impl ProcessRecord {
    /// A process that was not started yet.
    pub fn waiting() -> Self {
        Self { identity: None, phase: JobPhase::Starting, reason: String::new(), exit_code: None }
    }
}
