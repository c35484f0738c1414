//! The JSON shapes other programs read (`-o json`). Changes are additive only.

pub mod transport;

pub use transport::TransportReport;

/// The schema name that stands in every object.
pub const SCHEMA: &str = "weftrun/v1";
