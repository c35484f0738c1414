//! Judges the bandwidth of a run against published figures and the line rate of the machine.

use serde::Serialize;

use super::machine::machine;
use super::probe::Probes;
use super::table::{Collective, Run};
use weftrun_core::catalogue::{
    Catalogue, Expected, InstanceType, NodeFabric, bandwidths, expected, line_rate, pass_mark,
};
use weftrun_core::text::counted;

/// The smallest size that is judged, since smaller ones are bound by latency.
const LARGE: u64 = 1 << 30;
/// The fraction of the lowest published figure that passes. Repeated runs on one cluster differ by about ten
/// percent.
const TOLERANCE: f64 = 0.85;
/// A figure this many times the highest published one was measured on other hardware, or is none.
const IMPLAUSIBLE: f64 = 2.0;
/// The part of the line rate that passes: the lowest that sites accept, 60 of 100 GB/s over TCPX (cluster-health-scanner's
/// a3.yaml), 250 of 400 over RoCE (its a3ultra.yaml), 185 of 300 over NVLink 3 (Oracle's active_healthcheck.py). Marks that
/// their authors call loose are not counted (`data/expected-bandwidth.tsv`).
const LEAST_PART: f64 = 0.6;

/// What is said of a run first that was printed into others.
const MIXED: &str =
    "one of several separate runs that were printed into one another (nccl-tests run as one with MPI=1): ";

word_enum! {
    /// What a run shows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        // In order, the worst last.
        /// As fast as published figures, or as much of the line rate as is accepted.
        Pass = "pass",
        /// Nothing comparable was published.
        NoReference = "no-reference",
        /// Slower.
        Degraded = "degraded",
        /// It failed, has no figures, or its results are wrong.
        Fail = "fail",
    }
}

/// What a benchmark was run on, as far as its log does not say it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// Instance type that figures are compared for.
    pub instance: Option<String>,
    /// Its row; without one, that of the built-in catalogue.
    pub row: Option<InstanceType>,
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// The collective of tables without a name.
    pub collective: Option<Collective>,
    /// Whether the figures are judged although the GPUs had other work.
    pub force: bool,
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
    /// The published figures, or a site's pass mark, that it is compared with.
    pub expected: Option<Expected>,
    /// The line rate of what joins the ranks.
    pub limit: Option<Expected>,
    /// Why, as a sentence.
    pub reason: String,
}

impl Judgement {
    /// Returns what the run is drawn beside: published figures, else a pass mark, else the line rate.
    pub fn reference(&self) -> Option<&Expected> {
        self.expected.as_ref().or(self.limit.as_ref())
    }
}

/// Judges a run by what was published for its instance type, and by the line rate of what joins its ranks: that of the type, or of
/// the machine that its log shows. Only sizes of at least 1 GiB count.
pub fn judge(run: &Run, subject: &Subject, probes: &Probes) -> Judgement {
    let figures = || run.rows.iter().filter_map(|row| Some((row.size, row.busbw()?)));
    let judged = figures().filter(|(size, _)| *size >= LARGE).max_by(|one, two| one.1.total_cmp(&two.1));
    let mut judgement = Judgement {
        verdict: Verdict::Fail,
        busbw: judged.map(|(_, busbw)| busbw),
        size: judged.map(|(size, _)| size),
        expected: None,
        limit: None,
        reason: String::new(),
    };
    if let Some(reason) = broken(run) {
        judgement.reason = reason;
        return judgement;
    }
    judgement.verdict = Verdict::NoReference;
    let mixed = if run.mixed { MIXED } else { "" };
    let (busbw, setting) = match setting(run, subject, probes, judged.map(|(_, busbw)| busbw)) {
        Ok(known) => known,
        Err(reason) => return Judgement { reason: format!("{mixed}{reason}"), ..judgement },
    };
    judgement.limit = line_rate(&setting.row, setting.nodes, setting.ranks, setting.collective.as_str());
    let references = References::of(&setting, judgement.limit.as_ref());
    let (verdict, reason) = references.compare(busbw, &setting);
    (judgement.verdict, judgement.reason) = (verdict, format!("{mixed}{reason}"));
    judgement.expected = references.published.or(references.mark);
    if judgement.verdict == Verdict::NoReference {
        judgement.expected = None;
    }
    judgement
}

