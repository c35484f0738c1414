//! When each process completed each step, according to its own lines.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use weftrun::core::log::SourceId;
use weftrun::core::nccl::{Event, RankView, TransportMap, Who};

use super::view_builder::step;
use crate::model::transport_view::{Reached, Step};

/// Most sources and processes whose times are kept: a hostile log may name any number of them.
const MOST: usize = 65_536;

/// A process: its source, host and pid.
type Key = (String, Box<str>, Option<u64>);

/// The steps of a rank; the rank is none if the source does not name it.
#[derive(Clone, Copy, Debug)]
struct Progress {
    rank: Option<u32>,
    steps: u64,
    last: Option<Timestamp>,
}

/// What a process's own lines show of its steps.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The last of them up to the trees.
    last: Step,
    /// How many of the first steps have no time, though lines show them.
    untimed: usize,
    reached: Reached,
}

/// The known steps and their times.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The time of the first line of each source, none if it has none.
    begun: HashMap<String, Option<Timestamp>>,
    /// When a source printed its first step of a training; none if that is unknown.
    steps: HashMap<String, Option<Timestamp>>,
    /// What each source's ranks printed of their steps: how many, and when the last one.
    progress: HashMap<String, Vec<Progress>>,
    processes: HashMap<Key, Seen>,
    /// Number of processes of the map that were processed.
    known: usize,
}

impl Times {
    /// Adds the events in the lines of one source with one time, none if it is unknown.
    pub fn note(
        &mut self,
        map: &TransportMap,
        source: &Arc<SourceId>,
        time: Option<Timestamp>,
        events: &[Event],
    ) {
        for who in map.newcomers(self.known) {
            self.known += 1;
            self.reach(&who, Step::Bootstrap, time);
        }
        for event in events {
            if let Event::Phase { who, phase } = event {
                self.reach(who, step(*phase), time);
            }
        }
        let name = source.to_string();
        if self.begun.len() < MOST {
            let earlier =
                |first: &mut Option<Timestamp>| *first = first.map(|first| time.unwrap_or(first).min(first));
            self.begun.entry(name.clone()).and_modify(earlier).or_insert(time);
        }
        if self.steps.len() < MOST && !self.steps.contains_key(&name) && map.steps(source) {
            self.steps.insert(name.clone(), time);
        }
        if self.steps.contains_key(&name) {
            let known = self.progress.entry(name).or_default();
            for (rank, steps) in map.step_counts(source) {
                match known.iter_mut().find(|known| known.rank == rank) {
                    Some(known) if known.steps == steps => {}
                    Some(known) => (known.steps, known.last) = (steps, time),
                    None => known.push(Progress { rank, steps, last: time }),
                }
            }
        }
    }

    /// Returns when a rank did its last step. A step without a rank belongs to the only rank of its source.
    pub fn last_step(&self, view: &RankView, alone: bool, stepping: bool) -> Option<Timestamp> {
        let known = self.progress.get(&view.source).map_or(&[][..], Vec::as_slice);
        let of = |rank: Option<u32>| known.iter().find(|known| known.rank == rank)?.last;
        let own = view.rank.and_then(|rank| of(Some(rank))).or_else(|| alone.then(|| of(None)).flatten());
        // A single writer prints the steps of all.
        let mut writers = self.progress.values().flatten();
        let only = writers.next().filter(|_| writers.next().is_none());
        own.or_else(|| only.filter(|_| stepping)?.last)
    }

    fn reach(&mut self, who: &Who, step: Step, time: Option<Timestamp>) {
        let Some(at) = step.place() else { return };
        let key = (who.source.to_string(), who.host.clone(), who.pid);
        if self.processes.len() < MOST || self.processes.contains_key(&key) {
            let seen = self.processes.entry(key).or_default();
            if step != Step::Stepping {
                seen.last = seen.last.max(step);
            }
            seen.reached[at] = seen.reached[at].or(time);
            if seen.reached[at].is_none() {
                seen.untimed = seen.untimed.max(at + 1);
            }
        }
    }

    /// Returns the last step up to the trees that the lines of a rank's process show.
    pub fn last(&self, view: &RankView) -> Step {
        self.processes.get(&key(view)).map(|seen| seen.last).unwrap_or_default()
    }

    /// Returns when a rank completed each step, if known. A step of its bring-up that no line shows counts as
    /// completed at the next one.
    pub fn reached(&self, view: &RankView, stepping: bool) -> Reached {
        let seen = self.processes.get(&key(view)).copied().unwrap_or_default();
        let (mut reached, begun) = (seen.reached, self.begun.get(&view.source));
        reached[0] = begun.copied().flatten();
        let untimed = seen.untimed.max(usize::from(begun == Some(&None)));
        let mut next = None;
        for time in reached.iter_mut().take(Step::LIFE.len() - 1).skip(untimed).rev() {
            *time = time.or(next);
            next = *time;
        }
        if let (Some(last), true) = (reached.last_mut(), stepping) {
            let first = || self.steps.values().copied().min().flatten();
            *last = self.steps.get(&view.source).copied().unwrap_or_else(first);
        }
        reached
    }
}

