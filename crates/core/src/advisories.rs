//! Versions of the fabric's libraries that are known to be bad, each with its source (`data/advisories.tsv`).

use serde::Serialize;

use crate::Finding;
use crate::text::numbers;

/// A version, or a pair of versions, that is known to be bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Advisory {
    /// Id, which does not change.
    pub id: &'static str,
    /// The library (`nccl`, `aws-ofi-nccl`, `libfabric`).
    pub component: &'static str,
    /// First version that is affected.
    pub first: &'static str,
    /// Last version that is known to be affected; it includes those that extend it (`1.21` for 1.21.4).
    pub last: &'static str,
    /// Version that fixes it, if one is known.
    pub fixed: Option<&'static str>,
    /// Another library that must be there too, with the first and the last of its versions.
    pub with: Option<(&'static str, &'static str, Option<&'static str>)>,
    /// What happens.
    pub effect: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// Where it is written down.
    pub source: &'static str,
    /// The day the source was read.
    pub read: &'static str,
}

/// Returns all advisories, in the order of their ids.
pub fn all() -> impl Iterator<Item = Advisory> {
    let lines = include_str!("../data/advisories.tsv").lines();
    // An unreadable line is a bug in the build; a test reads all of them.
    lines.filter(|line| !line.starts_with('#')).filter_map(read)
}

fn read(line: &'static str) -> Option<Advisory> {
    let cells: Vec<&'static str> = line.split('\t').collect();
    let [id, component, first, last, fixed, with, effect, fix, source, read] = cells[..] else { return None };
    let known = |cell: &'static str| Some(cell).filter(|cell| *cell != "-");
    let with = match with.split_whitespace().collect::<Vec<_>>()[..] {
        [other, first, last] => Some((other, first, known(last))),
        _ => None,
    };
    Some(Advisory { id, component, first, last, fixed: known(fixed), with, effect, fix, source, read })
}

/// Returns whether a version is between two others; the last one includes those that extend it.
fn between(version: &str, first: &str, last: Option<&str>) -> bool {
    let version = numbers(version);
    let up_to = |last: &str| {
        let last = numbers(last);
        version.get(..last.len().min(version.len())).is_some_and(|head| head <= last.as_slice())
    };
    !version.is_empty() && version >= numbers(first) && last.is_none_or(up_to)
}

impl Advisory {
    /// Returns whether it is about one of these libraries, given as name and version.
    pub fn concerns(&self, found: &[(&str, &str)]) -> bool {
        let any = |component: &str, first: &str, last: Option<&str>| {
            found.iter().any(|(name, version)| *name == component && between(version, first, last))
        };
        any(self.component, self.first, Some(self.last))
            && self.with.is_none_or(|(other, first, last)| any(other, first, last))
    }

    /// Returns it as a finding about something that has such a library.
    pub fn finding(&self, version: &str) -> Finding {
        let Self { id, component, effect, fix, source, .. } = self;
        Finding::warning("W-ADVISORY", format!("{component} {version}: {effect} ({id})"))
            .fix(*fix)
            .cite(*source)
    }
}

/// Returns the findings about these libraries, given as name and version.
pub fn findings(found: &[(&str, &str)]) -> Vec<Finding> {
    all()
        .filter(|advisory| advisory.concerns(found))
        .filter_map(|advisory| {
            let (_, version) = found.iter().find(|(name, version)| {
                *name == advisory.component && between(version, advisory.first, Some(advisory.last))
            })?;
            Some(advisory.finding(version))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(found: &[(&str, &str)]) -> Vec<&'static str> {
        all().filter(|advisory| advisory.concerns(found)).map(|advisory| advisory.id).collect()
    }

    #[test]
    fn every_line_of_the_table_is_read_and_signed_off() {
        let lines = include_str!("../data/advisories.tsv").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(all().count(), lines.count());
        for advisory in all() {
            assert!(
                advisory.source.starts_with("https://") && advisory.read.starts_with("20"),
                "{advisory:?}"
            );
            assert!(!numbers(advisory.first).is_empty() && numbers(advisory.first) <= numbers(advisory.last));
            assert!(
                advisory.fixed.is_none_or(|fixed| numbers(fixed) > numbers(advisory.last)),
                "{advisory:?}"
            );
        }
    }

    #[test]
    fn a_version_is_affected_from_the_first_to_the_last() {
        assert_eq!(ids(&[("aws-ofi-nccl", "1.18.0")]), ["AWS-OFI-NCCL-BCAST"]);
        assert_eq!(ids(&[("aws-ofi-nccl", "1.20.0")]), [""; 0]);
        assert_eq!(ids(&[("aws-ofi-nccl", "1.17.3")]), [""; 0]);
        assert_eq!(ids(&[("nccl", "2.26.3+cuda12.8")]), ["NCCL-RAS-CRASH-2.26"]);
        assert_eq!(ids(&[("nccl", "2.28.9")]), [""; 0]);
        assert_eq!(ids(&[("nccl", "")]), [""; 0]);
    }

    #[test]
    fn a_pair_needs_both() {
        assert_eq!(ids(&[("libfabric", "1.21.4")]), [""; 0]);
        assert_eq!(ids(&[("libfabric", "1.21.4"), ("aws-ofi-nccl", "1.15.0")]), [""; 0]);
        assert_eq!(ids(&[("libfabric", "1.21.4"), ("aws-ofi-nccl", "1.19.0")]), ["OFI-LIBFABRIC-OLD"]);
        assert_eq!(ids(&[("libfabric", "1.22.0amzn4.0"), ("aws-ofi-nccl", "1.19.0")]), [""; 0]);
        let findings = findings(&[("libfabric", "1.21.4"), ("aws-ofi-nccl", "1.19.0")]);
        assert!(findings[0].message.contains("libfabric 1.21.4"), "{findings:?}");
    }
}
