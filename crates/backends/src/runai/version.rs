//! The fields of a create body in each version of the control plane. An unknown field is very likely ignored
//! silently, so what would be lost is reported before anything is sent.

use std::collections::{BTreeMap, BTreeSet};
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
pub const FIRST: Version = Version { major: 2, minor: 18 };

impl Version {
    /// Parses `2.21`, `2.21.3`, `v2.21`.
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

/// The newest version with known fields.
pub const NEWEST: Version = Version { major: 2, minor: 24 };

#[derive(Default, Deserialize)]
struct Table {
    since: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    known: BTreeMap<String, Vec<String>>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(include_str!("data/fields.json")).unwrap_or_default());

/// Body kind → field path → first version that has it. Fields that are not listed exist since 2.18.
static SINCE: LazyLock<BTreeMap<&str, BTreeMap<&str, Version>>> = LazyLock::new(|| {
    let versions = |versions: &'static BTreeMap<String, Vec<String>>| {
        versions
            .iter()
            .filter_map(|(version, fields)| Some((Version::parse(version)?, fields)))
            .flat_map(|(version, fields)| fields.iter().map(move |field| (field.as_str(), version)))
            .collect()
    };
    TABLE.since.iter().map(|(kind, by_version)| (kind.as_str(), versions(by_version))).collect()
});

/// Body kind → every field path of a version up to [`NEWEST`].
static KNOWN: LazyLock<BTreeMap<&str, BTreeSet<&str>>> = LazyLock::new(|| {
    let of = |kind: &'static str| {
        let lists = ["all", kind].into_iter().filter_map(|list| TABLE.known.get(list));
        (kind, lists.flatten().map(String::as_str).collect())
    };
    ["distributed", "trainings", "workspaces"].map(of).into_iter().collect()
});

/// Returns the worker's path for a master's: the master's fields are the worker's, without those of the whole
/// workload.
fn as_worker(path: &str) -> String {
    path.strip_prefix("masterSpec.").map_or_else(|| path.to_owned(), |rest| format!("spec.{rest}"))
}

/// Returns the names of the fields at a path of a body (`spec`, `spec.compute`).
pub fn fields(kind: &str, folder: &str) -> Vec<&'static str> {
    let folder = as_worker(&format!("{folder}."));
    let known = KNOWN.get(kind).into_iter().flatten();
    known.filter_map(|path| path.strip_prefix(folder.as_str()).filter(|rest| !rest.contains('.'))).collect()
}

/// Returns the fields of a body that no version has: a strict check here is the only protection against
/// typing errors, since the server very likely ignores them.
pub fn unknown(kind: &str, body: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    if let Some(known) = KNOWN.get(kind) {
        retain(&mut body.clone(), "", &mut |field| {
            let is_known = field == "masterSpec" || known.contains(as_worker(field).as_str());
            if !is_known {
                found.insert(field.to_owned());
            }
            is_known
        });
    }
    found.into_iter().collect()
}

/// Removes from a body the fields that a version does not have; returns each with the version that has it.
pub fn strip(kind: &str, version: Version, body: &mut Value) -> Vec<(String, Version)> {
    let mut lost = BTreeSet::new();
    if let Some(since) = SINCE.get(kind) {
        retain(body, "", &mut |field| {
            let first = since.get(as_worker(field).as_str()).filter(|first| **first > version);
            lost.extend(first.map(|first| (field.to_owned(), *first)));
            first.is_none()
        });
    }
    lost.into_iter().collect()
}

/// Removes the fields whose path `keep` rejects (`spec.compute.cpu`), with everything in them.
fn retain(value: &mut Value, path: &str, keep: &mut impl FnMut(&str) -> bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| retain(item, path, keep)),
        Value::Object(fields) => fields.retain(|key, value| {
            let field = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let kept = keep(&field);
            if kept {
                retain(value, &field, keep);
            }
            kept
        }),
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
        let body = json!({"spec": {"tty": true, "ttyy": 1}, "masterSpec": {"compute": {"gpus": 1}}});
        assert_eq!(unknown("distributed", &body), ["masterSpec.compute.gpus", "spec.ttyy"]);
        assert!(fields("trainings", "spec.compute").contains(&"gpuDevicesRequest"));
        let mut body = json!({"spec": {"cleanPodPolicy": "Running"}});
        assert!(strip("distributed", Version { major: 2, minor: 24 }, &mut body).is_empty());
    }
}
