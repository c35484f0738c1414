//! When a rule applies: the clues, weighed against the rest of the log. Each function answers for one trap.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::nccl::{
    CommView, Devices, FabricSeen, GdrSeen, Kind, RankView, TransportMap, TransportUse, Verdict, World,
};
use crate::request::Fabric;

/// Everything the conditions look at, computed once, and what costs much only where it is asked for.
pub struct Seen<'a> {
    /// The map.
    pub map: &'a TransportMap,
    /// World and live processes.
    pub world: World,
    /// Verdict.
    pub verdict: Verdict,
    /// Transports in use between live processes.
    pub transports: Vec<TransportUse>,
    ranks: OnceCell<Vec<RankView>>,
    comms: OnceCell<Vec<CommView>>,
    /// Networks in use.
    pub networks: BTreeSet<String>,
    /// The fabric that was planned.
    pub planned: Option<Fabric>,
}

impl<'a> Seen<'a> {
    /// Looks at a map.
    pub fn new(planned: Option<Fabric>, map: &'a TransportMap) -> Self {
        let world = map.world();
        Self {
            map,
            verdict: map.verdict_in(&world),
            transports: map.transports(&world),
            ranks: OnceCell::new(),
            comms: OnceCell::new(),
            networks: map.networks(),
            world,
            planned,
        }
    }

    /// Live ranks.
    pub fn ranks(&self) -> &[RankView] {
        self.ranks.get_or_init(|| self.map.ranks(&self.world))
    }

    /// Communicators.
    pub fn comms(&self) -> &[CommView] {
        self.comms.get_or_init(|| self.map.communicators(&self.world))
    }

    /// Whether a kind of transport connects any two ranks.
    fn connects_by(&self, kind: Kind) -> bool {
        self.transports.iter().any(|used| used.kind == kind)
    }

    /// Connections over sockets, each counted at every end that printed it.
    pub fn socket_connections(&self) -> u64 {
        self.transports.iter().filter(|used| *used.name == *"NET/Socket").map(|used| used.connections).sum()
    }

    /// Whether the job spans nodes, as far as the log says.
    pub fn several_nodes(&self) -> Option<bool> {
        if self.map.has_several_nodes(&self.world) {
            return Some(true);
        }
        let told: Vec<u32> =
            self.comms().iter().filter_map(|comm| comm.nnodes.or((comm.nranks == 1).then_some(1))).collect();
        if !told.is_empty() && told.len() == self.comms().len() {
            return Some(false);
        }
        let hosts: BTreeSet<_> =
            self.ranks().iter().filter(|rank| rank.pid.is_some()).map(|rank| &*rank.host).collect();
        (hosts.len() > 1).then_some(true)
    }

    fn has(&self, clue: &str) -> bool {
        self.map.clues().has(clue)
    }

    fn on_aws(&self) -> bool {
        self.has("AWS") || self.has("EFA") || self.planned == Some(Fabric::Efa) || self.provider_is("efa")
    }

    fn provider_is(&self, name: &str) -> bool {
        self.map
            .plugins()
            .iter()
            .flat_map(|plugin| &plugin.providers)
            .any(|provider| provider.starts_with(name))
    }

    fn uses(&self, network: &str) -> bool {
        self.networks.iter().any(|name| name.contains(network))
    }

    /// Variables that choose sockets on purpose.
    fn sockets_on_purpose(&self) -> bool {
        self.has("R16") || self.has("R16n") || self.planned == Some(Fabric::Tcp)
    }
}

/// Whether a rule applies.
pub fn applies(rule: &str, seen: &Seen<'_>) -> bool {
    match rule {
        "R01" => sockets_between_nodes(seen),
        "R06" => seen.has("R06") || seen.has("R06b"),
        "R08" => seen.has("R08") || (seen.has("R08b") && !seen.has("NO-GDR-INSTANCE")),
        "R09" => efa_without_gdr(seen),
        // Memory may be short for many reasons; fork and EFA go together only where there is EFA.
        "R12" => seen.has("R12") || (seen.has("R12b") && (seen.on_aws() || seen.uses("Libfabric"))),
        "R15" => seen.has("R15") && ib_is_missed(seen),
        "R16" => forced_by_environment(seen),
        "R25" => seen.has("R25") || seen.has("IB-NOGDR-LINK"),
        "R27" => seen.has("R27") || mixed_list(seen),
        // Informational: worth a word only where NVLink SHARP could be.
        "R33" => seen.has("R33") && seen.ranks().iter().filter(|rank| rank.node == 0).count() >= 4,
        "R34" => {
            seen.has("R34")
                || (seen.has("R34b")
                    && !seen.connects_by(Kind::Collnet)
                    && seen.verdict.fabric != FabricSeen::Unknown)
        }
        "R37" => seen.has("R37") || (seen.has("R37-LO") && seen.several_nodes() != Some(false)),
        "R40" => seen.has("R40") || versions_differ(seen).is_some(),
        "R49" => {
            seen.has("MNNVL-LINK")
                && !seen.connects_by(Kind::Net)
                && seen.ranks().iter().any(|rank| rank.announced.is_some())
        }
        "R50" => one_nic_of_several(seen) || nics_idle(seen),
        other => seen.has(other),
    }
}

