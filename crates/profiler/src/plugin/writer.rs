//! The only thread: it visits the finished operations ten times a second and writes once a second, or as
//! often as is asked. Only it touches files, so a
//! disk that hangs or is full stops the measuring, never the job.

use core::fmt::Write;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::sums::{Process, Sums, Text};
use super::{c, comms, ops};

const VISIT_NANOS: u64 = 100_000_000;
const MILLI: u64 = 1_000_000;
/// Bytes of a file, after which it becomes the older of the two that a process has.
const FILE: u64 = 4 << 20;
/// Before each line in a rank's log, by which weftrun knows it (`is_measurement` in `crates/nccl`).
const IN_LOG: &[u8] = b"weftrun: NCCL ";

/// The process that has the thread: a child made by `fork` has none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Requests to write at once, and how many were met.
static ASKED: AtomicU32 = AtomicU32::new(0);
static MET: AtomicU32 = AtomicU32::new(0);

/// Starts the thread unless this process has it, and returns whether operations are measured.
pub fn begin() -> bool {
    if !c::is_wanted() {
        return false;
    }
    let (owner, process) = (OWNER.load(Acquire), c::pid());
    if owner != process && OWNER.compare_exchange(owner, process, AcqRel, Relaxed).is_ok() {
        ops::FAILED.store(!c::spawn(run), Release);
    }
    !ops::FAILED.load(Relaxed)
}

/// Lets the thread write what is measured, and waits for it for at most a quarter of a second: the process may end now.
pub fn flush() {
    if ops::FAILED.load(Relaxed) {
        return;
    }
    let asked = ASKED.fetch_add(1, AcqRel).wrapping_add(1);
    for _ in 0..25 {
        if MET.load(Acquire) == asked {
            break;
        }
        c::sleep(VISIT_NANOS / 10);
    }
}

/// The thread.
fn run() {
    let process = Process { host: c::host(), pid: c::pid() };
    let (mut sums, mut out) = (Sums::new(), Out::open(&process));
    let period = c::period() * MILLI;
    let mut part = c::now() / period;
    while let Some(open) = &mut out {
        let asked = ASKED.load(Acquire);
        let wanted = asked != MET.load(Relaxed);
        // Every rank cuts the time at the same places, so that their sums are of the same operations.
        c::sleep(if wanted { 0 } else { VISIT_NANOS.min(period - c::now() % period) });
        comms::before_visit();
        ops::visit(|op, nanos| sums.add(op, nanos));
        let now = c::now() / period;
        if now == part && !wanted {
            continue;
        }
        let mut written = true;
        sums.lines(part * period / MILLI, &process, |line| written &= open.put(line));
        part = now;
        comms::after_visit();
        MET.store(asked, Release);
        if !(written && open.send()) {
            break;
        }
    }
    ops::FAILED.store(true, Relaxed);
    MET.store(ASKED.load(Relaxed), Release);
    c::say(c"weftrun: cannot write what the NCCL profiler measures; the job is not affected");
}

/// Where lines go: a file of bounded size, or standard error.
struct Out {
    file: c::File,
    size: u64,
    path: Text<1100>,
    older: Text<1100>,
    /// Lines that wait to be written together.
    lines: Text<16384>,
}

impl Out {
    fn open(process: &Process) -> Option<Self> {
        let mut folder = [0; 1024];
        let mut out = Self {
            file: c::File::stderr(),
            size: 0,
            path: Text::new(),
            older: Text::new(),
            lines: Text::new(),
        };
        match c::folder(&mut folder)? {
            "stderr" => Some(out),
            folder => {
                write!(out.path, "{folder}/nccl-{}-{}.jsonl\0", process.host(), process.pid).ok()?;
                write!(out.older, "{folder}/nccl-{}-{}.old.jsonl\0", process.host(), process.pid).ok()?;
                (out.file, out.size) = c::File::append(out.path.bytes())?;
                Some(out)
            }
        }
    }

    fn put(&mut self, line: &[u8]) -> bool {
        if self.file.is_stderr() {
            // It is shared: a line at a time stays whole.
            return self.lines.push(IN_LOG) && self.lines.push(line) && self.send();
        }
        self.lines.push(line) || self.send() && self.lines.push(line)
    }

    fn send(&mut self) -> bool {
        let lines = self.lines.bytes();
        if lines.is_empty() {
            return true;
        }
        // A program may have closed standard error, or nobody reads it: the line is lost.
        let written = self.file.write(lines) || self.file.is_stderr();
        self.size += lines.len() as u64;
        self.lines.clear();
        if written && self.size > FILE && !self.file.is_stderr() {
            c::rename(self.path.bytes(), self.older.bytes());
            return match c::File::append(self.path.bytes()) {
                Some((file, size)) => {
                    (self.file, self.size) = (file, size);
                    true
                }
                None => false,
            };
        }
        written
    }
}
