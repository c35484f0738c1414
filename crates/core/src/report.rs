//! The JSON shapes other programs read (`-o json`). Changes are additive only.

/// The schema name that stands in every object.
pub const SCHEMA: &str = "weftrun/v1";
