//! A backend with one job, a captured run: its ranks print their recorded output, at any speed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OnceCell, watch};
use weftrun_core::backend::{Backend, Capability, ClusterFacts, PlannedJob, Rendered, Scope};
use weftrun_core::job::{
    Action, JobDetail, JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus, SubmissionId,
};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, SourceId, logs_or_texts};
use weftrun_core::nccl::TransportMap;
use weftrun_core::text::rounded_size;
use weftrun_core::{Error, ErrorKind, Finding, Result};
use weftrun_diagnose::Sources;
use weftrun_diagnose::cause::WhyState;

use crate::Replay;

/// Name of the backend, and of its target.
pub const NAME: &str = "replay";

/// Largest total size of plain logs.
const MOST: u64 = 1 << 30;

/// A backend with one replayed job.
#[derive(Clone, Debug)]
pub struct ReplayBackend {
    tape: Arc<Tape>,
    handle: JobHandle,
    begun: Timestamp,
    speed: f64,
    /// When it was played to its end.
    over: watch::Sender<Option<Timestamp>>,
}

/// What the output shows of the job.
#[derive(Clone, Copy, Debug)]
struct Judged {
    /// How it ended.
    phase: JobPhase,
    /// Its nodes; 0 if no line tells them.
    nodes: u32,
}

/// Longest output that is read to know the nodes of the job and how it ended.
const MOST_JUDGED: u64 = 64 << 20;

/// The replayed output.
#[derive(Debug)]
struct Tape {
    sources: Vec<Arc<SourceId>>,
    lines: Lines,
    judged: OnceCell<Judged>,
}

#[derive(Debug)]
enum Lines {
    Replay(Replay),
    Files(Vec<PathBuf>),
}

/// Plain logs contain no timing: this many lines per second are played from each.
const PLAIN_LINES_A_SECOND: u64 = 1000;

impl ReplayBackend {
    /// Plays a replay. A speed of 1 is the recorded speed, 10 ten times faster, 0 all at once.
    pub fn replay(name: &str, replay: Replay, speed: f64) -> Self {
        let sources =
            (0..replay.world()).map(|rank| source(format!("rank{rank}"), Some(rank), rank)).collect();
        Self::new(name, sources, Lines::Replay(replay), speed)
    }

    /// Plays log files: files, and the `*.log`, `*.out`, `*.err`, `*.txt` of folders. Their ranks are those that the
    /// lines prove.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if they cannot be read, [`ErrorKind::NotFound`] if there are none,
    /// [`ErrorKind::Usage`] if they are too large.
    pub fn logs<P: AsRef<Path>>(paths: &[P], speed: f64) -> Result<Self> {
        let mut files: Vec<PathBuf> = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let found = found(path).map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot read {}", path.display())).with_source(error)
            })?;
            if found.is_empty() {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("there is no log in {}", path.display()),
                )
                .hint("a log is a file, or a folder with *.log, *.out, *.err or *.txt"));
            }
            // A file that is named twice is played once.
            files.extend(found.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
        }
        let size = size(&files);
        if size > MOST {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{} of logs are more than the {} that are played", rounded_size(size), rounded_size(MOST)),
            )
            .hint("open one file or folder of them, or cut it with `head -c 1G`; `weftrun transport` and `weftrun why` read logs of any size"));
        }
        let name = |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
        let of = |(file, at): (&PathBuf, u32)| source(name(file).unwrap_or_default(), None, at);
        let sources = files.iter().zip(0..).map(of).collect();
        let name = match paths {
            [path] => path.as_ref().file_name().map(|name| name.to_string_lossy().into_owned()),
            _ => None,
        };
        let name = name.unwrap_or_else(|| "logs".to_owned());
        Ok(Self::new(&name, sources, Lines::Files(files), speed))
    }

    fn new(name: &str, sources: Vec<Arc<SourceId>>, lines: Lines, speed: f64) -> Self {
        let tape = Tape { sources, lines, judged: OnceCell::new() };
        let speed = if speed.is_finite() { speed.max(0.0) } else { 1.0 };
        let handle = JobHandle::new(NAME, NAME, [name]);
        Self { tape: Arc::new(tape), handle, begun: now(), speed, over: watch::Sender::new(None) }
    }

    /// Returns the replayed job.
    pub fn handle(&self) -> &JobHandle {
        &self.handle
    }

    /// Returns when a line was written, if the capture recorded it: the recorded time after the start of the replay.
    fn recorded(&self, at_ms: u64) -> Option<Timestamp> {
        let after = SignedDuration::from_millis(i64::try_from(at_ms).ok()?);
        matches!(self.tape.lines, Lines::Replay(_)).then(|| self.begun.checked_add(after).ok()).flatten()
    }

    /// Returns when the last line was written, if the capture recorded it.
    fn recorded_end(&self) -> Option<Timestamp> {
        let mut last = 0;
        for at in 0..self.tape.sources.len() {
            self.tape.each_line(at, |at_ms, _| last = last.max(at_ms));
        }
        self.recorded(last)
    }

    /// Returns what the output shows of the job. It is read once.
    async fn judged(&self) -> Judged {
        let tape = self.tape.clone();
        let read = async {
            let read = tokio::task::spawn_blocking(move || tape.judge()).await;
            read.unwrap_or(Judged { phase: JobPhase::Unknown, nodes: 0 })
        };
        *self.tape.judged.get_or_init(|| read).await
    }

    async fn summary(&self) -> JobSummary {
        let judged = self.judged().await;
        let ended = *self.over.borrow();
        let phase = ended.map_or(JobPhase::Running, |_| judged.phase);
        let mut job = JobSummary::new(self.handle.clone(), phase);
        job.kind = "replay".to_owned();
        // When plain logs were written is not known.
        (job.created, job.ended) = (self.recorded(0), ended);
        job.ready = (if ended.is_some() { 0 } else { judged.nodes }, judged.nodes);
        if phase.is_terminal() {
            "played to its end".clone_into(&mut job.reason);
        }
        job
    }
}

