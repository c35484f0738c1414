//! The JSON shapes of a diagnosis (`-o json` of `transport`, `why` and `health`). Changes are additive only.

mod health;
mod transport;
mod why;

pub use health::{Asked, HealthDiagnostics, HealthReport};
pub use transport::{ExpectedShape, ThroughputShape, TransportReport, VerdictShape};
pub use why::WhyReport;
