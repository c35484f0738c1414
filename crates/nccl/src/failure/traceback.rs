//! Python tracebacks, assembled line by line, also where those of several ranks are interleaved.

use serde::{Deserialize, Serialize};

use super::{Fact, Order};
use crate::map::printable;

/// Most tracebacks open at a time in one source.
const OPEN: usize = 64;
/// Number of lines of other writers after which an unfinished traceback is dropped.
const PATIENCE: u64 = 400;
/// Bytes of a launcher's prefix.
const PREFIX: usize = 200;
const TEXT: usize = 1000;
const HEADER: &[u8] = b"Traceback (most recent call last):";

/// A place in the user's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CauseFrame"))]
pub struct Frame {
    /// File, as the traceback names it.
    pub file: String,
    /// Line.
    pub line: u64,
    /// Function.
    pub function: String,
}

/// The exception that a traceback ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Type with its module, as printed.
    pub name: String,
    /// First line of its message.
    pub message: String,
    /// The innermost frame outside of libraries.
    pub frame: Option<Frame>,
    /// The innermost frame.
    pub innermost: Option<Frame>,
    /// The exception that caused this one, where the program printed it.
    pub cause: Option<Box<Exception>>,
    /// Whether `cause` is the direct cause (`raise … from …`, or a worker's original exception), not merely
    /// an earlier one.
    pub direct: bool,
    /// Whether its line stands alone: the traceback above it is not in the log, or is no Python traceback.
    pub alone: bool,
    /// NCCL's own words on its failure, which PyTorch prints below the exception (`Last error:`).
    pub last_error: Option<String>,
}

impl Exception {
    /// Makes an exception whose traceback is not in the log.
    pub(super) fn alone(name: &[u8], message: &[u8]) -> Self {
        Self {
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

    /// Returns the type without its module.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Returns type and message.
    pub fn what(&self) -> String {
        if self.message.is_empty() {
            return self.name.clone();
        }
        format!("{}: {}", self.name, self.message)
    }

    /// Returns whether a launcher raised it about its workers: it names no cause.
    pub fn is_launcher(&self) -> bool {
        matches!(
            self.short_name(),
            "ChildFailedError" | "ProcessRaisedException" | "SignalException" | "ChildProcessError"
        )
    }

    /// Returns how a process ended that `torch.multiprocessing.spawn` started, and the process's number among them:
    /// `process 3 terminated with signal SIGKILL`.
    pub(super) fn end_of_spawned(&self) -> Option<(u32, Fact)> {
        let (number, how) = self.message.strip_prefix("process ")?.split_once(" terminated with ")?;
        let fact = match how.strip_prefix("exit code ") {
            Some(code) => Fact::exit(code.trim_end().parse().ok()?, Order::First),
            None => Fact::Signal(signal(how.strip_prefix("signal ")?.trim_end())?),
        };
        Some((number.parse().ok()?, fact))
    }

    /// Returns whether it says that a signal ended a process that this one started.
    pub(super) fn is_signal_of_child(&self) -> bool {
        self.short_name() == "CalledProcessError" && self.message.contains("died with <Signals.SIG")
    }
}

/// The signals that end processes: name, number on Linux, and what it usually means, where that is known.
pub const SIGNALS: &[(&str, i32, &str)] = &[
    ("SIGHUP", 1, "its terminal or login session ended"),
    ("SIGINT", 2, "interrupted, as Ctrl-C does"),
    ("SIGQUIT", 3, ""),
    ("SIGILL", 4, "the binary does not fit the processor"),
    ("SIGABRT", 6, "the program aborted itself"),
    ("SIGBUS", 7, "often /dev/shm is full or too small"),
    ("SIGFPE", 8, "arithmetic error in native code"),
    ("SIGKILL", 9, "by the kernel for memory, or from outside"),
    ("SIGUSR1", 10, ""),
    ("SIGSEGV", 11, "invalid memory access in native code"),
    ("SIGUSR2", 12, ""),
    ("SIGTERM", 15, "ended from outside"),
];

pub(super) fn signal(name: &str) -> Option<i32> {
    SIGNALS.iter().find(|(known, ..)| *known == name).map(|(_, number, _)| *number)
}

/// Returns whether a file belongs to Python, a package or the environment, and not to the user's code.
pub fn is_library(file: &str) -> bool {
    const PACKAGES: &str = "torch torchvision torchaudio transformers accelerate deepspeed lightning \
        pytorch_lightning numpy jax jaxlib flax ray datasets triton apex fsspec mpi4py";
    let parts = || file.split(['/', '\\']);
    let is_package = |name: &str| PACKAGES.split(' ').any(|package| package == name);
    let under_lib = parts().zip(parts().skip(1)).any(|(parent, child)| parent == "lib" && is_package(child));
    // A program that a package installs: `/opt/env/bin/horovodrun`.
    let is_installed =
        || file.rsplit_once('/').is_some_and(|(dir, name)| dir.ends_with("/bin") && !name.contains('.'));
    file.starts_with('<')
        || is_installed()
        || under_lib
        || file.starts_with("/usr/lib/")
        || file.starts_with("/opt/conda/")
        || parts().any(|part| {
            matches!(part, "site-packages" | "dist-packages" | "venv" | ".venv")
                || part.strip_prefix("python3").is_some_and(|rest| {
                    rest.starts_with('.') && rest.len() <= 4 && file.contains("/lib/python3")
                })
        })
}

/// How an exception relates to the one before it in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    /// `raise … from …`.
    Direct,
    /// Raised while another was handled.
    Handling,
    /// The following exception is the original of one that a worker passed on.
    Original,
}

/// What stands between two exceptions of which one led to the other.
const CHAINS: &[(&[u8], Chain)] = &[
    (b"During handling of the above exception", Chain::Handling),
    (b"The above exception was the direct cause", Chain::Direct),
];

/// Tells which messages of one writer are lines of tracebacks, and of the stacks that PyTorch prints, without reading them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracebackLines {
    /// Whether the last message belongs to one that goes on.
    open: bool,
}

