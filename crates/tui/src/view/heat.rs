//! The matrix of a large job as a heat map: each cell stands for a block of pairs and shows the worst of them.

use std::collections::BTreeMap;

use ratatui::text::{Line, Span};

use super::matrix::{cell_spans, matrix_ranks, row_name};
use super::paint::{Paint, cell};
use crate::model::open::Open;
use crate::theme::Meaning;

/// Columns of one cell.
pub(super) const WIDE: usize = 2;
/// Columns left of the map.
pub(super) const HEAD: usize = 16;
/// Shades by the number of channels between the ranks of a block. None is solid: only what is wrong is.
pub(super) const SHADES: [char; 3] = ['░', '▒', '▓'];
/// Cells from one number of a column to the next.
const NUMBERED: usize = 4;

/// What a block shows: the worst of its pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Block {
    channels: u32,
    mixed: bool,
    wrong: bool,
}

/// Returns the ranks or nodes of a cell, so that the whole matrix fits some columns and rows. Ranks of a node are not
/// torn apart where that is possible.
pub(super) fn block(open: &Open, columns: usize, rows: usize) -> usize {
    let size = open.matrix_rows().len();
    let space = (columns.saturating_sub(HEAD) / WIDE).min(rows).max(1);
    let least = size.div_ceil(space).max(1);
    let nodes = open.transport_view.nodes.len();
    let each = if open.by_rank && nodes > 0 { open.transport_view.ranks.len().div_ceil(nodes) } else { 1 };
    let whole = |block: &usize| each.is_multiple_of(*block) || block.is_multiple_of(each.max(1));
    (least..least + each).find(whole).unwrap_or(least)
}

/// Draws the whole matrix, with so many ranks or nodes a cell; and returns the signs that occur.
pub(super) fn lines<'a>(open: &Open, paint: Paint, block: usize) -> (Vec<Line<'a>>, String) {
    let size = open.matrix_rows().len();
    let count = size.div_ceil(block);
    let numbers: Vec<Option<u32>> = (0..size).map(|row| open.matrix_name(row)).collect();
    let blocks = blocks(open, &numbers, block);
    let most = blocks.values().map(|known| known.channels).max().unwrap_or(0).max(1);
    // Whether a channel that is not listed is known not to exist, for the rows of each block.
    let settled: Vec<bool> = numbers
        .chunks(block)
        .map(|chunk| chunk.iter().all(|number| number.is_some_and(|number| open.is_settled(number))))
        .collect();
    let mut signs = String::new();
    let mut head = cell("from\\to", HEAD);
    for column in (0..count).step_by(NUMBERED) {
        let number = numbers.get(column * block).copied().flatten();
        let number = number.map_or_else(String::new, |number| number.to_string());
        let wide = NUMBERED.min(count - column) * WIDE;
        // A number that is cut would be another one.
        head.push_str(&if number.len() <= wide { cell(&number, wide) } else { " ".repeat(wide) });
    }
    let mut lines = vec![Line::from(paint.span(head, Meaning::Muted))];
    let cursor =
        (open.cell.0.min(size.saturating_sub(1)) / block, open.cell.1.min(size.saturating_sub(1)) / block);
    let suspects = open.suspects();
    for row in 0..count {
        let name = row_name(open, row * block);
        let ranks = (row * block..((row + 1) * block).min(size)).flat_map(|row| matrix_ranks(open, row));
        let marked = suspects.contain_any(&open.transport_view, &ranks.collect::<Vec<_>>());
        let mut spans = vec![if marked {
            paint.span(format!("{} !", cell(&name, HEAD - 2)), Meaning::Bad)
        } else {
            Span::raw(cell(&name, HEAD))
        }];
        for column in 0..count {
            let (sign, meaning) = match blocks.get(&(row, column)) {
                Some(known) if known.wrong => ('!', Meaning::Bad),
                Some(known) if known.mixed => ('*', Meaning::Warn),
                Some(known) => (shade(known.channels, most), Meaning::Good),
                None if settled[row] && settled[column] => ('.', Meaning::Muted),
                None => ('?', Meaning::Muted),
            };
            let second = if SHADES.contains(&sign) || sign == '!' { sign } else { ' ' };
            if !signs.contains(sign) {
                signs.push(sign);
            }
            spans.extend(cell_spans(paint, &format!("{sign}{second}"), meaning, (row, column) == cursor));
        }
        lines.push(Line::from(spans));
    }
    (lines, signs)
}

/// Folds the links into blocks.
fn blocks(open: &Open, numbers: &[Option<u32>], block: usize) -> BTreeMap<(usize, usize), Block> {
    let row_of: BTreeMap<u32, usize> =
        numbers.iter().enumerate().filter_map(|(row, number)| Some(((*number)?, row))).collect();
    let mut blocks: BTreeMap<(usize, usize), Block> = BTreeMap::new();
    let Some(map) = open.map() else { return blocks };
    for ((from, to), link) in map.links(open.by_rank) {
        let (Some(row), Some(column)) = (row_of.get(from), row_of.get(to)) else { continue };
        let known = blocks.entry((row / block, column / block)).or_default();
        known.channels = known.channels.saturating_add(link.channels);
        known.mixed |= link.transports.len() > 1;
        known.wrong |= open.is_wrong(*row, *column);
    }
    blocks
}

fn shade(channels: u32, most: u32) -> char {
    let at = channels.saturating_mul(3).saturating_sub(1) / most;
    SHADES[(at as usize).min(SHADES.len() - 1)]
}
