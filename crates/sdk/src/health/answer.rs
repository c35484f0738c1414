//! The two kinds of answers of NCCL's RAS service.

use weftrun_core::nccl::ras::{DiagnosticsReport, Report, Unreadable};

/// What an answer of the service is read as.
pub(super) trait Answer: Sized + Send + 'static {
    /// Reads everything the service sent.
    fn read(bytes: &[u8]) -> Result<Self, Unreadable>;
}

impl Answer for Report {
    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        Self::read(bytes)
    }
}

impl Answer for DiagnosticsReport {
    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        Self::read(bytes)
    }
}
