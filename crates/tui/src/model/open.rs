//! The job that is open: everything its screens show.

use std::sync::Arc;

use jiff::Timestamp;
use weftrun::Finding;
use weftrun::core::diagnose::cause::CAUSE_CODE;
use weftrun::core::fabric::FabricPlan;
use weftrun::core::job::{JobDetail, JobEvent, JobHandle, ReplicaStatus};
use weftrun::core::report::HealthReport;
use weftrun::core::spec::JobSpec;

use super::logs::LogPane;
use super::transport_view::TransportView;

/// How ranks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankOrder {
    /// By rank, those that the cause or RAS names first.
    #[default]
    Rank,
    /// The slowest first.
    Slowest,
    /// Most errors and warnings first.
    Errors,
}

/// The job that is open.
#[derive(Debug)]
pub struct Open {
    /// Its handle.
    pub handle: JobHandle,
    /// Its details from the cluster, once queried.
    pub detail: Option<JobDetail>,
    /// Why the last query failed.
    pub error: Option<String>,
    /// What was planned for it, if it was submitted here.
    pub plan: Option<FabricPlan>,
    /// The job as it was submitted, if it was submitted here.
    pub spec: Option<JobSpec>,
    /// What its logs have proved.
    pub transport_view: Arc<TransportView>,
    /// Its logs.
    pub logs: LogPane,
    /// What happened to it, oldest first, and when, where that is known.
    pub events: Vec<(Option<Timestamp>, JobEvent)>,
    /// Findings of the cluster (stuck, refused).
    pub stuck: Vec<Finding>,
    /// The last query of NCCL's RAS service.
    pub ras: Option<Ras>,
    /// Whether ranks are shown instead of nodes.
    pub by_rank: bool,
    /// Communicator shown.
    pub communicator: usize,
    /// Cell under the cursor of the matrix: row, column.
    pub cell: (usize, usize),
    /// Rank under the cursor of the overview.
    pub row: usize,
    /// How ranks are sorted.
    pub order: RankOrder,
    /// Finding under the cursor.
    pub finding: usize,
    /// Whether the logs have been read to their end.
    pub logs_ended: bool,
}

/// A query of NCCL's RAS service.
#[derive(Debug)]
pub struct Ras {
    /// When it began, or ended once there is an answer.
    pub at: Timestamp,
    /// The answer, or why there is none; none while it is awaited.
    pub answer: Option<Result<Box<HealthReport>, String>>,
    /// The finding about what blocks the job, by that answer.
    pub finding: Option<Finding>,
}

/// The ranks that the cause or RAS names.
#[derive(Debug)]
pub struct Suspects(Vec<u32>);

impl Suspects {
    /// Returns whether a rank is a suspect.
    pub fn contains(&self, rank: Option<u32>) -> bool {
        rank.is_some_and(|rank| self.0.binary_search(&rank).is_ok())
    }

    /// Returns whether any of the given rows in the list of ranks is a suspect, such as the rows of a node.
    pub fn contain_any(&self, transport_view: &TransportView, rows: &[usize]) -> bool {
        let rank = |row: &usize| transport_view.ranks.get(*row).and_then(|rank| rank.rank);
        !self.0.is_empty() && rows.iter().any(|row| self.contains(rank(row)))
    }
}

/// Most events kept.
const MAX_EVENTS: usize = 500;
/// Most findings of the cluster kept, each of another kind.
const MAX_STUCK: usize = 100;
/// Largest number of replicas kept: a cluster that names ever new ones does not exhaust memory.
const MAX_REPLICAS: usize = 65_536;

impl Open {
    /// Creates the state of a job that is being opened.
    pub fn new(handle: JobHandle) -> Self {
        Self {
            handle,
            detail: None,
            error: None,
            plan: None,
            spec: None,
            transport_view: Arc::new(TransportView::default()),
            logs: LogPane::default(),
            events: Vec::new(),
            stuck: Vec::new(),
            ras: None,
            by_rank: false,
            communicator: 0,
            cell: (0, 0),
            row: 0,
            order: RankOrder::default(),
            finding: 0,
            logs_ended: false,
        }
    }

