//! Evidence from inside a running job, by commands beside its ranks: dumps of PyTorch's flight recorder, and Python stacks.
//! Nothing of it is collected unasked.

mod counters;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use weftrun_core::backend::{ExecRequest, ExecStream};
use weftrun_core::job::JobPhase;
use weftrun_core::log::{LogOptions, clean_text};
use weftrun_core::nccl::flight_recorder::FlightRecorder;
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::cause::{Stack, Why};
use weftrun_diagnose::{Sources, flight_recorder};

use crate::Job;
use crate::diagnosis::ReadLogs;
use crate::health::places;

/// What [`Job::inspect`] collects inside a job.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// Dumps of PyTorch's flight recorder, of all ranks.
    pub dumps: bool,
    /// Stacks of the ranks that the cause names, by `py-spy`.
    pub stacks: bool,
}

const DUMP: &str = include_str!("dump.sh");
const STACK: &str = include_str!("stack.sh");
/// Exit code of the scripts: the ranks have no pipe or no process.
const NONE_FOUND: i32 = 96;
/// Exit code of a script that found no program to work with.
pub(crate) const NO_TOOL: i32 = 98;

/// Seconds to wait for the dumps of one node. PyTorch reads its pipe once a second.
const WAIT: u32 = 10;
/// Time between two dumps of a job. A collective that is as far in both is one that waits.
const BETWEEN: Duration = Duration::from_secs(3);
/// Most nodes that are queried, and how many of them at the same time.
const MOST_PLACES: usize = 4096;
const AT_ONCE: usize = 8;
/// Most bytes of the dumps of one node, and of a stack; PyTorch's dump of 2,000 collectives with stacks has about 3 MB.
const MOST_DUMPS: usize = 128 << 20;
const MOST_STACK: usize = 256 << 10;
/// Most ranks without a dump, and most notes, that are listed.
const MOST_SILENT: usize = 65_536;
const MOST_NOTES: usize = 16;
/// Most ranks whose stacks are read.
const MOST_STACKS: usize = 8;
/// Time after which no further ranks are tried for dumps that are missing.
const FURTHER: Duration = Duration::from_secs(300);
/// Time limit of one command.
const LIMIT: Duration = Duration::from_secs(60);

/// The end of a command beside a rank.
pub(crate) struct Done {
    pub code: i32,
    pub out: Vec<u8>,
    err: Vec<u8>,
}

impl Done {
    /// Returns the last line of its messages.
    pub fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.err);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        clean_text(&last.chars().take(200).collect::<String>()).into_owned()
    }
}

#[derive(Default)]
struct Dumps {
    recorder: FlightRecorder,
    /// Ranks with a pipe that wrote no dump in time, or an unreadable one.
    silent: Vec<u32>,
    notes: Vec<String>,
}

impl Job {
    /// Finds out why a running job hangs, as [`Job::why`] does, and collects what is requested inside the job. Its processes
    /// continue; `py-spy` stops one for a moment.
    ///
    /// ```no_run
    /// # async fn example(job: weftrun::Job) -> weftrun::Result<()> {
    /// let mut what = weftrun::Inspection::default();
    /// what.dumps = true;
    /// let why = job.inspect(what).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the job does not run or its ranks have no pipe, and [`ErrorKind::Unsupported`] as [`Job::exec`].
    /// An error beside one rank is a finding, or the text of its stack.
    pub async fn inspect(&self, what: Inspection) -> Result<Why> {
        let detail = self.describe().await?;
        let phase = detail.summary.phase;
        if !matches!(phase, JobPhase::Running | JobPhase::Restarting) {
            let message =
                format!("the job is {}; dumps and stacks come from running processes", phase.as_str());
            return Err(Error::new(ErrorKind::Refused, message)
                .with("job", self.handle())
                .hint("leave the flag out: `weftrun why JOB` reads the logs alone"));
        }
        let ReadLogs { map, unread, .. } = self.read_logs(LogOptions::default()).await;
        let mut why = Sources::of_logs(&map).plan(self.plan()).job(Some(&detail)).diagnose().why;
        why.findings.extend(unread.map(|message| Finding::warning("WHY-LOGS-UNREAD", message)));
        if what.dumps {
            self.explain_by_dumps(&mut why, &places(&map)).await?;
        }
        if what.stacks {
            let ranks = why.cause.as_ref().map(|cause| cause.ranks.clone()).unwrap_or_default();
            if ranks.is_empty() {
                let message = "no stack was read: no rank is named as the cause";
                why.findings.push(
                    Finding::info("WHY-INSPECTION", message)
                        .fix("name a rank yourself: `weftrun exec JOB --rank N -- py-spy dump --pid PID`"),
                );
            }
            for rank in ranks.into_iter().take(MOST_STACKS) {
                why.stacks.push(of_rank(rank, self.stack(rank).await)?);
            }
        }
        self.keep_seen(&why, false);
        Ok(why)
    }

