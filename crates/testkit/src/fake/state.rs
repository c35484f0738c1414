//! The state of a fake backend.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weftrun_core::backend::Capability;
use weftrun_core::job::{JobEvent, JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId};
use weftrun_core::log::{Mark, SourceId};
use weftrun_core::{Error, ErrorKind, Result};

/// The whole state of a fake backend.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub capability: Capability,
    pub jobs: BTreeMap<JobHandle, Job>,
    pub calls: Vec<String>,
    pub failures: Vec<(&'static str, ErrorKind, String)>,
    pub lose_answer: bool,
    pub hangs: bool,
    pub dead: bool,
}

/// A job of a fake backend.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub summary: JobSummary,
    pub replicas: Vec<ReplicaStatus>,
    /// All its events, in order.
    pub events: Vec<JobEvent>,
    pub logs: Vec<Log>,
}

/// A rank's log: pieces in the order they were written.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub source: Arc<SourceId>,
    pub pieces: Vec<Piece>,
}

/// A piece of a log.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    Mark(Mark),
}

impl State {
    pub fn add(&mut self, name: &str, id: SubmissionId, nodes: u32, ranks_per_node: u32) -> JobHandle {
        let uid: String = id.as_str().chars().take(8).collect();
        let handle = JobHandle::new(&self.capability.backend, &self.capability.backend, [name]).with_uid(uid);
        let mut summary = JobSummary::new(handle.clone(), JobPhase::Submitted);
        summary.submission = Some(id);
        summary.kind = "fake".to_owned();
        summary.ready = (0, nodes);
        summary.created = Some(Timestamp::now());
        let replica =
            |node| ReplicaStatus::new(format!("{name}-worker-{node}"), "worker", node, JobPhase::Submitted);
        let log = |rank| {
            let mut source = SourceId::new(format!("node{}/rank{rank}", rank / ranks_per_node.max(1)));
            source.role = "worker".to_owned();
            source.replica = rank / ranks_per_node.max(1);
            source.rank = Some(rank);
            Log { source: Arc::new(source), pieces: Vec::new() }
        };
        let events = vec![JobEvent::Status { job: summary.clone() }];
        let logs = (0..nodes * ranks_per_node).map(log).collect();
        self.jobs.insert(
            handle.clone(),
            Job { summary, replicas: (0..nodes).map(replica).collect(), events, logs },
        );
        handle
    }

    /// Takes the failure prepared for an operation.
    pub fn failure(&mut self, operation: &str) -> Result<()> {
        match self.failures.iter().position(|(name, ..)| *name == operation) {
            None => Ok(()),
            Some(at) => {
                let (_, kind, message) = self.failures.remove(at);
                Err(Error::new(kind, message))
            }
        }
    }

    pub fn job(&self, handle: &JobHandle) -> Result<&Job> {
        self.jobs.get(handle).ok_or_else(|| super::no_job(handle))
    }
}

impl Job {
    pub fn of(summary: JobSummary, replicas: Vec<ReplicaStatus>) -> Self {
        Self { summary, replicas, events: Vec::new(), logs: Vec::new() }
    }

    pub fn set_phase(&mut self, phase: JobPhase, reason: &str) {
        self.summary.phase = phase;
        reason.clone_into(&mut self.summary.reason);
        if phase == JobPhase::Running {
            self.summary.ready.0 = self.summary.ready.1;
        }
        if phase.is_terminal() {
            self.summary.ended = Some(Timestamp::now());
        }
        for replica in &mut self.replicas {
            replica.phase = phase;
            self.events
                .push(JobEvent::Replica { job: self.summary.handle.clone(), replica: replica.clone() });
        }
        self.events.push(JobEvent::Status { job: self.summary.clone() });
    }

    pub fn write(&mut self, rank: u32, bytes: &[u8]) {
        if let Some(log) = self.logs.get_mut(rank as usize) {
            log.pieces.push(Piece::Bytes(bytes.to_vec()));
        }
    }

    pub fn mark(&mut self, rank: u32, mark: Mark) {
        if let Some(log) = self.logs.get_mut(rank as usize) {
            log.pieces.push(Piece::Mark(mark));
        }
    }
}
