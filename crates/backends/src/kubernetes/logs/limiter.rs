//! Limits the number of log streams that are open at once. If a job has more containers than that, streams
//! take turns: each releases its permit after a while if others wait. It also limits the rate of requests
//! that most likely return nothing, and counts the output of all streams, so that a stream that is silent
//! while others write can be reopened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// How long a stream stays open while others wait for a permit.
const TURN: Duration = Duration::from_secs(5);

/// Time between two requests of one [`Budget`] while nothing is written. There are two budgets, so a follower sends at most four
/// such requests a second.
const IDLE: Duration = Duration::from_millis(500);
/// The same while streams bring output.
const BUSY: Duration = Duration::from_millis(50);
/// The same while streams wait that were never open.
const NEW: Duration = Duration::from_millis(10);
/// How long after the last output streams count as bringing some.
const BUSY_FOR: Duration = Duration::from_secs(2);
/// Burst of requests for streams that ended soon after they were opened: the streams of a small job need not
/// wait.
const SOON: u32 = 64;
/// Burst per stream that was open for [`LASTED`]: an API server that restarts breaks all of them at once.
const LASTING: u32 = 2;
/// A stream that was open this long did not end at once.
const LASTED: Duration = Duration::from_secs(10);
/// How often a waiting request checks whether the rate has changed.
const LOOK: Duration = Duration::from_millis(50);

/// The streams that may be open at once.
#[derive(Clone, Debug)]
pub struct Limiter {
    permits: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// The state that all streams of a follower share.
#[derive(Debug)]
struct Shared {
    waiting: AtomicUsize,
    /// Those of them that were never open.
    new: AtomicUsize,
    /// How often any stream had output.
    activity: AtomicU64,
    /// Requests for streams that ended soon after they were opened.
    soon: Mutex<Budget>,
    /// Requests for streams that were open for a while.
    lasting: Mutex<Budget>,
}

/// A token bucket of requests, whose rate depends on the output of the streams.
#[derive(Debug)]
struct Budget {
    most: f64,
    left: f64,
    at: Option<Instant>,
    activity: u64,
    busy_until: Option<Instant>,
}

impl Budget {
    fn new(most: u32) -> Self {
        Self { most: most.into(), left: most.into(), at: None, activity: 0, busy_until: None }
    }

    /// Takes one request, or returns how long to wait for it. `activity` is how often any stream had output,
    /// `new` whether streams wait that were never open.
    fn take(&mut self, activity: u64, new: bool, now: Instant) -> Result<(), Duration> {
        if std::mem::replace(&mut self.activity, activity) != activity {
            self.busy_until = Some(now + BUSY_FOR);
        }
        let interval = match () {
            () if new => NEW,
            () if self.busy_until.is_some_and(|until| now < until) => BUSY,
            () => IDLE,
        };
        let elapsed = self.at.replace(now).map_or(Duration::ZERO, |at| now.duration_since(at));
        self.left = (self.left + elapsed.div_duration_f64(interval)).min(self.most);
        if self.left < 1.0 {
            return Err(interval.mul_f64(1.0 - self.left));
        }
        self.left -= 1.0;
        Ok(())
    }
}

/// The right to keep one stream open; released when dropped.
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
            soon: Mutex::new(Budget::new(SOON)),
            lasting: Mutex::new(Budget::new(
                u32::try_from(streams).unwrap_or(u32::MAX).saturating_mul(LASTING).max(SOON),
            )),
        };
        Self { permits: Arc::new(Semaphore::new(streams)), shared: Arc::new(shared) }
    }

    /// Waits for a permit; permits are granted in the order of the calls. `new` means that the stream was
    /// never open.
    pub async fn next(&self, new: bool) -> Permit {
        // The guards also count down when this future is dropped.
        let waits = Waits::new(&self.shared.waiting);
        let new = new.then(|| Waits::new(&self.shared.new));
        // The semaphore is never closed; if it were, there would be no limit.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop((waits, new));
        Permit { _permit: permit, shared: Arc::clone(&self.shared) }
    }

    /// Waits until a request that most likely returns nothing may be sent, for a stream that was open for
    /// this long: kubelets that end every stream at once must not cost the API server hundreds of requests a
    /// second.
    pub async fn pace(&self, open: Duration) {
        self.shared.pace(open).await;
    }

    /// Takes the right to send such a request, if that is possible without waiting.
    pub fn may_send(&self, open: Duration) -> bool {
        let budget = self.shared.budget(open).try_lock();
        budget.is_ok_and(|mut budget| self.shared.take(&mut budget).is_ok())
    }
}

