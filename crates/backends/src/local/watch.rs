//! Watches jobs of this machine by polling their folders.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::BoxStream;
use weftrun_core::Result;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle};

use super::error;
use super::store::Store;
pub(super) use crate::changes::Look;
use crate::changes::{Reported, compare};
use crate::stream::fed;

/// Time between two polls.
const LOOK: Duration = Duration::from_millis(150);

/// The same while nothing has changed for long.
const LONG_LOOK: Duration = Duration::from_millis(750);

/// How many times longer nothing must have changed than the wait that follows.
const QUIET: u32 = 10;

/// Time between two checks of the jobs folder while all jobs have ended: only a new job can change anything.
const GLANCE: Duration = Duration::from_millis(500);

/// Number of checks after which all jobs are polled anyway.
const GLANCES: u32 = 10;

/// Ended jobs, as last seen, with the time of their record, so that they are not read again.
#[derive(Default)]
pub(super) struct Ended(HashMap<PathBuf, (SystemTime, Look)>);

impl Ended {
    /// Returns the job of a folder, if its record has not changed.
    pub fn get(&self, folder: &Path, record: Option<SystemTime>) -> Option<Look> {
        let (seen, look) = self.0.get(folder)?;
        (Some(*seen) == record).then(|| look.clone())
    }

    /// Stores an ended job.
    pub fn put(&mut self, folder: &Path, record: Option<SystemTime>, look: &Look) {
        if let Some(record) = record {
            self.0.insert(folder.to_owned(), (record, look.clone()));
        }
    }
}

/// The state of a watch between two polls.
struct Watch {
    store: Store,
    filter: JobFilter,
    reported: BTreeMap<JobHandle, Reported>,
    ended: Ended,
    looks: u64,
    /// When something changed last.
    last: Instant,
    /// Whether everything has ended, and the folder's time at that moment.
    quiet: Option<SystemTime>,
    over: bool,
}

/// Watches the jobs of a filter; ends when every job that the filter names by handle has ended.
pub(super) fn watch(store: Store, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
    fed(move |feed| async move {
        let (reported, ended) = (BTreeMap::new(), Ended::default());
        let mut watch = Watch {
            store,
            filter,
            reported,
            ended,
            looks: 0,
            last: Instant::now(),
            quiet: None,
            over: false,
        };
        loop {
            let events = watch.look().await?;
            if !events.is_empty() {
                watch.last = Instant::now();
            }
            for event in events {
                let _ = feed.send(event).await;
            }
            if watch.over {
                return Ok(());
            }
            watch.wait().await;
        }
    })
}

impl Watch {
    /// Waits until something may have changed.
    async fn wait(&self) {
        let Some(quiet) = self.quiet else {
            let look = (self.last.elapsed() / QUIET).clamp(LOOK, LONG_LOOK);
            return tokio::time::sleep(look).await;
        };
        for _ in 0..GLANCES {
            tokio::time::sleep(GLANCE).await;
            if self.store.changed() != Some(quiet) {
                return;
            }
        }
    }

    async fn look(&mut self) -> Result<Vec<Result<JobEvent>>> {
        let (store, filter, first) = (self.store.clone(), self.filter.clone(), self.looks == 0);
        let mut ended = std::mem::take(&mut self.ended);
        // Before the poll: a job that appears meanwhile is seen by the next one.
        let changed = self.store.changed();
        let (seen, ended) =
            error::blocking(move || Ok((store.look(&filter, first, &mut ended)?, ended))).await?;
        (self.ended, self.looks) = (ended, self.looks + 1);
        let all_ended = seen.iter().all(|look| look.summary.phase.is_terminal());
        self.quiet = changed.filter(|_| all_ended);
        let (events, over) = compare(&mut self.reported, seen, &self.filter);
        self.over = over;
        Ok(events)
    }
}
