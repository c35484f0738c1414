//! How the terminal UI treats its terminal: other sizes, the shell, the clipboard, colours; and that it goes on where it
//! was left.

use super::tmux::Tmux;

const REPLAY: &str = "tui --replay socket_2x2 --speed 0";

#[test]
fn a_replay_needs_no_cluster() {
    let Some(t) = Tmux::replay("replay", (100, 30), "socket_2x2") else { return };
    t.keys(&["3"]);
    t.wait(&["node × node", "T TCP socket"]);
    t.keys(&["4"]);
    t.wait(&["NCCL INFO", "END"]);
    t.keys(&["x"]);
    t.wait(&["has ended already"]);
    // Refused before it is asked about.
    t.keys(&["V"]);
    let screen = t.wait(&["target `replay` only shows jobs"]);
    assert!(!screen.contains("submit a benchmark?"), "{screen}");
}

#[test]
fn it_fits_the_terminal_whatever_its_size() {
    let Some(t) = Tmux::replay("resize", (80, 24), "socket_2x2") else { return };
    // No query that the terminal would have to answer: some never do, and it takes a round trip.
    let stream = t.home().join("stream");
    t.tmux(&["pipe-pane", "-t", "t", &format!("cat > {}", stream.display())]);
    for (columns, rows, sign) in
        [("60", "15", "[2 over]"), ("160", "48", "5 diagnosis"), ("50", "10", "needs 60x15")]
    {
        t.tmux(&["resize-window", "-t", "t", "-x", columns, "-y", rows]);
        t.wait(&[sign]);
    }
    let written = || std::fs::read(&stream).unwrap_or_default();
    t.until("the stream", |_| written().windows(5).any(|bytes| bytes == b"60x15"), || {});
    assert!(!written().windows(4).any(|bytes| bytes == b"\x1b[6n"));
}

#[test]
fn the_shell_gets_the_terminal_back_and_gives_it_again() {
    let shell = |_: &str| "bash --norc --noprofile -i".to_owned();
    let Some(t) = Tmux::with("suspend", (120, 24), shell) else { return };
    // Kept short: a line that wraps is drawn by the shell, not by us.
    std::fs::write(t.home().join("go"), format!("exec {} {REPLAY}\n", t.words())).expect("a file is written");
    t.type_text(&format!("cd {}; clear; sh go\n", t.home().display()));
    t.wait(&["[2 overview]", "DONE"]);
    t.keys(&["C-z"]);
    t.wait(&["Stopped"]);
    assert!(!t.screen().contains("[2 overview]"), "{}", t.screen());
    t.type_text("fg\n");
    t.wait(&["[2 overview]", "DONE"]);
    t.keys(&["4"]);
    t.wait(&["[4 logs]"]);
    t.keys(&["Q"]);
    t.until("the shell", |screen| !screen.contains("[4 logs]") && screen.contains("bash-"), || {});
}

/// The hook of the UI and that of the program end the process before anything unwinds, here as in a release, where
/// nothing could: what gives the terminal back is the hook.
#[test]
fn a_bug_gives_the_terminal_back_before_it_is_said() {
    for place in ["loop", "task", "frame"] {
        let Some(t) = Tmux::with(&format!("bug-{place}"), (100, 30), |weftrun| {
            let weftrun = weftrun
                .replace("-u NO_COLOR", &format!("-u NO_COLOR RUST_BACKTRACE=0 WEFTRUN_TEST_BUG={place}"));
            format!("{weftrun}; echo ended with $?; stty -a; exec cat")
        }) else {
            return;
        };
        let modes = || {
            let format = "alternate #{alternate_on} cursor #{cursor_flag} mouse #{mouse_any_flag}";
            String::from_utf8_lossy(&t.tmux(&["display-message", "-p", "-t", "t", format]).stdout)
                .trim()
                .to_owned()
        };
        t.wait(&["local ok"]);
        t.keys(&["m"]);
        t.wait(&["mouse on"]);
        assert_eq!(modes(), "alternate 1 cursor 0 mouse 1");
        t.keys(&["C-l"]);
        let screen =
            t.wait(&["a bug on demand", "this is a bug in weftrun", "ended with 70", " icanon", " echo "]);
        assert_eq!(modes(), "alternate 0 cursor 1 mouse 0", "{screen}");
        assert!(!screen.contains("-icanon") && !screen.contains("-echo "), "{screen}");
        assert!(!screen.contains("drawn over the message"), "{screen}");
    }
}

