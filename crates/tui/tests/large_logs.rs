//! Logs that are too large to be filtered and searched between two frames, and logs that lose their oldest lines.
#![allow(clippy::unwrap_used, reason = "what the tests share is of the tests")]
#![allow(clippy::panic, reason = "a test ends with a panic, and says why")]

mod common;

use common::{batch, handle, opened, press, rank_source, screen, type_text};
use weftrun::core::log::{LogPosition, LogStore, Pattern, Projection};
use weftrun_tui::model::Model;
use weftrun_tui::model::logs::SharedStore;
use weftrun_tui::msg::{Effect, Msg};
use weftrun_tui::update::update;

/// A log of more than 64 MB: two ranks whose lines are merged by time, with a needle in every tenth pair.
fn large() -> (Model, SharedStore) {
    let store = SharedStore::new(LogStore::new(1 << 28));
    let filler = "x".repeat(60_000);
    for rank in 0..2 {
        let source = rank_source(rank);
        for second in 0..600 {
            let needle = if second % 10 == 0 { "needle" } else { "hay" };
            let line = format!("{needle} {second} of rank {rank} {filler}");
            // Those of rank 1 come after those of rank 0, and were written between them.
            store.write(|s| s.ingest(&batch(&source, &[&line], 2 * second + i64::from(rank))));
        }
    }
    let mut model = opened();
    press(&mut model, "4");
    let (number, all) = filter(update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store.clone())));
    finish(&mut model, number, all, &store);
    (model, store)
}

/// Applies a filter as the program does beside the screen.
fn finish(
    model: &mut Model,
    number: u64,
    mut projection: Box<Projection>,
    store: &SharedStore,
) -> Vec<Effect> {
    while !projection.update_part(&store.read(), 100) {}
    update(model, Msg::Filtered(number, projection))
}

fn shown(model: &Model) -> usize {
    model.open.as_ref().unwrap().logs.projection.len()
}

fn filter(effects: Vec<Effect>) -> (u64, Box<Projection>) {
    match effects.into_iter().next_back() {
        Some(Effect::Filter(number, _, projection)) => (number, projection),
        other => panic!("{other:?}"),
    }
}

fn places(store: &SharedStore, text: &str) -> Vec<LogPosition> {
    let store = store.read();
    let hits = store.search_all(&Pattern::literal(text).unwrap());
    hits.into_iter().map(|seq| store.place(&store.get(seq).unwrap())).collect()
}

#[test]
fn a_filter_of_a_large_log_is_applied_while_it_is_typed_and_beside_the_screen() {
    let (mut model, store) = large();
    let all = shown(&model);
    assert_eq!(all, 1200);
    press(&mut model, "&");
    let first = filter(type_text(&mut model, "need"));
    assert_eq!(shown(&model), all, "what is shown stays until the answer is there");
    update(&mut model, Msg::Filtering(first.0, 34));
    assert!(screen(&mut model, 140, 40).contains("filtering, 34 %"));
    let second = filter(type_text(&mut model, "le 3"));
    finish(&mut model, first.0, first.1, &store);
    assert_eq!(shown(&model), all, "another filter was typed meanwhile");
    finish(&mut model, second.0, second.1, &store);
    let some = shown(&model);
    assert!(some > 0 && some < 120, "{some}");
    assert!(!screen(&mut model, 140, 40).contains("filtering"));
    // Dropped again: it was never accepted.
    let third = filter(press(&mut model, "esc"));
    finish(&mut model, third.0, third.1, &store);
    assert_eq!((shown(&model), model.open.as_ref().unwrap().logs.filter.as_str()), (all, ""));
}

#[test]
fn n_goes_through_the_hits_of_a_large_log_in_the_order_of_its_lines() {
    let (mut model, store) = large();
    press(&mut model, "/");
    type_text(&mut model, "needle");
    let count = |effects: Vec<Effect>| match effects.into_iter().next_back() {
        Some(Effect::Count(count)) => count.number,
        other => panic!("{other:?}"),
    };
    let number = count(press(&mut model, "enter"));
    let ends = (0, store.read().end());
    update(&mut model, Msg::Counted(number, ends, places(&store, "needle")));
    let found = |model: &Model| model.open.as_ref().unwrap().logs.found();
    assert_eq!(found(&model), Some((Some(120), 120)));
    press(&mut model, "g");
    let mut seen = Vec::new();
    for position in 1..=4 {
        assert_eq!(found(&model), Some((Some(position), 120)));
        let pane = &model.open.as_ref().unwrap().logs;
        let entry = store.read().get(pane.cursor.unwrap()).unwrap();
        seen.push(entry.clean().text.chars().take(18).collect::<String>());
        press(&mut model, "n");
    }
    assert_eq!(
        seen,
        ["needle 0 of rank 0", "needle 0 of rank 1", "needle 10 of rank ", "needle 10 of rank "]
    );
    press(&mut model, "N");
    press(&mut model, "N");
    assert_eq!(found(&model), Some((Some(3), 120)));
}

#[test]
fn hits_that_the_store_has_dropped_are_not_counted() {
    let mut model = opened();
    let store = SharedStore::new(LogStore::new(1 << 20));
    let source = rank_source(0);
    store.write(|s| s.ingest(&batch(&source, &["needle one", "needle two"], 0)));
    update(&mut model, Msg::LogsOpened(handle("moe-abl-2"), store.clone()));
    press(&mut model, "4");
    press(&mut model, "/");
    type_text(&mut model, "needle");
    press(&mut model, "enter");
    let number = model.counts;
    update(&mut model, Msg::Counted(number, (0, 2), places(&store, "needle")));
    let hits = |model: &Model| model.open.as_ref().unwrap().logs.found().map(|found| found.1);
    assert_eq!(hits(&model), Some(2));
    let flood: Vec<String> =
        (0..40_000).map(|line| format!("line {line} of a flood of many lines")).collect();
    let flood: Vec<&str> = flood.iter().map(String::as_str).collect();
    for part in flood.chunks(1000) {
        store.write(|s| s.ingest(&batch(&source, part, 1)));
    }
    let gone = !store.read().holds(0);
    assert!(gone && store.read().dropped() > 0, "the store is too small for the flood");
    update(&mut model, Msg::LogsGrew);
    assert_eq!(hits(&model), Some(0));
}
