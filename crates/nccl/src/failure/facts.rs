//! Extracts facts from one line.

use super::traceback::{Exception, exception, stream};
use super::{ClusterReason, Fact, Order, Work, Writer};
use crate::launcher;
use crate::map::printable;

/// The content of a line.
pub(super) enum Said<'a> {
    /// A fact of a failure.
    Fact(Fact),
    /// A process is a rank of a communicator.
    Joined { rank: u32, world: u32, host: &'a [u8] },
    /// A rank or task runs on a host.
    On(&'a [u8]),
    /// A process runs on a host, with its `NCCL_HOSTID` if it has one.
    Host(&'a str, Option<&'a str>),
    /// A local rank is a global rank.
    Is { local: u32, rank: u32 },
    /// The launcher of a node saw a worker fail.
    WorkerFailed,
    /// The launcher of a node ends.
    AgentEnded,
    /// The launcher starts its workers again.
    Restarts,
}

/// Reports of launchers that span several lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    /// Those of torchrun, by the prefix of their lines: several nodes may write into one log at the same time.
    torchrun: Vec<(Vec<u8>, Table)>,
    mpi_rank: Option<u32>,
    /// Who began a watchdog's line that goes on in the next one.
    watchdog: Option<Writer>,
}

/// A table of torchrun, as far as it was read.
#[derive(Clone, Debug, Default)]
struct Table {
    rank: Option<(u32, u32)>,
    host: Vec<u8>,
    /// Whether the next row is that of the first failure.
    root: bool,
}

/// The row of a table that names a worker's host.
const HOST_ROW: &str = "host      : ";

/// The operation of a watchdog's line that does not name it.
pub(super) const UNNAMED_WORK: &str = "a collective";

/// Most tables that are read at the same time.
const TABLES: usize = 1024;

