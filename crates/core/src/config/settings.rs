//! Values by path, each with its origin.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::finding::Span;
use crate::request::Origin;

/// A value with its origin. `Debug` hides the value, which may contain an environment or an address with a
/// password.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Setting {
    /// The value; never a table.
    pub value: Value,
    /// The layer.
    pub origin: Origin,
    /// The place in its file, if it has one.
    pub span: Option<Span>,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting")
            .field("origin", &self.origin)
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

/// Values by path. Setting one replaces the values at, above and below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(BTreeMap<Vec<String>, Setting>);

impl Settings {
    /// Sets a value.
    pub(super) fn set(&mut self, path: Vec<String>, setting: Setting) {
        self.0.retain(|other, _| {
            let is_below = other.len() > path.len() && other.starts_with(&path);
            let is_above = path.len() > other.len() && path.starts_with(other);
            !is_below && !is_above
        });
        self.0.insert(path, setting);
    }

    /// Returns the value at a path.
    pub fn get(&self, path: &[&str]) -> Option<&Setting> {
        self.0.get(&path.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
    }

    /// Returns all values with their paths, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], &Setting)> {
        self.0.iter().map(|(path, setting)| (path.as_slice(), setting))
    }

    /// Returns the values below a path, with the rest of their paths.
    pub(super) fn below<'s>(
        &'s self,
        above: &'s [&str],
    ) -> impl Iterator<Item = (&'s [String], &'s Setting)> {
        self.iter().filter_map(move |(path, setting)| {
            let rest = path.get(above.len()..)?;
            let same = path.iter().zip(above).all(|(key, word)| key == word);
            (same && !rest.is_empty()).then_some((rest, setting))
        })
    }

    /// Returns the values below a path as one tree.
    pub(super) fn table(&self, above: &[&str]) -> Map<String, Value> {
        let mut table = Map::new();
        for (path, setting) in self.below(above) {
            put(&mut table, path, setting.value.clone());
        }
        table
    }
}

fn put(table: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => drop(table.insert(last.clone(), value)),
        [first, rest @ ..] => {
            let inner = table.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}
