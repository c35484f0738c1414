//! Which transport each pair of nodes, or of ranks, uses.

use std::collections::BTreeSet;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weftrun::core::text::counted;

use super::heat;
use super::mouse_targets::Bar;
use super::paint::{self, Paint, cell, fit};
use crate::model::Model;
use crate::model::open::{MatrixForm, Open, Suspects};
use crate::model::transport_view::{Cell, Gdr, Node, Path, TransportView};
use crate::theme::Meaning;

pub(super) fn draw(model: &Model, open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    // Space that the matrix does not need is for what is wrong.
    let needed = u16::try_from(open.matrix_rows().len().saturating_add(4)).unwrap_or(u16::MAX);
    let spare = area.height.saturating_sub(needed);
    let findings = if area.height >= 20 { (area.height / 3).min(10).max(spare) } else { 0 };
    let [upper, lower] = Layout::vertical([Constraint::Min(5), Constraint::Length(findings)]).areas(area);
    panel(open, frame, paint, upper);
    if findings > 0 {
        super::diagnosis::draw(model, open, frame, paint.quiet(), lower);
    }
}

/// Lines of the panel beside its rows: the numbers, and the legend.
const BESIDE: usize = 4;

/// Returns the columns that the panel needs to show all nodes or ranks in so many rows; none if it cannot.
pub(super) fn width(open: &Open, rows: usize) -> Option<u16> {
    let size = open.matrix_rows().len();
    let columns = (head_width(open) + 3 * size + 2).max(30);
    u16::try_from(columns).ok().filter(|_| size > 0 && size + BESIDE <= rows)
}

pub(super) fn panel(open: &Open, frame: &mut Frame, paint: Paint, area: Rect) {
    let unit = if open.by_rank { "rank × rank" } else { "node × node" };
    let inside = paint.frame(frame, area, format!("Fabric ─ {unit} ─ {}", shown(open)));
    let size = open.matrix_rows().len();
    if size == 0 {
        let text = match open.map().map_or(0, |map| map.unplaced) {
            0 => format!(
                " No pair was seen{}: NCCL names them when it connects (NCCL_DEBUG=INFO).",
                open.yet()
            ),
            pairs => {
                format!(" The ranks of {} are not proved; z shows nodes.", counted(pairs as usize, "pair"))
            }
        };
        frame.render_widget(
            Line::from(paint.span(fit(&text, usize::from(inside.width)).into_owned(), Meaning::Muted)),
            inside,
        );
        return;
    }
    let columns = usize::from(inside.width);
    // The legend has as many lines as all of its words need, of which those that occur are drawn.
    let most = legend(open, paint, columns, None, "!*.?").len();
    let rows = usize::from(inside.height).saturating_sub(1 + most).max(1);
    let (mut lines, signs, block) = match form(open, columns, rows) {
        None => {
            let block = heat::block(open, columns, rows);
            let wide = open.matrix_rows().len().div_ceil(block) * heat::WIDE;
            note_cells(paint, inside, (heat::HEAD, wide), (0, 0), heat::WIDE, block);
            let (lines, signs) = heat::lines(open, paint, block);
            (lines, signs, Some(block))
        }
        Some(step) => {
            let matrix = Matrix::new(open, paint, columns, rows, step);
            let first = (matrix.rows.start, matrix.columns.start);
            note_cells(paint, inside, (matrix.head, matrix.columns.len() * step), first, step, 1);
            paint.scroll_bar(frame, area, Bar::Matrix, matrix.rows.clone(), size);
            (matrix.lines(), matrix.signs(), None)
        }
    };
    lines.extend(legend(open, paint, columns, block, &signs));
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Notes where the cells are: below the line of numbers, behind the names of the rows.
fn note_cells(
    paint: Paint,
    inside: Rect,
    (head, wide): (usize, usize),
    first: (usize, usize),
    step: usize,
    pairs: usize,
) {
    let Some(spots) = paint.spots() else { return };
    let columns = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let area = Rect {
        x: inside.x.saturating_add(columns(head)),
        y: inside.y + 1,
        width: columns(wide),
        height: inside.height.saturating_sub(1),
    };
    spots.add_cells(area.intersection(inside), first, step, pairs);
}

/// Says which communicators are shown.
fn shown(open: &Open) -> String {
    let view = &open.transport_view;
    let views = view.views();
    let which = if views > 1 { format!(" [c: {} of {views}]", open.communicator + 1) } else { String::new() };
    match open.shown_communicator() {
        Some(comm) => {
            let world = if comm.world { "world" } else { "comm" };
            format!("{world} of {} ranks{which} ─ {}", comm.nranks, comm.id)
        }
        None if view.communicators.is_empty() => format!("no communicator{}", open.yet()),
        None => format!("all {} communicators{which}", view.communicators.len()),
    }
}

/// Columns left of the matrix: the name of the row.
fn head_width(open: &Open) -> usize {
    if open.by_rank { 7 } else { 16 }
}

/// Returns the columns of one cell; none for the heat map. Unless one is chosen, the widest form that shows
/// everything is taken.
fn form(open: &Open, columns: usize, rows: usize) -> Option<usize> {
    let size = open.matrix_rows().len();
    let space = columns.saturating_sub(head_width(open));
    match open.form {
        MatrixForm::Letters => Some(3),
        MatrixForm::Compact => Some(2),
        MatrixForm::Dense => Some(1),
        MatrixForm::Heat => None,
        MatrixForm::Auto => [3, 2, 1].into_iter().find(|step| size * step <= space && size <= rows),
    }
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
        let names = open.transport_view.nodes.iter().map(|node| paint::width(&networks(node)) + 2);
        let announced = names.max().unwrap_or(0).clamp(9, 18);
        let phase = spare >= announced + 2 + Self::PHASE;
        Self { announced: if columns >= 70 || spare >= announced + 2 { announced } else { 0 }, phase }
    }

    fn columns(self) -> usize {
        let announced = if self.announced > 0 { self.announced + 2 } else { 0 };
        announced + if self.phase { Self::PHASE } else { 0 }
    }
}

