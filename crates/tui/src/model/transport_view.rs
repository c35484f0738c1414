//! What the logs have proved so far, in the form that the screens draw: built during the ingest, never while
//! drawing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use weftrun::Finding;

/// Largest number of missing ranks: a hostile line may name any number of them.
const MOST_AWAITED: u32 = 65_536;

/// The progress of a rank. Each step includes the earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// It is expected, and has no output yet.
    Awaited,
    /// Its log has begun.
    #[default]
    Started,
    /// NCCL's bootstrap.
    Bootstrap,
    /// NCCL's init.
    Init,
    /// Init is complete.
    Ready,
    /// Rings are connected.
    Rings,
    /// Trees are connected.
    Trees,
    /// It trains.
    Stepping,
    /// It failed.
    Failed,
}

impl Step {
    /// The steps of a successful rank, in order.
    pub const LIFE: [Self; 7] =
        [Self::Started, Self::Bootstrap, Self::Init, Self::Ready, Self::Rings, Self::Trees, Self::Stepping];

    /// Returns its index in [`Step::LIFE`].
    pub fn place(self) -> Option<usize> {
        Self::LIFE.iter().position(|step| *step == self)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Awaited => "not seen",
            Self::Started => "started",
            Self::Bootstrap => "bootstrap",
            Self::Init => "init",
            Self::Ready => "ready",
            Self::Rings => "rings",
            Self::Trees => "trees",
            Self::Stepping => "stepping",
            Self::Failed => "FAILED",
        }
    }
}

/// When a rank completed each step of [`Step::LIFE`], if known.
pub type Reached = [Option<Timestamp>; 7];

/// When the ranks completed a step, once all of them have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lap {
    /// When the last of them completed it.
    pub end: Timestamp,
    /// Time since the last of them completed the previous step: the duration of this step.
    pub took: Option<SignedDuration>,
    /// The last rank.
    pub slowest: Option<u32>,
    /// How long the first one waited for the last.
    pub spread: SignedDuration,
}

/// One rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    /// Global rank, once proved.
    pub rank: Option<u32>,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// GPU it uses.
    pub device: Option<i64>,
    /// Its node, counted from 0.
    pub node: Option<u32>,
    /// Network it announced.
    pub announced: Option<String>,
    /// Its progress.
    pub step: Step,
    /// When it completed each step.
    pub reached: Reached,
    /// When it printed its last training step, if known.
    pub last_step: Option<Timestamp>,
}

impl Rank {
    /// Returns whether it has completed a step. A failed rank has completed none: its position is no longer
    /// valid.
    pub fn has_reached(&self, step: Step) -> bool {
        self.step >= step && self.step != Step::Failed
    }
}

/// A group of ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Communicator {
    /// Its id.
    pub id: String,
    /// Ranks it has.
    pub nranks: u32,
    /// Whether it is the one of all ranks.
    pub world: bool,
}

/// How two ranks, or two nodes, are connected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// What it is, for the sign.
    pub kind: Kind,
    /// The transports as NCCL wrote them, sorted.
    pub transports: Vec<String>,
    /// Channels, all pairs together.
    pub channels: u32,
    /// Number of pairs of ranks.
    pub pairs: u32,
    /// Whether GPUDirect RDMA is used: by all, some (`None` of `Some`), or unknown.
    pub gdr: Option<bool>,
}

/// Whether links use GPUDirect RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gdr {
    /// All of them.
    Yes,
    /// None of them.
    No,
    /// Some of them.
    Some,
    /// Unknown.
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
        if self == other { self } else { Self::Some }
    }

    /// Its word.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// NVLink or PCIe, inside a node.
    P2p,
    /// NVLink SHARP or CollNet.
    Offload,
    /// EFA.
    Efa,
    /// InfiniBand.
    InfiniBand,
    /// RoCE.
    Roce,
    /// InfiniBand verbs, not known which.
    Verbs,
    /// Libfabric over an unknown provider, or one other than EFA and TCP.
    Libfabric,
    /// Libfabric over TCP: the plugin was loaded, but the fabric is not used.
    LibfabricTcp,
    /// Shared memory inside a node.
    Shm,
    /// TCP sockets.
    Socket,
    /// A transport unknown to this program.
    #[default]
    Unknown,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::P2p,
        Self::Offload,
        Self::Efa,
        Self::InfiniBand,
        Self::Roce,
        Self::Verbs,
        Self::Libfabric,
        Self::LibfabricTcp,
        Self::Shm,
        Self::Socket,
        Self::Unknown,
    ];

    /// Its letter in the matrix.
    pub fn letter(self) -> char {
        match self {
            Self::P2p => 'N',
            Self::Offload => 'C',
            Self::Efa => 'E',
            Self::InfiniBand => 'I',
            Self::Roce => 'R',
            Self::Verbs => 'V',
            Self::Libfabric => 'L',
            Self::LibfabricTcp => 'l',
            Self::Shm => 'S',
            Self::Socket => 'T',
            Self::Unknown => '?',
        }
    }

    /// Its word in the legend.
    pub fn word(self) -> &'static str {
        match self {
            Self::P2p => "NVLink/P2P",
            Self::Offload => "CollNet/NVLS",
            Self::Efa => "EFA",
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Verbs => "verbs",
            Self::Libfabric => "Libfabric",
            Self::LibfabricTcp => "Libfabric over TCP",
            Self::Shm => "SHM",
            Self::Socket => "TCP socket",
            Self::Unknown => "unknown",
        }
    }
}

