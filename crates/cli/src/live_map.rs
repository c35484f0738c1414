//! The transport map while logs arrive: drawn below the scrolling log on a terminal, as lines elsewhere.

use std::time::{Duration, Instant};

use weftrun::Result;
use weftrun::core::fabric::Fabric;
use weftrun::core::log::LogBatch;
use weftrun::core::nccl::{Event, TransportMap};
use weftrun::core::report::{EventLine, OwnEvent};

use crate::map_view;
use crate::output::{Output, style};

/// Time between two drawings that cannot be erased.
const SNAPSHOT: Duration = Duration::from_millis(400);

/// A transport map that is being displayed.
#[derive(Debug)]
pub struct LiveMap {
    map: TransportMap,
    out: Output,
    planned: Fabric,
    /// Whether stderr is a terminal, on which a drawing can be erased.
    terminal: bool,
    /// Whether the map is also drawn where it cannot be erased.
    snapshots: bool,
    lines: usize,
    drawn: Option<(u64, Instant)>,
}

impl LiveMap {
    /// Creates an empty map. With `snapshots` it is drawn from time to time without a terminal too.
    pub fn new(out: Output, planned: Fabric, snapshots: bool) -> Self {
        let terminal = out.is_terminal() && !out.is_data();
        Self { map: TransportMap::new(), out, planned, terminal, snapshots, lines: 0, drawn: None }
    }

    /// Adds a batch, and prints what is new: connections only if no drawing shows them.
    pub fn observe(&mut self, batch: &LogBatch) -> Result<()> {
        let drawn = self.terminal || self.snapshots;
        for event in batch.read_into(&mut self.map) {
            if self.out.is_data() {
                self.out.item(&EventLine::from(OwnEvent::transport(&event)))?;
            } else if !(drawn && matches!(event, Event::Link { .. } | Event::Phase { .. })) {
                let note = style::NOTE;
                self.out.say(format!("{note}≈ {event}{note:#}"));
            }
        }
        Ok(())
    }

    /// Erases the drawing, so that lines can be written in its place.
    pub fn clear(&mut self) {
        self.out.erase_lines(std::mem::take(&mut self.lines));
    }

    /// Redraws the map if it has changed; without a terminal only from time to time.
    pub fn draw(&mut self) {
        if self.out.is_data() || self.out.is_quiet() || !(self.terminal || self.snapshots) {
            return;
        }
        let generation = self.map.generation();
        let due = self.drawn.is_none_or(|(seen, at)| seen != generation && at.elapsed() >= SNAPSHOT);
        if !self.terminal && !due {
            return;
        }
        let text = map_view::draw(&self.map, self.planned);
        if text.is_empty() {
            return;
        }
        self.out.say(text.trim_end_matches('\n'));
        self.lines = if self.terminal { text.lines().count() } else { 0 };
        self.drawn = Some((generation, Instant::now()));
    }

    /// Returns the map, and erases it from the screen.
    pub fn into_map(mut self) -> TransportMap {
        self.clear();
        self.map
    }
}
