//! The transport map while it fills: drawn below the scrolling log on a terminal, as lines elsewhere.

use std::time::{Duration, Instant};

use weftrun::Result;
use weftrun::core::fabric::Fabric;
use weftrun::core::log::LogBatch;
use weftrun::core::nccl::{Event, TransportMap};
use weftrun::core::report::{EventLine, OwnEvent};

use crate::map_view;
use crate::output::{Output, style};

/// Time between two drawings where none can be taken away again.
const SNAPSHOT: Duration = Duration::from_millis(400);

/// A map on its way to a person.
#[derive(Debug)]
pub struct LiveMap {
    map: TransportMap,
    out: Output,
    planned: Fabric,
    /// Whether stderr is a terminal, on which a drawing can be taken away.
    terminal: bool,
    /// Whether the map is drawn where it can only be drawn again.
    snapshots: bool,
    lines: usize,
    drawn: Option<(u64, Instant)>,
}

impl LiveMap {
    /// Makes an empty map. With `snapshots` it is drawn from time to time without a terminal too.
    pub fn new(out: Output, planned: Fabric, snapshots: bool) -> Self {
        let terminal = out.is_terminal() && !out.is_data();
        Self { map: TransportMap::new(), out, planned, terminal, snapshots, lines: 0, drawn: None }
    }

    /// Takes a batch in, and says what is new: connections only where no drawing shows them.
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

    /// Takes the drawing away, so that lines can be written in its place.
    pub fn clear(&mut self) {
        self.out.erase_lines(std::mem::take(&mut self.lines));
    }

    /// Draws the map again if there is news; without a terminal only now and then.
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

    /// The map, with nothing of it left on the screen.
    pub fn into_map(mut self) -> TransportMap {
        self.clear();
        self.map
    }
}
