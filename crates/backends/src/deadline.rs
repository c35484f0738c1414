//! The time that a request may take as a whole, however slowly the server answers. All clients use this module.

use std::time::Duration;

use tokio::time::Instant;
use weftrun_core::{Error, ErrorKind, Result};

/// Default for a call, from the connection to the last byte of its answer.
pub const CALL: Duration = Duration::from_secs(60);
/// Bytes for which a long transfer gets one second more: slower ones are given up.
const SLOWEST: u64 = 32 << 10;

/// When a request must have ended.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    until: Instant,
    limit: Duration,
}

impl Deadline {
    /// Creates the deadline of a request that begins now.
    pub fn after(limit: Duration) -> Self {
        // Even a limit of centuries is one.
        let until = Instant::now().checked_add(limit).unwrap_or_else(|| Instant::now() + CALL);
        Self { until, limit }
    }

    /// Returns when a transfer must have ended of which so many bytes have arrived.
    pub fn at(&self, arrived: u64) -> Instant {
        self.until + Duration::from_secs(arrived / SLOWEST)
    }

    /// Returns the time that is left, at least a moment.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// Returns whether it has passed.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Runs what must end before it.
    ///
    /// # Errors
    /// [`Deadline::error`], and those of what is run.
    pub async fn run<T>(&self, what: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout_at(self.until, request).await.unwrap_or_else(|_| Err(self.error(what)))
    }

    /// Returns the error of a request that has not ended.
    pub fn error(&self, what: &str) -> Error {
        let message = format!("{what}: the answer was not complete after {} s", self.limit.as_secs());
        Error::new(ErrorKind::Unreachable, message)
            .hint("check the network or VPN, and whether the server is overloaded")
            .retryable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_end_in_time_is_given_up() {
        let deadline = Deadline::after(Duration::from_millis(20));
        assert!(!deadline.is_over() && deadline.left() <= Duration::from_millis(20));
        let error = deadline.run("it", std::future::pending::<Result<()>>()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
        assert!(deadline.is_over() && deadline.left() > Duration::ZERO, "a client takes zero for no limit");
        assert_eq!(deadline.at(u64::from(u32::MAX)) - deadline.at(0), Duration::from_secs(131_071));
        assert!(!Deadline::after(Duration::MAX).is_over());
    }
}
