//! Formats of texts and names: suggestions, durations, quantities, node lists, percent-encoding, versions, hashes.

pub mod duration;
mod hash;
pub mod nodelist;
pub mod percent;
pub mod quantity;
mod splice;
mod version;
mod words;

pub use duration::parse as parse_duration;
pub use hash::{fnv1a, fnv1a_32};
pub use quantity::Quantity;
pub use splice::splice;
pub use version::numbers;
pub use words::{binary_size, counted, did_you_mean, listed, rounded_size, suggestion};
pub(crate) use words::{unknown_word, words};
