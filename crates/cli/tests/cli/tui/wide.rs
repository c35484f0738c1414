//! Characters that terminals disagree about leave nothing behind: judged by two terminals that read the same stream.

use std::path::{Path, PathBuf};

use super::tmux::Tmux;

const COLUMNS: u16 = 100;
const ROWS: u16 = 30;

/// Lines of one kind each, with a mark at their end.
const LINES: [&str; 10] = [
    "plain abcdefghijklmnopqrstuvwxyz 0123456789 abcdefghijklmnopqrstuvwxyz",
    "flags \u{1f1e9}\u{1f1ea}\u{1f1eb}\u{1f1f7}\u{1f1ef}\u{1f1f5} \u{1f1e9}",
    "family \u{1f469}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{1f3f3}\u{fe0f}\u{200d}\u{1f308}",
    "skin \u{1f44d}\u{1f3fd}\u{1f44b}\u{1f3ff} alone \u{1f3fd}",
    "selected \u{2764}\u{fe0f} \u{2601}\u{fe0f} \u{2602}\u{fe0e}",
    "keycaps 1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3}",
    "wide \u{65e5}\u{672c}\u{8a9e} \u{d55c}\u{ad6d}\u{c5b4} \u{ff76}\u{ff9e}\u{ff9e} \u{ff9f}",
    "marks e\u{301}\u{302} n\u{303} \u{301}\u{301}\u{301}\u{301}\u{301}\u{301} x",
    "emoji \u{1f680}\u{1f525}\u{1f40d} \u{1fae8} \u{1fabf}",
    "symbols \u{26a0} \u{2713} \u{2717} \u{2192} \u{231b}",
];

/// What a program wrote to its terminal.
struct Stream(PathBuf);

impl Stream {
    fn of(t: &Tmux) -> Self {
        let path = t.home().join("stream");
        t.tmux(&["pipe-pane", "-t", "t", &format!("cat > {}", path.display())]);
        Self(path)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(Path::new(&self.0)).unwrap_or_default()
    }

    /// How often the whole screen was drawn, to its end.
    fn redrawn(&self) -> usize {
        let bytes = self.bytes();
        let text = String::from_utf8_lossy(&bytes);
        let after: Vec<&str> = text.split("\u{1b}[2J").skip(1).collect();
        after.iter().filter(|rest| rest.contains("\u{1b}[?2026l")).count()
    }

    /// The screen of another terminal that has read the same.
    fn screen(&self) -> String {
        // tmux draws nothing for pictures that are newer than its tables.
        let mut parser =
            vt100::Parser::new(ROWS.try_into().expect("rows"), COLUMNS.try_into().expect("columns"), 0);
        parser.process(&self.bytes());
        parser.screen().contents().replace(['\u{1fae8}', '\u{1fabf}'], "  ")
    }
}

/// Draws everything again.
fn redraw(t: &Tmux, stream: &Stream) -> String {
    let before = stream.redrawn();
    t.keys(&["C-l"]);
    t.until("a new screen", |_| stream.redrawn() > before, || {});
    t.screen()
}

fn trimmed(screen: &str) -> Vec<&str> {
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |at| at + 1);
    lines[..end].to_vec()
}

#[test]
fn wide_and_joined_characters_leave_no_stray_cells() {
    let Some(t) = Tmux::start("wide", COLUMNS, ROWS) else { return };
    t.wait(&["local ok"]);
    let file = t.home().join("lines");
    let text: String = (0..120).map(|n| format!("{n:03} {} |\n", LINES[n * 7 % LINES.len()])).collect();
    std::fs::write(&file, text).expect("a file is written");
    t.submit("wide", "1", &["cat", &file.display().to_string()]);
    t.keys(&["C-l"]);
    t.wait(&["DONE"]);
    let stream = Stream::of(&t);
    t.keys(&["Enter", "4"]);
    t.wait(&["[4 logs]", "119 "]);
    redraw(&t, &stream);
    // Each of these moves the lines by another distance, and sideways through the characters.
    for (keys, sign) in [
        (&["g"][..], "000 "),
        (&["PPage", "NPage", "NPage"], "PAUSED"),
        (&["w"], "PAUSED"),
        (&["w", "Right"], "<"),
        (&["Left", "G"], "119 "),
        (&["2"], "[2 overview]"),
        (&["4", "g"], "000 "),
    ] {
        t.keys(keys);
        t.wait(&[sign]);
        // What is drawn on what was there before is what is drawn on an empty screen.
        let last = std::cell::RefCell::new(String::new());
        t.until("a screen that rests", |screen| last.replace(screen.to_owned()) == screen, || {});
        let grown = last.into_inner();
        let whole = redraw(&t, &stream);
        assert_eq!(trimmed(&grown), trimmed(&whole), "after {keys:?}");
        assert_eq!(trimmed(&stream.screen()), trimmed(&t.screen()), "after {keys:?}");
    }
    let screen = t.screen();
    for shown in ["flags DEFRJP D |", "selected \u{2764}", "skin \u{1f44d}"] {
        assert!(screen.contains(shown), "{shown}\n{screen}");
    }
}
