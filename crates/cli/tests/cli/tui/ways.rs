//! The ways in and out: logs opened from inside, `esc`, signals, terminals that cannot draw, themes.

use super::tmux::{AFTER, Tmux, place};
use crate::place::repo;
use weftrun_testkit::child;

#[test]
fn logs_are_opened_from_an_empty_list() {
    let Some(t) = Tmux::start("open", 140, 40) else { return };
    t.wait(&["local ok", "starts a demo on this machine", "makes a new job", "opens logs of a run"]);
    for (folder, signs) in [
        ("tests/cases/failures/sigkill", ["rank 3", "SIGKILL"]),
        ("crates/diagnose/tests/cases/nccl/captures/ofi_tcp_2x2", ["libfabric-tcp", "DONE"]),
    ] {
        t.keys(&["o"]);
        t.wait(&["logs (a file or a folder):"]);
        t.type_text(&repo(folder).display().to_string());
        t.keys(&["Enter"]);
        t.wait(&[&["[2 overview]"][..], &signs].concat());
    }
    t.keys(&["o"]);
    t.wait(&["logs (a file or a folder):"]);
    t.type_text("/nowhere/at/all");
    t.keys(&["Enter"]);
    t.wait(&["there is no capture"]);
}

#[test]
fn esc_leads_to_the_jobs_and_never_out() {
    let Some(t) = Tmux::start("esc", 100, 30) else { return };
    t.wait(&["local ok", "q quit"]);
    t.keys(&["6"]);
    t.wait(&["[new job]"]);
    for _ in 0..4 {
        t.keys(&["Escape"]);
    }
    t.wait(&["[1 jobs]", "q quits"]);
    t.keys(&["q"]);
    t.wait(&["ended with 0"]);
}

#[test]
fn the_jobs_beside_an_open_one_are_hidden_and_resized() {
    let Some(t) = Tmux::replay("rail", (140, 30), "socket_2x2") else { return };
    t.wait(&["─ Jobs ─", "DONE"]);
    t.keys(&["\\"]);
    t.until(
        "no rail",
        |screen| !screen.contains("─ Jobs ─") && screen.contains("socket_2x2 ─ replay"),
        || {},
    );
    t.keys(&["\\", ">"]);
    let wide = |screen: &str| screen.lines().nth(1).and_then(|line| line.chars().position(|c| c == '┬'));
    t.until("a wider rail", |screen| wide(screen).is_some_and(|wide| wide > 28), || {});
}

#[test]
fn sigquit_gives_the_terminal_back() {
    let Some(t) = Tmux::with("sigquit", (100, 30), |weftrun| {
        format!("sh -c 'echo $$ > \"$HOME/pid\"; exec {weftrun}'; echo ended with $?; stty -a; exec cat")
            .replacen(
                "sh -c",
                &format!("{} sh -c", weftrun.rsplit_once(' ').map_or("", |(environment, _)| environment)),
                1,
            )
    }) else {
        return;
    };
    t.wait(&["local ok"]);
    let pid = std::fs::read_to_string(t.home().join("pid")).expect("the process wrote its number");
    let killed = child::command("kill").args(["-QUIT", pid.trim()]).status().expect("kill runs");
    assert!(killed.success());
    let screen = t.wait(&["ended with", " icanon"]);
    assert!(!screen.contains("-icanon") && !screen.contains("[1 jobs]"), "{screen}");
}

#[test]
fn a_terminal_that_cannot_draw_gets_a_sentence() {
    let Some(t) = Tmux::with("dumb", (100, 30), |weftrun| {
        format!("{}; {AFTER}", weftrun.replace("-u NO_COLOR", "-u NO_COLOR TERM=dumb"))
    }) else {
        return;
    };
    let screen = t.wait(&["cannot draw on this terminal", "ended with 2"]);
    assert!(!screen.contains("[1 jobs]"), "{screen}");
}

#[test]
fn the_background_of_the_terminal_chooses_the_theme() {
    for (background, true_colours, theme) in
        [("0;15", "truecolor", "light"), ("15;0", "truecolor", "dark"), ("15;0", "", "default")]
    {
        let Some(t) = Tmux::with(&format!("theme-{theme}"), (100, 30), |weftrun| {
            let environment = format!("-u NO_COLOR COLORFGBG='{background}' COLORTERM={true_colours}");
            format!("{}; exec cat", weftrun.replace("-u NO_COLOR", &environment))
        }) else {
            return;
        };
        t.wait(&["local ok"]);
        // The next theme tells which one it was.
        t.keys(&["T"]);
        let next = match theme {
            "light" => "high-contrast",
            "dark" => "light",
            _ => "colour-blind",
        };
        t.wait(&[&format!("theme: {next}")]);
    }
}

