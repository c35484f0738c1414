//! The job that is open: everything its screens show.

use std::sync::Arc;

use jiff::Timestamp;
use weftrun::Finding;
use weftrun::core::fabric::FabricPlan;
use weftrun::core::job::{JobDetail, JobEvent, JobHandle, JobPhase, ReplicaStatus};
use weftrun::core::nccl::bandwidth::Collective;
use weftrun::core::spec::JobSpec;
use weftrun::diagnose::RANK_LATE;
use weftrun::diagnose::cause::CAUSE_CODE;
use weftrun::report::HealthReport;

use super::logs::LogPane;
use super::sorting::{CollectiveColumn, NodeColumn, RankColumn, Sorting};
use super::transport_view::{Cell, Communicator, LinkMap, Node, Rank, TransportView};

/// How the matrix is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixForm {
    /// The widest form that shows everything.
    #[default]
    Auto,
    /// Three columns a cell.
    Letters,
    /// Two columns a cell.
    Compact,
    /// One column a cell.
    Dense,
    /// Blocks of pairs, shaded by their channels.
    Heat,
}

impl MatrixForm {
    /// Returns the next form, and its name.
    pub fn next(self) -> (Self, &'static str) {
        match self {
            Self::Auto => (Self::Letters, "letters, three columns a cell"),
            Self::Letters => (Self::Compact, "letters, two columns a cell"),
            Self::Compact => (Self::Dense, "letters, one column a cell"),
            Self::Dense => (Self::Heat, "heat map: blocks of pairs, shaded by channels"),
            Self::Heat => (Self::Auto, "the widest form that shows everything"),
        }
    }
}

#[derive(Debug)]
pub struct Open {
    pub handle: JobHandle,
    /// Its phase in the list of jobs, once it is listed.
    pub listed_phase: Option<JobPhase>,
    /// Its details from the cluster, once queried.
    pub detail: Option<JobDetail>,
    /// Why the last query failed.
    pub error: Option<String>,
    /// What was planned for it, if it was submitted here.
    pub plan: Option<FabricPlan>,
    /// The job as it was submitted, if it was submitted here.
    pub spec: Option<JobSpec>,
    pub transport_view: Arc<TransportView>,
    pub logs: LogPane,
    /// What happened to it, oldest first, and when, where that is known.
    pub events: Vec<(Option<Timestamp>, JobEvent)>,
    /// Findings of the cluster (stuck, refused).
    pub stuck: Vec<Finding>,
    /// The last query of NCCL's RAS service.
    pub ras: Option<Ras>,
    /// Whether ranks are shown instead of nodes.
    pub by_rank: bool,
    /// Map shown: that of all communicators, then that of each.
    pub communicator: usize,
    /// Cell under the cursor of the matrix: row, column.
    pub cell: (usize, usize),
    pub form: MatrixForm,
    /// Row under the cursor of the overview.
    pub row: usize,
    pub ranks_sorted: Sorting<RankColumn>,
    pub nodes_sorted: Sorting<NodeColumn>,
    pub collectives_sorted: Sorting<CollectiveColumn>,
    pub finding: usize,
    /// Collective under the cursor of the bandwidth screen, by its communicator; none for the first of the list.
    pub collective: Option<(String, Collective)>,
    /// First rank of those whose waiting is shown there.
    pub first_wait: usize,
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

/// The ranks that the cause or RAS names, and those for which the others wait.
#[derive(Debug)]
pub struct Suspects(Vec<u32>);

impl Suspects {
    pub fn contains(&self, rank: Option<u32>) -> bool {
        rank.is_some_and(|rank| self.0.binary_search(&rank).is_ok())
    }

    /// Returns whether any of the given rows in the list of ranks is a suspect, such as the rows of a node.
    pub fn contain_any(&self, transport_view: &TransportView, rows: &[usize]) -> bool {
        let rank = |row: &usize| transport_view.ranks.get(*row).and_then(|rank| rank.rank);
        !self.0.is_empty() && rows.iter().any(|row| self.contains(rank(row)))
    }
}

/// The phase of ranks that did not fail, once the job has ended.
const ENDED: &str = "ended";
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
            listed_phase: None,
            detail: None,
            error: None,
            plan: None,
            spec: None,
            transport_view: Arc::new(TransportView::default()),
            logs: LogPane::new(),
            events: Vec::new(),
            stuck: Vec::new(),
            ras: None,
            by_rank: false,
            communicator: 0,
            cell: (0, 0),
            form: MatrixForm::default(),
            row: 0,
            ranks_sorted: Sorting::default(),
            nodes_sorted: Sorting::default(),
            collectives_sorted: Sorting::default(),
            finding: 0,
            collective: None,
            first_wait: 0,
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
                if self.events.iter().rev().find_map(|(_, event)| event.phase()) == Some(job.phase) {
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

    /// Returns how the job ended; none while it runs.
    pub fn end(&self) -> Option<JobPhase> {
        let told = self.events.iter().rev().find_map(|(_, event)| event.phase()).or(self.listed_phase);
        let phase = self.detail.as_ref().map(|detail| detail.summary.phase).or(told);
        phase.filter(|phase| phase.is_terminal())
    }

    /// Returns what follows a statement that may change: nothing does after the end.
    pub fn yet(&self) -> &'static str {
        if self.end().is_some() { "" } else { " yet" }
    }

    /// Returns when the job ended; none while it runs.
    pub fn ended(&self) -> Option<Timestamp> {
        self.detail.as_ref().filter(|_| self.end().is_some())?.summary.ended
    }

