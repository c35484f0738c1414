//! The transport map while it fills: a matrix of ranks below the scrolling log on a terminal, snapshots elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weftrun::core::log::LogBatch;
use weftrun::core::nccl::{Event, FabricSeen, GdrSeen, Kind, PairView, RankView, TransportMap};

use crate::output::{Output, style};

/// Ranks a matrix is drawn for; more do not fit a terminal.
const MOST_IN_MATRIX: u32 = 16;
/// Time between two drawings.
const REDRAW: Duration = Duration::from_millis(80);
/// Time between two snapshots where nothing can be redrawn.
const SNAPSHOT: Duration = Duration::from_millis(400);

/// How the map is shown while a job is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// As lines, when something new is known.
    Events,
    /// As a matrix that is drawn again where it stands; as [`Show::Events`] without a terminal.
    Panel,
    /// As a matrix; as snapshots of it without a terminal.
    Always,
}

/// A map on its way to a person.
#[derive(Debug)]
pub struct LiveMap {
    map: TransportMap,
    out: Output,
    show: Show,
    terminal: bool,
    drawn_lines: usize,
    drawn: Option<(u64, Instant)>,
}

impl LiveMap {
    /// Makes an empty map.
    pub fn new(out: Output, show: Show) -> Self {
        let terminal = out.is_terminal() && !out.is_json();
        Self { map: TransportMap::new(), out, show, terminal, drawn_lines: 0, drawn: None }
    }

    /// Takes a batch in, and says what is new where no panel shows it.
    pub fn observe(&mut self, batch: &LogBatch) {
        let events = self.map.observe(batch);
        if self.out.is_json() {
            return;
        }
        for event in events {
            let is_connection = matches!(event, Event::Link { .. });
            if !is_connection || self.show == Show::Events {
                let note = style::NOTE;
                self.out.say(format!("{note}map|{note:#} {event}"));
            }
        }
    }

    /// Takes the panel away, so that lines can be written in its place.
    pub fn clear(&mut self) {
        if self.drawn_lines > 0 {
            self.out.stderr_raw(&format!("\x1b[{}A\x1b[J", self.drawn_lines));
            self.drawn_lines = 0;
        }
    }

    /// Draws the panel again, or a snapshot if the map has changed and the last one is old enough.
    pub fn draw(&mut self) {
        let wanted = match self.show {
            Show::Events => false,
            Show::Panel => self.terminal,
            Show::Always => !self.out.is_json(),
        };
        if !wanted || self.map.generation() == 0 {
            return;
        }
        let generation = self.map.generation();
        if !self.terminal {
            let pause = if self.show == Show::Always { SNAPSHOT } else { REDRAW };
            let old = self.drawn.is_none_or(|(seen, at)| seen != generation && at.elapsed() >= pause);
            if !old {
                return;
            }
        }
        let text = matrix(&self.map);
        self.out.say(&text);
        self.drawn_lines = if self.terminal { text.lines().count() } else { 0 };
        self.drawn = Some((generation, Instant::now()));
    }

    /// The map.
    pub fn into_map(mut self) -> TransportMap {
        self.clear();
        self.map
    }
}

/// The map as a matrix of ranks and a legend; as a legend alone for many ranks.
pub fn matrix(map: &TransportMap) -> String {
    let world = map.world();
    let (ranks, pairs) = (map.ranks(&world), map.pairs(&world));
    let known: Vec<&RankView> = ranks.iter().filter(|rank| rank.rank.is_some()).collect();
    let mut text = progress(&ranks);
    if !known.is_empty() && known.iter().all(|rank| rank.rank < Some(MOST_IN_MATRIX)) {
        text.push_str(&cells(&known, &pairs));
    }
    text.push_str(&legend(&pairs));
    text.truncate(text.trim_end().len());
    text
}

fn progress(ranks: &[RankView]) -> String {
    let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
    for rank in ranks {
        *phases.entry(rank.phase.label()).or_default() += 1;
    }
    let phases: Vec<_> = phases.into_iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let bold = style::BOLD;
    format!("{bold}transports{bold:#}  {} ranks: {}\n", ranks.len(), phases.join(", "))
}

