//! Which fabric a job is for: signs in its document and in the cluster are matched against a table
//! (`data/evidence.tsv`), each match counts for a [`Site`], and the site with the highest score is taken.

pub mod choose;
mod score;
mod sign;
mod site;

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use regex::{Regex, RegexSet};
use serde::{Deserialize, Serialize};

use crate::request::Fabric;

pub use choose::Form;
pub use score::{ENOUGH, Score};

pub use sign::SignKind;
pub use sign::{INSTANCE_LABELS, Sign, Signs};
pub use site::{SITES, Site};

/// One line of the table.
struct Pattern {
    site: &'static Site,
    weight: u32,
    text: &'static str,
    meaning: &'static str,
    source: &'static str,
    regex: OnceLock<Option<Regex>>,
}

/// The patterns of one kind of sign.
struct Patterns {
    set: RegexSet,
    patterns: Vec<Pattern>,
}

static TABLE: LazyLock<BTreeMap<SignKind, Patterns>> = LazyLock::new(|| {
    // An unreadable line is a bug in the build; a test reads all of them.
    SignKind::ALL
        .into_iter()
        .filter_map(|kind| {
            let patterns: Vec<Pattern> = lines()
                .filter(|(of, _)| *of == kind.as_str())
                .filter_map(|(_, rest)| pattern(&rest))
                .collect();
            let set = RegexSet::new(patterns.iter().map(|pattern| pattern.text)).ok()?;
            Some((kind, Patterns { set, patterns }))
        })
        .collect()
});

fn lines() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = include_str!("../../../data/evidence.tsv").lines();
    lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut cells = line.split('\t');
        (cells.next().unwrap_or_default(), cells.collect())
    })
}

fn pattern(cells: &[&'static str]) -> Option<Pattern> {
    let [text, site, weight, meaning, source] = cells else { return None };
    let (site, weight) = (Site::get(site)?, weight.parse().ok()?);
    Some(Pattern { site, weight, text, meaning, source, regex: OnceLock::new() })
}

impl Pattern {
    /// Returns the matching part of a text: with its key, but without the surrounding text, which may be
    /// anything.
    fn shown(&self, sign: &Sign) -> String {
        const LONGEST: usize = 80;
        let regex = self.regex.get_or_init(|| Regex::new(self.text).ok());
        let found = regex.as_ref().and_then(|regex| regex.find(&sign.text));
        let range = found.map_or(0..0, |found| found.range());
        let key = if range.start == 0 { sign.text.find('=').unwrap_or(0) } else { 0 };
        let whole = matches!(
            sign.kind,
            SignKind::Resource
                | SignKind::Instance
                | SignKind::Partition
                | SignKind::Account
                | SignKind::Module
        );
        let end = if whole { sign.text.len() } else { range.end.max(key) };
        let shown = sign.text.get(range.start..end).unwrap_or_default().trim();
        match shown.char_indices().nth(LONGEST) {
            Some((cut, _)) => format!("{}…", shown.get(..cut).unwrap_or_default()),
            None => shown.to_owned(),
        }
    }
}

/// A sign that shows a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Evidence"))]
#[non_exhaustive]
pub struct FabricEvidence {
    /// The fabric it shows (`AWS EFA`).
    pub fabric: String,
    /// What kind of sign it is.
    pub kind: SignKind,
    /// What is written there.
    pub text: String,
    /// What that is.
    pub meaning: String,
    /// How much it counts.
    pub weight: u32,
    /// Whether the cluster's nodes show it, and not the document.
    pub online: bool,
    /// Where that is written down.
    pub source: String,
}

impl std::fmt::Display for FabricEvidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, text, meaning, .. } = self;
        write!(f, "{} `{text}` ({meaning})", kind.as_str())
    }
}

/// The result of weighing all signs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weighed {
    /// The signs that count, the weightiest first.
    pub evidence: Vec<FabricEvidence>,
    /// The fabric with the highest score; none without evidence, or if two have it.
    pub site: Option<&'static Site>,
    /// The fabrics that have the highest score, if they are several.
    pub tied: Vec<&'static Site>,
}