impl TracebackLines {
    /// Takes the next message, without what stands before it; returns whether it belongs to one.
    pub fn take(&mut self, text: &[u8]) -> bool {
        let begins = text.starts_with(HEADER) || text.starts_with(b"Exception raised from ");
        let inner = text.first().is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        let open = self.open;
        // The exception itself is the last line.
        self.open = begins || open && (inner || text.starts_with(b"frame #"));
        begins || open || CHAINS.iter().any(|(words, _)| text.starts_with(words))
    }
}

/// An unfinished traceback.
#[derive(Clone, Debug)]
struct Open {
    prefix: Vec<u8>,
    key: Vec<u8>,
    frame: Option<Frame>,
    innermost: Option<Frame>,
    frames: u32,
    /// Whether the previous line was one of this traceback.
    contiguous: bool,
    /// Line of its header.
    begun: u64,
    last: u64,
    chain: Option<Chain>,
    local: Option<u32>,
    /// Whether the program only reports it and continues.
    survived: bool,
}

/// A stream's last exception, which may be the cause of the next one.
#[derive(Clone, Debug)]
struct Last {
    key: Vec<u8>,
    exception: Exception,
    line: u64,
    chain: Option<Chain>,
}

/// What a line is to the tracebacks of its source.
pub(super) enum Taken {
    /// No line of a traceback, or one that says nothing more.
    No,
    /// The end of a traceback after which the program continued.
    Survived,
    /// The end of a traceback.
    Ended(Box<Done>),
}

/// A traceback whose end is not in the log.
pub(super) struct Unfinished {
    /// Line of its header.
    pub line: u64,
    pub header: Vec<u8>,
    /// The last frame, in words.
    pub place: String,
}

/// A finished traceback.
pub(super) struct Done {
    pub prefix: Vec<u8>,
    pub text: Vec<u8>,
    pub local: Option<u32>,
    pub exception: Exception,
    /// Whether the line that ended the earlier exception is the one to cite.
    pub keeps_line: bool,
}

/// The tracebacks of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracebacks {
    open: Vec<Open>,
    last: Vec<Last>,
    /// Local rank that `torch.multiprocessing` named before a traceback.
    named: Option<u32>,
}

impl Tracebacks {
    /// Returns whether any traceback is unfinished.
    pub fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Drops unfinished tracebacks, and returns the first one.
    pub fn end(&mut self) -> Option<Unfinished> {
        self.last.clear();
        let open = std::mem::take(&mut self.open);
        let first = open.into_iter().filter(|open| !open.survived).min_by_key(|open| open.begun)?;
        let place = first.frame.or(first.innermost).map_or_else(String::new, |frame| {
            format!("; its last frame is {}:{} in {}", frame.file, frame.line, frame.function)
        });
        let header = [first.prefix.as_slice(), HEADER].concat();
        Some(Unfinished { line: first.begun, header, place })
    }

