//! A capture's lines as templates with placeholders for each rank's own values.

use std::borrow::Cow;

use weftrun_core::{Error, ErrorKind, Result};

use crate::Capture;

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Host,
    Pid,
    /// Thread id, relative to the pid.
    Tid(i64),
    /// CUDA device, which is the local rank.
    Device,
    Rank,
    World,
    Nodes,
    LocalRanks,
    BusId,
    Comm,
    CommId,
    Address,
    /// Number of the node.
    Node,
    Channels,
}

/// The kind of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Filled in and printed.
    Plain,
    /// A placeholder for the rings of all channels: the pieces are the text before `Channel`.
    Rings,
    /// A placeholder for the trees of all channels: the pieces are the text before `Trees`.
    Trees,
    /// A placeholder for all connections of the rings.
    RingEdges,
    /// A placeholder for all connections of the trees that the rings have not created.
    TreeEdges,
}

/// One line of a template.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub at_ms: u64,
    pub kind: Kind,
    pub pieces: Vec<Piece>,
}

/// A template for each kind of rank, and the connections between the capture's ranks.
#[derive(Clone, Debug)]
pub(super) struct Templates {
    /// Rank 0; the first rank of another node; two others, which alternate.
    pub parts: [Vec<Line>; 4],
    /// The connections of the capture's ranks, in order.
    pub phases: Vec<Kind>,
    /// Channels of the capture.
    pub channels: u32,
    /// The text after `via` inside a node.
    pub inside: String,
    /// The text after `via` between nodes, up to the device's number.
    pub between: Option<String>,
}

impl Templates {
    /// Creates templates from a capture with one communicator over all ranks.
    pub fn of(capture: &Capture) -> Result<Self> {
        let cannot = |why: &str| {
            Error::new(ErrorKind::Unsupported, format!("capture `{}` cannot be widened: {why}", capture.name))
        };
        let text = |rank: usize| {
            let lines =
                capture.ranks[rank].iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned());
            lines.collect::<String>()
        };
        if capture.ranks.len() != 4 {
            return Err(cannot("it has not four ranks"));
        }
        let all: Vec<_> = (0..4).map(text).collect();
        if all[0].matches("Init START").count() != 1 || all[0].contains("parent 0x") {
            return Err(cannot("it has not exactly one communicator"));
        }
        let via = |net: bool| {
            let mut found =
                all.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(" via "));
            found.find(|(_, via)| via.starts_with("NET/") == net).map(|(_, via)| via.trim_end().to_owned())
        };
        let between = via(true).map(|via| via.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned());
        let inside = via(false).ok_or_else(|| cannot("it shows no connection inside a node"))?;
        let facts: Vec<_> = all.iter().zip(0..).map(|(text, rank)| Facts::of(text, rank)).collect();
        // If the capture has one node, its ranks 1 to 3 are all inner ones.
        let first_of_node = if between.is_some() { 2 } else { 1 };
        let parts = [0, first_of_node, 1, 3].map(|rank| lines(capture, rank, &facts[rank]));
        let mut phases = Vec::new();
        for line in parts.iter().flatten().filter(|l| matches!(l.kind, Kind::RingEdges | Kind::TreeEdges)) {
            if !phases.contains(&line.kind) {
                phases.push(line.kind.clone());
            }
        }
        Ok(Self { parts, phases, channels: facts[0].channels, inside, between })
    }
}

/// The values of one rank in the capture.
struct Facts {
    device: String,
    channels: u32,
}

impl Facts {
    fn of(text: &str, rank: u32) -> Self {
        let channels = text.split(" coll channels").next().and_then(|before| before.rsplit(' ').next());
        Self { device: rank.to_string(), channels: channels.and_then(|n| n.parse().ok()).unwrap_or(2) }
    }
}

fn lines(capture: &Capture, rank: usize, facts: &Facts) -> Vec<Line> {
    let texts: Vec<_> = capture.ranks[rank].iter().map(|line| String::from_utf8_lossy(&line.bytes)).collect();
    let (mut done, mut seen) = (Vec::new(), Vec::new());
    for (at, line) in capture.ranks[rank].iter().enumerate() {
        let text = &texts[at];
        let kind = kind_of(text, &texts[at..]);
        if kind != Kind::Plain {
            if seen.contains(&kind) {
                continue;
            }
            seen.push(kind.clone());
        }
        let text = match kind {
            Kind::Plain => &text[..],
            // Only the text before the message is kept: the rest is generated.
            _ => text
                .split_once("NCCL INFO ")
                .map_or("", |(before, _)| &text[..before.len() + "NCCL INFO ".len()]),
        };
        done.push(Line { at_ms: line.at_ms, kind, pieces: pieces(text, facts) });
    }
    done
}

