//! The history of a target: a line for each job that ended, from which nodes are judged.
//!
//! ```text
//! history/TARGET.jsonl    a JobRecord a line; the newest record of a run counts. Or what was folded, or forgotten
//! ```
//! Several processes append to it. What is too old for the judgement is folded into the number of runs of each node, so that
//! the file stays small.

mod file;
#[cfg(feature = "log-files")]
mod nvrx;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::backend::TargetConfig;
use weftrun_core::spec::{LeftOut, is_node_name};
use weftrun_core::text::percent::encode;
use weftrun_core::{Error, ErrorKind, Result};
use weftrun_diagnose::nodes::{Fault, FoldedRuns, JobRecord, NodeReport, NodeRuns, RunId, WINDOW, judge};

use crate::{Config, files};
use file::Locked;
#[cfg(feature = "log-files")]
pub use nvrx::Imported;

/// Size from which on a file is made shorter.
const LARGE: u64 = 32 << 20;
/// Growth after which that is tried again where it failed: it reads the whole file.
const AGAIN: u64 = 1 << 20;
/// The backend whose nodes are processes of this machine.
pub(crate) const SIMULATED: &str = "local";
/// Longest line that is written.
const LONGEST: usize = 1 << 20;

/// The history of a target.
///
/// ```
/// use weftrun::core::backend::TargetConfig;
/// use weftrun::core::job::JobPhase;
/// use weftrun::diagnose::nodes::JobRecord;
/// use weftrun::{Config, JobHistory};
///
/// # let state = tempfile::tempdir().unwrap();
/// let config = Config::empty(state.path());
/// let history = JobHistory::of(&config, &TargetConfig::new("pc", "slurm", state.path())).unwrap();
/// let mut record = JobRecord::new("slurm://pc/12", weftrun::clock::now(), JobPhase::Succeeded);
/// record.nodes = vec!["gpu-17".to_owned()];
/// history.append(&record)?;
/// assert_eq!(history.nodes()?[0].runs, 1);
/// # Ok::<(), weftrun::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct JobHistory {
    path: PathBuf,
    /// Whether other users read and write it, too.
    shared: bool,
}

/// What a history contains.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JobsPast {
    /// The newest record of each run, in the order of the file.
    pub records: Vec<JobRecord>,
    /// The runs on each node that are no longer kept one by one.
    pub folded: FoldedRuns,
    /// Until when what counted against a node is forgotten.
    pub forgotten: BTreeMap<String, Timestamp>,
    /// Number of lines that are no records.
    pub unread: usize,
}

impl JobsPast {
    /// Returns what it says of each node, judged as of now.
    pub fn nodes(&self) -> Vec<NodeReport> {
        judge(&self.records, &self.folded, weftrun_backends::clock::now())
    }

    /// Returns the nodes that it suspects, each with the evidence.
    pub fn suspects(&self) -> Vec<LeftOut> {
        let suspects = self.nodes().into_iter().filter(NodeReport::is_suspect);
        suspects.map(|node| LeftOut { why: format!("suspect: {}", node.evidence), node: node.node }).collect()
    }
}

/// A line that says until when what counted against nodes is forgotten: a later look at an old job does not bring it back.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forgotten {
    forgotten: BTreeMap<String, Timestamp>,
}

/// A line with the runs that are no longer kept one by one.
#[derive(Serialize, Deserialize)]
struct Folded {
    folded: FoldedRuns,
}

impl JobHistory {
    /// Returns the history of a target; none if `[history] enabled = false`. That of this machine, whose nodes are simulated, has
    /// benchmarks to compare with, and no jobs ([`Client::job_history`](crate::Client::job_history)). A `[history] path` that is not absolute is one below the state folder, and as private as that.
    pub fn of(config: &Config, target: &TargetConfig) -> Option<Self> {
        let setting =
            |key: &str| config.resolved.settings.get(&["history", key]).map(|setting| &setting.value);
        let is_off = setting("enabled").and_then(serde_json::Value::as_bool) == Some(false);
        (!is_off).then(|| Self::at(config, target))
    }

