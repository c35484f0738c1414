//! The ranks of a replay: a capture's own, or generated from its templates.

use std::collections::BTreeSet;
use std::io::{self, Write};

use weftrun_core::{Error, ErrorKind, Result};

use crate::template::{Kind, Line, Piece, Templates};
use crate::topology::Topology;
use crate::{Capture, Expected, Pair, TimedLine};

/// The shape a capture is scaled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// Nodes.
    pub nodes: u32,
    /// Ranks on each node.
    pub ranks_per_node: u32,
    /// Channels; the capture's if 0.
    pub channels: u32,
    /// Network interfaces of each node, over which channels are spread.
    pub nics: u32,
    /// Distinguishes two jobs of one shape: communicator ids and times are derived from it.
    pub seed: u64,
}

impl Shape {
    /// Creates a shape with the capture's channels over one interface.
    pub fn new(nodes: u32, ranks_per_node: u32) -> Self {
        Self { nodes, ranks_per_node, channels: 0, nics: 1, seed: 1 }
    }

    /// Sets the channels.
    #[must_use]
    pub fn channels(mut self, channels: u32) -> Self {
        self.channels = channels;
        self
    }

    /// Sets the interfaces of each node.
    #[must_use]
    pub fn nics(mut self, nics: u32) -> Self {
        self.nics = nics.max(1);
        self
    }

    /// Sets the seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// A run to replay: the timed output of each of its ranks.
#[derive(Clone, Debug)]
pub struct Replay {
    source: Source,
    expected: Expected,
}

#[derive(Clone, Debug)]
enum Source {
    Exact(Vec<Vec<TimedLine>>),
    Wide(Box<Wide>),
}

#[derive(Clone, Debug)]
struct Wide {
    templates: Templates,
    topology: Topology,
    shape: Shape,
}

impl Replay {
    pub(super) fn exact(capture: &Capture) -> Self {
        Self { source: Source::Exact(capture.ranks.clone()), expected: capture.expected.clone() }
    }

    pub(super) fn wide(templates: Templates, capture: &Capture, mut shape: Shape) -> Result<Self> {
        let topology = Topology { nodes: shape.nodes, local: shape.ranks_per_node };
        if shape.nodes == 0
            || shape.ranks_per_node == 0
            || shape.nodes.checked_mul(shape.ranks_per_node).is_none()
        {
            return Err(Error::new(
                ErrorKind::Usage,
                "a replay needs at least one rank, and fewer than 2^32",
            )
            .with("nodes", shape.nodes)
            .with("ranks per node", shape.ranks_per_node));
        }
        if shape.nodes > 1 && templates.between.is_none() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "capture `{}` ran on one node, so it does not show a network between nodes",
                    capture.name
                ),
            ));
        }
        if shape.channels == 0 {
            shape.channels = templates.channels;
        }
        let wide = Wide { templates, topology, shape };
        let expected = wide.expected(&capture.expected);
        let mut replay = Self { source: Source::Wide(Box::new(wide)), expected };
        replay.expected.lines = replay.count_lines();
        Ok(replay)
    }

    /// Returns the total number of ranks.
    pub fn world(&self) -> u32 {
        match &self.source {
            Source::Exact(ranks) => u32::try_from(ranks.len()).unwrap_or(u32::MAX),
            Source::Wide(wide) => wide.topology.world(),
        }
    }

    /// Returns its expected results.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// Calls a function with each line of a rank: milliseconds since the start, and the bytes.
    ///
    /// # Errors
    /// The errors of the function.
    pub fn each_line<E>(
        &self,
        rank: u32,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.source {
            Source::Exact(ranks) => {
                let lines = ranks.get(rank as usize).into_iter().flatten();
                lines.into_iter().try_for_each(|line| each(line.at_ms, &line.bytes))
            }
            Source::Wide(wide) => wide.each_line(rank, each),
        }
    }

    /// Writes the output of a rank.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] of the writer.
    pub fn write_log(&self, rank: u32, out: &mut impl Write) -> Result<()> {
        self.each_line(rank, |_, bytes| out.write_all(bytes)).map_err(|error| cannot_write(&error))
    }

    fn count_lines(&self) -> u64 {
        // Ranks of one template differ in the connections of their rings and trees, so each is counted.
        let mut lines = 0;
        for rank in 0..self.world() {
            let counted: Result<(), std::convert::Infallible> = self.each_line(rank, |_, bytes| {
                lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
                Ok(())
            });
            let Ok(()) = counted;
        }
        lines
    }
}

