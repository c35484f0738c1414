//! Jobs of this machine, watched by looking at their folders.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use weftrun_core::Result;
use weftrun_core::job::{JobEvent, JobFilter, JobHandle, JobPhase, JobSummary, ReplicaStatus};

use super::client::Store;
use super::error;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(150);

/// What was last told of a job.
#[derive(Default)]
struct Told {
    summary: Option<JobSummary>,
    replicas: Vec<ReplicaStatus>,
    attempt: u32,
}

/// One look at a job.
pub(super) struct Look {
    /// Its line in the list.
    pub summary: JobSummary,
    /// Its processes.
    pub replicas: Vec<ReplicaStatus>,
    /// Its attempt.
    pub attempt: u32,
}

/// Watches the jobs of a filter; ends when every job asked for by handle has ended.
pub(super) fn watch(store: Store, filter: JobFilter) -> BoxStream<'static, Result<JobEvent>> {
    let state = (store, filter, BTreeMap::<JobHandle, Told>::new(), 0_u64, false);
    stream::unfold(state, |(store, filter, mut told, looks, over)| async move {
        if over {
            return None;
        }
        if looks > 0 {
            tokio::time::sleep(LOOK).await;
        }
        let seen = look(&store, &filter, looks == 0).await;
        let (events, over) = match seen {
            Ok(seen) => compare(&mut told, seen, &filter),
            Err(e) => (vec![Err(e)], true),
        };
        Some((stream::iter(events), (store, filter, told, looks + 1, over)))
    })
    .flatten()
    .boxed()
}

async fn look(store: &Store, filter: &JobFilter, first: bool) -> Result<Vec<Look>> {
    let (store, filter) = (store.clone(), filter.clone());
    error::blocking(move || store.look(&filter, first)).await
}

/// What is new since the last look, and whether everything that was asked for has ended.
fn compare(
    told: &mut BTreeMap<JobHandle, Told>,
    seen: Vec<Look>,
    filter: &JobFilter,
) -> (Vec<Result<JobEvent>>, bool) {
    let mut events = Vec::new();
    let gone: Vec<_> =
        told.keys().filter(|h| !seen.iter().any(|l| l.summary.handle == **h)).cloned().collect();
    for handle in gone {
        told.remove(&handle);
        events.push(Ok(JobEvent::Gone { job: handle }));
    }
    let ended = seen.iter().all(|look| look.summary.phase.is_terminal());
    for look in seen {
        tell(told.entry(look.summary.handle.clone()).or_default(), look, &mut events);
    }
    (events, ended && !filter.handles.is_empty())
}

fn tell(told: &mut Told, look: Look, events: &mut Vec<Result<JobEvent>>) {
    let job = look.summary.handle.clone();
    if look.attempt > told.attempt {
        told.attempt = look.attempt;
        let reason = look.summary.reason.clone();
        events.push(Ok(JobEvent::Attempt { job: job.clone(), attempt: look.attempt, reason }));
    }
    let changed = look.replicas.iter().enumerate().filter(|(i, now)| told.replicas.get(*i) != Some(now));
    // A replica nobody heard of is worth an event once it does something.
    let news = changed.filter(|(i, now)| told.replicas.get(*i).is_some() || now.phase != JobPhase::Submitted);
    events.extend(news.map(|(_, now)| Ok(JobEvent::Replica { job: job.clone(), replica: now.clone() })));
    told.replicas = look.replicas;
    if told.summary.as_ref() != Some(&look.summary) {
        events.push(Ok(JobEvent::Status { job: look.summary.clone() }));
        told.summary = Some(look.summary);
    }
}
