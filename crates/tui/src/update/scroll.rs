//! Scroll bars: a click or a drag moves to that part of a list.

use crate::model::Model;
use crate::model::draft::{Field, Shown};
use crate::model::layer::{Layer, picked};
use crate::view::mouse_targets::Bar;

/// Moves a list to a row of its scroll bar, of which the last row is given too.
pub(super) fn to(model: &mut Model, bar: Bar, row: (usize, usize)) {
    match bar {
        Bar::Layer => layer(model, row),
        Bar::Jobs => {
            let shown = model.jobs.shown();
            let entry = shown.get(part(row, shown.len().saturating_sub(1)));
            model.jobs.selected = entry.map(|entry| entry.summary.handle.clone());
        }
        Bar::Changes => {
            let Some(draft) = &mut model.draft else { return };
            draft.field = Field::Changes;
            match draft.shown {
                Shown::Changes => draft.change = part(row, draft.changes().len().saturating_sub(1)),
                Shown::Diff | Shown::Beside => draft.scroll = Some(part(row, draft.document_length())),
            }
        }
        Bar::Rows | Bar::Matrix | Bar::Log | Bar::Findings | Bar::Collectives | Bar::Waits => {
            let Some(open) = &mut model.open else { return };
            match bar {
                Bar::Rows => open.row = part(row, open.listed().saturating_sub(1)),
                Bar::Matrix => open.cell.0 = part(row, open.matrix_rows().len().saturating_sub(1)),
                Bar::Collectives => {
                    open.choose_collective(part(row, open.collectives().len().saturating_sub(1)));
                }
                Bar::Waits => {
                    let ranks = open.chosen_collective().map_or(0, |row| row.speed.arrival.waits.len());
                    open.first_wait = part(row, ranks.saturating_sub(1));
                }
                Bar::Findings => open.finding = part(row, open.findings().len().saturating_sub(1)),
                _ => open.logs.scroll_to(row),
            }
        }
    }
}

fn layer(model: &mut Model, row: (usize, usize)) {
    let last = crate::view::layers::last_line(model);
    let actions = match model.layers.last() {
        Some(Layer::Palette { input, .. }) => super::palette_rows(model, input.value()).len(),
        _ => 0,
    };
    match model.layers.last_mut() {
        Some(Layer::Text { scroll, .. } | Layer::Help { scroll, .. }) => *scroll = part(row, last),
        Some(Layer::Palette { selected, .. }) => *selected = part(row, actions.saturating_sub(1)),
        Some(Layer::Pick { values, input, selected, .. }) => {
            *selected = part(row, picked(values, input.value()).len().saturating_sub(1));
        }
        _ => {}
    }
}

/// Returns the place in a list, of which the last is given, that a row of its scroll bar means.
pub(crate) fn part((row, last_row): (usize, usize), last: usize) -> usize {
    last.saturating_mul(row) / last_row.max(1)
}