    /// Takes a line; `above` is the line above, of which only the end may be left.
    pub fn line(&mut self, line: &[u8], number: u64, above: &[u8]) -> Taken {
        self.take(line, number, above).unwrap_or(Taken::No)
    }

    fn take(&mut self, line: &[u8], number: u64, above: &[u8]) -> Option<Taken> {
        if let Some(at) = crate::text::find(line, HEADER) {
            self.begin(line.get(..at).unwrap_or_default(), number, above);
            return None;
        }
        self.chain(line, number);
        self.open.retain(|open| number.saturating_sub(open.last) <= PATIENCE);
        self.correct_prefix(line, number);
        // The latest traceback first: two without a prefix nest.
        let at = self.open.iter().rposition(|open| belongs(open, line))?;
        let open = self.open.get_mut(at)?;
        let body = line.get(open.prefix.len()..).unwrap_or_default();
        if let Some(frame) = frame(body) {
            if !is_library(&frame.file) {
                open.frame = Some(frame.clone());
            }
            open.innermost = Some(frame);
            open.frames += 1;
            open.contiguous = true;
            open.last = number;
            return None;
        }
        if body.first().is_none_or(|first| *first == b' ' || *first == b'\t') {
            open.contiguous |= !body.is_empty();
            return None;
        }
        let bare = open.prefix.is_empty();
        let Some((name, message)) = exception(body, open.contiguous && !bare) else {
            open.contiguous = false;
            return None;
        };
        let open = self.open.remove(at);
        if open.survived {
            return Some(Taken::Survived);
        }
        Some(Taken::Ended(Box::new(self.close(open, &name, message, line, number))))
    }

    /// Corrects the prefix of a traceback by its first frame: a message may stand before its header
    /// (`Scheduler hit an exception: Traceback …`), which is not before its other lines.
    fn correct_prefix(&mut self, line: &[u8], number: u64) {
        if self.open.is_empty() {
            return;
        }
        let Some(at) = crate::text::find(line, b"File \"") else { return };
        let head = line.get(..at).unwrap_or_default();
        let head = head.strip_suffix(b"  ").unwrap_or(head);
        for open in &mut self.open {
            let first = open.frames == 0 && open.last + 1 == number && !head.starts_with(&open.prefix);
            // The table of torchrun indents a traceback below `traceback :`.
            let fits = open.key.starts_with(&stream(head)) || head.iter().all(|byte| *byte == b' ');
            if first && fits && open.prefix.len() > head.len() {
                open.prefix = head.to_vec();
                open.key = stream(head);
            }
        }
    }

    fn begin(&mut self, before: &[u8], number: u64, above: &[u8]) {
        // A progress bar has no newline; the lines of the traceback do not begin with it.
        let bar = crate::text::find(before, b"%|").is_some();
        let before = if bar { b"" } else { before };
        let (before, original) = match before.strip_suffix(b"Original ") {
            Some(rest) => (rest, true),
            None => (before, false),
        };
        if before.len() > PREFIX || self.open.len() >= OPEN {
            return;
        }
        let key = stream(before);
        let last = self.last.iter().find(|last| last.key == key);
        let chain = last.and_then(|last| match number.saturating_sub(last.line) {
            0..=3 if original => Some(Chain::Original),
            _ => last.chain,
        });
        self.open.push(Open {
            prefix: before.to_vec(),
            key,
            frame: None,
            innermost: None,
            frames: 0,
            contiguous: true,
            begun: number,
            last: number,
            chain,
            local: self.named.take(),
            survived: is_survived(before, above),
        });
    }

    fn chain(&mut self, line: &[u8], number: u64) {
        let near = line.get(..line.len().min(PREFIX + 120)).unwrap_or_default();
        if let Some(at) = crate::text::find(near, b"-- Process ")
            && near.ends_with(b"terminated with the following error:")
        {
            let digits: Vec<u8> =
                near.iter().skip(at + 11).take(7).take_while(|byte| byte.is_ascii_digit()).copied().collect();
            self.named = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
        }
        if self.last.is_empty() {
            return;
        }
        let find = |(words, chain): &(&[u8], Chain)| Some((crate::text::find(near, words)?, *chain));
        let Some((at, chain)) = CHAINS.iter().find_map(find) else { return };
        let key = stream(near.get(..at).unwrap_or_default());
        if let Some(last) =
            self.last.iter_mut().find(|last| last.key == key && number.saturating_sub(last.line) <= PATIENCE)
        {
            last.chain = Some(chain);
        }
    }

