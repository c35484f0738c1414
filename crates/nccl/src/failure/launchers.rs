//! Reads the reports of launchers on their workers: torchrun, Slurm, MPI.

use super::content::Content;
use super::traceback::{Exception, stream};
use super::words::Text;
use super::{ClusterReason, Fact, Order, Writer};
use crate::map::printable;

/// Reports of launchers that span several lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    /// Those of torchrun, by the prefix of their lines: several nodes may write into one log at the same time.
    torchrun: Vec<(Vec<u8>, Table)>,
    mpi_rank: Option<u32>,
    /// Whether `MPI_Abort` was called, and its code was not read yet.
    aborted: bool,
    /// The class of the C++ exception that nothing caught, whose message is in the next line.
    pub thrown: Option<Vec<u8>>,
    /// Who began a watchdog's line that goes on in the next one.
    pub watchdog: Option<Writer>,
    /// Tasks that Slurm's lines named so far.
    tasks: usize,
    /// How many of the next lines may have the time of a first failure.
    pub time_within: u8,
}

/// A table of torchrun, as far as it was read.
#[derive(Clone, Debug, Default)]
struct Table {
    rank: Option<(u32, u32)>,
    host: Vec<u8>,
    /// Whether the next row is that of the first failure.
    root: bool,
    /// When that was, in the words of the table.
    time: Vec<u8>,
}

/// The row of a table that names a worker's host.
pub(super) const HOST_ROW: &str = "host      : ";

/// Most tasks that Slurm's lines name in one source, each as often as a line repeats it.
const TASKS: usize = 1 << 20;

/// Most lines between the header of a first failure and its time; several nodes may write into one log.
const TIME_REACH: u8 = 8;

/// Most tables that are read at the same time.
const TABLES: usize = 1024;

impl Tables {
    /// Takes the time of a first failure.
    pub fn take_time(&mut self, line: &[u8]) {
        self.time_within = self.time_within.saturating_sub(1);
        let (before, row) = Text(line).columns();
        if let Some(time) = Text(row).strip("time ").and_then(|rest| rest.after(": ")) {
            self.of(before).time = time.0.trim_ascii().to_vec();
        }
    }

    /// Returns the table of the lines with a prefix.
    fn of(&mut self, prefix: &[u8]) -> &mut Table {
        let key = stream(prefix.trim_ascii());
        let at = self.torchrun.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            if self.torchrun.len() >= TABLES {
                self.torchrun.remove(0);
            }
            self.torchrun.push((key, Table::default()));
            self.torchrun.len() - 1
        });
        &mut self.torchrun[at].1
    }
}

