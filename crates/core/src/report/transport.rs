//! The report of `weftrun transport -o json`: the transport of each pair of ranks, and the problems found.

use std::collections::BTreeMap;

use super::SCHEMA;
use crate::Finding;
use crate::catalogue::Expected;
use crate::diagnose::counters::Counters;
use crate::diagnose::{Diagnosis, diagnose};
use crate::fabric::FabricPlan;
use crate::nccl::{
    CommView, FabricSeen, GdrSeen, Kind, Network, PairView, Phase, RankView, Series, Side, TransportMap,
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
        pub plugins: Vec<PluginShape>,
        /// Every process seen, by rank.
        pub ranks: Vec<RankShape>,
        /// Every communicator seen.
        pub communicators: Vec<CommShape>,
        /// Every pair of ranks and transport, one entry a direction.
        pub pairs: Vec<PairShape>,
        /// What is wrong, the worst first.
        pub findings: Vec<Finding>,
        /// What the job printed of its speed.
        pub throughput: Vec<ThroughputShape>,
        /// Counts over everything read.
        pub totals: TotalsShape,
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

    /// A plugin.
    pub struct PluginShape {
        /// Name.
        pub name: String,
        /// Version.
        pub version: Option<String>,
        /// libfabric's provider.
        pub provider: Option<String>,
        /// NICs found.
        pub nics: Option<u32>,
    }

    /// A process, or one rank of it.
    pub struct RankShape {
        /// Global rank; null until the logs prove it.
        pub rank: Option<u32>,
        /// Host.
        pub host: String,
        /// Process id.
        pub pid: Option<u64>,
        /// CUDA device.
        pub cuda_device: Option<u32>,
        /// PCI bus id, hexadecimal as printed.
        pub bus_id: Option<String>,
        /// Node, numbered from 0.
        pub node: u32,
        /// The network it chose. Announced is not connected.
        pub announced: Option<String>,
        /// Its progress.
        pub phase: Phase,
        /// The log it was seen in.
        pub source: String,
    }

    /// A communicator.
    pub struct CommShape {
        /// commId, or `PARENT/SPLITCOUNT/COLOR` for a split.
        pub id: String,
        /// Id of the parent.
        pub parent: Option<String>,
        /// Ranks.
        pub nranks: u32,
        /// Nodes.
        pub nnodes: Option<u32>,
        /// Whether its ranks are the job's.
        pub world: bool,
        /// Ranks whose logs were seen.
        pub seen_ranks: Vec<u32>,
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

    /// Counts.
    pub struct TotalsShape {
        /// Lines.
        pub lines: u64,
        /// NCCL's lines.
        pub nccl_lines: u64,
        /// Bytes.
        pub bytes: u64,
        /// NCCL's lines without a message.
        pub unparsed_nccl_lines: u64,
        /// Connection lines cut in the middle.
        pub torn_channel_lines: u64,
        /// Distinct (channel, connection index, ranks) by transport, over all communicators and lives together.
        pub edges: BTreeMap<String, u64>,
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
        let totals = map.totals();
        let verdict = diagnosis.verdict;
        Self {
            schema: SCHEMA,
            verdict: VerdictShape { fabric: verdict.fabric, gdr: verdict.gdr, ok: diagnosis.ok },
            nccl_versions: map.versions().map(str::to_owned).collect(),
            networks: map.networks().into_iter().collect(),
            plugins: map
                .plugins()
                .iter()
                .map(|plugin| PluginShape {
                    name: plugin.name.to_string(),
                    version: plugin.version.as_deref().map(str::to_owned),
                    provider: plugin.provider.as_deref().map(str::to_owned),
                    nics: plugin.nics,
                })
                .collect(),
            ranks: map.ranks().into_iter().map(RankShape::from).collect(),
            communicators: map.communicators().into_iter().map(CommShape::from).collect(),
            pairs: map.pairs().into_iter().map(PairShape::from).collect(),
            findings: diagnosis.findings,
            throughput: map
                .throughput()
                .map(|(source, series)| throughput(source, series, diagnosis.expected.as_ref()))
                .collect(),
            totals: TotalsShape {
                lines: totals.lines,
                nccl_lines: totals.nccl_lines,
                bytes: totals.bytes,
                unparsed_nccl_lines: totals.unparsed,
                torn_channel_lines: totals.torn,
                edges: totals.edges.into_iter().map(|(name, count)| (name.into(), count)).collect(),
            },
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

impl From<RankView> for RankShape {
    fn from(rank: RankView) -> Self {
        Self {
            rank: rank.rank,
            host: rank.host.into(),
            pid: rank.pid,
            cuda_device: rank.cuda_device,
            bus_id: rank.bus_id.map(|id| format!("{id:x}")),
            node: rank.node,
            announced: rank.announced.map(Into::into),
            phase: rank.phase,
            source: rank.source,
        }
    }
}

impl From<CommView> for CommShape {
    fn from(comm: CommView) -> Self {
        let CommView { id, parent, nranks, nnodes, world, seen_ranks, .. } = comm;
        Self { id, parent, nranks, nnodes, world, seen_ranks }
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