/// One node: ranks that share a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its host's name.
    pub host: String,
    /// Indices of its ranks in [`TransportView::ranks`].
    pub ranks: Vec<usize>,
    /// Networks its ranks announced, each with how many.
    pub announced: Vec<(String, u32)>,
    /// Ranks that have reached each step of [`Step::LIFE`].
    pub reached: [u32; 7],
    /// Ranks that failed.
    pub failed: u32,
}

impl Node {
    /// Describes the progress of its ranks, and returns whether all of them have it.
    pub fn reached_word(&self) -> (String, bool) {
        let all = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        if self.failed > 0 {
            return (format!("FAILED {}/{all} !", self.failed), false);
        }
        let at = (0..Step::LIFE.len()).rev().find(|at| self.reached[*at] > 0).unwrap_or(0);
        let word = Step::LIFE[at].word();
        if self.reached[at] == all {
            (format!("{word} {all}/{all}"), true)
        } else {
            (format!("{word} {}/{all} >", self.reached[at]), false)
        }
    }
}

/// What the logs have proved so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransportView {
    /// Verdict on the fabric (`efa`, `socket`, `unknown`, …).
    pub verdict: String,
    /// Whether it is the planned one.
    pub ok: Option<bool>,
    /// GPUDirect RDMA: `all`, `some`, `none`, `unknown`.
    pub gdr: String,
    /// NCCL versions seen.
    pub versions: Vec<String>,
    /// Ranks, sorted by rank.
    pub ranks: Vec<Rank>,
    /// Nodes, in the order of their lowest rank.
    pub nodes: Vec<Node>,
    /// Communicators, the world first.
    pub communicators: Vec<Communicator>,
    /// For each communicator: pairs of global ranks.
    pub rank_links: Vec<BTreeMap<(u32, u32), Link>>,
    /// For each communicator: pairs of nodes.
    pub node_links: Vec<BTreeMap<(u32, u32), Link>>,
    /// For each communicator: whether the links of a rank to other nodes use GPUDirect RDMA.
    pub rank_gdr: Vec<BTreeMap<u32, Gdr>>,
    /// The same for each node.
    pub node_gdr: Vec<BTreeMap<u32, Gdr>>,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// Throughput as it was printed, oldest first.
    pub throughput: Vec<f64>,
    /// Its unit.
    pub unit: String,
    /// Ranks that have reached each step of [`Step::LIFE`].
    pub counts: [u32; 7],
    /// When all ranks completed each step of [`Step::LIFE`], if known.
    pub laps: [Option<Lap>; 7],
}

impl TransportView {
    /// Ranks that have reached a step.
    pub fn reached(&self, step: usize) -> u32 {
        self.counts[step]
    }

    /// Adds the ranks without any NCCL output: those with other output (`heard`, each with the place that
    /// wrote it), and those without any. The world size that NCCL reports takes precedence over the job's.
    pub fn await_ranks(&mut self, asked: u32, heard: &BTreeMap<u32, String>) {
        let world = self.communicators.iter().find(|comm| comm.world).map(|comm| comm.nranks);
        let total = world.unwrap_or(asked).min(MOST_AWAITED);
        let known: BTreeSet<u32> = self.ranks.iter().filter_map(|rank| rank.rank).collect();
        // A process with an unproved rank may be any of them.
        let mut nameless = self.ranks.len() - known.len().min(self.ranks.len());
        for (rank, host) in heard.iter().filter(|(rank, _)| !known.contains(rank)) {
            if nameless > 0 {
                nameless -= 1;
                continue;
            }
            let (rank, host, step) = (Some(*rank), host.clone(), Step::Started);
            self.ranks.push(Rank { rank, host, step, ..Rank::default() });
        }
        // Lines of unknown ranks prove nothing: without a single known rank, none is reported as missing.
        if self.ranks.is_empty() {
            return;
        }
        let missing = (total as usize).saturating_sub(self.ranks.len());
        let absent =
            (0..total).filter(|rank| !known.contains(rank) && !heard.contains_key(rank)).take(missing);
        self.ranks.extend(absent.map(|rank| Rank {
            rank: Some(rank),
            step: Step::Awaited,
            ..Rank::default()
        }));
    }

