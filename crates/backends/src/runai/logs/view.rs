//! The state of the pods while their logs are read: one poll shared by all readers, every few seconds and
//! when a reader requests one.

use std::collections::HashSet;

use tokio::sync::{Notify, watch};

/// The pods at the last poll.
#[derive(Debug, Default)]
struct Seen {
    /// Number of polls started.
    begun: u64,
    /// The last completed poll.
    done: u64,
    /// Ids of pods that may still write.
    live: HashSet<String>,
    /// The workload is gone.
    deleted: bool,
}

/// The state of the pods.
#[derive(Debug, Default)]
pub struct View {
    seen: watch::Sender<Seen>,
    asked: Notify,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may still write.
    Live,
    Ended,
    /// Its workload was deleted.
    Deleted,
}

impl View {
    /// Starts a poll.
    pub fn begin(&self) {
        self.seen.send_modify(|seen| seen.begun += 1);
    }

    /// Completes a poll with the pods that may still write.
    pub fn finish(&self, live: HashSet<String>, deleted: bool) {
        self.seen.send_modify(|seen| (seen.done, seen.live, seen.deleted) = (seen.begun, live, deleted));
    }

    /// Waits until a reader requests a poll.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Returns the state of a pod, from a poll that starts after this call.
    pub async fn fate(&self, pod: &str) -> Fate {
        let mut seen = self.seen.subscribe();
        let wanted = seen.borrow().begun + 1;
        self.asked.notify_one();
        match seen.wait_for(|seen| seen.done >= wanted).await {
            Ok(seen) if seen.deleted => Fate::Deleted,
            Ok(seen) if seen.live.contains(pod) => Fate::Live,
            _ => Fate::Ended,
        }
    }
}
