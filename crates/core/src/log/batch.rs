//! A piece of one log source, and where it continues.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use weftrun_nccl::{Event, SourceId, TransportMap};

/// A piece of one log source. Bytes are as the rank wrote them: lines may be split over batches, UTF-8 may
/// be invalid.
///
/// ```
/// use std::sync::Arc;
/// use weftrun_core::log::{Cursor, LogBatch, SourceId};
/// use weftrun_core::nccl::TransportMap;
/// let line = b"h0:7:9 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n".to_vec();
/// let batch = LogBatch::new(Arc::new(SourceId::new("rank0")), line, Cursor::default());
/// assert_eq!(batch.lines.len(), 1);
/// let events = batch.read_into(&mut TransportMap::new());
/// assert_eq!(events[0].to_string(), "NCCL 2.28.9+cuda13.0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogBatch {
    /// The source.
    pub source: Arc<SourceId>,
    /// The bytes; may be empty where there is only a mark.
    pub bytes: Vec<u8>,
    /// Ends of the lines in `bytes`, in order. Bytes after the last are an unfinished line.
    pub lines: Vec<LineEnd>,
    /// A notice for the reader before these bytes.
    pub mark: Option<Mark>,
    /// When the last of these bytes was written, where the source has a time and its lines have none.
    pub written: Option<Timestamp>,
    /// Where the source continues after these bytes.
    pub cursor: Cursor,
}

/// The end of a line in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEnd {
    /// Offset in `bytes` after the newline.
    pub end: usize,
    /// When the line was written, where the cluster reports it.
    pub time: Option<Timestamp>,
}

/// A notice that is always shown to the reader of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mark", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mark {
    /// Bytes are missing, and why.
    Gap {
        /// Why.
        reason: String,
    },
    /// Nothing is missing, but the reader is informed: why there is no output yet, how the logs are read.
    Note {
        /// What.
        text: String,
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

/// Where a log source continues: opaque to callers, storable, valid after a restart of weftrun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Cursor {
    /// The source's uid.
    pub uid: String,
    /// Attempt.
    pub attempt: u32,
    /// Bytes read so far, for a file; of the unfinished line, for a source that is read by time.
    pub offset: u64,
    /// Time of the last line read, where the source is read by time.
    pub time: Option<Timestamp>,
    /// Lines read that carry exactly this time.
    pub count_at_time: u64,
    /// How a source that is read by time is resumed exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
}

impl Cursor {
    /// Makes the cursor of a file that was read up to an offset.
    pub fn at(source: &SourceId, offset: u64) -> Self {
        Self { uid: source.uid.clone(), attempt: source.attempt, offset, ..Self::default() }
    }
}

/// A second from which a log can be requested again, and what was read since it.
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
///
/// ```
/// use weftrun_core::log::LogOptions;
/// let last = LogOptions::follow().tail(100).rank(0);
/// assert_eq!((last.follow, last.tail, last.ranks), (true, Some(100), vec![0]));
/// ```
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
    /// Only these global ranks, where the ranks of sources are known; all if empty.
    pub ranks: Vec<u32>,
    /// Only the replicas with these names, on a backend that
    /// [reads them alone](crate::backend::Capability::replica_logs); all if empty.
    pub replicas: BTreeSet<String>,
    /// Continue from here: one cursor a source.
    pub from: Vec<Cursor>,
    /// Most sources read at once; 0 for the backend's own limit.
    pub max_streams: usize,
}

impl LogOptions {
    /// Makes options that read everything until the end of the job.
    pub fn follow() -> Self {
        Self { follow: true, ..Self::default() }
    }

    /// Returns whether a source is requested, by its role and the global ranks whose output it holds. One whose ranks are not
    /// known may hold that of any.
    ///
    /// ```
    /// use weftrun_core::log::LogOptions;
    /// let some = LogOptions::default().role("worker").rank(3);
    /// assert!(some.wants("worker", Some(0..8)) && some.wants("worker", None));
    /// assert!(!some.wants("launcher", None) && !some.wants("worker", Some(4..8)));
    /// ```
    pub fn wants(&self, role: &str, ranks: Option<Range<u32>>) -> bool {
        let wanted = |ranks: Range<u32>| self.ranks.iter().any(|rank| ranks.contains(rank));
        (self.roles.is_empty() || self.roles.iter().any(|wanted| wanted == role))
            && (self.ranks.is_empty() || ranks.is_none_or(wanted))
    }