/// Sockets are a fallback only between nodes, and only where nobody asked for them.
fn sockets_between_nodes(seen: &Seen<'_>) -> bool {
    if seen.sockets_on_purpose() {
        return false;
    }
    if seen.has("SOCKET-LINK") {
        return seen.socket_connections() > 0;
    }
    let alone = seen.several_nodes() == Some(false);
    let connected_otherwise = seen.connects_by(Kind::Net);
    let chosen = seen.has("SOCKET-CHOSEN")
        || (seen.networks.len() == 1 && seen.networks.contains("Socket") && !seen.has("IN-SOCKET"));
    // In a log that is only P2P and SHM, the announced network may carry nothing.
    let local_only = !seen.transports.is_empty() && seen.several_nodes() != Some(true);
    chosen && !alone && !connected_otherwise && !local_only && seen.uses("Socket") && !seen.uses("FastSocket")
}

/// p3dn, g4dn, g5 never have GPUDirect; p4d, p5 and p6 do.
fn efa_without_gdr(seen: &Seen<'_>) -> bool {
    seen.has("OFI-NOGDR-LINK")
        && seen.has("GDR-INSTANCE")
        && !seen.has("NO-GDR-INSTANCE")
        && matches!(seen.verdict.fabric, FabricSeen::Efa | FabricSeen::LibfabricOther)
}

/// Missing InfiniBand is nothing on one node, or where another network is in use.
fn ib_is_missed(seen: &Seen<'_>) -> bool {
    let other = seen.networks.iter().any(|name| name != "Socket" && name != "IB");
    seen.several_nodes() != Some(false) && !other
}

/// The HPC-X plugin does not heed NCCL_IB_DISABLE: then it explains nothing.
fn forced_by_environment(seen: &Seen<'_>) -> bool {
    let heeded = !seen.uses("IBext") && !seen.uses("RDMA Plugin");
    (seen.has("R16") && heeded) || seen.has("R16n") || seen.has("R16p") || seen.has("R16s")
}

fn mixed_list(seen: &Seen<'_>) -> bool {
    seen.map.listed("IB").any(|list| {
        list.contains("/RoCE")
            && (list.contains("/IB ")
                || list.contains("/IB/")
                || list.contains("/IB,")
                || list.ends_with("/IB"))
    })
}

/// Two versions among the live ranks; exceptions print them without the CUDA part.
pub fn versions_differ(seen: &Seen<'_>) -> Option<(String, String)> {
    let bases: BTreeSet<&str> = seen
        .map
        .live_versions(&seen.world)
        .map(|version| version.split('+').next().unwrap_or(version))
        .collect();
    let mut bases = bases.into_iter();
    let pair = (bases.next()?, bases.next()?);
    Some((pair.0.to_owned(), pair.1.to_owned()))
}

/// Every AWS instance with GPUDirect over EFA has several NICs, but for a few sizes.
fn one_nic_of_several(seen: &Seen<'_>) -> bool {
    seen.has("R50")
        && (seen.has("GDR-INSTANCE") || matches!(seen.verdict.gdr, GdrSeen::All | GdrSeen::Some))
        && !seen.has("NO-GDR-INSTANCE")
}

/// Where every rank of a node is seen, ranks are as many as NICs, and yet all use one.
fn nics_idle(seen: &Seen<'_>) -> bool {
    let listed = seen
        .map
        .ports()
        .iter()
        .map(|port| port.device)
        .collect::<BTreeSet<_>>()
        .len()
        .max(seen.map.plugins().iter().filter_map(|plugin| plugin.nics).max().unwrap_or(0) as usize);
    let mut used = Devices::default();
    for transport in seen.transports.iter().filter(|used| used.kind == Kind::Net) {
        used.union(transport.devices);
    }
    let rdma = matches!(
        seen.verdict.fabric,
        FabricSeen::Efa | FabricSeen::Roce | FabricSeen::InfiniBand | FabricSeen::Verbs
    );
    if !rdma || listed < 2 || used.count() != 1 {
        return false;
    }
    let mut ranks_on: BTreeMap<u32, usize> = BTreeMap::new();
    for rank in seen.ranks() {
        *ranks_on.entry(rank.node).or_default() += 1;
    }
    let fewest = ranks_on.values().copied().min().unwrap_or(0);
    let whole = seen.comms().iter().any(|comm| comm.world && comm.seen_ranks.len() == comm.nranks as usize);
    whole && fewest >= listed
}
