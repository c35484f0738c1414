//! Failures in log lines: tracebacks, watchdogs, exit codes, signals, and messages of launchers and
//! clusters.
//!
//! [`Failures`] takes bytes and keeps bounded evidence for each rank. Which fact is the cause and which ranks are victims
//! is decided elsewhere (`weftrun_diagnose::cause`), since that needs all sources.

mod absent;
mod content;
mod facts;
mod kernel;
mod launchers;
mod mentions;
mod reading;
mod traceback;
mod watchdog;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use kernel::HARDWARE_XIDS;
pub use traceback::{Exception, Frame, SIGNALS, TracebackLines, is_library};
pub use watchdog::mismatch;
pub(crate) use watchdog::rank_of_watchdog;

use typed_index_collections::TiVec;

use crate::launcher::{Prefix, prefix};
use crate::lines::Piece;
use crate::map::SourceIndex;
use reading::{Reading, Sink};

/// One collective operation as a watchdog prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Sequence number in its process group.
    pub seq: i64,
    /// Operation, such as `ALLREDUCE`.
    pub op: String,
    /// What was sent: `NumelIn` or `TensorShape`, with its value.
    pub size: Option<(&'static str, String)>,
}

/// A cluster's own reason for the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterReason {
    /// A cgroup's memory limit was reached.
    OutOfMemory,
    /// A node failed.
    NodeFailure,
    /// The time limit was reached.
    TimeLimit,
    /// Another job took the nodes.
    Preempted,
    /// The job was put back into the queue.
    Requeued,
    /// A person or a program cancelled the job.
    Cancelled,
    /// Kubernetes evicted a pod.
    Evicted,
    /// The image could not be pulled.
    Image,
    /// No node can take a pod.
    Unschedulable,
}

/// What one line, or one traceback, reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A Python exception ended a traceback.
    Exception(Exception),
    /// A watchdog gave up waiting for a collective operation.
    TimedOut {
        /// Process group, as printed (`0(default_pg)`), where the line has it.
        group: Option<String>,
        /// The operation.
        work: Work,
    },
    /// A watchdog reports the progress of a process group.
    Progress {
        /// Process group, as printed.
        group: Option<String>,
        /// Last operation that was enqueued.
        enqueued: i64,
        /// Last operation that was completed.
        completed: i64,
    },
    /// Ranks that others wait for.
    Absent {
        /// Their global ranks; none where the line does not name them.
        ranks: Vec<u32>,
        /// What they did not come to.
        from: String,
        /// Whether the others wait in different operations.
        apart: bool,
    },
    /// NCCL reports that another process ended.
    RemoteExit,
    /// A process ended with an exit code; negative is a signal.
    Exit {
        /// The code as Python's `subprocess` gives it.
        code: i32,
        /// Where its launcher places it among the failures that it saw.
        order: Order,
        /// When that was, by the clock of its launcher (`2023-06-03_22:45:01`), for the first one.
        at: Option<String>,
    },
    /// A line reports that a signal ended a process.
    Signal(i32),
    /// A CUDA call failed.
    Cuda(String),
    /// The driver reports an error of a GPU.
    Xid(u32),
    /// The reason that the cluster reports.
    Cluster(ClusterReason),
    /// Where the user's own code began the operation that a watchdog gave up: the innermost frame outside of libraries.
    Stack(Frame),
    /// A watchdog saw an operation fail, by timeout or by an error; another line says which.
    WatchdogFailed {
        /// Sequence number of the operation.
        seq: i64,
    },
    /// Another rank reported a timeout of a collective: that one, or the writer itself.
    ToldOfTimeout {
        /// The rank that told, where it is another one.
        by: Option<u32>,
        /// The operation, where the line names it.
        op: Option<String>,
    },
    /// Ray lost a worker; it does not know why.
    WorkerLost {
        /// The worker's process.
        pid: Option<u64>,
        /// The address of its host.
        host: Option<String>,
    },
    /// The store of the rendezvous is gone: its process, rank 0 or a launcher, ended.
    StoreLost,
    /// The process ends itself after an error.
    Died,
    /// NCCL's own words on its failure (`Last error:`), where no exception is above them.
    LastError(String),
    /// A line that reports an error in words that no other fact has.
    Error {
        /// The line without its prefix.
        text: String,
        /// Whether its program ends with it, as far as the wording shows it.
        fatal: bool,
    },
    /// A line that says that something failed, in words that healthy programs print too.
    Mention(String),
    /// The world's communicator was destroyed in order.
    Finished,
}

