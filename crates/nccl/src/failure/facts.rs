//! Extracts facts from one line.

use super::absent::stalled;
use super::content::Content;
use super::kernel::kernel;
use super::launchers::{HOST_ROW, Tables, mpi, ray, signal_of_mpi, signal_row, slurm, torchrun};
use super::traceback::{Exception, exception, signal};
use super::watchdog::{watchdog, work};
use super::words::Text;
use super::{Fact, Order, Writer};
use crate::lines::{Piece, is_report};
use crate::map::printable;

/// Reads one line.
pub(super) fn of_piece(piece: &Piece<'_>, tables: &mut Tables, mut say: impl FnMut(Writer, Content<'_>)) {
    let who = Writer::of(piece);
    let mut silent = true;
    let mut first = |who: Writer, said: Content<'_>| {
        silent = false;
        say(who, said);
    };
    // A line that only has a word of a report may be an error of another program.
    if is_report(piece.bytes) && report(piece, who, tables, &mut first) && !silent {
        return;
    }
    if let Some(exception) = exception_alone(piece.text).or_else(|| thrown(piece.text)) {
        say(who, Content::Fact(Fact::Exception(exception)));
    } else if !speaks(piece) {
    } else if let Some(fatal) = error(piece) {
        let text = printable(words_of_error(piece.text, fatal), 512);
        // TensorFlow's GPU_CHECK: the kernel was not launched.
        let is_cuda = fatal
            && (text.starts_with("Test CUDA failure")
                || text.contains("Cuda failure common.cu:")
                || text.contains("GpuLaunchKernel") && text.contains("out of memory"));
        // MPICH names the rank itself, whatever a launcher's label before it counts.
        let rank = Text(piece.text).from(": Fatal error in ").and_then(|_| Text(piece.text).after("(rank "));
        let rank = rank.filter(|rest| rest.has(" in comm 0)")).and_then(Text::small);
        let who = if rank.is_some() { Writer { rank, task: None, ..who } } else { who };
        say(who, Content::Fact(if is_cuda { Fact::Cuda(text) } else { Fact::Error { text, fatal } }));
    }
}

