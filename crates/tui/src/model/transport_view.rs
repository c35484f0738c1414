//! What the logs have proved so far, in the form that the screens draw: built during the ingest, never while
//! drawing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use weftrun::Finding;
use weftrun::diagnose::cause::Why;
use weftrun::diagnose::{Judge, Measured};

pub use super::links::{Cell, Gdr, Link, LinkMap, Path};

/// Largest number of missing ranks: a hostile line may name any number of them.
const MOST_AWAITED: u32 = 65_536;

/// The progress of a rank. Up to the trees each step includes the earlier ones; training steps and a failure prove
/// none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// It is expected, and has no output yet.
    Awaited,
    /// Its log has begun.
    #[default]
    Started,
    Bootstrap,
    Init,
    /// Init is complete.
    Ready,
    Rings,
    Trees,
    Stepping,
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
    /// Time since the last of them completed the step before that all of them show: the duration of this step.
    pub took: Option<SignedDuration>,
    pub slowest: Option<u32>,
    /// How long the first one waited for the last.
    pub spread: SignedDuration,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    /// Global rank, once proved.
    pub rank: Option<u32>,
    pub host: String,
    pub pid: u32,
    pub device: Option<i64>,
    /// Its node, counted from 0.
    pub node: Option<u32>,
    /// Network it announced.
    pub announced: Option<String>,
    /// The last step up to the trees that its lines show.
    pub bring_up: Step,
    /// Whether lines of its training steps are seen.
    pub stepping: bool,
    pub failed: bool,
    pub reached: Reached,
    /// When it printed its last training step, if known.
    pub last_step: Option<Timestamp>,
}

impl Rank {
    pub fn step(&self) -> Step {
        match (self.failed, self.stepping) {
            (true, _) => Step::Failed,
            (false, true) => Step::Stepping,
            (false, false) => self.bring_up,
        }
    }

    /// Returns whether no line of NCCL is from it: its connections are known from others, if at all.
    pub fn is_silent(&self) -> bool {
        self.pid == 0 && self.device.is_none() && self.announced.is_none()
    }

    /// Returns whether its connections are made: no channel is still to come.
    pub fn is_connected(&self) -> bool {
        self.has_reached(Step::Rings) || self.stepping
    }

    /// Returns whether its lines show a step, even if it failed later.
    pub fn has_reached(&self, step: Step) -> bool {
        match step {
            Step::Failed => self.failed,
            Step::Stepping => self.stepping,
            step => self.bring_up >= step,
        }
    }

    /// Adds it to the counts of the steps that it has reached.
    fn count_in(&self, counts: &mut [u32; 7]) {
        for (count, step) in counts.iter_mut().zip(Step::LIFE) {
            *count += u32::from(self.has_reached(step));
        }
    }
}

/// A group of ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Communicator {
    pub id: String,
    pub nranks: u32,
    /// Whether it is the one of all ranks.
    pub world: bool,
    /// Its ranks in the job, where proved, in order.
    pub members: Vec<u32>,
    /// Whether a member has made it, for which all its ranks were there.
    pub complete: bool,
    /// Its nodes, as NCCL counts them.
    pub nodes: Option<u32>,
}

/// One node: ranks that share a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
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
    /// Ranks, sorted by rank.
    pub ranks: Vec<Rank>,
    /// Nodes, in the order of their lowest rank.
    pub nodes: Vec<Node>,
    /// Communicators, the world first.
    pub communicators: Vec<Communicator>,
    /// The links of all communicators together, then, if there are several, those of each.
    pub maps: Vec<LinkMap>,
    /// The links whose communicator is not proved. They are in the first map too.
    pub loose_links: LinkMap,
    /// The connections that are a problem.
    pub judge: Judge,
    /// The bus bandwidth that was published for the planned instance type and as many nodes, GB/s.
    pub expected: Option<(f64, f64)>,
    /// How fast the collectives are and which rank reaches them last, where the job measures them.
    pub measured: Option<Measured>,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// Throughput as it was printed, oldest first.
    pub throughput: Vec<f64>,
    pub unit: String,
    /// Whether it is the bus bandwidth of a collective. Only that has published figures.
    pub is_bus_bandwidth: bool,
    /// Ranks that have reached each step of [`Step::LIFE`].
    pub counts: [u32; 7],
    /// When all ranks completed each step of [`Step::LIFE`], if known.
    pub laps: [Option<Lap>; 7],
    /// The nodes as NCCL's map numbers them, each with its index in `nodes`.
    pub numbers: BTreeMap<u32, u32>,
}