    async fn explain_by_dumps(&self, why: &mut Why, places: &[u32]) -> Result<()> {
        let note = |message: String, ranks: Vec<u32>| {
            let mut finding = Finding::info("WHY-INSPECTION", message);
            finding.ranks = ranks;
            finding
        };
        let Dumps { recorder, silent, notes } = self.dumps(places).await?;
        why.findings.extend(notes.into_iter().map(|message| note(message, Vec::new())));
        if !silent.is_empty() {
            let message = "ranks wrote no readable dump of the flight recorder within the time limit";
            why.findings.push(note(message.to_owned(), silent));
        }
        let (ranks, mut disagreements) = (recorder.ranks().count(), recorder.disagreements());
        // The dumps of a large job are gigabytes: not those of both times at once.
        drop(recorder);
        if !disagreements.is_empty() {
            // Ranks of a job that runs well are dumped at different moments, and so in different collectives.
            tokio::time::sleep(BETWEEN).await;
            match self.dumps(places).await {
                Ok(later) => {
                    let later = later.recorder.disagreements();
                    disagreements.retain(|one| later.contains(one));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    let message =
                        format!("one dump shows ranks that wait for others, a second one failed: {error}");
                    why.findings.push(note(message, Vec::new()));
                    return Ok(());
                }
            }
        }
        flight_recorder::explain(why, &disagreements);
        if disagreements.is_empty() && ranks > 0 {
            let message = format!(
                "the flight recorder of {ranks} ranks shows no collective in which ranks wait for others"
            );
            why.findings.push(note(message, Vec::new()));
        }
        Ok(())
    }

    /// Requests a dump of every rank: beside one rank of each node that the logs name, and then wherever a member of a process
    /// group has none yet.
    async fn dumps(&self, places: &[u32]) -> Result<Dumps> {
        let mut dumps = Dumps::default();
        let mut tried: BTreeSet<u32> = BTreeSet::new();
        let mut without = None;
        let end = tokio::time::Instant::now() + FURTHER;
        let mut next: Vec<Option<u32>> = match places {
            [] => vec![None],
            places => places.iter().copied().map(Some).collect(),
        };
        while !next.is_empty() {
            tried.extend(next.iter().flatten());
            let round = next
                .into_iter()
                .map(|rank| async move { (rank, self.script(rank, DUMP, WAIT, MOST_DUMPS).await) });
            let mut round = futures_util::stream::iter(round).buffer_unordered(AT_ONCE);
            while let Some((rank, done)) = round.next().await {
                match done {
                    Ok(done) if done.code == NONE_FOUND => without = rank.or(Some(0)),
                    Ok(done) => dumps.take(&done),
                    Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Interrupted) => {
                        return Err(error);
                    }
                    Err(error) => {
                        let place = rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
                        dumps.note(format!("{place}{error}"));
                    }
                }
            }
            let covered: BTreeSet<u32> = dumps.recorder.ranks().chain(dumps.silent.iter().copied()).collect();
            next = further(dumps.recorder.members(), &covered, &tried).into_iter().map(Some).collect();
            // The members are what a dump says, and a dump is text from outside.
            next.truncate(MOST_PLACES.saturating_sub(tried.len()));
            if !next.is_empty() && tokio::time::Instant::now() > end {
                dumps.note(format!("after {} s no dump of further ranks was requested", FURTHER.as_secs()));
                break;
            }
        }
        match without {
            Some(rank) if dumps.recorder.ranks().next().is_none() && dumps.silent.is_empty() => {
                Err(Error::new(ErrorKind::Refused, "the ranks have no pipe through which a dump can be requested")
                    .with("beside rank", rank)
                    .hint("submit with `--fabric-rule observe.flight-recorder`, which sets TORCH_NCCL_DEBUG_INFO_PIPE_FILE"))
            }
            _ => Ok(dumps),
        }
    }

    /// Reads the stack of a rank's process. A missing tool is the text of the answer.
    async fn stack(&self, rank: u32) -> Result<Stack> {
        let done = self.script(Some(rank), STACK, rank, MOST_STACK).await?;
        let text = String::from_utf8_lossy(&done.out).into_owned();
        let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let pid = head.strip_prefix("weftrun-stack ").and_then(|pid| pid.trim().parse().ok());
        let text = match done.code {
            NONE_FOUND => "no Python process of this rank was found".to_owned(),
            NO_TOOL => {
                "the image has no py-spy: install it with pip, in the image or in the running container"
                    .to_owned()
            }
            _ if rest.trim().is_empty() => {
                format!("py-spy printed nothing (exit code {}): {}", done.code, done.complaint())
            }
            0 => rest.lines().map(|line| format!("{}\n", clean_text(line))).collect(),
            code => {
                let last = rest.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                let last = clean_text(last);
                format!("{last}\npy-spy ended with exit code {code}; in a container it needs SYS_PTRACE")
            }
        };
        Ok(Stack { rank, pid, text })
    }

    /// Runs a shell script with one argument beside a rank.
    async fn script(&self, rank: Option<u32>, script: &str, argument: u32, most: usize) -> Result<Done> {
        let mut request = ExecRequest::new(["sh", "-c", script, "weftrun", &argument.to_string()]);
        request.rank = rank;
        match tokio::time::timeout(LIMIT, self.collect(&request, most)).await {
            Ok(done) => done,
            Err(_) => {
                Err(Error::new(ErrorKind::Unreachable, format!("no answer within {} s", LIMIT.as_secs())))
            }
        }
    }

    /// Runs a command beside a rank and returns its output. More than `most` bytes of it are an error; more than 64 KiB of
    /// messages are dropped.
    pub(crate) async fn collect(&self, request: &ExecRequest, most: usize) -> Result<Done> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut sink = |stream, bytes: &[u8]| {
            let (to, most) = match stream {
                ExecStream::Stdout => (&mut out, most),
                ExecStream::Stderr => (&mut err, 64 << 10),
            };
            let free = most.saturating_sub(to.len());
            to.extend_from_slice(bytes.get(..free).unwrap_or(bytes));
            if bytes.len() > free && stream == ExecStream::Stdout {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    format!("the command printed more than {most} bytes"),
                ));
            }
            Ok(())
        };
        let code = self.exec(request, &mut sink).await?;
        Ok(Done { code, out, err })
    }
}

