//! The journal of submissions from this machine: written before the first byte is sent, so that nothing is
//! submitted twice and a crash in between leaves a record that can be resolved.
//!
//! ```text
//! journal/ID.json             a record that is unresolved, or one of the newest
//! journal/ID.lock             locked by the process that sends it, as long as it does
//! journal/ended/XX/HASH-ID.json   older records whose outcome is known, by a hash of their handle
//! ```
//! The state folder may be shared by several machines (NFS), where a lock may be valid on one machine only: a
//! record contains the process and the machine that send it.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weftrun_backends::files::open_private;
use weftrun_backends::process::Stat;
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::spec::JobSpec;
use weftrun_core::text::fnv1a;
use weftrun_core::{ErrorKind, Result};

use crate::attempts::Attempt;
use crate::files;

/// The state of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecordState {
    /// About to be sent, or being sent; its process may have ended meanwhile.
    Intended,
    /// Sent without an answer that shows its outcome: the cluster may or may not have it. With a handle it is a set of which the
    /// cluster may not have all tasks.
    Unknown,
    /// The cluster has it.
    Submitted,
    /// The cluster refused it.
    Refused,
}

impl RecordState {
    /// Returns whether the outcome of the submission is unknown.
    pub fn is_unresolved(self) -> bool {
        matches!(self, Self::Intended | Self::Unknown)
    }
}

/// The process that sends a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Owner {
    /// Name of its machine.
    pub host: String,
    /// Its process id, which is only meaningful on that machine.
    pub pid: u32,
    /// Its start time in the kernel's ticks since boot; 0 if the kernel does not report it. Distinguishes it
    /// from a later process with the same id.
    pub started: u64,
}

impl Owner {
    pub(crate) fn this() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let pid = std::process::id();
        Self { host, pid, started: start_of(pid).unwrap_or(0) }
    }

    /// Returns whether it is a running process of this machine; none for one of another machine.
    fn is_alive(&self) -> Option<bool> {
        (self.host == Self::this().host)
            .then(|| start_of(self.pid).is_some_and(|start| start == self.started))
    }
}

/// Returns the start time of a process that has not ended.
fn start_of(pid: u32) -> Option<u64> {
    Stat::of(pid.cast_signed()).filter(|stat| !stat.ended).map(|stat| stat.start)
}

/// One submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Its id, which the cluster stores too.
    pub submission: SubmissionId,
    /// The target it went to.
    pub target: String,
    /// The job's name.
    pub name: String,
    /// Its state.
    pub state: RecordState,
    /// Its handle, once the cluster answered.
    pub handle: Option<JobHandle>,
    /// When it began.
    pub created: Timestamp,
    /// The process that sends it; none in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Its plan.
    pub plan: FabricPlan,
    /// The job itself, for submitting a similar one; none in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobSpec>,
    /// Whether nobody may have seen its handle yet: the process may have ended between the cluster's answer and the output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undelivered: bool,
    /// The namespace that it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The project that it went to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Which attempt of an earlier job it is; none for the first submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

/// The part of a record that decides whether to read the rest.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Head {
    pub submission: SubmissionId,
    pub target: String,
    pub name: String,
    pub state: RecordState,
    pub handle: Option<JobHandle>,
    pub created: Timestamp,
    #[serde(default)]
    pub undelivered: bool,
    #[serde(default)]
    pub attempt: Option<Attempt>,
}

impl Head {
    /// Returns whether something is left to do for it: its outcome is unknown, or its handle was not seen.
    fn is_open(&self) -> bool {
        self.state.is_unresolved() || self.undelivered
    }

    /// Returns whether this submission repeats an older one that was interrupted.
    pub fn makes_up_for(&self, older: &Record) -> bool {
        self.state == RecordState::Submitted
            && self.target == older.target
            && self.name == older.name
            && self.created > older.created
    }
}

/// A file of the journal that is not readable as a record.
#[derive(Debug)]
pub(crate) struct Damaged {
    pub path: PathBuf,
    pub reason: String,
}

/// The records of one user, a file each: JSON, mode 0600, replaced atomically. Several processes may use one
/// journal.
///
/// ```no_run
/// # fn example(client: weftrun::Client) -> weftrun::Result<()> {
/// for record in client.journal().records()? {
///     println!("{} {} {:?}", record.created, record.name, record.state);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
}

