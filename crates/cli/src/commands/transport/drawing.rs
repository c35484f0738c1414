//! The transports of a job as drawings: the graph of its nodes, and the matrix of its ranks or nodes. Colours follow the
//! judgement, not the name of a transport.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;
use std::fmt::Write as _;

use weftrun::core::nccl::{Kind, PairView};
use weftrun::core::text::counted;
use weftrun::diagnose::Judge;
use weftrun::report::TransportReport;

use crate::map_view::placed;

/// Largest number of nodes in the graph, and of rows of the matrix.
const MOST: u32 = 256;
/// Largest number of ranks with a row of their own in the matrix; more are drawn by node.
const RANKS: u32 = 64;
/// Largest number of connections and of cells that have a text of their own.
const TITLED: usize = 1024;
/// Width and height of a drawing.
pub const SIDE: f64 = 560.0;
/// Room for the names on its left and its top.
const MARGIN: f64 = 48.0;

/// How a connection is judged, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Judged {
    Unknown,
    Good,
    Wrong,
}

impl Judged {
    const ALL: [Self; 3] = [Self::Unknown, Self::Good, Self::Wrong];

    fn class(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Good => "good",
            Self::Wrong => "bad",
        }
    }
}

/// All connections of two ranks or nodes, in one direction.
struct Link {
    judged: Judged,
    channels: u32,
    transports: BTreeSet<String>,
}

/// Shapes of one colour.
pub struct Shape {
    pub class: &'static str,
    pub path: String,
    pub title: String,
}

/// A text at a place.
pub struct Label {
    /// From the left.
    pub x: f64,
    /// From the top.
    pub y: f64,
    pub text: String,
}

/// A node of the graph.
pub struct Dot {
    pub class: &'static str,
    /// Its place.
    pub at: (f64, f64),
    pub radius: f64,
    pub title: String,
}

/// A drawing of [`SIDE`] by [`SIDE`].
pub struct Drawing {
    /// Whether its shapes are lines or cells.
    pub class: &'static str,
    /// Columns of pixels on the screen.
    pub wide: u32,
    /// What it shows, in a sentence.
    pub about: String,
    /// Its lines or cells.
    pub shapes: Vec<Shape>,
    pub dots: Vec<Dot>,
    pub labels: Vec<Label>,
}

impl Drawing {
    /// Returns the size of its texts, which are as large on the screen as those of the page's other drawings.
    pub fn letters(&self) -> f64 {
        12.0 * SIDE / f64::from(self.wide)
    }
}

/// Draws the nodes on a circle, and a line for each two that are connected; none with fewer than two nodes.
pub fn graph(report: &TransportReport, judge: Judge) -> Option<Drawing> {
    let mut hosts: BTreeMap<u32, &str> = BTreeMap::new();
    for rank in &report.ranks {
        hosts.entry(rank.node).or_insert(&rank.host);
    }
    let all = hosts.keys().next_back()?.saturating_add(1);
    let count = all.min(MOST);
    if count < 2 {
        return None;
    }
    let middle = SIDE / 2.0;
    let on_circle = |node: u32, radius: f64| {
        let angle = TAU * f64::from(node) / f64::from(count) - TAU / 4.0;
        (middle + radius * angle.cos(), middle + radius * angle.sin())
    };
    let radius = middle - 2.0 * MARGIN;
    let mut links: BTreeMap<(u32, u32), Link> = BTreeMap::new();
    for ((from, to), link) in links_of(report, judge, false) {
        if from != to {
            join(&mut links, (from.min(to), from.max(to)), link);
        }
    }
    let caption = format!("{all} nodes: {}{}", counted_links(&links, "of nodes"), cut(all, "node"));
    links.retain(|(_, to), _| *to < count);
    let line = |(from, to): (u32, u32)| {
        let ((a, b), (c, d)) = (on_circle(from, radius), on_circle(to, radius));
        format!("M{a:.1} {b:.1}L{c:.1} {d:.1}")
    };
    let name = |node: u32| hosts.get(&node).copied().unwrap_or_default();
    let title =
        |(from, to): (u32, u32), link: &Link| format!("{} – {}: {}", name(from), name(to), about(link));
    let dot = |node: u32| {
        let own = links.iter().filter(|((from, to), _)| [*from, *to].contains(&node));
        Dot {
            class: own.map(|(_, link)| link.judged).max().unwrap_or(Judged::Unknown).class(),
            at: on_circle(node, radius),
            // Dots of neighbours do not touch.
            radius: (2.0 * radius / f64::from(count)).clamp(1.5, 6.0),
            title: format!("node {node}: {}", name(node)),
        }
    };
    let label = |node: u32| {
        let (x, y) = on_circle(node, radius + 26.0);
        let text: String = if count <= 24 { name(node).chars().take(14).collect() } else { node.to_string() };
        Label { x, y: y + 4.0, text }
    };
    let every = (count as usize).div_ceil(64);
    Some(Drawing {
        class: "lines",
        wide: wide(count),
        about: caption,
        dots: (0..count).map(dot).collect(),
        labels: (0..count).step_by(every).map(label).collect(),
        shapes: shapes(&links, line, title),
    })
}

