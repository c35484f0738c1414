//! The log pane: the shown lines, and the position in them.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use weftrun::core::log::{Filter, Level, LogPosition, LogStore, Pattern, Projection};

/// A log store that the ingest writes and the screens read.
#[derive(Clone, Debug)]
pub struct SharedStore(Arc<RwLock<LogStore>>);

impl SharedStore {
    /// Shares a store.
    pub fn new(store: LogStore) -> Self {
        Self(Arc::new(RwLock::new(store)))
    }

    /// Returns whether both are the same store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Locks it for reading. A writer that panicked has left only complete lines.
    pub fn read(&self) -> RwLockReadGuard<'_, LogStore> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write<T>(&self, change: impl FnOnce(&mut LogStore) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for SharedStore {
    fn default() -> Self {
        Self::new(LogStore::default())
    }
}

/// How times are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    Off,
    /// As a clock, UTC.
    #[default]
    Clock,
    /// Since the first line.
    Relative,
}

/// Most ranks that are pinned.
pub const MAX_PINS: usize = 4;

#[derive(Clone, Debug)]
pub struct Find {
    /// As it was typed.
    pub text: String,
    pub pattern: Pattern,
    /// The lines with it that are shown, in their order, once they are counted.
    pub hits: Option<Vec<LogPosition>>,
    /// Ends of the history and of the live lines up to which they are counted.
    pub counted: (u64, u64),
    /// The number of the count that is under way.
    pub counting: Option<u64>,
    /// How much of the log was searched, in percent.
    pub searched: u8,
    /// Whether lines were ordered by a time when they were counted.
    pub ordered: bool,
    /// How many lines the store had dropped when the hits were last compared with it.
    pub dropped: u64,
    /// Where the cursor goes once they are counted: forward, or back.
    pub goes: Option<bool>,
}

impl Find {
    /// Makes a search that has not begun.
    pub fn new(text: String, pattern: Pattern) -> Self {
        let (hits, counted, counting, searched) = (None, (0, 0), None, 0);
        Self { text, pattern, hits, counted, counting, searched, ordered: false, dropped: 0, goes: None }
    }

    /// Drops what was counted: other lines are shown now. The answer to a count under way is ignored.
    pub fn restart(&mut self) {
        (self.hits, self.counted, self.counting, self.searched) = (None, (0, 0), None, 0);
    }
}

/// A filter that is applied to a large log beside the screen.
#[derive(Clone, Copy, Debug)]
pub struct Filtering {
    pub number: u64,
    /// How much of the log was read, in percent.
    pub read: u8,
}

#[derive(Debug, Default)]
pub struct LogPane {
    pub store: SharedStore,
    pub projection: Projection,
    pub filtering: Option<Filtering>,
    /// What the user typed as a filter.
    pub filter: String,
    /// Ranks the user picked, as typed (`0,8-15`).
    pub ranks: String,
    /// Least severity shown.
    pub level: Level,
    pub times: Times,
    /// Whether long lines are wrapped.
    pub wrap: bool,
    /// Columns scrolled to the right.
    pub column: usize,
    /// Number of the line under the cursor; none while following.
    pub cursor: Option<u64>,
    /// Number of the first line drawn, while paused.
    pub top: Option<u64>,
    /// Number of the next line when it was paused, for "+N new".
    pub paused_at: u64,
    pub find: Option<Find>,
    pub bookmarks: Vec<u64>,
    /// Whether the attempt before is shown.
    pub previous: bool,
    /// Whether ranks have no colours of their own.
    pub one_colour: bool,
    /// Whether repeated lines are shown once.
    pub folded: bool,
    /// The ranks whose last lines stay in sight, and those lines.
    pub pinned: Vec<(u32, Projection)>,
    /// Number of lines that fit into the pane when it was last drawn.
    pub height: usize,
}

impl LogPane {
    /// Creates a pane of an empty log that shows all levels.
    pub fn new() -> Self {
        Self { level: Level::Debug, height: 10, ..Self::default() }
    }

    pub fn follows(&self) -> bool {
        self.cursor.is_none()
    }

    /// Adds the lines since the last call.
    pub fn update(&mut self) {
        let store = self.store.read();
        self.projection.update(&store);
        for (_, lines) in &mut self.pinned {
            lines.update(&store);
        }
    }

    /// Pins the last lines of a rank, or unpins it; returns whether it is pinned. The oldest pin makes space.
    pub fn pin(&mut self, rank: u32) -> bool {
        if let Some(at) = self.pinned.iter().position(|(pinned, _)| *pinned == rank) {
            self.pinned.remove(at);
            return false;
        }
        if self.pinned.len() == MAX_PINS {
            self.pinned.remove(0);
        }
        self.pinned.push((rank, Projection::new(Filter::default().with_ranks([rank]))));
        self.update();
        true
    }

