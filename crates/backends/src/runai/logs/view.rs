//! What is known of the pods while their logs are read: one look for all readers, every few seconds and when a reader
//! needs to know.

use std::collections::HashSet;

use tokio::sync::{Notify, watch};

/// The pods as the last look saw them.
#[derive(Debug, Default)]
struct Seen {
    /// Looks that began.
    begun: u64,
    /// The last look that was finished.
    done: u64,
    /// Ids of pods that may still write.
    live: HashSet<String>,
    /// The workload is gone.
    deleted: bool,
}

/// What is known of the pods.
#[derive(Debug, Default)]
pub struct View {
    seen: watch::Sender<Seen>,
    asked: Notify,
}

/// What became of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may still write.
    Live,
    /// It ended.
    Ended,
    /// Somebody deleted its workload.
    Deleted,
}

impl View {
    /// A look begins.
    pub fn begin(&self) {
        self.seen.send_modify(|seen| seen.begun += 1);
    }

    /// The look is finished: these may still write.
    pub fn finish(&self, live: HashSet<String>, deleted: bool) {
        self.seen.send_modify(|seen| (seen.done, seen.live, seen.deleted) = (seen.begun, live, deleted));
    }

    /// Waits until a reader asks for a look.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// What became of a pod, by a look that begins after this question.
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
