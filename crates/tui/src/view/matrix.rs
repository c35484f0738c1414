//! Which transport each pair of nodes, or of ranks, uses.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overview::intended;
use super::paint::{Paint, cell, fit};
use crate::model::Model;
use crate::model::open::Open;
use crate::model::picture::{Kind, Link, Picture};
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
    let picture = &open.picture;
    let count = picture.communicators.len();
    let communicator = picture.communicators.get(open.communicator);
    let comm = communicator.map_or("no communicator yet".to_owned(), |c| {
        let world = if c.world { "world" } else { "comm" };
        format!("{world} {}, {} ranks [c: {} of {count}]", fit(&c.id, 18), c.nranks, open.communicator + 1)
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
    let rows = usize::from(inside.height).saturating_sub(2);
    let head = if open.by_rank { 7 } else { 16 };
    let tail = if columns >= 70 { 20 } else { 0 };
    let across = (columns.saturating_sub(head + tail) / 3).clamp(1, size);
    let (row, column) = (open.cell.0.min(size - 1), open.cell.1.min(size - 1));
    let left = window(column, across, size);
    let top = window(row, rows, size);
    let mut lines = vec![numbers(paint, head, left, across, size, tail)];
    for at in top..(top + rows).min(size) {
        lines.push(matrix_row(model, open, paint, at, (left, across), head, (row, column), tail));
    }
    lines.push(legend(picture, paint, columns));
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Where a window of some size begins, so that the cursor is inside.
fn window(cursor: usize, room: usize, size: usize) -> usize {
    if size <= room { 0 } else { cursor.saturating_sub(room / 2).min(size - room) }
}

fn numbers<'a>(paint: Paint, head: usize, left: usize, across: usize, size: usize, tail: usize) -> Line<'a> {
    let mut text = " ".repeat(head);
    for at in left..(left + across).min(size) {
        text.push_str(&format!("{:>2} ", at % 100));
    }
    if tail > 0 {
        text.push_str("  announced");
    }
    Line::from(paint.span(text, Meaning::Muted))
}

fn links(open: &Open) -> Option<&std::collections::BTreeMap<(u32, u32), Link>> {
    let all = if open.by_rank { &open.picture.rank_links } else { &open.picture.node_links };
    all.get(open.communicator).or(all.first())
}

/// The link of a cell, whichever way it was printed.
fn link(open: &Open, row: usize, column: usize) -> Option<&Link> {
    let name = |at: usize| -> Option<u32> {
        if open.by_rank { open.picture.ranks.get(at)?.rank } else { u32::try_from(at).ok() }
    };
    let (from, to) = (name(row)?, name(column)?);
    let links = links(open)?;
    links.get(&(from, to)).or_else(|| links.get(&(to, from)))
}

/// Whether a link between nodes is of another kind than planned.
fn is_wrong(planned: Option<&str>, link: &Link, inside_node: bool) -> bool {
    if inside_node {
        return matches!(link.kind, Kind::Socket);
    }
    match planned {
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
    paint: Paint,
    at: usize,
    (left, across): (usize, usize),
    head: usize,
    cursor: (usize, usize),
    tail: usize,
) -> Line<'a> {
    let picture = &open.picture;
    let label = if open.by_rank {
        picture.ranks.get(at).and_then(|r| r.rank).map_or("?".to_owned(), |rank| format!("r{rank}"))
    } else {
        format!("{at} {}", picture.nodes.get(at).map_or("", |node| node.host.as_str()))
    };
    let mut spans = vec![Span::raw(cell(&label, head))];
    let planned = intended(model, open);
    for column in left..(left + across).min(open.matrix_size()) {
        let node = |index: usize| picture.ranks.get(index).and_then(|rank| rank.node);
        let inside = if open.by_rank { node(at) == node(column) } else { at == column };
        let (text, meaning) = match link(open, at, column) {
            None if at == column && open.by_rank => (" - ".to_owned(), Meaning::Muted),
            None => (" . ".to_owned(), Meaning::Muted),
            Some(link) => {
                let wrong = is_wrong(planned, link, inside);
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
    if tail > 0 {
        let (text, odd) = if open.by_rank {
            let rank = picture.ranks.get(at);
            (rank.and_then(|r| r.announced.clone()).unwrap_or_default(), false)
        } else {
            let names = picture
                .nodes
                .get(at)
                .map(|n| n.announced.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
            (names.unwrap_or_default().join("+"), odd_node(picture, at))
        };
        let text = if odd { format!("{text} !") } else { text };
        let meaning = if odd { Meaning::Bad } else { Meaning::Muted };
        spans.push(paint.span(format!("  {}", fit(&text, tail.saturating_sub(2))), meaning));
    }
    Line::from(spans)
}

/// Whether a node announced another network than most.
pub fn odd_node(picture: &Picture, at: usize) -> bool {
    let all = picture.announced();
    let Some(most) = all.iter().max_by_key(|(_, count)| **count).map(|(name, _)| *name) else { return false };
    all.len() > 1
        && picture.nodes.get(at).is_some_and(|node| node.announced.iter().any(|(name, _)| name != most))
}

fn legend<'a>(picture: &Picture, paint: Paint, columns: usize) -> Line<'a> {
    let mut seen: Vec<Kind> =
        picture.node_links.iter().flat_map(|links| links.values().map(|link| link.kind)).collect();
    seen.sort_unstable();
    seen.dedup();
    let mut text: Vec<String> =
        seen.iter().map(|kind| format!("{} {}", kind.letter(), kind.word())).collect();
    text.push(". no channel".to_owned());
    text.push("* mixed".to_owned());
    text.push("! not as planned".to_owned());
    Line::from(paint.span(fit(&format!(" {}", text.join("  ")), columns).into_owned(), Meaning::Muted))
}

/// Title and text of the cell under the cursor.
pub fn cell_text(open: &Open) -> (String, Vec<String>) {
    let (row, column) = open.cell;
    let unit = if open.by_rank { "rank" } else { "node" };
    let title = format!("{unit} {row} and {unit} {column}");
    let mut lines = Vec::new();
    let picture = &open.picture;
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
            if let Some(rank) = picture.ranks.get(at) {
                let announced = rank.announced.as_deref().unwrap_or("nothing yet");
                lines.push(format!("rank {at:<6}{}:{} announced {announced}", rank.host, rank.pid));
            }
        } else if let Some(node) = picture.nodes.get(at) {
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
    for (number, links) in open.picture.rank_links.iter().enumerate() {
        let id = open.picture.communicators.get(number).map_or("", |c| c.id.as_str());
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
