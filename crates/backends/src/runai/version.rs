//! Which fields of a create body a version of the control plane has. An unknown field is very likely ignored without
//! a word, so what would be lost is said before anything is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

/// A version of the control plane: 2.18, 2.21, 3.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

/// The first version of this family of the API.
#[cfg(test)]
pub const FIRST: Version = Version { major: 2, minor: 18 };

impl Version {
    /// Reads `2.21`, `2.21.3`, `v2.21`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').split(['.', '-', '+']);
        Some(Self { major: parts.next()?.parse().ok()?, minor: parts.next()?.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[derive(Deserialize)]
struct Table {
    since: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Body kind → field path → first version that has it. Fields that are not in it were there in 2.18.
static SINCE: LazyLock<BTreeMap<String, BTreeMap<String, Version>>> = LazyLock::new(|| {
    let table: Table =
        serde_json::from_str(include_str!("data/fields.json")).unwrap_or(Table { since: BTreeMap::new() });
    table
        .since
        .into_iter()
        .map(|(kind, versions)| {
            let fields = versions
                .into_iter()
                .filter_map(|(version, fields)| Some((Version::parse(&version)?, fields)))
                .flat_map(|(version, fields)| fields.into_iter().map(move |field| (field, version)))
                .collect();
            (kind, fields)
        })
        .collect()
});

/// Takes out of a body what a version does not have; the result names each field taken out and the version that has it.
pub fn strip(kind: &str, version: Version, body: &mut Value) -> Vec<(String, Version)> {
    let mut lost = Vec::new();
    if let Some(since) = SINCE.get(kind) {
        walk(body, "", since, version, &mut lost);
    }
    lost.sort();
    lost.dedup();
    lost
}

fn walk(
    value: &mut Value,
    path: &str,
    since: &BTreeMap<String, Version>,
    version: Version,
    lost: &mut Vec<(String, Version)>,
) {
    match value {
        Value::Array(items) => {
            for item in items.iter_mut() {
                walk(item, path, since, version, lost);
            }
        }
        Value::Object(fields) => {
            fields.retain(|key, value| {
                let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                // The master's fields are the worker's, less those of the whole workload.
                let looked_up = here
                    .strip_prefix("masterSpec.")
                    .map_or_else(|| here.clone(), |rest| format!("spec.{rest}"));
                if let Some(first) = since.get(&looked_up).filter(|first| **first > version) {
                    lost.push((here, *first));
                    return false;
                }
                walk(value, &here, since, version, lost);
                true
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_read_as_people_write_them() {
        assert_eq!(Version::parse("v2.21.3-rc1"), Some(Version { major: 2, minor: 21 }));
        assert!(Version::parse("3.0") > Version::parse("2.24"));
        assert_eq!(Version::parse("latest"), None);
    }

    #[test]
    fn newer_fields_are_taken_out_and_named() {
        let mut body = json!({"name": "x", "spec": {"image": "i", "cleanPodPolicy": "Running", "priorityClass": "high"}});
        let lost = strip("distributed", FIRST, &mut body);
        assert_eq!(body, json!({"name": "x", "spec": {"image": "i"}}));
        let names: Vec<_> = lost.iter().map(|(field, version)| format!("{field} {version}")).collect();
        assert_eq!(names, ["spec.cleanPodPolicy 2.20", "spec.priorityClass 2.22"]);
        let mut body = json!({"spec": {"cleanPodPolicy": "Running"}});
        assert!(strip("distributed", Version { major: 2, minor: 24 }, &mut body).is_empty());
    }
}
