//! The lines that a filter selects from a store, ordered by time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::entry::Entry;
use super::{Filter, LogPosition, LogStore, Pattern};

/// Most lines listed one by one: with more, the oldest are left out and counted.
const MOST: usize = 4 << 20;

/// Texts kept to fold equal lines of several ranks into one.
const MOST_TEXTS: usize = 16_384;

/// The lines of a store that are shown, by number. Updated as the store grows, without reading a line
/// twice.
#[derive(Clone, Debug)]
pub struct Projection {
    filter: Filter,
    shown: Shown,
    /// Numbers up to which lines were read: of the history, and of the live lines.
    seen: (u64, u64),
    generation: u64,
    streams: usize,
    /// Whether the stamps in the texts of lines order them.
    stamped: bool,
    newest: i64,
    /// The time of the last line of each source.
    latest: HashMap<usize, i64>,
    dropped: u64,
    left_out: u64,
    folds: Option<Folds>,
}

/// The lines shown.
#[derive(Clone, Debug)]
enum Shown {
    /// All of them, in their original order: a file of a gigabyte needs no list of its lines.
    All { history: Range<u64>, live: Range<u64> },
    /// The place of each, sorted; a line without a time gets that of the line before it.
    Listed(Vec<LogPosition>),
}

/// Lines folded into an earlier one with the same text.
#[derive(Clone, Debug, Default)]
struct Folds {
    hasher: RandomState,
    /// The first line with each text.
    first: HashMap<u64, u64>,
    older: HashMap<u64, u64>,
    /// How many later lines have the same text as a line.
    more: HashMap<u64, u32>,
}

impl Folds {
    /// Returns whether an earlier line has the same text; it is counted there.
    fn folds(&mut self, entry: &Entry) -> bool {
        if entry.mark {
            return false;
        }
        let key = self.hasher.hash_one(entry.message());
        let known = self.first.get(&key).or_else(|| self.older.get(&key)).copied();
        if let Some(first) = known {
            *self.more.entry(first).or_default() += 1;
            return true;
        }
        if self.first.len() >= MOST_TEXTS {
            self.older = std::mem::take(&mut self.first);
        }
        self.first.insert(key, entry.seq);
        false
    }
}

impl Default for Projection {
    fn default() -> Self {
        Self::new(Filter::default())
    }
}

impl Projection {
    /// Makes the projection of a filter; it is empty until [`Self::update`].
    pub fn new(filter: Filter) -> Self {
        let shown = if filter.is_empty() {
            Shown::All { history: 0..0, live: 0..0 }
        } else {
            Shown::Listed(Vec::new())
        };
        Self {
            filter,
            shown,
            seen: (0, 0),
            generation: 0,
            streams: 0,
            stamped: false,
            newest: i64::MIN,
            latest: HashMap::new(),
            dropped: 0,
            left_out: 0,
            folds: None,
        }
    }

    /// Shows equal lines once, with the number of repeats.
    #[must_use]
    pub fn folded(mut self) -> Self {
        (self.shown, self.folds) = (Shown::Listed(Vec::new()), Some(Folds::default()));
        self
    }

