//! Compares a run with earlier ones of the same target, and its nodes by all of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::table::{Collective, Run};
use weftrun_core::Finding;
use weftrun_core::text::{binary_size, counted};

/// Figures below this size are bound by latency and differ from run to run.
const LARGE: u64 = 64 << 20;
/// The part of the usual bandwidth that a run may lack while fewer than [`ENOUGH`] runs show how much they differ: repeated runs on one
/// cluster differ by about ten percent.
const UNKNOWN_NOISE: f64 = 0.10;
/// The least part that counts as slower, however equal the earlier runs are.
const LEAST_NOISE: f64 = 0.03;
/// The number of runs whose spread is taken for the noise.
const ENOUGH: usize = 4;
/// A normal distribution has a standard deviation of this many median deviations, and 0.1 % of it lies three below the middle.
const DEVIATIONS: f64 = 3.0 * 1.4826;

/// A run that was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct KeptRun {
    /// When it ended.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// The job's handle; none for logs of a job that another program submitted.
    pub job: Option<String>,
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// The nodes, as far as they reported.
    pub hosts: Vec<String>,
    /// Its figures of large sizes.
    pub figures: Vec<KeptFigure>,
}

/// A figure of a run that was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct KeptFigure {
    /// The collective, if the log shows it.
    pub collective: Option<Collective>,
    /// Number of ranks, if the log names them.
    pub ranks: Option<u32>,
    /// Bytes.
    pub size: u64,
    /// Bus bandwidth, GB/s.
    pub busbw: f64,
}

impl KeptFigure {
    /// Makes one.
    pub fn new(collective: Option<Collective>, ranks: Option<u32>, size: u64, busbw: f64) -> Self {
        Self { collective, ranks, size, busbw }
    }
}

/// How fast the runs on a node were.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NodeHistory {
    /// The node.
    pub host: String,
    /// Number of runs on it.
    pub runs: usize,
    /// The median of their bandwidth, as a part of the median of all comparable runs.
    pub of_usual: f64,
}

impl KeptRun {
    /// Returns what is kept of a run.
    pub fn new<'a>(
        at: Timestamp,
        nodes: Option<u32>,
        hosts: impl IntoIterator<Item = &'a str>,
        runs: &[Run],
    ) -> Self {
        let hosts = hosts.into_iter().map(str::to_owned).collect();
        let large = |run: &Run| {
            let largest = run.rows.iter().map(|row| row.size).max().unwrap_or(0);
            run.rows.iter().filter(|row| row.size >= LARGE.min(largest)).cloned().collect::<Vec<_>>()
        };
        let figures = runs.iter().flat_map(|run| {
            let of_row = |row: super::Row| {
                let busbw = row.busbw()?;
                Some(KeptFigure { collective: run.collective, ranks: run.ranks, size: row.size, busbw })
            };
            large(run).into_iter().filter_map(of_row)
        });
        Self { at, job: None, nodes, hosts, figures: figures.collect() }
    }

    /// Returns the bandwidth of this run for a figure of a run on as many nodes; none where it has no comparable one.
    fn comparable(&self, nodes: Option<u32>, figure: &KeptFigure) -> Option<f64> {
        let key = |figure: &KeptFigure| (figure.collective, figure.ranks, figure.size);
        let same = |own: &&KeptFigure| key(own) == key(figure);
        (self.nodes == nodes).then(|| self.figures.iter().find(same)).flatten().map(|own| own.busbw)
    }
}

/// Compares a run with earlier ones: a warning for each collective in which it is slower than they were, by more than they differ
/// among themselves.
///
/// ```
/// use weftrun_verify::{KeptRun, read, regressions};
/// let run = |busbw: &str| {
///     let log = format!("8589934592 2147483648 float sum -1 51000.0 42.1 {busbw} 0\n");
///     KeptRun::new("2026-11-23T00:00:00Z".parse().unwrap(), Some(2), ["a", "b"], &read(log.as_bytes()))
/// };
/// let earlier = ["78.0", "77.5", "78.4", "78.1"].map(run);
/// assert!(regressions(&run("77.0"), &earlier).is_empty());
/// let slower = regressions(&run("70.0"), &earlier);
/// assert_eq!(slower[0].code, "VERIFY-SLOWER-THAN-BEFORE");
/// ```
pub fn regressions(run: &KeptRun, earlier: &[KeptRun]) -> Vec<Finding> {
    let mut worst: BTreeMap<Option<Collective>, (f64, String)> = BTreeMap::new();
    let mut compared = false;
    for figure in &run.figures {
        let mut before: Vec<f64> =
            earlier.iter().filter_map(|kept| kept.comparable(run.nodes, figure)).collect();
        let Some(usual) = median(&mut before) else { continue };
        compared = true;
        let mut away: Vec<f64> = before.iter().map(|busbw| (busbw - usual).abs()).collect();
        let noise = if before.len() < ENOUGH {
            usual * UNKNOWN_NOISE
        } else {
            (median(&mut away).unwrap_or(0.0) * DEVIATIONS).max(usual * LEAST_NOISE)
        };
        if figure.busbw >= usual - noise {
            continue;
        }
        let part = figure.busbw / usual;
        if worst.get(&figure.collective).is_none_or(|(least, _)| part < *least) {
            let name = figure.collective.map_or("the benchmark", Collective::as_str);
            let message = format!(
                "{name} of {} is slower than before: {:.1} GB/s, {:.0} % of the {usual:.1} GB/s of {}, whose noise is {noise:.1} GB/s",
                binary_size(figure.size),
                figure.busbw,
                part * 100.0,
                counted(before.len(), "earlier run"),
            );
            worst.insert(figure.collective, (part, message));
        }
    }
    if !compared {
        let message = "no earlier run with these collectives, sizes and numbers of nodes and ranks was kept";
        return vec![
            Finding::info("VERIFY-NO-EARLIER-RUN", message).fix("keep a good run: `--baseline save`"),
        ];
    }
    let slower = |(_, message)| {
        Finding::warning("VERIFY-SLOWER-THAN-BEFORE", message)
            .fix("look for the node: `weftrun verify --bisect=always`, `weftrun verify --history`")
    };
    worst.into_values().map(slower).collect()
}