/// Returns why a run has no figures that can be judged.
fn broken(run: &Run) -> Option<String> {
    if let Some(failure) = &run.failure {
        return Some(format!("the benchmark failed: {failure}"));
    }
    if let Some(row) = run.rows.iter().find(|row| row.wrong() > 0) {
        return Some(format!(
            "the results are wrong: at least {} elements of size {} (line {})",
            row.wrong(),
            row.size,
            row.line
        ));
    }
    if let Some(row) = run.rows.iter().find(|row| row.is_broken()) {
        return Some(format!("size {} has no finite figures (line {})", row.size, row.line));
    }
    if run.alone {
        return Some(
            "each process ran the benchmark on its own: nccl-tests must be built with MPI=1, for the MPI that starts them"
                .to_owned(),
        );
    }
    run.rows.is_empty().then(|| "there is no table of figures in the log".to_owned())
}

/// What a run was made on.
struct Setting {
    collective: Collective,
    nodes: u32,
    ranks: u32,
    row: InstanceType,
    /// Whether the row is of an instance type and not made from the log.
    is_type: bool,
}

impl Setting {
    /// Returns whether a part of its line rate is known to be enough. Sockets share one link with all else of the node, and no
    /// share of it was published; nor was one of an all-to-all of several nodes.
    fn has_least_part(&self) -> bool {
        let is_rdma = self.row.fabric != NodeFabric::None || !self.is_type;
        self.nodes == 1 || (is_rdma && self.collective != Collective::AllToAll)
    }

    fn not_published(&self) -> String {
        let (name, nodes) = (&self.row.name, counted(self.nodes as usize, "node"));
        if !self.is_type {
            return format!(
                "the log shows a {name}, and not what joins {nodes} of them: give --instance-type"
            );
        }
        let others = match bandwidths().iter().any(|row| row.is_of(name)) {
            true => format!("; `weftrun instances {name}` lists figures of others"),
            false => String::new(),
        };
        let (collective, ranks) = (self.collective, self.ranks);
        format!("no figure of {collective} with {ranks} ranks on {nodes} of {name} was published{others}")
    }
}

/// Returns the bandwidth and what it was measured on, or what is not known of it.
fn setting(
    run: &Run,
    subject: &Subject,
    probes: &Probes,
    busbw: Option<f64>,
) -> Result<(f64, Setting), String> {
    let Some(busbw) = busbw else {
        let largest = run.rows.iter().map(|row| row.size).max().unwrap_or(0);
        return Err(format!(
            "the largest size is {largest} bytes; sizes below 1 GiB are bound by latency and are not judged"
        ));
    };
    if run.ranks == Some(1) {
        return Err(
            "one rank sends nothing to another GPU; if one was started for each, nccl-tests must be built with MPI=1, for the MPI that starts them"
                .to_owned(),
        );
    }
    if run.other {
        return Err("only all-reduce, all-gather, reduce-scatter and all-to-all are judged".to_owned());
    }
    let Some(collective) = run.collective.or(subject.collective) else {
        return Err("the log does not name the collective: give --collective".to_owned());
    };
    let named = subject.instance.as_deref();
    let of_type = subject.row.clone().or_else(|| Catalogue::builtin().get(named?).cloned());
    let is_type = of_type.is_some();
    let row = of_type.or_else(|| machine(probes, run));
    let given = subject.nodes.filter(|_| !run.mixed);
    let nodes = given.or(run.nodes);
    let ranks = run.ranks.or_else(|| nodes?.checked_mul(row.as_ref()?.accelerators));
    if let Some((nodes, ranks)) =
        nodes.zip(ranks).filter(|(nodes, ranks)| *nodes == 0 || !ranks.is_multiple_of(*nodes))
    {
        return Err(format!(
            "{ranks} ranks on {nodes} nodes are not as many on each, which nothing was published of"
        ));
    }
    match (row, nodes, ranks) {
        (Some(row), Some(nodes), Some(ranks)) => {
            let gpus = nodes.saturating_mul(row.accelerators);
            if row.accelerators > 0 && ranks > gpus {
                return Err(format!(
                    "{ranks} ranks are more than the {gpus} GPUs of {} of {}: check the number of nodes and the instance type",
                    counted(nodes as usize, "node"),
                    row.name
                ));
            }
            Ok((busbw, Setting { collective, nodes, ranks, row, is_type }))
        }
        (None, ..) => {
            let seen = match (&run.gpu, run.ranks, nodes) {
                (Some(gpu), Some(ranks), Some(nodes)) => {
                    format!(
                        "the {} ({gpu}, {})",
                        counted(ranks as usize, "GPU"),
                        counted(nodes as usize, "node")
                    )
                }
                _ => "the ranks".to_owned(),
            };
            let unknown = named.map_or_else(
                || "the instance type is not known".to_owned(),
                |name| format!("the catalogue has no instance type `{name}`"),
            );
            Err(format!("{unknown}, and the log does not show what joins {seen}: give --instance-type"))
        }
        (_, None, _) => Err("the number of nodes is not known: give --nodes".to_owned()),
        _ => Err("the number of ranks is not known".to_owned()),
    }
}

