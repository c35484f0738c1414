//! The report of `weftrun transport -o json`: the transport of each pair of ranks, and the problems found.

use crate::cause::{Cause, WhyState};
use crate::counters::Counters;
use crate::{Diagnosis, Sources};
use weftrun_core::Finding;
use weftrun_core::catalogue::Expected;
use weftrun_core::fabric::FabricPlan;
use weftrun_core::shape::SCHEMA;
use weftrun_nccl::{
    CommView, FabricSeen, GdrSeen, PairView, Phase, PluginSeen, RankView, Series, Totals, TransportMap,
};

weftrun_core::shapes! {
    /// `weftrun transport -o json`: which transport each pair of ranks uses, and what is wrong with it.
    pub struct TransportReport {
        /// `weftrun/v1`.
        pub schema: &'static str,
        /// The answer.
        pub verdict: VerdictShape,
        /// Versions of NCCL seen.
        pub nccl_versions: Vec<String>,
        /// Networks in use as far as the log shows them: connected, else announced, else implied.
        pub networks: Vec<String>,
        /// Plugins loaded.
        pub plugins: Vec<PluginSeen>,
        /// Every process seen, by rank.
        pub ranks: Vec<RankView>,
        /// Every communicator seen.
        pub communicators: Vec<CommView>,
        /// Every pair of ranks and transport, one entry a direction.
        pub pairs: Vec<PairView>,
        /// What is wrong, the worst first.
        pub findings: Vec<Finding>,
        /// The state of the job.
        pub state: WhyState,
        /// The first cause of its failure or hang, as `weftrun why` names it; null where nothing failed, or nothing proves one.
        pub cause: Option<Cause>,
        /// What the job printed of its speed.
        pub throughput: Vec<ThroughputShape>,
        /// Counts over everything read.
        pub totals: Totals,
        /// With `--counters`, the traffic of the network interfaces; left out otherwise.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub counters: Option<Counters>,
    }

    /// The answer in a few words.
    pub struct VerdictShape {
        /// The fabric between nodes that the pairs prove.
        pub fabric: FabricSeen,
        /// GPUDirect RDMA.
        pub gdr: GdrSeen,
        /// Whether that is as planned (or, without a plan, as it should be); null where nothing proves it.
        pub ok: Option<bool>,
    }

    /// A value of speed: the last of its series.
    pub struct ThroughputShape {
        /// Where it was printed.
        pub source: String,
        /// What it is.
        pub metric: String,
        /// The last value.
        pub value: f64,
        /// Unit.
        pub unit: String,
        /// Line of the last value.
        pub line: u64,
        /// Rank in the launcher's prefix.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rank: Option<u32>,
        /// The first value.
        pub first: f64,
        /// Values in all.
        pub count: u64,
        /// What is usual for this metric on the transport seen, where known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub expected: Option<ExpectedShape>,
    }

    /// What a collective reaches on the planned fabric when all is well.
    pub struct ExpectedShape {
        /// Lowest published value.
        pub low: f64,
        /// Highest published value.
        pub high: f64,
        /// What was measured, and the sources.
        pub source: String,
    }
}

impl TransportReport {
    /// Makes the report of a map, diagnosed against a plan where there is one.
    pub fn new(plan: Option<&FabricPlan>, map: &TransportMap) -> Self {
        Self::of(Sources::of_logs(map).plan(plan).diagnose(), map)
    }

    /// Makes the report of a diagnosis.
    pub fn of(diagnosis: Diagnosis, map: &TransportMap) -> Self {
        let map = map.snapshot();
        let (verdict, mut ranks) = (diagnosis.verdict, map.ranks());
        for view in &mut ranks {
            let failed = diagnosis.why.is_failed(view.rank, view.phase == Phase::Failed);
            view.phase = if failed { Phase::Failed } else { view.reached };
        }
        Self {
            schema: SCHEMA,
            verdict: VerdictShape { fabric: verdict.fabric, gdr: verdict.gdr, ok: diagnosis.ok },
            nccl_versions: map.versions().map(str::to_owned).collect(),
            networks: map.networks().into_iter().map(|named| named.name.into()).collect(),
            plugins: map.plugins().to_vec(),
            ranks,
            communicators: map.communicators(),
            pairs: map.pairs(),
            findings: diagnosis.findings,
            state: diagnosis.why.state,
            cause: diagnosis.why.cause,
            throughput: map
                .throughput()
                .map(|(source, series)| throughput(source, series, diagnosis.expected.as_ref()))
                .collect(),
            totals: map.totals(),
            counters: None,
        }
    }
}

fn throughput(source: &str, series: &Series, expected: Option<&Expected>) -> ThroughputShape {
    ThroughputShape {
        source: source.to_owned(),
        metric: series.metric.to_owned(),
        value: series.last().value,
        unit: series.unit.to_owned(),
        line: series.last().line,
        rank: series.rank,
        first: series.first.value,
        count: series.count,
        expected: expected.filter(|_| series.is_bus_bandwidth()).map(|expected| ExpectedShape {
            low: expected.low,
            high: expected.high,
            source: format!("{}: {}", expected.what, expected.sources.join(", ")),
        }),
    }
}
