//! Which transport each pair of ranks uses, built line by line while a job starts.
//!
//! [`TransportMap::read`] takes the bytes of any number of sources in any order and returns what is new.
//! [`TransportMap::snapshot`] answers questions about everything read so far. Rank numbers in NCCL's
//! connection lines count from 0 in each communicator; the map keeps them so, and has a global rank only
//! where the logs prove it.
//!
//! [`ingest`], [`facts`], [`identify`] and [`restarts`] process lines; [`observed`] holds the result; all
//! other modules answer questions.

mod anomalies;
mod communicator;
mod diagnosed;
mod differences;
mod event;
mod facts;
mod identify;
mod ids;
mod ingest;
mod link;
mod observed;
mod process;
mod resolve;
mod restarts;
mod signatures;
mod snapshot;
mod stepping;
mod traits;
mod usage;
mod verdict;
mod view;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use anomalies::{Anomalies, Doubts};
pub use diagnosed::OwnDiagnostic;
pub use differences::{Difference, Holders};
pub use event::{Event, Who};
pub use ids::SourceIndex;
pub use link::{Channels, Devices};
pub use process::Phase;
pub use signatures::{SignatureHits, Signatures, Trace, printable};
pub use snapshot::Snapshot;
pub use traits::{NCCL_VERSION, NVLINK_DOMAIN, is_of_one_process};
pub use verdict::{FabricSeen, GdrSeen, Port, Verdict};
pub use view::{CommView, DevicesOfEnds, PairView, PluginSeen, RankView, Totals};
pub use window::{Summary, TransportUse};

use crate::SourceId;
use crate::lines::{Candidates, each_piece};
use ingest::Index;
use observed::Observed;

/// Bytes kept of a name or value that a log prints.
const TEXT: usize = 256;

/// The transport map of a job, fed with log bytes.
#[derive(Clone, Debug, Default)]
pub struct TransportMap {
    seen: Observed,
    index: Index,
    generation: u64,
}

impl TransportMap {
    /// Makes an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of a source and returns what is new. Lines may be torn over calls.
    pub fn read(&mut self, source: &Arc<SourceId>, bytes: &[u8]) -> Vec<Event> {
        self.read_searched(source, bytes, &Candidates::of(bytes))
    }

    /// Does the same with given candidates for failures in these bytes, which another thread may have found.
    pub fn read_searched(
        &mut self,
        source: &Arc<SourceId>,
        bytes: &[u8],
        candidates: &Candidates,
    ) -> Vec<Event> {
        let (at, mut cutter) = self.begin(source);
        let mut events = Vec::new();
        cutter.feed(bytes, candidates, |line| self.take(at, &line, &mut events));
        self.finish(at, cutter, &events);
        events
    }

    /// Ends a source: its last line counts even without a newline. Later bytes begin a new line.
    pub fn end(&mut self, source: &Arc<SourceId>) -> Vec<Event> {
        let (at, mut cutter) = self.begin(source);
        let mut events = Vec::new();
        let cut = cutter.finish(|line| self.take(at, &line, &mut events));
        cutter.last_lines(|line| {
            each_piece(&line, |piece| self.seen.failures.take_last(at, piece));
        });
        self.finish(at, cutter, &events);
        self.seen.failures.end(at, cut);
        events
    }

    /// Ends every source.
    pub fn end_all(&mut self) {
        let ids: Vec<Arc<SourceId>> = self.seen.sources.iter().map(|source| Arc::clone(&source.id)).collect();
        for id in &ids {
            self.end(id);
        }
    }

    /// Returns a number that grows with every change, so that a screen is redrawn only when needed.
    pub fn generation(&self) -> u64 {
        self.generation + self.seen.failures.generation()
    }

    /// Returns whether a source prints training steps.
    pub fn steps(&self, source: &Arc<SourceId>) -> bool {
        self.index.source.get(source).is_some_and(|at| self.seen.sources[*at].throughput.steps())
    }

    /// Returns whether a source is an earlier attempt of another one.
    pub fn is_earlier_attempt(&self, source: &SourceId) -> bool {
        self.seen.restarts.is_earlier(source)
    }

    /// Returns how many values of training steps each rank of a source printed; values without a rank are
    /// counted under none.
    pub fn step_counts(&self, source: &Arc<SourceId>) -> BTreeMap<Option<u32>, u64> {
        let source = self.index.source.get(source).map(|at| &self.seen.sources[*at]);
        source.map(|source| source.throughput.step_counts()).unwrap_or_default()
    }

    /// Returns the processes that were found after the first `known`, in the order in which they were found.
    pub fn newcomers(&self, known: usize) -> impl Iterator<Item = Who> {
        (known..self.seen.processes.len()).map(|at| self.seen.who(at.into()))
    }

    /// Returns the present state: which processes are alive, which communicator spans the job. A snapshot
    /// answers every question about the map; use one for all questions about one moment.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.seen)
    }
}

/// Truncates a text of a log to the length that is kept.
fn cut(text: &str) -> &str {
    cut_at(text, TEXT)
}

fn cut_at(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}