/// What a bandwidth is compared with.
struct References<'a> {
    published: Option<Expected>,
    mark: Option<Expected>,
    limit: Option<&'a Expected>,
}

impl<'a> References<'a> {
    fn of(setting: &Setting, limit: Option<&'a Expected>) -> Self {
        let whole = setting.is_type && setting.row.is_filled(setting.nodes, setting.ranks);
        let (name, collective) = (&setting.row.name, setting.collective.as_str());
        Self {
            published: whole.then(|| expected(name, setting.nodes, collective)).flatten(),
            mark: whole.then(|| pass_mark(name, setting.nodes, collective)).flatten(),
            limit,
        }
    }

    /// Returns the verdict with its reason. Figures of the same setting decide; without them the pass mark of a site and the part
    /// of the line rate, of which both must be reached.
    fn compare(&self, busbw: f64, setting: &Setting) -> (Verdict, String) {
        if let Some(reason) = self.implausible(busbw) {
            return (Verdict::NoReference, reason);
        }
        match &self.published {
            Some(published) => self.beside_published(busbw, published),
            None => self.beside_limit(busbw, setting),
        }
    }

    /// Returns why a bandwidth is none of this machine.
    fn implausible(&self, busbw: f64) -> Option<String> {
        let highest = [self.published.as_ref(), self.limit].into_iter().flatten().map(|one| one.high);
        highest.reduce(f64::max).filter(|highest| busbw > highest * IMPLAUSIBLE)?;
        let what = match &self.published {
            Some(published) => format!("the highest published figure ({})", published.range()),
            None => format!("the line rate ({})", self.limit.map(Expected::range).unwrap_or_default()),
        };
        Some(format!("{busbw:.1} GB/s is more than {IMPLAUSIBLE} times {what}: check the instance type"))
    }

    /// Returns the part of the line rate, with its calculation.
    fn of_limit(&self, busbw: f64) -> Option<String> {
        let limit = self.limit?;
        let part = busbw / limit.low * 100.0;
        let of = if limit.high > limit.low { "the lower end of " } else { "" };
        Some(format!("{part:.0} % of {of}{}, {}", limit.range(), limit.what))
    }

    /// Returns whether the line rate is reached. Rings of two nodes reach it, and trees and NVLink SHARP exceed it: both are
    /// healthy.
    fn is_full(&self, busbw: f64) -> bool {
        self.limit.is_some_and(|limit| busbw >= limit.low * TOLERANCE)
    }

    fn beside_published(&self, busbw: f64, published: &Expected) -> (Verdict, String) {
        let range = published.range();
        let and_limit = self.of_limit(busbw).map_or_else(String::new, |of| format!("; {of}"));
        if self.is_full(busbw) || busbw >= published.low * TOLERANCE {
            return (Verdict::Pass, format!("{busbw:.1} GB/s; published: {range}{and_limit}"));
        }
        let part = busbw / published.low * 100.0;
        let reason =
            format!("{busbw:.1} GB/s is {part:.0} % of the lowest published figure ({range}){and_limit}");
        (Verdict::Degraded, reason)
    }

