//! Where log bytes come from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One source of log bytes: a container of a pod, a rank's file, a job's output file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SourceId {
    /// Distinguishes two sources with the same name (pod uid, inode, job id).
    pub uid: String,
    /// The name for display (pod, `node0/rank3`, file name).
    pub name: String,
    /// Container, where a pod has several; empty otherwise.
    pub container: String,
    /// Attempt (restart count, requeue count), from 0.
    pub attempt: u32,
    /// Role.
    pub role: String,
    /// Number in the role, from 0.
    pub replica: u32,
    /// Global rank, where the source is the output of exactly one rank and the backend knows which one.
    pub rank: Option<u32>,
}

impl SourceId {
    /// Makes a source with a name; the other fields start empty.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { uid: name.clone(), name, ..Self::default() }
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
