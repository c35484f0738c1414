//! What was submitted from here: written before the first byte is sent, so that nothing is submitted twice and a
//! crash between the two leaves a record that can be explained.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weftrun_core::fabric::FabricPlan;
use weftrun_core::job::{JobHandle, SubmissionId};
use weftrun_core::spec::JobSpec;
use weftrun_core::{ErrorKind, Result};

use crate::files;

/// How far a submission got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecordState {
    /// About to be sent, or sent without an answer: the cluster may or may not have it.
    Intended,
    /// Sent without a clear answer; [`Client::pending_on`](crate::Client::pending_on) says so of a submission that may
    /// still arrive. In the journal it stays [`RecordState::Intended`], which older versions can read.
    Unknown,
    /// The cluster has it.
    Submitted,
    /// The cluster refused it.
    Refused,
}

/// One submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Its id, which the cluster carries too.
    pub submission: SubmissionId,
    /// The target it went to.
    pub target: String,
    /// The job's name.
    pub name: String,
    /// How far it got.
    pub state: RecordState,
    /// Its handle, once the cluster answered.
    pub handle: Option<JobHandle>,
    /// When it was begun.
    pub created: Timestamp,
    /// What was decided for it.
    pub plan: FabricPlan,
    /// The job itself, for another one like it; none in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<JobSpec>,
}

impl Record {
    /// Whether this is the submission somebody made after an older one had been cut off.
    pub(crate) fn makes_up_for(&self, older: &Self) -> bool {
        self.state == RecordState::Submitted && self.target == older.target && self.name == older.name
    }
}

/// The records of one user, a file each: JSON, mode 0600, replaced whole. Several processes may use one journal.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
}

/// Largest record that is read; a plan of thousands of ops is far below.
const MAX_RECORD: u64 = 16 << 20;

impl Journal {
    /// Makes the journal of a state folder.
    pub fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("journal") }
    }

    /// Writes a record, in place of an older one of the same submission; when it returns, the record is on the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file: a full disk, a folder that cannot be written.
    pub fn write(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| {
            weftrun_core::Error::new(ErrorKind::Unexpected, "a record cannot be written as JSON")
                .source(error)
        })?;
        files::write_private(&self.path(&record.submission), &text)
    }

    /// Reads a record; none if there is none, or none that this version understands.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn read(&self, submission: &SubmissionId) -> Result<Option<Record>> {
        let text = files::read_text(&self.path(submission), MAX_RECORD)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Forgets a record; one that is not there is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] naming the file.
    pub fn forget(&self, submission: &SubmissionId) -> Result<()> {
        match std::fs::remove_file(self.path(submission)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(files::io_error("cannot remove", &self.path(submission), error))
            }
            _ => Ok(()),
        }
    }

    /// All records, newest first. A file that cannot be read is left out: it was not written by this version.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the folder itself cannot be read.
    pub fn records(&self) -> Result<Vec<Record>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(files::io_error("cannot read", &self.dir, error)),
        };
        let mut records: Vec<Record> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .filter_map(|path| files::read_text(&path, MAX_RECORD).ok().flatten())
            .filter_map(|text| serde_json::from_str(&text).ok())
            .collect();
        records.sort_by_key(|record: &Record| std::cmp::Reverse(record.created));
        Ok(records)
    }

    /// The record of a handle, the newest where a name was used again.
    ///
    /// # Errors
    /// As [`Journal::records`].
    pub fn find(&self, handle: &JobHandle) -> Result<Option<Record>> {
        Ok(self.records()?.into_iter().find(|record| record.handle.as_ref() == Some(handle)))
    }

    fn path(&self, submission: &SubmissionId) -> PathBuf {
        self.dir.join(format!("{submission}.json"))
    }
}