impl Tables {
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

/// Returns who wrote a line. What `mpirun` writes before it is a task: whether tasks are ranks depends on the whole log.
pub(super) fn writer(line: &[u8]) -> Writer {
    behind(&launcher::prefix(line), line)
}

/// Returns who wrote a line with a prefix.
fn behind(prefix: &launcher::Prefix<'_>, line: &[u8]) -> Writer {
    let (rank, tag) = launcher::torch_rank_and_tag(line, prefix);
    Writer {
        rank,
        local: prefix.local.map(|(_, local)| local),
        pid: prefix.process.map(|process| process.pid).filter(|pid| *pid != 0),
        task: prefix.task.or(tag),
    }
}

/// Reads one line.
pub(super) fn of_line(line: &[u8], tables: &mut Tables, mut say: impl FnMut(Writer, Said<'_>)) {
    let text = Text(line);
    if text.has("NCCL ") && nccl(line, &mut say) {
        return;
    }
    // subprocess: `Command '[…, '--local_rank=1']' died with <Signals.SIGKILL: 9>.`
    let signal =
        text.after("died with <Signals.SIG").and_then(|rest| rest.after(": ")).and_then(Text::signed);
    if let Some(signal) = signal {
        return say(writer(line), Said::Fact(Fact::Signal(signal)));
    }
    if let Some(code) = text.after(" exits with return code = ").and_then(Text::signed) {
        // DeepSpeed's launcher prints the command of its last process, not of the one that failed.
        if code != 0 {
            say(Writer::default(), Said::Fact(Fact::Exit { code, order: Order::Unknown }));
        }
        return;
    }
    if ["local_rank", "exitcode", "Root Cause (", "worker group", HOST_ROW]
        .iter()
        .any(|words| text.has(words))
    {
        return torchrun(text, tables, &mut say);
    }
    // A row of torchrun's table; the row of the exit code above it says more, where it is in the log.
    if let Some(rest) = text.after(" received by PID ")
        && let Some(signal) = text.after("Signal ").and_then(Text::signed)
    {
        if tables.torchrun.is_empty() {
            let who = Writer { pid: rest.number(), ..Writer::default() };
            say(who, Said::Fact(Fact::Exit { code: -signal, order: Order::Unknown }));
        }
        return;
    }
    if text.has("WorkNCCL(SeqNum") && !text.has("atchdog") && !text.has("async exception") {
        // A terminal cut the line of a watchdog in two.
        if let (Some(who), Some(work)) = (tables.watchdog.take(), text.after("WorkNCCL(").and_then(work)) {
            say(who, Said::Fact(Fact::TimedOut { group: None, work }));
        }
        return;
    }
    if text.has("collective operation timeout") && !text.has("WorkNCCL(") {
        let mut who = writer(line);
        who.rank = who.rank.or_else(|| text.after("[Rank ").and_then(Text::small));
        tables.watchdog = Some(who);
        return;
    }
    if text.has("atchdog")
        || text.has("Timeout at NCCL work")
        || text.has("enqueued")
        || text.has("async exception")
        || text.has("ncclRemoteError")
        || text.has("due to a collective timeout from ")
    {
        return watchdog(text, &mut say);
    }
    if text.has("srun: error") || text.has("slurmstepd") || text.has("OOMKilled") || text.has("oom_kill") {
        return slurm(text, &mut say);
    }
    if text.has("A worker died or was killed") {
        // Ray lists what may have ended the worker, and knows nothing of it.
        let host = text.after("Worker IP address: ").map(|rest| printable(rest.name(), 255));
        let pid = text.after("Worker PID: ").and_then(Text::number);
        return say(Writer::default(), Said::Fact(Fact::WorkerLost { pid, host }));
    }
    // Ray's monitor of the memory of a node.
    if text.has("killed due to memory pressure (OOM)") || text.has("NODE_OUT_OF_MEMORY") {
        let exception = alone(b"raylet", b"workers were killed, since the node was running low on memory");
        return say(Writer::default(), Said::Fact(Fact::Exception(exception)));
    }
    // The dynamic loader: `./train: error while loading shared libraries: libmpi.so.40: cannot open …`.
    if let Some(message) = text.after("error while loading shared libraries: ") {
        let exception = alone(b"error while loading shared libraries", message.0);
        return say(writer(line), Said::Fact(Fact::Exception(exception)));
    }
    if text.has("TCPStore server has shut down too early") {
        return say(writer(line), Said::Fact(Fact::StoreLost));
    }
    mpi(text, &mut tables.mpi_rank, &mut say);
    let who = || writer(line);
    if text.has("terminate called") {
        say(who(), Said::Fact(Fact::Died));
    } else if text.has("NVRM: Xid") || text.has("NVRM: fallen off the bus") {
        // The driver that finds a lost GPU when it starts prints no number. 79: docs.nvidia.com/deploy/xid-errors, read 2026-11-23.
        let cause = text.after("caused by previous Xid ").and_then(Text::small);
        let number = || if text.has("Xid") { text.after("): ").and_then(Text::small) } else { Some(79) };
        let number = cause.or_else(number);
        // The driver itself says which errors of NVLink end nothing.
        if !text.has("Nonfatal") {
            say(Writer::default(), Said::Fact(Fact::Xid(number.unwrap_or(0))));
        }
    } else if text.has("Segmentation fault") && !text.is_quoted("Segmentation fault") {
        say(who(), Said::Fact(Fact::Signal(11)));
    } else if text.has("Bus error") && !text.is_quoted("Bus error") {
        say(who(), Said::Fact(Fact::Signal(7)));
    } else if text.has("CUDA error") && !text.has("NVLS") && !text.begins_like_source() {
        let what = text.from("CUDA error").unwrap_or(text);
        say(who(), Said::Fact(Fact::Cuda(printable(what.0, 300))));
    } else if text.has("Killed process") && (text.has("ut of memory") || text.has("oom")) {
        // The kernel: `Memory cgroup out of memory: Killed process 140339 (python3)`.
        let pid = text.after("Killed process ").and_then(Text::number);
        say(Writer { pid, ..Writer::default() }, Said::Fact(Fact::Cluster(ClusterReason::OutOfMemory)));
    } else if text.has("oom-kill:") {
        say(Writer::default(), Said::Fact(Fact::Cluster(ClusterReason::OutOfMemory)));
    } else if let Some(before) = text.before("]: segfault at ") {
        let pid = memchr::memrchr(b'[', before).and_then(|at| Text(before.get(at + 1..)?).number());
        say(Writer { pid, ..Writer::default() }, Said::Fact(Fact::Signal(11)));
    } else if let Some(signal) = signal_of_mpi(text) {
        say(who(), Said::Fact(Fact::Signal(signal)));
    } else if let Some(exception) = exception_alone(line) {
        say(who(), Said::Fact(Fact::Exception(exception)));
    } else if let Some(fatal) = error(line) {
        let own = body(line);
        // What a framework prints before NCCL's result says nothing of it.
        let nccl = ["NCCL error: ", "NCCL operation "].iter().find_map(|words| Text(own).from(words));
        let nccl =
            nccl.filter(|_| fatal).or_else(|| Text(own).from("Raylet is terminated")).map_or(own, |rest| {
                let ends = [&b", Traceback ("[..], b" Possible reasons include"];
                let end = ends.iter().filter_map(|end| memchr::memmem::find(rest.0, end)).min();
                let end = end.unwrap_or(rest.0.len());
                rest.0.get(..end).unwrap_or_default()
            });
        say(who(), Said::Fact(Fact::Error { text: printable(nccl, 300), fatal }));
    }
}

/// Returns a line without the prefixes of launchers and of PyTorch.
fn body(line: &[u8]) -> &[u8] {
    let rest = line.get(launcher::prefix(line).len..).unwrap_or_default();
    // Also behind a time.
    let near = rest.get(..rest.len().min(64)).unwrap_or_default();
    let tag = memchr::memmem::find(near, b"[rank");
    let end = tag.and_then(|at| Some(at + memchr::memchr(b']', near.get(at..)?)?));
    let Some(end) = end else { return rest };
    let rest = rest.get(end + 1..).unwrap_or_default();
    let rest = rest.strip_prefix(b":").unwrap_or(rest);
    rest.strip_prefix(b" ").unwrap_or(rest)
}

/// Reads what Open MPI prints before its own stack: `[node:pid] Signal: Aborted (6)`.
fn signal_of_mpi(text: Text<'_>) -> Option<i32> {
    let before = text.before("Signal: ")?.trim_ascii();
    let begins = before.is_empty() || before.ends_with(b"]");
    text.after("Signal: ")?
        .after(" (")
        .and_then(Text::signed)
        .filter(|signal| begins && (1..65).contains(signal))
}

/// Reads an exception whose traceback is not in the log, at the start of a line or behind a logger's prefix of an error.
fn exception_alone(line: &[u8]) -> Option<Exception> {
    const OTHERS: &[&str] = &[
        "Warning",
        "ChildFailedError",
        "SignalException",
        "SystemExit",
        "StopIteration",
        "CalledProcessError",
    ];
    let own = body(line);
    let is_error = |text: &[u8]| ["ERROR", "CRITICAL", "FATAL"].iter().any(|level| Text(text).has(level));
    let logged = || {
        let near = own.get(..own.len().min(240)).unwrap_or_default();
        memchr::memchr2_iter(b']', b'|', near).find_map(|at| {
            let (before, rest) = own.split_at(at + 1);
            exception(rest.strip_prefix(b" ")?, false).filter(|_| is_error(before))
        })
    };
    // torchelastic's error file, which it also logs: `"message": "RendezvousTimeoutError: …"`.
    let in_json = || {
        let quoted = own.trim_ascii_start().strip_prefix(b"\"message\": \"")?;
        let end = memchr::memrchr(b'"', quoted).unwrap_or(quoted.len());
        exception(quoted.get(..end)?, false)
    };
    let (name, message) = exception(own, false).or_else(logged).or_else(in_json)?;
    // NCCL's own names of its results are no exceptions: `ncclSystemError: …` stands below one.
    if OTHERS.iter().any(|other| name.ends_with(other.as_bytes())) || name.starts_with(b"nccl") {
        return None;
    }
    Some(alone(&name, message))
}

/// Returns an exception whose traceback is not in the log.
fn alone(name: &[u8], message: &[u8]) -> Exception {
    Exception {
        name: printable(name, 200),
        message: printable(message, 1000),
        frame: None,
        innermost: None,
        cause: None,
        direct: false,
        alone: true,
        last_error: None,
    }
}

/// Returns whether a line reports an error, and then whether the program ends with it. Words in the source lines of a
/// traceback, in the names of variables and in counts (`0 ERRORS`) are none.
fn error(line: &[u8]) -> Option<bool> {
    let (own, whole) = (body(line), Text(line));
    let is_event = whole.has(" BackOff ");
    if !is_event && own.first().is_none_or(|first| matches!(first, b' ' | b'\t' | b'#' | b'+'))
        || own.starts_with(b"raise ")
        || whole.has("  File \"")
        || whole.has("    raise ")
        // What NCCL's own lines say is for its rules.
        || launcher::prefix(line).process.is_some()
    {
        return None;
    }
    // nccl-tests' common.h, NCCL's examples, Gloo's `GLOO_ENFORCE`, libfabric's efa provider; read 2026-11-25.
    let ends = [
        "Test NCCL failure",
        "Test CUDA failure",
        "NCCL error",
        "NCCL failure",
        "NCCL operation ncclCommInitRank",
        "now abort",
        "[enforce fail at ",
    ];
    if ends.iter().any(|words| whole.has(words) && !whole.is_quoted(words)) {
        return Some(true);
    }
    let named = |words: &str| {
        let Some(before) = whole.before(words) else { return false };
        let behind = line.get(before.len() + words.len()..).unwrap_or_default();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let begins = words
            .starts_with(|first: char| first.is_ascii_lowercase() || first == 'E' && words.len() > 5)
            || !before.last().is_some_and(is_name);
        begins && (words.ends_with(' ') || !behind.first().is_some_and(is_name)) && !whole.is_quoted(words)
    };
    // Ray's raylet holds the workers of its node.
    if whole.has("Raylet is terminated") {
        return Some(true);
    }
    // The kernel's drivers of NICs, NVSHMEM, shells, and Kubernetes' events.
    let told = [
        &["infiniband ", ": Failed to "][..],
        &["nvshmem", "non-zero status: "],
        &["nvshmem", ": NULL value "],
        &[": line ", ": No such file or directory"],
        &[": line ", ": command not found"],
        &["Warning ", " BackOff ", "Back-off "],
    ];
    if told.iter().any(|words| words.iter().all(|word| whole.has(word))) {
        return Some(false);
    }
    // libfabric's own warnings, which tell errors of completions.
    let libfabric = whole.has("<warn>") && (whole.has("err:") || whole.has("error"));
    (libfabric || ["ERROR", "FATAL", "Error: ", "error: "].iter().any(|words| named(words))).then_some(false)
}

/// Reads NCCL's own lines. Returns whether the line needs no further search.
fn nccl(line: &[u8], say: &mut impl FnMut(Writer, Said<'_>)) -> bool {
    let prefix = launcher::prefix(line);
    // The same reader finds a writer after a time, a pod's name or another writer's torn line.
    let who = behind(&prefix, line);
    let text = Text(line);
    if let Some(what) = text.from("Cuda failure") {
        // NVLink SHARP has memory of its own, and rules of its own.
        if !text.has("NVLS") && !text.has("nvls.cc") {
            say(who, Said::Fact(Fact::Cuda(printable(what.0, 300))));
        }
        return true;
    }
    let Some(process) = prefix.process else { return false };
    if let Some(rest) = text.after("NCCL_HOSTID set by environment to ") {
        let id = std::str::from_utf8(rest.0).ok().and_then(|id| id.split_whitespace().next());
        say(who, Said::Host(process.host, id.map(|id| id.trim_end_matches('.'))));
    } else if let Some(rest) = text.after(" rank ") {
        let rank = rest.small();
        let world = rest.after("ranks ").and_then(Text::small);
        if let (Some(rank), Some(world)) = (rank, world)
            && rank < world
        {
            say(who, Said::Host(process.host, None));
            say(who, Said::Joined { rank, world, host: process.host.as_bytes() });
            if text.has("Destroy COMPLETE") {
                say(who, Said::Fact(Fact::Finished));
            }
        }
    } else {
        return false;
    }
    true
}

/// Reads torchrun's agent: `failed (exitcode: -9) local_rank: 1 (pid: 835) of binary`, and its table of
/// failures.
fn torchrun(text: Text<'_>, tables: &mut Tables, say: &mut impl FnMut(Writer, Said<'_>)) {
    if text.has("worker group") {
        if text.has("estart") {
            say(Writer::default(), Said::Restarts);
        }
        return;
    }
    if let Some(before) = text.before("Root Cause (") {
        *tables.of(before) = Table { root: true, ..Table::default() };
        return;
    }
    let task = || writer(text.0).task;
    if let Some(rest) = text.after("failed (exitcode: ") {
        let code = rest.signed();
        let local = rest.after("local_rank: ").and_then(Text::small);
        let pid = rest.after("(pid: ").and_then(Text::number);
        if let (Some(code), Some(local)) = (code, local) {
            say(Writer::default(), Said::WorkerFailed);
            let who = Writer { local: Some(local), pid, task: task(), rank: None };
            say(who, Said::Fact(Fact::Exit { code, order: Order::First }));
        }
        return;
    }
    // torchelastic before 1.10: `Child process 17057 (local_rank 0) FAILED (exitcode 1)`.
    if let Some(rest) = text.after("Child process ")
        && let Some(code) = text.after("FAILED (exitcode ").and_then(Text::signed)
    {
        let local = rest.after("(local_rank ").and_then(Text::small);
        let who = Writer { local, pid: rest.number(), task: task(), rank: None };
        say(who, Said::Fact(Fact::Exit { code, order: Order::Unknown }));
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
            say(Writer { rank, ..Writer::default() }, Said::On(&host));
        }
    } else if let Some(rest) = trimmed.strip("host ") {
        table.host = rest.after(": ").map(|rest| rest.name().to_vec()).unwrap_or_default();
    } else if let Some(rest) = trimmed.strip("exitcode ")
        && let Some((rank, local)) = table.rank.take()
    {
        say(Writer::default(), Said::AgentEnded);
        say(Writer::default(), Said::Is { local, rank });
        if let Some(code) = rest.after(": ").and_then(Text::signed) {
            let pid = rest.after("(pid: ").and_then(Text::number);
            let who = Writer { rank: Some(rank), local: Some(local), pid, task: task() };
            let order = if std::mem::take(&mut table.root) { Order::First } else { Order::Later };
            say(who, Said::Fact(Fact::Exit { code, order }));
        }
    }
}

/// Reads PyTorch's watchdogs.
fn watchdog(text: Text<'_>, say: &mut impl FnMut(Writer, Said<'_>)) {
    let mut who = writer(text.0);
    let group = group(text);
    if who.rank.is_none() && group.as_deref().is_none_or(|group| group.contains("default_pg")) {
        who.rank = text.after("Rank ").and_then(Text::small);
    }
    if text.has("terminated with exception") {
        say(who, Said::Fact(Fact::Died));
    }
    if let Some(what) = text.from("CUDA error") {
        say(who, Said::Fact(Fact::Cuda(printable(what.0, 300))));
    }
    if text.has("remote process exited") || text.has("ncclRemoteError") {
        say(who, Said::Fact(Fact::RemoteExit));
    } else if text.has("Watchdog caught collective operation timeout")
        && let Some(work) = text.after("WorkNCCL(").and_then(work)
    {
        say(who, Said::Fact(Fact::TimedOut { group: group.clone(), work }));
    }
    // Without the line of the operation, its number is known, and the process group.
    let waits = text.after("Timeout at NCCL work: ").or_else(|| text.after("detected by watchdog at work: "));
    // This one is printed after a timeout and after an error of NCCL.
    if let Some(seq) = text.after("detected by watchdog at work sequence id: ").and_then(Text::long) {
        say(who, Said::Fact(Fact::WatchdogFailed { seq }));
    }
    if let Some(by) = text.after("due to a collective timeout from ") {
        let by = by.after("rank ").and_then(|rest| rest.0.first()?.is_ascii_digit().then_some(rest)?.small());
        say(who, Said::Fact(Fact::ToldOfTimeout { by }));
    }
    if let Some(seq) = waits.and_then(Text::long) {
        let work = Work { seq, op: UNNAMED_WORK.to_owned(), size: None };
        say(who, Said::Fact(Fact::TimedOut { group: group.clone(), work }));
    }
    let enqueued = text.after("ast enqueued work: ").or_else(|| text.after("ast enqueued NCCL work: "));
    if let Some(rest) = enqueued {
        let completed =
            rest.after("ast completed work: ").or_else(|| rest.after("ast completed NCCL work: "));
        if let (Some(enqueued), Some(completed)) = (rest.long(), completed.and_then(Text::long)) {
            say(who, Said::Fact(Fact::Progress { group, enqueued, completed }));
        }
    }
}

