//! A connection to a port where a job runs.

use async_trait::async_trait;

use crate::Result;

/// A connection to a port of localhost beside a rank. Dropping it closes it.
#[async_trait]
pub trait PortConnection: Send {
    /// Sends all of these bytes.
    async fn send(&mut self, bytes: &[u8]) -> Result<()>;

    /// Receives the next bytes; none once the other side has closed the connection.
    async fn receive(&mut self) -> Result<Vec<u8>>;
}
