//! Which transport each pair of nodes, or of ranks, uses.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overview::intended;
use super::paint::{Paint, cell, fit, width};
use crate::model::Model;
use crate::model::open::{Open, Suspects};
use crate::model::transport_view::{Gdr, Kind, Link, Node, TransportView};
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let findings = if area.height >= 20 { (area.height / 3).min(10) } else { 0 };
    let [upper, lower] = Layout::vertical([Constraint::Min(5), Constraint::Length(findings)]).areas(area);
    panel(model, open, frame, paint, upper);
    if findings > 0 {
        super::diagnosis::draw(open, frame, paint, lower);
    }
}

/// The matrix in its frame.
pub(super) fn panel(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let transport_view = &open.transport_view;
    let count = transport_view.communicators.len();
    let communicator = transport_view.communicators.get(open.communicator);
    let comm = communicator.map_or("no communicator yet".to_owned(), |c| {
        let which =
            if count > 1 { format!(" [c: {} of {count}]", open.communicator + 1) } else { String::new() };
        let world = if c.world { "world" } else { "comm" };
        format!("{world} of {} ranks{which} ─ {}", c.nranks, c.id)
    });
    let unit = if open.by_rank { "rank × rank" } else { "node × node" };
    let inside = paint.frame(frame, area, format!("Fabric ─ {unit} ─ {comm}"));
    let size = open.matrix_size();
    if size == 0 {
        let text = " No pair has been seen yet: NCCL names them when it connects (NCCL_DEBUG=INFO).";
        frame.render_widget(
            Line::from(paint.span(fit(text, usize::from(inside.width)).into_owned(), Meaning::Muted)),
            inside,
        );
        return;
    }
    let columns = usize::from(inside.width);
    let legend = legend(transport_view, paint, columns);
    let rows = usize::from(inside.height).saturating_sub(1 + legend.len());
    let head = if open.by_rank { 7 } else { 16 };
    // The announced network of each node is beside its row if all or many columns fit.
    let tail = Tail::of(open, columns, columns.saturating_sub(head + 3 * size));
    let across = (columns.saturating_sub(head + tail.columns()) / 3).clamp(1, size);
    let (row, column) = (open.cell.0.min(size - 1), open.cell.1.min(size - 1));
    let left = window(column, across, size);
    let top = window(row, rows, size);
    let mut lines = vec![numbers(paint, head, left, across, size, tail)];
    let suspects = open.suspects();
    for at in top..(top + rows).min(size) {
        lines.push(matrix_row(model, open, &suspects, paint, at, (left, across), head, (row, column), tail));
    }
    lines.extend(legend);
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The text beside each row of the matrix: nothing, the networks it announced, and also whether GPUDirect
/// RDMA is used and the progress of its ranks.
#[derive(Clone, Copy)]
struct Tail {
    announced: usize,
    phase: bool,
}

impl Tail {
    /// Columns of `GDR` and `phase`.
    const PHASE: usize = 22;

    /// Returns as much as fits; on a wide screen the networks even if not all columns are visible.
    fn of(open: &Open, columns: usize, spare: usize) -> Self {
        let names = open.transport_view.nodes.iter().map(|node| width(&networks(node)) + 2);
        let announced = names.max().unwrap_or(0).clamp(9, 18);
        let phase = spare >= announced + 2 + Self::PHASE;
        Self { announced: if columns >= 70 || spare >= announced + 2 { announced } else { 0 }, phase }
    }

    fn columns(self) -> usize {
        let announced = if self.announced > 0 { self.announced + 2 } else { 0 };
        announced + if self.phase { Self::PHASE } else { 0 }
    }
}

/// The networks the ranks of a node announced.
fn networks(node: &Node) -> String {
    node.announced.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("+")
}

/// Where a window of some size begins, so that the cursor is inside.
fn window(cursor: usize, room: usize, size: usize) -> usize {
    if size <= room { 0 } else { cursor.saturating_sub(room / 2).min(size - room) }
}

fn numbers<'a>(paint: Paint, head: usize, left: usize, across: usize, size: usize, tail: Tail) -> Line<'a> {
    let mut text = " ".repeat(head);
    for at in left..(left + across).min(size) {
        text.push_str(&format!("{:>2} ", at % 100));
    }
    if tail.announced > 0 {
        text.push_str(&format!("  {}", cell("announced", tail.announced)));
    }
    if tail.phase {
        text.push_str(" GDR   phase");
    }
    Line::from(paint.span(text, Meaning::Muted))
}

fn links(open: &Open) -> Option<&std::collections::BTreeMap<(u32, u32), Link>> {
    let all = if open.by_rank { &open.transport_view.rank_links } else { &open.transport_view.node_links };
    all.get(open.communicator).or(all.first())
}

/// The number of a row: of its rank, or of its node.
fn name(open: &Open, at: usize) -> Option<u32> {
    if open.by_rank { open.transport_view.ranks.get(at)?.rank } else { u32::try_from(at).ok() }
}

/// The link of a cell, whichever way it was printed.
fn link(open: &Open, row: usize, column: usize) -> Option<&Link> {
    let (from, to) = (name(open, row)?, name(open, column)?);
    let links = links(open)?;
    links.get(&(from, to)).or_else(|| links.get(&(to, from)))
}

/// Whether a link between nodes is of another kind than planned; `judged`: the job as a whole is.
fn is_wrong(planned: Option<&str>, judged: bool, link: &Link, inside_node: bool) -> bool {
    if inside_node {
        return matches!(link.kind, Kind::Socket | Kind::LibfabricTcp);
    }
    // A plugin was loaded for a fabric, but no fabric is used, which is wrong with any plan.
    if matches!(link.kind, Kind::LibfabricTcp) {
        return true;
    }
    match planned {
        // Sockets were not requested, and the diagnosis reports them as wrong.
        Some("auto") | None => judged && matches!(link.kind, Kind::Socket),
        Some("efa") => !matches!(link.kind, Kind::Efa),
        Some("infiniband") => !matches!(link.kind, Kind::InfiniBand | Kind::Verbs | Kind::Offload),
        Some("roce") => !matches!(link.kind, Kind::Roce | Kind::Verbs),
        _ => false,
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the geometry of one row; a struct for one caller says no more"
)]
fn matrix_row<'a>(
    model: &Model,
    open: &Open,
    suspects: &Suspects,
    paint: Paint,
    at: usize,
    (left, across): (usize, usize),
    head: usize,
    cursor: (usize, usize),
    tail: Tail,
) -> Line<'a> {
    let transport_view = &open.transport_view;
    let label = if open.by_rank {
        transport_view.ranks.get(at).and_then(|r| r.rank).map_or("?".to_owned(), |rank| format!("r{rank}"))
    } else {
        format!("{at} {}", transport_view.nodes.get(at).map_or("", |node| node.host.as_str()))
    };
    let ranks = match transport_view.nodes.get(at) {
        _ if open.by_rank => &[at][..],
        Some(node) => &node.ranks,
        None => &[],
    };
    let suspect = suspects.contain_any(transport_view, ranks);
    let mut spans = vec![if suspect {
        paint.span(format!("{} !", cell(&label, head.saturating_sub(2))), Meaning::Bad)
    } else {
        Span::raw(cell(&label, head))
    }];
    let planned = intended(model, open);
    for column in left..(left + across).min(open.matrix_size()) {
        let node = |index: usize| transport_view.ranks.get(index).and_then(|rank| rank.node);
        let inside = if open.by_rank { node(at) == node(column) } else { at == column };
        let (text, meaning) = match link(open, at, column) {
            None if at == column && open.by_rank => (" - ".to_owned(), Meaning::Muted),
            None => (" . ".to_owned(), Meaning::Muted),
            Some(link) => {
                let wrong = is_wrong(planned, transport_view.ok == Some(false), link, inside);
                let mixed = link.transports.len() > 1;
                let sign = if wrong {
                    '!'
                } else if mixed {
                    '*'
                } else {
                    ' '
                };
                let meaning = if wrong {
                    Meaning::Bad
                } else if mixed {
                    Meaning::Warn
                } else {
                    Meaning::Good
                };
                (format!(" {}{sign}", link.kind.letter()), meaning)
            }
        };
        let style = paint.style(if (at, column) == cursor { Meaning::Selected } else { meaning });
        spans.push(Span::styled(text, style));
    }
    if tail.announced > 0 {
        let (text, odd) = if open.by_rank {
            let rank = transport_view.ranks.get(at);
            (rank.and_then(|r| r.announced.clone()).unwrap_or_default(), false)
        } else {
            (transport_view.nodes.get(at).map(networks).unwrap_or_default(), odd_node(transport_view, at))
        };
        let text = if odd { format!("{text} !") } else { text };
        let meaning = if odd { Meaning::Bad } else { Meaning::Muted };
        spans.push(paint.span(format!("  {}", cell(&text, tail.announced)), meaning));
    }
    if tail.phase {
        let (gdr, phase) = (gdr_word(open, at), phase_word(open, at));
        spans.push(paint.span(format!(" {} {}", cell(gdr, 5), phase), Meaning::Muted));
    }
    Line::from(spans)
}