#[test]
fn tabs_cells_and_lines_are_clicked() {
    let Some(t) = Tmux::replay("mouse", (140, 40), "socket_2x2") else { return };
    t.keys(&["m"]);
    t.wait(&["mouse on"]);
    t.click(place(&t.screen(), "fabric"));
    let screen = t.wait(&["[3 fabric]", "0 vm"]);
    let (column, row) = place(&screen, "T!");
    t.click((column, row));
    std::thread::sleep(std::time::Duration::from_millis(300));
    t.click((column, row));
    t.wait(&[
        "node 0 to node 1",
        "node 0 sends to node 1",
        "node 1 sends to node 0",
        "devices",
        "NCCL's lines",
        "via NET/Socket",
    ]);
    t.keys(&["Escape"]);
    t.until("the pair is closed", |screen| !screen.contains("esc closes"), || {});
    t.click(place(&t.screen(), "4 logs"));
    t.wait(&["[4 logs]", "END"]);
    let screen = t.screen();
    let line = screen.lines().position(|line| line.contains("NCCL INFO")).expect("a line") + 1;
    t.click((60, line));
    t.wait(&["PAUSED"]);
}

#[test]
fn the_matrix_has_forms_and_leads_to_what_is_wrong() {
    let what = "socket_2x2 --nodes 128 --ranks-per-node 1";
    let Some(t) = Tmux::replay("forms", (200, 50), what) else { return };
    t.keys(&["3"]);
    // All 128 nodes are on the screen.
    t.wait(&["a cell:", "nodes"]);
    t.keys(&["v"]);
    t.wait(&["letters, three columns", "T!"]);
    t.keys(&["v"]);
    t.wait(&["letters, two columns"]);
    t.keys(&["n", "Enter"]);
    t.wait(&["node 0 to node 1", "TCP socket", "! wrong, see the diagnosis"]);
}

#[test]
fn values_are_picked_from_a_list_by_typing() {
    let Some(t) = Tmux::start("pick", 140, 40) else { return };
    t.wait(&["local ok"]);
    t.keys(&["n"]);
    t.wait(&["> name"]);
    t.keys(&["C-p"]);
    t.wait(&["no list of values is known for name"]);
    t.keys(&["Tab", "Tab", "Tab", "Tab", "Tab", "Tab"]);
    t.wait(&["> instance"]);
    t.keys(&["C-p"]);
    t.wait(&["instance ─", "type to filter"]);
    t.type_text("no-such-type");
    t.wait(&["none with this text"]);
    t.keys(&["Enter"]);
    t.wait(&["none with this text"]);
    t.keys(&["C-u"]);
    t.type_text("p5.48");
    t.wait(&["p5.48xlarge"]);
    t.keys(&["Enter"]);
    t.wait(&["> instance   p5.48xlarge", "--instance-type p5.48xlarge"]);
    // A name that was typed and is in no list is told, and submitted only when asked for again.
    t.keys(&["C-u"]);
    t.type_text("p5.48xlrge");
    t.wait(&["instance `p5.48xlrge` is not in the catalogue; did", "you mean `p5.48xlarge`?"]);
    t.keys(&["C-s"]);
    let screen = t.wait(&["ctrl-s again submits it as it is"]);
    assert!(!screen.contains("submit this job?"), "{screen}");
    t.keys(&["C-s"]);
    t.wait(&["submit this job?", "p5.48xlrge --launch torchrun"]);
}

#[test]
fn lists_and_logs_are_scrolled_by_their_bars() {
    let Some(t) = Tmux::replay("bars", (160, 48), "socket_2x2 --nodes 8 --ranks-per-node 8") else { return };
    t.keys(&["m"]);
    t.wait(&["mouse on"]);
    t.keys(&["z"]);
    // It goes on beside the bar, as long as the button is held.
    let (right, top) = thumb(&t.wait(&["Ranks 64", "> r0 ", "█"]));
    t.drag((right, top), (right - 5, 47));
    let (right, bottom) = thumb(&t.wait(&["> r63"]));
    t.drag((right, bottom), (right - 5, top));
    t.wait(&["> r0 "]);
    t.keys(&["4"]);
    let (right, _) = thumb(&t.wait(&["[4 logs]", "END", "lines", "█"]));
    t.click((right, 3));
    let screen = t.wait(&["PAUSED", "+0 new"]);
    assert_eq!(thumb(&screen), (right, 3), "{screen}");
    t.drag((right, 3), (right, 47));
    t.wait(&["END"]);
}

/// Column and row of the first cell of a scroll bar, from 1.
fn thumb(screen: &str) -> (usize, usize) {
    let found = screen.lines().enumerate().find_map(|(row, line)| {
        let cells: Vec<char> = line.chars().collect();
        cells.iter().rposition(|cell| *cell == '█').map(|column| (column + 1, row + 1))
    });
    found.expect("a bar")
}