/// Returns the ranks beside which to continue: of the members without a dump, those that are likely the first of their node, since
/// launchers place ranks in order, or else one after another.
fn further(members: BTreeSet<u32>, covered: &BTreeSet<u32>, tried: &BTreeSet<u32>) -> Vec<u32> {
    let node = covered.len().max(1);
    let left: Vec<u32> =
        members.into_iter().filter(|rank| !covered.contains(rank) && !tried.contains(rank)).collect();
    let firsts: Vec<u32> =
        left.iter().copied().filter(|rank| (*rank as usize).is_multiple_of(node)).collect();
    if firsts.is_empty() { left.into_iter().take(1).collect() } else { firsts }
}

/// Turns an error beside one rank, which may have ended since, into the text of its stack: the cause is an answer without it.
fn of_rank(rank: u32, stack: Result<Stack>) -> Result<Stack> {
    match stack {
        Err(error) if !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Interrupted) => {
            let text = format!("no stack was read: {}", clean_text(&error.to_string()));
            Ok(Stack { rank, pid: None, text })
        }
        stack => stack,
    }
}

impl Dumps {
    /// Takes the output of [`DUMP`] on one node.
    fn take(&mut self, done: &Done) {
        let mut rest = done.out.as_slice();
        let mut any = false;
        while let Some((rank, dump, behind)) = dump(rest) {
            rest = behind;
            any = true;
            match dump.map(|dump| self.recorder.add(rank, dump)) {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    self.note(format!("the dump of rank {rank} is unreadable: {error}"));
                    self.be_silent(rank);
                }
                None => self.be_silent(rank),
            }
        }
        if !any {
            self.note(format!("a node printed no dump (exit code {}): {}", done.code, done.complaint()));
        }
    }

    fn note(&mut self, message: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(message);
        }
    }

    fn be_silent(&mut self, rank: u32) {
        if self.silent.len() < MOST_SILENT {
            self.silent.push(rank);
        }
    }
}