impl Shared {
    fn budget(&self, open: Duration) -> &Mutex<Budget> {
        if open < LASTED { &self.soon } else { &self.lasting }
    }

    fn take(&self, budget: &mut Budget) -> Result<(), Duration> {
        let new = self.new.load(Ordering::Relaxed) > 0;
        budget.take(self.activity.load(Ordering::Relaxed), new, Instant::now())
    }

    async fn pace(&self, open: Duration) {
        // Held while waiting: the lock is fair, so callers pass in their order.
        let mut budget = self.budget(open).lock().await;
        while let Err(wait) = self.take(&mut budget) {
            sleep(wait.min(LOOK)).await;
        }
    }
}

impl Permit {
    /// Waits until the permit should be released: it was held long enough, and another stream waits.
    pub async fn over(&self) {
        loop {
            sleep(TURN).await;
            if !self.wanted() {
                continue;
            }
            self.shared.pace(Duration::ZERO).await;
            if self.wanted() {
                return;
            }
        }
    }

    /// Records output of this stream, and returns how often any stream had output, including this time.
    pub fn note_activity(&self) -> u64 {
        self.shared.activity.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how often any stream had output.
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

    /// Follows a thousand streams that end as soon as they are opened, for one minute of a mocked clock.
    #[test]
    fn requests_that_bring_nothing_are_at_most_five_a_second() {
        let mut budgets = [Budget::new(SOON), Budget::new(1024)];
        let began = Instant::now();
        let sent =
            |budgets: &mut [Budget; 2], seconds: std::ops::Range<u64>, activity: &dyn Fn(u64) -> u64| {
                let mut sent = 0;
                for tick in seconds.start * 1000..seconds.end * 1000 {
                    let now = began + Duration::from_millis(tick);
                    let passed = |budget: &mut Budget| budget.take(activity(tick), false, now).is_ok();
                    sent += budgets.iter_mut().map(passed).filter(|passed| *passed).count();
                }
                sent
            };
        assert!(sent(&mut budgets, 0..10, &|_| 0) >= 1024 + 64, "a full budget is there at once");
        let idle = sent(&mut budgets, 10..70, &|_| 0);
        assert!((60..=300).contains(&idle), "{idle} requests in an idle minute");
        let busy = sent(&mut budgets, 70..80, &|tick| tick);
        assert!(busy >= 300, "{busy} requests while lines arrive");
        let idle = sent(&mut budgets, 90..150, &|_| 79_999);
        assert!(idle <= 300, "{idle} requests in the minute after the last line");
    }

    /// Streams that were never open let idle ones pass sooner, since those hold the permits.
    #[test]
    fn a_stream_that_was_never_open_does_not_wait_for_idle_ones() {
        let mut budget = Budget::new(1);
        let began = Instant::now();
        assert_eq!(budget.take(0, false, began), Ok(()));
        assert_eq!(budget.take(0, false, began), Err(IDLE));
        assert_eq!(budget.take(0, true, began), Err(NEW));
        assert_eq!(budget.take(0, true, began + NEW), Ok(()));
    }

    #[tokio::test]
    async fn a_request_is_refused_while_others_wait() {
        let limiter = Limiter::new(1);
        assert!((0..SOON).all(|_| limiter.may_send(Duration::ZERO)));
        let mut waiting = Box::pin(limiter.pace(Duration::ZERO));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert!(!limiter.may_send(Duration::ZERO));
        assert!(limiter.may_send(LASTED), "streams that were open for long have a budget of their own");
        waiting.await;
    }
}
