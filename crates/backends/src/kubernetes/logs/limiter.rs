//! Bounds the number of log streams that are open at once. Where a job has more containers than that, streams take turns:
//! each gives its permit up after a while if others wait. It also counts the output of all streams, so that a stream that
//! is silent while others write can be opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long a stream stays open while others wait for a permit.
const TURN: Duration = Duration::from_secs(5);

/// The streams that may be open at once.
#[derive(Clone, Debug)]
pub struct Limiter {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    /// How often any of the streams brought output.
    activity: Arc<AtomicU64>,
}

/// The right to keep one stream open; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
    waiting: Arc<AtomicUsize>,
    activity: Arc<AtomicU64>,
}

impl Limiter {
    pub fn new(streams: usize) -> Self {
        let permits = Arc::new(Semaphore::new(streams));
        Self { permits, waiting: Arc::default(), activity: Arc::default() }
    }

    /// Waits for a permit; they are given in the order of the calls.
    pub async fn next(&self) -> Permit {
        // The guard also counts down when this future is dropped.
        let waits = Waits::new(&self.waiting);
        // The semaphore is never closed; if it were, nothing would be limited.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop(waits);
        Permit { _permit: permit, waiting: Arc::clone(&self.waiting), activity: Arc::clone(&self.activity) }
    }
}

impl Permit {
    /// Waits until the permit should be given up: it was held long enough, and another stream waits.
    pub async fn over(&self) {
        loop {
            sleep(TURN).await;
            if self.wanted() {
                return;
            }
        }
    }

    /// Notes that this stream brought output, and returns how often any stream has, this time included.
    pub fn note_activity(&self) -> u64 {
        self.activity.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how often any of the streams brought output.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    fn wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_permit_is_wanted_only_while_another_stream_waits() {
        let limiter = Limiter::new(1);
        let first = limiter.next().await;
        assert!(!first.wanted());
        let mut second = Box::pin(limiter.next());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(first.wanted());
        drop(first);
        assert!(!second.await.wanted());
    }

    #[tokio::test]
    async fn a_stream_sees_the_activity_of_others() {
        let limiter = Limiter::new(2);
        let (quiet, loud) = (limiter.next().await, limiter.next().await);
        let seen = quiet.note_activity();
        assert_eq!(quiet.activity(), seen, "its own output is not another's");
        loud.note_activity();
        assert!(quiet.activity() > seen);
    }

    #[tokio::test]
    async fn a_dropped_wait_wants_no_permit() {
        let limiter = Limiter::new(1);
        let first = limiter.next().await;
        let mut second = Box::pin(limiter.next());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(second);
        assert!(!first.wanted());
    }
}
