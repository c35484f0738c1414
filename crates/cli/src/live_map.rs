//! The transport map while logs arrive: drawn below the scrolling log on a terminal, as lines elsewhere.

use std::time::{Duration, Instant};

use weftrun::Result;
use weftrun::core::fabric::Fabric;
use weftrun::core::log::LogBatch;
use weftrun::core::nccl::{Event, TransportMap};
use weftrun::diagnose::cause::{Cause, Why, WhyState};
use weftrun::diagnose::{Judge, Sources};
use weftrun::report::{EventLine, OwnEvent};

use crate::map_view;
use crate::output::{Output, style};

/// Time between two drawings that cannot be erased.
const SNAPSHOT: Duration = Duration::from_millis(400);

/// Time between two looks for the cause of a failure.
pub const LOOK: Duration = Duration::from_millis(300);

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
    alarm: Alarm,
}

/// When the first cause of a failure is printed while the job runs.
#[derive(Debug, Default)]
struct Alarm {
    /// The number of the failures that were seen at the last look.
    seen: u64,
    /// How many looks ago the first failure came that no answer includes.
    waiting: Option<u32>,
    /// The last cause that was printed.
    said: Option<Cause>,
}

/// Looks for a failure that is not followed by others, or after which so many looks were made: a traceback has many lines, and
/// the first rank to write is seldom the one that failed first.
const LOOKS: u32 = 3;

impl LiveMap {
    /// Creates an empty map. With `snapshots` it is drawn from time to time without a terminal too.
    pub fn new(out: Output, planned: Fabric, snapshots: bool) -> Self {
        let terminal = out.is_terminal() && !out.is_data();
        Self {
            map: TransportMap::new(),
            out,
            planned,
            terminal,
            snapshots,
            lines: 0,
            drawn: None,
            alarm: Alarm::default(),
        }
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

    /// Returns why the job fails or hangs, if its logs show a cause that was not returned before. Called every [`LOOK`].
    pub fn trouble(&mut self) -> Option<Why> {
        let alarm = &mut self.alarm;
        let generation = self.map.snapshot().failures().generation();
        let quiet = alarm.seen == generation;
        alarm.seen = generation;
        alarm.waiting = match alarm.waiting {
            None if quiet => return None,
            Some(looks) if quiet || looks + 1 >= LOOKS => None,
            looks => {
                alarm.waiting = Some(looks.map_or(0, |looks| looks + 1));
                return None;
            }
        };
        let why = Sources::of_logs(&self.map).running().diagnose().why;
        if !matches!(why.state, WhyState::Failed | WhyState::Hanging) || why.cause == alarm.said {
            return None;
        }
        alarm.said.clone_from(&why.cause);
        // The cluster says how it ends.
        why.cause.is_some().then(|| why.not_ended())
    }

    /// Counts what the logs show as said: it is the end of an attempt after which the job is queued again.
    pub fn forget(&mut self) {
        let generation = self.map.snapshot().failures().generation();
        if std::mem::replace(&mut self.alarm.seen, generation) == generation && self.alarm.waiting.is_none() {
            return;
        }
        self.alarm.waiting = None;
        self.alarm.said = Sources::of_logs(&self.map).running().diagnose().why.cause;
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
        let text = map_view::draw(&self.map, Judge::new(Some(self.planned), &[]));
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