    /// Adds an event; `seen` is when it arrived, if it arrived while the job was open.
    pub fn event(&mut self, event: JobEvent, seen: Option<Timestamp>) {
        match &event {
            JobEvent::Status { job } => {
                if let Some(detail) = &mut self.detail {
                    detail.summary = job.clone();
                }
                let same =
                    |old: &JobEvent| matches!(old, JobEvent::Status { job: old } if old.phase == job.phase);
                if self
                    .events
                    .iter()
                    .rev()
                    .map(|(_, e)| e)
                    .find(|e| matches!(e, JobEvent::Status { .. }))
                    .is_some_and(same)
                {
                    return;
                }
            }
            JobEvent::Replica { replica, .. } => return self.replica(replica.clone()),
            JobEvent::Stuck { finding, .. } => {
                self.stuck.retain(|known| known.code != finding.code);
                self.stuck.truncate(MAX_STUCK - 1);
                self.stuck.push(finding.clone());
            }
            _ => {}
        }
        if self.events.len() == MAX_EVENTS {
            self.events.remove(0);
        }
        self.events.push((happened_at(&event).or(seen), event));
    }

    fn replica(&mut self, replica: ReplicaStatus) {
        let Some(detail) = &mut self.detail else { return };
        let full = detail.replicas.len() >= MAX_REPLICAS;
        match detail.replicas.iter_mut().find(|known| known.name == replica.name) {
            Some(known) => *known = replica,
            None if full => {}
            None => detail.replicas.push(replica),
        }
    }

    /// Returns the findings: the cause, those of RAS, of the logs, then of the cluster.
    pub fn findings(&self) -> Vec<&Finding> {
        let (cause, logs): (Vec<&Finding>, Vec<&Finding>) =
            self.transport_view.findings.iter().partition(|finding| finding.code == CAUSE_CODE);
        let ras = self.ras.iter().filter_map(|ras| ras.finding.as_ref());
        let mut all: Vec<&Finding> = cause.into_iter().chain(ras).chain(logs).chain(&self.stuck).collect();
        if let Some(detail) = &self.detail {
            all.extend(detail.findings.iter().filter(|f| !self.stuck.iter().any(|s| s.code == f.code)));
        }
        all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        all
    }

    /// Returns the ranks that the cause or RAS names, which are shown first and marked. Called once a frame.
    pub fn suspects(&self) -> Suspects {
        let cause = self.transport_view.findings.iter().filter(|finding| finding.code == CAUSE_CODE);
        let ras = self.ras.iter().filter_map(|ras| ras.finding.as_ref());
        let mut ranks: Vec<u32> =
            cause.chain(ras).flat_map(|finding| finding.ranks.iter().copied()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Suspects(ranks)
    }

    /// Returns whether the overview lists nodes; it lists ranks if requested, or if there are few.
    pub fn lists_nodes(&self) -> bool {
        !self.by_rank && self.transport_view.nodes.len() > 1 && self.transport_view.ranks.len() > 16
    }

    /// The ranks under the cursor of the overview: one, or those of a node.
    pub fn chosen_ranks(&self) -> Vec<u32> {
        let ranks = &self.transport_view.ranks;
        let indices = if self.lists_nodes() {
            let at = self.row.min(self.transport_view.nodes.len() - 1);
            self.transport_view.nodes[at].ranks.clone()
        } else {
            self.rank_rows().get(self.row).copied().into_iter().collect()
        };
        indices.iter().filter_map(|index| ranks.get(*index)?.rank).collect()
    }

    /// How many rows and columns the matrix has.
    pub fn matrix_size(&self) -> usize {
        if self.by_rank { self.transport_view.ranks.len() } else { self.transport_view.nodes.len() }
    }

    /// Indices of the ranks in the order they are listed.
    pub fn rank_rows(&self) -> Vec<usize> {
        let ranks = &self.transport_view.ranks;
        let mut rows: Vec<usize> = (0..ranks.len()).collect();
        match self.order {
            RankOrder::Rank => {
                let suspects = self.suspects();
                rows.sort_by_key(|i| !suspects.contains(ranks[*i].rank));
            }
            RankOrder::Slowest => rows.sort_by_key(|i| ranks[*i].step),
            RankOrder::Errors => {
                let store = self.logs.store.read();
                let mut bad: std::collections::HashMap<u32, u64> = std::collections::HashMap::new();
                for stream in store.streams() {
                    if let Some(rank) = stream.rank {
                        *bad.entry(rank).or_default() += stream.errors * 1000 + stream.warnings;
                    }
                }
                rows.sort_by_key(|i| std::cmp::Reverse(ranks[*i].rank.and_then(|r| bad.get(&r)).copied()));
            }
        }
        rows
    }
}

/// Returns when an event happened, if it contains a time.
fn happened_at(event: &JobEvent) -> Option<Timestamp> {
    match event {
        JobEvent::Message { time, .. } => *time,
        JobEvent::Status { job } if job.phase.is_terminal() => job.ended,
        _ => None,
    }
}
