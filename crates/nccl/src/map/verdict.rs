//! The fabric and the GPUDirect RDMA that the pairs prove.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ids::NameId;
use super::link::Devices;
use super::snapshot::Snapshot;
use super::usage::Usage;
use crate::channel::Kind;
use crate::network::{NamedNetwork, Network};
use crate::signature::Signature;

/// The fabric that the connections between ranks prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FabricSeen {
    /// No network: all ranks are on one node, or in one NVLink domain.
    IntraNode,
    /// More than one fabric.
    Mixed,
    /// Nothing proves anything.
    #[default]
    Unknown,
    /// One network.
    #[serde(untagged)]
    Network(Network),
}

impl FabricSeen {
    /// Returns the word in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::IntraNode => "intra-node",
            Self::Mixed => "mixed",
            Self::Unknown => "unknown",
            Self::Network(network) => network.as_str(),
        }
    }
}

impl From<Network> for FabricSeen {
    fn from(network: Network) -> Self {
        match network {
            Network::Gib => Self::Network(Network::Roce),
            Network::LibfabricMixed => Self::Mixed,
            Network::Unknown => Self::Unknown,
            network => Self::Network(network),
        }
    }
}

word_enum! {
    /// The share of the traffic between nodes that goes directly between NIC and GPU.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum GdrSeen {
        /// All network connections.
        All = "all",
        /// Some.
        Some = "some",
        /// None.
        None = "none",
        /// No network connection was seen.
        #[default]
        Unknown = "unknown",
    }
}

/// The map in two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The fabric.
    pub fabric: FabricSeen,
    /// GPUDirect RDMA.
    pub gdr: GdrSeen,
}

