//! A terminal that runs weftrun, polled instead of slept for. Without tmux the tests are skipped with a
//! message.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};
use weftrun_testkit::child;

/// How long a screen may take to come: the machines of a CI are slow.
const PATIENCE: Duration = Duration::from_mins(2);

/// A terminal with weftrun in it.
pub struct Tmux {
    socket: String,
    home: tempfile::TempDir,
}

impl Tmux {
    /// Starts weftrun in a terminal of some size, with a home of its own; none where there is no tmux.
    pub fn start(name: &str, columns: u16, rows: u16) -> Option<Self> {
        Self::with(name, (columns, rows), ended)
    }

    /// The same with a configuration, made in that home.
    pub fn configured(name: &str, size: (u16, u16), config: impl Fn(&Path) -> String) -> Option<Self> {
        Self::prepared(name, size, |tmux| {
            let folder = tmux.home().join("config/weftrun");
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("config.toml"), config(tmux.home())).expect("a file is written");
            ended(&tmux.words())
        })
    }

    /// Starts a shell command in a terminal; it is made of the words that start weftrun.
    pub fn with(name: &str, size: (u16, u16), command: impl Fn(&str) -> String) -> Option<Self> {
        Self::prepared(name, size, |tmux| command(&tmux.words()))
    }

    /// Starts a replay of a capture or of logs, and waits until all of it was played.
    pub fn replay(name: &str, size: (u16, u16), what: &str) -> Option<Self> {
        Self::replay_as(name, size, what, str::to_owned)
    }

    /// The same with other words that start weftrun.
    pub fn replay_as(
        name: &str,
        size: (u16, u16),
        what: &str,
        started: impl Fn(&str) -> String,
    ) -> Option<Self> {
        let t = Self::with(name, size, |weftrun| {
            format!("{} tui --replay {what} --speed 0; {AFTER}", started(weftrun))
        })?;
        let played = |screen: &str| {
            screen.contains("[2 overview]") && (screen.contains("DONE") || screen.contains("FAIL"))
        };
        t.until("the end of the replay", played, || {});
        Some(t)
    }

    fn prepared(name: &str, size: (u16, u16), command: impl Fn(&Self) -> String) -> Option<Self> {
        let home = tempfile::tempdir().expect("a folder");
        if child::command("tmux").arg("-V").output().is_err() {
            weftrun_testkit::skipped("tmux is not installed");
            return None;
        }
        let tmux = Self { socket: format!("weftrun-test-{name}-{}", std::process::id()), home };
        let (columns, rows) = (size.0.to_string(), size.1.to_string());
        let command = command(&tmux);
        let session =
            ["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "-s", "t", &command];
        let out = tmux.tmux(&session);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Some(tmux)
    }

    /// What starts weftrun in this home, as a shell takes it.
    pub fn words(&self) -> String {
        let home = self.home.path().display();
        format!(
            "env -u NO_COLOR HOME={home} XDG_STATE_HOME={home}/state XDG_CONFIG_HOME={home}/config {}",
            env!("CARGO_BIN_EXE_weftrun")
        )
    }

    /// Runs the command line beside the terminal, in the same home.
    pub fn weftrun(&self, arguments: &[&str]) -> String {
        let home = self.home.path();
        let out = child::command(env!("CARGO_BIN_EXE_weftrun"))
            .env("HOME", home)
            .args(arguments)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .output()
            .expect("weftrun runs");
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    /// Submits a job of one node with some ranks, each of which runs a command; returns its handle.
    pub fn submit(&self, name: &str, ranks: &str, command: &[&str]) -> String {
        let shape = ["--nodes", "1", "--ranks-per-node", ranks, "--launch", "per-rank", "--"];
        self.weftrun(&[&["submit", "--name", name], &shape[..], command].concat())
    }

    /// Answers a prompt that a key opens.
    pub fn answer(&self, key: &str, label: &str, text: &str) {
        self.keys(&[key]);
        self.wait(&[label]);
        self.keys(&["C-u"]);
        self.type_text(text);
        self.keys(&["Enter"]);
    }

    /// Presses and releases the mouse button at a column and row, from 1.
    pub fn click(&self, at: (usize, usize)) {
        self.drag(at, at);
    }

    /// Presses the mouse button, moves, and releases it.
    pub fn drag(&self, from: (usize, usize), to: (usize, usize)) {
        let moved = if from == to { String::new() } else { format!("\u{1b}[<32;{};{}M", to.0, to.1) };
        self.type_text(&format!("\u{1b}[<0;{};{}M{moved}\u{1b}[<0;{};{}m", from.0, from.1, to.0, to.1));
    }

    /// The home of what runs in it.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs tmux itself.
    pub fn tmux(&self, arguments: &[&str]) -> Output {
        // The first call starts the server, whose environment is that of the programs in the terminal.
        let mut tmux = child::command("tmux");
        tmux.env("HOME", self.home.path()).env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh").args([
            "-u",
            "-L",
            &self.socket,
        ]);
        tmux.args(arguments).output().expect("tmux runs")
    }

    /// Presses keys, by tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        for key in keys {
            self.tmux(&["send-keys", "-t", "t", key]);
        }
    }

    /// Types a text.
    pub fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "t", "-l", text]);
    }

    /// What the terminal shows.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p", "-t", "t"]).stdout).into_owned()
    }

    /// Waits until the screen is as wanted; between two looks something may be done.
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool, between: impl Fn()) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not come:\n{screen}");
            between();
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the screen holds all of these.
    pub fn wait(&self, texts: &[&str]) -> String {
        self.until(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)), || {})
    }
}

/// What the shell does after weftrun: the screen stays to be read.
pub const AFTER: &str = "echo ended with $?; exec cat";

fn ended(weftrun: &str) -> String {
    format!("{weftrun}; {AFTER}")
}

/// Column and row of a text, as a mouse tells them.
pub fn place(screen: &str, text: &str) -> (usize, usize) {
    let found = screen.lines().enumerate().find_map(|(row, line)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count() + 1, row + 1))
    });
    found.unwrap_or_else(|| panic!("`{text}` is missing:\n{screen}"))
}

/// Row of a text, from 0.
pub fn line_of(screen: &str, text: &str) -> usize {
    place(screen, text).1 - 1
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