/// Reads what NCCL, launchers, watchdogs, drivers and the kernel report. Returns whether the line needs no further search.
fn report(
    piece: &Piece<'_>,
    who: Writer,
    tables: &mut Tables,
    say: &mut impl FnMut(Writer, Content<'_>),
) -> bool {
    let text = Text(piece.bytes);
    let any = |words: &[&str]| words.iter().any(|words| text.has(words));
    // NCCL before 2.3 wrote `[0] init.cu:674 WARN …`, without its name.
    if (text.has("NCCL ") || text.has("Cuda failure") && piece.process().is_some()) && nccl(piece, who, say) {
        return true;
    }
    if let Some(fact) = stalled(text) {
        say(who, Content::Fact(fact));
        return true;
    }
    // subprocess: `Command '[…, '--local_rank=1']' died with <Signals.SIGKILL: 9>.`
    // torchrun's own process: `Received Signals.SIGTERM death signal, shutting down workers`, `Received 15 death signal`.
    if let Some(before) = text.before(" death signal, shutting down workers") {
        let word = before.rsplit(|byte| matches!(byte, b' ' | b'.')).next().unwrap_or_default();
        let signal = Text(word).signed().or_else(|| signal(std::str::from_utf8(word).ok()?)).unwrap_or(15);
        let message = format!("the launcher got signal: {signal}");
        let ended = Exception::alone(b"SignalException", message.as_bytes());
        say(who, Content::Fact(Fact::Exception(ended)));
        return true;
    }
    let signal =
        text.after("died with <Signals.SIG").and_then(|rest| rest.after(": ")).and_then(Text::signed);
    if let Some(signal) = signal {
        say(who, Content::Fact(Fact::Signal(signal)));
    } else if let Some(code) = text.after(" exits with return code = ").and_then(Text::signed) {
        // DeepSpeed's launcher prints the command of its last process, not of the one that failed.
        if code != 0 {
            say(Writer::default(), Content::Fact(Fact::exit(code, Order::Unknown)));
        }
    } else if any(&["local_rank", "exitcode", "Root Cause (", "worker group", HOST_ROW]) {
        torchrun(text, who.task, tables, say);
    } else if signal_row(text, tables, say) {
    } else if text.has("WorkNCCL(SeqNum") && !any(&["atchdog", "async exception"]) {
        // A terminal cut the line of a watchdog in two.
        if let (Some(who), Some(work)) = (tables.watchdog.take(), text.after("WorkNCCL(").and_then(work)) {
            say(who, Content::Fact(Fact::TimedOut { group: None, work }));
        }
    } else if text.has("collective operation timeout") && !text.has("WorkNCCL(") {
        let rank = who.rank.or_else(|| text.after("[Rank ").and_then(Text::small));
        tables.watchdog = Some(Writer { rank, ..who });
    } else if any(WATCHDOGS) {
        watchdog(text, who, say);
    } else if any(CLUSTERS) {
        slurm(text, tables, say);
    } else if !ray(text, say) {
        mpi(text, tables, say);
        return kernel(text, say) || end_of_process(text, who, tables, say);
    }
    true
}

/// A line of Slurm, of the kubelet or of the kernel about memory has one of these.
const CLUSTERS: &[&str] = &[
    "srun: error",
    "slurmstepd",
    "OOMKilled",
    "oom_kill",
    "WTERMSIG ",
    "The node was low on resource",
    ": Node failure on ",
    // slurmd's own log: `[63532.0] error: *** STEP 63532.0 ON n1 CANCELLED AT …`.
    "error: *** STEP ",
    "error: *** JOB ",
];

/// A line of PyTorch's watchdogs has one of these.
const WATCHDOGS: &[&str] = &[
    "atchdog",
    "Timeout at NCCL work",
    "enqueued",
    "async exception",
    "ncclRemoteError",
    "due to a collective timeout from ",
    "eartbeat monitor timed out",
];

/// Reads how a process ended, in the words of its runtime.
fn end_of_process(
    text: Text<'_>,
    who: Writer,
    tables: &mut Tables,
    say: &mut impl FnMut(Writer, Content<'_>),
) -> bool {
    let said = |words: &str| text.has(words) && !text.is_quoted(words);
    let fact = if text.has("terminate called") {
        // The C++ runtime prints the message in the next line.
        tables.thrown = text.after("throwing an instance of '").map(Text::class);
        Fact::Died
    } else if let Some(message) = text.after("error while loading shared libraries: ") {
        // The dynamic loader: `./train: error while loading shared libraries: libmpi.so.40: cannot open …`.
        Fact::Exception(Exception::alone(b"error while loading shared libraries", message.0))
    } else if let Some(code) = text.after("command terminated with exit code ").and_then(Text::signed) {
        // kubectl exec, with which older launchers start their daemons in pods.
        Fact::exit(code, Order::Unknown)
    } else if text.has("TCPStore server has shut down too early") {
        Fact::StoreLost
    } else if let Some(signal) = text.after("Caught signal ").and_then(Text::signed) {
        // UCX: `[n1:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)`.
        Fact::Signal(signal)
    } else if said("Segmentation fault") {
        Fact::Signal(11)
    } else if said("Bus error") {
        Fact::Signal(7)
    } else if text.has(": line ") && said(" Killed ") {
        Fact::Signal(9)
    } else if said("Aborted (core dumped)") || text.has(": line ") && said(" Aborted ") {
        Fact::Signal(6)
    } else if text.has("CUDA error") && !text.has("NVLS") && !text.begins_like_source() {
        Fact::Cuda(printable(text.from("CUDA error").unwrap_or(text).0, 300))
    } else if let Some(message) = text.after("what():  ") {
        let name = tables.thrown.take().unwrap_or_else(|| b"C++ exception".to_vec());
        Fact::Exception(Exception::alone(&name, message.0.trim_ascii_end()))
    } else if let Some(signal) = signal_of_mpi(text) {
        Fact::Signal(signal)
    } else {
        return false;
    };
    say(who, Content::Fact(fact));
    true
}

/// What libraries throw whose message stands alone in a log where Python's traceback is cut off: all of some words, and whose they
/// are. Gloo's `unbound_buffer.cc`, and PyTorch's `ProcessGroupGloo.cpp` and `reducer.cpp`, read 2026-11-26.
const THROWN: &[(&str, &[&str])] = &[
    ("gloo", &["Timed out waiting ", "ms for recv operation"]),
    ("gloo", &["Timed out waiting ", "ms for send operation"]),
    ("gloo", &["gloo/transport/tcp/pair.cc", "Connection reset by peer"]),
    ("gloo", &["gloo/transport/tcp/pair.cc", "Connection closed by peer"]),
    ("Horovod", &["Horovod has been shut down"]),
    ("PyTorch", &[" failed to pass monitoredBarrier"]),
    ("PyTorch", &["Timed out initializing process group in store"]),
    ("PyTorch", &["Detected mismatch between collectives on ranks"]),
    ("PyTorch", &["Expected to have finished reduction in the prior iteration"]),
];

/// Reads the message of [`THROWN`], from where its first words begin, or the whole line of a sentence that begins before them.
fn thrown(own: &[u8]) -> Option<Exception> {
    let text = Text(own);
    if text.begins_like_source() {
        return None;
    }
    let (name, words) = THROWN.iter().find(|(_, words)| words.iter().all(|words| text.has(words)))?;
    let first = words.first()?;
    let message = if first.starts_with(' ') { text } else { text.from(first)? };
    (!text.is_quoted(first)).then(|| Exception::alone(name.as_bytes(), message.0))
}

/// Reads an exception whose traceback is not in the log, at the start of a line or behind a logger's prefix of an error.
fn exception_alone(own: &[u8]) -> Option<Exception> {
    const OTHERS: &[&str] = &[
        "Warning",
        "ChildFailedError",
        "SignalException",
        "SystemExit",
        "StopIteration",
        "CalledProcessError",
    ];
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
    // A metric has the name of an error and a number: `MeanSquaredError: 0.31`.
    if message.first().is_some_and(u8::is_ascii_digit)
        && std::str::from_utf8(first_word(message)).is_ok_and(|word| word.parse::<f64>().is_ok())
        && !name.ends_with(b"KeyError")
    {
        return None;
    }
    // NCCL's own names of its results are no exceptions: `ncclSystemError: …` stands below one.
    if OTHERS.iter().any(|other| name.ends_with(other.as_bytes())) || name.starts_with(b"nccl") {
        return None;
    }
    Some(Exception::alone(&name, message))
}

fn first_word(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b' ').next().unwrap_or_default()
}

/// Returns the words of an error without those of frameworks around them, which say nothing of it.
fn words_of_error(own: &[u8], fatal: bool) -> &[u8] {
    let nccl = ["NCCL error: ", "NCCL operation ", "Test NCCL failure", "Test CUDA failure"]
        .iter()
        .find_map(|words| Text(own).from(words));
    let Some(rest) = nccl.filter(|_| fatal).or_else(|| Text(own).from("Raylet is terminated")) else {
        return own;
    };
    let ends = [", Traceback (", " Possible reasons include"];
    let end = ends.iter().filter_map(|end| crate::text::find(rest.0, end.as_bytes())).min();
    rest.0.get(..end.unwrap_or(rest.0.len())).unwrap_or_default()
}

/// What programs print that end with it: nccl-tests' `common.h`, NCCL's examples, Gloo's `GLOO_ENFORCE`, libfabric's efa provider,
/// the C library, container runtimes, ROCm's runtime and MPICH's `errutil.c`, read 2026-11-26.
const ENDS: &[&str] = &[
    "Test NCCL failure",
    "Test CUDA failure",
    "Cuda failure common.cu:",
    "NCCL error",
    "NCCL failure",
    "NCCL operation nccl",
    "Memory access fault by GPU",
    "double free or corruption",
    "free(): invalid ",
    "malloc(): ",
    "munmap_chunk(): invalid ",
    "corrupted size vs. prev_size",
    "HIP out of memory",
    "HW Exception by GPU",
    "OCI runtime create failed",
    "Error response from daemon: ",
    "now abort",
    "JAX distributed service detected fatal errors",
    "Unhandled exception: ",
    "NCCL Error ",
    "[enforce fail at ",
    ": Fatal error in ",
    "borting with error : HSA_STATUS_ERROR",
    "symbol lookup error: ",
];

/// What the kernel's drivers of NICs, NVSHMEM, UCX, TensorFlow, shells, launchers, Ray and Kubernetes' events report, which need not
/// end anything: all of some words.
const REPORTED: &[&[&str]] = &[
    &["infiniband ", ": Failed to "],
    &["nvshmem", "non-zero status: "],
    &["nvshmem", ": NULL value "],
    &["nvshmem", "essage truncated"],
    &["nvshmem", "nvidia_peermem detected"],
    &[": block: [", "Assertion `", "` failed"],
    &["ssh: connect to host "],
    &["ssh: Could not resolve hostname "],
    &[": line ", ": No such file or directory"],
    &["bash: ", "/", ": No such file or directory"],
    &[": line ", ": command not found"],
    &["Warning ", " BackOff ", "Back-off "],
    &["was unable to reliably start"],
    &["cluster registration failed"],
    &["enough slots available"],
    &["allocated for this job are already filled"],
    &["available GPUs in the placement group"],
    &["Waiting for creating a placement group of specs"],
    &["failed to allocate ", "CUDA_ERROR_OUT_OF_MEMORY"],
    &["PRTE has lost communication"],
    &["ORTE has lost communication"],
    &["Remote daemon: [", " on node "],
    &["daemon has unexpectedly failed after launch"],
    &["mca_btl_tcp_", "connect() to ", " failed"],
    &["are unable to reach each other"],
    &["unable to run bstrap_proxy"],
    &["unable to run proxy on "],
    &["execvp error on file "],
    &["unable to connect from \"", "HYDU_sock_connect"],
    &["pmix_psec_base_open failed"],
    &["function was called before MPI_INIT"],
    &["function was called after MPI_FINALIZE"],
    &["CUDA_ERROR_ECC_UNCORRECTABLE"],
    &["has been marked dead"],
    &["because its node has died"],
    &["worker group startup timed out"],
    &["CrashLoopBackOff"],
    &["Pod: ", " exited with code "],
    &["Out of bounds values : ", " FAILED"],
    &["[c10d] waitForInput: ", " timed out after "],
    &["No PMIx server was reachable"],
    &["ImagePullBackOff"],
    &["Unable to determine the device handle for GPU"],
    &["Warning ", "FailedScheduling"],
    &["Warning ", "FailedMount"],
    &["Warning ", "FailedAttachVolume"],
    &["Warning ", "FailedCreatePodSandBox"],
    &["Warning ", " Failed ", "pull image"],
    &["ERROR in coordination service: "],
    &["failed to connect to all addresses"],
    &["sequential map was requested", "not enough node entries"],
    &["ssh not successful for host "],
    &["Waiting in store based barrier ", "worker_count="],
    &["|CCL_ERROR| "],
];

/// What a program that failed to do something ends its line with: the words of strerror(3) about devices and networks.
const ERRNO: &[&str] = &[
    ": Connection timed out",
    ": Connection refused",
    ": No route to host",
    ": Network is unreachable",
    ": No such device",
    ": Operation not permitted",
    ": Cannot allocate memory",
];

/// How such a line begins, in any case.
const START: &[u8] = b"failed to ";

/// What stands in lines that are indented and not source code.
const INDENTED: &[&str] = &[
    "Test NCCL failure",
    "Test CUDA failure",
    "task timeout occurred",
    " BackOff ",
    "Warning  Failed",
    "pmix_psec_base_open failed",
    "Remote daemon: [",
    "Out of bounds values : ",
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "MPIJobEvicted",
    "Did not find interface",
    "JobState=",
];

/// Returns whether what a line says may be an error: source code, what is only information, and what the kernel corrected is none.
pub(super) fn speaks(piece: &Piece<'_>) -> bool {
    let (own, whole) = (piece.text, Text(piece.bytes));
    // Ray's logger sets a tab behind the time.
    let own = own.strip_prefix(b"\t").filter(|_| piece.prefix.time.is_some()).unwrap_or(own);
    // What a program prints goes on behind a progress bar.
    let is_indented =
        !whole.has("%|") && own.first().is_none_or(|first| matches!(first, b' ' | b'\t' | b'#' | b'+'));
    // The events of `kubectl describe` are indented.
    let is_event = || own.trim_ascii_start().starts_with(b"Warning ");
    // vLLM waits for its GPUs: for ten seconds first, which a healthy start may take.
    let waits = whole.has("Waiting for creating a placement group of specs") && !whole.has(" for 10 seconds");
    !(is_indented && !is_event() && !INDENTED.iter().any(|words| whole.has(words))
        || own.starts_with(b"raise ")
        || !waits && (whole.has("[INFO]") || whole.has(" INFO ") || own.starts_with(b"INFO "))
        || whole.has("severity=Correct")
        // srun goes on without a plugin of its configuration.
        || whole.has("error: spank: ") && whole.has(": Plugin file not found")
        || whole.has("  File \"")
        || whole.has("    raise ")
        // What a watchdog says besides of an operation that it gave up.
        || whole.has("Some NCCL operations have failed or timed out")
        || whole.has("To avoid data inconsistency, we are taking the entire process down")
        // torchrun's own exception, above its table.
        || whole.has("ChildFailedError")
        // What NCCL's own lines say is for its rules.
        || piece.process().is_some())
}

/// Returns whether a line reports an error, and then whether the program ends with it. Words in the names of variables and in counts
/// (`0 ERRORS`) are none.
fn error(piece: &Piece<'_>) -> Option<bool> {
    let (own, line) = (piece.text, piece.bytes);
    let whole = Text(line);
    if ENDS.iter().any(|words| whole.has(words) && !whole.is_quoted(words)) {
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
    // The C library's assert(3), and the macros of UCX and others. Those of kernels on a GPU quote with two backticks.
    if whole.has("Assertion `") && whole.has("' failed") {
        return Some(true);
    }
    // glog ends its process with such a line: `F0504 12:30:02.978602 2662 common.cpp:163] Check failed: …`, newer ones with the year
    // before the month.
    if let Some(rest) = own.strip_prefix(b"F")
        && let date = rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
        && matches!(date, 4 | 8)
        && matches!(rest.get(date..), Some([b' ', a, b, b':', ..]) if a.is_ascii_digit() && b.is_ascii_digit())
        && whole.has("] ")
    {
        return Some(true);
    }
    // Ray's raylet holds the workers of its node.
    if whole.has("Raylet is terminated") {
        return Some(true);
    }
    if own.get(..START.len()).is_some_and(|head| head.eq_ignore_ascii_case(START))
        && ERRNO.iter().any(|words| own.trim_ascii_end().ends_with(words.as_bytes()))
        || REPORTED.iter().any(|words| words.iter().all(|word| whole.has(word)))
    {
        return Some(false);
    }
    if let Some(path) = ["external/xla", "tensorflow/"].into_iter().find(|path| whole.has(path)) {
        return absl_severity(own, whole, path);
    }
    // libfabric's own warnings, which tell errors of completions.
    let libfabric = whole.has("<warn>") && (whole.has("err:") || whole.has("error"));
    (libfabric || ["ERROR", "FATAL", "Error: ", "error: "].iter().any(|words| named(words))).then_some(false)
}

/// Returns whether a line of XLA or TensorFlow reports an error, by the letter that absl puts before the path of its source: a fatal
/// one ends its process. Of the others only those about other processes and the runtime count; every program of JAX prints that a
/// factory is registered twice.
fn absl_severity(own: &[u8], whole: Text<'_>, path: &str) -> Option<bool> {
    let near = own.get(..own.len().min(64)).unwrap_or_default();
    let place = crate::text::find(near, path.as_bytes()).unwrap_or(near.len());
    let letter = near[..place]
        .split(|byte| *byte == b' ')
        .find(|word| {
            matches!(word, [b'E' | b'F' | b'W' | b'I'])
                || matches!(word, [b'E' | b'F' | b'W' | b'I', digits @ ..] if digits.len() == 4 && digits.iter().all(u8::is_ascii_digit))
        })
        .and_then(<[u8]>::first)?;
    let serious = ["DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "may be stuck", "coordination"];
    match letter {
        // What TensorFlow's server prints whenever it is stopped.
        b'F' if whole.has("Clean shutdown is not currently implemented") => None,
        b'F' => Some(true),
        // A collective that TensorFlow gave up, in whatever severity.
        b'E' | b'W' if whole.has("BaseCollectiveExecutor::StartAbort") => Some(false),
        b'E' if serious.iter().any(|words| whole.has(words)) => Some(false),
        // Without a GPU it is another error, which programs that need none print too.
        b'E' if whole.has("failed call to cuInit: CUDA_ERROR_UNKNOWN") => Some(false),
        b'W' | b'E' if whole.has("unable to create StreamExecutor") => Some(false),
        _ => None,
    }
}

/// Reads NCCL's own lines. Returns whether the line needs no further search.
fn nccl(piece: &Piece<'_>, who: Writer, say: &mut impl FnMut(Writer, Content<'_>)) -> bool {
    let text = Text(piece.bytes);
    if let Some(what) = text.from("Cuda failure") {
        // NVLink SHARP has memory of its own, and rules of its own.
        if !text.has("NVLS") && !text.has("nvls.cc") {
            say(who, Content::Fact(Fact::Cuda(printable(what.0, 300))));
        }
        return true;
    }
    let Some(process) = piece.process() else { return false };
    if let Some(rest) = text.after("NCCL_HOSTID set by environment to ") {
        let id = std::str::from_utf8(rest.0).ok().and_then(|id| id.split_whitespace().next());
        say(who, Content::Host(process.host, id.map(|id| id.trim_end_matches('.'))));
    } else if let Some(rest) = text.after(" rank ") {
        let rank = rest.small();
        let world = rest.after("ranks ").and_then(Text::small);
        if let (Some(rank), Some(world)) = (rank, world)
            && rank < world
        {
            say(who, Content::Host(process.host, None));
            say(who, Content::Joined { rank, world, host: process.host.as_bytes() });
            if text.has("Destroy COMPLETE") {
                say(who, Content::Fact(Fact::Finished));
            }
        }
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ClusterReason;

    fn facts(lines: &[&str]) -> Vec<(Writer, Fact)> {
        let (mut table, mut found) = (Tables::default(), Vec::new());
        for line in lines {
            of_piece(&Piece::of(line.as_bytes()), &mut table, |who, said| {
                if let Content::Fact(fact) = said {
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
            "with errorcode 7.",
        ]);
        let tasks: Vec<_> = found.iter().map(|(who, _)| who.task.or(who.rank)).collect();
        assert_eq!(tasks, [Some(2), Some(3), Some(5), Some(3), Some(2)]);
        assert_eq!(found[2].1, Fact::Cluster(ClusterReason::OutOfMemory));
        assert_eq!(found[3].1, Fact::Signal(9));
        assert_eq!(found[4].1, Fact::exit(7, Order::First));
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
            of_piece(&Piece::of(line.as_bytes()), &mut tables, |who, said| {
                if let Content::On(host) = said {
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
        assert_eq!(row[0].1, Fact::exit(-7, Order::Unknown));
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

    /// A line that the search for words passes over is never read.
    #[test]
    fn the_search_finds_every_line_that_is_read() {
        let lists = ENDS.iter().map(std::slice::from_ref).chain(REPORTED.iter().copied());
        let lists = lists.chain(ERRNO.iter().map(std::slice::from_ref));
        for words in lists.chain(THROWN.iter().map(|(_, words)| *words)) {
            let line = words.concat() + " ";
            assert!(crate::lines::Candidates::is_one(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn what_a_library_throws_is_read_without_its_traceback() {
        for (line, name) in [
            (
                "2026/06/05 12:08:28 [/x/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation to complete",
                "gloo",
            ),
            ("Rank 1 failed to pass monitoredBarrier in 1200000 ms", "PyTorch"),
            (
                "Expected to have finished reduction in the prior iteration before starting a new one. This",
                "PyTorch",
            ),
        ] {
            let found = facts(&[line]);
            assert!(matches!(&found[0].1, Fact::Exception(one) if one.name == name), "{line}: {found:?}");
        }
        assert!(facts(&["    raise RuntimeError('Rank 1 failed to pass monitoredBarrier')"]).is_empty());
    }

    #[test]
    fn a_range_of_all_tasks_is_bounded() {
        assert_eq!(facts(&["srun: error: n1: tasks 0-4294967295: Killed"]).len(), 4096);
    }
}
