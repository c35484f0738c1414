//! The lines of a job, in memory, bounded by bytes, each with its rank, time and level.
//!
//! Bytes never travel as messages: whoever reads a backend's stream calls [`LogStore::ingest`], and whoever draws asks
//! for the lines it can show. [`LogStore::generation`] says whether there is anything new.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::feed::{Feed, Whole};
use super::lane::{Lane, LaneId, Lanes};
use super::sanitise::{CleanLine, clean_line, clean_text, is_plain};
use super::segment::{MARK, Meta, NO_TIME, NOTED, PLAIN, Segment};
use super::severity::level;
use super::{Level, LogBatch, Mark, SourceId};

/// Bytes a store holds unless told otherwise. With everything else a TUI needs, 256 MB in all.
pub const DEFAULT_BUDGET: usize = 128 * 1024 * 1024;

/// The lines of a job.
#[derive(Debug)]
pub struct LogStore {
    segments: VecDeque<Segment>,
    lanes: Lanes,
    feeds: HashMap<Arc<SourceId>, (usize, Feed)>,
    notes: HashMap<u64, Note>,
    budget: usize,
    size: usize,
    next: u64,
    dropped: u64,
    bytes: u64,
    gaps: u64,
    timed: bool,
    generation: u64,
}

/// What was left out of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// Bytes behind the cap.
    pub cut: u64,
    /// How often a carriage return began it again.
    pub updates: u32,
}

/// One entry of a store: a line, or a mark between lines.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// Its number: lines are numbered as they come, from 0.
    pub seq: u64,
    /// Its lane.
    pub lane: LaneId,
    /// When it was written, where the cluster says.
    pub time: Option<Timestamp>,
    /// How bad it is.
    pub level: Level,
    /// Whether it is not a line but something the reader must be told (a gap, a resume).
    pub mark: bool,
    /// What was left out of it.
    pub note: Note,
    /// The bytes as they came, the launcher's prefix included. For export and search; never for a terminal.
    pub raw: &'a [u8],
    prefix: usize,
    plain: bool,
}

impl Entry<'_> {
    /// The line without its launcher's prefix, safe to draw.
    pub fn clean(&self) -> CleanLine {
        let text = &self.raw[self.prefix.min(self.raw.len())..];
        CleanLine { cut: self.note.cut, updates: self.note.updates, ..clean_line(text) }
    }

    /// Whether its bytes are printable ASCII, so that searching the bytes is searching the text.
    pub fn is_plain(&self) -> bool {
        self.plain
    }
}

impl Default for LogStore {
    fn default() -> Self {
        Self::new(DEFAULT_BUDGET)
    }
}