impl Snapshot<'_> {
    /// Returns the fabric and the GPUDirect RDMA that the connections prove.
    pub fn verdict(&self) -> Verdict {
        let usage = self.usage();
        Verdict { fabric: self.fabric_of(usage), gdr: self.gdr_of(usage) }
    }

    /// Returns the usage of the connections of live processes: already counted, unless there was a restart.
    pub(super) fn usage(&self) -> &Usage {
        if self.past.is_empty() {
            return self.usage_ever();
        }
        self.live_usage.get_or_init(|| {
            let signed = !self.seen.usage.is_empty();
            Usage::of(
                self.alive().map(|(_, process)| process).filter(|process| process.pid.is_some() == signed),
            )
        })
    }

    /// Returns the same over all attempts of a job.
    fn usage_ever(&self) -> &Usage {
        if self.seen.usage.is_empty() { &self.seen.unsigned } else { &self.seen.usage }
    }

    fn fabric_of(&self, usage: &Usage) -> FabricSeen {
        let is_network = |kind: Kind| matches!(kind, Kind::Net | Kind::Collnet);
        let known = self.networks_known();
        let mut fabrics: BTreeSet<FabricSeen> = usage
            .iter()
            .filter(|(_, kind, _)| is_network(*kind))
            .map(|(name, _, used)| match known.network(self.seen.name_of(name), used.devices) {
                // SHARP is a service of the fabric below it.
                Network::Sharp => known.verbs(used.devices).into(),
                network => network.into(),
            })
            .collect();
        // A network that reports an error at run time is in use.
        if fabrics.is_empty() {
            fabrics.extend(self.failed_networks(&known).map(FabricSeen::from));
        }
        if fabrics.len() > 1 {
            fabrics.remove(&FabricSeen::Unknown);
        }
        let local = usage.iter().any(|(_, kind, _)| !is_network(kind) && kind != Kind::Unknown);
        match (fabrics.len(), fabrics.pop_first()) {
            (1, Some(fabric)) => fabric,
            (0, _) if local && !self.has_several_nodes() => FabricSeen::IntraNode,
            (0, _) => FabricSeen::Unknown,
            _ => FabricSeen::Mixed,
        }
    }

    /// Returns whether some communicator of live processes spans nodes.
    pub fn has_several_nodes(&self) -> bool {
        if self.past.is_empty() {
            return self.seen.most_nodes.is_some_and(|nodes| nodes > 1);
        }
        let mut locals = self.alive().flat_map(|(_, process)| &process.locals);
        locals.any(|local| local.nnodes.is_some_and(|nodes| nodes > 1))
    }

    /// Returns the data that identify networks, read once for all questions about the map in its present
    /// state.
    pub(super) fn networks_known(&self) -> Networks {
        let kinds: BTreeSet<Network> = self
            .seen
            .plugins
            .iter()
            .flat_map(|plugin| &plugin.providers)
            .map(|provider| Network::of_provider(provider))
            .collect();
        let libfabric = match (kinds.len(), kinds.first()) {
            (1, Some(kind)) => *kind,
            (0, _) => self.libfabric_without_provider(),
            _ => Network::LibfabricMixed,
        };
        Networks { libfabric, ports: self.ports() }
    }

    /// Returns the provider of libfabric where it was not printed. With GPUDirect RDMA it is not TCP: on
    /// AWS it is EFA, on hosts whose interfaces are named `hsn` it is Slingshot.
    fn libfabric_without_provider(&self) -> Network {
        let hsn = |text: &str| text.split([':', ',', ' ', '=', '^', ']']).any(|word| word.starts_with("hsn"));
        if self.env("SOCKET_IFNAME").any(hsn) || self.listed("Socket").any(hsn) {
            return Network::Slingshot;
        }
        let with_gdr = self
            .usage()
            .iter()
            .any(|(name, _, used)| used.with_gdr && Network::is_aws_plugin(self.seen.name_of(name)));
        // The address of an endpoint names its provider too.
        let efa = with_gdr || self.signatures().has(Signature::EfaAddress);
        if efa { Network::Efa } else { Network::LibfabricOther }
    }

    /// Returns the networks that reported an error of a connection at run time.
    fn failed_networks(&self, known: &Networks) -> impl Iterator<Item = Network> {
        const VERBS: &[Signature] = &[
            Signature::IbRetryExceeded,
            Signature::IbFlushed,
            Signature::IbLocalProtection,
            Signature::IbRemoteRefused,
            Signature::QpTransition,
            Signature::QpTimeout,
        ];
        const LIBFABRIC: &[Signature] = &[Signature::EfaUnreachablePeer, Signature::ErrorInOfi];
        let any = |ids: &[Signature]| ids.iter().any(|id| self.seen.signatures.has(*id));
        let verbs = any(VERBS).then(|| known.verbs(Devices::default()));
        let libfabric = any(LIBFABRIC).then_some(known.libfabric);
        verbs.into_iter().chain(libfabric)
    }

    /// Returns every port in every `NET/IB : Using` list.
    pub fn ports(&self) -> Vec<Port> {
        self.listed("IB").flat_map(ports).collect()
    }

    /// Returns whether one list of devices has both InfiniBand and RoCE ports.
    pub fn lists_mixed_ports(&self) -> bool {
        self.listed("IB").any(|list| {
            let ports = ports(list);
            let roce = ports.iter().filter(|port| port.network == Network::Roce).count();
            0 < roce && roce < ports.len()
        })
    }

    /// Returns the lists of devices, by network.
    fn listed(&self, network: &str) -> impl Iterator<Item = &str> {
        self.seen.listed.get(network).into_iter().flatten().map(|(list, _)| &**list)
    }

    fn gdr_of(&self, usage: &Usage) -> GdrSeen {
        let networks = || usage.iter().filter(|(_, kind, _)| matches!(kind, Kind::Net | Kind::Collnet));
        let with = networks().any(|(_, _, used)| used.with_gdr);
        let without = networks().any(|(_, _, used)| used.without_gdr);
        match (with, without) {
            // The flag of the rings is an AND over all ranks: some rank whose lines are missing here has
            // none.
            (true, false) if self.seen.ring_gdr.contains(&false) => GdrSeen::Some,
            (true, false) => GdrSeen::All,
            (true, true) => GdrSeen::Some,
            (false, true) => GdrSeen::None,
            (false, false) if networks().next().is_some() => GdrSeen::Unknown,
            (false, false) => self.gdr_without_connections(),
        }
    }

    /// Returns the answer before any network connection is seen: a refusal of GPUDirect, or a network
    /// without it, is enough.
    fn gdr_without_connections(&self) -> GdrSeen {
        let refused = [Signature::OfiGdrDisabled, Signature::IbGdrDisabled, Signature::HmemWithoutGdr]
            .iter()
            .any(|id| self.seen.signatures.has(*id));
        let networks = self.networks();
        let sockets = !networks.is_empty() && networks.iter().all(|named| named.network == Network::Socket);
        if refused || sockets { GdrSeen::None } else { GdrSeen::Unknown }
    }

    /// Returns the networks in use as far as the log shows them: those of connections; else those
    /// announced; else those whose own files warned, or whose device list came last before the choice.
    pub fn networks(&self) -> BTreeSet<NamedNetwork> {
        let connected: BTreeSet<NamedNetwork> = self
            .usage_ever()
            .iter()
            .filter(|(_, kind, _)| *kind == Kind::Net)
            .filter_map(|(name, kind, _)| kind.network_in(self.seen.name_of(name)))
            .map(NamedNetwork::new)
            .collect();
        if !connected.is_empty() {
            return connected;
        }
        let names: BTreeSet<NameId> =
            self.seen.processes.iter().filter_map(|process| process.announced.last().copied()).collect();
        let announced: BTreeSet<NamedNetwork> =
            names.into_iter().map(|name| NamedNetwork::new(self.seen.name_of(name))).collect();
        if !announced.is_empty() {
            return announced;
        }
        self.implied_networks()
    }

    fn implied_networks(&self) -> BTreeSet<NamedNetwork> {
        let mut implied: BTreeSet<&str> = self.seen.initialised.as_deref().into_iter().collect();
        if self.seen.listed.contains_key("FastSocket") {
            implied.insert("FastSocket");
        }
        for (signature, name) in [
            (Signature::ErrorInIb, "IB"),
            (Signature::ErrorInIbExternal, "IBext"),
            (Signature::ErrorInSocket, "Socket"),
        ] {
            if self.seen.signatures.has(signature) {
                implied.insert(name);
            }
        }
        // Up to 2.5 there is only the list. The bootstrap prints NET/Socket too: it counts only where IB
        // was not found.
        if implied.is_empty() && !self.ports().is_empty() {
            implied.insert("IB");
        }
        let no_ib = self.seen.signatures.has(Signature::IbNoDevice);
        if implied.is_empty() && no_ib && self.seen.listed.contains_key("Socket") {
            implied.insert("Socket");
        }
        implied.into_iter().map(NamedNetwork::new).collect()
    }
}