    setters! {
        /// Reads only the last lines of each source.
        tail(lines: u64) |options| options.tail = Some(lines);
        /// Reads only lines since this time.
        since(time: Timestamp) |options| options.since = Some(time);
        /// Reads the attempt before the present one.
        previous() |options| options.previous = true;
        /// Reads init containers too.
        init() |options| options.init = true;
        /// Adds a role; without any, all are read.
        role(name: impl Into<String>) |options| options.roles.push(name.into());
        /// Adds a global rank; without any, all are read.
        rank(rank: u32) |options| options.ranks.push(rank);
        /// Adds a replica by its name; without any, all are read.
        replica(name: impl Into<String>) |options| options.replicas.insert(name.into());
        /// Continues where an earlier read stopped: one cursor a source.
        resume_from(cursors: impl IntoIterator<Item = Cursor>) |options| options.from.extend(cursors);
    }
}

impl LogBatch {
    /// Makes a batch of bytes, finding its line ends.
    pub fn new(source: Arc<SourceId>, bytes: Vec<u8>, cursor: Cursor) -> Self {
        let lines =
            memchr::memchr_iter(b'\n', &bytes).map(|at| LineEnd { end: at + 1, time: None }).collect();
        Self { source, bytes, lines, mark: None, written: None, cursor }
    }

    /// Makes a batch without bytes.
    pub fn marked(source: Arc<SourceId>, mark: Mark, cursor: Cursor) -> Self {
        Self { source, bytes: Vec::new(), lines: Vec::new(), mark: Some(mark), written: None, cursor }
    }

    /// Reads the batch into a transport map and returns what is new in it.
    pub fn read_into(&self, map: &mut TransportMap) -> Vec<Event> {
        let mut all = Vec::new();
        self.read_parts(map, [(0..self.bytes.len(), None)], |_, _, mut events| all.append(&mut events));
        all
    }

    /// Reads the batch into a transport map in parts written at one moment each, and calls `seen` after each part with
    /// its time, where the cluster gives one, and what is new.
    pub fn read_into_timed(
        &self,
        map: &mut TransportMap,
        seen: impl FnMut(&TransportMap, Option<Timestamp>, Vec<Event>),
    ) {
        self.read_parts(map, moments(self), seen);
    }

    fn read_parts(
        &self,
        map: &mut TransportMap,
        parts: impl IntoIterator<Item = (Range<usize>, Option<Timestamp>)>,
        mut seen: impl FnMut(&TransportMap, Option<Timestamp>, Vec<Event>),
    ) {
        let mut events = Vec::new();
        if matches!(self.mark, Some(Mark::Truncated | Mark::Gap { .. })) {
            events = map.end(&self.source);
        }
        let mut last = None;
        for (range, time) in parts {
            events.append(&mut map.read(&self.source, self.bytes.get(range).unwrap_or_default()));
            last = time;
            seen(map, time, std::mem::take(&mut events));
        }
        if matches!(self.mark, Some(Mark::Ended { .. })) {
            events = map.end(&self.source);
        }
        if !events.is_empty() {
            seen(map, last, events);
        }
    }
}

/// Lines written less than this apart count as written at one moment.
const MOMENT: SignedDuration = SignedDuration::from_millis(20);

/// Returns the parts of a batch that were written at one moment, each with its time. Lines without a time
/// are one part.
fn moments(batch: &LogBatch) -> Vec<(Range<usize>, Option<Timestamp>)> {
    let mut parts: Vec<(Range<usize>, Option<Timestamp>)> = Vec::new();
    let mut begin = 0;
    for line in &batch.lines {
        let same = match (parts.last().map(|(_, time)| *time), line.time) {
            (Some(Some(before)), Some(now)) => now.duration_since(before).abs() < MOMENT,
            (Some(before), now) => before.is_some() == now.is_some(),
            (None, _) => false,
        };
        match parts.last_mut().filter(|_| same) {
            Some((range, _)) => range.end = line.end,
            None => parts.push((begin..line.end, line.time)),
        }
        begin = line.end;
    }
    // An unfinished line goes with the one before it: its time comes with its end.
    match parts.last_mut() {
        Some((range, _)) => range.end = batch.bytes.len(),
        None => parts.push((0..batch.bytes.len(), None)),
    }
    parts
}
