//! Searches a whole log beside the screen, on several threads, and reports how far it is.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weftrun::core::finding::Evidence;
use weftrun::core::log::{LogPosition, Pattern, Projection};

use crate::model::logs::SharedStore;
use crate::msg::{Count, Msg};

/// Most threads of one search.
const THREADS: usize = 4;
/// Lines that a filter reads before others look at the store.
const PART: u64 = 1 << 18;
/// Time between two notices of progress, and before the first.
const NOTICE: Duration = Duration::from_millis(200);

/// Returns the first line that proves a finding: of the source it names, else of any.
pub(super) fn evidence(store: &SharedStore, evidence: &[Evidence]) -> Option<u64> {
    let mut parts = store.read().parts();
    parts.push(u64::MAX);
    evidence.iter().find_map(|evidence| {
        let pattern = Pattern::literal(evidence.text.trim_end_matches('…').trim()).ok()?;
        let mut first = None;
        for part in parts.windows(2) {
            // The store is free for its writer between two parts.
            let store = store.read();
            let hits = store.search_between(&pattern, part[0], part[1]);
            let of_source = |seq: &&u64| {
                let stream = store.get(**seq).and_then(|entry| store.streams().get(entry.stream as usize));
                stream.is_some_and(|stream| stream.source.to_string() == evidence.source)
            };
            if let Some(seq) = hits.iter().find(of_source) {
                return Some(*seq);
            }
            first = first.or(hits.first().copied());
        }
        first
    })
}

/// A search for all lines with a text.
pub(super) struct Search {
    pub count: Count,
    /// Set when another search has begun.
    pub stop: Arc<AtomicBool>,
}

impl Search {
    /// Searches and sends the results, unless it is stopped.
    pub fn run(&self, outbox: &mpsc::Sender<Msg>) {
        let (parts, ends) = self.parts();
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<LogPosition>> = Mutex::default();
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
        let notified = Mutex::new(Instant::now());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(part) = parts.get(at) else { return };
                        if self.stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let hits = self.part(part);
                        found.lock().unwrap_or_else(PoisonError::into_inner).extend(hits);
                        let mut notified = notified.lock().unwrap_or_else(PoisonError::into_inner);
                        if notified.elapsed() >= NOTICE {
                            *notified = Instant::now();
                            let percent = u8::try_from(at * 100 / parts.len()).unwrap_or(100);
                            let _ = outbox.try_send(Msg::Searched(self.count.number, percent));
                        }
                    }
                });
            }
        });
        if !self.stop.load(Ordering::Relaxed) {
            let hits = found.into_inner().unwrap_or_else(PoisonError::into_inner);
            let _ = outbox.blocking_send(Msg::Counted(self.count.number, ends, hits));
        }
    }

    /// Returns the numbers of the lines that are not counted yet, in parts, and their ends.
    fn parts(&self) -> (Vec<Range<u64>>, (u64, u64)) {
        let store = self.count.store.read();
        let (history, live) = (store.history_range(), store.live_range());
        let (from, ends) = (self.count.counted, (history.end, live.end));
        let cuts = store.parts();
        let mut parts = Vec::new();
        for mut rest in [from.0..history.end, from.1.max(live.start)..live.end] {
            for cut in &cuts {
                if rest.contains(cut) && *cut > rest.start {
                    parts.push(rest.start..*cut);
                    rest.start = *cut;
                }
            }
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
        }
        (parts, ends)
    }

    /// Searches one part. The store is free for its writer between two of them.
    fn part(&self, part: &Range<u64>) -> Vec<LogPosition> {
        let store = self.count.store.read();
        let hits = store.search_between(&self.count.pattern, part.start, part.end);
        let filter = &self.count.filter;
        if filter.is_empty() && !store.is_ordered() {
            return hits.into_iter().map(|seq| (i64::MIN, seq)).collect();
        }
        let entries = hits.into_iter().filter_map(|seq| store.get(seq));
        entries.filter(|entry| filter.shows(&store, entry)).map(|entry| store.place(&entry)).collect()
    }
}

/// Applies a filter to a log, part by part, and reports how far it is.
pub(super) fn filter(
    number: u64,
    store: &SharedStore,
    mut projection: Box<Projection>,
    stop: &AtomicBool,
    outbox: &mpsc::Sender<Msg>,
) {
    let mut notified = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // The store is free for its writer between two parts.
        let store = store.read();
        if projection.update_part(&store, PART) {
            drop(store);
            let _ = outbox.blocking_send(Msg::Filtered(number, projection));
            return;
        }
        if notified.elapsed() >= NOTICE {
            notified = Instant::now();
            let percent = projection.read(&store) * 100 / store.count().max(1);
            let _ = outbox.try_send(Msg::Filtering(number, u8::try_from(percent).unwrap_or(100)));
        }
    }
}

#[cfg(test)]
mod tests {
    use weftrun::core::log::{Cursor, Filter, LogBatch, LogStore, SourceId};

    use super::*;

    #[test]
    fn a_second_count_takes_only_the_new_lines() {
        let source = Arc::new(SourceId::new("pod-0"));
        let store = SharedStore::new(LogStore::default().with_history());
        let add = |history: bool, text: &str| {
            let batch = LogBatch::new(source.clone(), text.as_bytes().to_vec(), Cursor::default());
            store.write(|s| if history { s.ingest_history(&batch) } else { s.ingest(&batch) });
        };
        let count = |counted| {
            let (outbox, mut inbox) = mpsc::channel(8);
            let (pattern, filter) = (Pattern::literal("needle").unwrap(), Filter::default());
            let count = Count { number: 7, store: store.clone(), pattern, filter, counted };
            Search { count, stop: Arc::default() }.run(&outbox);
            match inbox.try_recv() {
                Ok(Msg::Counted(7, ends, hits)) => (ends, hits.len()),
                other => panic!("{other:?}"),
            }
        };
        add(false, "needle\nhay\nneedle\n");
        let (ends, hits) = count((0, 0));
        assert_eq!(hits, 2);
        assert_eq!(count(ends), (ends, 0));
        add(true, "needle\nhay\n");
        add(false, "needle\nneedle\n");
        let (later, hits) = count(ends);
        assert_eq!((hits, count((0, 0))), (3, (later, 5)));
    }

    #[test]
    fn the_line_of_the_source_that_a_finding_names_proves_it() {
        let store = SharedStore::new(LogStore::default());
        for name in ["pod-0", "pod-1"] {
            let batch = LogBatch::new(
                Arc::new(SourceId::new(name)),
                b"hay\nneedle here\n".to_vec(),
                Cursor::default(),
            );
            store.write(|s| s.ingest(&batch));
        }
        let of = |source: &str, text: &str| {
            evidence(&store, &[Evidence { source: source.to_owned(), line: 2, text: text.to_owned() }])
        };
        assert_eq!((of("pod-1", "needle h…"), of("else", "needle here")), (Some(3), Some(1)));
        assert_eq!(of("pod-1", "absent"), None);
    }
}
