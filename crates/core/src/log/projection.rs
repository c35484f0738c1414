//! The lines a reader wants to see, in the order of their times: what a filter leaves of a store.

use super::{Filter, LogStore, Pattern};

/// Which lines of a store are shown, by number. Kept up to date as the store grows, without looking at a line twice.
#[derive(Debug, Default)]
pub struct Projection {
    filter: Filter,
    /// Time and number of each line shown, sorted; times repeat the line before's where a line has none.
    shown: Vec<(i64, u64)>,
    seen: u64,
    generation: u64,
    lanes: usize,
    newest: i64,
    dropped: u64,
}

impl Projection {
    /// Makes the projection of a filter; it is empty until [`Self::update`].
    pub fn new(filter: Filter) -> Self {
        Self { filter, newest: i64::MIN, ..Self::default() }
    }

    /// The filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Takes in what came to the store since the last call; gives how many lines were added.
    pub fn update(&mut self, store: &LogStore) -> usize {
        if store.generation() == self.generation {
            return 0;
        }
        self.generation = store.generation();
        let named = store.lanes().iter().filter(|lane| lane.rank.is_some()).count();
        if named != self.lanes && !self.filter.is_empty() {
            // A lane has got its rank: lines that were not its before are now.
            self.shown.clear();
            (self.seen, self.newest, self.dropped) = (0, i64::MIN, store.dropped());
        }
        self.lanes = named;
        self.forget(store);
        let before = self.shown.len();
        let mut sorted = true;
        for entry in store.from(self.seen) {
            let time = entry.time.map_or(self.newest, |time| time.as_microsecond());
            if !self.filter.shows(store, &entry) {
                continue;
            }
            sorted &= self.shown.last().is_none_or(|last| last.0 <= time);
            self.newest = self.newest.max(time);
            self.shown.push((time, entry.seq));
        }
        self.seen = store.end();
        if !sorted {
            // Stable and fast on runs, which is what the histories of several sources are.
            self.shown.sort();
        }
        self.shown.len() - before
    }

    /// Leaves out lines the store has dropped; a few may stay for a while, so that a flood does not cost a walk a frame.
    fn forget(&mut self, store: &LogStore) {
        let lost = store.dropped() - self.dropped;
        if lost == 0 || (lost as usize) < self.shown.len() / 16 {
            return;
        }
        self.dropped = store.dropped();
        if self.in_order(0) {
            let mut held = store.from(0).map(|entry| entry.seq).peekable();
            self.shown.retain(|(_, seq)| {
                while held.next_if(|held| held < seq).is_some() {}
                held.peek() == Some(seq)
            });
        } else {
            self.shown.retain(|(_, seq)| store.get(*seq).is_some());
        }
    }

    /// How many lines are shown.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Number of the line at an index.
    pub fn seq(&self, index: usize) -> Option<u64> {
        self.shown.get(index).map(|(_, seq)| *seq)
    }

    /// Index of a line by its number, or where it would be.
    pub fn index_of(&self, seq: u64) -> usize {
        match self.shown.iter().rposition(|(_, s)| *s == seq) {
            Some(index) => index,
            None => self.shown.iter().position(|(_, s)| *s >= seq).unwrap_or(self.shown.len()),
        }
    }

    /// The next line, from an index on (itself included), that holds a text.
    pub fn find(&self, store: &LogStore, pattern: &Pattern, from: usize) -> Option<usize> {
        let rest = self.shown.get(from..)?;
        if let (Some(needle), true) = (pattern.needle(), self.in_order(from)) {
            let finder = memchr::memmem::Finder::new(needle);
            let hit = |seq: u64| rest.binary_search_by_key(&seq, |(_, s)| *s).ok();
            return store
                .candidates(&finder, rest.first()?.1)
                .filter(|entry| entry.is_plain() || pattern.matches(entry))
                .find_map(|entry| hit(entry.seq))
                .map(|at| from + at);
        }
        let matches = |seq: u64| store.get(seq).is_some_and(|entry| pattern.matches(&entry));
        rest.iter().position(|(_, seq)| matches(*seq)).map(|at| from + at)
    }

    /// The nearest line before an index that holds a text.
    pub fn find_before(&self, store: &LogStore, pattern: &Pattern, before: usize) -> Option<usize> {
        let matches = |seq: u64| store.get(seq).is_some_and(|entry| pattern.matches(&entry));
        self.shown.get(..before)?.iter().rposition(|(_, seq)| matches(*seq))
    }

    fn in_order(&self, from: usize) -> bool {
        self.shown[from..].is_sorted_by_key(|(_, seq)| *seq)
    }
}
