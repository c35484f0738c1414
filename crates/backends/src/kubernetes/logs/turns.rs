//! Who may read: so many streams are open at once, and where there are more containers than that they take turns, so that none
//! waits until another one's job is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
}

/// A stream's turn; it ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    waiting: Arc<AtomicUsize>,
}

impl Turns {
    pub fn new(streams: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(streams)), waiting: Arc::default() }
    }

    /// Waits for a turn; they come in the order in which they were asked for.
    pub async fn next(&self) -> Turn {
        // Counted down again also where the waiting is given up.
        let waits = Waits::new(&self.waiting);
        // It is never closed; if it were, nothing would be limited.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        drop(waits);
        Turn { _permit: permit, waiting: Arc::clone(&self.waiting) }
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
    async fn who_no_longer_waits_wants_no_turn() {
        let turns = Turns::new(1);
        let first = turns.next().await;
        let mut second = Box::pin(turns.next());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(second);
        assert!(!first.wanted());
    }
}