fn size(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len())).sum()
}

/// Makes a source without a role: what its place in the job was is not known.
fn source(name: String, rank: Option<u32>, replica: u32) -> Arc<SourceId> {
    let mut source = SourceId::new(name);
    (source.rank, source.replica) = (rank, replica);
    Arc::new(source)
}

fn found(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let is_log =
        |file: &Path| file.extension().is_some_and(|end| ["log", "out", "err"].iter().any(|one| end == *one));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        files.push(entry?.path());
    }
    let mut found = logs_or_texts(files, is_log);
    found.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
    Ok(found)
}

impl Tape {
    /// Passes on all output of a source: milliseconds since the start, and the bytes.
    fn each_line(&self, at: usize, mut each: impl FnMut(u64, &[u8])) {
        match &self.lines {
            Lines::Replay(replay) => {
                let rank = u32::try_from(at).unwrap_or(u32::MAX);
                let Ok(()) = replay.each_line(rank, |at_ms, bytes| {
                    each(at_ms, bytes);
                    Ok::<(), std::convert::Infallible>(())
                });
            }
            Lines::Files(files) => {
                let bytes = files.get(at).and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
                for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
                    each(number as u64 * 1000 / PLAIN_LINES_A_SECOND, line);
                }
            }
        }
    }

    /// Reads the output for what it shows of the job.
    fn judge(&self) -> Judged {
        let unread = Judged { phase: JobPhase::Succeeded, nodes: 0 };
        if matches!(&self.lines, Lines::Files(files) if size(files) > MOST_JUDGED) {
            return unread;
        }
        let (mut map, mut read) = (TransportMap::new(), 0);
        for (at, source) in self.sources.iter().enumerate() {
            self.each_line(at, |_, line| {
                read += line.len() as u64;
                if read <= MOST_JUDGED {
                    map.read(source, line);
                }
            });
            map.end(source);
            if read > MOST_JUDGED {
                return unread;
            }
        }
        let phase = match Sources::of_logs(&map).diagnose().why.state {
            // Watchdogs ended those that hang.
            WhyState::Failed | WhyState::Hanging => JobPhase::Failed,
            _ => JobPhase::Succeeded,
        };
        Judged { phase, nodes: nodes(&map) }
    }
}

/// Returns the number of nodes that the lines of a job prove; 0 if they prove none: those of its ranks where each of them
/// prints lines of NCCL, else as many as NCCL counts.
fn nodes(map: &TransportMap) -> u32 {
    let map = map.snapshot();
    let Some(world) = map.communicators().into_iter().find(|comm| comm.world) else { return 0 };
    if world.seen_ranks.len() < world.nranks as usize {
        return world.nnodes.unwrap_or(0);
    }
    map.ranks().iter().map(|rank| rank.node + 1).max().unwrap_or(0)
}

/// The position in the replay.
struct Play {
    backend: ReplayBackend,
    wanted: Vec<usize>,
    /// Bytes of each source so far.
    offsets: Vec<u64>,
    /// The remaining output, the last first; empty if all is played at once.
    cues: Vec<(u64, usize, Vec<u8>)>,
    next: usize,
    begun: Instant,
    ready: std::collections::VecDeque<LogBatch>,
}

/// Lines that are due within this many milliseconds are sent together.
const TOGETHER_MS: u64 = 20;

