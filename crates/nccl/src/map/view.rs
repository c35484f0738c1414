//! The map as tables: pairs, ranks, communicators.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::communicator;
use serde::{Serialize, Serializer};

use super::ids::{CommId, GlobalRank, HostId, LocalId, NameId, ProcessId};
use super::link::{Channels, Devices};
use super::process::{Phase, Process};
use super::snapshot::Snapshot;
use crate::channel::{Kind, Side};
use crate::network::Network;

/// A plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PluginShape"))]
#[non_exhaustive]
pub struct PluginSeen {
    /// Name.
    pub name: Box<str>,
    /// Version.
    pub version: Option<Box<str>>,
    /// libfabric's provider.
    pub provider: Option<Box<str>>,
    /// All providers selected by any rank.
    #[serde(skip)]
    pub providers: BTreeSet<Box<str>>,
    /// NICs found.
    pub nics: Option<u32>,
}

impl PluginSeen {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A process, or one rank of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RankShape"))]
#[non_exhaustive]
pub struct RankView {
    /// Global rank; null until the logs prove it.
    pub rank: Option<u32>,
    /// Host.
    pub host: Box<str>,
    // None where the prefix was stripped.
    /// Process id.
    pub pid: Option<u64>,
    /// CUDA device.
    pub cuda_device: Option<u32>,
    /// PCI bus id, hexadecimal as printed.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub bus_id: Option<u64>,
    // By the nodes' lowest ranks; hosts with different `NCCL_HOSTID` are different nodes.
    /// Node, numbered from 0.
    pub node: u32,
    /// The network it chose. Announced is not connected.
    pub announced: Option<Box<str>>,
    /// Its progress.
    pub phase: Phase,
    /// The furthest phase it reached, not counting a failure.
    #[serde(skip)]
    pub reached: Phase,
    /// The log it was seen in.
    pub source: String,
}

#[allow(clippy::ref_option, reason = "serde calls it by reference")]
fn hexadecimal<S: Serializer>(id: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    id.map(|id| format!("{id:x}")).serialize(serializer)
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CommShape"))]
#[non_exhaustive]
pub struct CommView {
    // `unnamed-…` where NCCL printed none.
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
    /// Their ranks in the job, where proved.
    #[serde(skip)]
    pub global_ranks: Vec<u32>,
    /// Ranks that two processes claim: the log is inconsistent.
    #[serde(skip)]
    pub contested: u32,
    /// Whether a member has made it, for which all its ranks were there, also those that print nothing.
    #[serde(skip)]
    pub complete: bool,
    /// Hosts of the ranks whose logs were seen.
    #[serde(skip)]
    pub(super) hosts: BTreeSet<HostId>,
}

/// A pair of ranks, in one direction, over one transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PairShape"))]
#[non_exhaustive]
pub struct PairView {
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
    // `P2P/CUMEM`, `NET/Socket`, …
    /// Transport as NCCL names it.
    pub transport: Box<str>,
    /// Kind.
    pub kind: Kind,
    /// Network as NCCL names it.
    pub net: Option<Box<str>>,
    /// The network that the log proves it to be.
    pub network: Option<Network>,
    /// Network devices.
    pub devices: DevicesOfEnds,
    /// Distinct (channel, connection index).
    #[serde(serialize_with = "count")]
    #[cfg_attr(feature = "schema", schemars(with = "u32"))]
    pub channels: Channels,
    /// GPUDirect RDMA on all of them; null where there is no network, or the lines do not show it.
    pub gdr: Option<bool>,
    /// Through another rank's NIC.
    pub pxn: bool,
    /// Buffers shared.
    pub shared: bool,
    /// Which ends printed it.
    #[serde(serialize_with = "sides")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<Side>"))]
    pub seen: (bool, bool),
    /// Hosts of the sender and the receiver, where the log has lines of theirs.
    #[serde(skip)]
    pub(super) hosts: (Option<HostId>, Option<HostId>),
}

/// Network devices of both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "DevicesShape"))]
pub struct DevicesOfEnds {
    /// The sender's.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u32>"))]
    pub send: Devices,
    /// The receiver's.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<u32>"))]
    pub receive: Devices,
}

fn count<S: Serializer>(channels: &Channels, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(channels.count())
}

fn sides<S: Serializer>((send, receive): &(bool, bool), serializer: S) -> Result<S::Ok, S::Error> {
    let sides = [(Side::Send, send), (Side::Receive, receive)];
    serializer.collect_seq(sides.iter().filter(|(_, seen)| **seen).map(|(side, _)| side))
}

/// Counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "TotalsShape"))]
#[non_exhaustive]
pub struct Totals {
    /// Lines.
    pub lines: u64,
    /// NCCL's lines.
    pub nccl_lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// NCCL's lines without a message.
    #[serde(rename = "unparsed_nccl_lines")]
    pub unparsed: u64,
    /// Connection lines cut in the middle.
    #[serde(rename = "torn_channel_lines")]
    pub torn: u64,
    /// Connections dropped at the limit.
    #[serde(skip)]
    pub dropped: u64,
    /// Distinct (channel, connection index, ranks) by transport, over all communicators and attempts together.
    pub edges: BTreeMap<Box<str>, u64>,
}

/// The order of pairs in a report.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PairKey {
    comm: Option<CommId>,
    from: u32,
    to: u32,
    /// Without a communicator, the devices distinguish pairs.
    devices: (u64, u64),
    transport: NameId,
}

/// Sorts ranks, and numbers the nodes they are on by their lowest rank; returns them and the node of each host.
pub(super) fn with_nodes(mut ranks: Vec<(RankView, HostId)>) -> (Vec<RankView>, HashMap<HostId, u32>) {
    ranks.sort_by(|(a, _), (b, _)| {
        (a.rank.is_none(), a.rank, &a.host, a.pid).cmp(&(b.rank.is_none(), b.rank, &b.host, b.pid))
    });
    let mut nodes: HashMap<HostId, u32> = HashMap::new();
    let numbered = ranks.into_iter().map(|(rank, host)| {
        let next = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        RankView { node: *nodes.entry(host).or_insert(next), ..rank }
    });
    (numbered.collect(), nodes)
}

impl Snapshot<'_> {
    /// Returns every pair of live processes.
    pub fn pairs(&self) -> Vec<PairView> {
        let mut pairs: BTreeMap<PairKey, PairView> = BTreeMap::new();
        for (at, process) in self.alive() {
            self.pairs_of(at, process, &mut pairs);
        }
        self.with_networks(pairs)
    }

