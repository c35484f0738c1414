//! How ranks and nodes are connected: one map for all communicators, one for each.

use std::collections::{BTreeMap, BTreeSet};

use weftrun::core::nccl::Network;
use weftrun::diagnose::Judge;

use super::transport_view::{Node, Rank, Step};

/// How two ranks, or two nodes, are connected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    pub path: Path,
    /// The transports as NCCL wrote them, sorted.
    pub transports: Vec<String>,
    /// Channels, all pairs together.
    pub channels: u32,
    pub pairs: u32,
    /// Whether GPUDirect RDMA is used: by all, some (`None` of `Some`), or unknown.
    pub gdr: Option<bool>,
    /// Network devices of the sender and of the receiver.
    pub devices: (BTreeSet<u32>, BTreeSet<u32>),
    /// Sender and receiver as NCCL's lines number them: ranks of the communicator.
    pub printed: Option<(u32, u32)>,
}

/// Whether links use GPUDirect RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gdr {
    Yes,
    No,
    Some,
    Unknown,
}

impl Gdr {
    fn of(link: Option<bool>) -> Self {
        match link {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unknown,
        }
    }

    fn join(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Yes | Self::Some, _) | (_, Self::Yes | Self::Some) => Self::Some,
            _ => Self::Unknown,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Some => "some",
            Self::Unknown => "?",
        }
    }
}

/// Kinds of connection, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// NVLink or PCIe, inside a node.
    P2p,
    /// Shared memory inside a node.
    Shm,
    /// NVLink SHARP or CollNet.
    Offload,
    /// A network. A transport unknown to this program is an unknown one.
    Network(Network),
}

impl Default for Path {
    fn default() -> Self {
        Self::Network(Network::Unknown)
    }
}

impl Path {
    /// Returns all that are known, in order.
    pub fn known() -> impl Iterator<Item = Self> {
        // SHARP is shown as an offload.
        let shown = |network: &Network| !matches!(network, Network::Sharp | Network::Unknown);
        let networks = Network::ALL.into_iter().filter(shown).map(Self::Network);
        [Self::P2p, Self::Shm, Self::Offload].into_iter().chain(networks)
    }

    /// Returns the letter in the matrix.
    pub fn sign(self) -> char {
        match self {
            Self::P2p => 'N',
            Self::Shm => 'S',
            Self::Offload => 'C',
            Self::Network(network) => network.sign(),
        }
    }

    /// Returns the name in the legend.
    pub fn name(self) -> &'static str {
        match self {
            Self::P2p => "NVLink/P2P",
            Self::Shm => "SHM",
            Self::Offload => "CollNet/NVLS",
            Self::Network(network) => network.name(),
        }
    }

    /// Returns the network between nodes; none for a transport that is none, or is unknown.
    pub fn network(self) -> Option<Network> {
        match self {
            Self::Network(network) if network != Network::Unknown => Some(network),
            _ => None,
        }
    }
}

impl Link {
    /// Merges another link between the same two ends; the worst path is shown.
    pub fn join(&mut self, other: &Self) {
        self.path = self.path.max(other.path);
        self.channels += other.channels;
        self.pairs += other.pairs;
        self.gdr = if self.gdr == other.gdr { self.gdr } else { None };
        for transport in &other.transports {
            if !self.transports.contains(transport) {
                self.transports.push(transport.clone());
                self.transports.sort();
            }
        }
        self.devices.0.extend(&other.devices.0);
        self.devices.1.extend(&other.devices.1);
    }

    /// Returns whether both ends are on one node: NVLink between nodes has a transport of its own.
    pub fn is_inside_node(&self) -> bool {
        matches!(self.path, Path::P2p | Path::Shm) && !self.transports.iter().any(|name| name == "P2P/MNNVL")
    }

    /// Returns whether the link is a problem.
    pub fn is_wrong(&self, judge: Judge, inside_node: bool) -> bool {
        self.path.network().is_some_and(|network| judge.is_wrong(network, inside_node))
    }
}

/// What is known of the direction from one rank, or node, to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'l> {
    Linked(&'l Link),
    /// All connections of both are known, and this one is not among them.
    NoChannel,
    /// It is not known whether they are connected.
    Unknown,
}