    /// Returns where the history of a target is, or was before it was switched off.
    pub fn at(config: &Config, target: &TargetConfig) -> Self {
        let setting =
            |key: &str| config.resolved.settings.get(&["history", key]).map(|setting| &setting.value);
        let named = setting("path").and_then(serde_json::Value::as_str).map(PathBuf::from);
        let is_below = |path: &PathBuf| {
            path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        let shared = named.as_ref().is_some_and(|path| !is_below(path));
        let folder = config.state_dir.join(named.unwrap_or_else(|| "history".into()));
        Self { path: folder.join(format!("{}.jsonl", encode(&target.name))), shared }
    }

    /// Returns its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the record of a job, by one write. One that says nothing new is left out.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file: a full disk, a folder that cannot be written.
    pub fn append(&self, record: &JobRecord) -> Result<()> {
        let failed = |error| files::io_error("cannot write", &self.path, error);
        let mut locked = self.lock()?;
        let tail = locked.tail().map_err(failed)?;
        let names_it = |line: &&str| line.contains(record.submitted());
        let earlier = tail.lines().rev().filter(names_it).filter_map(record_of);
        let earlier = { earlier }.find(|earlier| earlier.run() == record.run());
        let new = earlier.as_ref().map_or_else(|| record.clone(), |earlier| record.clone().over(earlier));
        if earlier.as_ref() == Some(&new) {
            return Ok(());
        }
        let line = text_of(&new)?;
        if line.len() > LONGEST {
            return Err(Error::new(
                ErrorKind::Io,
                format!("the record has {} bytes, more than 1 MiB", line.len()),
            ));
        }
        let before = locked.len().map_err(failed)?;
        locked.append(&line, &tail).map_err(failed)?;
        // The line is written, whatever becomes of this.
        let grown = before..locked.len().unwrap_or(before);
        if locked.is_locked
            && is_to_shorten(grown, LARGE)
            && let Err(error) = self.shorten(&locked, LARGE / 2, weftrun_backends::clock::now())
        {
            tracing::warn!(%error, path = %self.path.display(), "the history cannot be made shorter");
        }
        Ok(())
    }

    fn lock(&self) -> Result<Locked> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        if self.shared {
            let of_folder =
                std::fs::metadata(folder).map_err(|error| files::io_error("cannot find", folder, error))?;
            // Who may write to the folder may write to the file.
            return Locked::open(&self.path, of_folder.mode() & 0o066 | 0o600);
        }
        files::make_private_dir(folder).map_err(|error| files::io_error("cannot make", folder, error))?;
        Locked::open(&self.path, 0o600)
    }

    /// Reads it; an empty one if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn read(&self) -> Result<JobsPast> {
        let text =
            file::read(&self.path).map_err(|error| files::io_error("cannot read", &self.path, error))?;
        Ok(text.map_or_else(JobsPast::default, |text| JobsPast::of(&text)))
    }

    /// Reads it beside what runs on this thread's runtime, where there is one.
    pub(crate) async fn read_apart(&self) -> Result<JobsPast> {
        let history = self.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(move || history.read()).await.unwrap_or_else(|failed| {
                Err(Error::new(ErrorKind::Unexpected, "reading the history was not finished")
                    .with_source(failed))
            }),
            Err(_) => history.read(),
        }
    }

    /// Judges every node that it names, the worst first.
    ///
    /// # Errors
    /// As [`JobHistory::read`].
    pub fn nodes(&self) -> Result<Vec<NodeReport>> {
        Ok(self.read()?.nodes())
    }

    /// Returns the nodes that it suspects, each with the evidence.
    ///
    /// # Errors
    /// As [`JobHistory::read`].
    pub fn suspects(&self) -> Result<Vec<LeftOut>> {
        Ok(self.read()?.suspects())
    }

    /// Forgets what counts against a node of jobs that have ended by now, as after a repair: its failures stay as runs. Returns how
    /// many events it forgot.
    ///
    /// # Errors
    /// As [`JobHistory::append`].
    pub fn forget_node(&self, node: &str) -> Result<usize> {
        let mut locked = self.lock()?;
        let mut past = self.read()?;
        let now = weftrun_backends::clock::now();
        let until = [(node.to_owned(), now)].into();
        let forgotten = forget(&mut past.records, &until);
        let failed = |error| files::io_error("cannot write", &self.path, error);
        let line = text_of(&Forgotten { forgotten: until })?;
        let tail = locked.tail().map_err(failed)?;
        locked.append(&line, &tail).map_err(failed)?;
        Ok(forgotten)
    }

    /// Removes it. Returns whether there was one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn forget(&self) -> Result<bool> {
        let is_there = self.path.exists();
        files::remove(&self.path)?;
        Ok(is_there)
    }

    /// Folds the oldest records that no judgement needs, until the file has at most so many bytes.
    fn shorten(&self, locked: &Locked, most: u64, now: Timestamp) -> Result<()> {
        let mut past = self.read()?;
        past.fold(most, now)?;
        self.rewrite(locked, &past)
    }

    fn rewrite(&self, locked: &Locked, past: &JobsPast) -> Result<()> {
        if !locked.is_locked {
            let message =
                format!("{} is on a file system without locks, and cannot be rewritten", self.path.display());
            return Err(
                Error::new(ErrorKind::Unsupported, message).hint("set `[history] path` to another folder")
            );
        }
        let mut text = String::new();
        if !past.folded.is_empty() {
            text.push_str(&text_of(&Folded { folded: past.folded.clone() })?);
            text.push('\n');
        }
        if !past.forgotten.is_empty() {
            text.push_str(&text_of(&Forgotten { forgotten: past.forgotten.clone() })?);
            text.push('\n');
        }
        for record in &past.records {
            text.push_str(&text_of(record)?);
            text.push('\n');
        }
        locked.replace(&self.path, &text).map_err(|error| files::io_error("cannot write", &self.path, error))
    }
}