    /// Names the network of each pair, once its devices are known.
    pub(super) fn with_networks(&self, pairs: BTreeMap<PairKey, PairView>) -> Vec<PairView> {
        let known = self.networks_known();
        let named = pairs.into_values().map(|mut pair| {
            if matches!(pair.kind, Kind::Net | Kind::Collnet) {
                let mut devices = pair.devices.send;
                devices.union(pair.devices.receive);
                pair.network = Some(known.network(&pair.transport, devices));
                pair.net = pair.kind.network_in(&pair.transport).map(Into::into);
            }
            pair
        });
        named.collect()
    }

    pub(super) fn pairs_of(&self, at: ProcessId, process: &Process, pairs: &mut BTreeMap<PairKey, PairView>) {
        let places = self.burst_places(process);
        for link in process.links.iter().filter(|link| link.live) {
            let burst = places.get(link.key.burst).copied().flatten();
            let place = self.place(at, link, burst);
            let global_from = place.global_from.map(u32::from);
            let global_to = place.global_to.map(u32::from);
            let devices =
                if place.comm.is_some() { (0, 0) } else { (link.key.from_device, link.key.to_device) };
            let key = PairKey {
                comm: place.comm,
                from: link.key.from,
                to: link.key.to,
                devices,
                transport: link.key.transport,
            };
            let pair = pairs.entry(key).or_insert_with(|| PairView {
                comm: place.comm.map(|comm| self.comm_id(comm)),
                from: link.key.from,
                to: link.key.to,
                global_from,
                global_to,
                transport: self.seen.name_of(link.key.transport).into(),
                kind: link.kind,
                net: None,
                network: None,
                devices: DevicesOfEnds::default(),
                channels: Channels::default(),
                gdr: None,
                pxn: false,
                shared: false,
                seen: (false, false),
                hosts: (
                    self.host_of_member(place.comm, link.key.from),
                    self.host_of_member(place.comm, link.key.to),
                ),
            });
            pair.global_from = pair.global_from.or(global_from);
            pair.global_to = pair.global_to.or(global_to);
            pair.channels.union(&link.channels);
            pair.pxn |= link.pxn;
            pair.shared |= link.shared;
            if link.with_gdr || link.without_gdr {
                let all = link.with_gdr && !link.without_gdr;
                pair.gdr = Some(pair.gdr.unwrap_or(true) && all);
            }
            let (seen, devices) = match link.key.side {
                Some(Side::Receive) => (&mut pair.seen.1, &mut pair.devices.receive),
                _ => (&mut pair.seen.0, &mut pair.devices.send),
            };
            *seen = true;
            devices.union(link.devices);
        }
    }

