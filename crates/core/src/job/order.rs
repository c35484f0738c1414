//! The order of a watch's events, the same on every backend.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::stream::{BoxStream, Stream};

use super::{JobEvent, JobHandle, JobPhase, JobSummary};
use crate::Result;

/// Most events of one job that are kept until its first status; older ones are dropped.
const HELD: usize = 256;

/// The reason of a status whose job disappeared before its end was seen.
const UNSEEN_END: &str = "no longer in the cluster: it was deleted, or its end was not seen";

/// Puts the events of a watch into the order that [`Backend::watch`](crate::backend::Backend::watch) requires:
/// the first event of a job is its status, and a terminal status comes before [`JobEvent::Gone`]. A job whose
/// end was not seen is reported as [`JobPhase::Cancelled`] then, and the reason names it.
///
/// ```
/// use weftrun_core::job::{EventOrder, JobEvent, JobHandle, JobPhase};
/// let job: JobHandle = "local://local/demo".parse()?;
/// let mut order = EventOrder::default();
/// let events: Vec<JobEvent> = order.put(JobEvent::Gone { job }).collect();
/// assert_eq!(events[0].phase(), Some(JobPhase::Cancelled));
/// assert!(matches!(events[1], JobEvent::Gone { .. }));
/// # Ok::<(), weftrun_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct EventOrder {
    jobs: BTreeMap<JobHandle, Known>,
    ready: VecDeque<JobEvent>,
}

/// What was reported of a job.
#[derive(Debug, Default)]
struct Known {
    status: Option<JobSummary>,
    /// Events that came before the first status.
    held: VecDeque<JobEvent>,
}

impl EventOrder {
    /// Takes an event as the cluster sent it, and returns the events that can be reported now.
    pub fn put(&mut self, event: JobEvent) -> impl Iterator<Item = JobEvent> {
        match event {
            JobEvent::Status { job } => {
                let known = self.jobs.entry(job.handle.clone()).or_default();
                known.status = Some(job.clone());
                self.ready.push_back(JobEvent::Status { job });
                self.ready.append(&mut known.held);
            }
            JobEvent::Gone { job } => {
                let Known { status, mut held } = self.jobs.remove(&job).unwrap_or_default();
                if status.as_ref().is_none_or(|status| !status.phase.is_terminal()) {
                    let mut end = status.unwrap_or_else(|| JobSummary::new(job.clone(), JobPhase::Unknown));
                    end.phase = JobPhase::Cancelled;
                    end.reason = UNSEEN_END.to_owned();
                    self.ready.push_back(JobEvent::Status { job: end });
                }
                self.ready.append(&mut held);
                self.ready.push_back(JobEvent::Gone { job });
            }
            JobEvent::Replica { ref job, .. }
            | JobEvent::Message { ref job, .. }
            | JobEvent::Stuck { ref job, .. }
            | JobEvent::Attempt { ref job, .. } => {
                let known = self.jobs.entry(job.clone()).or_default();
                if known.status.is_some() {
                    self.ready.push_back(event);
                } else {
                    if known.held.len() == HELD {
                        known.held.pop_front();
                    }
                    known.held.push_back(event);
                }
            }
            JobEvent::Disconnected { .. } => self.ready.push_back(event),
        }
        self.ready.drain(..)
    }
}

/// Puts a stream of events into the order of [`EventOrder`]; a backend's `watch` ends with it.
pub fn ordered(events: BoxStream<'static, Result<JobEvent>>) -> BoxStream<'static, Result<JobEvent>> {
    Box::pin(Ordered { events, order: EventOrder::default(), ready: VecDeque::new() })
}

struct Ordered {
    events: BoxStream<'static, Result<JobEvent>>,
    order: EventOrder,
    ready: VecDeque<JobEvent>,
}

impl Stream for Ordered {
    type Item = Result<JobEvent>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            match this.events.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(event))) => this.ready.extend(this.order.put(event)),
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::ReplicaStatus;

    fn handle() -> JobHandle {
        JobHandle::new("local", "local", ["a"])
    }

    fn status(phase: JobPhase) -> JobEvent {
        JobEvent::Status { job: JobSummary::new(handle(), phase) }
    }

    fn replica() -> JobEvent {
        let replica = ReplicaStatus::new("node0", "worker", 0, JobPhase::Running);
        JobEvent::Replica { job: handle(), replica }
    }

    fn all(events: impl IntoIterator<Item = JobEvent>) -> Vec<JobEvent> {
        let mut order = EventOrder::default();
        events.into_iter().flat_map(|event| order.put(event).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn the_status_comes_first() {
        let events = all([replica(), status(JobPhase::Running), replica()]);
        assert_eq!(events, [status(JobPhase::Running), replica(), replica()]);
    }

    #[test]
    fn an_end_that_was_seen_is_not_replaced() {
        let gone = JobEvent::Gone { job: handle() };
        let events = [status(JobPhase::Running), status(JobPhase::Failed), gone];
        assert_eq!(all(events.clone()), events);
    }

    #[test]
    fn a_job_that_disappears_has_ended_first() {
        let gone = || JobEvent::Gone { job: handle() };
        for before in [vec![], vec![replica()], vec![status(JobPhase::Running)]] {
            let events = all(before.into_iter().chain([gone()]));
            let end = events.iter().position(|event| event.phase().is_some_and(JobPhase::is_terminal));
            assert!(end.is_some_and(|end| end < events.len() - 1), "{events:?}");
            assert_eq!(events.last(), Some(&gone()));
        }
        // The next job of this name is a new one.
        let again = all([gone(), status(JobPhase::Running), gone()]);
        assert_eq!(again.iter().filter(|event| event.phase() == Some(JobPhase::Cancelled)).count(), 2);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let events = all((0..1000).map(|_| replica()).chain([status(JobPhase::Running)]));
        assert_eq!(events.len(), 1 + HELD);
    }
}
