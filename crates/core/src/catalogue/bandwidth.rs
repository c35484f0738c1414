//! The bus bandwidth of collectives on an instance type: `data/expected-bandwidth.tsv`, each row with its
//! source.

use std::sync::OnceLock;

use serde::Serialize;

use super::InstanceType;

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

word_enum! {
    /// What an expected bandwidth rests on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum ExpectedBasis {
        /// Figures that were published for the instance type and the number of nodes.
        Published = "published",
        /// What a site accepts of the instance type and the number of nodes.
        PassMark = "pass-mark",
        /// The line rate of what joins the ranks: network interfaces, or NVLink.
        LineRate = "line-rate",
    }
}

/// The bandwidth that a collective should reach.
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
    /// What it rests on.
    pub basis: ExpectedBasis,
    /// What was measured (`all_reduce of 16GiB on 2 p5.48xlarge`), or whose line rate it is.
    pub what: String,
    /// Where it was published; for a line rate, the keys of the sources of the row (`data/instances.md`).
    pub sources: Vec<String>,
}

impl Expected {
    /// Returns the range in GB/s, without its unit: `450`, `77.9`, `362-382`.
    pub fn numbers(&self) -> String {
        let number = |gbps: f64| if gbps < 100.0 { format!("{gbps:.1}") } else { format!("{gbps:.0}") };
        let (low, high) = (number(self.low), number(self.high));
        if low == high { low } else { format!("{low}-{high}") }
    }

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
/// type; none where nothing was published. Sources that disagree widen the range. What sites accept is
/// not counted.
pub fn expected(instance: &str, nodes: u32, collective: &str) -> Option<Expected> {
    published(&["measured", "expected"], ExpectedBasis::Published, instance, nodes, collective)
}

/// Returns the bandwidth from which on sites accept a number of nodes of an instance type; none where no such mark was
/// published.
pub fn pass_mark(instance: &str, nodes: u32, collective: &str) -> Option<Expected> {
    published(&["threshold"], ExpectedBasis::PassMark, instance, nodes, collective)
}

fn published(
    kinds: &[&str],
    basis: ExpectedBasis,
    instance: &str,
    nodes: u32,
    collective: &str,
) -> Option<Expected> {
    let rows: Vec<&Bandwidth> = bandwidths()
        .iter()
        .filter(|row| row.is_of(instance) && row.collective == collective)
        .filter(|row| kinds.contains(&row.kind.as_str()))
        .filter(|row| row.holds_for(nodes) && row.is_large())
        .collect();
    let (low, high) = widest(rows.iter().filter_map(|row| row.range()))?;
    let first = rows.first()?;
    let what = format!("{collective} of at least 1 GiB on {nodes} {}", first.instance);
    let mut sources: Vec<String> = rows.iter().map(|row| row.source.clone()).collect();
    sources.dedup();
    Some(Expected { low, high, basis, what, sources })
}

/// Returns what a communicator should reach in a collective: the published figure where it has all accelerators of its nodes,
/// otherwise the line rate of what joins its ranks. None where neither is known.
pub fn expected_rate(row: &InstanceType, nodes: u32, ranks: u32, collective: &str) -> Option<Expected> {
    let published = if row.is_filled(nodes, ranks) { expected(&row.name, nodes, collective) } else { None };
    published.or_else(|| line_rate(row, nodes, ranks, collective))
}

/// Returns the line rate of what joins the ranks of a communicator, as the bus bandwidth that it allows: each byte on the bus
/// crosses it once, and of an all-to-all those between two nodes. None for a pair of ranks, whose paths are not known.
///
/// ```
/// use weftrun_core::catalogue::{Catalogue, line_rate};
/// let catalogue = Catalogue::builtin();
/// let p5 = catalogue.get("p5.48xlarge").unwrap();
/// assert_eq!(line_rate(p5, 2, 16, "all_reduce").unwrap().low, 400.0);
/// ```
pub fn line_rate(row: &InstanceType, nodes: u32, ranks: u32, collective: &str) -> Option<Expected> {
    let crosses =
        matches!(collective, "all_reduce" | "all_gather" | "reduce_scatter" | "broadcast" | "reduce");
    let among_all = collective == "alltoall";
    if !(crosses || among_all) || ranks < 2 || nodes == 0 || ranks < nodes {
        return None;
    }
    let (mut low, mut high, mut what) =
        if nodes == 1 { inside_node(row)? } else { between_nodes(row, ranks / nodes)? };
    if among_all && nodes > 1 {
        if !ranks.is_multiple_of(nodes) {
            return None;
        }
        // A rank sends to all others alike; its share of the interfaces carries what leaves the node.
        let each = f64::from(ranks / nodes);
        let (others, outside) = (f64::from(ranks - 1), f64::from(ranks - ranks / nodes));
        let scale = others / outside / each;
        (low, high) = (low * scale, high * scale);
        what = format!(
            "{what}, shared by {each} ranks of which each sends {outside} of {others} parts to other nodes"
        );
    }
    let sources = if row.from_config { vec!["config".to_owned()] } else { row.sources.clone() };
    Some(Expected { low, high, basis: ExpectedBasis::LineRate, what, sources })
}

/// Returns one direction of the NVLink of each GPU, where a switch joins all of them. The catalogue has both directions.
fn inside_node(row: &InstanceType) -> Option<(f64, f64, String)> {
    let links = row.intra_node.as_deref().filter(|links| links.starts_with("NVSwitch/"))?;
    let both = links.split_whitespace().find_map(|word| word.strip_suffix("GB/s"))?;
    // `~900` is general knowledge, without a source.
    let gbps = both.parse::<f64>().ok().filter(|gbps| *gbps > 0.0)? / 2.0;
    Some((gbps, gbps, format!("one direction of the {links} of each GPU of {}", row.name)))
}

/// Returns the rate of the interfaces beside some ranks of each node: their part of all of them, and at least one.
fn between_nodes(row: &InstanceType, ranks: u32) -> Option<(f64, f64, String)> {
    let links = row.intra_node.as_deref().unwrap_or_default();
    let unsure = ["nics", "nic_gbps", "network_gbps"].iter().any(|column| row.is_unsure(column));
    // The nodes of an NVL72 domain are joined by NVLink.
    if unsure || links.contains("NVL72") || row.accelerators == 0 {
        return None;
    }
    let of_nics = row.nics.zip(row.nic_gbps).map(|(nics, gbps)| f64::from(nics) * gbps);
    // The network of a node can have a front-end interface that carries nothing of NCCL.
    let node = match (of_nics, row.network_gbps) {
        (Some(nics), Some(node)) => nics.min(node),
        (nics, node) => nics.or(node)?,
    };
    let part = (f64::from(ranks) / f64::from(row.accelerators)).min(1.0);
    let low = node * part / 8.0;
    let high = low.max(row.nic_gbps.unwrap_or(node).min(node) / 8.0);
    let what = if part < 1.0 {
        format!("line rate of the interfaces beside {ranks} of the {} GPUs of {}", row.accelerators, row.name)
    } else {
        let shown = match row.nics.zip(row.nic_gbps) {
            Some((nics, gbps)) if of_nics == Some(node) => format!("{nics} × {gbps} Gb/s"),
            _ => format!("{node} Gb/s"),
        };
        format!("line rate of the {shown} of each {}", row.name)
    };
    Some((low, high, what))
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
    fn without_a_published_figure_the_line_rate_is_expected() {
        let catalogue = crate::catalogue::Catalogue::builtin();
        let rate = |name: &str, nodes: u32, ranks: u32, collective: &str| {
            let rate = expected_rate(catalogue.get(name).unwrap(), nodes, ranks, collective);
            rate.map(|rate| (rate.low, rate.high, rate.basis, rate.sources.is_empty()))
        };
        let line = |low, high| Some((low, high, ExpectedBasis::LineRate, false));
        // Published, of all GPUs of both nodes; of a part of them, or of another number, it is the line rate.
        let published = rate("p4d.24xlarge", 2, 16, "all_reduce");
        assert_eq!(published, Some((77.9, 77.9, ExpectedBasis::Published, false)));
        assert_eq!(rate("p4d.24xlarge", 3, 24, "all_reduce"), line(50.0, 50.0));
        assert_eq!(
            rate("p4d.24xlarge", 4, 4, "all_gather"),
            line(6.25, 12.5),
            "a GPU has half of a NIC, or one"
        );
        // One node: half of what NVLink carries in both directions.
        assert_eq!(rate("p5.48xlarge", 1, 2, "all_reduce"), line(450.0, 450.0));
        assert_eq!(rate("p4d.24xlarge", 1, 8, "reduce_scatter"), line(300.0, 300.0));
        assert_eq!(rate("p5.48xlarge", 1, 8, "alltoall"), line(450.0, 450.0));
        // Of 15 others 8 are on the other node: a GPU's 50 GB/s carry 8/15 of what it sends.
        assert_eq!(rate("p5.48xlarge", 2, 16, "alltoall"), line(93.75, 93.75));
        // The front-end interface of GCP carries nothing of NCCL, and the 17th card of p6-b300 no EFA.
        assert_eq!(rate("a4-highgpu-8g", 3, 24, "all_reduce"), line(400.0, 400.0));
        assert_eq!(rate("p6-b300.48xlarge", 16, 128, "broadcast"), line(800.0, 800.0));
        for (name, nodes, ranks, collective) in [
            ("p5.48xlarge", 0, 8, "all_reduce"),
            ("p5.48xlarge", 1, 1, "all_reduce"),
            ("p5.48xlarge", 2, 2, "sendrecv"),
            ("g5.48xlarge", 1, 8, "all_reduce"),
            // From general knowledge; a domain of NVLink; cells that are not sure.
            ("a3-ultragpu-8g", 1, 8, "all_reduce"),
            ("a4x-highgpu-4g", 4, 16, "all_reduce"),
            ("BM.GPU.B300.8", 2, 16, "all_gather"),
        ] {
            assert_eq!(rate(name, nodes, ranks, collective), None, "{name} {nodes} {ranks} {collective}");
        }
    }

    #[test]
    fn the_calculation_is_shown() {
        let catalogue = crate::catalogue::Catalogue::builtin();
        let what = |name: &str, nodes, ranks, collective: &str| {
            line_rate(catalogue.get(name).unwrap(), nodes, ranks, collective).unwrap().what
        };
        assert_eq!(what("DGX-H100", 2, 16, "all_reduce"), "line rate of the 8 × 400 Gb/s of each DGX-H100");
        assert_eq!(
            what("DGX-H100", 2, 16, "alltoall"),
            "line rate of the 8 × 400 Gb/s of each DGX-H100, shared by 8 ranks of which each sends 8 of 15 parts to other nodes"
        );
    }

    #[test]
    fn a_pass_mark_is_no_published_figure() {
        let azure = "Standard_ND96isr_H100_v5";
        assert_eq!(expected(azure, 2, "all_reduce"), None);
        let mark = pass_mark(azure, 2, "all_reduce").unwrap();
        assert_eq!((mark.low, mark.basis), (100.0, ExpectedBasis::PassMark));
        assert_eq!(pass_mark(azure, 8, "alltoall"), None);
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