/// Reads torchrun's agent: `failed (exitcode: -9) local_rank: 1 (pid: 835) of binary`, and its table of
/// failures.
pub(super) fn torchrun(
    text: Text<'_>,
    task: Option<u32>,
    tables: &mut Tables,
    say: &mut impl FnMut(Writer, Content<'_>),
) {
    if text.has("worker group") {
        if text.has("estart") {
            say(Writer::default(), Content::Restarts);
        }
        return;
    }
    if let Some(before) = text.before("Root Cause (") {
        *tables.of(before) = Table { root: true, ..Table::default() };
        tables.time_within = TIME_REACH;
        return;
    }
    if let Some(rest) = text.after("failed (exitcode: ") {
        let code = rest.signed();
        let local = rest.after("local_rank: ").and_then(Text::small);
        let pid = rest.after("(pid: ").and_then(Text::number);
        if let (Some(code), Some(local)) = (code, local) {
            say(Writer::default(), Content::WorkerFailed);
            let who = Writer { local: Some(local), pid, task, rank: None };
            say(who, Content::Fact(Fact::exit(code, Order::First)));
        }
        return;
    }
    // torchelastic before 1.10: `Child process 17057 (local_rank 0) FAILED (exitcode 1)`.
    if let Some(rest) = text.after("Child process ")
        && let Some(code) = text.after("FAILED (exitcode ").and_then(Text::signed)
    {
        let local = rest.after("(local_rank ").and_then(Text::small);
        let who = Writer { local, pid: rest.number(), task, rank: None };
        say(who, Content::Fact(Fact::exit(code, Order::Unknown)));
        return;
    }
    let (before, row) = text.columns();
    let (table, trimmed) = (tables.of(before), Text(row));
    if let Some(rest) = trimmed.strip("rank ") {
        let rank = rest.after(": ").and_then(Text::small);
        let local = rest.after("(local_rank: ").and_then(Text::small);
        table.rank = rank.zip(local);
        let host = std::mem::take(&mut table.host);
        if !host.is_empty() {
            say(Writer { rank, ..Writer::default() }, Content::On(&host));
        }
    } else if let Some(rest) = trimmed.strip("host ") {
        table.host = rest.after(": ").map(|rest| rest.name().to_vec()).unwrap_or_default();
    } else if let Some(rest) = trimmed.strip("exitcode ")
        && let Some((rank, local)) = table.rank.take()
    {
        say(Writer::default(), Content::AgentEnded);
        say(Writer::default(), Content::Is { local, rank });
        if let Some(code) = rest.after(": ").and_then(Text::signed) {
            let pid = rest.after("(pid: ").and_then(Text::number);
            let who = Writer { rank: Some(rank), local: Some(local), pid, task };
            let order = if std::mem::take(&mut table.root) { Order::First } else { Order::Later };
            let at = std::mem::take(&mut table.time);
            let at = (order == Order::First && !at.is_empty()).then(|| printable(&at, 40));
            say(who, Content::Fact(Fact::Exit { code, order, at }));
        }
    }
}

/// Reads messages of Slurm and of the kernel.
pub(super) fn slurm(text: Text<'_>, tables: &mut Tables, say: &mut impl FnMut(Writer, Content<'_>)) {
    const REASONS: [(ClusterReason, &[&str]); 6] = [
        (
            ClusterReason::OutOfMemory,
            &[
                "oom_kill",
                "oom-kill event",
                "OOM Killed",
                "OOMKilled",
                "Out Of Memory",
                // Slurm without cgroups: `slurmstepd: error: StepId=9.0 exceeded memory limit (2960 > 2048), being killed`.
                " exceeded memory limit (",
            ],
        ),
        (ClusterReason::TimeLimit, &["DUE TO TIME LIMIT"]),
        (ClusterReason::Preempted, &["DUE TO PREEMPTION"]),
        (ClusterReason::Requeued, &["DUE TO JOB REQUEUE"]),
        (ClusterReason::NodeFailure, &["DUE TO NODE FAILURE", "Node failure on", "NODE_FAIL"]),
        // The kubelet's pkg/kubelet/eviction/helpers.go; read 2026-11-26.
        (ClusterReason::Evicted, &["The node was low on resource"]),
    ];
    let said = REASONS.into_iter().find(|(_, words)| words.iter().any(|word| text.has(word)));
    let cancelled = text.has(" CANCELLED AT ") && !text.has("DUE TO");
    let reason = said.map(|(reason, _)| reason).or(cancelled.then_some(ClusterReason::Cancelled));
    if let Some(what) = text.from("NVML: ").filter(|_| text.has("GPU is lost")) {
        return say(Writer::default(), Content::Fact(Fact::Cuda(printable(what.0, 300))));
    }
    let tasks = text.after(": task ").or_else(|| text.after(": tasks "));
    let mut ranks = tasks.map(Text::ranges).unwrap_or_default();
    // More tasks than a job has: each line is then of its first one.
    if tables.tasks > TASKS {
        ranks.truncate(1);
    }
    tables.tasks += ranks.len();
    if ranks.is_empty() {
        ranks.push(None);
    }
    let host = text.after("srun: error: ").map(Text::name).filter(|_| tasks.is_some());
    for task in ranks {
        let who = Writer { task, ..Writer::default() };
        // slurmctld: `_job_complete: JobId=7 WTERMSIG 9`.
        let of_job =
            || text.after("WTERMSIG ").and_then(Text::signed).filter(|signal| (1..65).contains(signal));
        let signal =
            || ENDED_BY.iter().find(|(words, _)| text.has(words)).map(|(_, signal)| *signal).or_else(of_job);
        let fact = if let Some(reason) = reason {
            Fact::Cluster(reason)
        } else if let Some(code) = text.after("Exited with exit code ").and_then(Text::signed) {
            Fact::exit(code, Order::Unknown)
        } else if let Some(signal) = signal() {
            Fact::Signal(signal)
        } else {
            return;
        };
        if let Some(host) = host {
            say(who, Content::On(host));
        }
        say(who, Content::Fact(fact));
    }
}

/// What srun prints of a task that a signal ended: the words of strsignal(3).
const ENDED_BY: &[(&str, i32)] = &[
    (": Segmentation fault", 11),
    (": Killed", 9),
    (": Aborted", 6),
    (": Bus error", 7),
    (": Illegal instruction", 4),
    (": Floating point exception", 8),
];