impl LogStore {
    /// Makes a store that holds at most this many bytes, index included.
    pub fn new(budget: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            lanes: Lanes::default(),
            feeds: HashMap::new(),
            notes: HashMap::new(),
            budget,
            size: 0,
            next: 0,
            dropped: 0,
            bytes: 0,
            gaps: 0,
            timed: false,
            generation: 0,
        }
    }

    /// Changes whenever the lines or their lanes do.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number the next line will have: all lines that ever came.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// Number of the oldest line still held.
    pub fn start(&self) -> u64 {
        self.segments.iter().find(|s| !s.lines.is_empty()).map_or(self.next, |s| s.seq(0))
    }

    /// Lines dropped to stay inside the budget.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Gaps the sources told of.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Bytes that ever came.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes held in memory, index included.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether any line carries a time.
    pub fn has_times(&self) -> bool {
        self.timed
    }

    /// The lanes, in the order they were first seen.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes.all
    }

    /// Tells which global rank a process is, once NCCL's lines have proved it.
    pub fn learn(&mut self, host: &str, pid: u32, rank: u32) {
        for lane in &mut self.lanes.all {
            if lane.rank != Some(rank)
                && lane.source.rank.is_none()
                && lane.process.as_ref().is_some_and(|(h, p)| h == host && *p == pid)
            {
                lane.rank = Some(rank);
                self.generation += 1;
            }
        }
    }

    /// Takes a batch in.
    pub fn ingest(&mut self, batch: &LogBatch) {
        self.generation += 1;
        self.bytes += batch.bytes.len() as u64;
        let source = &batch.source;
        let (number, mut feed) = match self.feeds.remove(source) {
            Some(known) => known,
            None => (self.lanes.source(), Feed::default()),
        };
        if let Some(mark) = &batch.mark {
            if matches!(mark, Mark::Truncated | Mark::Ended { .. }) {
                feed.end(|line| self.line(number, source, line, None));
            }
            self.mark(number, source, mark);
        }
        let mut start = 0;
        let mut ends = batch.lines.iter().peekable();
        for at in memchr::memchr_iter(b'\n', &batch.bytes) {
            while ends.next_if(|end| end.end <= at).is_some() {}
            let time = ends.next_if(|end| end.end == at + 1).and_then(|end| end.time);
            feed.line(&batch.bytes[start..at], |line| self.line(number, source, line, time));
            start = at + 1;
        }
        feed.keep(&batch.bytes[start..]);
        self.feeds.insert(source.clone(), (number, feed));
        self.evict();
    }

    /// Says something between the lines, as from the program itself.
    pub fn say(&mut self, source: &Arc<SourceId>, text: &str) {
        self.generation += 1;
        let number = match self.feeds.get(source) {
            Some((number, _)) => *number,
            None => {
                let number = self.lanes.source();
                self.feeds.insert(source.clone(), (number, Feed::default()));
                number
            }
        };
        let (lane, _) = self.lanes.of(number, source, b"");
        let meta =
            Meta { start: 0, delta: 0, lane, prefix: 0, bits: Level::Warn as u8 | MARK, time: NO_TIME };
        self.push(meta, clean_text(text).as_bytes(), Note::default());
    }

    fn mark(&mut self, number: usize, source: &Arc<SourceId>, mark: &Mark) {
        let text = match mark {
            Mark::Ended { .. } if source.attempt == 0 => return,
            mark => mark_text(source, mark),
        };
        self.gaps += u64::from(matches!(mark, Mark::Gap { .. } | Mark::Truncated));
        let (lane, _) = self.lanes.of(number, source, b"");
        let meta =
            Meta { start: 0, delta: 0, lane, prefix: 0, bits: Level::Warn as u8 | MARK, time: NO_TIME };
        self.push(meta, text.as_bytes(), Note::default());
    }

    fn line(&mut self, number: usize, source: &Arc<SourceId>, line: Whole<'_>, time: Option<Timestamp>) {
        let (lane, prefix) = self.lanes.of(number, source, line.bytes);
        let level = level(line.bytes);
        self.lanes.count(lane, level, line.bytes.len(), time);
        self.timed |= time.is_some();
        let plain = if is_plain(line.bytes) { PLAIN } else { 0 };
        let time = time.map_or(NO_TIME, Timestamp::as_microsecond);
        let meta = Meta { start: 0, delta: 0, lane, prefix, bits: level as u8 | plain, time };
        self.push(meta, line.bytes, Note { cut: line.cut, updates: line.updates });
    }

    fn push(&mut self, mut meta: Meta, bytes: &[u8], note: Note) {
        let seq = self.next;
        self.next += 1;
        if note != Note::default() {
            self.notes.insert(seq, note);
            meta.bits |= NOTED;
        }
        if self.segments.back().is_none_or(|last| last.kept || last.is_full()) {
            self.segments.push_back(Segment::new(seq, false));
        }
        if let Some(last) = self.segments.back_mut() {
            let before = last.size();
            last.push(seq, meta, bytes);
            self.size += last.size() - before;
        }
    }

    /// Drops the oldest segments until the budget holds. Lines of lanes that have less than their fair share stay:
    /// one chatty rank does not push out what seven others said once.
    fn evict(&mut self) {
        while self.size > self.budget && self.segments.len() > 1 {
            let kept_size: usize = self.segments.iter().take_while(|s| s.kept).map(Segment::size).sum();
            let kept = self.segments.iter().take_while(|s| s.kept).count();
            let newest = self.segments.len() - 1;
            let victim = if kept_size > self.budget / 2 || kept >= newest { 0 } else { kept };
            let Some(old) = self.segments.remove(victim) else { return };
            self.size -= old.size();
            self.release(&old, if old.kept { None } else { Some(victim) });
        }
    }

    /// Forgets a segment; with `keep_at`, the lines under their fair share move to the kept segments before it.
    fn release(&mut self, old: &Segment, keep_at: Option<usize>) {
        let fair = self.budget / 2 / self.lanes.all.len().max(1);
        for (index, meta) in old.lines.iter().enumerate() {
            let seq = old.seq(index);
            let bytes = old.raw(index);
            let lane = &mut self.lanes.all[meta.lane as usize];
            if let Some(at) = keep_at
                && lane.bytes <= fair
            {
                self.keep(at, seq, *meta, bytes);
                continue;
            }
            lane.bytes = lane.bytes.saturating_sub(bytes.len());
            self.dropped += 1;
            if meta.bits & NOTED != 0 {
                self.notes.remove(&seq);
            }
        }
    }

    fn keep(&mut self, mut at: usize, seq: u64, meta: Meta, bytes: &[u8]) {
        // `at` kept segments stood before the old one; one may have been opened since.
        while self.segments.get(at).is_some_and(|s| s.kept) {
            at += 1;
        }
        if at == 0 || self.segments[at - 1].is_full() {
            self.segments.insert(at, Segment::new(seq, true));
            at += 1;
        }
        let target = &mut self.segments[at - 1];
        let before = target.size();
        target.push(seq, meta, bytes);
        self.size += target.size() - before;
    }

    /// The line of a number, if it is still held.
    pub fn get(&self, seq: u64) -> Option<Entry<'_>> {
        let (segment, index) = self.locate(seq)?;
        let segment = &self.segments[segment];
        (segment.seq(index) == seq).then(|| self.entry(segment, index))
    }

    /// The lines from a number on, in the order they came.
    pub fn from(&self, seq: u64) -> impl Iterator<Item = Entry<'_>> {
        let (first, skip) = self.locate(seq).unwrap_or((self.segments.len(), 0));
        self.segments.iter().enumerate().skip(first).flat_map(move |(number, segment)| {
            let skip = if number == first { skip } else { 0 };
            (skip..segment.lines.len()).map(move |index| self.entry(segment, index))
        })
    }

    /// The lines before a number, the newest first.
    pub fn before(&self, seq: u64) -> impl Iterator<Item = Entry<'_>> {
        let (first, end) = self.locate(seq).unwrap_or((self.segments.len(), 0));
        let whole = self.segments.iter().enumerate().take(first + 1).rev();
        whole.flat_map(move |(number, segment)| {
            let end = if number == first { end } else { segment.lines.len() };
            (0..end).rev().map(move |index| self.entry(segment, index))
        })
    }

    /// Segment and index of the first line whose number is at least `seq`.
    fn locate(&self, seq: u64) -> Option<(usize, usize)> {
        let segment = self.segments.partition_point(|s| s.last() < seq);
        let found = self.segments.get(segment)?;
        Some((segment, found.at_or_after(seq))).filter(|_| !found.lines.is_empty())
    }

    fn entry<'a>(&'a self, segment: &'a Segment, index: usize) -> Entry<'a> {
        let meta = segment.lines[index];
        let seq = segment.seq(index);
        let note = if meta.bits & NOTED == 0 { None } else { self.notes.get(&seq).copied() };
        Entry {
            seq,
            lane: meta.lane,
            time: meta.time(),
            level: meta.level(),
            mark: meta.bits & MARK != 0,
            note: note.unwrap_or_default(),
            raw: segment.raw(index),
            prefix: usize::from(meta.prefix),
            plain: meta.bits & PLAIN != 0,
        }
    }

    /// The lines from a number on whose bytes may hold `needle`: all that hold it, and those that only a closer look
    /// (escapes inside words) can decide. Runs at memory speed over whole segments.
    pub fn candidates<'a>(
        &'a self,
        needle: &'a memchr::memmem::Finder<'a>,
        seq: u64,
    ) -> impl Iterator<Item = Entry<'a>> {
        self.segments.iter().filter(move |s| s.last() >= seq).flat_map(move |segment| {
            let mut found: Vec<usize> = Vec::new();
            for at in needle.find_iter(&segment.bytes) {
                let index = segment.index_at(at);
                if found.last() != Some(&index) {
                    found.push(index);
                }
            }
            let start = segment.at_or_after(seq);
            let escaped =
                (start..segment.lines.len()).filter(|i| segment.lines[*i].bits & (PLAIN | MARK) == 0);
            found.retain(|index| *index >= start);
            found.extend(escaped);
            found.sort_unstable();
            found.dedup();
            found.into_iter().map(move |index| self.entry(segment, index))
        })
    }
}

/// What a mark says to a reader.
pub fn mark_text(source: &SourceId, mark: &Mark) -> String {
    let name = source.rank.map_or_else(|| source.name.clone(), |rank| format!("r{rank}"));
    let text = match mark {
        Mark::Gap { reason } => format!("{name}: lines are missing: {reason}"),
        Mark::Resumed { lost: Some(lost), repeated } => {
            format!("{name}: stream cut, resumed: {lost} lost, {repeated} repeated")
        }
        Mark::Resumed { lost: None, repeated } => {
            format!("{name}: stream cut, resumed: it is not known what was lost, {repeated} repeated")
        }
        Mark::Truncated => format!("{name}: file truncated, what follows is from its beginning"),
        Mark::Ended { exit_code: Some(code) } => format!("{name}: ended with exit code {code}"),
        Mark::Ended { exit_code: None } => format!("{name}: ended"),
    };
    clean_text(&text).into_owned()
}
