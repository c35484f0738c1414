//! The origin of each value of a job.

use std::collections::BTreeMap;

use crate::request::Origin;

/// The origin of each value that was set, by its path in a job file (`nodes`, `roles.worker.memory`).
///
/// The origin is not part of a job's identity: any two are equal, so that equal jobs from a file, from
/// flags and from a builder compare equal.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

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
        let mut path = path;
        loop {
            if let Some(origin) = self.0.get(path) {
                return origin.clone();
            }
            match path.rfind('.') {
                Some(at) => path = &path[..at],
                None => return Origin::Default,
            }
        }
    }

    /// Returns all of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0.iter().map(|(path, origin)| (path.as_str(), origin))
    }
}
