//! Reads the lines of one source: which facts they hold, and which ranks wrote them.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use super::absent::{self, Gathering, List};
use super::content::Content;
use super::traceback::{self, Taken, Tracebacks, is_library, stream};
use super::{Fact, Order, Report, SourceRanks, Writer, facts, launchers, mentions, watchdog};
use crate::launcher::{self, prefix};
use crate::lines::{Candidates, Piece};
use crate::map::{SourceIndex, printable};

/// Most facts kept of one rank and kind in one source; the first ones count, since later ones are consequences.
const SAME: u32 = 8;
/// Most writers of one source whose facts are counted.
const WRITERS: usize = 262_144;
/// Most facts kept in all.
const FACTS: usize = 400_000;
/// Most ranks, processes and local ranks kept of one source.
const RANKS: usize = 65_536;
/// Characters kept of a line.
const TEXT: usize = 400;

/// The state of one source while it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub tracebacks: Tracebacks,
    tables: launchers::Tables,
    kept: HashMap<(Writer, Discriminant<Fact>), u32>,
    pub ranks: SourceRanks,
    /// How many process ids each rank has.
    pids_of_rank: HashMap<u32, u32>,
    /// Whether a failure was seen since the last attempt began.
    failed: bool,
    /// Line of the launcher's report of a failed worker in this attempt.
    worker_failed: Option<u64>,
    /// Rank of this source, where the backend supplied it.
    pub told_rank: Option<u32>,
    /// Where the last exception of each writer is kept.
    last_exception: HashMap<Writer, usize>,
    /// The header of a `Last error:` block whose text is in the next lines.
    last_error: Option<LastError>,
    /// The stack of a failed collective whose frames are in the next lines.
    stack: Option<OpenStack>,
    /// The report of a node without memory whose address is in the next lines, and its line.
    without_memory: Option<(usize, u64)>,
    /// The exception about a collective of HCCL whose reason is in the next lines, and its line.
    of_hccl: Option<(usize, u64)>,
    /// The exception whose message begins in the next line, and the line up to which it was read.
    without_message: Option<(usize, u64)>,
    /// The list of absent ranks whose lines are the next ones.
    absent: Option<(List, Writer)>,
    /// The processes that began, until their group forms.
    pub gathering: Gathering,
    /// The last line of a watchdog that gave up: the stack of the operation may follow.
    gave_up: Option<u64>,
    /// The message between two lines of dashes that is read.
    boxed: Option<Boxed>,
    /// The error of MPICH whose stack is in the next lines.
    error_stack: Option<ErrorStack>,
}

/// An error of MPICH whose stack follows: the last line of it says why.
#[derive(Clone, Debug)]
struct ErrorStack {
    /// Where the error is kept.
    at: usize,
    /// What its first line says.
    head: String,
    line: u64,
}

/// Most lines of a stack of MPICH.
const ERROR_STACK: u64 = 16;

/// A message of Open MPI between two lines of dashes, which says over several lines what failed.
#[derive(Clone, Debug, Default)]
struct Boxed {
    /// Its lines so far, from the last paragraph on.
    text: String,
    /// Whether the next line begins another paragraph.
    ended: bool,
    /// The mention in it, which its further lines belong to.
    kept: Option<usize>,
    host: Option<String>,
    lines: u32,
}

/// Most lines of a message between two lines of dashes.
const BOX: u32 = 24;

impl Boxed {
    /// Takes a line.
    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        let text = printable(line.trim_ascii(), TEXT);
        let row = text.split_once(": ").map(|(key, value)| (key, value.trim()));
        let row = row.filter(|_| line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')));
        if text.is_empty() {
            self.ended = true;
            return;
        }
        if std::mem::take(&mut self.ended) && row.is_none() {
            self.text.clear();
            self.kept = None;
        }
        if let Some((_, host)) = row.filter(|(key, _)| *key == "Local host") {
            self.host = Some(host.to_owned());
        }
        if self.text.len() < TEXT {
            let between = match row {
                _ if self.text.is_empty() => "",
                Some(_) => "; ",
                None => " ",
            };
            let text = row.map_or(text.clone(), |(key, value)| format!("{key}: {value}"));
            self.text = format!("{}{between}{text}", self.text);
        }
    }
}

