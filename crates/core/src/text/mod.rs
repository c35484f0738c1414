//! Formats of texts and names: suggestions, durations, quantities, percent-encoding, versions.

pub mod duration;
pub mod percent;
pub mod quantity;
mod version;
mod words;

pub use duration::parse as parse_duration;
pub use quantity::Quantity;
pub use version::numbers;
pub use words::did_you_mean;
