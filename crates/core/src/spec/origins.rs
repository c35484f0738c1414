//! Where each value of a job came from.

use std::collections::BTreeMap;

use crate::request::Origin;

/// The origin of each value that was set, by its path in a job file (`nodes`, `roles.worker.memory`).
///
/// Where a job came from is no part of what it is: any two are equal, so that a job from a file, from flags and from
/// a builder are.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl PartialEq for Origins {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Origins {
    /// Notes where the value at a path came from; the latest wins.
    pub fn set(&mut self, path: impl Into<String>, origin: Origin) {
        self.0.insert(path.into(), origin);
    }

    /// Where the value at a path came from: its own origin, that of what it stands in, or the default.
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

    /// All of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.0.iter().map(|(path, origin)| (path.as_str(), origin))
    }
}