/// Directed pairs of ranks or nodes.
type Ends = BTreeSet<(u32, u32)>;

/// The links of one communicator, or of all together. Pairs are directed: sender, receiver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkMap {
    /// Pairs of global ranks.
    pub rank_links: BTreeMap<(u32, u32), Link>,
    /// Pairs of nodes.
    pub node_links: BTreeMap<(u32, u32), Link>,
    /// Number of pairs whose ranks in the job are not proved. No cell shows them.
    pub unplaced: u32,
    /// Pairs of ranks, and of nodes, that may be among its links: it is not proved of which communicator they are.
    possible: (Ends, Ends),
    /// Its ranks, as indices of all ranks.
    ranks: Vec<usize>,
    /// Its nodes, as indices of all nodes.
    nodes: Vec<usize>,
    /// Links between nodes whose ranks in the job are not proved, and the nodes of its ranks, as NCCL's map numbers them.
    unplaced_links: BTreeMap<(u32, u32), Link>,
    on_nodes: BTreeSet<u32>,
    /// Whether the links of a rank to other nodes use GPUDirect RDMA.
    rank_gdr: BTreeMap<u32, Gdr>,
    /// The same for each node.
    node_gdr: BTreeMap<u32, Gdr>,
    /// Ranks all of whose connections are known.
    settled: BTreeSet<u32>,
    /// Nodes of which all ranks are.
    settled_nodes: BTreeSet<u32>,
}

impl LinkMap {
    /// Adds a link between two ranks.
    pub fn add(&mut self, from: u32, to: u32, link: &Link) {
        add(&mut self.rank_links, (from, to), link);
    }

    /// Adds a link between two ranks that are not proved, on two nodes if these are known.
    pub fn add_unplaced(&mut self, nodes: Option<(u32, u32)>, link: &Link) {
        self.unplaced += 1;
        if let Some(nodes) = nodes {
            add(&mut self.unplaced_links, nodes, link);
        }
    }

    /// Sets the nodes of its ranks.
    pub fn set_nodes(&mut self, nodes: BTreeSet<u32>) {
        self.on_nodes = nodes;
    }

    /// Adds a pair of ranks whose link may be one of this map.
    pub fn add_possible(&mut self, from: u32, to: u32) {
        self.possible.0.insert((from, to));
    }

    /// Returns the rows and columns of its matrix, as indices of ranks or of nodes.
    pub fn rows(&self, by_rank: bool) -> &[usize] {
        if by_rank { &self.ranks } else { &self.nodes }
    }

    /// Returns the links between ranks or between nodes.
    pub fn links(&self, by_rank: bool) -> &BTreeMap<(u32, u32), Link> {
        if by_rank { &self.rank_links } else { &self.node_links }
    }

