//! The headings of a table: which column it is sorted by, and where a click sorts it.

use ratatui::layout::Rect;
use ratatui::text::Line;

use super::mouse_targets::{Heading, MouseTarget};
use super::paint::{Paint, cell, fit, width};
use crate::model::sorting::{Column, Sorting};
use crate::theme::Meaning;

/// A column of a table. Its width includes the blanks beside it; one without a width is not shown.
pub(super) struct Head<C> {
    word: &'static str,
    column: Option<C>,
    wide: usize,
    right: bool,
}

impl<C> Head<C> {
    /// A column whose words begin on its left.
    pub fn left(word: &'static str, column: impl Into<Option<C>>, wide: usize) -> Self {
        Self { word, column: column.into(), wide, right: false }
    }

    /// A column whose numbers end on its right.
    pub fn right(word: &'static str, column: impl Into<Option<C>>, wide: usize) -> Self {
        Self { right: true, ..Self::left(word, column, wide) }
    }
}

impl Paint<'_> {
    /// Returns the headings of a table that stand in a row of an area, and notes where a click sorts by them.
    pub(super) fn headings<'a, C: Column>(
        self,
        (inside, row): (Rect, usize),
        sorted: Sorting<C>,
        heads: &[Head<C>],
        heading: fn(C) -> Heading,
    ) -> Line<'a> {
        let mut text = String::new();
        for head in heads.iter().filter(|head| head.wide > 0) {
            if let Some(column) = head.column {
                let begin = u16::try_from(width(&text)).unwrap_or(u16::MAX);
                let place = Rect {
                    x: inside.x.saturating_add(begin),
                    width: u16::try_from(head.wide).unwrap_or(u16::MAX),
                    ..inside
                };
                self.spot(place.intersection(inside), row, || MouseTarget::Heading(heading(column)));
            }
            let mark = match (head.column == Some(sorted.column), sorted.reversed) {
                (false, _) => "",
                (true, false) => "▲",
                (true, true) => "▼",
            };
            let word = format!("{}{mark}", head.word);
            text.push_str(&match head.right {
                true => format!("{}{word}", " ".repeat(head.wide.saturating_sub(width(&word)))),
                false => cell(&word, head.wide),
            });
        }
        Line::from(self.span(fit(&text, usize::from(inside.width)).into_owned(), Meaning::Muted))
    }
}