pub(super) fn cannot_write(error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write a replay: {error}"))
}

/// One connection as a rank prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    channel: u32,
    from: u32,
    to: u32,
    /// Whether the rank that prints it sends.
    send: bool,
}

impl Wide {
    fn lines_of(&self, rank: u32) -> &[Line] {
        let [first, of_node, odd, even] = &self.templates.parts;
        match (rank, self.topology.local_of(rank)) {
            (0, _) => first,
            (_, 0) => of_node,
            (_, local) if local % 2 == 1 && self.topology.node_of(rank).is_multiple_of(2) => odd,
            _ => even,
        }
    }

    fn each_line<E>(&self, rank: u32, mut each: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        if rank >= self.topology.world() {
            return Ok(());
        }
        let late = mix(self.shape.seed ^ u64::from(rank)) % 40;
        let (mut head, mut out) = (Vec::new(), Vec::new());
        for line in self.lines_of(rank) {
            head.clear();
            self.fill(&line.pieces, rank, &mut head);
            let at = line.at_ms + late;
            let mut say = |message: std::fmt::Arguments<'_>| {
                out.clear();
                out.extend_from_slice(&head);
                // Writing to memory does not fail.
                let _ = out.write_fmt(message);
                each(at, &out)
            };
            match line.kind {
                Kind::Plain => each(at, &head)?,
                Kind::Rings => {
                    let ring = self.ring_text();
                    for channel in 0..self.shape.channels {
                        say(format_args!("Channel {channel:02}/{:02} : {ring}\n", self.shape.channels))?;
                    }
                }
                Kind::Trees => say(format_args!("Trees {}\n", self.trees_text(rank)))?,
                Kind::RingEdges | Kind::TreeEdges => {
                    self.say_edges(&self.new_edges(&line.kind, rank), &mut say)?;
                }
            }
        }
        Ok(())
    }

    fn fill(&self, pieces: &[Piece], rank: u32, out: &mut Vec<u8>) {
        let (node, local) = (self.topology.node_of(rank), self.topology.local_of(rank));
        // Containers assign the same pids, so a pid identifies a rank only together with the host.
        let pid = 3900 + i64::from(local) * 2;
        for piece in pieces {
            let filled = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    Ok(())
                }
                Piece::Host => write!(out, "node{node}"),
                Piece::Pid => write!(out, "{pid}"),
                Piece::Tid(distance) => write!(out, "{}", pid + distance),
                Piece::Device => write!(out, "{local}"),
                Piece::Rank => write!(out, "{rank}"),
                Piece::World => write!(out, "{}", self.topology.world()),
                Piece::Nodes => write!(out, "{}", self.topology.nodes),
                Piece::LocalRanks => write!(out, "{}", self.topology.local),
                Piece::BusId => write!(out, "{:x}", 0x60 + 0x10 * local),
                Piece::Comm => write!(out, "{:#x}", 0x1_0000_0000 + u64::from(rank) * 0x1_0940),
                Piece::CommId => write!(out, "{:#018x}", mix(self.shape.seed) | 1 << 63),
                Piece::Address => {
                    write!(out, "10.{}.{}.{}", 32 + (node >> 16), (node >> 8) & 255, node & 255)
                }
                Piece::Node => write!(out, "{node}"),
                Piece::Channels => write!(out, "{}", self.shape.channels),
            };
            // Writing to memory does not fail.
            let _ = filled;
        }
    }

    /// Returns the text of a ring; NCCL truncates the line of a long one.
    fn ring_text(&self) -> String {
        let shown = (0..self.topology.world()).take(64).map(|rank| rank.to_string());
        shown.collect::<Vec<_>>().join(" ")
    }

    fn trees_text(&self, rank: u32) -> String {
        let number = |rank: Option<u32>| rank.map_or(-1, i64::from);
        let one = |channel: u32| {
            let place = self.topology.tree(rank, channel);
            let [a, b, c] = place.down.map(number);
            format!("[{channel}] {a}/{b}/{c}->{rank}->{}", number(place.up))
        };
        (0..self.shape.channels).map(one).collect::<Vec<_>>().join(" ")
    }

    fn is_net(&self, from: u32, to: u32) -> bool {
        self.topology.node_of(from) != self.topology.node_of(to)
    }

    /// Returns the ring's connections: between nodes both ends print theirs, inside a node only the sender
    /// does.
    fn ring_edges(&self, rank: u32) -> Vec<Edge> {
        let Some((before, behind)) = self.topology.ring(rank) else { return Vec::new() };
        let channels = 0..self.shape.channels;
        let mut edges = Vec::new();
        if self.is_net(before, rank) {
            edges.extend(channels.clone().map(|channel| Edge {
                channel,
                from: before,
                to: rank,
                send: false,
            }));
        }
        edges.extend(channels.map(|channel| Edge { channel, from: rank, to: behind, send: true }));
        edges
    }

    /// Returns the trees' connections.
    fn tree_edges(&self, rank: u32) -> Vec<Edge> {
        let mut edges = Vec::new();
        for channel in 0..self.shape.channels {
            let place = self.topology.tree(rank, channel);
            for peer in place.down.into_iter().chain([place.up]).flatten() {
                if self.is_net(peer, rank) {
                    edges.push(Edge { channel, from: peer, to: rank, send: false });
                }
                edges.push(Edge { channel, from: rank, to: peer, send: true });
            }
        }
        edges
    }

    /// Returns the connections of a rank in a phase, without those of earlier phases.
    fn new_edges(&self, phase: &Kind, rank: u32) -> Vec<Edge> {
        let edges = |phase: &Kind| match phase {
            Kind::TreeEdges => self.tree_edges(rank),
            _ => self.ring_edges(rank),
        };
        let before = self.templates.phases.iter().take_while(|done| *done != phase);
        let done: BTreeSet<Edge> = before.flat_map(edges).collect();
        let mut new = edges(phase);
        new.retain(|edge| !done.contains(edge));
        new
    }

    fn say_edges<E>(
        &self,
        edges: &[Edge],
        say: &mut impl FnMut(std::fmt::Arguments<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for Edge { channel, from, to, send } in edges {
            let (from_device, to_device) = (self.topology.local_of(*from), self.topology.local_of(*to));
            let ends = format_args!("Channel {channel:02}/0 : {from}[{from_device}] -> {to}[{to_device}]")
                .to_string();
            match &self.templates.between {
                Some(net) if self.is_net(*from, *to) => {
                    let which = if *send { "send" } else { "receive" };
                    say(format_args!("{ends} [{which}] via {net}{}\n", channel % self.shape.nics))?;
                }
                _ => say(format_args!("{ends} via {}\n", self.templates.inside))?,
            }
        }
        Ok(())
    }

    fn expected(&self, of_capture: &Expected) -> Expected {
        let mut pairs: BTreeSet<Pair> = BTreeSet::new();
        let network =
            self.templates.between.as_ref().and_then(|net| net.split('/').nth(1)).map(str::to_owned);
        let inside = if self.templates.inside.starts_with("SHM") { "shm" } else { "p2p" };
        for rank in 0..self.topology.world() {
            for edge in self.templates.phases.iter().flat_map(|phase| self.new_edges(phase, rank)) {
                let (kind, net) =
                    if self.is_net(edge.from, edge.to) { ("net", network.clone()) } else { (inside, None) };
                pairs.insert((edge.from, edge.to, kind.to_owned(), net));
            }
        }
        let announced = of_capture.announced.values().next();
        let announced =
            announced.map(|net| (0..self.topology.world()).map(|rank| (rank.to_string(), net.clone())));
        let between = pairs.iter().any(|(_, _, kind, _)| kind == "net");
        Expected {
            pairs: pairs.into_iter().collect(),
            announced: announced.into_iter().flatten().collect(),
            verdict_fabric: if between { of_capture.verdict_fabric.clone() } else { "intra-node".to_owned() },
            ..of_capture.clone()
        }
    }
}

/// Mixes the bits of a number (Steele, Lea, Flood 2014: the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
