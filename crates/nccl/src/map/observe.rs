//! Bytes of many sources, taken into the map as they come.

use std::sync::Arc;

use super::{Event, TransportMap, Who};
use crate::SourceId;

impl TransportMap {
    /// Takes the next bytes of a source and returns what is new. Lines may be torn over calls.
    pub fn read(&mut self, source: &Arc<SourceId>, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        let source = self.source(source);
        self.feed_into(source, bytes, &mut events);
        let rank = self.sources.get(source as usize).and_then(|source| source.id.rank);
        self.failures.read(source, rank, bytes);
        events
    }

    /// Takes the end of a source: its last line counts even without a newline. Bytes that follow begin a new line.
    pub fn end(&mut self, source: &Arc<SourceId>) -> Vec<Event> {
        let mut events = Vec::new();
        let source = self.source(source);
        self.finish_into(source, &mut events);
        self.failures.end(source);
        events
    }

    /// Takes the end of every source.
    pub fn end_all(&mut self) {
        let ids: Vec<Arc<SourceId>> = self.sources.iter().map(|source| Arc::clone(&source.id)).collect();
        for id in &ids {
            self.end(id);
        }
    }

    /// Whether a source prints steps of a training.
    pub fn steps(&self, source: &Arc<SourceId>) -> bool {
        self.source_index.get(source).is_some_and(|at| self.sources[*at as usize].throughput.steps())
    }

    /// The processes that were found behind the first so many, in the order they were found.
    pub fn newcomers(&self, known: usize) -> impl Iterator<Item = Who> {
        (known..self.processes.len()).map(|at| self.who(u32::try_from(at).unwrap_or(u32::MAX)))
    }
}