/// Reads the row of torchrun's table that names a signal; that of the exit code above it says more, where it is in the log.
pub(super) fn signal_row(text: Text<'_>, tables: &Tables, say: &mut impl FnMut(Writer, Content<'_>)) -> bool {
    let Some(rest) = text.after(" received by PID ") else { return false };
    let Some(signal) = text.after("Signal ").and_then(Text::signed) else { return false };
    if tables.torchrun.is_empty() {
        let who = Writer { pid: rest.number(), ..Writer::default() };
        say(who, Content::Fact(Fact::exit(-signal, Order::Unknown)));
    }
    true
}

/// Reads Ray's reports of its workers.
pub(super) fn ray(text: Text<'_>, say: &mut impl FnMut(Writer, Content<'_>)) -> bool {
    let fact = if text.has("A worker died or was killed") {
        // Ray lists what may have ended the worker, and knows nothing of it.
        let host = text.after("Worker IP address: ").map(|rest| printable(rest.name(), 255));
        Fact::WorkerLost { pid: text.after("Worker PID: ").and_then(Text::number), host }
    } else if [
        "killed due to memory pressure (OOM)",
        "NODE_OUT_OF_MEMORY",
        "exceeds the memory usage threshold of",
    ]
    .iter()
    .any(|words| text.has(words))
    {
        // Its monitor of the memory of a node.
        Fact::Exception(Exception::alone(
            b"raylet",
            b"workers were killed, since the node was running low on memory",
        ))
    } else {
        return false;
    };
    say(Writer::default(), Content::Fact(fact));
    true
}

/// Reads MPI's launchers.
pub(super) fn mpi(text: Text<'_>, tables: &mut Tables, say: &mut impl FnMut(Writer, Content<'_>)) {
    if let Some(rest) = text.after("MPI_ABORT was invoked on rank ").or_else(|| text.after("MPI_Abort(")) {
        tables.mpi_rank =
            if text.has("MPI_ABORT") { rest.small() } else { text.after("process ").and_then(Text::small) };
        tables.aborted = true;
        // MPICH: `application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0`.
        let code = text.after("MPI_Abort(MPI_COMM_WORLD, ").and_then(Text::signed);
        if let Some(code) = code.filter(|code| *code != 0 && tables.mpi_rank.is_some()) {
            tables.aborted = false;
            let who = Writer { rank: tables.mpi_rank, ..Writer::default() };
            return say(who, Content::Fact(Fact::exit(code, Order::First)));
        }
    }
    // Open MPI prints the code in the next line: `with errorcode 7.`
    if tables.aborted
        && let Some(code) = text.after("errorcode ").and_then(Text::signed)
    {
        tables.aborted = false;
        let who = Writer { rank: tables.mpi_rank, ..Writer::default() };
        say(who, Content::Fact(Fact::exit(code, Order::First)));
    } else if let Some(rest) = text.after("process rank ")
        && let Some(signal) = text.after("exited on signal ").and_then(Text::signed)
    {
        let who = Writer { rank: rest.small(), ..Writer::default() };
        if let Some(host) = text.after(" on node ") {
            say(who, Content::On(host.name()));
        }
        say(who, Content::Fact(Fact::Signal(signal)));
    } else if text.has("Process name: [[") {
        tables.mpi_rank = text.after("],").and_then(Text::small);
    } else if let Some(rest) = text.after("Exit code: ")
        && let Some(rank) = tables.mpi_rank.take()
        && let Some(code) = Text(rest.0.trim_ascii_start()).signed()
    {
        let who = Writer { rank: Some(rank), ..Writer::default() };
        say(who, Content::Fact(Fact::exit(code, Order::First)));
    } else if let Some(code) = text.after("EXIT CODE: ").and_then(Text::signed) {
        say(Writer::default(), Content::Fact(Fact::exit(code, Order::First)));
    } else if let Some(signal) = text.after("EXIT STRING: ").and_then(|rest| rest.after("(signal "))
        && let Some(signal) = signal.signed().filter(|signal| (1..65).contains(signal))
    {
        say(Writer::default(), Content::EndedBy(signal));
    } else if let Some(signal) = text.after("KILLED BY SIGNAL: ").and_then(Text::signed) {
        say(Writer::default(), Content::Fact(Fact::Signal(signal)));
    }
}

/// Reads what Open MPI prints before its own stack: `[node:pid] Signal: Aborted (6)`.
pub(super) fn signal_of_mpi(text: Text<'_>) -> Option<i32> {
    let before = text.before("Signal: ")?.trim_ascii();
    let begins = before.is_empty() || before.ends_with(b"]");
    text.after("Signal: ")?
        .after(" (")
        .and_then(Text::signed)
        .filter(|signal| begins && (1..65).contains(signal))
}