/// Returns the networks that the ranks of a node announced.
fn networks(node: &Node) -> String {
    node.announced.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("+")
}

/// Returns where a window of some size begins, so that the cursor is inside.
fn window(cursor: usize, space: usize, size: usize) -> usize {
    if size <= space { 0 } else { cursor.saturating_sub(space / 2).min(size - space) }
}

/// Returns the sign of a cell, the sign behind it, and what it means.
pub(super) fn sign(open: &Open, row: usize, column: usize) -> (char, char, Meaning) {
    match open.matrix_cell(row, column) {
        Cell::Linked(link) => {
            let (second, meaning) = if open.is_wrong(row, column) {
                ('!', Meaning::Bad)
            } else if link.transports.len() > 1 {
                ('*', Meaning::Warn)
            } else if link.path == Path::default() {
                (' ', Meaning::Warn)
            } else {
                (' ', Meaning::Good)
            };
            (link.path.sign(), second, meaning)
        }
        _ if open.by_rank && row == column => ('-', ' ', Meaning::Muted),
        Cell::NoChannel => ('.', ' ', Meaning::Muted),
        Cell::Unknown => ('?', ' ', Meaning::Muted),
    }
}

/// Returns the name of a row, as wide as the head.
pub(super) fn row_name(open: &Open, row: usize) -> String {
    let view = &open.transport_view;
    let index = open.matrix_rows().get(row).copied().unwrap_or_default();
    if open.by_rank {
        open.matrix_name(row).map_or("?".to_owned(), |rank| format!("r{rank}"))
    } else {
        format!("{index} {}", view.nodes.get(index).map_or("", |node| node.host.as_str()))
    }
}

/// Returns the ranks of a row, as indices of the ranks of the view.
pub(super) fn matrix_ranks(open: &Open, row: usize) -> Vec<usize> {
    let Some(index) = open.matrix_rows().get(row).copied() else { return Vec::new() };
    match open.transport_view.nodes.get(index) {
        _ if open.by_rank => vec![index],
        Some(node) => node.ranks.clone(),
        None => Vec::new(),
    }
}