#[test]
fn what_is_copied_is_on_the_clipboard_and_in_a_file() {
    let Some(t) = Tmux::replay("copy", (120, 30), "socket_2x2") else { return };
    t.tmux(&["set-option", "-s", "set-clipboard", "on"]);
    t.keys(&["1"]);
    t.wait(&["[1 jobs]"]);
    t.keys(&["y"]);
    t.wait(&["copied (also in"]);
    let handle = "replay://replay/socket_2x2";
    let file = t.home().join("state/weftrun/copied.txt");
    assert_eq!(std::fs::read_to_string(file).expect("the copy is there"), handle);
    t.until("the clipboard", |_| t.tmux(&["show-buffer"]).stdout == handle.as_bytes(), || {});
}

#[test]
fn without_colour_there_is_none() {
    let Some(t) =
        Tmux::replay_as("mono", (100, 30), "socket_2x2", |words| words.replace("-u NO_COLOR", "NO_COLOR=1"))
    else {
        return;
    };
    let plain = |t: &Tmux| {
        String::from_utf8_lossy(&t.tmux(&["capture-pane", "-e", "-p", "-t", "t"]).stdout).into_owned()
    };
    let coloured = |text: &str| {
        text.split("\u{1b}[").skip(1).any(|code| {
            let code = code.split('m').next().unwrap_or_default();
            code.split(';')
                .any(|n| n.parse::<u8>().is_ok_and(|n| (30..=48).contains(&n) && n != 39 || n >= 90))
        })
    };
    assert!(!coloured(&plain(&t)), "{}", plain(&t));
    let Some(t) = Tmux::replay("colours", (100, 30), "socket_2x2") else { return };
    assert!(coloured(&plain(&t)), "{}", plain(&t));
}

#[test]
fn it_goes_on_where_it_was_left() {
    let Some(t) = Tmux::with("session", (120, 30), |weftrun| {
        format!("{weftrun}; echo ended with $?; {weftrun}; echo ended again; exec cat")
    }) else {
        return;
    };
    t.wait(&["local ok"]);
    t.submit("left", "1", &["sh", "-c", "echo WARNING one; echo two"]);
    t.keys(&["C-l"]);
    t.wait(&["DONE", "left"]);
    t.keys(&["Enter"]);
    t.wait(&["[2 overview]"]);
    t.keys(&["4"]);
    t.wait(&["WARNING one", "two"]);
    t.keys(&["v", "v"]);
    t.until("only warnings", |screen| screen.contains(">= WARN") && !screen.contains("I two"), || {});
    t.keys(&["Q"]);
    t.wait(&["[4 logs]", "as you left it", ">= WARN", "WARNING one"]);
}

#[test]
fn a_hostile_log_reaches_the_screen_as_text_only() {
    let Some(t) = Tmux::start("hostile", 120, 30) else { return };
    t.tmux(&["set-option", "-s", "set-clipboard", "on"]);
    t.wait(&["local ok"]);
    let evil = r"before \033]0;PWNED\007\033]52;c;UFdORUQ=\007\033[2J\033[1;1H\033[?1049l\033c\007 after";
    let script =
        format!("printf '{evil}\\n'; printf 'torn \\342\\202 \\377 bytes\\n'; printf 'last line\\n'");
    t.submit("evil", "1", &["sh", "-c", &script]);
    t.keys(&["C-l"]);
    t.wait(&["evil"]);
    t.keys(&["Enter", "4"]);
    t.wait(&["[4 logs]", "before", "after", "torn", "last line"]);
    let title = t.tmux(&["display-message", "-p", "-t", "t", "#{pane_title}"]).stdout;
    assert!(!String::from_utf8_lossy(&title).contains("PWNED"));
    assert!(!t.tmux(&["show-buffer"]).status.success(), "nothing was copied");
}
