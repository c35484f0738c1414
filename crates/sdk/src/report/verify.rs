//! The reports of `weftrun verify -o json` and `weftrun probe -o json`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::SCHEMA;
use super::TransportReport;
use weftrun_core::Finding;
use weftrun_core::catalogue::Expected;
use weftrun_core::request::Fabric;
use weftrun_verify::{Collective, Device, Judgement, KeptRun, NodeHistory, Probes, Row, Verdict, nodes};

weftrun_core::shapes! {
    /// `weftrun verify -o json`: the figures of a benchmark, and the verdict on them.
    pub struct VerifyReport<'a> {
        /// `weftrun/v1`.
        pub schema: &'static str,
        /// The worst verdict of all runs.
        pub verdict: Verdict,
        /// The job's handle; null for logs of a job that another program submitted.
        pub job: Option<String>,
        /// Instance type that the figures are compared for.
        pub instance: Option<&'a str>,
        /// Number of nodes.
        pub nodes: Option<u32>,
        /// One for each collective.
        pub runs: Vec<VerifyRun<'a>>,
        /// The transports that the logs prove; null without NCCL's lines.
        pub transport: Option<TransportReport>,
        /// What else the logs show.
        pub findings: Vec<Finding>,
        /// The search for slow nodes; null where none was made.
        pub search: Option<VerifySearch>,
    }

    /// `weftrun verify --history -o json`: the kept runs of a target, and its nodes by them.
    pub struct VerifyHistoryReport {
        /// `weftrun/v1`.
        pub schema: &'static str,
        /// The target.
        pub target: String,
        /// The runs, the oldest first.
        pub runs: Vec<KeptRun>,
        /// The nodes, the slowest first.
        pub nodes: Vec<NodeHistory>,
    }

    /// The figures of one collective.
    pub struct VerifyRun<'a> {
        /// The collective; null where the log does not name it.
        pub collective: Option<Collective>,
        /// Number of ranks.
        pub ranks: Option<u32>,
        /// The verdict.
        pub verdict: Verdict,
        /// Why, as a sentence.
        pub reason: &'a str,
        /// Highest bus bandwidth of sizes of at least 1 GiB, GB/s.
        pub busbw_gbps: Option<f64>,
        /// Its size, bytes.
        pub size: Option<u64>,
        /// Published bus bandwidth, or a site's pass mark; null where none was published.
        pub expected: Option<&'a Expected>,
        /// The line rate of what joins the ranks, and its calculation; null where it is not known.
        pub limit: Option<&'a Expected>,
        /// All figures.
        pub rows: &'a [Row],
    }

    /// A search for slow nodes.
    #[derive(PartialEq)]
    pub struct VerifySearch {
        /// The slow nodes; empty where no single node explains it.
        pub slow_nodes: Vec<String>,
        /// Why no node is named; null where one is.
        pub reason: Option<String>,
        /// Number of jobs.
        pub jobs: usize,
        /// All measurements.
        pub groups: Vec<VerifyGroup>,
        /// What the interfaces of the groups with a slow node showed.
        pub findings: Vec<Finding>,
    }

    /// One measurement of a search.
    #[derive(PartialEq)]
    pub struct VerifyGroup {
        /// Round, from 1.
        pub round: usize,
        /// The nodes.
        pub nodes: Vec<String>,
        /// Bus bandwidth of the largest size, GB/s; null if the benchmark failed.
        pub busbw_gbps: Option<f64>,
        /// Why the benchmark failed; null if it did not.
        pub failed: Option<String>,
    }

    /// `weftrun probe -o json`: the facts that nodes report.
    pub struct ProbeReport {
        /// `weftrun/v1`.
        pub schema: &'static str,
        /// The job's handle; null for logs of a job that is over.
        pub job: Option<String>,
        /// The nodes.
        pub nodes: Vec<ProbeNode>,
        /// The fabrics that the active devices of the nodes are evidence of.
        pub fabrics: Vec<ProbeFabric>,
        /// Differences between the nodes.
        pub findings: Vec<Finding>,
    }

    /// What a node reports.
    pub struct ProbeNode {
        /// Host name.
        pub host: String,
        /// Its facts by name; each node reports those that it has.
        pub facts: BTreeMap<String, Value>,
        /// Its network devices for RDMA.
        pub devices: Vec<Device>,
    }

    /// A fabric that devices are evidence of.
    pub struct ProbeFabric {
        /// The fabric.
        pub fabric: Fabric,
        /// The nodes with an active device of it.
        pub hosts: Vec<String>,
    }
}

impl VerifyHistoryReport {
    /// Returns the report of a target's runs.
    pub fn new(target: impl Into<String>, runs: Vec<KeptRun>) -> Self {
        Self { schema: SCHEMA, target: target.into(), nodes: nodes(&runs), runs }
    }
}

impl VerifyGroup {
    /// Makes the shape of a measurement.
    pub fn new(round: usize, nodes: Vec<String>, busbw_gbps: Option<f64>, failed: Option<String>) -> Self {
        Self { round, nodes, busbw_gbps, failed }
    }

    /// Returns its bandwidth as text: `350.0 GB/s`, `failed`.
    pub fn bandwidth(&self) -> String {
        self.busbw_gbps.map_or_else(|| "failed".to_owned(), |busbw| format!("{busbw:.1} GB/s"))
    }
}

impl VerifySearch {
    /// Makes the report of a search.
    pub fn new(slow_nodes: Vec<String>, reason: Option<String>, groups: Vec<VerifyGroup>) -> Self {
        Self { slow_nodes, reason, jobs: groups.len(), groups, findings: Vec::new() }
    }
}

impl ProbeReport {
    /// Returns the report of the nodes.
    pub fn new(probes: &Probes) -> Self {
        let node = |host: &str| ProbeNode {
            host: host.to_owned(),
            facts: probes.node(host),
            devices: probes.devices(host),
        };
        let fabrics = probes.fabrics().into_iter().map(|(fabric, hosts)| ProbeFabric { fabric, hosts });
        Self {
            schema: SCHEMA,
            job: None,
            nodes: probes.hosts().map(node).collect(),
            fabrics: fabrics.collect(),
            findings: probes.findings(),
        }
    }
}

impl<'a> VerifyReport<'a> {
    /// Returns the report of runs without a job.
    pub fn new(verdict: Verdict, runs: Vec<VerifyRun<'a>>) -> Self {
        let (schema, findings) = (SCHEMA, Vec::new());
        Self {
            schema,
            verdict,
            job: None,
            instance: None,
            nodes: None,
            runs,
            transport: None,
            findings,
            search: None,
        }
    }
}

impl<'a> VerifyRun<'a> {
    /// Returns the report of one run and its judgement.
    pub fn new(run: &'a weftrun_verify::Run, judgement: &'a Judgement) -> Self {
        Self {
            collective: run.collective,
            ranks: run.ranks,
            verdict: judgement.verdict,
            reason: &judgement.reason,
            busbw_gbps: judgement.busbw,
            size: judgement.size,
            expected: judgement.expected.as_ref(),
            limit: judgement.limit.as_ref(),
            rows: &run.rows,
        }
    }
}