/// Whether the links of a row to other nodes use GPUDirect RDMA.
fn gdr_word(open: &Open, at: usize) -> &'static str {
    let all = if open.by_rank { &open.transport_view.rank_gdr } else { &open.transport_view.node_gdr };
    let known = all.get(open.communicator).or(all.first());
    let gdr = name(open, at).and_then(|name| known?.get(&name).copied());
    gdr.map_or("-", Gdr::word)
}

/// How far the ranks of a row are.
fn phase_word(open: &Open, at: usize) -> String {
    let transport_view = &open.transport_view;
    if open.by_rank {
        return transport_view.ranks.get(at).map_or(String::new(), |rank| rank.step.word().to_owned());
    }
    transport_view.nodes.get(at).map_or(String::new(), |node| node.reached_word().0)
}

/// Whether a node announced another network than most.
pub fn odd_node(transport_view: &TransportView, at: usize) -> bool {
    let all = transport_view.announced();
    let Some(most) = all.iter().max_by_key(|(_, count)| **count).map(|(name, _)| *name) else { return false };
    all.len() > 1
        && transport_view
            .nodes
            .get(at)
            .is_some_and(|node| node.announced.iter().any(|(name, _)| name != most))
}

/// The letters that are seen and what they mean, on as many lines as that takes.
fn legend<'a>(transport_view: &TransportView, paint: Paint, columns: usize) -> Vec<Line<'a>> {
    let mut seen: Vec<Kind> =
        transport_view.node_links.iter().flat_map(|links| links.values().map(|link| link.kind)).collect();
    seen.sort_unstable();
    seen.dedup();
    let mut words: Vec<String> =
        seen.iter().map(|kind| format!("{} {}", kind.letter(), kind.word())).collect();
    words.extend([". no channel", "* mixed", "! not as planned"].map(str::to_owned));
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(line) if line.is_empty() || width(line) + width(&word) + 2 <= columns => {
                line.push_str(if line.is_empty() { " " } else { "  " });
                line.push_str(&word);
            }
            _ => lines.push(format!(" {word}")),
        }
    }
    lines.into_iter().map(|line| Line::from(paint.span(line, Meaning::Muted))).collect()
}