    /// Returns the position of the line under the cursor among the lines with the text, and their number; none
    /// while they are not counted.
    pub fn found(&self) -> Option<(Option<usize>, usize)> {
        let hits = self.find.as_ref()?.hits.as_ref()?;
        let here = self.cursor.and_then(|_| self.projection.place(self.cursor_index()));
        let here = here.and_then(|place| hits.binary_search(&place).ok());
        Some((here.map(|at| at + 1), hits.len()))
    }

    /// Lines that came since it was paused, and are shown.
    pub fn new_lines(&self) -> u64 {
        if self.follows() { 0 } else { self.projection.since(self.paused_at) }
    }

    /// Returns the index of the first line drawn.
    pub fn first(&self, height: usize) -> usize {
        let last = self.projection.len().saturating_sub(height);
        match self.top {
            Some(top) if !self.follows() => {
                self.projection.index_of(top).min(self.projection.len().saturating_sub(1))
            }
            _ => last,
        }
    }

    pub fn cursor_index(&self) -> usize {
        let last = self.projection.len().saturating_sub(1);
        self.cursor.map_or(last, |seq| self.projection.index_of(seq).min(last))
    }

    /// Returns the rank that wrote the line under the cursor.
    pub fn cursor_rank(&self) -> Option<u32> {
        let store = self.store.read();
        let entry = store.get(self.projection.seq(self.cursor_index())?)?;
        store.streams().get(entry.stream as usize)?.rank
    }

    pub fn pause(&mut self) {
        if !self.follows() || self.projection.is_empty() {
            return;
        }
        self.paused_at = self.store.read().end();
        self.top = self.projection.seq(self.first(self.height));
        self.cursor = self.projection.seq(self.projection.len() - 1);
    }

    pub fn follow(&mut self) {
        (self.cursor, self.top) = (None, None);
    }

    /// Puts the cursor on an index, scrolling as little as needed.
    pub fn go(&mut self, index: usize) {
        self.pause();
        let Some(last) = self.projection.len().checked_sub(1) else { return };
        let index = index.min(last);
        self.cursor = self.projection.seq(index);
        let first = self.first(self.height);
        let space = self.height.max(1);
        if index < first {
            self.top = self.projection.seq(index);
        } else if index >= first + space {
            self.top = self.projection.seq(index + 1 - space);
        }
    }

    /// Puts the cursor on an index that may be far away: with some lines before it, for what led to it.
    pub fn jump(&mut self, index: usize) {
        self.pause();
        let first = self.first(self.height);
        if index < first || index >= first + self.height.max(1) {
            self.top = self.projection.seq(index.saturating_sub(self.height / 3));
        }
        self.go(index);
    }

    /// Scrolls to a row of the scroll bar, of which the last row is given too: the last one follows the end. The
    /// cursor stays on the screen.
    pub fn scroll_to(&mut self, (row, last_row): (usize, usize)) {
        if row >= last_row {
            return self.follow();
        }
        self.pause();
        let Some(last) = self.projection.len().checked_sub(1) else { return };
        let page = self.height.max(1);
        let first = crate::update::part((row, last_row), (last + 1).saturating_sub(page));
        self.top = self.projection.seq(first);
        let cursor = self.cursor_index().clamp(first, (first + page - 1).min(last));
        self.cursor = self.projection.seq(cursor);
    }

    pub fn step(&mut self, by: isize) {
        if self.follows() && by > 0 {
            return;
        }
        self.go(self.cursor_index().saturating_add_signed(by));
    }

    /// Returns the lines that a filter shows, before any is looked at.
    pub fn projected(&self, filter: Filter) -> Projection {
        let projection = Projection::new(filter);
        if self.folded { projection.folded() } else { projection }
    }

    /// Removes the hits that the store has dropped.
    pub fn trim_hits(&mut self) {
        let store = self.store.read();
        let Some(find) = self.find.as_mut().filter(|find| find.dropped != store.dropped()) else { return };
        find.dropped = store.dropped();
        find.hits.iter_mut().for_each(|hits| hits.retain(|(_, seq)| store.holds(*seq)));
    }

    /// Shows other lines; the cursor stays near its line.
    pub fn show(&mut self, projection: Projection) {
        self.projection = projection;
        self.filtering = None;
        self.find.iter_mut().for_each(Find::restart);
        self.update();
        if let Some(cursor) = self.cursor {
            let index = self.projection.index_of(cursor);
            self.top = self.projection.seq(index.saturating_sub(self.height / 2));
            self.cursor = self.projection.seq(index.min(self.projection.len().saturating_sub(1)));
        }
    }
}
