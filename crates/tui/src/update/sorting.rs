//! Sorts the table of a screen, by key, by a click on a heading or by its name.

use crate::action::Action;
use crate::model::sorting::{Column, Sorting};
use crate::model::{Model, Screen};
use crate::view::mouse_targets::Heading;

/// Sorts the table of the screen by its next column, or the other way round.
pub(super) fn turn(model: &mut Model, action: Action) {
    fn turned<C: Column>(sorting: &mut Sorting<C>, action: Action) -> String {
        match action {
            Action::Reverse => sorting.by(sorting.column),
            _ => sorting.by_next(),
        }
        sorting.words()
    }
    let said = match (model.screen, &mut model.open) {
        (Screen::Overview, Some(open)) => {
            open.row = 0;
            match open.lists_nodes() {
                true => turned(&mut open.nodes_sorted, action),
                false => turned(&mut open.ranks_sorted, action),
            }
        }
        (Screen::Bandwidth, Some(open)) => turned(&mut open.collectives_sorted, action),
        _ => turned(&mut model.jobs.sorted, action),
    };
    model.say(said);
}

/// Sorts a table by the column whose heading was clicked.
pub(super) fn by_heading(model: &mut Model, heading: Heading) {
    match (heading, &mut model.open) {
        (Heading::Job(column), _) => model.jobs.sorted.by(column),
        (_, None) => {}
        (Heading::Rank(column), Some(open)) => {
            open.ranks_sorted.by(column);
            open.row = 0;
        }
        (Heading::Node(column), Some(open)) => {
            open.nodes_sorted.by(column);
            open.row = 0;
        }
        (Heading::Collective(column), Some(open)) => open.collectives_sorted.by(column),
    }
}

/// Sorts a table by the column of this name: the one that the command names (`sort-jobs`), or that of the screen.
pub(super) fn by_name(model: &mut Model, command: &str, name: &str) -> Result<(), String> {
    let screen = match command {
        "sort-jobs" => Screen::Jobs,
        "sort-ranks" => Screen::Overview,
        "sort-collectives" => Screen::Bandwidth,
        _ => model.screen,
    };
    match (screen, &mut model.open) {
        (Screen::Overview | Screen::Bandwidth, None) => Err("no job is open".to_owned()),
        (Screen::Overview, Some(open)) => {
            open.row = 0;
            match open.lists_nodes() {
                true => open.nodes_sorted.by_name(name),
                false => open.ranks_sorted.by_name(name),
            }
        }
        (Screen::Bandwidth, Some(open)) => open.collectives_sorted.by_name(name),
        _ => model.jobs.sorted.by_name(name),
    }
}