    fn host_of_member(&self, comm: Option<CommId>, rank: u32) -> Option<HostId> {
        let (process, _) = self.seen.member(comm?, rank)?;
        Some(self.seen.processes[process].host_number)
    }

    /// Returns the nodes of a pair, which are known also where its ranks in the job are not.
    pub fn nodes_of_pair(&self, pair: &PairView) -> Option<(u32, u32)> {
        let node = |host: Option<HostId>| self.node_numbers().get(&host?).copied();
        node(pair.hosts.0).zip(node(pair.hosts.1))
    }

    /// Returns the nodes of the ranks of a communicator whose logs were seen.
    pub fn nodes_of(&self, comm: &CommView) -> BTreeSet<u32> {
        comm.hosts.iter().filter_map(|host| self.node_numbers().get(host).copied()).collect()
    }

    /// Returns the node that each host has in [`Self::ranks`].
    fn node_numbers(&self) -> &HashMap<HostId, u32> {
        self.node_numbers.get_or_init(|| with_nodes(self.unnumbered_ranks()).1)
    }

    pub(super) fn comm_id(&self, comm: CommId) -> String {
        self.seen
            .comms
            .get(comm)
            .map_or_else(String::new, |known| communicator::Id(&self.seen.comms, known.identity).to_string())
    }

    /// Returns every live process that NCCL's prefix named, and every rank of those that hold several.
    pub fn ranks(&self) -> Vec<RankView> {
        with_nodes(self.unnumbered_ranks()).0
    }

    fn unnumbered_ranks(&self) -> Vec<(RankView, HostId)> {
        let mut ranks = Vec::new();
        for (at, process) in self.shown() {
            let before = ranks.len();
            ranks.extend(self.held(at).map(|(local, rank)| self.rank(process, Some(rank), Some(local))));
            if ranks.len() == before {
                ranks.push(self.rank(process, None, None));
            }
            if let Some(latest) = self.latest(at) {
                for (view, _) in ranks.iter_mut().skip(before) {
                    (view.pid, view.phase, view.reached) = (latest.pid, latest.phase, latest.reached());
                }
            }
        }
        ranks
    }

    /// Returns a rank, and the number of its host; its node is unknown until all ranks are read.
    pub(super) fn rank(
        &self,
        process: &Process,
        rank: Option<GlobalRank>,
        local: Option<LocalId>,
    ) -> (RankView, HostId) {
        let local = local.and_then(|at| process.locals.get(at)).or(process.locals.first());
        let device = process.device.and_then(|device| u32::try_from(device).ok());
        let view = RankView {
            rank: rank.map(u32::from),
            host: process.host.clone(),
            pid: process.pid,
            cuda_device: local.and_then(|local| local.cuda_device).or(device),
            bus_id: local.and_then(|local| local.bus_id),
            node: 0,
            announced: process.announced.last().map(|name| self.seen.name_of(*name).into()),
            phase: self.phase(process, rank),
            reached: self.with_steps(process, rank, process.reached()),
            source: self.seen.sources[process.source].id.to_string(),
        };
        (view, process.host_number)
    }