/// Returns the kind of a line; a connection belongs to the next line that reports connections.
fn kind_of(text: &str, rest: &[Cow<'_, str>]) -> Kind {
    let Some((_, message)) = text.split_once("NCCL INFO ") else { return Kind::Plain };
    if message.starts_with("Trees ") {
        return Kind::Trees;
    }
    match message.strip_prefix("Channel ") {
        Some(edge) if edge.contains(" via ") => {
            let connected = rest.iter().find_map(|line| line.split_once("Connected all "));
            let trees = connected.is_some_and(|(_, what)| what.starts_with("trees"));
            if trees { Kind::TreeEdges } else { Kind::RingEdges }
        }
        Some(ring) if ring.contains(" : ") => Kind::Rings,
        _ => Kind::Plain,
    }
}

/// Splits a line at blanks; the meaning of a word follows from the word before it, as in NCCL's format
/// strings.
fn pieces(text: &str, facts: &Facts) -> Vec<Piece> {
    let mut out = Vec::new();
    let words: Vec<&str> = text.split(' ').collect();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            push_text(&mut out, " ");
        }
        let before = at.checked_sub(1).map_or("", |at| words[at].trim_start_matches(['(', '[']));
        let next = words.get(at + 1).copied().unwrap_or("");
        word_pieces(&mut out, word, before, next, facts);
    }
    out
}

fn word_pieces(out: &mut Vec<Piece>, word: &str, before: &str, next: &str, facts: &Facts) {
    // Only addresses and ids are hexadecimal: `device found` holds no number.
    let hexadecimal = matches!(before, "busId" | "comm" | "commId");
    let is_digit = |c: char| if hexadecimal { c.is_ascii_hexdigit() || c == 'x' } else { c.is_ascii_digit() };
    let digits = word.len() - word.trim_start_matches(is_digit).len();
    let (value, rest) = word.split_at(digits);
    if let Some((pid, tid)) = process(word) {
        out.extend([Piece::Host, text(":"), Piece::Pid, text(":"), Piece::Tid(tid - pid)]);
        return;
    }
    if word == format!("[{}]", facts.device) && next == "NCCL" {
        out.extend([text("["), Piece::Device, text("]")]);
        return;
    }
    if let Some((left, right)) = word.split_once("192.0.2.2<") {
        out.extend([text(left), Piece::Address, text("<"), text(right)]);
        return;
    }
    if let Some(rest) = word.strip_prefix("host-") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        out.extend([text("host-"), Piece::Node, text(rest)]);
        return;
    }
    let counts = matches!(next, "coll" | "collnet" | "p2p") && word == facts.channels.to_string();
    let piece = match before {
        _ if counts => Some(Piece::Channels),
        _ if value.is_empty() => None,
        "rank" => Some(Piece::Rank),
        "nranks" | "nRanks" | "sum" => Some(Piece::World),
        "nNodes" => Some(Piece::Nodes),
        "localRanks" => Some(Piece::LocalRanks),
        "localRank" | "cudaDev" | "nvmlDev" | "Device" | "device" | "GPU" => Some(Piece::Device),
        "busId" => Some(Piece::BusId),
        "comm" if value.starts_with("0x") => Some(Piece::Comm),
        "commId" => Some(Piece::CommId),
        _ => None,
    };
    let Some(piece) = piece else { return push_text(out, word) };
    if piece == Piece::BusId && value.starts_with("0x") {
        push_text(out, "0x");
    }
    out.push(piece);
    push_text(out, rest);
}

/// Parses `host:pid:tid`, which NCCL writes before each line.
fn process(word: &str) -> Option<(i64, i64)> {
    let mut parts = word.split(':');
    let (host, pid, tid, more) = (parts.next()?, parts.next()?, parts.next()?, parts.next());
    if host.is_empty() || more.is_some() {
        return None;
    }
    Some((pid.parse().ok()?, tid.parse().ok()?))
}

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn push_text(out: &mut Vec<Piece>, more: &str) {
    match out.last_mut() {
        Some(Piece::Text(text)) => text.push_str(more),
        _ if more.is_empty() => {}
        _ => out.push(text(more)),
    }
}