/// Draws a cell for each two ranks, or nodes, that are connected; none without a connection whose ranks are proved.
pub fn matrix(report: &TransportReport, judge: Judge) -> Option<Drawing> {
    let highest = report.pairs.iter().flat_map(|pair| [pair.global_from, pair.global_to]).flatten().max();
    let by_rank = highest? < RANKS;
    let links = links_of(report, judge, by_rank);
    let all = links.keys().map(|(from, to)| from.max(to) + 1).max()?;
    let size = all.min(MOST);
    let letter = if by_rank { "rank" } else { "node" };
    let pairs = counted_links(&links, "by direction");
    let caption = format!("{all} {letter}s: {pairs}; rows send, columns receive{}", cut(all, letter));
    let links: BTreeMap<(u32, u32), Link> =
        links.into_iter().filter(|((from, to), _)| (*from).max(*to) < size).collect();
    let step = (SIDE - MARGIN) / f64::from(size);
    let place = |at: u32| MARGIN + f64::from(at) * step;
    let gap = (step / 10.0).min(1.0);
    let cell = |(from, to): (u32, u32)| {
        let wide = step - gap;
        format!("M{:.1} {:.1}h{wide:.1}v{wide:.1}h-{wide:.1}z", place(to), place(from))
    };
    let title =
        |(from, to): (u32, u32), link: &Link| format!("{letter} {from} to {letter} {to}: {}", about(link));
    let every = size.div_ceil(16).max(1);
    let labels = (0..size).step_by(every as usize).flat_map(|at| {
        let middle = place(at) + step / 2.0;
        [
            Label { x: MARGIN / 2.0, y: middle + 4.0, text: at.to_string() },
            Label { x: middle, y: MARGIN - 8.0, text: at.to_string() },
        ]
    });
    let labels = labels.collect();
    Some(Drawing {
        class: "cells",
        wide: wide(size),
        about: caption,
        shapes: shapes(&links, cell, title),
        dots: Vec::new(),
        labels,
    })
}

/// Returns how many connections there are, drawn or not, and how many of them are wrong.
fn counted_links(links: &BTreeMap<(u32, u32), Link>, of: &str) -> String {
    let wrong = links.values().filter(|link| link.judged == Judged::Wrong).count();
    format!("{} {of}, {wrong} of them wrong", counted(links.len(), "connected pair"))
}

/// Says that only the first nodes or ranks are drawn, if there are more.
fn cut(all: u32, letter: &str) -> String {
    if all > MOST { format!("; the first {MOST} {letter}s are drawn") } else { String::new() }
}

/// Returns the width of a drawing of some nodes or ranks: a few need little room.
fn wide(count: u32) -> u32 {
    if count <= 16 { 420 } else { 560 }
}

/// Returns one shape a link, or if there are many, one for all of a colour.
fn shapes(
    links: &BTreeMap<(u32, u32), Link>,
    path: impl Fn((u32, u32)) -> String,
    title: impl Fn((u32, u32), &Link) -> String,
) -> Vec<Shape> {
    let of = |judged: Judged| links.iter().filter(move |(_, link)| link.judged == judged);
    if links.len() <= TITLED {
        let shape = |(ends, link): (&(u32, u32), &Link)| Shape {
            class: link.judged.class(),
            path: path(*ends),
            title: title(*ends, link),
        };
        // What is wrong is drawn last, on top of the rest.
        return Judged::ALL.into_iter().flat_map(of).map(shape).collect();
    }
    let all = |judged: Judged| {
        let path = of(judged).fold(String::new(), |mut all, (ends, _)| {
            let _ = write!(all, "{}", path(*ends));
            all
        });
        Shape { class: judged.class(), path, title: format!("{} {}", of(judged).count(), judged.class()) }
    };
    Judged::ALL.into_iter().map(all).filter(|shape| !shape.path.is_empty()).collect()
}

fn about(link: &Link) -> String {
    let transports: Vec<&str> = link.transports.iter().map(String::as_str).take(4).collect();
    let wrong = if link.judged == Judged::Wrong { ", wrong" } else { "" };
    format!("{} ({} channels{wrong})", transports.join(", "), link.channels)
}

fn links_of(report: &TransportReport, judge: Judge, by_rank: bool) -> BTreeMap<(u32, u32), Link> {
    let mut links = BTreeMap::new();
    for (pair, ends, inside) in placed(&report.ranks, &report.pairs, by_rank) {
        let Some(ends) = ends else { continue };
        let judged = judged(pair, judge, inside);
        let transports = BTreeSet::from([pair.transport.to_string()]);
        join(&mut links, ends, Link { judged, channels: pair.channels.count(), transports });
    }
    links
}

fn judged(pair: &PairView, judge: Judge, inside: bool) -> Judged {
    match (pair.network, pair.kind) {
        (Some(network), _) if judge.is_wrong(network, inside) => Judged::Wrong,
        (Some(_), _) | (None, Kind::P2p | Kind::Shm | Kind::Nvls | Kind::Own | Kind::Collnet) => Judged::Good,
        _ => Judged::Unknown,
    }
}

fn join(links: &mut BTreeMap<(u32, u32), Link>, ends: (u32, u32), link: Link) {
    match links.get_mut(&ends) {
        Some(known) => {
            known.judged = known.judged.max(link.judged);
            known.channels = known.channels.saturating_add(link.channels);
            known.transports.extend(link.transports);
        }
        None => {
            links.insert(ends, link);
        }
    }
}