impl Play {
    fn new(backend: ReplayBackend, options: &LogOptions) -> Self {
        let tape = backend.tape.clone();
        let wants = |at: &usize| {
            options.ranks.is_empty()
                || tape.sources[*at].rank.is_none_or(|rank| options.ranks.contains(&rank))
        };
        let wanted: Vec<usize> = (0..tape.sources.len()).filter(wants).collect();
        let mut cues = Vec::new();
        if backend.speed > 0.0 {
            for at in &wanted {
                tape.each_line(*at, |at_ms, bytes| cues.push((at_ms, *at, bytes.to_vec())));
            }
            cues.sort_by_key(|(at_ms, at, _)| (*at_ms, *at));
            cues.reverse();
        }
        let offsets = vec![0; tape.sources.len()];
        Self {
            backend,
            wanted,
            offsets,
            cues,
            next: 0,
            begun: Instant::now(),
            ready: std::collections::VecDeque::new(),
        }
    }

    async fn next(mut self) -> Option<(Result<LogBatch>, Self)> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some((Ok(batch), self));
            }
            if self.backend.speed > 0.0 {
                let Some(due) = self.cues.last().map(|(at_ms, ..)| *at_ms) else { break };
                let due = Duration::from_secs_f64(due as f64 / 1000.0 / self.backend.speed);
                tokio::time::sleep_until((self.begun + due).into()).await;
                self.cue();
            } else {
                let Some(at) = self.wanted.get(self.next).copied() else { break };
                self.next += 1;
                let mut lines = Vec::new();
                self.backend.tape.each_line(at, |at_ms, line| lines.push((at_ms, line.to_vec())));
                self.print(at, &lines);
            }
        }
        let at = self.backend.recorded_end().unwrap_or_else(now);
        self.backend.judged().await;
        self.backend.over.send_replace(Some(at));
        None
    }

    /// Prints what is due now.
    fn cue(&mut self) {
        let Some(first) = self.cues.last().map(|(at_ms, ..)| *at_ms) else { return };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds of a run")]
        let now = (self.begun.elapsed().as_secs_f64() * 1000.0 * self.backend.speed) as u64;
        let until = now.max(first + TOGETHER_MS);
        let mut due: std::collections::BTreeMap<usize, Vec<(u64, Vec<u8>)>> =
            std::collections::BTreeMap::new();
        while let Some((at_ms, at, bytes)) = self.cues.pop_if(|(at_ms, ..)| *at_ms <= until) {
            due.entry(at).or_default().push((at_ms, bytes));
        }
        for (at, lines) in due {
            self.print(at, &lines);
        }
    }

    /// Sends lines of a source, each with the milliseconds after the start at which it was written.
    fn print(&mut self, at: usize, lines: &[(u64, Vec<u8>)]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        let source = self.backend.tape.sources[at].clone();
        self.offsets[at] += bytes.len() as u64;
        let cursor = Cursor::at(&source, self.offsets[at]);
        let mut batch = LogBatch::new(source, bytes, cursor);
        // A line of the capture ends where a line of the batch does, unless it has no newline.
        let whole = lines.iter().filter(|(_, bytes)| bytes.ends_with(b"\n"));
        for (line, (at_ms, _)) in batch.lines.iter_mut().zip(whole) {
            line.time = self.backend.recorded(*at_ms);
        }
        self.ready.push_back(batch);
    }
}

fn only_plays<T>(what: &str) -> Result<T> {
    Err(Error::unsupported(NAME, what).hint("a replay is only looked at"))
}

#[async_trait]
impl Backend for ReplayBackend {
    fn capability(&self) -> Capability {
        Capability {
            backend: NAME.to_owned(),
            read_only: true,
            rank_logs: true,
            log_times: matches!(self.tape.lines, Lines::Replay(_)),
            max_name: 63,
            ..Capability::default()
        }
    }

    async fn discover(&self, _scope: &Scope) -> Result<ClusterFacts> {
        Ok(ClusterFacts::default())
    }

    fn render(&self, _job: &PlannedJob) -> Result<Rendered> {
        only_plays("submit")
    }

    async fn check(&self, _rendered: &Rendered) -> Result<Vec<Finding>> {
        only_plays("submit")
    }

    async fn submit(&self, _rendered: &Rendered) -> Result<JobHandle> {
        only_plays("submit")
    }

    async fn find(&self, _id: &SubmissionId) -> Result<Option<JobHandle>> {
        Ok(None)
    }

    async fn list(&self, _filter: &JobFilter) -> Result<Vec<JobSummary>> {
        Ok(vec![self.summary().await])
    }

    async fn describe(&self, _job: &JobHandle) -> Result<JobDetail> {
        let (summary, nodes) = (self.summary().await, self.judged().await.nodes);
        let mut detail = JobDetail::new(summary.clone());
        let node = |index| ReplicaStatus::new(format!("node{index}"), "worker", index, summary.phase);
        detail.replicas = (0..nodes).map(node).collect();
        Ok(detail)
    }