/// Largest record that is read; a plan of thousands of ops is far smaller.
const MAX_RECORD: u64 = 16 << 20;
/// Largest number of resolved records beside the unresolved ones; above it, all but the newest half are moved
/// to `ended`.
const MAX_RECENT: usize = 64;
/// Largest number of records in each of the 256 folders of `ended`; the oldest beyond it are removed.
const MAX_ENDED: usize = 200;
/// How long a record of another machine counts as being sent if locks are not conclusive. Longer than any
/// backend takes.
const OTHER_MACHINE: Duration = Duration::from_mins(15);
/// Age at which the lock of a killed process is removed.
const LEFT_OVER: Duration = Duration::from_hours(24);

/// A record that is being sent. Other processes see that as long as this is held.
#[derive(Debug)]
pub(crate) struct Sending {
    path: PathBuf,
    _lock: Option<File>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Journal {
    /// Creates the journal of a state folder.
    pub fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("journal") }
    }

    /// Writes a record, replacing an older one of the same submission; when it returns, the record is on
    /// disk.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file: a full disk, a folder that cannot be written.
    pub fn write(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| {
            weftrun_core::Error::new(ErrorKind::Unexpected, "a record cannot be written as JSON")
                .with_source(error)
        })?;
        files::write_private(&self.path(&record.submission), &text)
    }

    /// Marks a submission as being sent by this process, until the returned value is dropped. Must precede
    /// the record.
    pub(crate) fn begin(&self, submission: &SubmissionId) -> Result<Sending> {
        let path = self.lock_path(submission);
        let failed = |error| files::io_error("cannot write", &path, error);
        files::make_private_dir(&self.dir).map_err(failed)?;
        let file = open_private(&path).map_err(failed)?;
        // Another process may hold it for an instant to check it. Without locks on this file system, the
        // owner in the record must suffice.
        for _ in 0..50 {
            match file.try_lock() {
                Ok(()) => return Ok(Sending { path, _lock: Some(file) }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::Error(_)) => break,
            }
        }
        Ok(Sending { path, _lock: None })
    }

    /// Returns whether a process, of this machine or of another one, is sending the submission now.
    pub(crate) fn is_being_sent(&self, record: &Record) -> bool {
        if record.state != RecordState::Intended {
            return false;
        }
        let alive = record.owner.as_ref().and_then(Owner::is_alive);
        let young = is_young(record);
        let path = self.lock_path(&record.submission);
        // Not `open_private`: a missing lock file must not be created.
        match weftrun_backends::files::open(&path).map(|file| file.try_lock_shared()) {
            Ok(Err(TryLockError::WouldBlock)) => true,
            // The lock is not held on this machine. It may still be held on another one.
            Ok(Ok(())) => record.owner.is_some() && alive.is_none() && young,
            // No locks on this file system.
            Ok(Err(TryLockError::Error(_))) => alive.unwrap_or(record.owner.is_some() && young),
            // Removed by its holder, or never created by an older version.
            Err(_) => false,
        }
    }

    /// Reads a record; none if there is none. One that this version cannot parse is an error: what it says was submitted must not
    /// be submitted again.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::InvalidConfig`] naming the file.
    pub fn read(&self, submission: &SubmissionId) -> Result<Option<Record>> {
        let of = |path: PathBuf| match files::read_text(&path, MAX_RECORD)? {
            Some(text) => serde_json::from_str(&text).map(Some).map_err(|error| unreadable(&path, error)),
            None => Ok(None),
        };
        if let Some(record) = of(self.path(submission))? {
            return Ok(Some(record));
        }
        let end = format!("-{submission}.json");
        let ended = self.ended_files().find(|path| path.to_string_lossy().ends_with(&end));
        ended.map_or(Ok(None), of)
    }

    /// Reads a record for a look at it: one that cannot be parsed is left out here and reported as damaged.
    pub(crate) fn look_at(&self, submission: &SubmissionId) -> Result<Option<Record>> {
        match self.read(submission) {
            Err(error) if error.kind() == ErrorKind::InvalidConfig => Ok(None),
            record => record,
        }
    }

    /// Removes a record; a missing one is not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn forget(&self, submission: &SubmissionId) -> Result<()> {
        let _ = fs::remove_file(self.lock_path(submission));
        files::remove(&self.path(submission))
    }

    /// Returns all records, newest first: reads every file, including those of `ended`. An unreadable file is
    /// skipped; [`Client::take_notes`](crate::Client::take_notes) reports it after a list or a submission.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the folder itself cannot be read.
    pub fn records(&self) -> Result<Vec<Record>> {
        let recent = files::json_files(&self.dir)?;
        let mut records: Vec<Record> =
            recent.into_iter().chain(self.ended_files()).filter_map(|path| parsed(&path)).collect();
        records.sort_by_key(|record: &Record| std::cmp::Reverse(record.created));
        Ok(records)
    }

    /// Returns the unresolved and the newest records, newest first, without their plans. Archives surplus
    /// records.
    pub(crate) fn recent(&self) -> Result<Vec<Head>> {
        Ok(self.recent_and_damaged()?.0)
    }

    /// Returns the records of [`Journal::recent`], and the files that are not readable as records, each with the reason.
    pub(crate) fn recent_and_damaged(&self) -> Result<(Vec<Head>, Vec<Damaged>)> {
        let (mut heads, mut damaged) = (Vec::new(), Vec::new());
        for path in files::json_files(&self.dir)? {
            match read_record::<Head>(&path) {
                Ok(head) => {
                    // The rest of a record is needed only where something is left to do.
                    let rest =
                        head.as_ref().filter(|head| head.is_open()).map(|_| read_record::<Record>(&path));
                    damaged.extend(
                        rest.and_then(std::result::Result::err).map(|reason| Damaged { path, reason }),
                    );
                    heads.extend(head);
                }
                Err(reason) => damaged.push(Damaged { path, reason }),
            }
        }
        heads.sort_by_key(|head| std::cmp::Reverse(head.created));
        self.archive(&heads);
        Ok((heads, damaged))
    }

    /// Returns the newest record that `wanted` selects with an undelivered handle, which its process will not deliver any more.
    pub(crate) fn undelivered(&self, wanted: impl Fn(&Record) -> bool) -> Result<Option<Record>> {
        for head in self.recent()?.iter().filter(|head| head.undelivered && head.handle.is_some()) {
            let record =
                self.look_at(&head.submission)?.filter(|record| record.undelivered && wanted(record));
            if let Some(record) = record.filter(|record| {
                let alive = record.owner.as_ref().and_then(Owner::is_alive);
                !alive.unwrap_or_else(|| record.owner.is_some() && is_young(record))
            }) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Records that the handle of a job was seen. A set that was not whole is not continued any more.
    pub(crate) fn deliver(&self, handle: &JobHandle) -> Result<()> {
        let is_open = |record: &Record| record.undelivered || record.state == RecordState::Unknown;
        match self.find(handle)?.filter(is_open) {
            Some(record) => {
                self.write(&Record { undelivered: false, state: RecordState::Submitted, ..record })
            }
            None => Ok(()),
        }
    }

    /// Returns the handles of the newest submissions, the newest first. Plans are not read, so it takes milliseconds.
    ///
    /// # Errors
    /// As [`Journal::records`].
    pub fn recent_handles(&self) -> Result<Vec<JobHandle>> {
        Ok(self.recent()?.into_iter().filter_map(|head| head.handle).collect())
    }

    /// Returns the record of a handle, the newest if a name was used again.
    ///
    /// # Errors
    /// As [`Journal::records`].
    pub fn find(&self, handle: &JobHandle) -> Result<Option<Record>> {
        self.find_among(&self.recent()?, handle)
    }

    /// Returns the record of a handle like [`Journal::find`], with the records of [`Journal::recent`], which are read once for
    /// many handles.
    pub(crate) fn find_among(&self, recent: &[Head], handle: &JobHandle) -> Result<Option<Record>> {
        // A handle without a uid names the newest job of its name.
        let named = |own: &JobHandle| {
            let same = own.backend() == handle.backend() && own.target() == handle.target();
            own == handle || (handle.uid().is_none() && same && own.parts() == handle.parts())
        };
        if let Some(head) = recent.iter().find(|head| head.handle.as_ref().is_some_and(named))
            && let Some(record) = self.look_at(&head.submission)?
        {
            return Ok(Some(record));
        }
        let (shard, hash) = self.ended_place(&handle.to_string());
        let prefix = format!("{hash}-");
        let of_handle = json_files(&shard)
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
        let records = of_handle.filter_map(|path| parsed::<Record>(&path));
        Ok(records
            .filter(|record| record.handle.as_ref() == Some(handle))
            .max_by_key(|record| record.created))
    }

    /// Moves all but the newest resolved records to `ended`, and removes the oldest there. This is only
    /// cleanup: another process may do it at the same time, and what cannot be moved stays.
    fn archive(&self, heads: &[Head]) {
        let resolved = || heads.iter().filter(|head| !head.is_open());
        if resolved().count() <= MAX_RECENT {
            return;
        }
        // A submission that repeats an unresolved one is needed to explain that one.
        let open: HashSet<(&str, &str)> = heads
            .iter()
            .filter(|head| head.state.is_unresolved())
            .map(|head| (head.target.as_str(), head.name.as_str()))
            .collect();
        let mut shards = HashSet::new();
        for head in resolved().skip(MAX_RECENT / 2) {
            if open.contains(&(head.target.as_str(), head.name.as_str())) {
                continue;
            }
            let known_as =
                head.handle.as_ref().map_or_else(|| head.submission.to_string(), ToString::to_string);
            let (shard, hash) = self.ended_place(&known_as);
            if !shards.contains(&shard) && files::make_private_dir(&shard).is_err() {
                return;
            }
            let to = shard.join(format!("{hash}-{}.json", head.submission));
            let _ = fs::rename(self.path(&head.submission), to);
            shards.insert(shard);
        }
        for shard in shards {
            let mut files: Vec<(SystemTime, PathBuf)> = json_files(&shard)
                .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path)))
                .collect();
            files.sort();
            let surplus = files.len().saturating_sub(MAX_ENDED);
            for (_, path) in files.into_iter().take(surplus) {
                let _ = fs::remove_file(path);
            }
        }
        self.sweep();
    }

    /// Removes the locks without a record that killed processes left.
    fn sweep(&self) {
        let old = |path: &Path| {
            let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
            modified.is_ok_and(|then| then.elapsed().is_ok_and(|age| age > LEFT_OVER))
        };
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let lock = path.extension().is_some_and(|end| end == "lock");
            let lone = lock && !path.with_extension("json").exists();
            if lone && old(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn ended_files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let shards = fs::read_dir(self.dir.join("ended")).into_iter().flatten().flatten();
        shards.flat_map(|shard| json_files(&shard.path()))
    }

    /// Returns the folder of an ended record, and the prefix of its name.
    fn ended_place(&self, known_as: &str) -> (PathBuf, String) {
        // A record is compared after it was found, so two names with the same hash are not confused.
        let hash = fnv1a(known_as.as_bytes());
        (self.dir.join("ended").join(format!("{:02x}", hash % 256)), format!("{hash:016x}"))
    }

    fn path(&self, submission: &SubmissionId) -> PathBuf {
        self.dir.join(format!("{submission}.json"))
    }

    fn lock_path(&self, submission: &SubmissionId) -> PathBuf {
        self.dir.join(format!("{submission}.lock"))
    }
}

fn unreadable(path: &Path, error: serde_json::Error) -> weftrun_core::Error {
    let message = format!("the record of a submission cannot be read: {}: {error}", path.display());
    weftrun_core::Error::new(ErrorKind::InvalidConfig, message)
        .with_source(error)
        .hint("nothing was submitted: a newer version of weftrun may have written it; use that one, or look for the job on the cluster, and then remove the file")
}

/// Returns whether the process of another machine may still send a submission, or print its handle.
fn is_young(record: &Record) -> bool {
    weftrun_backends::clock::now().duration_since(record.created).unsigned_abs() < OTHER_MACHINE
}

fn json_files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    files::json_files(folder).into_iter().flatten()
}

fn parsed<T: DeserializeOwned>(path: &Path) -> Option<T> {
    read_record(path).ok().flatten()
}

/// Reads the file of a record; none if it was removed meanwhile. An error is the reason why it is not readable.
fn read_record<T: DeserializeOwned>(path: &Path) -> std::result::Result<Option<T>, String> {
    match files::read_text(path, MAX_RECORD) {
        Ok(Some(text)) => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        Ok(None) => Ok(None),
        Err(error) => Err(error.message().to_owned()),
    }
}

#[cfg(test)]
mod tests;
