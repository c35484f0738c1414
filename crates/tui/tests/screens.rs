//! What the screens look like, at the four sizes they are made for.
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

mod common;

use std::sync::Arc;

use common::{
    batch, broken, drafted, empty, handle, health, measuring, now, one, opened, press, rank_source, recorded,
    screen, type_text, with_jobs,
};
use weftrun_tui::model::Model;
use weftrun_tui::model::draft::Field;
use weftrun_tui::model::transport_view::TransportView;
use weftrun_tui::msg::Msg;
use weftrun_tui::theme::Theme;
use weftrun_tui::update::update;

const SIZES: [(u16, u16); 2] = [(80, 24), (160, 48)];

/// Both sizes of one screen in one snapshot.
fn sizes(name: &str, model: impl Fn() -> Model) {
    shown(name, &SIZES, model);
}

/// A screen in some sizes in one snapshot.
fn shown(name: &str, sizes: &[(u16, u16)], model: impl Fn() -> Model) {
    let all: Vec<String> = sizes
        .iter()
        .map(|(columns, rows)| format!("── {columns}x{rows}\n{}", screen(&mut model(), *columns, *rows)))
        .collect();
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, all.join("\n"));
    });
}

fn on(key: &'static str) -> impl Fn() -> Model {
    then(opened, &[key])
}

