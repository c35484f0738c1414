//! The input of the rules: a map, and what follows from it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use weftrun_core::request::Fabric;
use weftrun_nccl::{
    CommView, Difference, Kind, NamedNetwork, Network, RankView, Signature, Snapshot, TransportMap,
    TransportUse, Verdict,
};

/// The input of all conditions, computed once; expensive parts are computed on first use.
pub struct RuleInput<'a> {
    /// The map at the moment of the diagnosis.
    pub map: Snapshot<'a>,
    pub verdict: Verdict,
    /// Transports in use between live processes.
    pub transports: Vec<TransportUse>,
    ranks: OnceCell<Vec<RankView>>,
    comms: OnceCell<Vec<CommView>>,
    differences: OnceCell<Vec<Difference<'a>>>,
    /// Networks in use.
    pub networks: BTreeSet<NamedNetwork>,
    /// The fabric that was planned.
    pub planned: Option<Fabric>,
}

impl<'a> RuleInput<'a> {
    /// Computes the input from a map.
    pub fn new(planned: Option<Fabric>, map: &'a TransportMap) -> Self {
        let map = map.snapshot();
        Self {
            verdict: map.verdict(),
            transports: map.transports(),
            ranks: OnceCell::new(),
            comms: OnceCell::new(),
            differences: OnceCell::new(),
            networks: map.networks(),
            map,
            planned,
        }
    }

    /// Returns the live ranks.
    pub fn ranks(&self) -> &[RankView] {
        self.ranks.get_or_init(|| self.map.ranks())
    }

    /// Returns what differs between live ranks.
    pub fn differences(&self) -> &[Difference<'a>] {
        self.differences.get_or_init(|| self.map.differences())
    }

    /// Returns the communicators.
    pub fn comms(&self) -> &[CommView] {
        self.comms.get_or_init(|| self.map.communicators())
    }

    /// Returns whether a kind of transport connects any two ranks.
    pub fn connects_by(&self, kind: Kind) -> bool {
        self.transports.iter().any(|used| used.kind == kind)
    }

    /// Returns the number of connections over sockets, each counted at every end that printed it.
    pub fn socket_connections(&self) -> u64 {
        let sockets = self.transports.iter().filter(|used| used.network == Some(Network::Socket));
        sockets.map(|used| used.connections).sum()
    }

    /// Returns whether the job spans nodes, as far as the log shows it.
    pub fn several_nodes(&self) -> Option<bool> {
        if self.map.has_several_nodes() {
            return Some(true);
        }
        let told: Vec<u32> =
            self.comms().iter().filter_map(|comm| comm.nnodes.or((comm.nranks == 1).then_some(1))).collect();
        if !told.is_empty() && told.len() == self.comms().len() {
            return Some(false);
        }
        if self.hosts() > 1 {
            return Some(true);
        }
        // Every rank of the job was seen, on one host.
        let whole =
            self.comms().iter().any(|comm| comm.world && comm.seen_ranks.len() == comm.nranks as usize);
        (whole && self.hosts() == 1).then_some(false)
    }

    /// Returns the number of hosts that printed something; ones of a name with different `NCCL_HOSTID` are different.
    pub fn hosts(&self) -> usize {
        let named = self.ranks().iter().filter(|rank| rank.pid.is_some());
        named.map(|rank| (&*rank.host, rank.node)).collect::<BTreeSet<_>>().len()
    }

    /// Whether the socket connections are proved to join ranks of one node: both ends of each are known, on one node.
    pub fn sockets_are_inside_nodes(&self) -> bool {
        const MOST: u32 = 1024;
        let nodes: BTreeMap<u32, u32> =
            self.ranks().iter().filter_map(|rank| Some((rank.rank?, rank.node))).collect();
        let pairs = self.map.pairs_of_ranks(0..MOST);
        let mut sockets = pairs.iter().filter(|pair| pair.network == Some(Network::Socket)).peekable();
        let node = |rank: Option<u32>| rank.and_then(|rank| nodes.get(&rank));
        sockets.peek().is_some()
            && self.several_nodes() != Some(true)
            && sockets.all(|pair| {
                node(pair.global_from).is_some_and(|from| node(pair.global_to).is_some_and(|to| from == to))
            })
    }

    /// Returns whether a signature was found.
    pub fn has(&self, signature: Signature) -> bool {
        self.map.signatures().has(signature)
    }

    pub fn on_aws(&self) -> bool {
        self.has(Signature::OnAws)
            || self.has(Signature::EfaNamed)
            || self.planned == Some(Fabric::Efa)
            || self.provider_is("efa")
    }

    pub fn provider_is(&self, name: &str) -> bool {
        self.map
            .plugins()
            .iter()
            .flat_map(|plugin| &plugin.providers)
            .any(|provider| provider.starts_with(name))
    }

    /// Returns whether a network is in use, as NCCL's own or as a plugin's.
    pub fn uses(&self, network: Network, built_in: bool) -> bool {
        self.networks.iter().any(|named| named.network == network && named.is_built_in == built_in)
    }

    /// Returns whether a variable selects sockets on purpose.
    pub fn sockets_on_purpose(&self) -> bool {
        self.has(Signature::IbDisabled)
            || self.has(Signature::SocketsRequested)
            || self.planned == Some(Fabric::Tcp)
    }
}