fn cells(ranks: &[&RankView], pairs: &[PairView]) -> String {
    let dim = style::DIM;
    let mut text = format!("  {dim}from \\ to   {dim:#}");
    for to in ranks {
        text.push_str(&format!("{:>6}", to.rank.unwrap_or_default()));
    }
    text.push('\n');
    for from in ranks {
        let label = format!("{} node {}", from.rank.unwrap_or_default(), from.node);
        text.push_str(&format!("  {dim}{label:<12}{dim:#}"));
        for to in ranks {
            let pair = pairs.iter().find(|pair| pair.global_from == from.rank && pair.global_to == to.rank);
            text.push_str(&cell(pair, from.rank == to.rank));
        }
        text.push('\n');
    }
    text
}

fn cell(pair: Option<&PairView>, own: bool) -> String {
    let Some(pair) = pair else {
        let dim = style::DIM;
        return format!("{dim}{:>6}{dim:#}", if own { "\\" } else { "." });
    };
    let colour = colour(pair);
    format!("{colour}{:>6}{colour:#}", short(pair))
}

/// A transport in five characters: colour is never the only sign.
fn short(pair: &PairView) -> String {
    let name = match (pair.kind, pair.network()) {
        (_, Some("Socket")) => "SOCK",
        (_, Some(name)) if name.ends_with("Libfabric") => "OFI",
        (_, Some(name)) => name,
        (Kind::P2p, _) => "P2P",
        (Kind::Shm, _) => "SHM",
        (Kind::Nvls, _) => "NVLS",
        _ => "?",
    };
    let gdr = if pair.gdr == Some(true) { "+" } else { "" };
    format!("{}{gdr}", name.chars().take(5).collect::<String>())
}

fn colour(pair: &PairView) -> anstyle::Style {
    match pair.kind {
        Kind::P2p | Kind::Nvls => style::GOOD,
        Kind::Net | Kind::Collnet if pair.network() == Some("Socket") => style::WARNING,
        Kind::Net | Kind::Collnet => style::NOTE,
        _ => anstyle::Style::new(),
    }
}

fn legend(pairs: &[PairView]) -> String {
    let mut kinds: BTreeMap<String, (usize, u32, String)> = BTreeMap::new();
    for pair in pairs {
        let entry = kinds.entry(pair.transport.to_string()).or_insert_with(|| (0, 0, short(pair)));
        entry.0 += 1;
        entry.1 = entry.1.max(pair.channels.count());
    }
    let one = |(name, (count, channels, short)): (String, (usize, u32, String))| {
        let (pair, channel) = (plural(count, "pair"), plural(channels as usize, "channel"));
        format!("  {short:<6} {name}: {pair}, up to {channel} each\n")
    };
    kinds.into_iter().map(one).collect()
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The verdict in a sentence.
pub fn verdict(map: &TransportMap) -> String {
    let verdict = map.verdict();
    let fabric = match verdict.fabric {
        FabricSeen::Efa => "AWS EFA through libfabric",
        FabricSeen::Roce => "RDMA over Ethernet (RoCE)",
        FabricSeen::InfiniBand => "InfiniBand",
        FabricSeen::Verbs => "RDMA verbs; whether RoCE or InfiniBand was not said",
        FabricSeen::LibfabricTcp => "libfabric over plain TCP: the plugin is there, EFA is not",
        FabricSeen::LibfabricOther => "libfabric with another provider than EFA's",
        FabricSeen::Socket => "plain TCP sockets",
        FabricSeen::IntraNode => "no network: all ranks are on one node",
        FabricSeen::Mixed => "more than one fabric",
        _ => "unknown: no connection line was seen (NCCL_DEBUG=INFO prints them)",
    };
    let gdr = match verdict.gdr {
        GdrSeen::All => ", GPUDirect RDMA on all connections",
        GdrSeen::Some => ", GPUDirect RDMA on some connections only",
        GdrSeen::None => ", without GPUDirect RDMA",
        GdrSeen::Unknown => "",
    };
    format!("between nodes: {fabric}{gdr}")
}
