//! A piece of one log source, and where it continues.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One source of log bytes: a container of a pod, a rank's file, a job's output file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SourceId {
    /// What tells two sources of one name apart (pod uid, inode, job id).
    pub uid: String,
    /// The name people know (pod, `node0/rank3`, file name).
    pub name: String,
    /// Container, where a pod has several; empty otherwise.
    pub container: String,
    /// Attempt (restart count, requeue count), from 0.
    pub attempt: u32,
    /// Role.
    pub role: String,
    /// Number in the role, from 0.
    pub replica: u32,
    /// Global rank, where the source is the output of exactly one rank and the backend knows which.
    pub rank: Option<u32>,
}

impl SourceId {
    /// Makes a source of a name; the other fields start empty.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            uid: name.clone(),
            name,
            container: String::new(),
            attempt: 0,
            role: String::new(),
            replica: 0,
            rank: None,
        }
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A piece of one log source. Bytes are as the rank wrote them: lines may be torn over batches, UTF-8 may be bad.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogBatch {
    /// The source.
    pub source: Arc<SourceId>,
    /// The bytes; may be empty where there is only a mark.
    pub bytes: Vec<u8>,
    /// Ends of the lines in `bytes`, in order. Bytes behind the last are a line not ended yet.
    pub lines: Vec<LineEnd>,
    /// Something the reader must know before these bytes.
    pub mark: Option<Mark>,
    /// Where the source continues behind these bytes.
    pub cursor: Cursor,
}

/// The end of a line in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEnd {
    /// Offset in `bytes` behind the newline.
    pub end: usize,
    /// When the line was written, where the cluster says.
    pub time: Option<Timestamp>,
}

/// Something a reader of a log must be told; never silent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mark", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mark {
    /// Bytes are missing, and why.
    Gap {
        /// Why.
        reason: String,
    },
    /// The connection was lost and is back.
    Resumed {
        /// Lines that may be missing; none if it is proved that none are.
        lost: Option<u64>,
        /// Lines that may be repeated.
        repeated: u64,
    },
    /// The source was truncated: what follows starts at its beginning.
    Truncated,
    /// The source ended: container gone, file complete.
    Ended {
        /// Its exit code, where known.
        exit_code: Option<i32>,
    },
}

/// Where a log source continues: opaque to callers, storable, good after a restart of weftrun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Cursor {
    /// The source's uid.
    pub uid: String,
    /// Attempt.
    pub attempt: u32,
    /// Bytes read so far, where the source is a file; of the unfinished line, where it is read by time.
    pub offset: u64,
    /// Time of the last line read, where the source is read by time.
    pub time: Option<Timestamp>,
    /// Lines read that carry exactly this time.
    pub count_at_time: u64,
    /// How a source that is read by time is resumed exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
}

/// A second from which a log can be asked again, and what was read since it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// A whole second.
    pub since: Timestamp,
    /// Lines read that are not older.
    pub lines: u64,
    /// Hash of the first of them.
    pub first: u64,
}

/// What to read of a job's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// Go on until the job has ended.
    pub follow: bool,
    /// Only the last lines of each source.
    pub tail: Option<u64>,
    /// Only lines since this time.
    pub since: Option<Timestamp>,
    /// The attempt before the present one.
    pub previous: bool,
    /// Init containers too.
    pub init: bool,
    /// Only these roles; all if empty.
    pub roles: Vec<String>,
    /// Only these global ranks, where sources know theirs; all if empty.
    pub ranks: Vec<u32>,
    /// Continue from here: one cursor a source.
    pub from: Vec<Cursor>,
    /// Most sources read at once; 0 for the backend's own limit.
    pub max_streams: usize,
}

impl LogOptions {
    /// Makes options that read everything and go on until the end.
    pub fn follow() -> Self {
        Self { follow: true, ..Self::default() }
    }
}

impl LogBatch {
    /// Makes a batch of bytes, finding its line ends.
    pub fn new(source: Arc<SourceId>, bytes: Vec<u8>, cursor: Cursor) -> Self {
        let lines =
            memchr::memchr_iter(b'\n', &bytes).map(|at| LineEnd { end: at + 1, time: None }).collect();
        Self { source, bytes, lines, mark: None, cursor }
    }

    /// Makes a batch without bytes.
    pub fn marked(source: Arc<SourceId>, mark: Mark, cursor: Cursor) -> Self {
        Self { source, bytes: Vec::new(), lines: Vec::new(), mark: Some(mark), cursor }
    }
}