/// The header of a stack that a watchdog prints.
#[derive(Clone, Debug)]
struct OpenStack {
    /// What a launcher writes before each line.
    prefix: Vec<u8>,
    writer: Writer,
    line: u64,
}

/// Most lines between a watchdog's line and the stack of its operation, and most lines of a stack up to the user's frame.
const STACK_REACH: u64 = 40;

/// Most lines between a report of a node without memory and its address.
const ADDRESS_REACH: u64 = 3;

/// Most lines between an exception about a collective of HCCL and its reason.
const HCCL_REACH: u64 = 12;

/// The header of a `Last error:` block.
#[derive(Clone, Debug)]
struct LastError {
    /// What stands before it, as before the lines of its text.
    prefix: Vec<u8>,
    line: u64,
}

/// Most lines between the header of a `Last error:` block and its text: another rank may write between them.
const LAST_ERROR_REACH: u64 = 12;

/// Where facts go.
pub(super) struct Sink<'a> {
    pub source: SourceIndex,
    pub reports: &'a mut Vec<Report>,
    pub dropped: &'a mut u64,
}

impl Reading {
    /// Returns whether the line after one is needed, whatever its content.
    pub fn needs_next(&self, number: u64) -> bool {
        let near = |line: Option<u64>| line.is_some_and(|line| number.saturating_sub(line) < STACK_REACH);
        self.tracebacks.are_open()
            || self.tables.time_within > 0
            || self.without_memory.is_some()
            || self.of_hccl.is_some()
            || self.without_message.is_some()
            || self.absent.is_some()
            || self.error_stack.is_some()
            || self.last_error.is_some()
            || near(self.gave_up)
            || near(self.stack.as_ref().map(|stack| stack.line))
    }