/// Converts `PG GUID 0(default_pg)` to `0(default_pg)`.
fn group(text: Text<'_>) -> Option<String> {
    let rest = text.after("PG GUID ")?;
    let end = memchr::memmem::find(rest.0, b" Rank ")?;
    Some(printable(rest.0.get(..end)?, 100))
}

/// Reads `SeqNum=11, OpType=ALLREDUCE, NumelIn=65792, …`.
fn work(text: Text<'_>) -> Option<Work> {
    let seq = text.after("SeqNum=").or_else(|| text.after("SequenceNumber="))?.long()?;
    let op = text.after("OpType=")?;
    // A line that is cut in the name proves no operation.
    let whole = op.0.get(op.name().len()).is_some_and(|next| matches!(next, b',' | b')'));
    let op = if whole { op.word() } else { UNNAMED_WORK.to_owned() };
    let size = text
        .after("NumelIn=")
        .map(|rest| ("NumelIn", rest.word()))
        .or_else(|| text.after("TensorShape=").map(|rest| ("TensorShape", rest.bracketed())));
    Some(Work { seq, op, size })
}

/// Reads what ranks run from `Detected mismatch between collectives on ranks. Rank 1 is running collective:
/// …`.
pub fn mismatch(message: &str) -> Vec<(u32, Work)> {
    let mut found = Vec::new();
    for piece in message.split("Rank ").skip(1).take(64) {
        let piece = Text(piece.as_bytes());
        if let (Some(rank), Some(work)) =
            (piece.small(), piece.after("CollectiveFingerPrint(").and_then(work))
        {
            found.push((rank, work));
        }
    }
    found
}

