//! The origin of each value of a job.

use std::collections::BTreeMap;

use crate::request::Origin;

/// The origin of each value that was set, by its path in a job file (`nodes`, `roles.worker.memory`).
///
/// The origin is not part of a job's identity: any two are equal, so that equal jobs from a file, from
/// flags and from a builder compare equal.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

/// Returns a path, and the paths of the values that contain its value, from the inside out.
pub(super) fn path_and_those_above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(above, _)| above))
}

impl PartialEq for Origins {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Origins {
    /// Sets the origin of the value at a path; the latest wins.
    pub fn set(&mut self, path: impl Into<String>, origin: Origin) {
        self.0.insert(path.into(), origin);
    }

    /// Returns the origin of the value at a path: its own, that of the value which contains it, or the
    /// default.
    pub fn get(&self, path: &str) -> Origin {
        path_and_those_above(path).find_map(|path| self.0.get(path)).cloned().unwrap_or(Origin::Default)
    }

    /// Returns all of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0.iter().map(|(path, origin)| (path.as_str(), origin))
    }
}
