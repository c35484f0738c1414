//! Each table is sorted by each of its columns both ways: by key, by a click on a heading, by name.

use weftrun_tui::model::Model;
use weftrun_tui::model::open::Open;
use weftrun_tui::model::sorting::{CollectiveColumn, Column, NodeColumn, RankColumn, Sorting};
use weftrun_tui::view::mouse_targets::{Heading, MouseTarget, MouseTargets};
use weftrun_tui::view::view_for_mouse;

use super::common::{measuring, screen};
use super::*;

#[expect(clippy::expect_used, reason = "a helper of tests")]
fn open(model: &Model) -> &Open {
    model.open.as_ref().expect("a job is open")
}

/// Returns all headings that a click finds on the screen, in the order in which they stand there.
fn headings(model: &mut Model) -> Vec<Heading> {
    let spots = MouseTargets::default();
    let size = (140, 44);
    model.size = size;
    let mut terminal =
        ratatui::Terminal::new(ratatui::backend::TestBackend::new(size.0, size.1)).expect("a terminal");
    terminal.draw(|frame| view_for_mouse(model, frame, &spots)).expect("drawn");
    let at = |row| (0..size.0).map(move |column| (column, row));
    let mut found = Vec::new();
    for (column, row) in (0..size.1).flat_map(at) {
        if let Some(MouseTarget::Heading(heading)) = spots.at(column, row)
            && !found.contains(&heading)
        {
            found.push(heading);
        }
    }
    found
}

/// Clicks each heading twice; each click changes how the table is sorted, the second one to the other way round.
fn click_all(model: &mut Model, rows: impl Fn(&Model) -> Vec<String>, count: usize) {
    let all = headings(model);
    assert_eq!(all.len(), count, "{all:?}");
    for heading in all {
        update(model, Msg::Click(MouseTarget::Heading(heading)));
        assert!(screen(model, 140, 44).contains('▲'), "{heading:?}");
        let mut one = rows(model);
        update(model, Msg::Click(MouseTarget::Heading(heading)));
        assert!(screen(model, 140, 44).contains('▼'), "{heading:?}");
        let mut other = rows(model);
        one.sort();
        other.sort();
        assert_eq!(one, other, "no row is lost by {heading:?}");
    }
}

fn ranks(model: &Model) -> Vec<u32> {
    let open = open(model);
    open.rank_rows().iter().filter_map(|at| open.transport_view.ranks[*at].rank).collect()
}

fn nodes(model: &Model) -> Vec<String> {
    let open = open(model);
    open.node_rows().iter().map(|at| open.transport_view.nodes[*at].host.clone()).collect()
}

#[test]
fn ranks_are_sorted_by_each_column_both_ways() {
    let mut model = opened();
    press(&mut model, "z");
    let mut by = |column: RankColumn, reversed: bool| {
        model.open.as_mut().unwrap().ranks_sorted = Sorting { column, reversed };
        ranks(&model)
    };
    assert_eq!(by(RankColumn::Rank, false), (0..64).collect::<Vec<_>>());
    assert_eq!(by(RankColumn::Rank, true), (0..64).rev().collect::<Vec<_>>());
    assert_eq!(by(RankColumn::Phase, false)[..2], [40, 41], "the slowest node");
    assert_eq!(by(RankColumn::Gpu, false)[..3], [0, 8, 16]);
    assert_eq!(by(RankColumn::Gpu, true)[..2], [7, 15]);
    assert_eq!(by(RankColumn::Loaded, true)[0], 32, "the only node with Socket");
    assert_eq!(by(RankColumn::Warnings, false)[0], 32);
    assert_eq!(by(RankColumn::Host, true)[0], 63);
    let rows = |model: &Model| ranks(model).iter().map(u32::to_string).collect();
    click_all(&mut model, rows, RankColumn::ALL.len() - 1);
}

#[test]
fn keys_sort_the_ranks_and_the_first_row_is_chosen() {
    let mut model = opened();
    press(&mut model, "z");
    press(&mut model, "end");
    while open(&model).ranks_sorted.column != RankColumn::Rank {
        press(&mut model, "s");
    }
    press(&mut model, "r");
    assert_eq!(open(&model).chosen_ranks(), [63]);
    assert!(model.notice.as_ref().unwrap().text.contains("ranks sorted by rank, the other way round"));
}

#[test]
fn nodes_are_sorted_and_the_log_is_that_of_the_chosen_one() {
    let mut model = opened();
    assert!(open(&model).lists_nodes());
    press(&mut model, "s");
    assert_eq!(open(&model).nodes_sorted.column, NodeColumn::Reached);
    assert_eq!(nodes(&model)[0], "ip-1-17", "the slowest");
    assert_eq!(open(&model).chosen_ranks(), (40..48).collect::<Vec<_>>());
    click_all(&mut model, nodes, NodeColumn::ALL.len() - 1);
}

#[test]
fn collectives_are_sorted_and_the_cursor_stays_on_its_own() {
    let mut model = measuring();
    press(&mut model, "b");
    press(&mut model, "down");
    let chosen = |model: &Model| open(model).chosen_collective().map(|row| row.communicator.id.clone());
    let before = chosen(&model);
    let speeds = |model: &Model| -> Vec<f64> {
        let size = |row: &weftrun_tui::model::bandwidth::CollectiveRow<'_>| row.speed.main_size()?.busbw_gbps;
        open(model).collectives().iter().filter_map(size).collect()
    };
    while open(&model).collectives_sorted.column != CollectiveColumn::BusBandwidth {
        press(&mut model, "s");
    }
    assert!(speeds(&model).is_sorted());
    press(&mut model, "r");
    assert!(speeds(&model).iter().rev().is_sorted());
    assert_eq!(chosen(&model), before);
    let rows = |model: &Model| -> Vec<String> {
        let name = |row: &weftrun_tui::model::bandwidth::CollectiveRow<'_>| {
            format!("{} {}", row.communicator.id, row.speed.collective)
        };
        open(model).collectives().iter().map(name).collect()
    };
    click_all(&mut model, rows, headings_of_collectives());
}

/// All but the order by trouble, which has no column, and the communicator, which needs a wider screen.
fn headings_of_collectives() -> usize {
    CollectiveColumn::ALL.len() - 2
}
