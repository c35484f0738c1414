//! The lines of a job, in memory, bounded by bytes, each with its rank, time and level.
//!
//! Bytes are never sent as messages: the reader of a backend's stream calls [`LogStore::ingest`], and the
//! view reads the lines it can show. [`LogStore::generation`] changes when there is something new. Segments
//! that do not fit in memory
//! go to the [`Spill`], if there is one; else the oldest lines are dropped, and counted.
//!
//! A log that is opened at its end gives its last lines to `ingest` and the lines before them to
//! [`LogStore::ingest_history`]: lines of the history have lower numbers than all later ones.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::entry::Entry;
use super::line_assembler::{Feed, Whole};
use super::mark::{Note, mark_text, name};
use super::sanitise::{clean_text, is_plain};
use super::segment::{Body, MARK, Meta, NO_TIME, NOTED, PLAIN, STAMPED, Segment};
use super::severity::level;
use super::stamp::stamp;
use super::stream::{LogStream, Streams};
use super::{Level, LogBatch, Mark, SourceId, Spill};
use weftrun_nccl::bandwidth::is_measurement;
use weftrun_nccl::launcher::pieces;

/// Bytes that a store holds by default. With everything else a TUI needs, 256 MB in all.
pub const DEFAULT_BUDGET: usize = 128 * 1024 * 1024;

/// Number of the first line that is not history, in a store that has one.
const LIVE: u64 = 1 << 40;

/// Bytes up to which stamps in the texts of lines are read, where the cluster reports no times. A larger log is shown
/// in the order in which it was read, without a list of its lines.
const STAMPS_UP_TO: u64 = 64 << 20;

/// Most lines for which a [`Note`] is kept.
const MOST_NOTES: usize = 200_000;

/// Number of spilled segments that are cached after a read.
const READ_LAST: usize = 4;

/// The lines of a job.
#[derive(Debug)]
pub struct LogStore {
    /// Ordered by line number: the history, then the live lines.
    pub(super) segments: VecDeque<Segment>,
    pub(super) spill: Option<Box<dyn Spill>>,
    read_last: Mutex<VecDeque<(u64, Arc<Body>)>>,
    streams: Streams,
    feeds: HashMap<Arc<SourceId>, Source>,
    notes: BTreeMap<u64, Note>,
    budget: usize,
    size: usize,
    /// Segments of the history.
    history: usize,
    /// Number of the next line of the history, and of the next live line.
    next: (u64, u64),
    begin: u64,
    reads_history: bool,
    dropped: u64,
    bytes: u64,
    gaps: u64,
    timed: bool,
    pub(super) stamped: bool,
    /// When the batch that is being read arrived.
    arrived: Option<Timestamp>,
    watched: Option<Timestamp>,
    /// Whether lines of weftrun's NCCL library are kept.
    measurements: bool,
    generation: u64,
}

/// State of a source: its number, and its unfinished lines in the history and at its end.
#[derive(Debug, Default)]
struct Source {
    number: usize,
    history: Feed,
    live: Feed,
}

