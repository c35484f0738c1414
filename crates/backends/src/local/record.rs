//! What is written down of a job: by the submitter once, by its supervisor whenever something happened.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use weftrun_core::Severity;
use weftrun_core::fabric::Fabric;
use weftrun_core::job::JobPhase;

use super::document::ProcessList;
use crate::process::Identity;

/// The origin of a job. Written with the claim, never changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Origin {
    /// Time of the submission.
    pub created: Timestamp,
    /// The submitter's working folder, in which the processes start unless the job sets another.
    pub folder: PathBuf,
    /// Name of the job.
    pub name: String,
    /// Simulated nodes.
    pub nodes: u32,
    /// The fabric it was planned for.
    pub fabric: Fabric,
    /// Labels of the job.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether the supervisor is a thread of the submitter.
    pub attached: bool,
    /// The process that submits it; none in jobs of older versions.
    #[serde(default)]
    pub submitter: Option<Identity>,
}

/// The supervisor's record. Replaced atomically.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The job's phase, as the supervisor sees it.
    pub phase: JobPhase,
    /// The reason for the phase.
    pub reason: String,
    /// The job's exit code, once it has ended.
    pub exit_code: Option<i32>,
    /// The attempt, from 0.
    pub attempt: u32,
    /// The process that writes this record.
    pub supervisor: Identity,
    /// Time of the end.
    pub ended: Option<Timestamp>,
    /// The processes of this attempt, in the order of the list.
    pub processes: Vec<ProcessRecord>,
    /// Events, oldest first.
    pub history: Vec<Happening>,
    /// Processes that outlived the one that started them, and that the supervisor became the parent of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<Identity>,
}

/// One process of the present attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessRecord {
    /// Its identity, once it was started.
    pub identity: Option<Identity>,
    pub phase: JobPhase,
    /// The reason for the phase.
    pub reason: String,
    /// Exit code as in a shell: 128 + signal for a signal.
    pub exit_code: Option<i32>,
}

/// An event of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Happening {
    pub time: Timestamp,
    pub severity: Severity,
    /// Its kind (`started`, `restarted`, `left-behind`).
    pub what: String,
    /// Its description.
    pub text: String,
}

impl Origin {
    /// Returns the origin of a list that is submitted now.
    pub fn of(list: &ProcessList, folder: PathBuf, attached: bool) -> Self {
        Self {
            created: crate::clock::now(),
            folder,
            name: list.name.clone(),
            nodes: list.nodes,
            fabric: list.fabric,
            labels: list.labels.clone(),
            attached,
            submitter: Some(Identity::me()),
        }
    }

    /// Returns whether the submitter ended, or gave up, before it started a supervisor. For a job without a record.
    pub fn is_abandoned(&self) -> bool {
        let age = crate::clock::now().duration_since(self.created);
        match &self.submitter {
            Some(submitter) if !submitter.is_of_another_boot() => !submitter.is_alive() || age > GIVES_UP,
            _ => age > START_PATIENCE,
        }
    }
}

/// A claimed job without a supervisor counts as abandoned after this time if its submitter is not known.
const START_PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// A live submitter withdraws the claim before this time.
const GIVES_UP: SignedDuration = SignedDuration::from_mins(3);

/// Largest number of events: the first ones show the cause, the last ones the present state.
const MOST_HAPPENINGS: usize = 200;

impl Record {
    /// Returns the record before anything was started.
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
            adopted: Vec::new(),
        }
    }

    /// Adds an event.
    pub fn note(&mut self, severity: Severity, what: &str, text: impl Into<String>) {
        if self.history.len() >= MOST_HAPPENINGS {
            self.history.remove(MOST_HAPPENINGS / 2);
        }
        self.history.push(Happening {
            time: crate::clock::now(),
            severity,
            what: what.to_owned(),
            text: text.into(),
        });
    }

    pub fn end(&mut self, phase: JobPhase, reason: impl Into<String>, exit_code: Option<i32>) {
        self.phase = phase;
        self.reason = reason.into();
        self.exit_code = exit_code;
        self.ended = Some(crate::clock::now());
        let severity = if phase == JobPhase::Failed { Severity::Error } else { Severity::Info };
        let text = if self.reason.is_empty() { phase.to_string() } else { self.reason.clone() };
        self.note(severity, "ended", text);
    }
}

impl ProcessRecord {
    /// Returns a process that was not started yet.
    pub fn waiting() -> Self {
        Self { identity: None, phase: JobPhase::Starting, reason: String::new(), exit_code: None }
    }
}
