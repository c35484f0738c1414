//! The log pane: the shown lines, and the position in them.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use weftrun::core::log::{Filter, Level, LogStore, Pattern, Projection};

/// A log store that the ingest writes and the screens read.
#[derive(Clone, Debug)]
pub struct SharedStore(Arc<RwLock<LogStore>>);

impl SharedStore {
    /// Shares a store.
    pub fn new(store: LogStore) -> Self {
        Self(Arc::new(RwLock::new(store)))
    }

    /// Locks it for reading. A writer that panicked has left only complete lines.
    pub fn read(&self) -> RwLockReadGuard<'_, LogStore> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it.
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
    /// Not at all.
    Off,
    /// As a clock, UTC.
    #[default]
    Clock,
    /// Since the first line.
    Relative,
}

/// The log pane.
#[derive(Debug)]
pub struct LogPane {
    /// The lines.
    pub store: SharedStore,
    /// Those that are shown.
    pub projection: Projection,
    /// What the user typed as a filter.
    pub filter: String,
    /// Ranks the user picked, as typed (`0,8-15`).
    pub ranks: String,
    /// Least severity shown.
    pub level: Level,
    /// How times are shown.
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
    /// What is being looked for.
    pub find: Option<(String, Pattern)>,
    /// Bookmarked lines.
    pub bookmarks: Vec<u64>,
    /// Whether the attempt before is shown.
    pub previous: bool,
    /// Whether repeated lines are shown once.
    pub folded: bool,
    /// The rank whose last lines stay in sight, and those lines.
    pub pinned: Option<(u32, Projection)>,
    /// Number of lines that fit into the pane when it was last drawn.
    pub height: usize,
}

impl Default for LogPane {
    fn default() -> Self {
        Self {
            store: SharedStore::default(),
            projection: Projection::new(Filter::default()),
            filter: String::new(),
            ranks: String::new(),
            level: Level::Debug,
            times: Times::default(),
            wrap: false,
            column: 0,
            cursor: None,
            top: None,
            paused_at: 0,
            find: None,
            bookmarks: Vec::new(),
            previous: false,
            folded: false,
            pinned: None,
            height: 10,
        }
    }
}

impl LogPane {
    /// Whether it follows the end.
    pub fn follows(&self) -> bool {
        self.cursor.is_none()
    }

    /// Adds the lines since the last call.
    pub fn update(&mut self) {
        let store = self.store.read();
        self.projection.update(&store);
        if let Some((_, lines)) = &mut self.pinned {
            lines.update(&store);
        }
    }

    /// Pins the last lines of a rank, or unpins it.
    pub fn pin(&mut self, rank: u32) -> bool {
        let same = self.pinned.as_ref().is_some_and(|(pinned, _)| *pinned == rank);
        self.pinned = (!same).then(|| (rank, Projection::new(Filter::default().with_ranks([rank]))));
        self.update();
        !same
    }

    /// Lines that came since it was paused, and are shown.
    pub fn new_lines(&self) -> u64 {
        if self.follows() { 0 } else { self.projection.since(self.paused_at) }
    }

    /// Index of the first line drawn.
    pub fn first(&self, height: usize) -> usize {
        let last = self.projection.len().saturating_sub(height);
        match self.top {
            Some(top) if !self.follows() => {
                self.projection.index_of(top).min(self.projection.len().saturating_sub(1))
            }
            _ => last,
        }
    }

    /// Index of the line under the cursor.
    pub fn cursor_index(&self) -> usize {
        let last = self.projection.len().saturating_sub(1);
        self.cursor.map_or(last, |seq| self.projection.index_of(seq).min(last))
    }

    /// The rank that wrote the line under the cursor.
    pub fn cursor_rank(&self) -> Option<u32> {
        let store = self.store.read();
        let entry = store.get(self.projection.seq(self.cursor_index())?)?;
        store.streams().get(entry.stream as usize)?.rank
    }

    /// Pauses at the present position.
    pub fn pause(&mut self) {
        if !self.follows() || self.projection.is_empty() {
            return;
        }
        self.paused_at = self.store.read().end();
        self.top = self.projection.seq(self.first(self.height));
        self.cursor = self.projection.seq(self.projection.len() - 1);
    }

    /// Follows the end.
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
        let room = self.height.max(1);
        if index < first {
            self.top = self.projection.seq(index);
        } else if index >= first + room {
            self.top = self.projection.seq(index + 1 - room);
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

    /// Moves the cursor.
    pub fn step(&mut self, by: isize) {
        if self.follows() && by > 0 {
            return;
        }
        self.go(self.cursor_index().saturating_add_signed(by));
    }

    /// Applies another filter; the cursor stays near its line.
    pub fn refilter(&mut self, filter: Filter) {
        let projection = Projection::new(filter);
        self.projection = if self.folded { projection.folded() } else { projection };
        self.update();
        if let Some(cursor) = self.cursor {
            let index = self.projection.index_of(cursor);
            self.top = self.projection.seq(index.saturating_sub(self.height / 2));
            self.cursor = self.projection.seq(index.min(self.projection.len().saturating_sub(1)));
        }
    }
}
