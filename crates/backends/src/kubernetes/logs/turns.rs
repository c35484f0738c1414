//! Who may read: so many streams are open at once, and where there are more containers than that they take turns, so that none
//! waits until another one's job is done; and whether others say anything while a stream is silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long a stream is left open while others wait for theirs.
const TURN: Duration = Duration::from_secs(5);

/// The streams that may be open at once.
#[derive(Clone, Debug)]
pub struct Turns {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    /// How often any of the streams said something.
    said: Arc<AtomicU64>,
}

/// A stream's turn; it ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    waiting: Arc<AtomicUsize>,
    said: Arc<AtomicU64>,
}

impl Turns {
    pub fn new(streams: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(streams)), waiting: Arc::default(), said: Arc::default() }
    }

    /// Waits for a turn; they come in the order in which they were asked for.
    pub async fn next(&self) -> Turn {
        // Counted down again also where the waiting is given up.
        let waits = Waits::new(&self.waiting);
        // It is never closed; if it were, nothing would be limited.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop(waits);
        Turn { _permit: permit, waiting: Arc::clone(&self.waiting), said: Arc::clone(&self.said) }
    }
}

impl Turn {
    /// Waits until the turn is over: it has lasted long enough, and somebody else waits.
    pub async fn over(&self) {
        loop {
            sleep(TURN).await;
            if self.wanted() {
                return;
            }
        }
    }

    /// Notes that this stream said something. Gives how often any of them has, this time included.
    pub fn speak(&self) -> u64 {
        self.said.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How often any of the streams said something.
    pub fn said(&self) -> u64 {
        self.said.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for it.
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
    async fn a_turn_is_wanted_only_while_another_waits() {
        let turns = Turns::new(1);
        let first = turns.next().await;
        assert!(!first.wanted());
        let mut second = Box::pin(turns.next());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(first.wanted());
        drop(first);
        assert!(!second.await.wanted());
    }

    #[tokio::test]
    async fn a_stream_hears_that_another_speaks() {
        let turns = Turns::new(2);
        let (quiet, loud) = (turns.next().await, turns.next().await);
        let heard = quiet.speak();
        assert_eq!(quiet.said(), heard, "its own words are not another's");
        loud.speak();
        assert!(quiet.said() > heard);
    }

    #[tokio::test]
    async fn who_no_longer_waits_wants_no_turn() {
        let turns = Turns::new(1);
        let first = turns.next().await;
        let mut second = Box::pin(turns.next());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(second);
        assert!(!first.wanted());
    }
}