    /// Returns the phase of a rank, raised to stepping once it prints steps.
    pub(super) fn phase(&self, process: &Process, rank: Option<GlobalRank>) -> Phase {
        self.with_steps(process, rank, process.phase)
    }

    fn with_steps(&self, process: &Process, rank: Option<GlobalRank>, phase: Phase) -> Phase {
        let steps = || {
            let stepping = self.stepping();
            rank.is_some_and(|rank| stepping.ranks.contains(&u32::from(rank)))
                || process.locals.iter().any(|local| stepping.comms.contains(&local.comm))
        };
        if (Phase::Ready..Phase::Stepping).contains(&phase) && steps() { Phase::Stepping } else { phase }
    }

    /// Returns the global rank of a member of the communicator with this `commId`, where proved.
    pub fn rank_of_member(&self, comm_id: u64, rank: u32) -> Option<u32> {
        let comm = self.with_comm_id(comm_id)?;
        self.global(comm, rank).map(u32::from)
    }

    /// Returns whether the log names a communicator with this `commId`.
    pub fn has_communicator(&self, comm_id: u64) -> bool {
        self.with_comm_id(comm_id).is_some()
    }

    fn with_comm_id(&self, comm_id: u64) -> Option<CommId> {
        let mut comms = self.seen.comms.iter_enumerated();
        comms.find(|(_, comm)| comm.identity == communicator::Identity::Id(comm_id)).map(|(at, _)| at)
    }

    /// Returns every communicator of live processes, other than those of later attempts that did not come up.
    pub fn communicators(&self) -> Vec<CommView> {
        let mut views = Vec::new();
        for (at, comm) in self.seen.comms.iter_enumerated() {
            let shown =
                |process: &ProcessId| self.is_alive(*process) && !self.retries.hidden.contains(process);
            let members = || comm.members.iter().filter(|(_, (process, _))| shown(process));
            let mut seen: Vec<u32> = members().map(|(rank, _)| *rank).collect();
            if seen.is_empty() {
                continue;
            }
            seen.sort_unstable();
            let global = seen.iter().filter_map(|rank| self.global(at, *rank));
            let mut global: Vec<u32> = global.map(u32::from).collect();
            global.sort_unstable();
            views.push(CommView {
                id: self.comm_id(at),
                parent: match comm.identity {
                    communicator::Identity::Split { parent, .. } => Some(self.comm_id(parent)),
                    _ => None,
                },
                nranks: comm.nranks,
                nnodes: comm.nnodes,
                world: self.world == Some(at),
                seen_ranks: seen,
                global_ranks: global,
                contested: comm.contested,
                complete: members()
                    .any(|(_, (process, local))| self.seen.processes[*process].locals[*local].complete),
                hosts: members().map(|(_, (process, _))| self.seen.processes[*process].host_number).collect(),
            });
        }
        views
    }

    /// Returns the counts over everything read.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            nccl_lines: self.seen.nccl_lines,
            unparsed: self.seen.unparsed,
            torn: self.seen.torn,
            dropped: self.seen.links_dropped,
            ..Totals::default()
        };
        for source in &self.seen.sources {
            totals.lines += source.lines;
            totals.bytes += source.bytes;
        }
        let mut edges: BTreeMap<(NameId, u32, u32, u64, u64), Channels> = BTreeMap::new();
        for link in self.seen.processes.iter().flat_map(|process| &process.links).filter(|link| link.live) {
            let key =
                (link.key.transport, link.key.from, link.key.to, link.key.from_device, link.key.to_device);
            edges.entry(key).or_default().union(&link.channels);
        }
        for ((transport, ..), channels) in edges {
            *totals.edges.entry(self.seen.name_of(transport).into()).or_default() +=
                u64::from(channels.count());
        }
        totals
    }
}