/// Where a launcher places a failure among those that it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// It was the first.
    First,
    /// The launcher does not say.
    #[default]
    Unknown,
    /// Another was before it.
    Later,
}

/// Who wrote a line, as far as the line shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// Global rank.
    pub rank: Option<u32>,
    /// Rank on its node.
    pub local: Option<u32>,
    /// Process id.
    pub pid: Option<u64>,
    /// Task of Slurm, or process of `mpirun`: a rank, or a launcher of several.
    pub task: Option<u32>,
}

impl Writer {
    /// Returns who wrote what is behind a prefix. What `mpirun` writes is a task: whether tasks are ranks depends on the whole log.
    fn behind(prefix: &Prefix<'_>) -> Self {
        let local = prefix.local.map(|(_, local)| local);
        Self { rank: prefix.rank, local, pid: prefix.pid, task: prefix.task.or(prefix.tag) }
    }

    /// Returns who wrote a line.
    fn of(piece: &Piece<'_>) -> Self {
        let behind = Self::behind(&piece.prefix);
        let pid = piece.process().map(|process| process.pid).filter(|pid| *pid != 0);
        Self { pid: pid.or(behind.pid), ..behind }
    }
}

/// A fact and its line.
#[derive(Clone, Debug)]
pub struct Report {
    /// Index of the source.
    pub source: SourceIndex,
    /// Line, from 1.
    pub line: u64,
    /// The line, safe to print.
    pub text: String,
    /// The host that the lines below it name.
    pub host: Option<String>,
    /// When it was written, by the clock of its writer, in seconds that only serve to compare.
    pub time: Option<u64>,
    /// Who wrote it.
    pub writer: Writer,
    /// What the line reports.
    pub fact: Fact,
}

/// What one source shows about the identity of its ranks.
#[derive(Clone, Debug, Default)]
pub struct SourceRanks {
    /// Rank of a process id.
    pub by_pid: BTreeMap<u64, u32>,
    /// Rank of a local rank.
    pub by_local: BTreeMap<u32, u32>,
    /// Local rank of a process id.
    pub local_of_pid: BTreeMap<u64, u32>,
    /// `NCCL_HOSTID` of a process id.
    pub host_of_pid: BTreeMap<u64, String>,
    /// Ranks that wrote something.
    pub seen: BTreeSet<u32>,
    /// Local ranks that wrote something.
    pub locals: BTreeSet<u32>,
    /// Host names that NCCL printed.
    pub hosts: BTreeSet<String>,
    /// The host of a rank, as NCCL or a launcher names it.
    pub host_of_rank: BTreeMap<u32, String>,
    /// The host of a task of Slurm.
    pub host_of_task: BTreeMap<u32, String>,
    /// Most ranks of a communicator.
    pub world: Option<u32>,
    /// The lines at which a second and later attempt begins, in order.
    pub restarts: Vec<u64>,
    /// The lines at which a launcher reports a failed worker, in order.
    pub failed_workers: Vec<u64>,
    /// Lines read.
    pub lines: u64,
    /// Whether the last line was cut off.
    pub cut: bool,
    /// Whether a launcher for each node (torchrun) wrote here.
    pub agent: bool,
    /// Tasks that a launcher names before lines, whatever the lines say.
    pub tasks: BTreeSet<u32>,
    /// Whether `mpirun` names them: a number and a colon may be of another program, such as ctest.
    pub tagged: bool,
    /// Whether a task is no rank: one wrote a line of another rank.
    pub tasks_hold_ranks: bool,
    /// Whether several nodes wrote here, so that a local rank is no rank.
    pub nodes_mixed: bool,
}

impl Fact {
    pub(crate) fn exit(code: i32, order: Order) -> Self {
        Self::Exit { code, order, at: None }
    }
}

impl Work {
    /// Returns whether its operation is known; some lines of watchdogs give its number alone.
    pub fn is_named(&self) -> bool {
        self.op != watchdog::UNNAMED_WORK
    }
}

impl SourceRanks {
    /// Returns the attempt that a line belongs to, from 0.
    pub fn attempt(&self, line: u64) -> usize {
        self.restarts.partition_point(|start| *start <= line)
    }