    /// Returns what is known of one direction between two ranks or nodes. The number of a rank is none while it is
    /// not proved.
    pub fn cell(&self, by_rank: bool, from: Option<u32>, to: Option<u32>) -> Cell<'_> {
        let (Some(from), Some(to)) = (from, to) else { return Cell::Unknown };
        if let Some(link) = self.links(by_rank).get(&(from, to)) {
            return Cell::Linked(link);
        }
        let possible = if by_rank { &self.possible.0 } else { &self.possible.1 };
        let settled = self.is_settled(by_rank, from) && self.is_settled(by_rank, to);
        if settled && !possible.contains(&(from, to)) { Cell::NoChannel } else { Cell::Unknown }
    }

    /// Returns whether all connections of a rank or a node are known.
    pub fn is_settled(&self, by_rank: bool, number: u32) -> bool {
        self.unplaced == 0 && (if by_rank { &self.settled } else { &self.settled_nodes }).contains(&number)
    }

    /// Returns whether the links of a rank or a node to other nodes use GPUDirect RDMA; none without such links.
    pub fn gdr(&self, by_rank: bool, number: u32) -> Option<Gdr> {
        (if by_rank { &self.rank_gdr } else { &self.node_gdr }).get(&number).copied()
    }

    /// Completes the map from the links of its ranks. `members` are the ranks of its communicator; none for all.
    /// `numbers` are those of the nodes in NCCL's map.
    pub(super) fn place(
        &mut self,
        ranks: &[Rank],
        nodes: &[Node],
        members: Option<&[u32]>,
        numbers: &BTreeMap<u32, u32>,
    ) {
        let node_of: BTreeMap<u32, u32> =
            ranks.iter().filter_map(|rank| Some((rank.rank?, rank.node?))).collect();
        self.node_links = fold(&self.rank_links, &node_of);
        for ((from, to), link) in &self.unplaced_links {
            if let (Some(from), Some(to)) = (numbers.get(from), numbers.get(to)) {
                add(&mut self.node_links, (*from, *to), link);
            }
        }
        let own: BTreeSet<u32> = self.on_nodes.iter().filter_map(|node| numbers.get(node)).copied().collect();
        let possible = self.possible.0.iter();
        self.possible.1 =
            possible.filter_map(|(from, to)| Some((*node_of.get(from)?, *node_of.get(to)?))).collect();
        let apart = |from: u32, to: u32| node_of.get(&from) != node_of.get(&to);
        self.rank_gdr = gdr(&self.rank_links, apart);
        self.node_gdr = gdr(&self.node_links, |from, to| from != to);
        let ends: BTreeSet<u32> = self.rank_links.keys().flat_map(|(from, to)| [*from, *to]).collect();
        let is_member = |rank: &Rank| match (members, rank.rank) {
            (None, _) => true,
            (Some(members), Some(rank)) => members.binary_search(&rank).is_ok() || ends.contains(&rank),
            (Some(_), None) => false,
        };
        self.ranks = (0..ranks.len()).filter(|at| is_member(&ranks[*at])).collect();
        // Until a rank is connected, a channel that is not there yet may still come.
        let settled = |rank: &Rank| {
            rank.is_connected() && !rank.is_silent() && rank.rank.is_some_and(|r| ends.contains(&r))
        };
        self.settled = ranks.iter().filter(|rank| settled(rank)).filter_map(|rank| rank.rank).collect();
        let silent = ranks.iter().any(|rank| rank.step() <= Step::Started);
        let here = |node: &Node| node.ranks.iter().any(|at| self.ranks.binary_search(at).is_ok());
        let named = |at: &usize| u32::try_from(*at).is_ok_and(|at| own.contains(&at));
        self.nodes = (0..nodes.len()).filter(|at| here(&nodes[*at]) || named(at)).collect();
        let of_node = |node: &Node| {
            let mut own = node.ranks.iter().filter(|at| self.ranks.binary_search(at).is_ok());
            own.all(|at| settled(&ranks[*at]))
        };
        let settled_nodes = self.nodes.iter().filter(|at| !silent && of_node(&nodes[**at]));
        self.settled_nodes = settled_nodes.filter_map(|at| u32::try_from(*at).ok()).collect();
    }
}

/// Returns whether links between different nodes use GPUDirect RDMA, for each of their ends.
fn gdr(links: &BTreeMap<(u32, u32), Link>, apart: impl Fn(u32, u32) -> bool) -> BTreeMap<u32, Gdr> {
    let mut ends = BTreeMap::new();
    for ((from, to), link) in links.iter().filter(|((from, to), _)| apart(*from, *to)) {
        let own = Gdr::of(link.gdr);
        for end in [*from, *to] {
            ends.entry(end).and_modify(|known: &mut Gdr| *known = known.join(own)).or_insert(own);
        }
    }
    ends
}

fn add(links: &mut BTreeMap<(u32, u32), Link>, ends: (u32, u32), link: &Link) {
    links.entry(ends).and_modify(|known| known.join(link)).or_insert_with(|| link.clone());
}

fn fold(links: &BTreeMap<(u32, u32), Link>, node_of: &BTreeMap<u32, u32>) -> BTreeMap<(u32, u32), Link> {
    let mut folded: BTreeMap<(u32, u32), Link> = BTreeMap::new();
    for ((from, to), link) in links {
        let (Some(from), Some(to)) = (node_of.get(from), node_of.get(to)) else { continue };
        add(&mut folded, (*from, *to), link);
    }
    folded
}
