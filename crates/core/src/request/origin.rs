//! Where a value came from.

use serde::{Deserialize, Serialize};

/// Where a value came from; later ones win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// weftrun's own default.
    Default,
    /// The system's config file.
    System,
    /// The user's config file.
    UserConfig,
    /// The project's `.weftrun.toml`.
    ProjectConfig,
    /// A profile, by name.
    Profile(String),
    /// An environment variable, by name.
    Env(String),
    /// The instance catalogue, by row.
    Catalogue(String),
    /// The cluster.
    Cluster,
    /// Assumed, since no source sets it.
    Assumed,
    /// The job file or manifest.
    Job,
    /// A command-line flag.
    Flag(String),
}
