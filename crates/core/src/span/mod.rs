//! Files as trees in which every value has its place: one [`SpanTree`], read from YAML, JSON or TOML.
//!
//! Job files, configuration and manifests all go through it, so that every mistake can be reported at once with its
//! line and column, and so that a manifest can be edited without touching a byte that needs no change.

mod json;
mod lines;
mod scalar;
mod toml;
mod tree;
mod yaml;

pub use json::{json, json_prefix};
pub use lines::Lines;
pub use scalar::resolve_plain;
pub use toml::toml;
pub(crate) use tree::finding_span;
pub use tree::{Duplicate, Entry, NodeOrigin, SpanDocument, SpanTree, Style, SyntaxError, Value, position};
pub use yaml::yaml_texts;
pub use yaml::{yaml, yaml_documents};
