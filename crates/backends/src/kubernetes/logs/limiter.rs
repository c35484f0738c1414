//! Bounds the number of log streams that are open at once. Where a job has more containers than that, streams take turns:
//! each gives its permit up after a while if others wait. It also counts the output of all streams, so that a stream that
//! is silent while others write can be opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// How long a stream stays open while others wait for a permit.
const TURN: Duration = Duration::from_secs(5);

/// Pause between two openings that most likely bring nothing, while nothing is written: each costs the API server up to two
/// requests.
const IDLE: Duration = Duration::from_millis(500);
/// The same while streams bring output.
const BUSY: Duration = Duration::from_millis(50);
/// The same while streams wait that were never open.
const NEW: Duration = Duration::from_millis(10);

/// The streams that may be open at once.
#[derive(Clone, Debug)]
pub struct Limiter {
    permits: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// What all streams of a follower share.
#[derive(Debug)]
struct Shared {
    waiting: AtomicUsize,
    /// Those of them that were never open.
    new: AtomicUsize,
    /// How often any of the streams brought output.
    activity: AtomicU64,
    /// When a stream was last let pass, and what the activity was then.
    last: Mutex<(Option<Instant>, u64)>,
}

/// The right to keep one stream open; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
}

impl Limiter {
    pub fn new(streams: usize) -> Self {
        let shared = Shared {
            waiting: AtomicUsize::new(0),
            new: AtomicUsize::new(0),
            activity: AtomicU64::new(0),
            last: Mutex::new((None, 0)),
        };
        Self { permits: Arc::new(Semaphore::new(streams)), shared: Arc::new(shared) }
    }

    /// Waits for a permit; they are given in the order of the calls. `new` says that the stream was never open.
    pub async fn next(&self, new: bool) -> Permit {
        // The guards also count down when this future is dropped.
        let waits = Waits::new(&self.shared.waiting);
        let new = new.then(|| Waits::new(&self.shared.new));
        // The semaphore is never closed; if it were, nothing would be limited.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop((waits, new));
        Permit { _permit: permit, shared: Arc::clone(&self.shared) }
    }

    /// Waits before a stream is opened again that brought nothing: kubelets that end every stream at once must not cost the
    /// API server hundreds of requests a second.
    pub async fn pace(&self) {
        self.shared.pace().await;
    }
}

impl Shared {
    /// Lets callers pass one by one, with a pause between them.
    async fn pace(&self) {
        // Held while waiting: the lock is fair, so callers pass in their order.
        let mut last = self.last.lock().await;
        while let Some(before) = last.0 {
            let activity = self.activity.load(Ordering::Relaxed);
            let pause = match () {
                () if self.new.load(Ordering::Relaxed) > 0 => NEW,
                () if activity > last.1 => BUSY,
                () => IDLE,
            };
            let left = pause.saturating_sub(before.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(left.min(BUSY)).await;
        }
        *last = (Some(Instant::now()), self.activity.load(Ordering::Relaxed));
    }
}

impl Permit {
    /// Waits until the permit should be given up: it was held long enough, and another stream waits.
    pub async fn over(&self) {
        loop {
            sleep(TURN).await;
            if !self.wanted() {
                continue;
            }
            self.shared.pace().await;
            if self.wanted() {
                return;
            }
        }
    }

    /// Notes that this stream brought output, and returns how often any stream has, this time included.
    pub fn note_activity(&self) -> u64 {
        self.shared.activity.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how often any of the streams brought output.
    pub fn activity(&self) -> u64 {
        self.shared.activity.load(Ordering::Relaxed)
    }

    fn wanted(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > 0
    }
}

struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
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
        let first = limiter.next(false).await;
        assert!(!first.wanted());
        let mut second = Box::pin(limiter.next(false));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(first.wanted());
        drop(first);
        assert!(!second.await.wanted());
    }

    #[tokio::test]
    async fn a_stream_sees_the_activity_of_others() {
        let limiter = Limiter::new(2);
        let (quiet, loud) = (limiter.next(false).await, limiter.next(false).await);
        let seen = quiet.note_activity();
        assert_eq!(quiet.activity(), seen, "its own output is not another's");
        loud.note_activity();
        assert!(quiet.activity() > seen);
    }

    #[tokio::test]
    async fn a_dropped_wait_wants_no_permit() {
        let limiter = Limiter::new(1);
        let first = limiter.next(false).await;
        let mut second = Box::pin(limiter.next(false));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(second);
        assert!(!first.wanted());
    }

    /// A thousand streams that all want to be opened again cost few requests while nothing is written, more while something
    /// is, and those that were never open do not wait for them.
    #[tokio::test]
    async fn openings_that_bring_nothing_are_few() {
        let limiter = Limiter::new(1);
        let passed = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
            tasks.spawn(async move {
                limiter.pace().await;
                passed.fetch_add(1, Ordering::Relaxed);
            });
        }
        let began = Instant::now();
        sleep(Duration::from_millis(1600)).await;
        // The first passes at once; a slow machine lets more time go by, and then more may pass.
        let idle = passed.load(Ordering::Relaxed);
        let most = 1 + usize::try_from(began.elapsed().as_millis() / IDLE.as_millis()).unwrap();
        assert!((1..=most).contains(&idle), "{idle} of {most}");
        let permit = limiter.next(true).await;
        let mut new = Box::pin(limiter.next(true));
        assert!(futures_util::poll!(&mut new).is_pending());
        for _ in 0..600 {
            if passed.load(Ordering::Relaxed) >= idle + 20 {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert!(
            passed.load(Ordering::Relaxed) >= idle + 20,
            "a stream that was never open waits for idle ones"
        );
        drop(permit);
    }
}