/// The data that identify networks: the providers of libfabric and the ports of RDMA devices.
pub(super) struct Networks {
    libfabric: Network,
    ports: Vec<Port>,
}

impl Networks {
    /// Returns the network of a transport by its name, such as `NET/IB`, and by the devices it uses.
    pub(super) fn network(&self, transport: &str, devices: Devices) -> Network {
        match Network::of_name(transport) {
            Network::LibfabricOther => self.libfabric,
            Network::Verbs => self.verbs(devices),
            network => network,
        }
    }

    /// Returns the network of `NET/IB` by its list of devices; where ports of several kinds are listed, the
    /// used ones count.
    fn verbs(&self, devices: Devices) -> Network {
        let all: BTreeSet<Network> = self.ports.iter().map(|port| port.network).collect();
        if let (1, Some(network)) = (all.len(), all.first()) {
            return *network;
        }
        let used = self.ports.iter().filter(|port| devices.contains(port.device));
        let used: BTreeSet<Network> = used.map(|port| port.network).collect();
        match (used.len(), used.first()) {
            (1, Some(network)) => *network,
            _ => Network::Verbs,
        }
    }
}

/// A port of an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// The number of its device in NCCL's list.
    pub device: u32,
    /// RoCE, InfiniBand or Omni-Path.
    pub network: Network,
}

/// Returns the names of the devices of a list: `mlx5_0`, `mlx5_1`.
pub(super) fn device_names(list: &str) -> impl Iterator<Item = &str> {
    let devices = list.split(';').next().unwrap_or_default();
    devices.split(['[', ']', ' ', ',', '{', '}', '=']).filter_map(|word| {
        let (name, port) = word.split_once(':')?;
        (!name.is_empty() && port.contains('/')).then_some(name)
    })
}

/// Returns the interfaces of a list and their addresses: `[0]eth0:10.0.0.1<0>`, `OOB bond0:10.1.1.1<0>`.
pub(super) fn interfaces(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.split([' ', ']', ';', ',']).filter_map(|word| {
        let (name, rest) = word.split_once(':')?;
        let (address, _) = rest.split_once('<')?;
        (!name.is_empty() && !address.is_empty()).then_some((name, address))
    })
}

/// Reads `[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE/SHARP` and `[0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE}`.
fn ports(list: &str) -> Vec<Port> {
    let mut ports = Vec::new();
    let mut device = 0;
    let mut merged = false;
    let mut omni_path = false;
    let mut rest = list;
    while let Some(at) = rest.find(['[', ']', '/', '{', '}']) {
        let (mark, behind) = rest[at..].split_at(1);
        rest = behind;
        match mark {
            "{" => merged = true,
            "}" => merged = false,
            "]" => omni_path = rest.trim_start().starts_with("hfi"),
            "[" if !merged => {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                if let Ok(number) = rest[..digits].parse() {
                    device = number;
                }
            }
            "/" if rest.starts_with("RoCE") => ports.push(Port { device, network: Network::Roce }),
            "/" if rest.starts_with("IB") => {
                // Omni-Path adapters present themselves to verbs as InfiniBand.
                let network = if omni_path { Network::OmniPath } else { Network::InfiniBand };
                ports.push(Port { device, network });
            }
            _ => {}
        }
    }
    ports
}