/// Reads the timeout that an exception quotes: `… Original reason for failure was: [Rank 3] Watchdog caught …`.
pub(super) fn quoted_timeout(message: &str) -> Option<(Option<u32>, Work)> {
    let text = Text(message.as_bytes());
    let rest = text.after("Watchdog caught collective operation timeout: WorkNCCL(")?;
    Some((text.after("[Rank ").and_then(Text::small), work(rest)?))
}

/// Reads ranks from `Rank 3 failed to pass monitoredBarrier` and `Ranks 2, 3 failed to pass
/// monitoredBarrier`.
pub fn absent(message: &str) -> Vec<u32> {
    let Some((before, _)) = message.split_once(" failed to pass monitoredBarrier") else { return Vec::new() };
    let list = before.rsplit_once("Rank").map_or("", |(_, list)| list.trim_start_matches('s'));
    list.split(',').take(4096).filter_map(|rank| rank.trim().parse().ok()).collect()
}

/// Reads messages of Slurm and of the kernel.
fn slurm(text: Text<'_>, say: &mut impl FnMut(Writer, Said<'_>)) {
    const REASONS: [(ClusterReason, &[&str]); 4] = [
        (
            ClusterReason::OutOfMemory,
            &["oom_kill", "oom-kill event", "OOM Killed", "OOMKilled", "Out Of Memory"],
        ),
        (ClusterReason::TimeLimit, &["DUE TO TIME LIMIT"]),
        (ClusterReason::Preempted, &["DUE TO PREEMPTION"]),
        (ClusterReason::NodeFailure, &["DUE TO NODE FAILURE", "Node failure on", "NODE_FAIL"]),
    ];
    let said = REASONS.into_iter().find(|(_, words)| words.iter().any(|word| text.has(word)));
    let cancelled = text.has(" CANCELLED AT ") && !text.has("DUE TO");
    let reason = said.map(|(reason, _)| reason).or(cancelled.then_some(ClusterReason::Cancelled));
    if let Some(what) = text.from("NVML: ").filter(|_| text.has("GPU is lost")) {
        return say(Writer::default(), Said::Fact(Fact::Cuda(printable(what.0, 300))));
    }
    let tasks = text.after(": task ").or_else(|| text.after(": tasks "));
    let mut ranks = tasks.map(Text::ranges).unwrap_or_default();
    if ranks.is_empty() {
        ranks.push(None);
    }
    let host = text.after("srun: error: ").map(Text::name).filter(|_| tasks.is_some());
    for task in ranks {
        let who = Writer { task, ..Writer::default() };
        if let Some(host) = host {
            say(who, Said::On(host));
        }
        if let Some(reason) = reason {
            say(who, Said::Fact(Fact::Cluster(reason)));
        } else if let Some(code) = text.after("Exited with exit code ").and_then(Text::signed) {
            say(who, Said::Fact(Fact::Exit { code, order: Order::Unknown }));
        } else if text.has(": Segmentation fault") {
            say(who, Said::Fact(Fact::Signal(11)));
        } else if text.has(": Killed") {
            say(who, Said::Fact(Fact::Signal(9)));
        } else if text.has(": Aborted") {
            say(who, Said::Fact(Fact::Signal(6)));
        }
    }
}

