//! What all screens have in common: one selection, one red thing, no doubled borders, ASCII where there is nothing else.
#![allow(clippy::unwrap_used, reason = "a test ends with a panic, and says why")]

mod common;

use common::{broken, buffer, drafted, empty, measuring, one, opened, press, screen, with_jobs};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use weftrun_tui::model::Model;
use weftrun_tui::theme::{Meaning, Theme};

type State = fn() -> Model;
const STATES: [State; 7] = [empty, with_jobs, one, opened, broken, measuring, drafted];
const KEYS: [&str; 7] = ["1", "2", "3", "4", "5", "6", "7"];
const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 40), (200, 60)];
const THEMES: [Theme; 3] = [Theme::Dark, Theme::Light, Theme::Default];

/// The text of a screen, to be read where a test fails.
fn text(buffer: &Buffer) -> String {
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_screen_has_one_red_thing_one_selection_and_single_borders() {
    for begin in STATES {
        for key in KEYS {
            let mut model = begin();
            press(&mut model, key);
            model.notice = None;
            for (columns, rows) in SIZES {
                for theme in THEMES {
                    model.theme = theme;
                    let buffer = buffer(&mut model, columns, rows);
                    has_one_red_thing(key, theme, &buffer);
                    has_one_selection(theme, &buffer);
                    if theme == THEMES[0] {
                        has_single_borders(&buffer);
                    }
                }
            }
        }
    }
}

/// Red is the worst of the screen: one thing in neighbouring lines. The matrix has a cell for each wrong pair, and a log a
/// letter for each error.
fn has_one_red_thing(key: &str, theme: Theme, buffer: &Buffer) {
    if ["3", "4"].contains(&key) {
        return;
    }
    let red = theme.style(Meaning::Bad).fg.unwrap();
    let is_red = |x, y| buffer[(x, y)].fg == red && buffer[(x, y)].symbol() != " ";
    let rows: Vec<u16> =
        (0..buffer.area.height).filter(|y| (0..buffer.area.width).any(|x| is_red(x, *y))).collect();
    let together = rows.windows(2).all(|pair| pair[1] == pair[0] + 1) && rows.len() <= 3;
    assert!(together, "{key} {rows:?}\n{}", text(buffer));
}

fn has_single_borders(buffer: &Buffer) {
    for y in 1..buffer.area.height {
        let side = |x: u16| matches!(buffer[(x, y)].symbol(), "│" | "├" | "┬");
        assert!(!(1..buffer.area.width).any(|x| side(x) && side(x - 1)), "{}", text(buffer));
        let rule = |y: u16| (0..buffer.area.width).filter(|x| buffer[(*x, y)].symbol() == "─").count();
        let most = usize::from(buffer.area.width) / 2;
        assert!(rule(y) <= most || rule(y - 1) <= most, "{}", text(buffer));
    }
}

/// What is selected is a bar of one style: the colours of the terminal, exchanged. What is wrong in the matrix is solid
/// too, in its colour.
fn has_one_selection(theme: Theme, buffer: &Buffer) {
    let wrong = [Meaning::Bad, Meaning::Wrong].map(|meaning| theme.style(meaning).fg.unwrap());
    for cell in buffer.content().iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED)) {
        let solid = wrong.contains(&cell.fg) && "!ETPSN*?.".contains(cell.symbol().trim());
        assert!(cell.fg == Color::Reset || solid, "{cell:?}\n{}", text(buffer));
    }
}

#[test]
fn a_terminal_without_unicode_gets_ascii() {
    for begin in STATES {
        for key in KEYS {
            let mut model = begin();
            model.ascii = true;
            press(&mut model, key);
            for (columns, rows) in SIZES {
                let shown = screen(&mut model, columns, rows);
                assert!(shown.is_ascii(), "{key}\n{shown}");
            }
        }
    }
    let mut model = opened();
    model.ascii = true;
    let shown = screen(&mut model, 120, 40);
    assert!(shown.contains("nodes     ####") && shown.contains("rings     ##"), "{shown}");
}

/// Bars fill their columns however many ranks there are, and what is wrong stands above the ranks.
#[test]
fn sixteen_ranks_keep_bars_map_and_diagnosis() {
    let mut model = opened();
    let mut view = common::transport_view();
    view.ranks.truncate(16);
    view.findings[0].ranks = vec![3];
    view.maps.iter_mut().for_each(|map| *map = Default::default());
    let mut links = weftrun_tui::model::transport_view::LinkMap::default();
    let link = weftrun_tui::model::transport_view::Link {
        path: weftrun_tui::model::transport_view::Path::P2p,
        channels: 4,
        pairs: 1,
        ..Default::default()
    };
    for rank in 0..16u32 {
        links.add(rank, (rank + 1) % 16, &link);
    }
    view.maps[0] = links;
    view.group();
    view.place_links();
    let name = model.open.as_ref().unwrap().handle.clone();
    weftrun_tui::update::update(
        &mut model,
        weftrun_tui::msg::Msg::TransportView(name, std::sync::Arc::new(view)),
    );
    let shown = screen(&mut model, 120, 40);
    for text in ["Diagnosis", "Ranks 16", "Fabric ─ node × node", "r15"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    let row = |text: &str| shown.lines().position(|line| line.contains(text)).unwrap();
    assert!(
        row("node 4 announced Socket") < row("Ranks 16") && row("Diagnosis") < row("Ranks 16"),
        "{shown}"
    );
    let bar = shown.lines().find(|line| line.contains("init ")).unwrap();
    assert!(bar.matches('▄').count() > 20, "{bar}");
}

#[test]
fn the_heat_map_numbers_its_columns_and_explains_only_what_it_shows() {
    let mut model = opened();
    for key in ["3", "z", "v", "v", "v", "v"] {
        press(&mut model, key);
    }
    let shown = screen(&mut model, 120, 40);
    let head = shown.lines().find(|line| line.contains("from\\to")).unwrap();
    assert!(head.split_whitespace().filter(|word| word.parse::<u32>().is_ok()).count() > 3, "{head}");
    assert!(shown.contains("ranks") && shown.contains("a cell: ") && shown.contains("! wrong"), "{shown}");
    assert!(!shown.contains("* mixed"), "{shown}");
    // What is wrong is solid and red; what is good is neither.
    model.open.as_mut().unwrap().cell = (63, 63);
    let cells = buffer(&mut model, 120, 40);
    let wrong: Vec<_> = cells
        .content()
        .iter()
        .filter(|cell| cell.modifier.contains(Modifier::REVERSED) && cell.symbol() == "!")
        .collect();
    assert!(!wrong.is_empty());
    let solid = |symbol: &str| symbol == "█";
    assert!(!cells.content().iter().filter(|cell| cell.fg == Color::Green).any(|cell| solid(cell.symbol())));
}
