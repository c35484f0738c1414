//! The bus bandwidth of collectives on an instance type: `data/expected-bandwidth.tsv`, each row with its
//! source.

use std::sync::OnceLock;

use serde::Serialize;

const TABLE: &str = include_str!("../../data/expected-bandwidth.tsv");

/// Smaller messages are bound by latency, which does not show the fabric.
const LARGE: u64 = 1 << 30;

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Bandwidth {
    /// Instance type, or a shape that a site names.
    pub instance: String,
    /// Accelerator.
    pub accelerator: String,
    /// Number of nodes, as published.
    pub nodes: String,
    /// The collective: `all_reduce`.
    pub collective: String,
    /// Size of the message, as published.
    pub message_size: String,
    /// Bus bandwidth in GB/s, as published: `335`, `~480`, `4-8`, `>=300`.
    pub busbw_gbps: String,
    /// `measured`, `expected` (a vendor's word), `threshold` (what a site accepts) or `degraded` (a fallback, measured).
    pub kind: String,
    /// Software it was measured with.
    pub software: String,
    /// Source.
    pub source: String,
    /// Remarks.
    pub note: String,
}

/// Published figures: the bandwidth that a collective should reach.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "VerifyExpected"))]
#[non_exhaustive]
pub struct Expected {
    /// Lowest published value, GB/s.
    #[serde(rename = "low_gbps")]
    pub low: f64,
    /// Highest published value, GB/s.
    #[serde(rename = "high_gbps")]
    pub high: f64,
    /// What was measured: `all_reduce of 16GiB on 2 p5.48xlarge`.
    pub what: String,
    /// Where it was published.
    pub sources: Vec<String>,
}

impl Expected {
    /// Returns the range as text: `77.9 GB/s`, `362 to 382 GB/s`.
    pub fn range(&self) -> String {
        range(self.low, self.high)
    }
}

fn range(low: f64, high: f64) -> String {
    if (high - low).abs() < 0.05 { format!("{low} GB/s") } else { format!("{low} to {high} GB/s") }
}

/// Returns all figures, in the order of the table.
pub fn bandwidths() -> &'static [Bandwidth] {
    static ROWS: OnceLock<Vec<Bandwidth>> = OnceLock::new();
    ROWS.get_or_init(|| TABLE.lines().skip(1).filter_map(row).collect())
}

fn row(line: &str) -> Option<Bandwidth> {
    let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let [_, instance, accelerator, nodes, collective, message_size, busbw_gbps, kind, software, source, note] =
        <[String; 11]>::try_from(cells).ok()?;
    Some(Bandwidth {
        instance,
        accelerator,
        nodes,
        collective,
        message_size,
        busbw_gbps,
        kind,
        software,
        source,
        note,
    })
}

impl Bandwidth {
    /// Returns whether it is about this instance type.
    pub fn is_of(&self, instance: &str) -> bool {
        let name = instance.strip_prefix("ml.").unwrap_or(instance);
        self.instance.eq_ignore_ascii_case(name)
    }

    /// Returns whether it holds for a number of nodes: `2`, `2-4`, `>=2`, `1 and multi`, `multi`.
    fn holds_for(&self, nodes: u32) -> bool {
        let text = self.nodes.as_str();
        let numbers: Vec<u32> =
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        match (numbers.as_slice(), text) {
            (_, "1 and multi") => true,
            (_, "multi") => nodes > 1,
            ([least], text) if text.starts_with(">=") => nodes >= *least,
            ([one], _) => nodes == *one,
            ([least, most], text) if text.contains('-') => (*least..=*most).contains(&nodes),
            _ => false,
        }
    }

    /// Returns whether the message was large enough to show the fabric: at least 1 GiB.
    fn is_large(&self) -> bool {
        let size = self.message_size.as_str();
        if matches!(size, "large" | "1G-16G avg") {
            return true;
        }
        let end = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
        let (number, unit) = size.split_at(end);
        let unit: u64 = match unit {
            "GiB" | "G" => 1 << 30,
            "GB" => 1_000_000_000,
            _ => return false,
        };
        number.parse::<u64>().is_ok_and(|number| number.saturating_mul(unit) >= LARGE)
    }

    /// Returns the lowest and the highest value.
    fn range(&self) -> Option<(f64, f64)> {
        let text = &self.busbw_gbps;
        let values = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        widest(values.filter_map(|number| number.parse().ok()).map(|value: f64| (value, value)))
    }
}

fn widest(ranges: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    ranges.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))
}

/// Returns the published bandwidth of a collective of at least 1 GiB on a number of nodes of an instance
/// type; none where nothing was published. Sources that disagree widen the range. Thresholds of sites are
/// not counted.
pub fn expected(instance: &str, nodes: u32, collective: &str) -> Option<Expected> {
    let rows: Vec<&Bandwidth> = bandwidths()
        .iter()
        .filter(|row| row.is_of(instance) && row.collective == collective)
        .filter(|row| matches!(row.kind.as_str(), "measured" | "expected"))
        .filter(|row| row.holds_for(nodes) && row.is_large())
        .collect();
    let (low, high) = widest(rows.iter().filter_map(|row| row.range()))?;
    let first = rows.first()?;
    let what = format!("{collective} of at least 1 GiB on {nodes} {}", first.instance);
    let mut sources: Vec<String> = rows.iter().map(|row| row.source.clone()).collect();
    sources.dedup();
    Some(Expected { low, high, what, sources })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_read() {
        assert_eq!(bandwidths().len(), TABLE.lines().skip(1).filter(|line| !line.is_empty()).count());
        for row in bandwidths() {
            assert!(row.range().is_some() && row.source.contains('.'), "{row:?}");
            assert!(
                matches!(row.kind.as_str(), "measured" | "expected" | "threshold" | "degraded"),
                "{row:?}"
            );
        }
    }

    #[test]
    fn a_broken_row_is_left_out() {
        let good = TABLE.lines().nth(1).unwrap();
        assert!(row(good).is_some());
        for broken in ["", "p4d.24xlarge", "p4d.24xlarge\t2\tall_reduce"] {
            assert!(row(broken).is_none(), "{broken:?}");
        }
        let without = Bandwidth { busbw_gbps: "n/a".to_owned(), ..row(good).unwrap() };
        assert_eq!(without.range(), None);
    }

    #[test]
    fn only_large_messages_on_the_same_number_of_nodes_count() {
        let p4d = expected("p4d.24xlarge", 2, "all_reduce").unwrap();
        assert_eq!((p4d.low, p4d.high), (77.9, 77.9));
        assert_eq!(expected("ml.p4d.24xlarge", 2, "all_reduce"), Some(p4d));
        // Two sources, and sizes from 1 GiB on.
        let b200 = expected("p6-b200.48xlarge", 4, "all_reduce").unwrap();
        assert_eq!((b200.low, b200.high), (361.99, 381.8));
        assert!(b200.sources.len() > 1);
        for unknown in [("p4d.24xlarge", 3), ("g4dn.12xlarge", 2), ("a3-highgpu-8g", 2)] {
            assert_eq!(expected(unknown.0, unknown.1, "all_reduce"), None, "{unknown:?}");
        }
    }
}