/// Reads MPI's launchers.
fn mpi(text: Text<'_>, mpi_rank: &mut Option<u32>, say: &mut impl FnMut(Writer, Said<'_>)) {
    if let Some(rest) = text.after("MPI_ABORT was invoked on rank ").or_else(|| text.after("MPI_Abort(")) {
        *mpi_rank =
            if text.has("MPI_ABORT") { rest.small() } else { text.after("process ").and_then(Text::small) };
        let code = text.after("errorcode ").and_then(Text::signed).unwrap_or(1);
        let who = Writer { rank: *mpi_rank, ..Writer::default() };
        say(who, Said::Fact(Fact::Exit { code, order: Order::First }));
    } else if let Some(rest) = text.after("process rank ")
        && let Some(signal) = text.after("exited on signal ").and_then(Text::signed)
    {
        let who = Writer { rank: rest.small(), ..Writer::default() };
        if let Some(host) = text.after(" on node ") {
            say(who, Said::On(host.name()));
        }
        say(who, Said::Fact(Fact::Signal(signal)));
    } else if text.has("Process name: [[") {
        *mpi_rank = text.after("],").and_then(Text::small);
    } else if let Some(rest) = text.after("Exit code: ")
        && let Some(rank) = mpi_rank.take()
        && let Some(code) = Text(rest.0.trim_ascii_start()).signed()
    {
        let who = Writer { rank: Some(rank), ..Writer::default() };
        say(who, Said::Fact(Fact::Exit { code, order: Order::First }));
    } else if let Some(code) = text.after("EXIT CODE: ").and_then(Text::signed) {
        say(Writer::default(), Said::Fact(Fact::Exit { code, order: Order::First }));
    } else if let Some(signal) = text.after("KILLED BY SIGNAL: ").and_then(Text::signed) {
        say(Writer::default(), Said::Fact(Fact::Signal(signal)));
    }
}