    fn close(&mut self, open: Open, name: &[u8], message: &[u8], line: &[u8], number: u64) -> Done {
        let mut exception = Exception {
            name: printable(name, 200),
            message: printable(message, TEXT),
            frame: open.frame,
            innermost: open.innermost,
            cause: None,
            direct: false,
            alone: false,
            last_error: None,
        };
        let place = self.last.iter().position(|last| last.key == open.key);
        let before = place.map(|at| self.last.remove(at));
        if let (Some(before), Some(chain)) = (before, open.chain) {
            let mut earlier = before.exception;
            earlier.cause = None;
            exception = match chain {
                Chain::Original => Exception { cause: Some(Box::new(exception)), direct: true, ..earlier },
                Chain::Direct => Exception { cause: Some(Box::new(earlier)), direct: true, ..exception },
                Chain::Handling => Exception { cause: Some(Box::new(earlier)), direct: false, ..exception },
            };
        }
        if self.last.len() >= OPEN {
            self.last.remove(0);
        }
        self.last.push(Last { key: open.key, exception: exception.clone(), line: number, chain: None });
        let keeps_line = open.chain == Some(Chain::Direct);
        Done { prefix: open.prefix, text: line.to_vec(), local: open.local, exception, keeps_line }
    }
}

/// Returns whether a traceback behind this prefix, below this line, is one after which the program continues: Python prints exceptions in
/// `__del__` and in logging so, and libraries log those that they handle.
fn is_survived(before: &[u8], above: &[u8]) -> bool {
    let says = |text: &[u8], words: &str| crate::text::find(text, words.as_bytes()).is_some();
    let glog = || {
        let levels = [&b"W"[..], b"I"];
        let digits = |word: &[u8]| word.len() == 4 && word.iter().all(u8::is_ascii_digit);
        let is_level = |word: &[u8]| levels.iter().any(|level| word.strip_prefix(*level).is_some_and(digits));
        before.split(|byte| matches!(byte, b' ' | b':')).take(4).any(is_level)
    };
    says(above, "Exception ignored in")
        || says(above, "--- Logging error ---")
        || ["WARNING", "INFO", "DEBUG"].iter().any(|level| says(before, level))
        || glog()
}

/// Returns whether a line has the prefix of a traceback; times in it may differ.
fn belongs(open: &Open, line: &[u8]) -> bool {
    let Some(head) = line.get(..open.prefix.len()) else { return false };
    head == open.prefix || stream(head) == open.key
}

/// Returns a prefix with the digits of times masked, so that two lines of one stream have the same.
pub(super) fn stream(prefix: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(prefix.len());
    for token in prefix.split_inclusive(|byte| *byte == b' ') {
        let times = token.windows(3).filter(|three| {
            three[0].is_ascii_digit() && matches!(three[1], b':' | b'-' | b'/') && three[2].is_ascii_digit()
        });
        let is_time = times.count() >= 2;
        out.extend(token.iter().map(|byte| if is_time && byte.is_ascii_digit() { b'0' } else { *byte }));
    }
    out
}

/// Reads `  File "train.py", line 10, in compute_loss`.
fn frame(body: &[u8]) -> Option<Frame> {
    let rest = body.trim_ascii_start().strip_prefix(b"File \"")?;
    let end = crate::text::find(rest, b"\", line ")?;
    let (file, rest) = (rest.get(..end)?, rest.get(end + 8..)?);
    let digits = rest.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
    let line = std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()?;
    let function = rest.get(digits..)?.strip_prefix(b", in ").unwrap_or(b"<module>");
    Some(Frame { file: printable(file, 400), line, function: printable(function, 200) })
}

/// Reads a frame of a stack that a watchdog prints: `#2 main from train.py:32`.
pub(super) fn frame_of_stack(body: &[u8]) -> Option<Frame> {
    let rest = body.strip_prefix(b"#")?;
    let rest =
        rest.get(rest.iter().take_while(|byte| byte.is_ascii_digit()).count()..)?.strip_prefix(b" ")?;
    let at = memchr::memmem::rfind(rest, b" from ")?;
    let (function, place) = (rest.get(..at)?, rest.get(at + 6..)?.trim_ascii());
    let end = memchr::memrchr(b':', place)?;
    let line = std::str::from_utf8(place.get(end + 1..)?).ok()?.parse().ok()?;
    Some(Frame { file: printable(place.get(..end)?, 400), line, function: printable(function, 200) })
}

