//! Judges the bandwidth of a run against published figures.

use serde::Serialize;

use super::table::{Collective, Run};
use weftrun_core::catalogue::{Catalogue, Expected, expected};

/// The smallest size that is judged, since smaller ones are bound by latency.
const LARGE: u64 = 1 << 30;
/// The fraction of the lowest published figure that passes. Repeated runs on one cluster differ by about ten
/// percent.
const TOLERANCE: f64 = 0.85;
/// A figure this many times the highest published one was measured on other hardware, or is none.
const IMPLAUSIBLE: f64 = 2.0;

word_enum! {
    /// What a run shows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        // In order, the worst last.
        /// As fast as published figures.
        Pass = "pass",
        /// Nothing comparable was published.
        NoReference = "no-reference",
        /// Slower.
        Degraded = "degraded",
        /// It failed, has no figures, or its results are wrong.
        Fail = "fail",
    }
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Highest bus bandwidth of the sizes that are judged, GB/s.
    pub busbw: Option<f64>,
    /// The size it was measured with, bytes.
    pub size: Option<u64>,
    /// The published figures that it is compared with.
    pub expected: Option<Expected>,
    /// Why, as a sentence.
    pub reason: String,
}

/// Judges a run on a number of nodes of an instance type. Only sizes of at least 1 GiB count.
pub fn judge(
    run: &Run,
    instance: Option<&str>,
    nodes: Option<u32>,
    collective: Option<Collective>,
) -> Judgement {
    let fastest =
        |rows: &mut dyn Iterator<Item = (u64, f64)>| rows.max_by(|one, two| one.1.total_cmp(&two.1));
    let figures = || run.rows.iter().filter_map(|row| Some((row.size, row.busbw()?)));
    let judged = fastest(&mut figures().filter(|(size, _)| *size >= LARGE));
    let mut judgement = Judgement {
        verdict: Verdict::Fail,
        busbw: judged.map(|(_, busbw)| busbw),
        size: judged.map(|(size, _)| size),
        expected: None,
        reason: String::new(),
    };
    if let Some(row) = run.rows.iter().find(|row| row.wrong() > 0) {
        judgement.reason = format!(
            "the results are wrong: at least {} elements of size {} (line {})",
            row.wrong(),
            row.size,
            row.line
        );
        return judgement;
    }
    if let Some(row) = run.rows.iter().find(|row| row.is_broken()) {
        judgement.reason = format!("size {} has no finite figures (line {})", row.size, row.line);
        return judgement;
    }
    if run.alone {
        "each process ran the benchmark on its own: nccl-tests must be built with MPI=1, for the MPI that starts them"
            .clone_into(&mut judgement.reason);
        return judgement;
    }
    if run.rows.is_empty() {
        "there is no table of figures in the log".clone_into(&mut judgement.reason);
        return judgement;
    }
    judgement.verdict = Verdict::NoReference;
    let Some((_, busbw)) = judged else {
        let largest = run.rows.iter().map(|row| row.size).max().unwrap_or(0);
        judgement.reason = format!(
            "the largest size is {largest} bytes; sizes below 1 GiB are bound by latency and are not judged"
        );
        return judgement;
    };
    let Some(collective) = run.collective.or(collective) else {
        "the log does not name the collective".clone_into(&mut judgement.reason);
        return judgement;
    };
    let (Some(instance), Some(nodes)) = (instance, nodes.or(run.nodes)) else {
        let missing = if instance.is_none() { "instance type" } else { "number of nodes" };
        judgement.reason = format!("the {missing} is not known");
        return judgement;
    };
    let gpus = Catalogue::builtin().get(instance).map(|row| row.accelerators);
    if let (Some(ranks), Some(gpus)) = (run.ranks, gpus)
        && ranks != nodes.saturating_mul(gpus)
    {
        judgement.reason = format!(
            "published figures are of all {gpus} GPUs of each node; this run has {ranks} ranks on {nodes} nodes"
        );
        return judgement;
    }
    let Some(published) = expected(instance, nodes, collective.as_str()) else {
        judgement.reason = format!("no figure of {collective} on {nodes} {instance} was published");
        return judgement;
    };
    let limit = published.low * TOLERANCE;
    let range = published.range();
    if busbw > published.high * IMPLAUSIBLE {
        judgement.reason = format!(
            "{busbw:.1} GB/s is more than {IMPLAUSIBLE} times the highest published figure ({range}): check the instance type"
        );
        return judgement;
    }
    (judgement.verdict, judgement.reason) = if busbw >= limit {
        (Verdict::Pass, format!("{busbw:.1} GB/s; published: {range}"))
    } else {
        let part = busbw / published.low * 100.0;
        (
            Verdict::Degraded,
            format!("{busbw:.1} GB/s is {part:.0} % of the lowest published figure ({range})"),
        )
    };
    judgement.expected = Some(published);
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read;

    fn run(busbw: &str) -> Run {
        let log =
            format!("2147483648 536870912 float sum -1 51000.0 42.1 {busbw} 0 51000.0 42.1 {busbw} 0\n");
        read(log.as_bytes()).remove(0)
    }

    #[test]
    fn a_run_is_compared_with_the_lowest_published_figure() {
        let judged = |busbw: &str| {
            let judgement = judge(&run(busbw), Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce));
            (judgement.verdict, judgement.reason)
        };
        // Published: 77.9 GB/s.
        assert_eq!(judged("78.9").0, Verdict::Pass);
        assert_eq!(judged("66.5").0, Verdict::Pass);
        let (verdict, reason) = judged("20.3");
        assert_eq!(verdict, Verdict::Degraded);
        assert!(reason.contains("26 %") && reason.contains("77.9"), "{reason}");
        assert_eq!(judged("nan").0, Verdict::Fail);
    }

    #[test]
    fn what_cannot_be_compared_has_no_reference() {
        let all = Some(Collective::AllReduce);
        for (instance, nodes, collective) in [
            (None, Some(2), all),
            (Some("p4d.24xlarge"), None, all),
            (Some("p4d.24xlarge"), Some(3), all),
            (Some("g4dn.12xlarge"), Some(2), all),
        ] {
            let judgement = judge(&run("78.0"), instance, nodes, collective);
            assert_eq!(judgement.verdict, Verdict::NoReference, "{judgement:?}");
            assert!(!judgement.reason.is_empty());
        }
        let unknown = read(b"2147483648 536870912 float sum -1 51000.0 78.0 78.0 0\n").remove(0);
        let judgement = judge(&unknown, Some("p4d.24xlarge"), Some(2), None);
        assert_eq!(judgement.reason, "the log does not name the collective");
        let small = read(b"1048576 262144 float sum -1 30.9 33.8 29.6 0 30.2 34.7 30.3 0\n").remove(0);
        let judgement = judge(&small, Some("p4d.24xlarge"), Some(2), all);
        assert_eq!((judgement.verdict, judgement.busbw), (Verdict::NoReference, None));
    }

    #[test]
    fn a_run_on_a_part_of_the_gpus_is_not_compared() {
        for (ranks, verdict) in [(16, Verdict::Degraded), (2, Verdict::NoReference)] {
            let run = Run { ranks: Some(ranks), ..run("20.3") };
            let judgement = judge(&run, Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce));
            assert_eq!(judgement.verdict, verdict, "{judgement:?}");
        }
    }

    #[test]
    fn a_figure_far_above_the_published_ones_is_no_pass() {
        let judged =
            |busbw: &str| judge(&run(busbw), Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce));
        let high = judged("800.0");
        assert_eq!(high.verdict, Verdict::NoReference);
        assert!(high.reason.ends_with("check the instance type"), "{}", high.reason);
        assert_eq!(judged("1e300").verdict, Verdict::Fail, "no fabric has it");
    }

    #[test]
    fn wrong_results_and_empty_logs_fail() {
        let wrong =
            read(b"2147483648 536870912 float sum -1 51000.0 42.1 78.9 7 51000.0 42.1 78.9 0\n").remove(0);
        let judgement = judge(&wrong, Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce));
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert!(judgement.reason.contains("7 elements"), "{}", judgement.reason);
        assert_eq!(judge(&Run::default(), None, None, None).verdict, Verdict::Fail);
    }
}