impl TransportView {
    /// Returns when the first rank completed a step, if that is known of each rank that has.
    pub fn first_reached(&self, at: usize) -> Option<Timestamp> {
        let there =
            self.ranks.iter().filter(|rank| Step::LIFE.get(at).is_some_and(|step| rank.has_reached(*step)));
        let times: Option<Vec<Timestamp>> =
            there.map(|rank| rank.reached.get(at).copied().flatten()).collect();
        times?.into_iter().min()
    }

    /// Adds the ranks without any NCCL output: those with other output (`heard`, each with the place that
    /// wrote it), and those without any. The world size that NCCL reports takes precedence over the job's.
    pub fn await_ranks(&mut self, asked: u32, heard: &BTreeMap<u32, String>) {
        let world = self.communicators.iter().find(|comm| comm.world);
        let total = world.map_or(asked, |world| world.nranks).min(MOST_AWAITED);
        let known: BTreeSet<u32> = self.ranks.iter().filter_map(|rank| rank.rank).collect();
        // Ranks that print nothing of NCCL have come as far as all others, once their communicator is made.
        let least = self.ranks.iter().filter(|rank| rank.rank.is_some()).map(|rank| rank.bring_up).min();
        let silent = world.filter(|world| world.complete).map(|_| least.unwrap_or_default().max(Step::Ready));
        // A process with an unproved rank may be any of them.
        let mut nameless = self.ranks.len() - known.len().min(self.ranks.len());
        for (rank, host) in heard.iter().filter(|(rank, _)| !known.contains(rank)) {
            if nameless > 0 {
                nameless -= 1;
                continue;
            }
            let bring_up = silent.filter(|_| *rank < total).unwrap_or_default();
            self.ranks.push(Rank { rank: Some(*rank), host: host.clone(), bring_up, ..Rank::default() });
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
            bring_up: silent.unwrap_or(Step::Awaited),
            ..Rank::default()
        }));
    }

    /// Marks the ranks that train. A single rank that prints steps prints those of all, also without a line of NCCL.
    pub fn step(&mut self, stepping: &BTreeSet<u32>) {
        let all = self.communicators.is_empty() && stepping.len() == 1;
        let steps = |rank: &&mut Rank| all || rank.rank.is_some_and(|rank| stepping.contains(&rank));
        for rank in self.ranks.iter_mut().filter(steps) {
            rank.stepping = true;
            rank.bring_up = rank.bring_up.max(Step::Started);
        }
    }

    /// Marks the ranks that failed: those that the cause names, which often print nothing of it themselves. Where it names
    /// none, they are those that NCCL's lines show as failed, other than victims. Without a cause none has failed.
    pub fn fail(&mut self, why: &Why) {
        for rank in &mut self.ranks {
            rank.failed = why.is_failed(rank.rank, rank.failed);
        }
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
            rank.count_in(&mut self.counts);
        }
        self.laps = laps(&self.ranks);
        self.place_silent_ranks();
        // If NCCL names the hosts, a rank that no line places belongs to none of them.
        let named = self.ranks.iter().any(|rank| rank.node.is_some());
        let placed = |rank: &Rank| match named {
            true => rank.node.is_some(),
            false => rank.step() >= Step::Started && !rank.host.is_empty(),
        };
        let mut nodes: Vec<Node> = Vec::new();
        self.numbers.clear();
        let mut numbers: BTreeMap<(Option<u32>, String), usize> = BTreeMap::new();
        for (index, rank) in self.ranks.iter_mut().enumerate().filter(|(_, rank)| placed(rank)) {
            let key = (rank.node, rank.host.clone());
            let number = *numbers.entry(key).or_insert_with(|| {
                nodes.push(Node { host: rank.host.clone(), ..Node::default() });
                nodes.len() - 1
            });
            let own = u32::try_from(number).ok();
            self.numbers.extend(rank.node.zip(own));
            rank.node = own;
            let node = &mut nodes[number];
            node.ranks.push(index);
            node.failed += u32::from(rank.failed);
            rank.count_in(&mut node.reached);
            if let Some(name) = &rank.announced {
                match node.announced.iter_mut().find(|(known, _)| known == name) {
                    Some((_, count)) => *count += 1,
                    None => node.announced.push((name.clone(), 1)),
                }
            }
        }
        self.nodes = nodes;
    }

    /// Finds the nodes of ranks that print nothing of NCCL: a rank that shares memory with another is on its node, and those of
    /// the only node that no other rank names are on that one.
    fn place_silent_ranks(&mut self) {
        let Some(world) = self.communicators.iter().find(|comm| comm.world && comm.complete) else { return };
        let links = self.maps.first().map(|map| &map.rank_links);
        let shared = links.into_iter().flatten().filter(|(_, link)| link.is_inside_node());
        let shared: Vec<(u32, u32)> = shared.map(|(ends, _)| *ends).collect();
        let mut node_of: BTreeMap<u32, (u32, String)> = self
            .ranks
            .iter()
            .filter_map(|rank| Some((rank.rank?, (rank.node?, rank.host.clone()))))
            .collect();
        let mut known = 0;
        while known < node_of.len() {
            known = node_of.len();
            for (from, to) in shared.iter().flat_map(|(from, to)| [(from, to), (to, from)]) {
                if let (Some(node), false) = (node_of.get(from).cloned(), node_of.contains_key(to)) {
                    node_of.insert(*to, node);
                }
            }
        }
        let nodes: BTreeSet<u32> = node_of.values().map(|(node, _)| *node).collect();
        let last = nodes.last().map(|last| (last + 1, String::new()));
        let last = last.filter(|_| world.nodes.is_some_and(|all| all as usize == nodes.len() + 1));
        for rank in self
            .ranks
            .iter_mut()
            .filter(|rank| rank.node.is_none() && rank.rank.is_some_and(|rank| rank < world.nranks))
        {
            if let Some((node, host)) = rank.rank.and_then(|rank| node_of.get(&rank)).or(last.as_ref()) {
                (rank.node, rank.host) = (Some(*node), host.clone());
            }
        }
    }

    /// Completes the maps, once the ranks are grouped by node.
    pub fn place_links(&mut self) {
        let mut maps = std::mem::take(&mut self.maps);
        for (at, map) in maps.iter_mut().enumerate() {
            let members = at.checked_sub(1).and_then(|at| self.communicators.get(at));
            let members = members.map(|comm| comm.members.as_slice());
            map.place(&self.ranks, &self.nodes, members, &self.numbers);
        }
        self.maps = maps;
    }

    /// Returns the number of maps to choose from: one, or that of all communicators and one for each.
    pub fn views(&self) -> usize {
        self.maps.len().max(1)
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
        let Some(times) = times else {
            if ranks.iter().all(|rank| rank.has_reached(Step::LIFE[at])) {
                before = None;
            }
            continue;
        };
        let first = times.iter().map(|(time, _)| *time).min();
        let Some((end, slowest)) = times.into_iter().rev().max_by_key(|(time, _)| *time) else { continue };
        let spread = end.duration_since(first.unwrap_or(end));
        // Clocks of nodes differ: a step is over no sooner than the one before.
        let took = before.map(|before| end.duration_since(before).max(SignedDuration::ZERO));
        *lap = Some(Lap { end, took, slowest, spread });
        before = before.max(Some(end));
    }
    laps
}
