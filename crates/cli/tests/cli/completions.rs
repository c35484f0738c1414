//! Completions, in the shells themselves.

use std::path::Path;

use crate::tui::tmux::Tmux;
use weftrun_testkit::child;

/// A shell: how it is started without the user's settings, and what it runs first.
struct Shell {
    name: &'static str,
    start: &'static str,
    first: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell { name: "bash", start: "bash --norc --noprofile -i", first: "source script.bash" },
    Shell { name: "zsh", start: "zsh -f -i", first: "autoload -U compinit; compinit -u; source script.zsh" },
    Shell { name: "fish", start: "fish --no-config -i", first: "source script.fish" },
];

/// Starts a shell in a folder with completions of weftrun; none where there is no such shell.
fn started(shell: &Shell, files: impl Fn(&Path)) -> Option<Tmux> {
    if child::command(shell.name).arg("--version").output().is_err() {
        weftrun_testkit::skipped(format_args!("{} is not installed", shell.name));
        return None;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_weftrun")).parent().unwrap().display();
    let t = Tmux::with(&format!("complete-{}", shell.name), (120, 40), |weftrun| {
        let env = weftrun.rsplit_once(' ').map_or("env", |(env, _)| env);
        format!(
            "cd \"$(dirname \"$({env} sh -c 'echo $HOME/x')\")\" && {env} PATH={program}:$PATH {}",
            shell.start
        )
    })?;
    files(t.home());
    let script = t.home().join(format!("script.{}", shell.name));
    std::fs::write(script, t.weftrun(&["completions", shell.name])).unwrap();
    t.type_text(&format!("{}; echo come\"-\"on\n", shell.first));
    t.wait(&["come-on"]);
    Some(t)
}

#[test]
fn names_with_blanks_and_quotes_are_completed_as_one_word() {
    let log = include_bytes!("../../../diagnose/tests/cases/nccl/captures/shm/rank0.log");
    for shell in &SHELLS {
        let files = |home: &Path| {
            std::fs::create_dir(home.join("my logs")).unwrap();
            std::fs::write(home.join("my logs/rank 0.log"), log).unwrap();
            std::fs::write(home.join("it's $5.log"), log).unwrap();
            std::fs::write(home.join("b*c.log"), log).unwrap();
            std::fs::write(home.join("bxc.log"), log).unwrap();
        };
        let Some(t) = started(shell, files) else { continue };
        // What is typed before a tab, and what the line is then.
        let complete = |typed: &str, then: &str| {
            t.type_text(typed);
            t.keys(&["Tab"]);
            t.until(&format!("{}: {then}", shell.name), |screen| screen.contains(then), || {});
        };
        complete("weftrun transport my", "transport my\\ logs/");
        complete("ra", "transport my\\ logs/rank\\ 0.log");
        complete("it", "0.log it\\'s\\ \\$5.log");
        // fish looks for files that fit `*` itself, and does not ask.
        if shell.name != "fish" {
            complete("b\\*", "5.log b\\*c.log");
        }
        t.type_text(" -o json > answer.json; echo en\"-\"ded\n");
        t.wait(&["en-ded"]);
        let answer = std::fs::read_to_string(t.home().join("answer.json")).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["verdict"].is_object(), "{}: {answer}", shell.name);
        complete("weftrun why \"my", "why \"my logs");
        t.type_text("ra");
        t.keys(&["Tab"]);
        // bash ends the quote before the `/`, and writes the whole with backslashes then.
        let whole = ["why \"my logs/rank 0.log\"", "why my\\ logs/rank\\ 0.log"];
        t.until("a word in quotes", |screen| whole.iter().any(|line| screen.contains(line)), || {});
    }
}