    /// Returns the global rank of a writer, as far as this source proves it.
    pub fn rank(&self, writer: &Writer) -> Option<u32> {
        let by_pid = || writer.pid.and_then(|pid| self.by_pid.get(&pid).copied());
        let local = writer.local.or_else(|| self.local_of_pid.get(&writer.pid?).copied());
        let by_local = || {
            let local = local.filter(|_| !self.nodes_mixed)?;
            // A launcher numbers the ranks of a node consecutively.
            self.by_local.get(&local).copied().or_else(|| {
                let (known, rank) = self.by_local.iter().next()?;
                rank.checked_add(local)?.checked_sub(*known)
            })
        };
        writer.rank.or_else(by_pid).or_else(by_local)
    }
}

/// Facts of failures, collected from any number of sources.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    sources: TiVec<SourceIndex, Reading>,
    reports: Vec<Report>,
    dropped: u64,
    generation: u64,
}

impl Failures {
    /// Begins to read lines of a source; sources are numbered by the caller.
    pub(crate) fn begin(&mut self, source: SourceIndex, rank: Option<u32>) {
        if self.sources.len() <= source.into() {
            self.sources.resize_with(usize::from(source) + 1, Reading::default);
        }
        if let Some(reading) = self.sources.get_mut(source) {
            reading.told_rank = rank.or(reading.told_rank);
            reading.ranks.seen.extend(rank);
        }
    }

    /// Takes a line and the end of the line above; returns whether the next one is needed, whatever its content.
    pub(crate) fn take(&mut self, source: SourceIndex, piece: &Piece<'_>, above: &[u8]) -> bool {
        let Some(reading) = self.sources.get_mut(source) else { return false };
        let before = self.reports.len();
        let mut sink = Sink { source, reports: &mut self.reports, dropped: &mut self.dropped };
        reading.piece(piece, above, &mut sink);
        self.generation += u64::from(self.reports.len() != before);
        reading.needs_next(piece.line)
    }

    /// Takes one of the last lines of a source that has ended, which may only say that something failed.
    pub(crate) fn take_last(&mut self, source: SourceIndex, piece: &Piece<'_>) {
        let Some(reading) = self.sources.get_mut(source) else { return };
        let before = self.reports.len();
        let mut sink = Sink { source, reports: &mut self.reports, dropped: &mut self.dropped };
        reading.last(piece, &mut sink);
        self.generation += u64::from(self.reports.len() != before);
    }

    /// Takes the number of lines of a source so far.
    pub(crate) fn finish(&mut self, source: SourceIndex, lines: u64) {
        if let Some(reading) = self.sources.get_mut(source) {
            reading.ranks.lines = lines;
        }
    }

    /// Takes the end of a source.
    pub(crate) fn end(&mut self, source: SourceIndex, cut: bool) {
        if let Some(reading) = self.sources.get_mut(source) {
            reading.ranks.cut |= cut;
            // Only rank 0 says that the group formed: where much follows, it did.
            let gathering = std::mem::take(&mut reading.gathering);
            let is_last = reading.ranks.lines.saturating_sub(gathering.line) <= absent::BEHIND;
            if let Some(text) = gathering.twice().filter(|_| is_last) {
                let line = gathering.line;
                let mut sink = Sink { source, reports: &mut self.reports, dropped: &mut self.dropped };
                let fact = Fact::Error { text: text.clone(), fatal: false };
                reading.keep(Writer::default(), line, text.as_bytes(), fact, &mut sink);
            } else if let Some(text) = gathering.missing().filter(|_| is_last) {
                let mut sink = Sink { source, reports: &mut self.reports, dropped: &mut self.dropped };
                let fact = Fact::Mention(text.clone());
                reading.keep(Writer::default(), gathering.line, text.as_bytes(), fact, &mut sink);
            }
            if let Some(cut) = reading.tracebacks.end() {
                let text = format!("a traceback whose end is not in the log{}", cut.place);
                let writer = Writer::behind(&prefix(&cut.header));
                let mut sink = Sink { source, reports: &mut self.reports, dropped: &mut self.dropped };
                reading.keep(writer, cut.line, &cut.header, Fact::Error { text, fatal: false }, &mut sink);
            }
        }
    }

    /// Returns everything found, in the order it was read.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// Returns the ranks of a source.
    pub fn ranks(&self, source: SourceIndex) -> Option<&SourceRanks> {
        self.sources.get(source).map(|reading| &reading.ranks)
    }

    /// Returns the ranks of all sources, by their numbers.
    pub fn sources(&self) -> impl Iterator<Item = &SourceRanks> {
        self.sources.iter().map(|reading| &reading.ranks)
    }

    /// Returns a number that grows with every new fact.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns how many facts were dropped at the limit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
