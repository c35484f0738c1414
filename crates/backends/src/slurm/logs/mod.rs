//! A job's log, followed by byte offset over local files or ssh. No byte is lost or repeated by a lost
//! connection, a truncated file or a requeue, since every poll names its start offset.

mod file;
mod options;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weftrun_core::Result;
use weftrun_core::job::{JobHandle, JobPhase};
use weftrun_core::log::{Cursor, LogBatch, LogOptions, Mark, SourceId};

use super::client::Client;
use super::ids::JobId;
use super::lookup::{self, JobRows};
use super::task_files::{Owner, TaskFiles};
use super::{BACKEND, quote};
use crate::refusals;
use crate::remote::piece::{self, Piece};
use crate::stream::{Feed, put};
use file::{LogFile, OfTasks};
use options::Selection;

pub use streams::Header;

/// Largest number of bytes of one file in one poll.
const CHUNK: u64 = 4 << 20;
/// The pause after a poll that returned something; it doubles while nothing comes.
const SHORTEST: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2);

/// Feeds the log of a job.
pub async fn read(
    client: Arc<Client>,
    handle: JobHandle,
    options: LogOptions,
    feed: Feed<LogBatch>,
) -> Result<()> {
    refusals::log_times(&options, BACKEND)?;
    let id = JobId::of(&handle)?;
    // Nobody may know the end of a job whose log is there: slurmctld forgets it, and a full disk takes no exit code.
    let found = lookup::look(&client, &id).await?;
    let paths = match &found {
        Some(found) => foreign_paths(&client, &id, found).await?,
        None => Vec::new(),
    };
    let mut reader = Reader {
        paths,
        client,
        id,
        files: BTreeMap::new(),
        lost: false,
        unreadable: BTreeSet::new(),
        of_tasks: Vec::new(),
        others: BTreeSet::new(),
    };
    let mut out = Selection::new(&options, feed);
    let (mut pause, mut quiet_since) = (SHORTEST, Instant::now());
    loop {
        let (terminal, cut_short, exit_code) =
            if options.follow { reader.state().await? } else { reader.state_of(found.as_ref()) };
        let (got, more) = reader.look(&mut out).await?;
        if found.is_none() && !reader.lost && reader.files.is_empty() && reader.unreadable.is_empty() {
            return Err(lookup::not_found(&reader.client, &reader.id));
        }
        if out.is_closed() {
            return Ok(());
        }
        if got {
            (pause, quiet_since) = (SHORTEST, Instant::now());
        }
        if more {
            continue;
        }
        if options.follow && !reader.lost {
            out.flush().await;
        }
        let said_its_end = reader.files.values().any(LogFile::is_complete) && !cut_short;
        let settled = quiet_since.elapsed() >= reader.client.settings.settle() && !reader.lost;
        if !options.follow || (terminal && !reader.lost && (said_its_end && !got || settled)) {
            return reader.finish(&mut out, terminal, !cut_short, exit_code).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(if terminal { Duration::from_millis(500) } else { LONGEST });
    }
}

/// Returns the files of a job that weftrun did not submit: its output and error, as Slurm names them.
async fn foreign_paths(client: &Client, id: &JobId, found: &JobRows) -> Result<Vec<String>> {
    if found.rows.iter().any(|job| job.marker.is_some()) {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for shown in client.shown(id).await? {
        for path in [shown.stdout, shown.stderr].into_iter().flatten().map(|path| expand(&path, id, found)) {
            if path.starts_with('/') && path != "/dev/null" && !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Expands the patterns that `scontrol` leaves in a path, which differ between releases.
fn expand(path: &str, id: &JobId, found: &JobRows) -> String {
    let first = found.rows.first();
    let name = first.map_or("", |job| job.name.as_str());
    let node =
        first.and_then(|job| super::nodelist::expand(&job.nodes).into_iter().next()).unwrap_or_default();
    let number = id.number.to_string();
    [
        ("%j", number.as_str()),
        ("%J", &number),
        ("%A", &number),
        ("%x", name),
        ("%N", &node),
        ("%n", "0"),
        ("%t", "0"),
        ("%s", "batch"),
        ("%%", "%"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (pattern, value)| path.replace(pattern, value))
}

/// The files of one job, and the position in each.
struct Reader {
    client: Arc<Client>,
    id: JobId,
    /// Fixed paths of a job that weftrun did not submit.
    paths: Vec<String>,
    files: BTreeMap<String, LogFile>,
    lost: bool,
    /// Files of the job that the user may not read.
    unreadable: BTreeSet<String>,
    /// The files of the tasks, if their output is not in the job's log.
    of_tasks: Vec<(TaskFiles, OfTasks)>,
    /// Files in the same folders that belong to no task of the job.
    others: BTreeSet<String>,
}

impl Reader {
    /// Returns whether the job has ended, whether its processes were stopped from outside (then lines follow
    /// its last one), and its exit code.
    async fn state(&mut self) -> Result<(bool, bool, Option<i32>)> {
        match lookup::look(&self.client, &self.id).await {
            Ok(found) => Ok(self.state_of(found.as_ref())),
            Err(error) if error.is_retryable() => Ok((false, false, None)),
            Err(error) => Err(error),
        }
    }

    fn state_of(&self, found: Option<&JobRows>) -> (bool, bool, Option<i32>) {
        let Some(found) = found else { return (true, false, None) };
        let summary = found.summary(super::submit::handle(&self.client, &self.id));
        let by_itself = found.rows.iter().all(|job| matches!(job.state.as_str(), "COMPLETED" | "FAILED"));
        (summary.phase.is_terminal(), summary.phase == JobPhase::Cancelled || !by_itself, summary.exit_code)
    }

    /// Polls all files; returns whether something came, and whether more is available at once.
    async fn look(&mut self, out: &mut Selection) -> Result<(bool, bool)> {
        let nonce = format!("{:016x}", fastrand::u64(..));
        let program = self.program(&nonce, out)?;
        let answer = match self.client.transport.run(&program).await {
            Ok(answer) => answer,
            Err(error) if error.is_retryable() => {
                tracing::debug!(%error, "reading a log");
                self.lost = true;
                return Ok((false, false));
            }
            Err(error) => return Err(error),
        };
        let resumed = std::mem::take(&mut self.lost);
        let refused = format!("{nonce}! ");
        for path in answer.stderr.lines().filter_map(|line| line.strip_prefix(&refused)) {
            if self.unreadable.insert(path.to_owned()) {
                out.pass(self.missing(format!("{path} cannot be read: permission denied"))).await;
            }
        }
        let (mut got, mut more) = (false, false);
        for piece in Piece::all(&answer.stdout, nonce.as_bytes()) {
            let Some(file) = self.file_of(&piece.path, out) else { continue };
            got |= !piece.bytes.is_empty();
            more |= piece.bytes.len() as u64 >= CHUNK;
            let batches = file.take(&piece, resumed);
            out.knows(file.header())?;
            let header = file.header().filter(|header| header.files().is_some()).cloned();
            more |= header.is_some_and(|header| self.learn(&piece.path, header));
            for batch in batches {
                out.offer(batch).await;
            }
        }
        Ok((got, more))
    }

    /// Returns the state of a file; none if it is not of this job.
    fn file_of(&mut self, path: &str, out: &Selection) -> Option<&mut LogFile> {
        if !self.files.contains_key(path) {
            let base = path.rsplit('/').next().unwrap_or(path);
            // Two tasks of an array can have files of the same name in different folders.
            let name = path.trim_start_matches('/');
            let of_tasks = self
                .of_tasks
                .iter()
                .find_map(|(files, of)| Some(OfTasks { owner: files.owner(path)?, ..of.clone() }));
            let file = match of_tasks {
                Some(of) => LogFile::of_tasks(name, &self.id, out.start_of(name), of),
                None if self.paths.is_empty() && !is_log_of(base, &self.id) => {
                    self.others.insert(path.to_owned());
                    return None;
                }
                None => LogFile::new(base, &self.id, out.start_of(base)),
            };
            self.files.insert(path.to_owned(), file);
        }
        self.files.get_mut(path)
    }

    /// Records where the tasks of the job write, according to its log; returns whether that is new.
    fn learn(&mut self, log: &str, header: Header) -> bool {
        let log = log.rsplit('/').next().unwrap_or(log).to_owned();
        // In a job that weftrun did not submit, any program may have printed the line.
        if !self.paths.is_empty() || self.of_tasks.iter().any(|(_, known)| known.log == log) {
            return false;
        }
        let reached = |pattern: &str| self.client.settings.reached(pattern);
        let Some(files) = header.files().and_then(reached).and_then(|text| TaskFiles::expanded(&text)) else {
            return false;
        };
        self.of_tasks.push((files, OfTasks { header, owner: Owner::default(), log }));
        true
    }

    fn program(&self, nonce: &str, out: &Selection) -> Result<String> {
        let mut text = self.client.enter_log_dir()?;
        text.push_str(&piece::reader(nonce, CHUNK));
        let mut known = String::new();
        for (path, file) in &self.files {
            known.push_str(&format!(
                "{}) o={} h={};;\n",
                quote::word(path)?,
                file.offset(),
                u8::from(file.wants_header())
            ));
        }
        for (name, offset) in out.starts() {
            // A file that is resumed from a cursor, before its first poll.
            if !self.files.keys().any(|path| path.ends_with(&format!("/{name}"))) {
                known.push_str(&format!("*/{}) o={offset} h=1;;\n", quote::word(name)?));
            }
        }
        for path in &self.others {
            known.push_str(&format!("{}) continue;;\n", quote::word(path)?));
        }
        let mut list = if self.paths.is_empty() {
            let id = &self.id;
            format!("\"$dir\"/*-{id}-????????.log \"$dir\"/*-{id}_*-????????.log")
        } else {
            quote::words(&self.paths)?
        };
        for (files, _) in &self.of_tasks {
            list = format!("{list} {}", files.glob()?);
        }
        text.push_str(&format!(
            "for f in {list}; do\no=0 h=0\ncase $f in\n{known}esac\nweftrun_read \"$f\" $o $h\ndone\n:\n"
        ));
        Ok(text)
    }

    /// Returns a mark for a missing log.
    fn missing(&self, reason: String) -> LogBatch {
        let mut source = SourceId::new("batch");
        source.uid = format!("{}/batch", self.id);
        LogBatch::marked(Arc::new(source), Mark::Gap { reason }, Cursor::default())
    }

    async fn finish(
        &mut self,
        out: &mut Selection,
        terminal: bool,
        by_itself: bool,
        exit_code: Option<i32>,
    ) -> Result<()> {
        for file in self.files.values_mut() {
            if let Some(batch) = file.rest() {
                out.offer(batch).await;
            }
        }
        out.flush().await;
        if terminal && self.files.is_empty() && self.unreadable.is_empty() && exit_code.is_some() {
            let dir = self.client.settings.log_dir();
            let reason =
                format!("the cluster has no log file of job {} in {dir}: it was removed or moved", self.id);
            out.pass(self.missing(reason)).await;
        }
        if terminal {
            for file in self.files.values_mut() {
                if let Some(gap) = file.gap(exit_code).filter(|_| by_itself) {
                    out.pass(gap).await;
                }
                for batch in file.ends(exit_code) {
                    out.pass(batch).await;
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a file name matches a log of this job: `NAME-ID-SUBMISSION.log`, or of a task of its array.
fn is_log_of(name: &str, id: &JobId) -> bool {
    let parts = name.strip_suffix(".log").and_then(|name| {
        let (rest, short) = name.rsplit_once('-')?;
        Some((rest.rsplit_once('-')?.1, short))
    });
    let Some((printed, short)) = parts else { return false };
    short.len() == 8 && JobId::parse(printed).is_some_and(|found| found.number == id.number)
}

/// Sends a batch; a reader that is gone ends the stream at its next poll.
async fn send(feed: &Feed<LogBatch>, batch: LogBatch) {
    put(feed, batch).await;
}

/// Parses bytes as a job's log, in two pieces, and as the framed answer that contains one.
#[cfg(fuzzing)]
pub fn fuzz_log(id: &JobId, bytes: &[u8]) {
    let mut file = LogFile::new("fuzz.log", id, None);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut offset = 0;
    for part in [first, second] {
        let piece =
            Piece { inode: 1, size: bytes.len() as u64, offset, bytes: part.to_vec(), ..Piece::default() };
        file.take(&piece, false);
        offset += part.len() as u64;
    }
    file.rest();
    file.ends(None);
    Piece::all(bytes, b"ab");
}