/// Reads `ValueError: text`. A name that is unusual for an exception counts only where `sure`.
pub(super) fn exception(body: &[u8], sure: bool) -> Option<(Vec<u8>, &[u8])> {
    const ENDS: &str = "Error Exception Interrupt Exit Failure Timeout Warning Iteration Group NotFound Fault \
        Abort Closed Expired";
    let length = body
        .iter()
        .take(200)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        .count();
    let (name, rest) = (body.get(..length)?, body.get(length..)?);
    let message = match rest {
        [] => rest,
        [b':', rest @ ..] if rest.is_empty() || rest.starts_with(b" ") => rest,
        _ => return None,
    };
    let text = std::str::from_utf8(name).ok()?;
    let last = text.rsplit('.').next().unwrap_or(text);
    let capital = last.starts_with(|first: char| first.is_ascii_uppercase() || first == '_');
    let usual = ENDS.split(' ').any(|end| last.ends_with(end))
        || (text.contains('.') && capital && !message.is_empty());
    (usual && !last.is_empty() || (sure && capital)).then(|| (name.to_vec(), message.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Exception> {
        let mut tracebacks = Tracebacks::default();
        (1..)
            .zip(text.lines())
            .filter_map(|(number, line)| match tracebacks.line(line.as_bytes(), number, b"") {
                Taken::Ended(done) => Some(done.exception),
                Taken::No | Taken::Survived => None,
            })
            .collect()
    }

    #[test]
    fn interleaved_tracebacks_of_two_ranks_are_told_apart() {
        let found = read(
            "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n\
             [rank0]:   File \"/job/a.py\", line 1, in f\n[rank1]:   File \"/job/b.py\", line 2, in g\n\
             [rank1]: KeyError: 'b'\nh:1:1 [0] NCCL INFO x\n[rank0]: ValueError: a",
        );
        let whats: Vec<_> = found.iter().map(Exception::what).collect();
        assert_eq!(whats, ["KeyError: 'b'", "ValueError: a"]);
        let frames: Vec<_> =
            found.iter().filter_map(|one| one.frame.as_ref()).map(|frame| &*frame.function).collect();
        assert_eq!(frames, ["g", "f"]);
    }

    #[test]
    fn times_before_each_line_do_not_tear_a_traceback() {
        let found = read(
            "2026-01-01T10:00:00.001Z [pod/w-0] Traceback (most recent call last):\n\
             2026-01-01T10:00:00.002Z [pod/w-0]   File \"/job/a.py\", line 1, in f\n\
             2026-01-01T10:00:00.003Z [pod/w-1] ValueError: of another pod\n\
             2026-01-01T10:00:00.003Z [pod/w-0] RuntimeError: x",
        );
        assert_eq!(found.iter().map(Exception::what).collect::<Vec<_>>(), ["RuntimeError: x"]);
    }

    #[test]
    fn a_worker_of_a_data_loader_hands_on_its_exception() {
        let found = read(
            "Traceback (most recent call last):\n  File \"/job/a.py\", line 1, in f\n\
             ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n\
             \x20 File \"/job/data.py\", line 7, in __getitem__\nValueError: bad row",
        );
        let last = found.last().and_then(|last| last.cause.as_deref()).expect("the original");
        assert_eq!(
            (last.what().as_str(), last.frame.as_ref().map(|frame| frame.line)),
            ("ValueError: bad row", Some(7))
        );
    }

    #[test]
    fn files_of_libraries_are_no_user_code() {
        for library in [
            "/venv/lib/torch/_tensor.py",
            "<frozen runpy>",
            "/opt/conda/lib/python3.11/runpy.py",
            "/home/u/.local/lib/python3.10/site-packages/x/y.py",
            "/usr/lib/python3.12/json/decoder.py",
        ] {
            assert!(is_library(library), "{library}");
        }
        for own in ["/job/train.py", "train.py", "/home/u/project/lib/util.py", "/workspace/torch_train.py"] {
            assert!(!is_library(own), "{own}");
        }
    }
}
