//! What is where on the screen, for the mouse: noted while a frame is drawn.

use std::cell::{Cell, RefCell};

use ratatui::layout::{Position, Rect};
use weftrun::core::job::JobHandle;

use crate::model::Screen;
use crate::model::jobs::JobColumn;
use crate::model::sorting::{CollectiveColumn, NodeColumn, RankColumn};

/// A list that has a scroll bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    Jobs,
    /// The ranks or nodes of the overview.
    Rows,
    Matrix,
    Log,
    Findings,
    /// The collectives of the bandwidth screen.
    Collectives,
    /// The waiting of their ranks.
    Waits,
    Changes,
    /// The text or list on top of the screen.
    Layer,
}

/// The heading of a column by which a table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    Job(JobColumn),
    Rank(RankColumn),
    Node(NodeColumn),
    Collective(CollectiveColumn),
}

/// Something that can be clicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MouseTarget {
    Screen(Screen),
    Job(JobHandle),
    /// A heading of a table.
    Heading(Heading),
    /// A rank or node of the overview, by its row.
    Row(usize),
    /// A cell of the matrix: row, column.
    Cell(usize, usize),
    /// A line of the log, by its number.
    Line(u64),
    /// A finding, by its place in the list.
    Finding(usize),
    /// A collective, by its row.
    Collective(usize),
    /// A place on a scroll bar: the row, and the last row.
    Bar(Bar, usize, usize),
}

/// An area of the screen.
#[derive(Clone, Debug)]
enum Clickable {
    One(MouseTarget),
    Bar(Bar),
    /// Cells of the matrix: those of the first column and row, the columns of a cell, the pairs of a cell.
    Cells {
        first: (usize, usize),
        wide: usize,
        pairs: usize,
    },
}

/// The areas of a frame; later ones lie on earlier ones.
#[derive(Debug, Default)]
pub struct MouseTargets {
    areas: RefCell<Vec<(Rect, Clickable)>>,
    /// The scroll bar on which the mouse button was pressed.
    held: Cell<Option<Bar>>,
}

impl MouseTargets {
    pub fn clear(&self) {
        self.areas.borrow_mut().clear();
    }

    /// Returns what is at a position where the mouse button was pressed.
    pub fn press(&self, column: u16, row: u16) -> Option<MouseTarget> {
        let spot = self.at(column, row);
        self.held.set(match spot {
            Some(MouseTarget::Bar(bar, ..)) => Some(bar),
            _ => None,
        });
        spot
    }

    /// Returns where a scroll bar is dragged to: beside the bar too, until the button is released.
    pub fn drag(&self, row: u16) -> Option<MouseTarget> {
        let held = self.held.get()?;
        let areas = self.areas.borrow();
        let area = areas.iter().rev().find_map(|(area, clickable)| match clickable {
            Clickable::Bar(bar) if *bar == held => Some(*area),
            _ => None,
        })?;
        Some(on_bar(held, area, row))
    }

    pub fn release(&self) {
        self.held.set(None);
    }

    pub fn at(&self, column: u16, row: u16) -> Option<MouseTarget> {
        let areas = self.areas.borrow();
        let (area, clickable) =
            areas.iter().rev().find(|(area, _)| area.contains(Position::new(column, row)))?;
        Some(match clickable {
            Clickable::One(spot) => spot.clone(),
            Clickable::Bar(bar) => on_bar(*bar, *area, row),
            Clickable::Cells { first, wide, pairs } => MouseTarget::Cell(
                first.0 + usize::from(row - area.y) * pairs,
                first.1 + usize::from(column - area.x) / wide * pairs,
            ),
        })
    }

    pub(super) fn add(&self, area: Rect, spot: MouseTarget) {
        self.areas.borrow_mut().push((area, Clickable::One(spot)));
    }

    pub(super) fn add_bar(&self, area: Rect, bar: Bar) {
        self.areas.borrow_mut().push((area, Clickable::Bar(bar)));
    }

    /// Adds the cells of a matrix.
    pub(super) fn add_cells(&self, area: Rect, first: (usize, usize), wide: usize, pairs: usize) {
        self.areas
            .borrow_mut()
            .push((area, Clickable::Cells { first, wide: wide.max(1), pairs: pairs.max(1) }));
    }
}

/// Returns the place on a scroll bar that is at a row, or nearest to it.
fn on_bar(bar: Bar, area: Rect, row: u16) -> MouseTarget {
    let last = area.height.saturating_sub(1);
    MouseTarget::Bar(bar, usize::from(row.saturating_sub(area.y).min(last)), usize::from(last))
}