fn key(view: &RankView) -> Key {
    (view.source.clone(), view.host.clone(), view.pid)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use weftrun::core::log::{Cursor, LogBatch};

    use super::*;
    use crate::model::transport_view::TransportView;
    use crate::runtime::view_builder::ViewBuilder;

    /// Returns a rank's log in one batch, as when an old log is read: its lines, each with its second.
    fn log(rank: u32, ready: i64, timed: bool) -> LogBatch {
        let process = format!("h{rank}:{}:1 [0] NCCL INFO", 100 + rank);
        let init = format!(
            "{process} ncclCommInitRankConfig comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xabc"
        );
        let lines = [
            (0, "python starts".to_owned()),
            (2, format!("{process} Bootstrap: Using eth0:10.0.0.1<0>")),
            (3, format!("{init} - Init START")),
            (ready, format!("{init} - Init COMPLETE")),
        ];
        let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        let source = Arc::new(SourceId::new(format!("worker-{rank}")));
        let mut batch = LogBatch::new(source, text.into_bytes(), Cursor::default());
        for (line, (second, _)) in batch.lines.iter_mut().zip(&lines) {
            line.time = timed.then(|| Timestamp::from_second(1_000_000 + second).unwrap());
        }
        batch
    }

    fn transport_view(timed: bool, came: Option<Timestamp>) -> TransportView {
        let mut builder = ViewBuilder::default();
        builder.observe(&log(0, 5, timed), came);
        builder.observe(&log(1, 8, timed), came);
        builder.transport_view(None, 2, &std::collections::BTreeMap::new(), None)
    }

    #[test]
    fn a_step_took_from_the_last_of_the_step_before_to_its_own_last() {
        let laps = transport_view(true, None).laps;
        let took = |at: usize| laps[at].and_then(|lap| lap.took).map(|took| took.as_secs());
        assert_eq!([took(0), took(1), took(2), took(3), took(4)], [None, Some(2), Some(1), Some(5), None]);
        let ready = laps[3].unwrap();
        assert_eq!((ready.slowest, ready.spread), (Some(1), SignedDuration::from_secs(3)));
    }

    #[test]
    fn the_last_step_of_a_rank_has_the_time_of_its_line() {
        let mut builder = ViewBuilder::default();
        builder.observe(&log(0, 5, true), None);
        let steps = ["[rank0]: step 1 tokens/s 100", "[rank0]: step 2 tokens/s 101", "saving a checkpoint"];
        let text: String = steps.iter().map(|line| format!("{line}\n")).collect();
        let mut batch =
            LogBatch::new(Arc::new(SourceId::new("worker-0")), text.into_bytes(), Cursor::default());
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        for (line, second) in batch.lines.iter_mut().zip([20, 30, 40]) {
            line.time = Some(at(second));
        }
        builder.observe(&batch, None);
        let view = builder.transport_view(None, 2, &std::collections::BTreeMap::new(), None);
        let of = |rank: u32| view.ranks.iter().find(|known| known.rank == Some(rank)).unwrap().last_step;
        assert_eq!((of(0), of(1)), (Some(at(30)), None));
    }

    #[test]
    fn steps_before_the_first_known_time_have_none() {
        let mut builder = ViewBuilder::default();
        builder.observe(&log(0, 5, false), None);
        let more = |text: &str| {
            let source = Arc::new(SourceId::new("worker-0"));
            LogBatch::new(source, text.as_bytes().to_vec(), Cursor::default())
        };
        builder.observe(&more("[rank0]: step 1 tokens/s 100\n"), None);
        let rank = |builder: &ViewBuilder| {
            let view = builder.transport_view(None, 1, &std::collections::BTreeMap::new(), None);
            view.ranks.first().map(|rank| (rank.reached, rank.last_step)).unwrap()
        };
        let came = Timestamp::from_second(1_000_100).unwrap();
        builder.observe(&more("saving a checkpoint\n"), Some(came));
        assert_eq!(rank(&builder), ([None; 7], None), "a line that is no step has no time of one");
        builder.observe(&more("h0:100:1 [0] NCCL INFO Connected all rings\n"), Some(came));
        let rings = [None, None, None, None, Some(came), None, None];
        assert_eq!(rank(&builder), (rings, None));
        builder.observe(&more("[rank0]: step 2 tokens/s 100\n"), Some(came));
        assert_eq!(rank(&builder), (rings, Some(came)));
    }

    #[test]
    fn lines_without_a_time_that_were_not_seen_to_come_tell_none() {
        assert_eq!(transport_view(false, None).laps, [None; 7]);
        let live = transport_view(false, Some(Timestamp::UNIX_EPOCH));
        assert_eq!(live.laps[3].map(|lap| lap.end), Some(Timestamp::UNIX_EPOCH));
    }
}
