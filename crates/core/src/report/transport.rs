//! The report of `weftrun transport -o json`: the transport of each pair of ranks, and the problems found.

use super::SCHEMA;
use crate::Finding;
use crate::catalogue::Expected;
use crate::diagnose::counters::Counters;
use crate::diagnose::{Diagnosis, diagnose};
use crate::fabric::FabricPlan;
use crate::nccl::{
    CommView, FabricSeen, GdrSeen, Kind, Network, PairView, PluginSeen, RankView, Series, Side, Totals,
    TransportMap,
};

shapes! {
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
        pub pairs: Vec<PairShape>,
        /// What is wrong, the worst first.
        pub findings: Vec<Finding>,
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

    /// Network devices of both ends.
    pub struct DevicesShape {
        /// The sender's.
        pub send: Vec<u32>,
        /// The receiver's.
        pub receive: Vec<u32>,
    }

    /// A pair of ranks, in one direction, over one transport.
    pub struct PairShape {
        /// Id of the communicator; null until the logs prove it.
        pub comm: Option<String>,
        /// Sending rank in the communicator.
        pub from: u32,
        /// Receiving rank in the communicator.
        pub to: u32,
        /// Sending rank in the job.
        pub global_from: Option<u32>,
        /// Receiving rank in the job.
        pub global_to: Option<u32>,
        /// Transport as NCCL names it.
        pub transport: String,
        /// Kind.
        pub kind: Kind,
        /// Network as NCCL names it.
        pub net: Option<String>,
        /// The network that the log proves it to be.
        pub network: Option<Network>,
        /// Network devices.
        pub devices: DevicesShape,
        /// Distinct (channel, connection index).
        pub channels: u32,
        /// GPUDirect RDMA on all of them; null where there is no network, or the lines do not show it.
        pub gdr: Option<bool>,
        /// Through another rank's NIC.
        pub pxn: bool,
        /// Buffers shared.
        pub shared: bool,
        /// Which ends printed it.
        pub seen: Vec<Side>,
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
        Self::of(diagnose(plan, map), map)
    }

    /// Makes the report of a diagnosis.
    pub fn of(diagnosis: Diagnosis, map: &TransportMap) -> Self {
        let map = map.snapshot();
        let verdict = diagnosis.verdict;
        Self {
            schema: SCHEMA,
            verdict: VerdictShape { fabric: verdict.fabric, gdr: verdict.gdr, ok: diagnosis.ok },
            nccl_versions: map.versions().map(str::to_owned).collect(),
            networks: map.networks().into_iter().collect(),
            plugins: map.plugins().to_vec(),
            ranks: map.ranks(),
            communicators: map.communicators(),
            pairs: map.pairs().into_iter().map(PairShape::from).collect(),
            findings: diagnosis.findings,
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
        expected: expected.filter(|_| series.metric.starts_with("busbw")).map(|expected| ExpectedShape {
            low: expected.low,
            high: expected.high,
            source: format!("{}: {}", expected.what, expected.sources.join(", ")),
        }),
    }
}

impl From<PairView> for PairShape {
    fn from(pair: PairView) -> Self {
        let seen = [(Side::Send, pair.seen.0), (Side::Receive, pair.seen.1)];
        Self {
            net: pair.network_name().map(str::to_owned),
            network: pair.network,
            comm: pair.comm,
            from: pair.from,
            to: pair.to,
            global_from: pair.global_from,
            global_to: pair.global_to,
            transport: pair.transport.into(),
            kind: pair.kind,
            devices: DevicesShape {
                send: pair.devices.0.iter().collect(),
                receive: pair.devices.1.iter().collect(),
            },
            channels: pair.channels.count(),
            gdr: pair.gdr,
            pxn: pair.pxn,
            shared: pair.shared,
            seen: seen.into_iter().filter(|(_, seen)| *seen).map(|(side, _)| side).collect(),
        }
    }
}