    /// Returns how many later lines have the same text.
    pub fn more(&self, seq: u64) -> u32 {
        self.folds.as_ref().and_then(|folds| folds.more.get(&seq)).copied().unwrap_or(0)
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns how many lines were left out since there are too many to list.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds the lines that came since the last call; returns how many were added.
    pub fn update(&mut self, store: &LogStore) -> usize {
        let before = self.len();
        while !self.update_part(store, u64::MAX) {}
        self.len().saturating_sub(before)
    }

    /// Returns how many lines of a store were read, shown or not.
    pub fn read(&self, store: &LogStore) -> u64 {
        self.seen.0 + self.seen.1.saturating_sub(store.live_range().start)
    }

    /// Adds at most so many of the lines that came since the last call; returns whether these were all. Between two parts
    /// the store is free for its writer.
    pub fn update_part(&mut self, store: &LogStore, most: u64) -> bool {
        if store.generation() == self.generation {
            return true;
        }
        let named = store.streams().iter().filter(|stream| stream.rank.is_some()).count();
        if named != self.streams && !self.filter.is_empty() {
            // A stream got its rank: lines without a rank now belong to it.
            self.begin_again(store);
        }
        self.streams = named;
        if self.stamped && !store.stamped {
            // The log has become too large for stamps: later lines have none to be merged by.
            if self.filter.is_empty() && self.folds.is_none() {
                self.shown = Shown::All { history: 0..0, live: 0..0 };
            }
            self.begin_again(store);
        }
        self.stamped = store.stamped;
        if let Shown::All { history, live } = &mut self.shown {
            if store.dropped() == 0 && !store.is_ordered() {
                (*history, *live) = (store.history_range(), store.live_range());
                self.generation = store.generation();
                return true;
            }
            self.shown = Shown::Listed(Vec::new());
            self.begin_again(store);
        }
        self.forget(store);
        let whole = self.list(store, most);
        if whole {
            self.generation = store.generation();
        }
        whole
    }

    fn begin_again(&mut self, store: &LogStore) {
        if let Shown::Listed(shown) = &mut self.shown {
            shown.clear();
        }
        if self.folds.is_some() {
            self.folds = Some(Folds::default());
        }
        self.latest.clear();
        (self.seen, self.newest, self.dropped, self.left_out) = ((0, 0), i64::MIN, store.dropped(), 0);
    }

    /// Lists the next lines; returns whether they were the last.
    fn list(&mut self, store: &LogStore, most: u64) -> bool {
        let Shown::Listed(shown) = &mut self.shown else { return true };
        let begun = shown.len();
        let mut least = i64::MAX;
        let history = store.history_range();
        let mut take = |entry: Entry| {
            // A line without a time was written after the line before it of the same source.
            let source = store.streams().get(entry.stream as usize).map_or(0, |stream| stream.number);
            let before = self.latest.get(&source).copied().unwrap_or(self.newest);
            let time = entry.order.unwrap_or(before);
            self.latest.insert(source, time);
            if !self.filter.shows(store, &entry) {
                return;
            }
            if self.folds.as_mut().is_some_and(|folds| folds.folds(&entry)) {
                return;
            }
            least = least.min(time);
            self.newest = self.newest.max(time);
            shown.push((time, entry.seq));
        };
        let live = store.live_range();
        let from = self.seen.1.max(live.start);
        let ends = if self.seen.0 < history.end {
            (part_end(store, self.seen.0..history.end, most), from)
        } else {
            (history.end, part_end(store, from..live.end, most))
        };
        for (from, end) in [(self.seen.0, ends.0), (from, ends.1)] {
            if from < end {
                store.from(from).take_while(|entry| entry.seq < end).for_each(&mut take);
            }
        }
        self.seen = ends;
        // Only what may be out of order is sorted: the new lines, and older ones with later times. Stable, and fast on
        // runs, which is what several sources are.
        let new =
            shown.get(begun).map_or(u64::MAX, |_| shown[begun..].iter().map(|(_, s)| *s).min().unwrap_or(0));
        let from = shown[..begun].partition_point(|line| *line < (least, new));
        if !shown[from..].is_sorted() {
            shown[from..].sort_unstable();
        }
        if shown.len() > MOST {
            let many = shown.len() - MOST + MOST / 4;
            shown.drain(..many);
            self.left_out += many as u64;
        }
        ends == (history.end, live.end)
    }

    /// Removes lines that the store has dropped; a few may stay for a while, so that a flood does not cost
    /// a scan per frame.
    fn forget(&mut self, store: &LogStore) {
        let lost = store.dropped() - self.dropped;
        let in_order = self.in_order(0);
        let Shown::Listed(shown) = &mut self.shown else { return };
        if lost == 0 || lost < shown.len() as u64 / 16 {
            return;
        }
        self.dropped = store.dropped();
        if in_order {
            let mut held = store.from(0).map(|entry| entry.seq).peekable();
            shown.retain(|(_, seq)| {
                while held.next_if(|held| held < seq).is_some() {}
                held.peek() == Some(seq)
            });
        } else {
            shown.retain(|(_, seq)| store.get(*seq).is_some());
        }
    }

    /// Returns how many lines are shown.
    pub fn len(&self) -> usize {
        match &self.shown {
            Shown::All { history, live } => {
                usize::try_from(history.end - history.start + live.end - live.start).unwrap_or(usize::MAX)
            }
            Shown::Listed(shown) => shown.len(),
        }
    }

    /// Returns whether no line is shown.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the line at an index.
    pub fn seq(&self, index: usize) -> Option<u64> {
        match &self.shown {
            Shown::All { history, live } => {
                let index = index as u64;
                let early = history.end - history.start;
                let seq = if index < early { history.start + index } else { live.start + (index - early) };
                (index < early || seq < live.end).then_some(seq)
            }
            Shown::Listed(shown) => shown.get(index).map(|(_, seq)| *seq),
        }
    }

    /// Returns the index of a line by its number, or where it would be.
    pub fn index_of(&self, seq: u64) -> usize {
        match &self.shown {
            Shown::All { history, live } => {
                let early = history.end - history.start;
                let index = if seq < history.end {
                    seq.saturating_sub(history.start)
                } else {
                    early + seq.clamp(live.start, live.end) - live.start
                };
                usize::try_from(index).unwrap_or(usize::MAX)
            }
            Shown::Listed(shown) => match shown.iter().rposition(|(_, s)| *s == seq) {
                Some(index) => index,
                None => shown.iter().position(|(_, s)| *s >= seq).unwrap_or(shown.len()),
            },
        }
    }

    /// Returns the place of the line at an index.
    pub fn place(&self, index: usize) -> Option<LogPosition> {
        match &self.shown {
            Shown::All { .. } => self.seq(index).map(|seq| (i64::MIN, seq)),
            Shown::Listed(shown) => shown.get(index).copied(),
        }
    }

    /// Returns the index of the line at a place.
    pub fn index_of_place(&self, place: LogPosition) -> usize {
        let exact = match &self.shown {
            Shown::All { .. } => None,
            Shown::Listed(shown) => shown.binary_search(&place).ok(),
        };
        exact.unwrap_or_else(|| self.index_of(place.1))
    }

    /// Returns the index of the first line that is not older than a time.
    pub fn index_at(&self, time: jiff::Timestamp) -> usize {
        match &self.shown {
            Shown::All { .. } => 0,
            Shown::Listed(shown) => shown.partition_point(|(at, _)| *at < time.as_microsecond()),
        }
    }

    /// Returns the time of the first line that has one, or the stamp in its text where lines are ordered by stamps.
    pub fn first_time(&self) -> Option<jiff::Timestamp> {
        let Shown::Listed(shown) = &self.shown else { return None };
        let (time, _) = shown.get(shown.partition_point(|(at, _)| *at == i64::MIN))?;
        jiff::Timestamp::from_microsecond(*time).ok()
    }

    /// Returns how many lines at the end are not older than a number.
    pub fn since(&self, seq: u64) -> u64 {
        match &self.shown {
            Shown::All { live, .. } => live.end.saturating_sub(seq.max(live.start)),
            Shown::Listed(shown) => shown.iter().rev().take_while(|(_, s)| *s >= seq).count() as u64,
        }
    }

    /// Returns the next line, from an index on (itself included), that contains a text.
    pub fn find(&self, store: &LogStore, pattern: &Pattern, from: usize) -> Option<usize> {
        if self.in_order(from) {
            let seq = store.search(pattern, self.seq(from)?, |entry| self.holds(entry.seq))?;
            return Some(self.index_of(seq));
        }
        let Shown::Listed(shown) = &self.shown else { return None };
        let hits = store.search_all(pattern);
        let hit = |(_, seq): &(i64, u64)| hits.binary_search(seq).is_ok();
        shown.get(from..)?.iter().position(hit).map(|at| from + at)
    }

    /// Returns the nearest line before an index that contains a text.
    pub fn find_before(&self, store: &LogStore, pattern: &Pattern, before: usize) -> Option<usize> {
        if self.in_order(0) {
            let end = self.seq(before).unwrap_or(u64::MAX);
            let seq = store.search_back(pattern, end, |entry| self.holds(entry.seq))?;
            return Some(self.index_of(seq));
        }
        let Shown::Listed(shown) = &self.shown else { return None };
        let hits = store.search_all(pattern);
        shown.get(..before)?.iter().rposition(|(_, seq)| hits.binary_search(seq).is_ok())
    }

    /// Returns whether equal lines are shown once.
    pub fn folds(&self) -> bool {
        self.folds.is_some()
    }

    /// Returns whether a line is shown; only for lines in their original order.
    fn holds(&self, seq: u64) -> bool {
        match &self.shown {
            Shown::All { history, live } => history.contains(&seq) || live.contains(&seq),
            Shown::Listed(shown) => shown.binary_search_by_key(&seq, |(_, s)| *s).is_ok(),
        }
    }

    fn in_order(&self, from: usize) -> bool {
        match &self.shown {
            Shown::All { .. } => true,
            Shown::Listed(shown) => {
                shown.get(from..).is_some_and(|rest| rest.is_sorted_by_key(|(_, seq)| *seq))
            }
        }
    }
}

/// Returns where the part of a range ends that is read at once. Lines that were dropped are not counted.
fn part_end(store: &LogStore, range: Range<u64>, most: u64) -> u64 {
    let first = store.from(range.start).next().map_or(range.end, |entry| entry.seq);
    first.max(range.start).saturating_add(most).min(range.end)
}