/// Bytes that are searched.
#[derive(Clone, Copy)]
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn has(self, needle: &str) -> bool {
        memchr::memmem::find(self.0, needle.as_bytes()).is_some()
    }

    fn from(self, needle: &str) -> Option<Self> {
        memchr::memmem::find(self.0, needle.as_bytes()).and_then(|at| self.0.get(at..)).map(Text)
    }

    fn after(self, needle: &str) -> Option<Self> {
        self.from(needle).and_then(|rest| rest.0.get(needle.len()..)).map(Text)
    }

    fn strip(self, word: &str) -> Option<Self> {
        self.0.strip_prefix(word.as_bytes()).map(Text)
    }

    fn number(self) -> Option<u64> {
        std::str::from_utf8(self.leading(19, |byte| byte.is_ascii_digit())).ok()?.parse().ok()
    }

    fn small(self) -> Option<u32> {
        self.number().and_then(|number| u32::try_from(number).ok())
    }

    fn long(self) -> Option<i64> {
        let (sign, digits) = self.strip("-").map_or((1, self), |rest| (-1, rest));
        Some(sign * i64::try_from(digits.number()?).ok()?)
    }

    fn signed(self) -> Option<i32> {
        self.long().and_then(|number| i32::try_from(number).ok())
    }

    /// Reads up to a comma, a blank or a bracket.
    fn word(self) -> String {
        let name = self.name();
        printable(name.get(..60).unwrap_or(name), 60)
    }

    /// Reads the name of a host.
    fn name(self) -> &'a [u8] {
        self.leading(255, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    }

    /// Returns the first bytes of a kind, at most so many.
    fn leading(self, most: usize, is_of_kind: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.0.iter().take(most).take_while(|byte| is_of_kind(**byte)).count();
        self.0.get(..length).unwrap_or_default()
    }

    /// Reads `[7, 3]`.
    fn bracketed(self) -> String {
        let end = memchr::memchr(b']', self.0.get(..self.0.len().min(120)).unwrap_or_default())
            .map_or(0, |at| at + 1);
        printable(self.0.get(..end).unwrap_or_default(), 120)
    }

    /// Reads `1-3,7` as single numbers, a bounded number of them.
    fn ranges(self) -> Vec<Option<u32>> {
        const MOST: usize = 4096;
        let list = self.leading(2000, |byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-'));
        let list = std::str::from_utf8(list).unwrap_or_default();
        let mut found = Vec::new();
        for part in list.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
                found.extend((from..=to).take(MOST.saturating_sub(found.len())).map(Some));
            }
        }
        found
    }

    /// Returns a launcher's prefix of a table row, and the row.
    fn columns(self) -> (&'a [u8], &'a [u8]) {
        let at = ["rank ", "exitcode ", "host "].iter().find_map(|word| {
            let at = memchr::memmem::find(self.0, word.as_bytes())?;
            self.0.get(at..)?.get(word.len()..)?.trim_ascii_start().starts_with(b": ").then_some(at)
        });
        at.map(|at| self.0.split_at(at)).unwrap_or_default()
    }

    fn before(self, needle: &str) -> Option<&'a [u8]> {
        memchr::memmem::find(self.0, needle.as_bytes()).and_then(|at| self.0.get(..at))
    }

    /// Returns whether words are in quotes, or in a comment of a script that the log shows.
    fn is_quoted(self, words: &str) -> bool {
        let before = self.before(words).unwrap_or_default();
        let comment = before.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'+')) == Some(&b'#');
        comment || matches!(before.last(), Some(b'"' | b'\'' | b'`'))
    }

    /// Returns whether the line is source code in a traceback, or a log's quote of it.
    fn begins_like_source(self) -> bool {
        // C++ indents the message of an exception that nothing caught: `  what():  CUDA error: …`.
        self.0.first().is_none_or(|first| matches!(first, b' ' | b'\t')) && !self.has("what():")
            || self.has("raise ")
            || self.has("\"CUDA error")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(lines: &[&str]) -> Vec<(Writer, Fact)> {
        let (mut table, mut found) = (Tables::default(), Vec::new());
        for line in lines {
            of_line(line.as_bytes(), &mut table, |who, said| {
                if let Said::Fact(fact) = said {
                    found.push((who, fact));
                }
            });
        }
        found
    }

    #[test]
    fn launchers_of_slurm_and_mpi_name_their_tasks_and_ranks() {
        let found = facts(&[
            "srun: error: n1: tasks 2-3: Exited with exit code 7",
            "srun: error: n2: task 5: Out Of Memory",
            "mpirun noticed that process rank 3 with PID 77 on node n2 exited on signal 9 (Killed).",
            "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD",
        ]);
        let tasks: Vec<_> = found.iter().map(|(who, _)| who.task.or(who.rank)).collect();
        assert_eq!(tasks, [Some(2), Some(3), Some(5), Some(3), Some(2)]);
        assert_eq!(found[2].1, Fact::Cluster(ClusterReason::OutOfMemory));
        assert_eq!(found[3].1, Fact::Signal(9));
    }

    #[test]
    fn launchers_name_the_hosts_of_their_ranks() {
        let lines = [
            "srun: error: n1: tasks 2-3: Exited with exit code 7",
            "mpirun noticed that process rank 4 with PID 77 on node n2.cluster exited on signal 9 (Killed).",
            "0:   host      : n3",
            "0:   rank      : 5 (local_rank: 1)",
            "0:   host      : n4",
            "1:   host      : n9",
            "0:   rank      : 6 (local_rank: 2)",
        ];
        let (mut tables, mut found) = (Tables::default(), Vec::new());
        for line in lines {
            of_line(line.as_bytes(), &mut tables, |who, said| {
                if let Said::On(host) = said {
                    found.push((who.rank.or(who.task), String::from_utf8_lossy(host).into_owned()));
                }
            });
        }
        let expected = [(2, "n1"), (3, "n1"), (4, "n2.cluster"), (5, "n3"), (6, "n4")];
        assert_eq!(found, expected.map(|(rank, host)| (Some(rank), host.to_owned())));
    }

    #[test]
    fn errors_of_other_programs_are_quoted() {
        let fatal = |line: &str| match facts(&[line]).as_slice() {
            [(_, Fact::Error { text, fatal })] => Some((text.clone(), *fatal)),
            other => panic!("{line}: {other:?}"),
        };
        for line in [
            "[1038619.687627] infiniband efa_0: Failed to process command REG_MR (opcode 7) comp_status 1 err -12",
            "/src/nvshmem/src/modules/transport/ibgda/ibgda.cpp:2966: non-zero status: 7 create DCT share err.",
            "/bin/bash: line 1: /usr/sbin/sshd: No such file or directory",
            "  Warning  BackOff         2m49s                  kubelet            Back-off restarting failed container init-pytorch in pod x-worker-0",
        ] {
            assert_eq!(fatal(line), Some((line.trim().to_owned(), false)), "{line}");
        }
        let raylet = "2026-10-17 14:23:59,720 WARNING worker.py:1839 -- Raylet is terminated: ip=10.0.0.7, id=c2. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user or system OOM killer";
        let said = "Raylet is terminated: ip=10.0.0.7, id=c2. Termination is unexpected.";
        assert_eq!(fatal(raylet), Some((said.to_owned(), true)));
        let row = facts(&["  traceback : Signal 7 (SIGBUS) received by PID 986"]);
        assert_eq!(row[0].1, Fact::Exit { code: -7, order: Order::Unknown });
        let full = facts(&[
            "(raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons",
        ]);
        assert!(matches!(&full[0].1, Fact::Exception(one) if one.name == "raylet"), "{full:?}");
        let loader = facts(&[
            "./a: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory",
        ]);
        assert!(
            matches!(&loader[0].1, Fact::Exception(one) if one.message.starts_with("libmpi.so.40")),
            "{loader:?}"
        );
    }

    #[test]
    fn a_range_of_all_tasks_is_bounded() {
        assert_eq!(facts(&["srun: error: n1: tasks 0-4294967295: Killed"]).len(), 4096);
    }

    #[test]
    fn a_mismatch_names_what_each_rank_runs() {
        let found = mismatch(
            "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=11, \
             OpType=ALLREDUCE, TensorShape=[7], x), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=11, \
             OpType=ALLREDUCE, TensorShape=[65792], x).",
        );
        let sizes: Vec<_> = found.iter().map(|(rank, work)| (*rank, work.size.clone())).collect();
        assert_eq!(
            sizes,
            [(1, Some(("TensorShape", "[7]".to_owned()))), (0, Some(("TensorShape", "[65792]".to_owned())))]
        );
        assert_eq!(absent("[Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 5000 ms"), [2, 3]);
    }
}