    fn beside_limit(&self, busbw: f64, setting: &Setting) -> (Verdict, String) {
        let is = self.of_limit(busbw).map_or_else(String::new, |of| format!(" is {of}"));
        let and_mark = self.mark.as_ref().map_or_else(String::new, |mark| {
            let site = mark.sources.first().map_or("a site", String::as_str);
            format!("; {site} accepts {} or more", mark.range())
        });
        let reason = format!("{busbw:.1} GB/s{is}{and_mark}");
        let limit = self.limit.filter(|_| setting.has_least_part());
        if limit.is_none() && self.mark.is_none() {
            return (Verdict::NoReference, format!("{reason}; {}", setting.not_published()));
        }
        // A mark above the line rate is of fewer nodes, or of trees.
        let is_above = |mark: &Expected| self.limit.is_some_and(|limit| mark.low > limit.low);
        let is_below = |mark: &Expected| busbw < mark.low && !(self.is_full(busbw) && is_above(mark));
        let is_slow = limit.is_some_and(|limit| busbw < limit.low * LEAST_PART);
        let degraded = is_slow || self.mark.as_ref().is_some_and(is_below);
        (if degraded { Verdict::Degraded } else { Verdict::Pass }, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read;

    fn of(instance: Option<&str>, nodes: Option<u32>, collective: Option<Collective>) -> Subject {
        Subject { instance: instance.map(str::to_owned), nodes, collective, ..Subject::default() }
    }

    fn run(busbw: &str) -> Run {
        let log =
            format!("2147483648 536870912 float sum -1 51000.0 42.1 {busbw} 0 51000.0 42.1 {busbw} 0\n");
        read(log.as_bytes()).remove(0)
    }

    #[test]
    fn a_run_is_compared_with_the_lowest_published_figure() {
        let judged = |busbw: &str| {
            let judgement = judge(
                &run(busbw),
                &of(Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce)),
                &Probes::default(),
            );
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

    /// Half of a NIC, or one, is beside a rank that has its node for itself.
    #[test]
    fn of_a_range_the_percent_is_of_its_lower_end() {
        let log = "# Using devices\n#  Rank  0 Group  0 Pid  1 on  a device  0 [0x10] NVIDIA A100\n#  Rank  1 Group  0 Pid  2 on  b device  0 [0x10] NVIDIA A100\n";
        let row = "2147483648 536870912 float sum -1 51000.0 42.1 5.0 0 51000.0 42.1 5.0 0\n";
        let run = read(format!("{log}{row}").as_bytes()).remove(0);
        let subject = of(Some("p4d.24xlarge"), Some(2), Some(Collective::AllGather));
        let reason = judge(&run, &subject, &Probes::default()).reason;
        assert!(reason.contains("5.0 GB/s is 80 % of the lower end of 6.25 to 12.5 GB/s"), "{reason}");
    }

    #[test]
    fn a_machine_without_a_known_network_is_named_and_the_type_is_asked_for() {
        let log = "weftrun-probe {\"host\":\"a\",\"gpus\":\"2 NVIDIA H200;\",\"nvlinks\":36,\"nvlink_pairs\":\"2 NV18;\",\"nvlink_rates\":\"36 26.562 GB/s;\",\"interfaces\":[]}\n";
        let mut probes = Probes::default();
        probes.read(log.as_bytes());
        let mut run = run("50.0");
        (run.ranks, run.nodes) = (Some(4), Some(2));
        let reason = judge(&run, &of(None, Some(2), Some(Collective::AllReduce)), &probes).reason;
        assert_eq!(
            reason,
            "50.0 GB/s; the log shows a node with 2 NVIDIA H200, and not what joins 2 nodes of them: give --instance-type"
        );
    }

    #[test]
    fn what_cannot_be_compared_has_no_reference() {
        let all = Some(Collective::AllReduce);
        for (instance, nodes, collective) in [
            (None, Some(2), all),
            (Some("p4d.24xlarge"), None, all),
            // Sockets, of which no share was published; and machines without NVLink.
            (Some("g4dn.12xlarge"), Some(2), all),
            (Some("g5.48xlarge"), Some(1), all),
        ] {
            let judgement = judge(&run("78.0"), &of(instance, nodes, collective), &Probes::default());
            assert_eq!(judgement.verdict, Verdict::NoReference, "{judgement:?}");
            assert!(!judgement.reason.is_empty());
        }
        let unknown = read(b"2147483648 536870912 float sum -1 51000.0 78.0 78.0 0\n").remove(0);
        let judgement = judge(&unknown, &of(Some("p4d.24xlarge"), Some(2), None), &Probes::default());
        assert_eq!(judgement.reason, "the log does not name the collective: give --collective");
        let small = read(b"1048576 262144 float sum -1 30.9 33.8 29.6 0 30.2 34.7 30.3 0\n").remove(0);
        let judgement = judge(&small, &of(Some("p4d.24xlarge"), Some(2), all), &Probes::default());
        assert_eq!((judgement.verdict, judgement.busbw), (Verdict::NoReference, None));
    }

    /// Rings of two p4d reach 44 GB/s of 50, trees the 78 that are published.
    #[test]
    fn a_full_line_rate_is_no_degraded_fabric() {
        let (verdict, reason) = judged(16, 2, "43.8", "p4d.24xlarge");
        assert_eq!(verdict, Verdict::Pass, "{reason}");
        assert!(reason.contains("88 % of 50 GB/s") && reason.contains("published: 77.9"), "{reason}");
        assert_eq!(judged(16, 2, "41.0", "p4d.24xlarge").0, Verdict::Degraded);
        // A mark of 440 GB/s for any number of nodes, of which rings reach 400.
        assert_eq!(judged(32, 4, "395.0", "BM.GPU.H100.8").0, Verdict::Pass);
        assert_eq!(judged(32, 4, "300.0", "BM.GPU.H100.8").0, Verdict::Degraded);
    }

    /// A type of the user's configuration is judged like one of the catalogue; one that nobody knows is said to be unknown.
    #[test]
    fn a_configured_type_has_its_own_row() {
        let mut ours = InstanceType::new("ours");
        (ours.accelerators, ours.nics, ours.nic_gbps, ours.fabric) =
            (8, Some(4), Some(200.0), NodeFabric::Roce);
        let run = Run { ranks: Some(16), nodes: Some(2), ..run("20.0") };
        let mut subject = of(Some("ours"), None, Some(Collective::AllReduce));
        let judgement = judge(&run, &subject, &Probes::default());
        assert!(
            judgement.reason.starts_with("the catalogue has no instance type `ours`"),
            "{}",
            judgement.reason
        );
        subject.row = Some(ours);
        let judgement = judge(&run, &subject, &Probes::default());
        assert_eq!(judgement.verdict, Verdict::Degraded);
        assert_eq!(
            judgement.reason,
            "20.0 GB/s is 20 % of 100 GB/s, line rate of the 4 × 200 Gb/s of each ours"
        );
    }

    #[test]
    fn a_run_on_a_part_of_the_gpus_is_not_compared() {
        // Two GPUs have a half of one of four interfaces each, or one.
        for (ranks, verdict) in [(16, Verdict::Degraded), (2, Verdict::Pass), (3, Verdict::NoReference)] {
            let run = Run { ranks: Some(ranks), ..run("20.3") };
            let judgement = judge(
                &run,
                &of(Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce)),
                &Probes::default(),
            );
            assert_eq!(judgement.verdict, verdict, "{judgement:?}");
        }
    }

    #[test]
    fn a_figure_far_above_the_published_ones_is_no_pass() {
        let judged = |busbw: &str| {
            judge(
                &run(busbw),
                &of(Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce)),
                &Probes::default(),
            )
        };
        let high = judged("800.0");
        assert_eq!(high.verdict, Verdict::NoReference);
        assert!(high.reason.ends_with("check the instance type"), "{}", high.reason);
        assert_eq!(judged("1e300").verdict, Verdict::Fail, "no fabric has it");
    }

    #[test]
    fn wrong_results_and_empty_logs_fail() {
        let wrong =
            read(b"2147483648 536870912 float sum -1 51000.0 42.1 78.9 7 51000.0 42.1 78.9 0\n").remove(0);
        let judgement = judge(
            &wrong,
            &of(Some("p4d.24xlarge"), Some(2), Some(Collective::AllReduce)),
            &Probes::default(),
        );
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert!(judgement.reason.contains("7 elements"), "{}", judgement.reason);
        assert_eq!(judge(&Run::default(), &of(None, None, None), &Probes::default()).verdict, Verdict::Fail);
    }

    fn judged(ranks: u32, nodes: u32, busbw: &str, instance: &str) -> (Verdict, String) {
        let run = Run { ranks: Some(ranks), nodes: Some(nodes), ..run(busbw) };
        let judgement =
            judge(&run, &of(Some(instance), None, Some(Collective::AllReduce)), &Probes::default());
        (judgement.verdict, judgement.reason)
    }

    #[test]
    fn without_published_figures_the_line_rate_decides() {
        assert_eq!(
            judged(16, 2, "184.0", "DGX-H100"),
            (
                Verdict::Degraded,
                "184.0 GB/s is 46 % of 400 GB/s, line rate of the 8 × 400 Gb/s of each DGX-H100".to_owned()
            )
        );
        assert_eq!(judged(16, 2, "380.0", "DGX-H100").0, Verdict::Pass);
        // A loose mark accepts 100 GB/s: it is named, and the line rate decides.
        let (verdict, reason) = judged(16, 2, "184.0", "Standard_ND96isr_H100_v5");
        assert!(
            verdict == Verdict::Degraded && reason.contains("46 %") && reason.contains("accepts 100 GB/s"),
            "{reason}"
        );
        // A strict one decides beside it: 185 GB/s of 200.
        let (verdict, reason) = judged(16, 2, "170.0", "BM.GPU4.8");
        assert!(verdict == Verdict::Degraded && reason.contains("185 GB/s"), "{reason}");
    }

    /// No type for which a figure or a mark of a collective stands in the table is said to have none.
    #[test]
    fn every_published_pass_mark_is_judged() {
        for row in weftrun_core::catalogue::bandwidths() {
            let (Some(collective), Some(known)) =
                (Collective::parse(&row.collective), Catalogue::builtin().get(&row.instance).cloned())
            else {
                continue;
            };
            for nodes in [1, 2, 4, 8] {
                let Some(mark) = pass_mark(&row.instance, nodes, &row.collective) else { continue };
                let run = Run {
                    ranks: Some(nodes * known.accelerators),
                    collective: Some(collective),
                    ..run("1.5")
                };
                let judgement = judge(&run, &of(Some(&row.instance), Some(nodes), None), &Probes::default());
                assert_eq!(judgement.verdict, Verdict::Degraded, "{judgement:?}");
                assert!(judgement.expected.is_some() && mark.low > 1.5);
            }
        }
    }

    #[test]
    fn a_machine_that_the_log_shows_is_judged_by_its_line_rate() {
        let mut seen = Probes::default();
        seen.read(
            b"weftrun-probe {\"host\":\"a\",\"gpus\":\"2 NVIDIA H200;\",\"nvlinks\":36,\
              \"nvlink_pairs\":\"2 NV18;\",\"nvlink_rates\":\"36 26.562 GB/s;\"}\n",
        );
        let run = |busbw| Run { ranks: Some(2), nodes: Some(1), ..run(busbw) };
        let judge = |busbw| judge(&run(busbw), &of(None, None, Some(Collective::AllReduce)), &seen);
        let slow = judge("156.0");
        assert_eq!(slow.verdict, Verdict::Degraded);
        assert_eq!(
            slow.reason,
            "156.0 GB/s is 35 % of 450 GB/s, one direction of the NVSwitch/NVLink 900GB/s of each GPU of node with 2 NVIDIA H200"
        );
        assert_eq!(judge("329.0").verdict, Verdict::Pass);
    }

    #[test]
    fn one_rank_and_a_failed_benchmark_have_no_verdict_on_bandwidth() {
        let alone = Run { ranks: Some(1), nodes: Some(1), ..run("0.0") };
        let judgement = judge(&alone, &of(Some("p5.48xlarge"), None, None), &Probes::default());
        assert_eq!(judgement.verdict, Verdict::NoReference);
        assert!(judgement.reason.starts_with("one rank sends nothing"), "{}", judgement.reason);
        let failed = read(
            b"n1: Test NCCL failure common.cu:958 'remote process exited or there was a network error / '\n",
        )
        .remove(0);
        let judgement = judge(&failed, &of(None, None, None), &Probes::default());
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert!(judgement.reason.contains("remote process exited"), "{}", judgement.reason);
    }
}