/// Title and text of the cell under the cursor.
pub fn cell_text(open: &Open) -> (String, Vec<String>) {
    let (row, column) = open.cell;
    let unit = if open.by_rank { "rank" } else { "node" };
    let title = format!("{unit} {row} and {unit} {column}");
    let mut lines = Vec::new();
    let transport_view = &open.transport_view;
    match link(open, row, column) {
        None => lines.push("No channel between them: rings and trees touch neighbours only.".to_owned()),
        Some(link) => {
            lines.push(format!("kind       {}", link.kind.word()));
            lines.push(format!("transport  {}", link.transports.join(", ")));
            lines.push(format!("channels   {} over {} pairs of ranks", link.channels, link.pairs));
            let gdr = match link.gdr {
                Some(true) => "yes",
                Some(false) => "no",
                None => "not known, or not the same for all",
            };
            lines.push(format!("GDR        {gdr}"));
        }
    }
    for at in [row, column] {
        if open.by_rank {
            if let Some(rank) = transport_view.ranks.get(at) {
                let announced = rank.announced.as_deref().unwrap_or("nothing yet");
                lines.push(format!("rank {at:<6}{}:{} announced {announced}", rank.host, rank.pid));
            }
        } else if let Some(node) = transport_view.nodes.get(at) {
            let names: Vec<String> =
                node.announced.iter().map(|(name, count)| format!("{name} x{count}")).collect();
            lines.push(format!("node {at:<6}{} announced {}", node.host, names.join(", ")));
        }
    }
    (title, lines)
}

/// All pairs of ranks as lines of a table.
pub fn table(open: &Open) -> Vec<Vec<u8>> {
    let mut lines = vec![b"comm\tfrom\tto\tkind\ttransport\tchannels\tgdr".to_vec()];
    for (number, links) in open.transport_view.rank_links.iter().enumerate() {
        let id = open.transport_view.communicators.get(number).map_or("", |c| c.id.as_str());
        for ((from, to), link) in links {
            let gdr = link.gdr.map_or("unknown", |gdr| if gdr { "yes" } else { "no" });
            let kind = link.kind.word();
            let transports = link.transports.join(",");
            lines.push(
                format!("{id}\t{from}\t{to}\t{kind}\t{transports}\t{}\t{gdr}", link.channels).into_bytes(),
            );
        }
    }
    lines
}
