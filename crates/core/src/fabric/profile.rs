//! A site's paths, names and sizes. Shipped ones are TOML in `data/profiles/`; users add their own with `extends`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a site calls its things. No site's name stands in code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Profile {
    /// Name (`dgxc`).
    pub name: String,
    /// The profile this one starts from.
    pub extends: Option<String>,
    /// One sentence.
    pub summary: String,
    /// Environment it adds.
    pub env: BTreeMap<String, String>,
}