/// Compares nodes by the runs that they were in, the slowest first.
pub fn nodes(runs: &[KeptRun]) -> Vec<NodeHistory> {
    let mut of_node: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let part = |figure: &KeptFigure| {
            let mut all: Vec<f64> =
                runs.iter().filter_map(|kept| kept.comparable(run.nodes, figure)).collect();
            median(&mut all).filter(|usual| *usual > 0.0).map(|usual| figure.busbw / usual)
        };
        let mut parts: Vec<f64> = run.figures.iter().filter_map(part).collect();
        let Some(part) = median(&mut parts) else { continue };
        for host in &run.hosts {
            of_node.entry(host).or_default().push(part);
        }
    }
    let node = |(host, mut parts): (&str, Vec<f64>)| {
        Some(NodeHistory { host: host.to_owned(), runs: parts.len(), of_usual: median(&mut parts)? })
    };
    let mut all: Vec<NodeHistory> = of_node.into_iter().filter_map(node).collect();
    all.sort_by(|one, two| one.of_usual.total_cmp(&two.of_usual).then_with(|| one.host.cmp(&two.host)));
    all
}

/// Sorts values and returns the middle one, or the mean of the two in the middle; none without any.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2).copied()?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read;

    fn run(nodes: u32, hosts: &[&str], busbw: f64) -> KeptRun {
        let algbw = busbw / 1.875;
        let log = format!(
            "1048576 262144 float sum -1 51.0 0.5 1.0 0\n8589934592 2147483648 float sum -1 51000.0 {algbw:.2} {busbw} 0\n"
        );
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        KeptRun::new(at, Some(nodes), hosts.iter().copied(), &read(log.as_bytes()))
    }

    fn codes(run: &KeptRun, earlier: &[KeptRun]) -> Vec<String> {
        regressions(run, earlier).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_run_is_slower_only_beyond_what_earlier_ones_differ() {
        let steady: Vec<_> = [78.0, 78.2, 77.9, 78.1, 78.0].map(|busbw| run(2, &[], busbw)).into();
        let noisy: Vec<_> = [78.0, 70.0, 84.0, 75.0, 81.0].map(|busbw| run(2, &[], busbw)).into();
        let slower = ["VERIFY-SLOWER-THAN-BEFORE"];
        assert_eq!(codes(&run(2, &[], 74.0), &steady), slower);
        assert!(codes(&run(2, &[], 76.5), &steady).is_empty());
        assert!(codes(&run(2, &[], 68.0), &noisy).is_empty());
        assert_eq!(codes(&run(2, &[], 60.0), &noisy), slower);
        // One earlier run does not show how much runs differ.
        assert!(codes(&run(2, &[], 71.0), &steady[..1]).is_empty());
        assert_eq!(codes(&run(2, &[], 69.0), &steady[..1]), slower);
        assert!(codes(&run(2, &[], 99.0), &steady).is_empty(), "faster is no regression");
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let none = ["VERIFY-NO-EARLIER-RUN"];
        assert_eq!(codes(&run(2, &[], 20.0), &[]), none);
        assert_eq!(codes(&run(2, &[], 20.0), &[run(4, &[], 78.0)]), none, "another number of nodes");
        assert_eq!(run(2, &[], 78.0).figures.len(), 1, "small sizes are not kept");
    }

    #[test]
    fn the_node_of_slow_runs_is_the_first() {
        let runs = [
            run(2, &["a", "b"], 78.0),
            run(2, &["a", "c"], 40.0),
            run(2, &["b", "d"], 77.0),
            run(2, &["c", "d"], 41.0),
            run(2, &["a", "d"], 79.0),
            run(4, &["a", "b"], 60.0),
        ];
        let nodes = nodes(&runs);
        assert_eq!((nodes[0].host.as_str(), nodes[0].runs), ("c", 2));
        assert!(nodes[0].of_usual < 0.6 && nodes[1].of_usual > 0.9, "{nodes:?}");
    }

    #[test]
    fn figures_that_are_no_numbers_are_no_panic() {
        let mut odd = run(2, &["a"], 78.0);
        odd.figures[0].busbw = f64::NAN;
        assert!(codes(&odd, &[odd.clone(), run(2, &["a"], 0.0)]).len() <= 1);
        drop(nodes(&[odd]));
    }
}