/// A model after some keys.
fn then(begin: fn() -> Model, keys: &[&'static str]) -> impl Fn() -> Model + use<> {
    let keys = keys.to_vec();
    move || {
        let mut model = begin();
        for key in &keys {
            press(&mut model, key);
        }
        model
    }
}

/// A job of which NCCL's RAS service named a rank twelve seconds ago.
fn stuck() -> Model {
    let mut model = opened();
    press(&mut model, "H");
    update(&mut model, Msg::Health(handle("moe-abl-2"), Ok(Box::new(health()))));
    let later = now().checked_add(jiff::SignedDuration::from_secs(12)).unwrap();
    update(&mut model, Msg::Now(later));
    model
}

/// Makes a screen's model.
type State = fn() -> Model;

/// The states every screen is shown in.
const STATES: [(&str, State); 4] =
    [("empty", empty), ("one_rank", one), ("64_ranks", opened), ("error", broken)];

#[test]
fn every_screen_in_every_state() {
    let keys: [(&str, &[&str]); 6] = [
        ("jobs", &["1"]),
        ("overview", &["2"]),
        ("fabric", &["3"]),
        ("logs", &["4"]),
        ("diagnosis", &["5"]),
        ("new_job", &["6"]),
    ];
    for (name, keys) in keys {
        for (state, begin) in STATES {
            sizes(&format!("{name}_{state}"), then(begin, keys));
        }
    }
}

#[test]
fn overview() {
    sizes("overview_by_rank", then(opened, &["2", "z", "s"]));
    sizes("overview_nothing_known", then(with_jobs, &["enter"]));
    sizes("overview_stuck", then(stuck, &["2"]));
    sizes("overview_stuck_by_rank", then(stuck, &["2", "z"]));
}

/// A job that was submitted again is one line, with the attempts before it and their causes.
fn retried() -> Model {
    let mut model = with_jobs();
    let first = handle("llama70b-sft-2");
    let attempt = serde_json::json!({
        "first": "0123456789abcdef0123456789abcdef", "name": "llama70b-sft", "number": 2, "most": 3,
        "earlier": [{"job": first.to_string(), "why": "GPU-LOST: Xid 79: the GPU has fallen off the bus"}],
        "left_out": [{"node": "gpu-17", "why": "GPU-LOST"}], "for_network": 0,
    });
    let attempt = serde_json::from_value(attempt).unwrap();
    update(&mut model, Msg::Attempts([(handle("moe-abl-2"), attempt)].into_iter().collect()));
    model
}

#[test]
fn attempts_are_one_job() {
    sizes("jobs_attempts", retried);
    assert!(!screen(&mut retried(), 160, 48).contains("rank 17 exited"));
    // Without the second attempt, the first one stands for itself.
    let mut deleted = retried();
    deleted.jobs.entries.retain(|entry| entry.summary.handle != handle("moe-abl-2"));
    assert!(screen(&mut deleted, 160, 48).contains("rank 17 exited"));
}

#[test]
fn output_of_unknown_ranks_is_output() {
    let mut model = with_jobs();
    press(&mut model, "enter");
    let store = model.open.as_ref().unwrap().logs.store.clone();
    let source = std::sync::Arc::new(weftrun::core::log::SourceId::new("node0"));
    store.write(|store| store.ingest(&batch(&source, &["step 7 loss 2.7"], 1)));
    update(&mut model, Msg::LogsGrew);
    let shown = screen(&mut model, 80, 24);
    assert!(!shown.contains("no rank output"), "{shown}");
    assert!(shown.contains("there is output, but no line names its rank; 4 opens the logs"), "{shown}");
}

#[test]
fn fabric() {
    sizes("fabric_ranks", then(opened, &["3", "z"]));
    sizes("fabric_other_communicator", then(opened, &["3", "c"]));
    sizes("fabric_stuck", then(stuck, &["3"]));
    sizes("fabric_cell", then(opened, &["3", "right", "enter"]));
}

#[test]
fn bandwidth() {
    const TWO: [(u16, u16); 2] = [(80, 24), (160, 48)];
    shown("bandwidth_64_ranks", &TWO, then(measuring, &["7"]));
    shown("bandwidth_recorded", &TWO, then(recorded, &["b"]));
    shown("bandwidth_details", &TWO, then(measuring, &["7", "enter"]));
    shown("bandwidth_not_measured", &TWO, then(opened, &["7"]));
    // The late rank and its node are marked like the culprit of a failure.
    shown("bandwidth_late_rank", &TWO, then(measuring, &["2", "z"]));
    shown("bandwidth_late_node", &TWO, then(measuring, &["3"]));
}

/// They are lines of the job, although the log does not show them.
#[test]
fn a_job_that_prints_measurements_alone_wrote_something() {
    let mut model = with_jobs();
    press(&mut model, "enter");
    let measured = recorded().open.unwrap().transport_view.measured.clone();
    let view = TransportView { measured, ..TransportView::default() };
    let name = model.open.as_ref().unwrap().handle.clone();
    update(&mut model, Msg::TransportView(name.clone(), Arc::new(view)));
    update(&mut model, Msg::LogsEnded(name, None));
    assert!(
        screen(&mut model, 80, 24).contains("no line but measurements of NCCL's collectives; 7 shows them")
    );
    press(&mut model, "4");
    assert!(screen(&mut model, 80, 24).contains("No line but measurements"));
}

#[test]
fn logs() {
    sizes("logs_paused_filtered", || {
        let mut model = on("4")();
        press(&mut model, "&");
        type_text(&mut model, "rank:32");
        press(&mut model, "enter");
        press(&mut model, "f");
        press(&mut model, "b");
        model
    });
    sizes("logs_pinned_and_folded", || {
        let mut model = on("4")();
        let store = model.open.as_ref().unwrap().logs.store.clone();
        for rank in 0..8 {
            store.write(|store| {
                store.ingest(&batch(&rank_source(rank), &["NCCL INFO Using network Socket"], 10));
            });
        }
        update(&mut model, Msg::LogsGrew);
        press(&mut model, "K");
        press(&mut model, "=");
        model
    });
}

#[test]
fn new_job() {
    sizes("new_job_planned", drafted);
    sizes("new_job_rules", || {
        let mut model = drafted();
        model.draft.as_mut().unwrap().field = Field::Changes;
        model
    });
    sizes("new_job_diff", then(drafted, &["ctrl-d"]));
    sizes("new_job_side_by_side", then(drafted, &["ctrl-d", "ctrl-d"]));
    sizes("new_job_confirm", then(drafted, &["ctrl-s"]));
    sizes("new_job_refused", || {
        let mut model = with_jobs();
        press(&mut model, "n");
        let revision = model.draft.as_ref().unwrap().revision;
        let error = "job `job`: an image is needed in a container cluster; image = \"…\" names it".to_owned();
        update(&mut model, Msg::Planned(revision, Err(error)));
        model
    });
}

#[test]
fn layers() {
    sizes("help", || {
        let mut model = opened();
        press(&mut model, "?");
        model
    });
    sizes("signs", || {
        let mut model = opened();
        press(&mut model, "?");
        press(&mut model, "?");
        model
    });
    sizes("palette", || {
        let mut model = opened();
        press(&mut model, ":");
        type_text(&mut model, "re");
        model
    });
    sizes("confirm_cancel", || {
        let mut model = opened();
        press(&mut model, "x");
        model
    });
}

#[test]
fn below_the_smallest_size_one_line_says_so() {
    assert_eq!(screen(&mut opened(), 59, 3).trim_end(), "weftrun needs 60x15, has 59x3");
}

/// Colour is never the only sign: without it the letters are the same, and none is left.
#[test]
fn without_colour_the_text_is_the_same() {
    for begin in STATES.map(|(_, begin)| begin).into_iter().chain([measuring as State]) {
        for key in ["1", "2", "3", "4", "5", "6", "7"] {
            let mut coloured = begin();
            press(&mut coloured, key);
            let mut plain = begin();
            plain.theme = Theme::Mono;
            press(&mut plain, key);
            for (columns, rows) in SIZES {
                assert_eq!(screen(&mut plain, columns, rows), screen(&mut coloured, columns, rows), "{key}");
                let buffer = common::buffer(&mut plain, columns, rows);
                let reset = ratatui::style::Color::Reset;
                assert!(buffer.content().iter().all(|cell| cell.fg == reset && cell.bg == reset), "{key}");
            }
        }
    }
}

#[test]
fn every_size_in_between_is_drawn() {
    for key in ["1", "2", "3", "4", "5", "6", "7"] {
        let mut model = then(measuring, &[key])();
        for columns in [1, 13, 59, 60, 61, 99, 119, 120, 149, 169] {
            for rows in [1, 14, 15, 19, 33, 50] {
                let shown = screen(&mut model, columns, rows);
                let small = columns < 60 || rows < 15;
                assert_eq!(
                    shown.starts_with("weftrun needs") || shown.starts_with('w'),
                    small,
                    "{columns}x{rows}\n{shown}"
                );
            }
        }
    }
}
