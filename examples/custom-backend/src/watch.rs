//! One poll for all jobs of a watch.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobSummary};
use weftrun_core::{Error, ErrorKind, Result};

use crate::folder::Spool;

/// How often the folder is looked at.
const PAUSE: Duration = Duration::from_millis(200);

struct Watch {
    spool: Spool,
    filter: JobFilter,
    told: BTreeMap<JobHandle, JobSummary>,
    ready: VecDeque<Result<JobEvent>>,
    looked: bool,
    over: bool,
}

/// Watches the jobs of a filter; ends when every job asked for by handle has ended.
pub(crate) fn watch(spool: Spool, mut filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
    filter.ended = true;
    let watch =
        Watch { spool, filter, told: BTreeMap::new(), ready: VecDeque::new(), looked: false, over: false };
    stream::unfold(watch, Watch::next).boxed()
}

impl Watch {
    async fn next(mut self) -> Option<(Result<JobEvent>, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((event, self));
            }
            if self.over {
                return None;
            }
            if self.looked {
                tokio::time::sleep(PAUSE).await;
            }
            match self.spool.list(&self.filter) {
                Ok(jobs) => self.take(jobs),
                Err(error) => {
                    self.over = true;
                    return Some((Err(error), self));
                }
            }
        }
    }

    /// Tells what changed since the last look.
    fn take(&mut self, jobs: Vec<JobSummary>) {
        let now: BTreeMap<_, _> = jobs.into_iter().map(|job| (job.handle.clone(), job)).collect();
        for (handle, job) in &now {
            if self.told.get(handle) != Some(job) {
                self.ready.push_back(Ok(JobEvent::Status { job: job.clone() }));
            }
        }
        for handle in self.told.keys().filter(|handle| !now.contains_key(*handle)) {
            self.ready.push_back(Ok(JobEvent::Gone { job: handle.clone() }));
        }
        if !self.looked {
            for handle in self.filter.handles.iter().filter(|handle| !now.contains_key(*handle)) {
                let error = Error::new(ErrorKind::NotFound, format!("there is no job {handle}"));
                self.ready.push_back(Err(error));
            }
        }
        let ended = |handle| now.get(handle).is_none_or(|job| job.phase.is_terminal());
        self.over = !self.filter.handles.is_empty() && self.filter.handles.iter().all(ended);
        self.looked = true;
        self.told = now;
    }
}
