//! Whether a cluster answers that is asked again and again.

use std::time::Duration;

use weftrun_core::Error;
use weftrun_core::job::JobEvent;

use crate::stream::{Feed, put};

/// Whether a cluster answers; each change is reported once.
#[derive(Debug, Default)]
pub struct Link {
    failures: u32,
}

impl Link {
    /// Notes that the cluster did not answer.
    pub async fn is_lost(&mut self, error: &Error, feed: &Feed<JobEvent>) {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            put(feed, JobEvent::Disconnected { lost: true, reason: error.to_string() }).await;
        }
    }

    /// Notes that the cluster answered.
    pub async fn is_back(&mut self, feed: &Feed<JobEvent>) {
        if std::mem::take(&mut self.failures) > 0 {
            put(feed, JobEvent::Disconnected { lost: false, reason: String::new() }).await;
        }
    }

    /// Returns the pause, which grows up to 28 s while the cluster does not answer.
    pub fn pause(&self) -> Duration {
        Duration::from_secs(u64::from(self.failures).saturating_mul(2).min(28))
    }
}