/// Reads `weftrun-dump RANK [BYTES]` and the bytes; returns the rank, the dump and the rest.
#[allow(clippy::type_complexity, reason = "the caller takes it apart at once")]
fn dump(output: &[u8]) -> Option<(u32, Option<&[u8]>, &[u8])> {
    let line = output.split(|byte| *byte == b'\n').next()?;
    let rest = output.get(line.len() + 1..)?;
    let mut words = std::str::from_utf8(line).ok()?.strip_prefix("weftrun-dump ")?.split_whitespace();
    let rank = words.next()?.parse().ok()?;
    match words.next() {
        None => Some((rank, None, rest)),
        Some(size) => {
            let (dump, rest) = rest.split_at_checked(size.parse().ok()?)?;
            Some((rank, Some(dump), rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftrun_testkit::child;

    #[test]
    fn the_scripts_are_ones_that_shells_read() {
        for (shell, script) in [("sh", DUMP), ("bash", DUMP), ("sh", STACK), ("bash", STACK)] {
            let checked = child::command(shell).args(["-n", "-c", script]).output().unwrap();
            assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }

    /// A shell in place of a rank, ended when it is dropped.
    struct Rank(std::process::Child);

    impl Rank {
        fn start(prefix: &str, submission: &str, script: &str) -> Self {
            let mut shell = child::command("sh");
            shell.args(["-c", script, "rank", prefix]).env("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", prefix);
            Self(shell.env("WEFTRUN_SUBMISSION", submission).spawn().unwrap())
        }
    }

    impl Drop for Rank {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_rank_without_an_answer_makes_no_other_rank_silent() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = format!("{}/fr-", folder.path().display());
        let (job, other) = (format!("job-{prefix}"), format!("other-{prefix}"));
        let pipes: Vec<String> = (0..4).map(|rank| format!("{prefix}{rank}.pipe")).collect();
        assert!(child::command("mkfifo").args(&pipes).status().unwrap().success());
        let open = |rank: u32| format!("exec 3<>\"$1{rank}.pipe\"; touch \"$1{rank}.open\";");
        // Rank 0 never answers, rank 2 has ended, and rank 3 is that of another job of the same name.
        let _ranks = [
            Rank::start(&prefix, &job, &format!("{} exec sleep 60", open(0))),
            Rank::start(
                &prefix,
                &job,
                &format!("{} while read _ <&3; do printf abc >\"${{1}}1\"; done", open(1)),
            ),
            Rank::start(&prefix, &other, &format!("{} exec sleep 60", open(3))),
        ];
        while [0, 1, 3].iter().any(|rank| !std::path::Path::new(&format!("{prefix}{rank}.open")).exists()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        for shell in ["sh", "bash"] {
            let mut dump = child::command(shell);
            dump.args(["-c", DUMP, "weftrun", "2"]).env("WEFTRUN_EXEC_OF", &job);
            for name in ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"] {
                dump.env(name, &prefix);
            }
            let output = dump.output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed, "weftrun-dump 1 3\nabcweftrun-dump 0 \n", "{shell}: {output:?}");
        }
    }

    #[test]
    fn every_node_is_asked_once_if_ranks_are_placed_in_order() {
        let set = |ranks: std::ops::Range<u32>| ranks.collect::<BTreeSet<u32>>();
        assert_eq!(further(set(0..16), &set(0..4), &BTreeSet::new()), [4, 8, 12]);
        assert_eq!(further(set(0..16), &set(0..16), &set(0..1)), [] as [u32; 0]);
        // Where they are not, the rest follows one by one, and no rank is asked twice.
        let covered: BTreeSet<u32> = [0, 2, 4].into();
        assert_eq!(further(set(0..6), &covered, &BTreeSet::new()), [3]);
        assert_eq!(further(set(0..6), &covered, &[3].into()), [1]);
        assert_eq!(further(set(0..6), &covered, &[1, 3, 5].into()), [] as [u32; 0]);
    }

    #[test]
    fn a_rank_that_has_ended_leaves_the_rest_of_the_answer() {
        let failed = |kind| Err(Error::new(kind, "the rank has\u{1b}[2J ended"));
        let stack = of_rank(3, failed(ErrorKind::Refused)).unwrap();
        assert_eq!((stack.rank, stack.pid), (3, None));
        assert!(stack.text.contains("ended") && !stack.text.contains('\u{1b}'), "{}", stack.text);
        assert!(of_rank(3, failed(ErrorKind::Unsupported)).is_err(), "this backend has no exec");
    }

    #[test]
    fn the_notes_on_many_ranks_are_few() {
        let mut dumps = Dumps::default();
        let out: String = (0..100).map(|rank| format!("weftrun-dump {rank} 1\nx")).collect();
        dumps.take(&Done { code: 0, out: out.into_bytes(), err: Vec::new() });
        assert_eq!((dumps.silent.len(), dumps.notes.len()), (100, MOST_NOTES));
    }

    #[test]
    fn a_torn_output_gives_the_dumps_before_it() {
        let output = b"weftrun-dump 3 4\nab\nc\nweftrun-dump 4 \nweftrun-dump 5 9\nshort";
        let (rank, bytes, rest) = dump(output).unwrap();
        assert_eq!((rank, bytes), (3, Some(&b"ab\nc"[..])));
        assert_eq!(dump(rest), None, "the dump ended with a byte that was not announced");
        let (rank, bytes, rest) = dump(&rest[1..]).unwrap();
        assert_eq!((rank, bytes), (4, None));
        assert_eq!(dump(rest), None);
        for hostile in
            ["", "\n", "weftrun-dump", "weftrun-dump x 1\n", "weftrun-dump 1 99999999999999999999\nx"]
        {
            assert_eq!(dump(hostile.as_bytes()), None, "{hostile}");
        }
    }
}