/// The letters of a part of the matrix, and the text beside its rows.
struct Matrix<'o> {
    open: &'o Open,
    paint: Paint<'o>,
    suspects: Suspects,
    head: usize,
    tail: Tail,
    /// Columns of one cell.
    step: usize,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    cursor: (usize, usize),
}

impl<'o> Matrix<'o> {
    fn new(open: &'o Open, paint: Paint<'o>, columns: usize, rows: usize, step: usize) -> Self {
        let size = open.matrix_rows().len();
        let head = head_width(open);
        // The announced network of each node is beside its row if all or many columns fit.
        let tail = Tail::of(open, columns, columns.saturating_sub(head + step * size));
        let across = (columns.saturating_sub(head + tail.columns()) / step).clamp(1, size);
        let cursor = (open.cell.0.min(size - 1), open.cell.1.min(size - 1));
        let (top, left) = (window(cursor.0, rows, size), window(cursor.1, across, size));
        let (rows, columns) = (top..(top + rows).min(size), left..(left + across).min(size));
        Self { open, paint, suspects: open.suspects(), head, tail, step, rows, columns, cursor }
    }

    fn lines<'a>(&self) -> Vec<Line<'a>> {
        let rows = self.rows.clone().map(|row| self.row(row));
        std::iter::once(self.numbers()).chain(rows).collect()
    }

    /// Returns the signs that occur, beside the letters of transports.
    fn signs(&self) -> String {
        let cells = self.rows.clone().flat_map(|row| self.columns.clone().map(move |column| (row, column)));
        let mut signs: Vec<char> = cells
            .flat_map(|(row, column)| {
                let (letter, second, _) = sign(self.open, row, column);
                [letter, second]
            })
            .collect();
        signs.sort_unstable();
        signs.dedup();
        signs.into_iter().filter(|sign| "!*.?".contains(*sign)).collect()
    }

    fn number(&self, row: usize) -> usize {
        self.open.matrix_name(row).map_or(row, |number| number as usize)
    }

    fn numbers<'a>(&self) -> Line<'a> {
        let mut text = cell("from\\to", self.head);
        match self.step {
            3 => self.columns.clone().for_each(|at| text.push_str(&format!("{:>2} ", self.number(at) % 100))),
            2 => self.columns.clone().for_each(|at| text.push_str(&format!("{:<2}", self.number(at) % 100))),
            _ => {
                // One number for ten columns, if the columns are those of neighbours.
                let tens = self.columns.clone().step_by(10).map(|at| {
                    let wide = 10.min(self.columns.end - at);
                    let number = self.number(at).to_string();
                    if number.len() < wide { cell(&number, wide) } else { " ".repeat(wide) }
                });
                text.extend(tens);
            }
        }
        if self.tail.announced > 0 {
            text.push_str(&format!("  {}", cell("loaded", self.tail.announced)));
        }
        if self.tail.phase {
            text.push_str(" GDR   phase");
        }
        Line::from(self.paint.span(text, Meaning::Muted))
    }

    fn row<'a>(&self, row: usize) -> Line<'a> {
        let (open, paint) = (self.open, self.paint);
        let view = &open.transport_view;
        let index = open.matrix_rows().get(row).copied().unwrap_or_default();
        let label = row_name(open, row);
        let mut spans = vec![if self.suspects.contain_any(view, &matrix_ranks(open, row)) {
            paint.span(format!("{} !", cell(&label, self.head.saturating_sub(2))), Meaning::Bad)
        } else {
            Span::raw(cell(&label, self.head))
        }];
        for column in self.columns.clone() {
            let (letter, second, meaning) = sign(open, row, column);
            let text = match self.step {
                3 => format!(" {letter}{second}"),
                2 => format!("{letter}{second}"),
                _ if second == ' ' => letter.to_string(),
                _ => second.to_string(),
            };
            let here = (row, column) == self.cursor;
            spans.extend(cell_spans(paint, &text, meaning, here));
        }
        if self.tail.announced > 0 {
            let (text, odd) = if open.by_rank {
                (view.ranks.get(index).and_then(|r| r.announced.clone()).unwrap_or_default(), false)
            } else {
                (view.nodes.get(index).map(networks).unwrap_or_default(), odd_node(view, index))
            };
            let text = if odd { format!("{text} !") } else { text };
            let meaning = if odd { Meaning::Bad } else { Meaning::Muted };
            spans.push(paint.span(format!("  {}", cell(&text, self.tail.announced)), meaning));
        }
        if self.tail.phase {
            let phase = phase_word(open, index);
            let gdr = open.matrix_name(row).and_then(|number| open.map()?.gdr(open.by_rank, number));
            spans.push(
                paint.span(format!(" {} {phase}", cell(gdr.map_or("-", Gdr::word), 5)), Meaning::Muted),
            );
        }
        Line::from(spans)
    }
}