    /// Takes the address of a node without memory, as Ray prints it: `(IP: 10.0.0.7, ID: …)`.
    fn address(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        let Some((at, line)) = self.without_memory else { return };
        if piece.line.saturating_sub(line) > ADDRESS_REACH {
            self.without_memory = None;
        } else if let Some(rest) = crate::text::behind(piece.bytes, "IP: ") {
            let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'-');
            let length = rest.iter().take_while(is_name).count();
            if let Some(report) = sink.reports.get_mut(at) {
                report.host = Some(printable(rest.get(..length).unwrap_or_default(), TEXT));
            }
            self.without_memory = None;
        }
    }

    /// Takes the reason of a failed collective of HCCL, which CANN prints below the exception: `EI0006: [PID: 7] … Getting socket times out.`
    fn reason_of_hccl(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        let Some((at, line)) = self.of_hccl else { return };
        let Some(report) = sink.reports.get_mut(at) else { return };
        if piece.line.saturating_sub(line) > HCCL_REACH {
            self.of_hccl = None;
        } else if let Some(reason) =
            crate::text::find(piece.bytes, b"EI00").and_then(|from| piece.bytes.get(from..))
            && let Fact::Exception(exception) = &mut report.fact
            && report.writer.rank == Writer::of(piece).rank
        {
            exception.last_error = Some(printable(reason, TEXT));
            self.of_hccl = None;
        }
    }

    /// Takes a line of a message that stands below the name of its exception, indented, as Lightning writes it, or below a first line
    /// that ends with a colon, as TensorFlow writes it: a sentence, and only one line.
    fn message_below(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        let Some((at, line)) = self.without_message.take() else { return };
        let text = piece.text.trim_ascii();
        let Some(report) = sink.reports.get_mut(at) else { return };
        let Fact::Exception(exception) = &mut report.fact else { return };
        let is_begun = exception.message.ends_with(':');
        let is_indented = piece.text.first().is_some_and(|byte| matches!(byte, b' ' | b'\t'));
        let is_sentence = text.first().is_some_and(u8::is_ascii_uppercase)
            && text.get(1).is_some_and(u8::is_ascii_lowercase)
            && piece.prefix.len == 0
            && crate::text::find(text, b"Traceback (").is_none();
        if text.is_empty() && is_begun && piece.line == line + 1 {
            self.without_message = Some((at, line + 1));
        } else if piece.line == line + 1
            && !text.is_empty()
            && (is_indented || is_begun && is_sentence)
            && exception.message.len() < TEXT
        {
            let begun = if exception.message.is_empty() { "" } else { " " };
            exception.message = format!("{}{begun}{}", exception.message, printable(text, TEXT));
            self.without_message = is_indented.then_some((at, piece.line));
        }
    }

    /// Takes a line of a stack of MPICH: `MPIDI_OFI_mpi_init_hook(1061): OFI addrinfo() failed (…)`.
    fn error_stack(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        let Some(open) = &self.error_stack else { return };
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let name = piece.text.iter().take_while(is_name).count();
        let rest = piece.text.get(name..).filter(|rest| name > 0 && rest.starts_with(b"("));
        let Some(said) = rest
            .and_then(|rest| crate::text::behind(rest, ": ").or(Some(b"")))
            .filter(|_| piece.line.saturating_sub(open.line) <= ERROR_STACK)
        else {
            self.error_stack = None;
            return;
        };
        let said = printable(said.trim_ascii(), TEXT);
        if let Some(Report { fact: Fact::Error { text, .. }, .. }) = sink.reports.get_mut(open.at)
            && !said.is_empty()
        {
            *text = format!("{}: {said}", open.head);
        }
    }

    /// Takes a line of a list of absent ranks, or the header of one.
    fn take_absent(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        if let Some((list, writer)) = self.absent.take()
            && let Some(fact) = list.fact(piece)
        {
            self.keep(writer, piece.line, piece.bytes, fact, sink);
            self.absent = Some((list, writer));
        }
        self.absent = List::of_header(piece.text).map(|list| (list, Writer::of(piece))).or(self.absent);
    }

    /// Takes a line of the stack of a failed collective; returns whether it was one.
    fn stack(&mut self, whole: &Piece<'_>, sink: &mut Sink<'_>) -> bool {
        const HEADER: &[u8] = b"Stack trace of the failed collective: ";
        let (piece, number) = (whole.bytes, whole.line);
        if crate::text::find(piece, HEADER).is_some() {
            let tag = crate::text::find(piece, b"[rank").or_else(|| crate::text::find(piece, b"[E"));
            let prefix = piece.get(..tag.unwrap_or(0)).unwrap_or_default().to_vec();
            self.gave_up = None;
            self.stack = Some(OpenStack { prefix, writer: Writer::of(whole), line: number });
            return true;
        }
        let Some(open) = &self.stack else { return false };
        let frame = piece.strip_prefix(open.prefix.as_slice()).and_then(traceback::frame_of_stack);
        let Some(frame) = frame else { return false };
        if !is_library(&frame.file) {
            let writer = open.writer;
            self.stack = None;
            self.keep(writer, number, piece, Fact::Stack(frame), sink);
        }
        true
    }

    /// Takes a line of a `Last error:` block; returns whether it was one.
    fn last_error(&mut self, whole: &Piece<'_>, sink: &mut Sink<'_>) -> bool {
        const HEADER: &[u8] = b"Last error:";
        let (piece, number) = (whole.bytes, whole.line);
        if let Some(at) = crate::text::find(piece, HEADER) {
            let (prefix, text) = piece.split_at(at);
            let text = text.get(HEADER.len()..).unwrap_or_default().trim_ascii();
            if !text.is_empty() {
                self.keep_last_error(whole, text, sink);
            } else if prefix.len() <= 200 {
                self.last_error = Some(LastError { prefix: prefix.to_vec(), line: number });
            }
            return true;
        }
        let Some(header) = self.last_error.take() else { return false };
        if number.saturating_sub(header.line) > LAST_ERROR_REACH {
            return false;
        }
        let same = piece
            .get(..header.prefix.len())
            .is_some_and(|head| head == header.prefix || stream(head) == stream(&header.prefix));
        let text = piece.get(header.prefix.len()..).unwrap_or_default();
        // NCCL had no words, and the lines of another text follow: its own are not indented.
        let indented = text.first().is_some_and(|first| matches!(first, b' ' | b'\t'));
        let text = text.trim_ascii();
        if same && indented && !text.is_empty() {
            return false;
        }
        // Text of another stream, a blank line and NCCL's own lines, which another thread writes between them.
        if !same || text.is_empty() || crate::text::find(text, b" NCCL ").is_some() {
            self.last_error = Some(header);
            return false;
        }
        self.keep_last_error(whole, text, sink);
        true
    }

    fn keep_last_error(&mut self, piece: &Piece<'_>, text: &[u8], sink: &mut Sink<'_>) {
        let writer = Writer::of(piece);
        let text = printable(text, TEXT);
        let last = self.last_exception.get(&writer).and_then(|at| sink.reports.get_mut(*at));
        match last.map(|report| &mut report.fact) {
            Some(Fact::Exception(exception)) if exception.last_error.is_none() => {
                exception.last_error = Some(text);
            }
            _ => self.keep(writer, piece.line, piece.bytes, Fact::LastError(text), sink),
        }
    }

    /// Takes one of the last lines, read for a second time: what it mentions counts only here.
    pub fn last(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        self.label(piece);
        self.ranks.seen.extend(piece.prefix.rank.filter(|_| self.ranks.seen.len() < RANKS));
        self.message_below(piece, sink);
        self.message_in_box(piece, sink);
        if let Some(signal) = mentions::signal_of_shell(piece) {
            return self.keep(Writer::of(piece), piece.line, piece.bytes, Fact::Signal(signal), sink);
        }
        let mut known = Vec::new();
        facts::of_piece(piece, &mut launchers::Tables::default(), |who, said| {
            known.push(if let Content::Fact(fact) = said { Some((who, fact)) } else { None });
        });
        if known.is_empty() {
            if let Some(text) = mentions::mention(piece) {
                let at = sink.reports.len();
                self.keep(Writer::of(piece), piece.line, piece.bytes, Fact::Mention(text), sink);
                if let Some(open) = self.boxed.as_mut().filter(|_| sink.reports.len() > at) {
                    open.kept.get_or_insert(at);
                    self.message_of_box(sink);
                }
            }
        } else if !Candidates::is_one(piece.bytes) {
            // What no search word has found is read here.
            for (who, fact) in known.into_iter().flatten() {
                self.keep(who, piece.line, piece.bytes, fact, sink);
            }
        }
    }

    /// Takes a line of a message between two lines of dashes, or one of those.
    fn message_in_box(&mut self, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        const DASHES: usize = 40;
        let own = piece.text.trim_ascii();
        if own.len() >= DASHES && own.iter().all(|byte| *byte == b'-') {
            self.boxed = if self.boxed.is_none() { Some(Boxed::default()) } else { None };
        } else if let Some(open) = &mut self.boxed {
            open.take(piece.text);
            if open.lines > BOX {
                self.boxed = None;
            } else {
                self.message_of_box(sink);
            }
        }
    }

    /// Gives the mention of a message all lines of it so far, and the host that it names.
    fn message_of_box(&self, sink: &mut Sink<'_>) {
        let Some(open) = &self.boxed else { return };
        let Some(report) = open.kept.and_then(|at| sink.reports.get_mut(at)) else { return };
        if let Fact::Mention(text) = &mut report.fact {
            open.text.clone_into(text);
            report.host.clone_from(&open.host);
        }
    }

    /// Takes the task that a launcher names before a line.
    fn label(&mut self, piece: &Piece<'_>) {
        self.ranks.tagged |= piece.prefix.tag.is_some();
        let task = piece.prefix.task.or(piece.prefix.tag);
        self.ranks.tasks.extend(task.filter(|_| self.ranks.tasks.len() < RANKS));
    }

    pub fn piece(&mut self, piece: &Piece<'_>, above: &[u8], sink: &mut Sink<'_>) {
        self.label(piece);
        if self.last_error(piece, sink) || self.stack(piece, sink) {
            return;
        }
        self.address(piece, sink);
        self.reason_of_hccl(piece, sink);
        self.message_below(piece, sink);
        self.error_stack(piece, sink);
        self.take_absent(piece, sink);
        self.gathering.take(piece.bytes, piece.line);
        if self.tables.time_within > 0 {
            self.tables.take_time(piece.bytes);
        }
        let number = piece.line;
        // The end of a launcher's process by a signal is a fact of its own.
        let done = match self.tracebacks.line(piece.bytes, number, above) {
            Taken::Survived => return,
            Taken::Ended(done) => Some(*done),
            Taken::No => None,
        };
        if let Some(done) = done.filter(|done| !done.exception.is_signal_of_child()) {
            let mut writer = Writer::behind(&prefix(&done.prefix));
            writer.local = writer.local.or(done.local);
            if let Some((local, fact)) = done.exception.end_of_spawned() {
                writer.local = Some(local);
                return self.keep(writer, number, done.text.as_slice(), fact, sink);
            }
            if !done.exception.is_launcher() {
                self.see(&writer);
            }
            let earlier =
                self.last_exception.get(&writer).copied().filter(|_| done.exception.cause.is_some());
            if let Some(report) = earlier.and_then(|at| sink.reports.get_mut(at)) {
                // One failure reported in parts: the last part is complete.
                if !done.keeps_line {
                    report.line = number;
                    report.text = printable(&done.text, TEXT);
                }
                report.fact = Fact::Exception(done.exception);
                return;
            }
            let kept = sink.reports.len();
            self.keep(writer, number, done.text.as_slice(), Fact::Exception(done.exception), sink);
            // One that is not kept must not stand for another writer's.
            if sink.reports.len() == kept {
                self.last_exception.remove(&writer);
            } else if self.last_exception.len() < WRITERS {
                self.last_exception.insert(writer, kept);
            }
            return;
        }
        let mut tables = std::mem::take(&mut self.tables);
        facts::of_piece(piece, &mut tables, |writer, fact| match fact {
            Content::Fact(fact) => {
                if matches!(fact, Fact::TimedOut { .. } | Fact::WatchdogFailed { .. }) {
                    self.gave_up = Some(number);
                }
                self.keep(writer, number, piece.bytes, fact, sink);
            }
            Content::Joined { rank, world, host } => self.joined(&writer, rank, world, host, number),
            Content::Host(name, id) => self.host(&writer, name, id),
            Content::On(host) => self.on(&writer, host, true),
            Content::EndedBy(signal) => self.ended_by(signal, piece, sink),
            Content::WorkerFailed => self.worker_failed(number),
            Content::AgentEnded => self.worker_failed = None,
            Content::Restarts => self.begin_attempt(number),
            Content::Is { local, rank } => {
                self.ranks.agent = true;
                if self.ranks.by_local.len() < RANKS {
                    self.place(local, rank);
                    self.ranks.seen.insert(rank);
                }
            }
        });
        self.tables = tables;
    }

    /// Takes the signal that Hydra names below what it calls the exit code: the status of wait(2) (mpiexec.c of MPICH 4.2).
    fn ended_by(&mut self, signal: i32, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        const REACH: u64 = 12;
        let source = sink.source;
        let mut latest = sink.reports.iter_mut().rev().take_while(|report| report.source == source);
        let code = latest.find(|report| report.text.contains("EXIT CODE: "));
        match code.filter(|report| piece.line.saturating_sub(report.line) < REACH) {
            Some(report) => {
                // The status of a process that a signal ended is the signal, with 128 where a core was kept; another one is of others.
                if matches!(report.fact, Fact::Exit { code, .. } if code & 127 == signal) {
                    report.fact = Fact::exit(-signal, Order::First);
                }
            }
            None => {
                self.keep(
                    Writer::default(),
                    piece.line,
                    piece.bytes,
                    Fact::exit(-signal, Order::First),
                    sink,
                );
            }
        }
    }

    fn see(&mut self, writer: &Writer) {
        if self.ranks.seen.len() >= RANKS || self.ranks.locals.len() >= RANKS {
            return;
        }
        if let (Some(task), Some(rank)) = (writer.task, writer.rank) {
            self.ranks.tasks_hold_ranks |= task != rank;
        }
        if let Some(local) = writer.local {
            self.ranks.locals.insert(local);
            if let Some(rank) = writer.rank {
                self.place(local, rank);
            }
            if let Some(pid) = writer.pid
                && self.ranks.local_of_pid.len() < RANKS
            {
                self.ranks.local_of_pid.insert(pid, local);
            }
        }
        self.ranks.seen.extend(writer.rank);
    }

    /// Records the rank of a local rank. A launcher numbers the ranks of a node consecutively.
    fn place(&mut self, local: u32, rank: u32) {
        let first = |local: u32, rank: u32| rank.checked_sub(local);
        let known = self.ranks.by_local.first_key_value();
        self.ranks.nodes_mixed |= known.is_some_and(|(l, r)| first(*l, *r) != first(local, rank));
        self.ranks.by_local.insert(local, rank);
    }

    /// Records a rank of a communicator: in the largest one it is the global rank.
    fn joined(&mut self, writer: &Writer, rank: u32, world: u32, host: &[u8], number: u64) {
        self.see(writer);
        let known = self.ranks.world.unwrap_or(0);
        if world < known || world <= 1 {
            return;
        }
        if world > known {
            self.forget_pids();
            self.ranks.host_of_rank.clear();
            self.ranks.world = Some(world);
        }
        let Some(pid) = writer.pid else { return };
        let fresh = !self.ranks.by_pid.contains_key(&pid);
        let replaced = fresh && self.failed && self.pids_of_rank.get(&rank).is_some_and(|pids| *pids > 0);
        if replaced {
            self.begin_attempt(self.worker_failed.map_or(number, |line| line + 1));
            self.forget_pids();
        }
        if self.ranks.by_pid.len() < RANKS {
            let before = self.ranks.by_pid.insert(pid, rank);
            if let Some(pids) = before.and_then(|before| self.pids_of_rank.get_mut(&before)) {
                *pids -= 1;
            }
            *self.pids_of_rank.entry(rank).or_default() += 1;
            self.ranks.seen.insert(rank);
            self.on(&Writer { rank: Some(rank), ..*writer }, host, true);
            if let Some(local) = writer.local {
                self.place(local, rank);
            }
        }
    }

    fn forget_pids(&mut self) {
        self.ranks.by_pid.clear();
        self.pids_of_rank.clear();
    }

    fn host(&mut self, writer: &Writer, name: &str, id: Option<&str>) {
        if self.ranks.hosts.len() < RANKS && !name.is_empty() {
            self.ranks.hosts.insert(printable(name.as_bytes(), TEXT));
        }
        if let (Some(pid), Some(id)) = (writer.pid, id)
            && self.ranks.host_of_pid.len() < RANKS
        {
            self.ranks.host_of_pid.insert(pid, printable(id.as_bytes(), TEXT));
        }
    }

    /// Records the host of a rank or a task; one that is not `sure` gives way to any other.
    fn on(&mut self, writer: &Writer, host: &[u8], sure: bool) {
        let (at, hosts) = match (writer.rank, writer.task) {
            (Some(rank), _) => (rank, &mut self.ranks.host_of_rank),
            (None, Some(task)) => (task, &mut self.ranks.host_of_task),
            _ => return,
        };
        if hosts.get(&at).is_some_and(|known| !sure || known.as_bytes() == host) {
            return;
        }
        // A launcher without a name service calls every machine so.
        if hosts.len() < RANKS && !host.is_empty() && !host.starts_with(b"localhost") {
            hosts.insert(at, printable(host, TEXT));
        }
    }

    /// Records a failed worker, which torchrun reports once in each attempt.
    fn worker_failed(&mut self, number: u64) {
        self.ranks.agent = true;
        if let Some(earlier) = self.worker_failed {
            self.begin_attempt(earlier + 1);
        }
        self.worker_failed = Some(number);
        if self.ranks.failed_workers.len() < RANKS {
            self.ranks.failed_workers.push(number);
        }
    }

    fn begin_attempt(&mut self, line: u64) {
        if self.ranks.restarts.last().is_none_or(|last| *last < line) && self.ranks.restarts.len() < RANKS {
            self.ranks.restarts.push(line);
        }
        self.failed = false;
        self.worker_failed = None;
        self.gathering = Gathering::default();
        self.kept.clear();
        self.last_exception.clear();
    }

    pub fn keep(&mut self, mut writer: Writer, line: u64, text: &[u8], fact: Fact, sink: &mut Sink<'_>) {
        writer.rank = writer.rank.or(self.told_rank);
        self.see(&writer);
        self.failed |= !matches!(
            fact,
            Fact::Finished
                | Fact::Progress { .. }
                | Fact::Stack(_)
                | Fact::StoreLost
                | Fact::Absent { .. }
                | Fact::Mention(_)
        );
        let key = (writer, discriminant(&fact));
        let full = self.kept.len() >= WRITERS && !self.kept.contains_key(&key);
        let mut others = 0;
        let count = if full { &mut others } else { self.kept.entry(key).or_default() };
        *count += 1;
        if *count > SAME || sink.reports.len() >= FACTS {
            *sink.dropped += 1;
            return;
        }
        let (quoted, told) = match &fact {
            Fact::Exception(exception) => {
                (watchdog::quoted_timeout(&exception.message), absent::of_message(&exception.message))
            }
            _ => (None, None),
        };
        if let Some(host) = launcher::host(text) {
            self.on(&writer, host.as_bytes(), false);
        }
        let printed = printable(text, TEXT);
        if matches!(&fact, Fact::Exception(one) if one.message.contains("node running low on memory") || one.message.contains("node was running low"))
            && !printed.contains("IP: ")
        {
            self.without_memory = Some((sink.reports.len(), line));
        }
        if matches!(&fact, Fact::Exception(one) if one.message.is_empty() || one.message.ends_with(':'))
            && printed.trim_end().ends_with(':')
        {
            self.without_message = Some((sink.reports.len(), line));
        }
        if let Fact::Error { text, .. } = &fact
            && let Some(head) = text.strip_suffix(", error stack:")
        {
            self.error_stack = Some(ErrorStack { at: sink.reports.len(), head: head.to_owned(), line });
        }
        if matches!(&fact, Fact::Exception(one) if ["HCCL", "Hccl", "hccl"].iter().any(|name| one.message.contains(name)))
        {
            self.of_hccl = Some((sink.reports.len(), line));
        }
        let time = prefix(text).time.and_then(launcher::seconds);
        sink.reports.push(Report {
            source: sink.source,
            line,
            text: printed,
            host: None,
            time,
            writer,
            fact,
        });
        if let Some((rank, timeout)) = quoted {
            let writer = Writer { rank: writer.rank.or(rank), ..writer };
            self.keep(writer, line, text, timeout, sink);
        }
        if let Some(told) = told {
            self.keep(writer, line, text, told, sink);
        }
    }
}
