//! A connection to a port where a job runs.

use async_trait::async_trait;

use crate::Result;

/// A connection to a port of localhost beside a rank. Dropping it closes it. Both directions can be used at once.
#[async_trait]
pub trait PortConnection: Send + Sync {
    /// Sends all of these bytes.
    async fn send(&self, bytes: &[u8]) -> Result<()>;

    /// Receives the next bytes; none once the other side has closed the connection. A dropped future loses none.
    async fn receive(&self) -> Result<Vec<u8>>;
}