/// Returns whether a file that has grown so is made shorter now: once it is large, and again after each MiB where that failed.
fn is_to_shorten(grown: Range<u64>, large: u64) -> bool {
    grown.end > large && (grown.start <= large || grown.start / AGAIN < grown.end / AGAIN)
}

impl JobsPast {
    /// Reads the lines of a history. A line that is no record is counted; one at the end may still be written.
    pub fn of(text: &str) -> Self {
        let mut past = Self::default();
        let mut at: HashMap<RunId<'static>, usize> = HashMap::new();
        for line in text.split_inclusive('\n') {
            let is_whole = line.ends_with('\n');
            let line = line.trim_end();
            if let Some(record) = record_of(line) {
                match at.get(&record.run()).and_then(|at| past.records.get_mut(*at)) {
                    Some(known) => *known = record.over(known),
                    None => {
                        at.insert(record.run().into_owned(), past.records.len());
                        past.records.push(record);
                    }
                }
            } else if let Ok(Forgotten { forgotten }) = serde_json::from_str(line) {
                for (node, until) in forgotten.into_iter().filter(|(node, _)| is_node_name(node)) {
                    let known = past.forgotten.entry(node).or_insert(until);
                    *known = until.max(*known);
                }
            } else if let Ok(Folded { folded }) = serde_json::from_str(line) {
                let folded = folded.into_iter().filter(|(node, _)| is_node_name(node));
                folded.for_each(|(node, runs)| past.fold_runs(node, runs));
            } else {
                past.unread += usize::from(is_whole && !line.is_empty());
            }
        }
        forget(&mut past.records, &past.forgotten);
        past
    }

    fn fold_runs(&mut self, node: String, runs: NodeRuns) {
        let known = self.folded.entry(node).or_insert(NodeRuns { runs: 0, last: runs.last });
        known.runs = known.runs.saturating_add(runs.runs);
        known.last = known.last.max(runs.last);
    }

    /// Folds records into the number of runs of their nodes: those that count against no node first, the oldest before the newer
    /// ones, and then those whose time is over.
    fn fold(&mut self, most: u64, now: Timestamp) -> Result<()> {
        let counts = |record: &JobRecord| {
            let of_node = record.cause.as_ref().and_then(|cause| cause.fault).is_some_and(Fault::is_of_node);
            record.baseline || (of_node || !record.slow.is_empty()) && now.duration_since(record.at) <= WINDOW
        };
        // What had happened before is too old to count by itself.
        self.forgotten.retain(|_, until| now.duration_since(*until) <= WINDOW);
        let mut left = usize::try_from(most).unwrap_or(usize::MAX);
        let mut records = std::mem::take(&mut self.records);
        records.sort_by_key(|record| record.at);
        let mut keep = vec![false; records.len()];
        for wanted in [true, false] {
            for (at, record) in
                records.iter().enumerate().rev().filter(|(_, record)| counts(record) == wanted)
            {
                let size = text_of(record)?.len() + 1;
                if size > left {
                    left = 0;
                    break;
                }
                left -= size;
                keep[at] = true;
            }
        }
        for (record, keep) in records.into_iter().zip(keep) {
            if keep {
                self.records.push(record);
            } else {
                let runs = NodeRuns { runs: 1, last: record.at };
                record.nodes.into_iter().for_each(|node| self.fold_runs(node, runs));
            }
        }
        Ok(())
    }
}

/// Removes what counts against nodes of jobs that had ended by then. Returns how many events that are.
fn forget(records: &mut [JobRecord], until: &BTreeMap<String, Timestamp>) -> usize {
    let mut forgotten = 0;
    for record in records {
        let at = record.at;
        let counts = |node: &str| until.get(node).is_none_or(|until| at > *until);
        let before = record.slow.len();
        record.slow.retain(|slow| counts(&slow.node));
        forgotten += before - record.slow.len();
        if let Some(cause) = &mut record.cause {
            let before = cause.nodes.len();
            cause.nodes.retain(|node| counts(node));
            forgotten += before - cause.nodes.len();
        }
    }
    forgotten
}

/// Reads a line; none if it is no record of a job. Names that no node can have are left out.
fn record_of(line: &str) -> Option<JobRecord> {
    let mut record: JobRecord = serde_json::from_str(line).ok()?;
    record.nodes.retain(|node| is_node_name(node));
    record.slow.retain(|slow| is_node_name(&slow.node));
    if let Some(cause) = &mut record.cause {
        cause.nodes.retain(|node| is_node_name(node));
    }
    Some(record)
}

fn text_of<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::Unexpected, "a record cannot be written").with_source(error))
}