    /// Networks announced, each with how many ranks.
    pub fn announced(&self) -> BTreeMap<&str, u32> {
        let mut all = BTreeMap::new();
        for (name, count) in self.nodes.iter().flat_map(|node| &node.announced) {
            *all.entry(name.as_str()).or_insert(0) += count;
        }
        all
    }

    /// Builds the nodes and their counts from the ranks.
    pub fn group(&mut self) {
        self.ranks.sort_by_key(|rank| (rank.rank.unwrap_or(u32::MAX), rank.host.clone(), rank.pid));
        self.counts = [0; 7];
        for rank in &self.ranks {
            for (at, step) in Step::LIFE.iter().enumerate() {
                self.counts[at] += u32::from(rank.has_reached(*step));
            }
        }
        self.laps = laps(&self.ranks);
        // If NCCL names the hosts, a rank it has not reported belongs to none of them.
        let least = if self.ranks.iter().any(|rank| rank.step > Step::Started) {
            Step::Bootstrap
        } else {
            Step::Started
        };
        let mut nodes: Vec<Node> = Vec::new();
        let mut numbers: BTreeMap<(Option<u32>, String), usize> = BTreeMap::new();
        for (index, rank) in self.ranks.iter_mut().enumerate().filter(|(_, rank)| rank.step >= least) {
            let key = (rank.node, rank.host.clone());
            let number = *numbers.entry(key).or_insert_with(|| {
                nodes.push(Node { host: rank.host.clone(), ..Node::default() });
                nodes.len() - 1
            });
            rank.node = u32::try_from(number).ok();
            let node = &mut nodes[number];
            node.ranks.push(index);
            if rank.step == Step::Failed {
                node.failed += 1;
            }
            for (at, step) in Step::LIFE.iter().enumerate() {
                node.reached[at] += u32::from(rank.has_reached(*step));
            }
            if let Some(name) = &rank.announced {
                match node.announced.iter_mut().find(|(known, _)| known == name) {
                    Some((_, count)) => *count += 1,
                    None => node.announced.push((name.clone(), 1)),
                }
            }
        }
        self.nodes = nodes;
    }

    /// Merges the links of ranks into links of nodes.
    pub fn fold_links(&mut self) {
        let node_of: BTreeMap<u32, u32> =
            self.ranks.iter().filter_map(|rank| Some((rank.rank?, rank.node?))).collect();
        self.node_links = self.rank_links.iter().map(|links| fold(links, &node_of)).collect();
        let apart = |from: u32, to: u32| node_of.get(&from) != node_of.get(&to);
        self.rank_gdr = self.rank_links.iter().map(|links| gdr(links, apart)).collect();
        self.node_gdr = self.node_links.iter().map(|links| gdr(links, |from, to| from != to)).collect();
    }
}

/// Returns when all ranks completed each step; none if one has not, or its time is unknown.
fn laps(ranks: &[Rank]) -> [Option<Lap>; 7] {
    let mut laps = [None; 7];
    let mut before: Option<Timestamp> = None;
    for (at, lap) in laps.iter_mut().enumerate() {
        let times: Option<Vec<(Timestamp, Option<u32>)>> = ranks
            .iter()
            .map(|rank| Some((rank.reached[at].filter(|_| rank.has_reached(Step::LIFE[at]))?, rank.rank)))
            .collect();
        let Some(times) = times else { break };
        let first = times.iter().map(|(time, _)| *time).min();
        let Some((end, slowest)) = times.into_iter().rev().max_by_key(|(time, _)| *time) else { break };
        let spread = end.duration_since(first.unwrap_or(end));
        // Clocks of nodes differ: a step is over no sooner than the one before.
        let took = before.map(|before| end.duration_since(before).max(SignedDuration::ZERO));
        *lap = Some(Lap { end, took, slowest, spread });
        before = before.max(Some(end));
    }
    laps
}

/// Whether links between different nodes use GPUDirect RDMA, for each of their ends.
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

fn fold(links: &BTreeMap<(u32, u32), Link>, node_of: &BTreeMap<u32, u32>) -> BTreeMap<(u32, u32), Link> {
    let mut folded: BTreeMap<(u32, u32), Link> = BTreeMap::new();
    for ((from, to), link) in links {
        let (Some(from), Some(to)) = (node_of.get(from), node_of.get(to)) else { continue };
        match folded.entry((*from, *to)) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(link.clone());
            }
            std::collections::btree_map::Entry::Occupied(mut slot) => slot.get_mut().join(link),
        }
    }
    folded
}

impl Link {
    /// Merges another link between the same two ends; the worst kind is shown.
    pub fn join(&mut self, other: &Self) {
        self.kind = self.kind.max(other.kind);
        self.channels += other.channels;
        self.pairs += other.pairs;
        self.gdr = if self.gdr == other.gdr { self.gdr } else { None };
        for transport in &other.transports {
            if !self.transports.contains(transport) {
                self.transports.push(transport.clone());
                self.transports.sort();
            }
        }
    }
}
