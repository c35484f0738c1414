//! What the screens look like, at the four sizes they are made for.

mod common;

use common::{down, empty, opened, press, screen, type_text, with_jobs};
use weftrun_tui::model::Model;
use weftrun_tui::theme::Theme;

const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 30), (160, 48)];

/// All four sizes of one screen in one snapshot.
fn sizes(name: &str, model: impl Fn() -> Model) {
    let all: Vec<String> = SIZES
        .iter()
        .map(|(columns, rows)| format!("── {columns}x{rows}\n{}", screen(&mut model(), *columns, *rows)))
        .collect();
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, all.join("\n"));
    });
}

fn on(key: &'static str) -> impl Fn() -> Model {
    move || {
        let mut model = opened();
        press(&mut model, key);
        model
    }
}

#[test]
fn jobs() {
    sizes("jobs_empty", empty);
    sizes("jobs", with_jobs);
    sizes("jobs_target_down", down);
}

#[test]
fn overview() {
    sizes("overview_64_ranks", opened);
    sizes("overview_nothing_known", || {
        let mut model = with_jobs();
        press(&mut model, "enter");
        model
    });
}

#[test]
fn fabric() {
    sizes("fabric_nodes", on("3"));
    sizes("fabric_ranks", || {
        let mut model = on("3")();
        press(&mut model, "z");
        model
    });
}

#[test]
fn logs() {
    sizes("logs", on("4"));
    sizes("logs_paused_filtered", || {
        let mut model = on("4")();
        press(&mut model, "&");
        type_text(&mut model, "rank:32");
        press(&mut model, "enter");
        press(&mut model, "f");
        press(&mut model, "b");
        model
    });
}

#[test]
fn diagnosis() {
    sizes("diagnosis", on("5"));
}

#[test]
fn new_job() {
    sizes("new_job", || {
        let mut model = with_jobs();
        press(&mut model, "n");
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

/// Colour is never the only sign: without it the letters are the same.
#[test]
fn without_colour_the_text_is_the_same() {
    for key in ["1", "2", "3", "4", "5", "6"] {
        let mut plain = on(key)();
        plain.theme = Theme::Mono;
        assert_eq!(screen(&mut plain, 80, 24), screen(&mut on(key)(), 80, 24), "{key}");
    }
}

#[test]
fn every_size_in_between_is_drawn() {
    for key in ["1", "2", "3", "4", "5", "6"] {
        let mut model = on(key)();
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
