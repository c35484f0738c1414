//! The properties of instance types. The rows are data in the tree: `data/instances.tsv`, explained in
//! `data/instances.md`.

mod bandwidth;
mod cell;
mod instance;
mod overrides;
mod tsv;

use std::collections::BTreeMap;

pub use bandwidth::{
    Bandwidth, Expected, ExpectedBasis, bandwidths, expected, expected_rate, line_rate, pass_mark,
};
pub use instance::{InstanceType, NodeFabric};
pub use overrides::InstanceOverride;

use crate::Result;

const BUILTIN: &str = include_str!("../../data/instances.tsv");

/// The known instance types: those in the tree, and the user's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    rows: Vec<InstanceType>,
}

impl Catalogue {
    /// Returns the rows that are in the tree.
    ///
    /// ```
    /// use weftrun_core::catalogue::Catalogue;
    /// let catalogue = Catalogue::builtin();
    /// assert_eq!(catalogue.get("p5en.48xlarge").and_then(|row| row.efa_max), Some(16));
    /// assert_eq!(catalogue.get("ml.p5.48xlarge").map(|row| row.name.as_str()), Some("p5.48xlarge"));
    /// ```
    pub fn builtin() -> Self {
        // An unreadable row is a bug in the build; the test below reads all of them.
        Self::from_rows(tsv::rows(BUILTIN).filter_map(std::result::Result::ok))
    }

    /// Makes a catalogue from rows; of two with one name, the later wins.
    pub fn from_rows(rows: impl IntoIterator<Item = InstanceType>) -> Self {
        let by_name: BTreeMap<String, InstanceType> =
            rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        Self { rows: by_name.into_values().collect() }
    }

    /// Adds the user's own rows, by name. A row of a known name changes that one; a new one may start from
    /// another with `extends`, also from another of the user's.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) with a finding for each row that
    /// extends a missing one, or itself, or has no accelerators.
    pub fn with(self, overrides: &BTreeMap<String, InstanceOverride>) -> Result<Self> {
        overrides::apply(&self, overrides).map(|new| Self::from_rows(self.rows.into_iter().chain(new)))
    }

    /// Returns all rows, sorted by name.
    pub fn rows(&self) -> &[InstanceType] {
        &self.rows
    }

    /// Returns the row of a name. SageMaker HyperPod puts `ml.` before EC2's names, in its node labels too.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        let find = |name: &str| {
            self.rows.binary_search_by(|row| row.name.as_str().cmp(name)).ok().and_then(|i| self.rows.get(i))
        };
        find(name).or_else(|| find(name.strip_prefix("ml.")?))
    }

    /// Returns the types with accelerators that a queue is named for: of a family (`p5en`, `p5en-queue`), or one type
    /// (`p4d-24xlarge`).
    pub fn family(&self, queue: &str) -> Vec<&InstanceType> {
        let queue = queue.to_ascii_lowercase().replace('.', "-");
        let mut name = queue.strip_prefix("ml-").unwrap_or(&queue);
        loop {
            let of_name = |row: &&InstanceType| {
                let family = row.name.split_once('.').map(|(family, _)| family);
                row.accelerators > 0 && (family == Some(name) || row.name.replace('.', "-") == name)
            };
            let rows: Vec<&InstanceType> = self.rows.iter().filter(of_name).collect();
            match name.rsplit_once('-') {
                Some((shorter, _)) if rows.is_empty() => name = shorter,
                _ => return rows,
            }
        }
    }

    /// Returns the known name nearest to an unknown one.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        crate::text::did_you_mean(name, self.rows.iter().map(|row| row.name.as_str()))
    }

    /// Returns what to do about an unknown name: the question after the nearest known one, if one is near.
    pub fn suggestion(&self, name: &str) -> String {
        match self.nearest(name) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`weftrun instances` lists those that are known".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
