//! What is where on the screen, for the mouse: noted while a frame is drawn.

use std::cell::RefCell;

use ratatui::layout::{Position, Rect};
use weftrun::core::job::JobHandle;

use crate::model::Screen;

/// Something that can be clicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    /// A tab.
    Screen(Screen),
    /// A job of the list.
    Job(JobHandle),
    /// A rank or node of the overview, by its row.
    Row(usize),
    /// A cell of the matrix: row, column.
    Cell(usize, usize),
    /// A line of the log, by its number.
    Line(u64),
    /// A finding, by its place in the list.
    Finding(usize),
}

/// An area of the screen.
#[derive(Clone, Debug)]
enum Clickable {
    One(Spot),
    /// Cells of the matrix: those of the first column and row, the columns of a cell, the pairs of a cell.
    Cells {
        first: (usize, usize),
        wide: usize,
        pairs: usize,
    },
}

/// The areas of a frame; later ones lie on earlier ones.
#[derive(Debug, Default)]
pub struct Spots(RefCell<Vec<(Rect, Clickable)>>);

impl Spots {
    /// Forgets all areas.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Returns what is at a position.
    pub fn at(&self, column: u16, row: u16) -> Option<Spot> {
        let areas = self.0.borrow();
        let (area, clickable) =
            areas.iter().rev().find(|(area, _)| area.contains(Position::new(column, row)))?;
        Some(match clickable {
            Clickable::One(spot) => spot.clone(),
            Clickable::Cells { first, wide, pairs } => Spot::Cell(
                first.0 + usize::from(row - area.y) * pairs,
                first.1 + usize::from(column - area.x) / wide * pairs,
            ),
        })
    }

    pub(super) fn add(&self, area: Rect, spot: Spot) {
        self.0.borrow_mut().push((area, Clickable::One(spot)));
    }

    /// Adds the cells of a matrix.
    pub(super) fn add_cells(&self, area: Rect, first: (usize, usize), wide: usize, pairs: usize) {
        self.0.borrow_mut().push((area, Clickable::Cells { first, wide: wide.max(1), pairs: pairs.max(1) }));
    }
}