/// Returns the phase that the ranks of a row have reached.
fn phase_word(open: &Open, index: usize) -> String {
    let view = &open.transport_view;
    if open.by_rank {
        return view.ranks.get(index).map_or(String::new(), |rank| open.phase_word(rank).to_owned());
    }
    view.nodes.get(index).map_or(String::new(), |node| open.node_word(node).0)
}

/// Returns whether a node announced another network than most.
pub fn odd_node(transport_view: &TransportView, at: usize) -> bool {
    let all = transport_view.announced();
    let Some(most) = all.iter().max_by_key(|(_, count)| **count).map(|(name, _)| *name) else { return false };
    all.len() > 1
        && transport_view
            .nodes
            .get(at)
            .is_some_and(|node| node.announced.iter().any(|(name, _)| name != most))
}

/// Draws a cell: what is wrong is solid, the one under the cursor is selected like a line of a list.
pub(super) fn cell_spans<'a>(paint: Paint, text: &str, meaning: Meaning, here: bool) -> [Span<'a>; 2] {
    // The blank before a letter belongs to no cell.
    let (blank, text) = text.split_at(text.len() - text.trim_start().len());
    let style = match (here, meaning) {
        (true, _) => paint.style(Meaning::Selected),
        (false, Meaning::Bad) => paint.style(Meaning::Bad).add_modifier(Modifier::REVERSED),
        (false, meaning) => paint.style(meaning),
    };
    [Span::raw(blank.to_owned()), Span::styled(text.to_owned(), style)]
}

/// Returns the meaning of the letters and signs that occur, on as many lines as needed.
fn legend<'a>(open: &Open, paint: Paint, columns: usize, block: Option<usize>, signs: &str) -> Vec<Line<'a>> {
    let Some(map) = open.map() else { return Vec::new() };
    let mut words: Vec<String> = Vec::new();
    if let Some(block) = block {
        let unit = if open.by_rank { "ranks" } else { "nodes" };
        words.push(format!("a cell: {block} × {block} {unit}"));
        words.push(format!("{} few to many channels", heat::SHADES.iter().collect::<String>()));
    } else {
        let seen: BTreeSet<Path> = map.links(open.by_rank).values().map(|link| link.path).collect();
        let known = Path::known().filter(|path| seen.contains(path));
        words.extend(known.map(|path| format!("{} {}", path.sign(), path.name())));
    }
    let meanings = [('.', "no channel"), ('?', "not known"), ('*', "mixed"), ('!', "wrong")];
    let occur = meanings.iter().filter(|(sign, _)| signs.contains(*sign));
    words.extend(occur.map(|(sign, meaning)| format!("{sign} {meaning}")));
    if map.unplaced > 0 {
        words.push(format!("{} with unknown global ranks", counted(map.unplaced as usize, "pair")));
    }
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(line) if line.is_empty() || paint::width(line) + paint::width(&word) + 2 <= columns => {
                line.push_str(if line.is_empty() { " " } else { "  " });
                line.push_str(&word);
            }
            _ => lines.push(format!(" {word}")),
        }
    }
    lines.into_iter().map(|line| Line::from(paint.span(line, Meaning::Muted))).collect()
}