    async fn act(&self, _job: &JobHandle, _action: Action) -> Result<()> {
        only_plays("act")
    }

    fn watch(&self, _filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
        let (backend, mut over) = (self.clone(), self.over.subscribe());
        over.mark_changed();
        let told = stream::unfold((backend, over), |(backend, mut over)| async move {
            over.changed().await.ok()?;
            let job = backend.summary().await;
            Some((Ok(JobEvent::Status { job }), (backend, over)))
        });
        told.boxed()
    }

    fn logs(&self, _job: &JobHandle, options: LogOptions) -> BoxStream<'static, Result<LogBatch>> {
        let backend = self.clone();
        let play = async move { Play::new(backend, &options) };
        stream::once(play).flat_map(|play| stream::unfold(play, Play::next)).boxed()
    }
}

/// Returns the current time; 1970 where the clock is outside of what can be calculated with.
fn now() -> Timestamp {
    let time = Timestamp::try_from(std::time::SystemTime::now()).ok();
    let year = jiff::SignedDuration::from_hours(366 * 24);
    time.filter(|time| time.checked_add(year).is_ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capture, Shape};

    async fn played(backend: &ReplayBackend) -> Vec<Vec<u8>> {
        let mut logs = vec![Vec::new(); backend.tape.sources.len()];
        let mut stream = backend.logs(backend.handle(), LogOptions::follow());
        while let Some(batch) = stream.next().await {
            let batch = batch.unwrap();
            logs[batch.source.rank.unwrap() as usize].extend(batch.bytes);
        }
        logs
    }

    #[test]
    fn logs_that_are_too_large_name_the_limit_and_the_way_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MOST + (1 << 30)).unwrap();
        let error = ReplayBackend::logs(&[file.path()], 0.0).unwrap_err();
        assert_eq!(error.to_string(), "2 GiB of logs are more than the 1 GiB that are played");
        assert!(error.hints()[0].contains("`weftrun why` read logs of any size"), "{:?}", error.hints());
    }

    #[tokio::test]
    async fn every_pace_plays_the_same_bytes() {
        let capture = Capture::shipped("socket_2x2").unwrap();
        let backend = |speed| ReplayBackend::replay("wide", capture.scale(Shape::new(2, 4)).unwrap(), speed);
        let at_once = backend(0.0);
        let logs = played(&at_once).await;
        assert_eq!(at_once.list(&JobFilter::all()).await.unwrap()[0].phase, JobPhase::Succeeded);
        assert_eq!(logs.len(), 8);
        assert!(logs.iter().all(|log| !log.is_empty()));
        assert_eq!(played(&backend(1000.0)).await, logs);
    }

    #[tokio::test]
    async fn nodes_are_those_that_the_lines_prove() {
        let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose/tests/cases/nccl/captures");
        let failures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/failures");
        for (folder, nodes) in [
            (captures.join("p2p_default"), 1),
            (captures.join("three_one"), 2),
            (captures.join("four_nodes"), 4),
            (captures.join("node1_silent"), 2),
            (captures.join("torchrun_restart"), 1),
            // No line tells it.
            (captures.join("debug_warn_only"), 0),
            (failures.join("exception_nodebug"), 0),
            (failures.join("import_error"), 0),
        ] {
            let backend = ReplayBackend::logs(&[&folder], 0.0).unwrap();
            assert_eq!(backend.summary().await.ready, (nodes, nodes), "{}", folder.display());
            let detail = backend.describe(backend.handle()).await.unwrap();
            assert_eq!(detail.replicas.len(), nodes as usize, "{}", folder.display());
        }
        let one_host = Capture::shipped("p2p_default").unwrap();
        assert_eq!(ReplayBackend::replay("one", one_host.exact(), 0.0).summary().await.ready, (1, 1));
        let wide = Capture::shipped("socket_2x2").unwrap().scale(Shape::new(5, 3)).unwrap();
        assert_eq!(ReplayBackend::replay("wide", wide, 0.0).summary().await.ready, (5, 5));
    }

    #[tokio::test]
    async fn a_replay_ends_as_its_job_did() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/failures");
        for (case, phase) in [
            ("sigkill", JobPhase::Failed),
            ("exception", JobPhase::Failed),
            ("ok", JobPhase::Succeeded),
            ("slow", JobPhase::Succeeded),
        ] {
            let backend = ReplayBackend::logs(&[Path::new(cases).join(case)], 0.0).unwrap();
            let mut logs = backend.logs(backend.handle(), LogOptions::follow());
            while logs.next().await.is_some() {}
            assert_eq!(backend.summary().await.phase, phase, "{case}");
        }
    }
}