    /// Returns the phase of a rank, which is final once the job has ended.
    pub fn phase_word(&self, rank: &Rank) -> &'static str {
        match self.end() {
            Some(_) if !rank.failed => ENDED,
            _ => rank.step().word(),
        }
    }

    /// Describes the progress of a node's ranks, and returns whether all of them have it.
    pub fn node_word(&self, node: &Node) -> (String, bool) {
        match self.end() {
            Some(_) if node.failed == 0 => (format!("{ENDED} {0}/{0}", node.ranks.len()), true),
            _ => node.reached_word(),
        }
    }

    /// Returns the findings: the cause and that of RAS, then those of the logs and of the cluster by severity.
    pub fn findings(&self) -> Vec<&Finding> {
        let (cause, logs): (Vec<&Finding>, Vec<&Finding>) =
            self.transport_view.findings.iter().partition(|finding| finding.code == CAUSE_CODE);
        let ras = self.ras.iter().filter_map(|ras| ras.finding.as_ref());
        let mut rest: Vec<&Finding> = logs.into_iter().chain(&self.stuck).collect();
        if let Some(detail) = &self.detail {
            rest.extend(detail.findings.iter().filter(|f| !self.stuck.iter().any(|s| s.code == f.code)));
        }
        rest.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        // A job that fails or hangs does so whatever its transport is.
        cause.into_iter().chain(ras).chain(rest).collect()
    }

    /// Returns the ranks that the cause or RAS names, and those for which the others wait: they are shown first and marked.
    /// Called once a frame.
    pub fn suspects(&self) -> Suspects {
        let names = |finding: &&Finding| [CAUSE_CODE, RANK_LATE].contains(&finding.code.as_str());
        let cause = self.transport_view.findings.iter().filter(names);
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

    /// Returns how many ranks or nodes the overview lists.
    pub fn listed(&self) -> usize {
        if self.lists_nodes() { self.transport_view.nodes.len() } else { self.transport_view.ranks.len() }
    }

    /// Returns the ranks under the cursor of the overview: one, or those of a node.
    pub fn chosen_ranks(&self) -> Vec<u32> {
        let ranks = &self.transport_view.ranks;
        let indices = if self.lists_nodes() {
            let rows = self.node_rows();
            let at = rows.get(self.row).or(rows.last());
            at.map_or(Vec::new(), |at| self.transport_view.nodes[*at].ranks.clone())
        } else {
            self.rank_rows().get(self.row).copied().into_iter().collect()
        };
        indices.iter().filter_map(|index| ranks.get(*index)?.rank).collect()
    }

    /// Returns the links that are shown: of all communicators together, or of one.
    pub fn map(&self) -> Option<&LinkMap> {
        let maps = &self.transport_view.maps;
        maps.get(self.communicator).or(maps.first())
    }

    /// Returns the communicator that is shown; none if the map is that of several.
    pub fn shown_communicator(&self) -> Option<&Communicator> {
        let communicators = &self.transport_view.communicators;
        match self.communicator.checked_sub(1) {
            Some(at) => communicators.get(at),
            None => communicators.first().filter(|_| communicators.len() == 1),
        }
    }

    /// Returns the rows and columns of the matrix, as indices of ranks or of nodes.
    pub fn matrix_rows(&self) -> &[usize] {
        self.map().map_or(&[], |map| map.rows(self.by_rank))
    }

    /// Returns the number of a row of the matrix: its rank, where proved, or its node.
    pub fn matrix_name(&self, row: usize) -> Option<u32> {
        let index = *self.matrix_rows().get(row)?;
        if self.by_rank { self.transport_view.ranks.get(index)?.rank } else { u32::try_from(index).ok() }
    }

    pub fn matrix_cell(&self, row: usize, column: usize) -> Cell<'_> {
        let (from, to) = (self.matrix_name(row), self.matrix_name(column));
        self.map().map_or(Cell::Unknown, |map| map.cell(self.by_rank, from, to))
    }

    pub fn is_inside_node(&self, row: usize, column: usize) -> bool {
        let rows = self.matrix_rows();
        let (Some(row), Some(column)) = (rows.get(row), rows.get(column)) else { return false };
        let node = |index: usize| self.transport_view.ranks.get(index).and_then(|rank| rank.node);
        if self.by_rank { node(*row).is_some() && node(*row) == node(*column) } else { row == column }
    }

    /// Returns whether all connections of a rank or node of the matrix are known.
    pub fn is_settled(&self, number: u32) -> bool {
        self.map().is_some_and(|map| map.is_settled(self.by_rank, number))
    }

    /// Moves the cursor of the matrix to the next or previous link that is a problem; returns whether there is one.
    pub fn go_to_wrong(&mut self, forward: bool) -> bool {
        let Some(map) = self.map() else { return false };
        let numbers = (0..self.matrix_rows().len()).filter_map(|row| Some((self.matrix_name(row)?, row)));
        let row_of: std::collections::BTreeMap<u32, usize> = numbers.collect();
        let links = map.links(self.by_rank).keys();
        let cells = links.filter_map(|(from, to)| Some((*row_of.get(from)?, *row_of.get(to)?)));
        let mut wrong: Vec<(usize, usize)> =
            cells.filter(|(row, column)| self.is_wrong(*row, *column)).collect();
        wrong.sort_unstable();
        let next = if forward {
            wrong.iter().find(|cell| **cell > self.cell).or(wrong.first())
        } else {
            wrong.iter().rev().find(|cell| **cell < self.cell).or(wrong.last())
        };
        let Some(next) = next.copied() else { return false };
        self.cell = next;
        true
    }

    /// Returns whether a link of the matrix is a problem.
    pub fn is_wrong(&self, row: usize, column: usize) -> bool {
        match self.matrix_cell(row, column) {
            Cell::Linked(link) => link.is_wrong(self.transport_view.judge, self.is_inside_node(row, column)),
            _ => false,
        }
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