impl Weighed {
    /// Returns the score of the fabric that has the highest one.
    fn score(&self) -> Option<Score> {
        self.site.map(|site| Score::of(site, &self.evidence))
    }

    /// Returns the kind of the fabric, where the evidence suffices and weftrun has rules for it.
    pub(crate) fn sure_fabric(&self) -> Option<Fabric> {
        self.site
            .filter(|_| self.is_enough())
            .map(|site| site.fabric)
            .filter(|fabric| *fabric != Fabric::Auto)
    }

    /// Returns whether the evidence suffices to apply a profile.
    fn is_enough(&self) -> bool {
        self.score().is_some_and(Score::is_enough)
    }
}

/// Factor by which a sign of the cluster itself counts more than one of a document.
const ONLINE: u32 = 3;

/// Leaves of signs of one family that are one string, such as a variable and the text of its assignment, the
/// weightiest.
fn once_each(mut evidence: Vec<FabricEvidence>) -> Vec<FabricEvidence> {
    let family = |one: &FabricEvidence| Site::named(&one.fabric).map(Site::root);
    evidence.sort_by_key(|one| std::cmp::Reverse(one.weight));
    let mut kept: Vec<FabricEvidence> = Vec::new();
    for one in evidence {
        let is_part = |other: &FabricEvidence| {
            other.online == one.online && family(other) == family(&one) && other.text.contains(&one.text)
        };
        // The name of an object is no part of a string elsewhere.
        if one.kind == SignKind::Name || !kept.iter().any(is_part) {
            kept.push(one);
        }
    }
    kept
}

/// Weighs signs. Each line of the table counts once, however many signs match it, and each string once.
pub(crate) fn weigh(signs: &[Sign]) -> Weighed {
    let mut evidence: Vec<FabricEvidence> = Vec::new();
    for (kind, patterns) in &*TABLE {
        let mut counted = vec![false; patterns.patterns.len()];
        let mut of_kind: Vec<&Sign> = signs.iter().filter(|sign| sign.kind == *kind).collect();
        of_kind.sort_by_key(|sign| !sign.online);
        for sign in of_kind {
            for index in patterns.set.matches(&sign.text) {
                let (Some(pattern), Some(counted)) = (patterns.patterns.get(index), counted.get_mut(index))
                else {
                    continue;
                };
                if std::mem::replace(counted, true) {
                    continue;
                }
                let weight = pattern.weight * if sign.online { ONLINE } else { 1 };
                evidence.push(FabricEvidence {
                    fabric: pattern.site.name.to_owned(),
                    kind: *kind,
                    text: pattern.shown(sign),
                    meaning: pattern.meaning.to_owned(),
                    weight,
                    online: sign.online,
                    source: pattern.source.to_owned(),
                });
            }
        }
    }
    let mut evidence = once_each(evidence);
    let best = best(&evidence);
    let first = best.first().copied();
    let one_family = best.iter().all(|site| first.is_some_and(|first| first.root() == site.root()));
    let of_best = |one: &FabricEvidence| best.iter().any(|site| site.name == one.fabric);
    evidence.sort_by_key(|one| (!of_best(one), std::cmp::Reverse(one.weight)));
    match first {
        Some(site) if one_family => Weighed { evidence, site: Some(site), tied: Vec::new() },
        _ => Weighed { evidence, site: None, tied: best },
    }
}

/// Returns the sites with the highest score.
fn best(evidence: &[FabricEvidence]) -> Vec<&'static Site> {
    let shown = SITES.iter().filter(|site| evidence.iter().any(|one| one.fabric == site.name));
    let scored: Vec<(u32, &'static Site)> = shown.map(|site| (Score::of(site, evidence).sum, site)).collect();
    let most = scored.iter().map(|(sum, _)| *sum).max();
    scored.into_iter().filter(|(sum, _)| Some(*sum) == most).map(|(_, site)| site).collect()
}