/// The part of a log that lines belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    History,
    Live,
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
            spill: None,
            read_last: Mutex::default(),
            streams: Streams::default(),
            feeds: HashMap::new(),
            notes: BTreeMap::new(),
            budget,
            size: 0,
            history: 0,
            next: (0, 0),
            begin: 0,
            reads_history: false,
            dropped: 0,
            bytes: 0,
            gaps: 0,
            timed: false,
            stamped: false,
            arrived: None,
            watched: None,
            measurements: false,
            generation: 0,
        }
    }

    /// Sends lines that do not fit in memory to a spill instead of dropping them.
    #[must_use]
    pub fn with_attic(mut self, spill: Box<dyn Spill>) -> Self {
        self.spill = Some(spill);
        self
    }

    /// Keeps the lines that weftrun's NCCL library writes each second, which are left out otherwise.
    #[must_use]
    pub fn with_measurements(self, kept: bool) -> Self {
        Self { measurements: kept, ..self }
    }

    /// Reserves numbers for lines before the first; [`Self::ingest_history`] adds them. For an empty store.
    #[must_use]
    pub fn with_history(mut self) -> Self {
        (self.begin, self.next, self.reads_history) = (LIVE, (0, LIVE), true);
        self
    }

    /// Returns a number that changes whenever the lines or their streams do.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of the next line.
    pub fn end(&self) -> u64 {
        self.next.1
    }

    /// Returns the number of all lines ever ingested.
    pub fn count(&self) -> u64 {
        self.next.0 + (self.next.1 - self.begin)
    }

    /// Returns whether lines of the history are still to come.
    pub fn reads_history(&self) -> bool {
        self.reads_history
    }

    /// Marks the history as complete.
    pub fn end_history(&mut self) {
        (self.reads_history, self.generation) = (false, self.generation + 1);
    }

    /// Returns the numbers of the history.
    pub fn history_range(&self) -> Range<u64> {
        0..self.next.0
    }

    /// Returns the numbers of the live lines.
    pub fn live_range(&self) -> Range<u64> {
        self.begin..self.next.1
    }

    /// Returns how many lines are missing between two that follow each other.
    pub fn missing(&self, before: u64, after: u64) -> u64 {
        if before < self.begin && after >= self.begin {
            return (self.next.0 - 1 - before.min(self.next.0.saturating_sub(1))) + (after - self.begin);
        }
        (after - before).saturating_sub(1)
    }

    /// Returns the number of the oldest line still held.
    pub fn start(&self) -> u64 {
        self.segments.iter().find(|s| s.count > 0).map_or(self.next.1, |s| s.first)
    }

    /// Returns how many lines were dropped to stay inside the budget.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns how many gaps the sources reported.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Returns the number of all bytes ever ingested.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes held in memory, index included.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns whether any line carries a time.
    pub fn has_times(&self) -> bool {
        self.timed
    }

    /// Returns whether lines are ordered by a time: by the cluster's, or by stamps in their texts.
    pub fn is_ordered(&self) -> bool {
        self.timed || self.stamped
    }

    /// Returns the place of a line among all lines, from 1; none while lines before it are still to come.
    pub fn line_number(&self, seq: u64) -> Option<u64> {
        if seq < self.next.0 {
            return Some(seq + 1);
        }
        (!self.reads_history).then(|| self.next.0 + seq.saturating_sub(self.begin) + 1)
    }

    /// Returns the number of the line at a place, from 1.
    pub fn line_at(&self, number: u64) -> u64 {
        let place = number.saturating_sub(1);
        if place < self.next.0 { place } else { self.begin + (place - self.next.0) }
    }

    /// Returns the streams, in the order they were first seen.
    pub fn streams(&self) -> &[LogStream] {
        &self.streams.all
    }

    /// Sets which sources are earlier attempts.
    pub fn mark_past(&mut self, is_past: impl Fn(&SourceId) -> bool) {
        for stream in &mut self.streams.all {
            stream.is_past = is_past(&stream.source);
        }
    }

    /// Sets the global rank of each process (host, process id), once NCCL's lines have proved it.
    pub fn learn(&mut self, ranks: &HashMap<(String, u32), u32>) {
        for stream in self.streams.all.iter_mut().filter(|stream| stream.source.rank.is_none()) {
            let known = stream.process.as_ref().and_then(|process| ranks.get(process)).copied();
            if known.is_some() && stream.rank != known {
                stream.rank = known;
                self.generation += 1;
            }
        }
    }

    /// Adds a batch.
    pub fn ingest(&mut self, batch: &LogBatch) {
        self.take(batch, Era::Live);
        self.evict();
    }

    /// Adds a batch and passes the store to `seen` before anything is evicted, so that `seen` finds every line of the batch
    /// whatever the budget is.
    pub fn ingest_seen<T>(&mut self, batch: &LogBatch, seen: impl FnOnce(&mut Self) -> T) -> T {
        self.take(batch, Era::Live);
        let answer = seen(self);
        self.evict();
        answer
    }

    /// Adds a copy of a line of another store, and returns its number here. Its stream is one of the other store.
    pub fn keep_copy(&mut self, entry: &Entry) -> u64 {
        self.generation += 1;
        let seq = self.next.1;
        self.push(entry.meta(), entry.raw(), entry.note, Era::Live);
        self.evict();
        seq
    }

    /// Adds a batch that arrived as it was written, at this time, which shows the silence of a writer where the
    /// cluster reports no times.
    pub fn ingest_at(&mut self, batch: &LogBatch, arrived: Timestamp) {
        self.arrived = Some(arrived);
        self.ingest(batch);
        self.arrived = None;
    }

    /// Ends all sources: their last lines count even without a newline. Later bytes begin new lines.
    pub fn end_sources(&mut self) {
        self.generation += 1;
        for (source, mut known) in std::mem::take(&mut self.feeds) {
            let number = known.number;
            known.history.end(|line| self.line(number, &source, line, None, Era::History));
            known.live.end(|line| self.line(number, &source, line, None, Era::Live));
            self.feeds.insert(source, known);
        }
        self.evict();
    }

    /// Notes that all lines from this time on are seen to arrive.
    pub fn watch(&mut self, since: Timestamp) {
        self.watched = Some(since);
    }

    /// Returns since when lines are seen to arrive.
    pub fn watched(&self) -> Option<Timestamp> {
        self.watched
    }

    /// Adds a batch of lines that precede the first ingested ones.
    pub fn ingest_history(&mut self, batch: &LogBatch) {
        self.take(batch, Era::History);
        self.evict();
    }

    fn take(&mut self, batch: &LogBatch, era: Era) {
        self.generation += 1;
        self.bytes += batch.bytes.len() as u64;
        self.stamped &= self.bytes <= STAMPS_UP_TO;
        let source = &batch.source;
        let mut known = if let Some(known) = self.feeds.remove(source) {
            known
        } else {
            let number = self.streams.source();
            if source.attempt > 0 {
                let text = format!("{}: attempt {} begins", name(source), source.attempt + 1);
                self.note(number, source, &clean_text(&text));
            }
            Source { number, ..Source::default() }
        };
        let number = known.number;
        let feed = if era == Era::History { &mut known.history } else { &mut known.live };
        if let Some(mark) = &batch.mark {
            if matches!(mark, Mark::Truncated | Mark::Ended { .. }) {
                feed.end(|line| self.line(number, source, line, None, era));
            }
            self.mark(number, source, mark);
        }
        let mut start = 0;
        let mut ends = batch.lines.iter().peekable();
        for at in memchr::memchr_iter(b'\n', &batch.bytes) {
            while ends.next_if(|end| end.end <= at).is_some() {}
            let time = ends.next_if(|end| end.end == at + 1).and_then(|end| end.time);
            feed.line(&batch.bytes[start..at], |line| self.line(number, source, line, time, era));
            start = at + 1;
        }
        feed.keep(&batch.bytes[start..]);
        self.feeds.insert(source.clone(), known);
    }

    /// Adds a notice from weftrun itself between the lines.
    pub fn say(&mut self, source: &Arc<SourceId>, text: &str) {
        self.generation += 1;
        let number = if let Some(known) = self.feeds.get(source) {
            known.number
        } else {
            let number = self.streams.source();
            self.feeds.insert(source.clone(), Source { number, ..Source::default() });
            number
        };
        self.note(number, source, &clean_text(text));
    }

    /// Adds a mark between the lines.
    fn note(&mut self, number: usize, source: &Arc<SourceId>, text: &str) {
        let (stream, _) = self.streams.of(number, source, b"");
        let bits = Level::Warn as u8 | MARK | if is_plain(text.as_bytes()) { PLAIN } else { 0 };
        let meta = Meta { start: 0, delta: 0, stream, prefix: 0, bits, time: NO_TIME };
        self.push(meta, text.as_bytes(), Note::default(), Era::Live);
    }

    fn mark(&mut self, number: usize, source: &Arc<SourceId>, mark: &Mark) {
        let text = match mark {
            // A normal exit needs no mark.
            Mark::Ended { exit_code: None | Some(0) } if source.attempt == 0 => return,
            mark => mark_text(source, mark),
        };
        self.gaps += u64::from(matches!(mark, Mark::Gap { .. } | Mark::Truncated));
        self.note(number, source, &text);
    }

    fn line(
        &mut self,
        number: usize,
        source: &Arc<SourceId>,
        line: Whole<'_>,
        time: Option<Timestamp>,
        era: Era,
    ) {
        if !self.measurements && is_measurement(line.bytes) {
            return;
        }
        self.timed |= time.is_some();
        let mut pieces = pieces(line.bytes).peekable();
        while let Some(bytes) = pieces.next() {
            let (stream, found) = self.streams.of(number, source, bytes);
            let own = level(bytes);
            self.streams.count(stream, own, bytes.len(), time.or(self.arrived));
            let level = self.streams.in_traceback(stream, &bytes[found.body..], own);
            let mut bits = level as u8 | if is_plain(bytes) { PLAIN } else { 0 };
            let mut order = time.map(Timestamp::as_microsecond);
            if order.is_none() && self.bytes <= STAMPS_UP_TO {
                order = found.time.and_then(stamp);
                self.stamped |= order.is_some();
                bits |= if order.is_some() { STAMPED } else { 0 };
            }
            let prefix = u8::try_from(found.len).unwrap_or(0);
            let time = order.unwrap_or(NO_TIME);
            let meta = Meta { start: 0, delta: 0, stream, prefix, bits, time };
            // The bytes left out were at the end of the line.
            let last = pieces.peek().is_none();
            let note = if last { Note { cut: line.cut, updates: line.updates } } else { Note::default() };
            self.push(meta, bytes, note, era);
        }
    }

    fn push(&mut self, mut meta: Meta, bytes: &[u8], note: Note, era: Era) {
        let next = if era == Era::History { &mut self.next.0 } else { &mut self.next.1 };
        let seq = *next;
        *next += 1;
        if note != Note::default() {
            self.notes.insert(seq, note);
            meta.bits |= NOTED;
        }
        // Indices of the era's newest segment, and of one after it.
        let behind = if era == Era::History { self.history } else { self.segments.len() };
        let begin = if era == Era::History { 0 } else { self.history };
        let open = (begin..behind)
            .next_back()
            .filter(|at| !self.segments[*at].kept && !self.segments[*at].is_full());
        let at = open.unwrap_or_else(|| {
            self.segments.insert(behind, Segment::new(seq, false));
            self.history += usize::from(era == Era::History);
            behind
        });
        let segment = &mut self.segments[at];
        let before = segment.size();
        segment.push(seq, meta, bytes);
        self.size = self.size - before + segment.size();
    }

    /// Frees memory until the budget holds: full segments go to the spill, the oldest first. Without a
    /// spill they are dropped, except for lines of streams below their fair share: one verbose rank does
    /// not evict the few lines of seven others.
    fn evict(&mut self) {
        while self.notes.len() > MOST_NOTES {
            self.notes.pop_first();
        }
        while self.size > self.budget {
            if !self.put_away() && !self.drop_oldest() {
                return;
            }
        }
    }

    fn put_away(&mut self) -> bool {
        let Some(spill) = self.spill.as_deref_mut() else { return false };
        let Some(old) = self.segments.iter_mut().find(|s| s.is_here() && s.is_full()) else { return false };
        let size = old.size();
        let done = old.put_away(spill);
        if done {
            self.size -= size;
        }
        done
    }

    fn drop_oldest(&mut self) -> bool {
        let here: Vec<usize> = (0..self.segments.len()).filter(|at| self.segments[*at].is_here()).collect();
        let (Some(first), true) = (here.first().copied(), here.len() > 1) else { return false };
        let kept_size: usize = self.segments.iter().filter(|s| s.kept).map(Segment::size).sum();
        let newest = here.iter().copied().find(|at| !self.segments[*at].kept);
        let victim = match newest {
            Some(at) if kept_size <= self.budget / 2 && at + 1 < self.segments.len() => at,
            _ => first,
        };
        let Some(old) = self.segments.remove(victim) else { return false };
        self.history -= usize::from(victim < self.history);
        self.size -= old.size();
        self.release(&old, if old.kept { None } else { Some(victim) });
        true
    }

    /// Removes a segment; with `keep_at`, the lines under their fair share move to the kept segments before
    /// it.
    fn release(&mut self, old: &Segment, keep_at: Option<usize>) {
        let fair = self.budget / 2 / self.streams.all.len().max(1);
        let body = old.body(self.spill.as_deref());
        for (index, meta) in body.lines.iter().enumerate() {
            let seq = old.first + u64::from(meta.delta);
            let bytes = body.raw(index);
            // A copied line has its stream in another store.
            if let Some(stream) = self.streams.all.get_mut(meta.stream as usize) {
                if let Some(at) = keep_at
                    && stream.bytes <= fair
                {
                    self.keep(at, seq, *meta, bytes);
                    continue;
                }
                stream.bytes = stream.bytes.saturating_sub(bytes.len());
            }
            self.dropped += 1;
            if meta.bits & NOTED != 0 {
                self.notes.remove(&seq);
            }
        }
    }

    fn keep(&mut self, mut at: usize, seq: u64, meta: Meta, bytes: &[u8]) {
        // The kept segment is before the old one; one may have been opened since.
        while self.segments.get(at).is_some_and(|s| s.kept) {
            at += 1;
        }
        if at == 0 || !self.segments[at - 1].kept || self.segments[at - 1].is_full() {
            self.segments.insert(at, Segment::new(seq, true));
            self.history += usize::from(seq < self.begin);
            at += 1;
        }
        let target = &mut self.segments[at - 1];
        let before = target.size();
        target.push(seq, meta, bytes);
        self.size = self.size - before + target.size();
    }

    /// Returns the line of a number, if it is still held.
    pub fn get(&self, seq: u64) -> Option<Entry> {
        let segment = self.segments.get(self.segments.partition_point(|s| s.last < seq))?;
        let body = self.body(segment);
        let index = segment.at_or_after(&body, seq);
        let meta = body.lines.get(index)?;
        (segment.first + u64::from(meta.delta) == seq).then(|| self.entry(segment, &body, index))
    }

    /// Returns the lines from a number on, in order.
    pub fn from(&self, seq: u64) -> impl Iterator<Item = Entry> {
        let first = self.segments.partition_point(|s| s.last < seq);
        self.segments.iter().skip(first).flat_map(move |segment| {
            let body = segment.body(self.spill.as_deref());
            let skip = segment.at_or_after(&body, seq);
            (skip..body.lines.len()).map(move |index| self.entry(segment, &body, index))
        })
    }

    /// Returns the lines before a number, the newest first.
    pub fn before(&self, seq: u64) -> impl Iterator<Item = Entry> {
        self.segments.iter().rev().skip_while(move |s| s.first >= seq).flat_map(move |segment| {
            let body = segment.body(self.spill.as_deref());
            let end = segment.at_or_after(&body, seq);
            (0..end).rev().map(move |index| self.entry(segment, &body, index))
        })
    }

    /// Returns the lines of a segment; recently read spilled segments are cached.
    fn body(&self, segment: &Segment) -> Arc<Body> {
        if segment.is_here() {
            return segment.body(None);
        }
        let mut last = self.read_last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, body)) = last.iter().find(|(first, _)| *first == segment.first) {
            return body.clone();
        }
        let body = segment.body(self.spill.as_deref());
        last.truncate(READ_LAST - 1);
        last.push_front((segment.first, body.clone()));
        body
    }

    pub(super) fn entry(&self, segment: &Segment, body: &Arc<Body>, index: usize) -> Entry {
        let meta = body.lines[index];
        let seq = segment.first + u64::from(meta.delta);
        let note = if meta.bits & NOTED == 0 { None } else { self.notes.get(&seq).copied() };
        Entry {
            seq,
            stream: meta.stream,
            time: meta.time(),
            // The stamps of a log that is too large for them order nothing.
            order: meta.order().filter(|_| self.stamped || meta.bits & STAMPED == 0),
            level: meta.level(),
            mark: meta.bits & MARK != 0,
            note: note.unwrap_or_default(),
            body: body.clone(),
            index,
            prefix: usize::from(meta.prefix),
            plain: meta.bits & PLAIN != 0,
        }
    }
}
